"""The arena: its paths, its rule, what it computes, its command."""

import json
import shutil
from dataclasses import replace
from pathlib import Path as File

import polars as pl
import pytest
from experiments.comparison.paths import COMMON, QUICK
from typer.testing import CliRunner, Result

from ontempo.lab import main
from ontempo.lab.arena import command, contenders, demo, films, groups, output, rows, summary
from ontempo.lab.arena.causes import read_causes
from ontempo.lab.arena.cells import (
    AT_ONCE,
    EMULATION,
    SIMULATION,
    Buffer,
    Entry,
    cells_of,
    entry,
    playout_ms,
    scenario_text,
    write_scenarios,
)
from ontempo.lab.arena.grid import EMULATED, emulated_entries, grid, plain_path
from ontempo.lab.arena.paths import Group
from ontempo.lab.engine import NativeEngine
from ontempo.lab.errors import BAD_INPUT, ENVIRONMENT, BadInputError

ROOT = File(__file__).resolve().parents[2]
runner = CliRunner()

SRT, RIST, UDP = (contenders.named((name,))[0] for name in ("srt", "rist", "udp"))


def arena(out: File, *more: str) -> Result:
    return runner.invoke(main.app, ["arena", "--no-open", "--out", str(out), *more])


def some_rows(*values: tuple[str, str, str, int, float]) -> pl.DataFrame:
    """Rows of world, path, contender, seed and share on time, at four round trips."""
    rest = dict.fromkeys(rows.SCHEMA, None) | {"class": "outage", "film": "vbr-50", "buffer": "4"}
    names = ("world", "path", "contender", "seed", "on_time")
    found = [rest | dict(zip(names, one, strict=True)) for one in values]
    return pl.DataFrame(found, schema=rows.SCHEMA)


def test_the_paths_of_the_comparison_are_those_of_the_real_programs() -> None:
    def found(text: str, of: str) -> str:
        return text.partition(f'{of} = "')[2].partition('"')[0]

    for ours, theirs in ((groups.COMPARISON, COMMON), (groups.COMPARISON_QUICK, QUICK)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            link = other.link("a", "b")
            assert [found(one.text, "bottleneck = { rate"), found(one.text, "limit")] == [
                found(link, "rate"),
                found(link, "limit"),
            ]
            assert (
                one.text.partition("loss = ")[2].split("}")[0]
                == (link.partition("loss = ")[2].split("}")[0])
            )
            assert f'delay = "{other.rtt_ms * 500} us"' in one.text
            assert playout_ms(one, other.latency_ms) == other.playout_ms(other.latency_ms)


def test_the_round_trips_of_the_profiles_are_those_that_scenarios_have(tmp_path: File) -> None:
    for name, rtt_ms in groups.PROFILE_RTTS_MS.items():
        one = entry(groups.profile_path(name), films.LIVE, 2.0)
        write_scenarios([one], [UDP], tmp_path)
        cell = next(cells_of(one, [UDP], tmp_path))
        found = json.loads(NativeEngine().load(cell.scenario, ()).canonical())
        link = found["topology"]["bottleneck"]
        units = {"ms": 1.0, "us": 0.001}
        ways = [str(way["delay"]).split() for way in (link, link["back"])]
        assert sum(float(value) * units[unit] for value, unit in ways) == pytest.approx(rtt_ms)


@pytest.mark.parametrize("group", groups.GROUPS, ids=lambda group: group.name)
def test_every_path_is_a_scenario_for_every_contender(group: Group, tmp_path: File) -> None:
    engine = NativeEngine()
    assert set(group.quick) <= {replace(one, seeds=(1,)) for one in group.paths} | {
        replace(one, seeds=one.seeds[:2]) for one in group.paths
    }
    for number, path in enumerate(group.paths):
        one = entry(path, films.FILMS[number % len(films.FILMS)], 20.0)
        write_scenarios([one], contenders.CONTENDERS, tmp_path)
        contender = contenders.CONTENDERS[number % len(contenders.CONTENDERS)]
        cell = next(cells_of(one, [contender], tmp_path))
        engine.load(cell.scenario, cell.overrides)


def test_a_run_lasts_until_the_longest_player_has_shown_all() -> None:
    one = entry(groups.profile_path("satellite-geo"), films.LIVE, 20.0)
    assert [(each.label, each.ms) for each in one.buffers] == [
        ("1.2", 696),
        ("2", 1160),
        ("4", 2320),
    ]
    assert 'duration = "25170 ms"' in scenario_text(one, 2320)  # 22 + 0.29 + 2.32 + 0.06 + 0.5
    assert [each.label for each in one.of(RIST)] == ["1.2", "2", "4", "default"]
    assert [each.label for each in one.of(UDP)] == ["1.2", "2", "4"]


def test_one_run_without_a_buffer_serves_all_players(tmp_path: File) -> None:
    one = entry(groups.COMPARISON[0], films.LIVE, 2.0)
    assert len(list(cells_of(one, [UDP], tmp_path))) == 1
    assert len(list(cells_of(one, [SRT], tmp_path))) == 4


def test_films_of_a_run_count_together(tmp_path: File) -> None:
    path = replace(groups.COMPARISON[0], films=(("film0", ""), ("film1", "")))
    one = Entry(path, films.LIVE, (Buffer("4", 100),), 2.0, has_default=False)
    player_s = playout_ms(path, 100) / 1000
    cell = next(cells_of(one, [SRT], tmp_path))
    media = pl.DataFrame(
        {
            "flow": [0, 1, 0, 2],
            "group": ["film0", "film1", "film0", "other"],
            "player_latency_s": [player_s, player_s, 9.0, player_s],
            "pictures": [50, 50, 50, 50],
            "decodable_pictures": [50, 40, 0, 0],
            "sound_frames": [10, 10, 10, 10],
            "decodable_sound": [10, 5, 0, 0],
            "freezes": [0, 2, 9, 9],
            "frozen_s": [0.0, 1.0, 9.0, 9.0],
            "latency_p50_s": [0.1, 0.2, 9.0, 9.0],
            "latency_p99_s": [0.2, None, 9.0, 9.0],
            "media_bytes": [100, 100, 100, 100],
            "wire_bytes": [110, 130, 900, 900],
            "back_bytes": [1, 3, 9, 9],
        }
    )
    (row,) = rows.of_cell(media, cell, one, SRT)
    assert (row["on_time"], row["sound"], row["bytes"], row["back"]) == (0.9, 0.75, 1.2, 0.02)
    assert row["latency_p50_s"] == pytest.approx(0.15)
    assert row["latency_p99_s"] == 0.2
    assert row["freezes_a_minute"] == 2 / (100 / 1500)
    assert row["frozen"] == pytest.approx(1 / 4)
    assert list(rows.of_cell(media.filter(pictures=0), cell, one, SRT)) == []


def test_each_path_of_a_class_weighs_the_same() -> None:
    found = some_rows(
        (SIMULATION, "a", "srt", 1, 1.0),
        (SIMULATION, "a", "srt", 2, 1.0),
        (SIMULATION, "a", "srt", 3, 1.0),
        (SIMULATION, "b", "srt", 1, 0.0),
    )
    assert summary.by_class(found)["on_time"].to_list() == [0.5]


def test_worlds_that_differ_by_more_than_three_points_are_listed() -> None:
    found = some_rows(
        (SIMULATION, "a", "srt", 1, 0.90),
        (EMULATION, "a", "srt", 1, 0.92),
        (SIMULATION, "b", "srt", 1, 1.00),
        (SIMULATION, "b", "srt", 2, 0.80),
        (EMULATION, "b", "srt", 1, 0.86),
        (SIMULATION, "c", "srt", 1, 0.90),
        (EMULATION, "d", "srt", 1, 0.10),
    )
    outcome = output.Outcome("quick", found.clear(), found, "engine")
    assert [one.path for one in outcome.apart] == ["outage/a", "outage/b"]
    assert [one.path for one in summary.far_apart(outcome.apart)] == ["outage/b"]
    assert output.notes(outcome) == [
        "1 of 2 runs differ by at most 3 points.",
        "outage/b, SRT: simulated 100.0 %, emulated 86.0 %, within what ten seeds give. Cause: the"
        " draw. Experiment: a simulated seed goes as far.",
    ]
    text = '["outage/b".srt]\ncause = "chance"\nexperiment = "twenty seeds"\n'
    with_cause = output.notes(outcome, read_causes(text))
    assert with_cause[1].endswith("seeds give. Cause: chance. Experiment: twenty seeds.")


def test_worlds_are_compared_by_the_same_seeds() -> None:
    found = some_rows(
        *((SIMULATION, "a", "srt", seed, share) for seed, share in ((1, 0.5), (2, 0.7), (3, 1.0))),
        (EMULATION, "a", "srt", 1, 0.52),
        (EMULATION, "a", "srt", 2, 0.68),
    )
    (one,) = summary.both_worlds(found)
    assert (one.seeds, one.low, one.high) == (2, 0.5, 1.0)
    assert [one.simulated, one.emulated] == pytest.approx([0.6, 0.6])


def test_a_cause_names_its_experiment_a_path_and_a_contender_that_are_run() -> None:
    with pytest.raises(BadInputError, match=r"causes\.toml: outage/b, srt: needs .* experiment"):
        read_causes('["outage/b".srt]\ncause = "chance"\n')
    paths = {plain_path(one.path.id) for one in emulated_entries()}
    assert set(read_causes()) <= {(path, name) for path in paths for name in EMULATED}


def test_a_congestion_control_that_the_kernel_lacks_is_named_and_the_others_run(
    tmp_path: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    controls = tmp_path / "available"
    controls.write_text("reno cubic\n")
    monkeypatch.setattr(command, "CONTROLS", controls)
    have = {name for one in contenders.CONTENDERS for name in one.programs}
    monkeypatch.setattr(shutil, "which", lambda name: name if name in have else None)
    lacks = command.lacking(grid("quick", [EMULATION]).real(()))
    assert list(lacks.values()) == ["TCP BBR with real packets: load the module tcp_bbr"]
    left = grid("quick", [EMULATION]).real(tuple(lacks))
    assert [one.name for one in left] == [name for name in EMULATED if name != "tcp-bbr"]


def test_patterns_narrow_by_kind_and_one_that_fits_nothing_is_refused() -> None:
    found = grid("full", [SIMULATION], ["outage/1s-*", "jitter", "vbr-50", "srt"])
    assert {one.path.id for one in found.entries} == {
        *(f"outage/1s-{rtt}ms" for rtt in (20, 100, 300)),
        *(f"jitter/{jitter}ms-{rtt}ms" for jitter in (10, 50) for rtt in (20, 100, 300)),
    }
    assert {one.film.name for one in found.entries} == {"vbr-50"}
    assert found.contenders == (SRT,)
    both = grid("quick", [SIMULATION, EMULATION], ["outage/1s-100ms", "srt"])
    assert [one.path.id for one in both.both] == ["outage/1s-100ms-10s"]
    with pytest.raises(BadInputError, match=r"--only outages: no class, .* near: outage"):
        grid("quick", [SIMULATION], ["outages"])
    changed = grid("full", [SIMULATION], ["address"])
    assert [one.path.id for one in changed.entries[::2]] == [
        f"address/{rtt}ms" for rtt in (20, 100, 300)
    ]
    assert all('address-changes = ["8 s"]\n' in one.path.films[0][1] for one in changed.entries)


def test_both_worlds_run_the_same_text_twelve_paths_within_15_minutes() -> None:
    assert len({one.path.id for one in emulated_entries()}) == 12
    cells = grid("quick", [EMULATION]).cells(File("out"))
    real = [cell for cell in cells if cell.real]
    assert len(EMULATED) == 6
    assert len(real) == (12 + 3 * 2) * len(EMULATED), "three profiles with two seeds more"
    assert sum(cell.cost for cell in real) / AT_ONCE < 15 * 60
    simulated = {(c.scenario, c.overrides) for c in cells if c.real is None}
    assert {(c.scenario, c.overrides) for c in real} == simulated
    assert len(cells) - len(real) == 10 * 12 * len(EMULATED)


def test_every_contender_needs_programs_or_a_congestion_control_or_nothing_more() -> None:
    needs = {one.name: one.control for one in contenders.CONTENDERS if one.control}
    assert needs == {"tcp-cubic": "cubic", "tcp-bbr": "bbr", "tcp-pert": "pert"}
    assert not any(one.control and one.programs for one in contenders.CONTENDERS)


def test_missing_programs_are_named_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if "srt" in name else name)
    lacks = command.lacking([one for one in contenders.CONTENDERS if one.programs])
    assert list(lacks.values()) == ["SRT with real packets: install srt-tools"]
    left = grid("quick", [EMULATION]).real(tuple(lacks))
    assert [one.name for one in left] == [name for name in EMULATED if name != "srt"]


def test_the_command_prints_tables_of_80_columns_and_runs_only_what_is_missing(
    tmp_path: File,
) -> None:
    asked = ("--only", "outage", "--only", "udp", "--only", "srt")
    first = arena(tmp_path, *asked)
    assert first.exit_code == 0, first.output
    assert max(map(len, first.stdout.partition("\nresults:")[0].splitlines())) <= 80
    assert "SRT" in first.stdout
    assert "RIST " not in first.stdout
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "<h2>outage: once" in page
    stored = pl.read_parquet(tmp_path / "arena.parquet")
    assert stored.columns == list(rows.SCHEMA)
    assert stored.height == 7
    assert stored["on_time"].is_between(0, 1).all()
    again = arena(tmp_path, *asked, "--json")
    assert "nothing to run" in again.stderr
    assert json.loads(again.stdout) == json.loads((tmp_path / "arena.json").read_text("utf-8"))


def test_mistakes_have_the_exit_codes_of_the_other_commands(
    tmp_path: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = arena(tmp_path, "--worlds", "moon")
    assert world.exit_code == BAD_INPUT
    assert "--worlds: 'moon' is none of simulation, emulation" in world.output
    assert arena(tmp_path, "--only", "nothing-such").exit_code == BAD_INPUT
    nothing = arena(tmp_path, "--only", "rfc8867", "--worlds", "emulation")
    assert nothing.exit_code == BAD_INPUT
    assert "nothing is left to run" in nothing.output
    monkeypatch.setattr(command, "hindrance", lambda: "needs the rights of root: run with sudo")
    refused = arena(tmp_path, "--worlds", "emulation")
    assert refused.exit_code == ENVIRONMENT
    assert "--worlds emulation: needs the rights of root" in refused.output


def test_the_page_in_markdown_keeps_what_stands_around_its_part(tmp_path: File) -> None:
    outcome = output.Outcome(
        "quick",
        some_rows((SIMULATION, "a", "srt", 1, 0.5)),
        pl.DataFrame(schema=rows.SCHEMA),
        "engine",
    )
    page = tmp_path / "page.md"
    page.write_text("before\n{}\nold\n{}\nafter\n".format(*output.MARKS))
    output.write_page(page, outcome)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| SRT |  |  | 50.0 |" in text
    assert all(mark in (ROOT / "docs/comparison.md").read_text() for mark in output.MARKS)


def test_the_demo_prints_a_table_and_writes_a_page(
    tmp_path: File, capsys: pytest.CaptureFixture[str]
) -> None:
    some = demo.demo_grid(["dsl"], contenders.named(("tcp-bbr", "rist")), (1, 2))
    path = demo.run_demo(NativeEngine(), tmp_path, 2, as_json=False, grid=some)
    printed = capsys.readouterr().out
    assert max(map(len, printed.partition("\npage:")[0].splitlines())) <= 80
    assert printed.count("RIST") >= 3
    found = json.loads((tmp_path / "demo.json").read_text("utf-8"))["on_time"]
    assert [(one["profile"], one["seeds"]) for one in found] == [("dsl", 2)] * 6
    page = path.read_text("utf-8")
    assert "ontempo-lab reproduce --quick" in page
    assert page.count('style="--share:') == 6


def test_the_demo_is_what_make_and_the_readme_say() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    assert "ontempo-lab demo" in recipe
    assert len(groups.FIVE_PROFILES) == 5
    assert len(demo.CONTENDERS) == 6
    assert len(demo.BUFFERS) == 3
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert "over five networks, carried by six transports with three buffers" in readme
    assert tuple(demo.KINDS) == groups.FIVE_PROFILES
