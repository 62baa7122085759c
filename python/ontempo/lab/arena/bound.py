"""What the best sender could deliver: an upper bound of the pictures decodable on time.

Such a sender knows the path beforehand: what it will carry at each moment and which packets it
will lose. It has the whole bottleneck of the direction that it sends in, sends no header but those
of IP and UDP, and leaves out the frames that cost it the most. Its share of pictures is that of a
linear programme, in which a part of a frame counts as that part of a picture, so that no sender has
more:

    maximise    sum of x over the pictures    0 <= x <= 1, the part that is sent; 0 for a frame
                                              that would not fit if it were alone
    subject to  x <= x of the picture that it needs
                x bytes of a frame <= what of it is sent in its slots
                what is sent in a slot <= what the bottleneck then carries

A frame's slots are those between its first byte's arrival at the sender and its deadline, less
the least delay of the link meanwhile; both ends are rounded so that the window is longer, except
where a frame is alone. Losses cost nothing: who knows which packets are lost makes them small.
Other traffic is left out, as are round trips: with losses, beside downloads, and where a repair
comes too late, the true limit is lower.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt
import polars as pl

VERSION = "bound 2"
"""Changes with what is computed, so that stored cells are run again."""

BOTTLENECK, REVERSE = "bottleneck", "reverse"
"""The links of an arena's dumbbell that are shared: from left to right, and back."""

HEADERS = 1500 / 1472
"""Bytes on the wire for each byte of media: IPv4 and UDP in packets of 1,500 bytes."""

SLOTS = 40
"""Slots in the window of a frame."""

LEAST_SLOT_S = 0.001

ROUNDED_BYTES = 1e-6
"""Less than this of a frame is an error of rounding."""

Floats = npt.NDArray[np.float64]

_RATES = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Line:
    """A direction of the bottleneck, in steps: from when on, bytes a second, and delay in s."""

    times: Floats
    rates: Floats
    delays: Floats

    def carried(self, edges: Floats) -> Floats:
        """Bytes that can be sent in each slot between these times."""
        sums = np.concatenate(([0.0], np.cumsum(self.rates[:-1] * np.diff(self.times))))
        at = np.interp(edges, self.times, sums)
        beyond = edges > self.times[-1]
        at[beyond] = sums[-1] + self.rates[-1] * (edges[beyond] - self.times[-1])
        return np.diff(at)

    def least_delay(self, begin: float, end: float) -> float:
        """The least delay in a span of time."""
        first = max(0, int(np.searchsorted(self.times, begin, side="right")) - 1)
        last = int(np.searchsorted(self.times, end, side="right"))
        return float(self.delays[first : max(last, first + 1)].min())


def line_of(canonical: Mapping[str, Any], capacity: pl.DataFrame, name: str = BOTTLENECK) -> Line:
    """A direction of a scenario's bottleneck: its own values, where it changes those of its run.

    Where everything is lost, nothing is carried; other losses do not count.
    """
    link = canonical["topology"][BOTTLENECK]
    if name == REVERSE:
        link = link.get("back", link)
    rate, delay = _quantity(link["rate"], _RATES), _delay(link["delay"])
    steps = capacity.filter(pl.col("link").cast(pl.String) == name).sort(
        "time_s", maintain_order=True
    )
    times = [0.0, *steps["time_s"].to_list()]
    rates = [rate, *(_known(steps["rate_bps"], rate))]
    delays = [delay, *(_known(steps["delay_s"], delay))]
    losses = [0.0, *(_known(steps["loss"], 0.0))]
    bytes_a_s = np.array(rates) / 8 * (np.array(losses) < 1)
    return Line(np.array(times), bytes_a_s, np.array(delays))


@dataclass(frozen=True)
class Picture:
    """A picture: the flow that sends it, its bytes, the times of its window, what it needs.

    `needs` is the place of another picture in the list, or -1. `counted` ones are of the measured
    span; others only matter to those that need them.
    """

    flow: int
    size: float
    begin: float
    end: float
    needs: int
    counted: bool = True


def pictures_of(
    frames: pl.DataFrame,
    paced: Mapping[str, float | None],
    player_s: float,
    line: Line,
    until_s: float,
    from_s: float = 0.0,
) -> list[Picture]:
    """The pictures of films that a player of this latency shows before the run's end.

    They are in the order of decoding: a key or P picture, the B picture that is a reference, if
    there is one, disposable pictures (docs/media.md). P needs the key or P picture before, a B
    picture the P before it, a disposable one the reference before it. In a film without B pictures
    each other P is taken for one, which takes something from what is needed and adds nothing. The
    first bytes of a paced picture come after the picture before it, those of the first after the
    start of the flow, which `paced` has for films that are paced.
    """
    found: list[Picture] = []
    video = frames.filter(pl.col("type").cast(pl.String) != "sound").sort("flow", "frame")
    for (flow,), of_flow in video.group_by("flow", maintain_order=True):
        before = paced[of_flow["group"][0]]
        anchor, reference, is_paced, kind_before = -1, -1, before is not None, ""
        for row in of_flow.iter_rows(named=True):
            sent, kind = row["sent_s"], row["type"]
            begin = before if before is not None else sent
            before = sent if is_paced else None
            if sent + player_s > until_s:
                continue
            end = sent + player_s - line.least_delay(begin, sent + player_s)
            if kind == "key":
                needs, anchor, reference = -1, len(found), len(found)
            elif kind == "disposable":
                needs = reference
            else:
                needs, reference = anchor, len(found)
                if kind_before == "P":
                    kind = "B"
                elif anchor >= 0:  # before the first key picture the kinds are not known
                    anchor, kind = len(found), "P"
            kind_before = kind
            size = row["size_bytes"] * HEADERS
            found.append(Picture(flow, size, begin, end, needs, sent >= from_s))
    return found


def most_decodable(pictures: Sequence[Picture], line: Line) -> Floats:
    """The part of each picture that the best sender has decoded on time."""
    kept = np.ones(len(pictures))
    if not pictures:
        return kept
    longest = max(one.end - one.begin for one in pictures)
    slot = max(LEAST_SLOT_S, longest / SLOTS)
    begin = min(one.begin for one in pictures)
    slots = int(np.ceil((max(one.end for one in pictures) - begin) / slot)) + 1
    room = line.carried(begin + slot * np.arange(slots + 1, dtype=np.float64))
    windows = [
        range(int((one.begin - begin) / slot), int((one.end - begin) / slot) + 1)
        for one in pictures
    ]
    alone = [_fits_alone(one, line) for one in pictures]
    if all(alone) and _all_fit(pictures, windows, room):
        return kept
    return _solved(pictures, windows, room, alone)


def _all_fit(pictures: Sequence[Picture], windows: Sequence[range], room: Floats) -> bool:
    """Whether everything is sent in time, earliest deadline first."""
    left = [one.size for one in pictures]
    order = sorted(range(len(pictures)), key=lambda place: windows[place].stop)
    free = room.copy()
    for place in order:
        for slot in windows[place]:
            sent = min(left[place], free[slot])
            left[place] -= sent
            free[slot] -= sent
            if left[place] <= 0:
                break
        if left[place] > ROUNDED_BYTES:
            return False
    return True


def _fits_alone(one: Picture, line: Line) -> bool:
    """Whether it is through in time if it is all that is sent, to the byte: nothing is rounded."""
    if one.end <= one.begin:
        return False
    return one.size <= float(line.carried(np.array([one.begin, one.end]))[0]) + ROUNDED_BYTES


def _solver() -> Any:
    """A solver; its banner, which it writes to standard output, goes to standard error."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
    finally:
        os.dup2(output, 1)
        os.close(output)
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver


def _solved(
    pictures: Sequence[Picture], windows: Sequence[range], room: Floats, alone: Sequence[bool]
) -> Floats:
    solver = _solver()
    parts = [
        solver.addVariable(lb=0.0, ub=float(fits), obj=-float(one.counted))
        for one, fits in zip(pictures, alone, strict=True)
    ]
    in_slot: list[list[Any]] = [[] for _ in room]
    for part, one, window in zip(parts, pictures, windows, strict=True):
        sent = []
        for slot in window:
            variable = solver.addVariable(lb=0.0, ub=float(min(one.size, room[slot])))
            sent.append(variable)
            in_slot[slot].append(variable)
        solver.addConstr(solver.qsum(sent) >= one.size * part)
        if one.needs >= 0:
            solver.addConstr(part <= parts[one.needs])
    for variables, most in zip(in_slot, room, strict=True):
        if variables:
            solver.addConstr(solver.qsum(variables) <= float(most))
    solver.minimize()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise ArithmeticError("the linear programme of a path's bound was not solved")
    return np.array(solver.getSolution().col_value[: len(parts)])


def at_most(
    canonical: Mapping[str, Any],
    tables: Mapping[str, pl.DataFrame],
) -> pl.DataFrame:
    """The table `media` of a run with the column `at_most_pictures`.

    It holds how many of a row's pictures the best sender has decoded on time. `frames` may begin
    before the measured span: what is needed from there may then be missing.
    """
    media, frames = tables["media"], tables["frames"]
    until_s = _quantity(canonical["duration"], _TIMES)
    from_s = _quantity(canonical["measure"]["from"], _TIMES)
    flows = canonical["flows"]
    paced = {
        name: _quantity(flow.get("start", "0 s"), _TIMES)
        if flow["application"].get("sending") == "paced"
        else None
        for name, flow in flows.items()
    }
    back = {name for name, flow in flows.items() if flow.get("from") == "right"}
    shares: dict[tuple[int, float], float] = {}
    for name in (BOTTLENECK, REVERSE):
        its = pl.col("group").cast(pl.String).is_in(back)
        its = its if name == REVERSE else ~its
        line = line_of(canonical, tables["capacity"], name)
        for player_s in media["player_latency_s"].unique().to_list():
            pictures = pictures_of(frames.filter(its), paced, player_s, line, until_s, from_s)
            kept = most_decodable(pictures, line)
            parts: dict[int, list[float]] = {}
            for part, one in zip(kept, pictures, strict=True):
                if one.counted:
                    parts.setdefault(one.flow, []).append(part)
            for flow, own in parts.items():
                shares[flow, player_s] = float(np.mean(own))
    keys = media.select("flow", "player_latency_s", "pictures").iter_rows()
    most = [shares.get((flow, player_s), 1.0) * pictures for flow, player_s, pictures in keys]
    return media.with_columns(pl.Series("at_most_pictures", most, dtype=pl.Float64))


def _known(column: pl.Series, otherwise: float) -> list[float]:
    return [otherwise if value is None else float(value) for value in column]


def _quantity(text: str, units: Mapping[str, float]) -> float:
    value, unit = text.split(" ")
    return float(value) * units[unit]


def _delay(delay: Any) -> float:
    """The delay of a link, in s, of one that varies the least."""
    if isinstance(delay, str):
        return _quantity(delay, _TIMES)
    return _quantity(delay["low"], _TIMES) if "low" in delay else 0.0
