"""One play of the film through the emulated link: a real server, the kernel's TCP, VLC.

python -m experiments.pert.play pert short out/play     # or whole, filling; or ontempo; needs root
"""

import json
import math
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from ontempo.lab.cells import Cell, Measurement
from ontempo.lab.claims import Scale
from ontempo.lab.errors import LabError, UnfitEnvironmentError
from ontempo.lab.programs import program
from ontempo.lab.real_time import emulate

from ..ffmpeg import CACHE
from .emulated import THESIS_PERT
from .film import FILMS, SHORT, WHOLE, Scene, film_key, make_film, seconds
from .playlog import Ending, Event, LogEvent, connection, control, ending, events, silences, stalls

HERE = Path(__file__).parent
SCENARIO = HERE / "film.toml"
PORT = 8080

CACHING_MS = 1200
"""VLC's start-up buffer: the default of VLC 1.1.4 for HTTP."""

OURS = "ontempo"
"""No TCP: `ontempo send` to `ontempo receive`, PERT over QUIC, and a pipe to the player."""

CONTROLS = ("pert", "reno", "cubic", "bbr", OURS)
"""The kernel's controls, and ours; the thesis has no BBR."""

LINK_MBIT_S = 15
"""The testbed's link."""

FREE_MBIT_S = 100
"""A link that never delays the film: lateness there is the player's own."""

PLAYS: Mapping[Scale, tuple[int, tuple[Scene, ...]]] = {"quick": (2, SHORT), "full": (20, WHOLE)}
"""Plays with each control, and their scenes."""

MARGIN_S, MARGIN_SHARE = 8, 0.2
"""How long a play may exceed the film: to start, and, as a share of the film, for stalls."""

URGENT = ("chrt", "--rr", "1")
"""Prefix of our sender's command: the server's priority."""

_COMPLAINT = re.compile(r" (stream|access|demux|decoder|input|window|player) error: ")
"""VLC's errors that can end a film; others concern buses and menus that it does not need."""


def play_cells(scale: Scale) -> list[Cell]:
    """Every play over the testbed's link, and one over a link with ample rate."""
    plays, scenes = PLAYS[scale]
    crowded = [
        play_cell(control, scenes, seed, LINK_MBIT_S)
        for seed in range(plays)
        for control in CONTROLS
    ]
    return [*crowded, play_cell("reno", scenes, 0, FREE_MBIT_S)]


def play_cell(control: str, scenes: tuple[Scene, ...], seed: int, rate_mbit_s: int) -> Cell:
    """One play; `seed` only numbers it, since nothing is drawn."""
    duration_s = math.ceil(seconds(scenes) * (1 + MARGIN_SHARE)) + MARGIN_S
    measurement = Measurement(
        "film",
        partial(play, control=control, scenes=scenes),
        (("control", control), ("film", film_key(scenes)), ("caching_ms", CACHING_MS)),
        (THESIS_PERT,) if control == "pert" else (),
    )
    return Cell(
        SCENARIO,
        (f'duration="{duration_s} s"', f'topology.bottleneck.rate="{rate_mbit_s} Mbit/s"'),
        seed,
        (("controller", control), ("rate_mbit_s", rate_mbit_s)),
        duration_s,
        measurement,
    )


def play(
    cell: Cell, folder: Path, *, control: str, scenes: Sequence[Scene], cache: Path = CACHE
) -> None:
    """Play the film once; write the emulator's tables, `plays`, `glitches` and `tcp` to `folder`.

    Raises `UnfitEnvironmentError` if a program is missing, or the player ends before the film.
    """
    if shutil.which("vlc") is None:
        raise UnfitEnvironmentError("the program vlc is missing, which plays the film")
    serve, watch = ends(make_film(scenes, cache), control)
    commands = (
        f"flows.film.application.command={json.dumps(serve)}",
        f"flows.film.application.peer={json.dumps(watch)}",
    )
    emulate(replace(cell, overrides=(*cell.overrides, *commands)), folder)
    served, played = (
        (folder / f"film.0.{end}.log").read_text("utf-8") for end in ("source", "sink")
    )
    try:
        tables = read_play(served, played, control, seconds(scenes))
    except UnfitEnvironmentError as error:
        raise UnfitEnvironmentError(f"{cell}: {error}") from error
    for name, table in tables.items():
        table.write_parquet(folder / f"{name}.parquet")


def ends(film: Path, control: str) -> tuple[list[str], list[str]]:
    """The programs at the film's two ends."""
    player = [sys.executable, str(HERE / "player.py")]
    if control == OURS:
        send = [program(), "send", "--from", str(film), "--to", f"{{sink}}:{PORT}", "--json"]
        receive = [program(), "receive", "--listen", f":{PORT}", "--to", "-", "--anyone"]
        # The receiver has the player's priority, whose child it is.
        return [*URGENT, *send, "--insecure"], [*player, "pipe", str(CACHING_MS), *receive]
    serve = [sys.executable, str(HERE / "serve.py"), str(film), str(PORT), control]
    return serve, [*player, "{source}", str(PORT), str(CACHING_MS)]


def lost_packets(served: str) -> int | None:
    """The last count of lost packets in the output of `ontempo send`; None without one."""
    reports = [json.loads(line) for line in served.splitlines() if line.startswith("{")]
    return max((one["packets_lost"] for one in reports if one.get("packets_lost")), default=None)


def read_play(served: str, played: str, requested: str, film_s: float) -> dict[str, pl.DataFrame]:
    """The tables of a play, from the logs of server and player.

    Raises `UnfitEnvironmentError` if the film was served over another control than `requested`, or
    if the player ended before the film.
    """
    if requested != OURS and (used := control(served)) != requested:
        raise UnfitEnvironmentError(f"the film was served over {used or 'no connection'}")
    logged, ended = events(played), ending(played)
    began_s = next((one.time_s for one in logged if one.event is Event.PLAYING), None)
    stalled = stalls(logged)
    _check(played, logged, ended, began_s, sum(stalled), film_s)
    counted = [
        one for one in logged if one.event in (Event.LATE_PICTURE, Event.LATE_SOUND, Event.DRY)
    ]
    tcp = connection(served)
    row = {
        "late_pictures": sum(one.event is Event.LATE_PICTURE for one in logged),
        "silences": len(silences(logged)),
        "ran_dry": sum(one.event is Event.DRY for one in logged),
        "stalled_s": sum(stalled, 0.0),
        "finished": ended is not None,
        "processor_s": ended.processor_s if ended else None,
        "retransmitted": lost_packets(served) if requested == OURS else tcp["retransmitted"].max(),
        "film_s": float(film_s),
    }
    return {
        "plays": pl.DataFrame(
            [row], schema_overrides={"processor_s": pl.Float64, "retransmitted": pl.Int64}
        ),
        "glitches": pl.DataFrame(
            {
                "time_s": [one.time_s - (began_s or 0) for one in counted],
                "event": [str(one.event) for one in counted],
            },
            schema={"time_s": pl.Float64, "event": pl.String},
        ),
        "tcp": tcp,
    }


def _check(
    played: str,
    logged: Sequence[LogEvent],
    ended: Ending | None,
    began_s: float | None,
    stalled_s: float,
    film_s: float,
) -> None:
    """Raise unless the film was played to its end, or was still playing when the run ended."""
    if ended is None:
        if began_s is None:
            raise UnfitEnvironmentError("the player did not begin to play")
        return
    complaints = [line for line in played.splitlines() if _COMPLAINT.search(line)]
    complaint = complaints[-1] if complaints else "it logged no reason"
    if ended.code != 0:
        raise UnfitEnvironmentError(f"the player ended with {ended.code}: {_bare(complaint)}")
    if began_s is None:
        raise UnfitEnvironmentError(f"the player ended without playing: {_bare(complaint)}")
    shown_s = logged[-1].time_s - began_s - stalled_s
    if shown_s < film_s - 1:
        raise UnfitEnvironmentError(
            f"the player ended after {shown_s:.1f} s of a film of {film_s:g} s: {_bare(complaint)}"
        )


def _bare(line: str) -> str:
    """A line of VLC's log without time and thread."""
    return line.partition("] ")[2] or line


def main() -> None:
    """Play once, and print the counters."""
    control, scenes, folder = sys.argv[1], FILMS[sys.argv[2]], Path(sys.argv[3])
    cell = play_cell(control, scenes, 0, LINK_MBIT_S)
    try:
        play(cell, folder, control=control, scenes=scenes)
    except LabError as error:
        sys.exit(f"error: {error}")
    for name, value in pl.read_parquet(folder / "plays.parquet").row(0, named=True).items():
        print(f"{name:14} {value}")


if __name__ == "__main__":
    main()
