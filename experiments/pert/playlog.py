"""What the logs of a play tell: VLC's of the player, and the server's of its connection."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from .serve import FIELDS


class Event(StrEnum):
    """What is read out of VLC's log."""

    LATE_PICTURE = "late picture"
    """A picture came to the display after its time and was not shown."""
    LATE_SOUND = "late sound"
    """Sound came to the output after its time, or the output had none."""
    DRY = "dry"
    """What should be played has not come yet: VLC stops and buffers anew."""
    PLAYING = "playing"
    """VLC has buffered enough and plays, or plays on."""
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
"""By which words of VLC 3.0 each is known; of VLC 1.1 the two that table 2 counts."""

_ENDED = re.compile(r"player: ended with (-?\d+) after ([\d.]+) s")

APART_S = 1.0
"""Late sound closer to the last is the same silence: VLC reports each 21 ms that it drops."""


@dataclass(frozen=True)
class Told:
    """An event and its time, in seconds of CLOCK_MONOTONIC."""

    time_s: float
    event: Event


@dataclass(frozen=True)
class Ending:
    """How the player ended: its exit code, and the processor time that it took."""

    code: int
    processor_s: float


def events(log: str) -> list[Told]:
    """The events of a player's log, in order."""
    return [
        Told(time_s, event)
        for time_s, line in _stamped(log)
        for event, words in WORDS.items()
        if words.search(line)
    ]


def ending(log: str) -> Ending | None:
    """How the player ended; none where it had not when the run was over."""
    found = _ENDED.search(log)
    return Ending(int(found[1]), float(found[2])) if found else None


def silences(told: Sequence[Told]) -> list[float]:
    """When each starvation of the sound began: VLC ran dry, or sound came too late."""
    began, last = [], -APART_S
    for one in told:
        if one.event in (Event.DRY, Event.LATE_SOUND):
            if one.time_s - last >= APART_S:
                began.append(one.time_s)
            last = one.time_s
    return began


def stalls(told: Sequence[Told]) -> list[float]:
    """How long VLC stood still each time that it had run dry, in seconds."""
    lengths, since = [], None
    for one in told:
        if one.event is Event.DRY and since is None:
            since = one.time_s
        elif one.event is Event.PLAYING and since is not None:
            lengths.append(one.time_s - since)
            since = None
    return lengths


def control(log: str) -> str:
    """The congestion control of the server's connection; empty where there was none."""
    return next((line.split()[2] for line in log.splitlines() if line.startswith("control ")), "")


def connection(log: str) -> pl.DataFrame:
    """The samples of the server's connection, its times from its beginning."""
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
