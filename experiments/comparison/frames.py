"""The packets of the stream that arrived, and when: a recording compared with the stream.

Packets are recognised by their bytes, so that contenders may split, reorder and repeat them.
The few packets of a frame that are equal (stuffing) are not counted.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from ontempo import media
from ontempo.lab.errors import UnfitEnvironmentError

from .ends import ENTRY
from .stream import PACKET, PER_DATAGRAM, Stream, Unit


@dataclass(frozen=True)
class Arrivals:
    """When each packet of the stream first arrived (ns), or ``None``; and what else was recorded.

    `repeated` packets arrived again; `foreign` datagrams are not made of transport packets;
    `overtaken` packets arrived after one that was sent later.
    """

    at_ns: tuple[int | None, ...]
    repeated: int
    foreign: int
    overtaken: int


def entries(recording: bytes) -> Iterator[tuple[int, bytes]]:
    """The datagrams of a recording with their times; `UnfitEnvironmentError` if it is truncated."""
    at = 0
    while at < len(recording):
        if at + ENTRY.size > len(recording):
            raise UnfitEnvironmentError(f"the recording is cut in an entry at byte {at}")
        stamp_ns, length = ENTRY.unpack_from(recording, at)
        begin = at + ENTRY.size
        at = begin + length
        if at > len(recording):
            raise UnfitEnvironmentError(f"the recording is cut in a datagram at byte {begin}")
        yield stamp_ns, recording[begin:at]


def arrivals(stream: Stream, recording: bytes) -> Arrivals:
    """Find each packet of a unit in the recording."""
    places = {
        stream.packets[place]: place for unit in distinct_units(stream) for place in unit.packets
    }
    found: list[int | None] = [None] * len(stream.packets)
    repeated = foreign = overtaken = 0
    last = -1
    for stamp_ns, datagram in entries(recording):
        if len(datagram) % PACKET or datagram[:1] != bytes([media.SYNC_BYTE]):
            foreign += 1
            continue
        for start in range(0, len(datagram), PACKET):
            place = places.get(datagram[start : start + PACKET])
            if place is None:
                continue
            if found[place] is not None:
                repeated += 1
            else:
                found[place] = stamp_ns
                overtaken += place < last
                last = max(last, place)
    return Arrivals(tuple(found), repeated, foreign, overtaken)


def distinct_units(stream: Stream) -> list[Unit]:
    """The units, each with those of its packets that no other packet of the stream equals."""
    often = Counter(stream.packets[place] for unit in stream.units for place in unit.packets)
    distinct = (
        Unit(one.kind, tuple(p for p in one.packets if often[stream.packets[p]] == 1))
        for one in stream.units
    )
    return [one for one in distinct if one.packets]


def unit_table(stream: Stream, left_ns: Sequence[int], came: Arrivals) -> pl.DataFrame:
    """A row for each unit: when its last packet was sent, and the time until it was complete.

    `sent_s` counts from the first datagram; `latency_s` is null if a part never arrived.
    """
    begin = left_ns[0]
    rows = []
    for unit in distinct_units(stream):
        sent = left_ns[unit.packets[-1] // PER_DATAGRAM]
        times = [came.at_ns[place] for place in unit.packets]
        whole = [time for time in times if time is not None]
        there = max(whole) if len(whole) == len(times) else None
        rows.append(
            {
                "kind": unit.kind,
                "sent_s": (sent - begin) / 1e9,
                "latency_s": None if there is None else (there - sent) / 1e9,
            }
        )
    return pl.DataFrame(
        rows, schema={"kind": pl.String, "sent_s": pl.Float64, "latency_s": pl.Float64}
    )


def packet_latencies(
    stream: Stream, left_ns: Sequence[int], came: Arrivals, from_s: float
) -> list[float]:
    """Delays in seconds, ascending, of the arrived packets of units, sent from `from_s` on."""
    begin = left_ns[0] + from_s * 1e9
    counted = (place for unit in distinct_units(stream) for place in unit.packets)
    return sorted(
        (at - left) / 1e9
        for place in counted
        if (at := came.at_ns[place]) is not None
        and (left := left_ns[place // PER_DATAGRAM]) >= begin
    )


def pacing_errors(due_ns: Sequence[int], left_ns: Sequence[int]) -> list[float]:
    """How late each datagram left, in seconds, in rising order; the most punctual one is 0."""
    late = [left - due for due, left in zip(due_ns, left_ns, strict=True)]
    first = min(late)
    return sorted((one - first) / 1e9 for one in late)


def quantile(rising: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by `share` of them; NaN if there is none."""
    if not rising:
        return math.nan
    return rising[max(0, math.ceil(share * len(rising)) - 1)]


def read_times(content: bytes) -> "array[int]":
    """Times in ns, as written by the source."""
    times: array[int] = array("q")
    times.frombytes(content)
    return times
