"""Table 2 and figure 14: how a film is made, how it is played, and how that is judged."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from experiments.pert import film
from experiments.pert.figures import fig14, table2
from experiments.pert.play import FREE_MBIT_S, OURS, PORT, ends, play, play_cell, read_play
from experiments.pert.playlog import Event, connection, ending, events, silences, stalls
from experiments.pert.serve import FIELDS
from made import Made, Tables
from test_pert_claims import failing

from ontempo.lab.claims import Finding
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.real_time import hindrance
from ontempo.lab.study import Cell

RECORDED = Path(__file__).parent / "recorded"

RAN_DRY = (RECORDED / "vlc-runs-dry.log").read_text("utf-8")
"""Of VLC 3.0.24, while a film came too slowly."""

CANNOT_PLAY = (RECORDED / "vlc-cannot-play.log").read_text("utf-8")
"""Of the same, given a file that is no film."""

SERVED = """control 100.0000 pert
tcp 100.0005 10 2147483647 10 90553 0 0
tcp 100.0105 20 2147483647 18 90600 0 14480
tcp 100.0205 24 22 24 120000 3 40000
"""


MACHINE = pl.DataFrame(
    {"kernel": ["6.18"], "load_before": [0.1], "load_after": [0.2], "lateness_p99_s": [1e-4]}
)


# Events in the logs.


def test_vlcs_late_pictures_and_dry_buffers_are_found() -> None:
    logged = events(RAN_DRY)
    kinds = [one.event for one in logged]
    assert kinds.count(Event.LATE_PICTURE) == 3
    assert kinds.count(Event.DRY) == 2
    assert kinds.count(Event.PLAYING) == 3
    assert kinds[-1] is Event.ENDED
    assert stalls(logged) == pytest.approx([2.1512, 0.8108])
    assert len(silences(logged)) == 2


def test_sound_that_is_dropped_block_by_block_is_one_silence() -> None:
    line = "[00] main audio output warning: buffer too late (-80000 us): dropped"
    dropped = "".join(f"{100 + block * 0.0213:.4f} {line}\n" for block in range(90))
    later = f"105.0000 {line}\n105.0100 [00] ES_OUT_SET_(GROUP_)PCR  is called too late\n"
    assert silences(events(dropped)) == [100.0]
    assert silences(events(dropped + later)) == [100.0, 105.0]


def test_the_ending_has_exit_code_and_processor_time() -> None:
    ended = ending(RAN_DRY)
    assert ended is not None
    assert (ended.code, ended.processor_s) == (0, 2.65)
    assert ending("1.0 [00] main input debug: Buffering 0%") is None


def test_the_servers_samples_become_a_table() -> None:
    tcp = connection(SERVED)
    assert tcp.columns == ["time_s", *FIELDS]
    assert tcp["cwnd"].to_list() == [10, 20, 24]
    assert tcp["time_s"].to_list() == pytest.approx([0, 0.01, 0.02])


def test_a_play_becomes_a_row() -> None:
    tables = read_play(SERVED, RAN_DRY, "pert", 38)
    row = tables["plays"].row(0, named=True)
    assert (row["late_pictures"], row["silences"], row["finished"]) == (3, 2, True)
    assert row["stalled_s"] == pytest.approx(2.962)
    assert row["retransmitted"] == 3
    assert tables["glitches"].height == 5


def test_a_play_over_our_transport_has_its_losses_and_no_tcp() -> None:
    send, watch = ends(Path("film.mp4"), OURS)
    assert {"{sink}:8080", "--insecure"} < set(send)
    assert watch[2:4] == ["pipe", "1200"]
    assert watch[-1] == "--anyone"
    served = '{"packets_lost": 3}\n{"packets_lost": 7}\nsaid\n{"packets_lost": null}\n'
    tables = read_play(served, RAN_DRY, OURS, 38)
    assert tables["plays"]["retransmitted"].to_list() == [7]
    assert tables["tcp"].is_empty()


def test_a_play_interrupted_by_the_end_of_the_run_is_not_finished() -> None:
    cut = "".join(line for line in RAN_DRY.splitlines(keepends=True) if "player:" not in line)
    row = read_play(SERVED, cut, "pert", 60)["plays"].row(0, named=True)
    assert row["finished"] is False
    assert row["processor_s"] is None


@pytest.mark.parametrize(
    ("served", "played", "sentence"),
    [
        (SERVED, CANNOT_PLAY, "ended without playing: avformat demux error: Could not open"),
        (SERVED, RAN_DRY.replace("ended with 0", "ended with -11"), "ended with -11"),
        (SERVED, RAN_DRY, "ended after 38.2 s of a film of 60 s"),
        (SERVED, "", "did not begin to play"),
        (SERVED.replace("pert", "reno"), RAN_DRY, "served over reno"),
        ("", RAN_DRY, "served over no connection"),
    ],
)
def test_an_invalid_play_is_refused(served: str, played: str, sentence: str) -> None:
    with pytest.raises(UnfitEnvironmentError, match=sentence):
        read_play(served, played, "pert", 60)


# How the film is made.


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_an_ffmpeg_without_x264_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """[ "$1" = -version ] && echo ffmpeg 9 && exit
echo "Unknown encoder 'libx264'" >&2; exit 1"""
    program(tmp_path, "ffmpeg", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UnfitEnvironmentError, match="without libx264"):
        film.make_film(film.SHORT, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_missing_ffmpeg_or_vlc_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnfitEnvironmentError, match="ffmpeg is missing"):
        film.make_film(film.SHORT, tmp_path / "cache")
    with pytest.raises(UnfitEnvironmentError, match="vlc is missing"):
        play(play_cell("reno", film.SHORT, 0, 15), tmp_path, control="reno", scenes=film.SHORT)


def test_another_recipe_is_another_film() -> None:
    keys = {film.film_key(scenes, version) for scenes in film.FILMS.values() for version in "ab"}
    assert len(keys) == 2 * len(film.FILMS)


def test_the_whole_film_is_as_long_and_as_large_as_the_published_one() -> None:
    assert film.seconds(film.WHOLE) == 210
    assert max(scene.mbit_s for scene in film.WHOLE) == 25
    bits = sum(scene.seconds * (scene.mbit_s + 0.192) for scene in film.WHOLE)
    assert bits / 8 == pytest.approx(286.5, rel=0.03)  # Megabytes; the rest is the container.


def test_the_same_film_comes_out_of_the_same_ffmpeg(tmp_path: Path) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is missing")
    scenes = (film.Scene(1, 5), film.Scene(1, 20))
    first, second = (film.make_film(scenes, tmp_path / name) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert film.make_film(scenes, tmp_path / "a") == first


# Judging.


def plays(late: dict[str, int], silent: dict[str, int], *, free: int = 0) -> Finding:
    def make(cell: Cell) -> Tables:
        labels = dict(cell.labels)
        name, is_free = str(labels["controller"]), labels["rate_mbit_s"] == FREE_MBIT_S
        row = {
            "late_pictures": free if is_free else late[name] + cell.seed,
            "silences": 0 if is_free else silent[name],
            "stalled_s": 1.5,
            "finished": True,
            "processor_s": 3.0,
            "film_s": 21,
        }
        return {"plays": pl.DataFrame([row]), "machine": MACHINE}

    claim = table2.CLAIM
    return claim.judge(Made(tuple(claim.cells("quick")), make))


LATE = {"pert": 5, "reno": 33, "cubic": 30, "bbr": 2, OURS: 0}
SILENT = {"pert": 3, "reno": 11, "cubic": 7, "bbr": 1, OURS: 2}


def test_table2_holds_where_pert_is_late_least() -> None:
    finding = plays(LATE, SILENT)
    assert finding.holds is True, failing(finding)
    assert finding.checks[0].measured == "5.5 and 33.5"


@pytest.mark.parametrize(
    ("late", "silent", "sentence"),
    [
        (LATE | {"pert": 60}, SILENT, "late pictures"),
        (LATE | {"pert": 25, "cubic": 5}, SILENT, "late pictures in a play over PERT than over C"),
        (LATE, SILENT | {"reno": 2}, "silences in a play over PERT than over RENO"),
    ],
)
def test_table2_fails_where_another_is_better(
    late: dict[str, int], silent: dict[str, int], sentence: str
) -> None:
    finding = plays(late, silent)
    assert finding.holds is False
    assert all(sentence in one for one in failing(finding))


def test_table2_is_undecided_where_another_is_as_good() -> None:
    outcomes = [check.ok for check in plays(LATE | {"cubic": 5}, SILENT).checks]
    assert outcomes == [True, None, True, True, True]


def test_table2_fails_where_the_player_is_late_by_itself() -> None:
    assert len(failing(plays(LATE, SILENT, free=1))) == 1


def test_table2_is_undecided_without_plays() -> None:
    def make(_cell: Cell) -> Tables:
        columns = ("late_pictures", "silences", "stalled_s", "finished", "processor_s", "film_s")
        schema = {name: pl.Boolean if name == "finished" else pl.Float64 for name in columns}
        return {"plays": pl.DataFrame(schema=schema), "machine": MACHINE}

    claim = table2.CLAIM
    finding = claim.judge(Made(tuple(claim.cells("quick")), make))
    assert {check.ok for check in finding.checks} == {None}
    assert "No data: plays over PERT" in finding.checks[0].measured


def test_fig14_asks_for_the_steadiest_of_the_kernels_windows() -> None:
    def ours(pert: float) -> Finding:
        swing = {"pert": pert, "reno": 0.4, "cubic": 0.3, "bbr": 0.1, OURS: 0}

        def make(cell: Cell) -> Tables:
            width = swing[str(dict(cell.labels)["controller"])]
            times = [tick * 0.01 for tick in range(2000)]
            windows = [round(300 * (1 + width * math.sin(time * 3))) for time in times]
            tcp = pl.DataFrame({"time_s": times, "cwnd": windows})
            return {"tcp": tcp, "machine": MACHINE}

        claim = fig14.EMULATED
        return claim.judge(Made(tuple(claim.cells("quick")), make))

    assert ours(0.2).holds is True
    assert len(failing(ours(0.35))) == 1
    assert len(failing(ours(0.5))) == 2


# The whole of it, with real packets.


def test_a_film_is_played_through_the_emulated_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the server writes must not wait in a buffer until the run ends it.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    missing = [name for name in ("vlc", "ffmpeg") if shutil.which(name) is None]
    if lacks := hindrance() or ", ".join(f"{name} is missing" for name in missing):
        pytest.skip(lacks)
    scenes = (film.Scene(3, 6),)
    cell = replace(play_cell("cubic", scenes, 0, FREE_MBIT_S), overrides=('duration="8 s"',))
    play(cell, tmp_path, control="cubic", scenes=scenes, cache=tmp_path / "film")
    row = pl.read_parquet(tmp_path / "plays.parquet").row(0, named=True)
    assert row["finished"] is True
    tcp = pl.read_parquet(tmp_path / "tcp.parquet")
    size = next((tmp_path / "film").glob("*.mp4")).stat().st_size
    # The last packets' acknowledgements come when the server has handed everything over.
    assert 0.5 * size < tcp["acked_bytes"].to_list()[-1] <= size + 1000
    assert tcp["cwnd"].to_list()[-1] > 10
    assert f"http://10.0.0.2:{PORT}" in (tmp_path / "film.0.sink.log").read_text("utf-8")
