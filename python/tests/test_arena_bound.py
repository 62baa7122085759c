"""The bound of a path: no transport has more, and it is not far where it can be known."""

import json
import subprocess
import sys
from pathlib import Path as File

import numpy as np
import polars as pl
import pytest

import ontempo
from ontempo.lab.arena import bound, contenders, films, groups, output, rows
from ontempo.lab.arena.cells import cells_of, entry, playout_ms, write_scenarios
from ontempo.lab.arena.engine import FilmEngine
from ontempo.lab.arena.paths import Path
from ontempo.lab.engine import NativeEngine

SECONDS = 7.0

UDP = contenders.named(("udp",))[0]

NO_CHANGES = pl.DataFrame(
    schema={
        "time_s": pl.Float64,
        "link": pl.String,
        "rate_bps": pl.Float64,
        "delay_s": pl.Float64,
        "loss": pl.Float64,
    }
)
"""The table `capacity` of a link that stays as it is."""


def path_named(name: str) -> Path:
    every = (path for group in groups.GROUPS for path in (*group.paths, *group.quick))
    return next(path for path in every if path.id == name)


def line(rate_bps: float, until_s: float = 100.0) -> bound.Line:
    return bound.Line(np.array([0.0, until_s]), np.array([rate_bps / 8] * 2), np.zeros(2))


def film(count: int, size: float, *, key_every: int = 1) -> list[bound.Picture]:
    """Pictures of one size each 40 ms, with 100 ms for each."""
    return [
        bound.Picture(0, size, i * 0.04, i * 0.04 + 0.1, -1 if i % key_every == 0 else i - 1)
        for i in range(count)
    ]


def test_a_link_that_carries_everything_bounds_nothing() -> None:
    assert bound.most_decodable(film(50, 5000), line(1.05e6)).tolist() == [1.0] * 50


def test_half_the_rate_carries_half_of_pictures_that_need_none() -> None:
    kept = bound.most_decodable(film(500, 5000), line(0.5e6))
    assert kept.mean() == pytest.approx(0.5, abs=0.01)


def test_a_picture_too_large_for_its_window_takes_those_that_need_it_with_it() -> None:
    pictures = film(50, 1000, key_every=25)
    large = pictures[0].size * 100
    pictures[0] = bound.Picture(0, large, 0.0, 0.1, -1)
    kept = bound.most_decodable(pictures, line(1e6))
    assert kept[:25].sum() == 0
    assert kept[25:].tolist() == [1.0] * 25


def test_what_is_carried_follows_the_steps_of_the_rate_and_goes_on_after_the_last() -> None:
    steps = bound.Line(np.array([0.0, 1.0, 2.0]), np.array([100.0, 0.0, 50.0]), np.zeros(3))
    assert steps.carried(np.array([0.0, 0.5, 1.5, 2.0, 4.0])).tolist() == [50, 50, 0, 100]


def test_delays_and_outages_of_a_scenario_are_those_of_its_line_and_losses_cost_nothing() -> None:
    link = {
        "rate": "8 Mbit/s",
        "delay": {"kind": "uniform", "low": "50 ms", "high": "100 ms"},
        "loss": {"kind": "gilbert", "p": 0.01, "q": 0.25},
    }
    capacity = pl.DataFrame(
        {
            "time_s": [1.0, 2.0, 3.0, 1.0],
            "link": ["bottleneck", "bottleneck", "bottleneck", "reverse"],
            "rate_bps": [0.0, 8e6, 8e6, 4e6],
            "delay_s": [None, 0.02, 0.02, None],
            "loss": [None, 0.5, 1.0, None],
        },
        schema_overrides={"delay_s": pl.Float64, "loss": pl.Float64},
    )
    found = bound.line_of({"topology": {"bottleneck": link}}, capacity)
    assert found.rates.tolist() == [1e6, 0.0, 1e6, 0.0]
    assert found.delays.tolist() == [0.05, 0.05, 0.02, 0.02]
    assert found.least_delay(0.5, 1.5) == 0.05
    assert found.least_delay(0.5, 2.5) == 0.02
    back = bound.line_of({"topology": {"bottleneck": link}}, capacity, bound.REVERSE)
    assert back.rates.tolist() == [1e6, 0.5e6]


def test_a_b_picture_that_is_lost_takes_only_its_own_with_it() -> None:
    kinds = ["key", *("reference", "reference", "disposable", "disposable") * 2, "reference", "key"]
    frames = pl.DataFrame(
        {
            "flow": 0,
            "group": "film",
            "frame": range(len(kinds)),
            "type": kinds,
            "size_bytes": 5000,
            "sent_s": [place * 0.04 for place in range(len(kinds))],
        }
    )

    def needs(of: pl.DataFrame) -> list[int]:
        found = bound.pictures_of(of, {"film": None}, 0.1, line(1e6), 100.0)
        return [one.needs for one in found]

    # K P B b b P B b b P K: docs/media.md
    assert needs(frames) == [-1, 0, 1, 2, 2, 1, 5, 6, 6, 5, -1]
    # Where it begins with the first B picture: what was before is not known, P does not need it.
    assert needs(frames[2:]) == [-1, 0, 0, -1, -1, 4, 4, -1, -1]


def test_the_first_paced_picture_is_sent_from_the_start_of_its_flow_on() -> None:
    frames = pl.DataFrame(
        {
            "flow": 0,
            "group": "film",
            "frame": [0, 1],
            "type": ["key", "reference"],
            "size_bytes": 5000,
            "sent_s": [5.3, 5.4],
        }
    )
    found = bound.pictures_of(frames, {"film": 5.0}, 0.1, line(1e6), 100.0)
    assert [one.begin for one in found] == [5.0, 5.3]


def test_a_picture_that_does_not_fit_alone_is_told_to_the_byte() -> None:
    # 0.1 s of 100,000 bytes/s; a window that is rounded to slots would be longer.
    for size, kept in ((10_001, 0.0), (9_999, 1.0)):
        alone = [bound.Picture(0, size, 0.0013, 0.1013, -1)]
        assert bound.most_decodable(alone, line(0.8e6)).tolist() == [kept]


def test_what_comes_before_the_measured_span_is_needed_and_not_counted() -> None:
    shared = {"flow": 0, "group": "film"}
    frames = pl.DataFrame(
        [
            shared | {"frame": 0, "type": "key", "size_bytes": 20_000, "sent_s": 0.0},
            shared | {"frame": 1, "type": "reference", "size_bytes": 100, "sent_s": 1.0},
            shared | {"frame": 2, "type": "key", "size_bytes": 100, "sent_s": 2.0},
        ]
    )
    media = pl.DataFrame({"flow": [0], "player_latency_s": [0.1], "pictures": [2]})
    canonical = {
        "duration": "10 s",
        "measure": {"from": "500 ms"},
        "topology": {"bottleneck": {"rate": "800 kbit/s", "delay": "0 ns"}},
        "flows": {"film": {"application": {"sending": "bursts"}}},
    }
    tables = {"media": media, "frames": frames, "capacity": NO_CHANGES}
    assert bound.at_most(canonical, tables)["at_most_pictures"].to_list() == [1.0]


def test_a_film_each_way_has_the_link_of_its_own_direction() -> None:
    frames = pl.DataFrame(
        {
            "flow": [0, 1],
            "group": ["there", "back"],
            "frame": 0,
            "type": "key",
            "size_bytes": 9_000,
            "sent_s": 0.0,
        }
    )
    media = pl.DataFrame({"flow": [0, 1], "player_latency_s": 0.1, "pictures": 1})
    sending = {"application": {"sending": "bursts"}}
    canonical = {
        "duration": "10 s",
        "measure": {"from": "0 ns"},
        "topology": {"bottleneck": {"rate": "800 kbit/s", "delay": "0 ns"}},
        "flows": {"there": sending, "back": sending | {"from": "right"}},
    }
    tables = {"media": media, "frames": frames, "capacity": NO_CHANGES}
    assert bound.at_most(canonical, tables)["at_most_pictures"].to_list() == [1.0, 1.0]
    slow = pl.DataFrame(
        [{"time_s": 0.0, "link": "reverse", "rate_bps": 4e5, "delay_s": None, "loss": None}],
        schema=NO_CHANGES.schema,
    )
    found = bound.at_most(canonical, tables | {"capacity": slow})
    assert found["at_most_pictures"].to_list() == [1.0, 0.0]


@pytest.mark.parametrize(
    "name",
    [
        "comparison/none-100ms-0.8x",
        "comparison/random5-20ms-2x",
        "comparison/bursts10-300ms-1.1x",
        "profiles/dsl",
        "profiles/lte-driving",
        "outage/0.2s-20ms",
    ],
)
@pytest.mark.parametrize("of_film", [films.FILMS[0], films.FILMS[4]], ids=lambda one: one.name)
def test_no_transport_has_more_pictures_on_time_than_the_bound(
    name: str, of_film: films.Film, tmp_path: File
) -> None:
    one = entry(path_named(name), of_film, SECONDS)
    write_scenarios([one], contenders.CONTENDERS, tmp_path)
    engine = FilmEngine(NativeEngine())
    found: dict[str, dict[str, float]] = {}
    for contender in contenders.CONTENDERS:
        for cell in cells_of(one, [contender], tmp_path, seeds=(1,)):
            scenario = engine.load(cell.scenario, cell.overrides)
            media = engine.run(scenario, 1, ontempo.CancelToken())["media"]
            for row in rows.of_cell(media, cell, one, contender):
                if row["buffer"] != "default":
                    found.setdefault(row["buffer"], {})[contender.name] = row["on_time"]
                if contender is UDP:
                    found[row["buffer"]]["at most"] = row["at_most"]
    assert len(found) == 3
    most = {buffer: shares.pop("at most") for buffer, shares in found.items()}
    for buffer, shares in found.items():
        assert max(shares.values()) <= most[buffer] + 1e-9, (buffer, most, shares)
    # A bound of 1 everywhere would be no bound.
    assert not name.endswith("0.8x") or of_film is films.FILMS[0] or max(most.values()) < 1


def test_the_bound_is_the_first_line_of_a_class_s_table() -> None:
    rest = dict.fromkeys(rows.SCHEMA, None)
    row = rest | {"class": "outage", "path": "p", "film": "f", "buffer": "4", "seed": 1}
    one = row | {"contender": "udp", "on_time": 0.5, "at_most": 0.75}
    lines = output.class_cells(pl.DataFrame([one], schema=rows.SCHEMA, orient="row"))
    assert [line[0] for line in lines] == [output.BOUND, "UDP"]
    assert lines[0][3] == "75.0"


def test_the_bound_of_two_films_is_that_of_both_together(tmp_path: File) -> None:
    text = """title = "two films"
duration = "6 s"
[topology]
kind = "dumbbell"
access = { rate = "1 Gbit/s", delay = "0 ms" }
bottleneck = { rate = "4 Mbit/s", delay = "10 ms" }
[flows.film]
count = COUNT
stop = "5 s"
transport = { kind = "udp" }
[flows.film.application]
kind = "media"
sending = "bursts"
latency = ["1 s"]
generate = { rate = "3 Mbit/s", duration = "5 s" }
"""

    def share(count: int) -> float:
        file = tmp_path / f"{count}.toml"
        file.write_text(text.replace("COUNT", str(count)), "utf-8")
        scenario = ontempo.load(str(file))
        result = ontempo.run(scenario, seed=1)
        names = ("media", "frames", "capacity")
        tables = {name: pl.DataFrame(getattr(result, name)) for name in names}
        media = bound.at_most(json.loads(scenario.canonical()), tables)
        return float(media["at_most_pictures"].sum()) / int(media["pictures"].sum())

    assert share(1) == 1.0
    assert 0.5 < share(2) < 0.95


def test_the_solver_leaves_standard_output_to_documents() -> None:
    program = "from ontempo.lab.arena import bound; bound._solver(); print('the document')"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "the document\n"


def test_a_run_with_equally_long_buffers_counts_each_picture_once(tmp_path: File) -> None:
    one = entry(path_named("profiles/wifi"), films.FILMS[0], 2.0)
    assert len({buffer.ms for buffer in one.of(UDP)}) == 1
    (cell,) = cells_of(one, [UDP], tmp_path, seeds=(1,))
    player_s = playout_ms(one.path, one.buffers[0].ms) / 1000
    counted = ["decodable_pictures", "sound_frames", "decodable_sound", "media_bytes", "wire_bytes"]
    counted += ["back_bytes", "freezes", "frozen_s", *rows.LATENCIES]
    run = {"flow": 0, "group": "film", "player_latency_s": player_s, "pictures": 50}
    media = pl.DataFrame([run | dict.fromkeys(counted, 1)] * 3)
    found = list(rows.of_cell(media, cell, one, UDP))
    assert [row["pictures"] for row in found] == [50, 50, 50]
