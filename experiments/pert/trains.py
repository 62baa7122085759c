"""What a receiver saw and answered, and when a sender sent: read from the table of packets."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, pstdev

import polars as pl

ACCESS_S = 1000 * 8 / 10e6 + 4e-3
"""From the first bit of a packet on the receiver's link to its arrival: 10 Mbit/s and 4 ms, as
acknowledgement.toml and lone.toml have it."""

STEADY_S = 30.0
"""From when on a transfer is held to be steady."""

SAME_S = 1e-8
"""Times closer than this are one: a table's times are rounded to nanoseconds."""

MAX_TRAIN, WEIGHT, TOLERANCE, MAX_WAIT_S = 4, 0.9, 2.0, 0.5
"""Algorithms 1 to 3: packets to an ACK, weight of the old mean, timer; RFC 1122's longest hold."""


@dataclass(frozen=True)
class Arrival:
    """A data packet at its receiver."""

    time_s: float
    number: int


@dataclass(frozen=True)
class Answer:
    """An ACK as it left the receiver: it asks for the packet of this number."""

    time_s: float
    number: int


def arrivals(packets: pl.DataFrame, flow: str) -> list[Arrival]:
    """The data packets that reached a flow's receiver, in order of time."""
    found = packets.filter(link=f"right -> {flow}.sink", kind="data").drop_nulls("started_s")
    rows = found.sort("started_s").select("started_s", "number").iter_rows()
    return [Arrival(started + ACCESS_S, number) for started, number in rows]


def answers(packets: pl.DataFrame, flow: str) -> list[Answer]:
    """The ACKs that a flow's receiver sent."""
    found = packets.filter(link=f"{flow}.sink -> right", kind="ack").sort("time_s")
    return [Answer(*row) for row in found.select("time_s", "number").iter_rows()]


def sent(packets: pl.DataFrame, flow: str) -> pl.DataFrame:
    """When each data packet left its sender, in the steady part."""
    return packets.filter(
        pl.col("time_s") >= STEADY_S, link=f"{flow}.source -> left", kind="data"
    ).sort("time_s", "number")


def variation(values: Iterable[float]) -> float:
    """The coefficient of variation."""
    observed = list(values)
    return pstdev(observed) / fmean(observed)


def covered(seen: Iterable[Arrival], answered: Iterable[Answer]) -> list[int]:
    """How many packets had arrived since the ACK before, for each ACK."""
    times = iter(sorted(one.time_s for one in seen))
    counts, following = [], next(times, None)
    for answer in answered:
        count = 0
        while following is not None and following <= answer.time_s + SAME_S:
            count += 1
            following = next(times, None)
        counts.append(count)
    return counts


class AdaptiveReceiver:
    """Algorithms 1 to 3, written down a second time: what the ACKs must be.

    A packet beyond a gap, one that fills a gap and a duplicate are not in order.
    """

    def __init__(self) -> None:
        self.acks: list[Answer] = []
        self.at_once: list[Arrival] = []
        self.by_timer: list[Answer] = []
        self._next = 0
        self._beyond: set[int] = set()
        self._threshold = 1
        self._held = 0
        self._held_since = 0.0
        self._interval: float | None = None
        self._last: float | None = None
        self._deadline: float | None = None

    def run(self, seen: Iterable[Arrival]) -> "AdaptiveReceiver":
        """Answer every arrival, and what is held at the end."""
        for arrival in seen:
            self._expire(arrival.time_s)
            if arrival.number == self._next and not self._beyond:
                self._in_order(arrival)
            else:
                self._out_of_order(arrival)
        self._expire(float("inf"))
        return self

    def _expire(self, now: float) -> None:
        # A packet that arrives as the timer expires is taken first.
        if self._deadline is not None and self._deadline < now - SAME_S:
            self.by_timer.append(Answer(self._deadline, self._next))
            self._answer(self._deadline)
            self._threshold = 1

    def _answer(self, now: float) -> None:
        self.acks.append(Answer(now, self._next))
        self._held, self._deadline = 0, None

    def _out_of_order(self, arrival: Arrival) -> None:
        self._beyond.add(arrival.number)
        while self._next in self._beyond:
            self._next += 1
        self._beyond = {number for number in self._beyond if number > self._next}
        self.at_once.append(arrival)
        self._answer(arrival.time_s)
        self._threshold = 1

    def _in_order(self, arrival: Arrival) -> None:
        now = arrival.time_s
        self._next += 1
        if self._last is not None:
            sample = now - self._last
            old = self._interval
            self._interval = sample if old is None else WEIGHT * old + (1 - WEIGHT) * sample
        self._last = now
        if self._held == 0:
            self._held_since = now
        self._held += 1
        if self._held >= self._threshold or self._interval is None:
            self._answer(now)
        else:
            self._deadline = min(now + TOLERANCE * self._interval, self._held_since + MAX_WAIT_S)
        self._threshold = min(self._threshold + 1, MAX_TRAIN)
