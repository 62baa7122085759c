"""Reads the logs of a play: VLC's of the player, and the server's of its connection."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from .serve import FIELDS


class Event(StrEnum):
    """Kinds of events in VLC's log."""

    LATE_PICTURE = "late picture"
    """A picture reached the display after its time and was not shown."""
    LATE_SOUND = "late sound"
    """Sound reached the output after its time, or the output had none."""
    DRY = "dry"
    """The buffer ran empty: VLC stops and buffers again."""
    PLAYING = "playing"
    """VLC has buffered enough and starts or resumes playing."""
    ENDED = "ended"
    """The player has ended."""


WORDS = {
    Event.LATE_PICTURE: re.compile(
        r"picture is too late to be displayed|of late video -> dropping frame|late picture skipped"
    ),
    Event.LATE_SOUND: re.compile(
        r"buffer too late|playback (way )?too late.*flushing|audio output is starving"
    ),
    Event.DRY: re.compile(r"ES_OUT_SET_\(GROUP_\)PCR\s+is called too late"),
    Event.PLAYING: re.compile(r"Stream buffering done"),
    Event.ENDED: re.compile(r"^player: ended with"),
}
"""Messages of VLC 3.0 for each event, and the two of VLC 1.1 that table 2 counts."""

_ENDED = re.compile(r"player: ended with (-?\d+) after ([\d.]+) s")

APART_S = 1.0
"""Late sound closer to the last one belongs to the same silence: VLC logs each 21 ms dropped."""


@dataclass(frozen=True)
class LogEvent:
    """An event and its time, in seconds of CLOCK_MONOTONIC."""

    time_s: float
    event: Event


@dataclass(frozen=True)
class Ending:
    """How the player ended: its exit code, and the processor time that it took."""

    code: int
    processor_s: float


def events(log: str) -> list[LogEvent]:
    """The events of a player's log, in order."""
    return [
        LogEvent(time_s, event)
        for time_s, line in _stamped(log)
        for event, words in WORDS.items()
        if words.search(line)
    ]


def ending(log: str) -> Ending | None:
    """How the player ended; None if it still ran at the end of the run."""
    found = _ENDED.search(log)
    return Ending(int(found[1]), float(found[2])) if found else None


def silences(logged: Sequence[LogEvent]) -> list[float]:
    """When each starvation of the sound began: VLC ran dry, or sound came too late."""
    began, last = [], -APART_S
    for one in logged:
        if one.event in (Event.DRY, Event.LATE_SOUND):
            if one.time_s - last >= APART_S:
                began.append(one.time_s)
            last = one.time_s
    return began


def stalls(logged: Sequence[LogEvent]) -> list[float]:
    """The duration of each stall after the buffer ran dry, in seconds."""
    lengths, since = [], None
    for one in logged:
        if one.event is Event.DRY and since is None:
            since = one.time_s
        elif one.event is Event.PLAYING and since is not None:
            lengths.append(one.time_s - since)
            since = None
    return lengths


def control(log: str) -> str:
    """The congestion control of the server's connection; empty without a connection."""
    return next((line.split()[2] for line in log.splitlines() if line.startswith("control ")), "")


def connection(log: str) -> pl.DataFrame:
    """The samples of the server's connection; times in seconds since its first sample."""
    rows = [line.split()[1:] for line in log.splitlines() if line.startswith("tcp ")]
    names = ["time_s", *FIELDS]
    texts = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    numbers = texts.with_columns(
        pl.col("time_s").cast(pl.Float64), pl.col(list(FIELDS)).cast(pl.Int64)
    )
    return numbers.with_columns(pl.col("time_s") - pl.col("time_s").min())


def _stamped(log: str) -> Iterator[tuple[float, str]]:
    """Lines that begin with a time."""
    for line in _lines(log.splitlines()):
        stamp, _, rest = line.partition(" ")
        yield float(stamp), rest


def _lines(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if re.match(r"\d+\.\d+ ", line))
