"""Chapters II to IV with real packets, over the kernel's TCP."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from ontempo.lab.beside import beside_twins
from ontempo.lab.claims import Cause, Check, Claim, Finding, Scale, World
from ontempo.lab.judging import above_everywhere, number
from ontempo.lab.plots import Figure, View
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Cell, Results

from ..curves import DELAY_AXIS, SUCCESS_AXIS, by_controller, seconds, success_series
from ..emulated import (
    RTT_MS,
    VIDEOS,
    acknowledgement_emulated,
    homogeneous_emulated,
    queue_emulated,
    video_emulated,
)
from ..extensions import scaling
from ..streams import STARTUP_S, runs, streams, success_by_delay
from ..trains import Arrival, answers, covered
from . import alg1, fig2, fig9, homogeneous
from .ten_gigabits import SCALE

BESIDE_BURSTY = Cause(
    "not found. It is not the length: the same short run simulated gives PERT more. Simulated with"
    " PERT paced and ACKs delayed, as the kernel does both, PERT gets 0.12 times RENO's rate and"
    " 62 % of its streams succeed at 11 s, which is near; but the kernel's PERT gets no more where"
    " its pacing is off.",
    "docs/experiments-pert.md, With real packets",
)

TIE = Cause(
    "at a start-up delay of 11 s every stream of both succeeds, so neither can be above the other."
)

AT_ONCE_S = 2e-3
"""Less than the distance of two packets at 3 Mbit/s: an ACK that comes sooner waited for none."""

LATE_SHARE = 4
"""If the emulator is late by this part of it, checks are undecided."""

ACCESS_BPS, ACCESS_DELAY_S = 10e6, 4e-3
"""The receiver's link, in acknowledgement.toml."""

SMALLEST_DATA = 500
"""Bytes. Smaller packets of the file's flow open or close the connection."""


def emulated(
    claim: Claim,
    cells: Callable[[Scale], Sequence[Cell]],
    judge: Callable[[Results], Finding],
    scale: Callable[[Scale], str] | None = None,
) -> Claim:
    """A claim of the simulation, checked with real packets."""
    return replace(
        claim,
        id=f"{claim.id}-emulated",
        row=claim.answers,
        world=World.EMULATION,
        cells=cells,
        judge=judge,
        scaling=scale or scaling(cells),
    )


def judge_videos(results: Results) -> Finding:
    """Which controller is above which, at one number of videos and one round trip."""
    table = results.derive(streams)
    found = {name: success_by_delay(part) for name, part in by_controller(table).items()}
    t_mu = results.derive(runs).group_by("controller").agg(pl.col("t_mu").mean())
    shares = ", ".join(f"{name.upper()} {value:.2f}" for name, value in sorted(t_mu.iter_rows()))

    def above(upper: str, lower: str) -> Check:
        return above_everywhere(
            f"{upper.upper()} is above {lower.upper()}.",
            "above",
            (upper.upper(), found.get(upper, {})),
            (lower.upper(), found.get(lower, {})),
            (STARTUP_S,),
            seconds,
            BESIDE_BURSTY if upper == "pert" else TIE,
        )

    figure = Figure(
        "Fraction of successful streams against start-up delay for PERT, CUBIC and RENO.",
        DELAY_AXIS,
        SUCCESS_AXIS,
        [View("", success_series(by_controller(table)))],
    )
    notes = [
        f"One setting of figure 9: {VIDEOS} videos, {RTT_MS} ms, 1,000 bytes; T/μ {shares}. Judged"
        f" at a start-up delay of {STARTUP_S:g} s, as the simulation is.",
    ]
    return Finding(
        [figure], [above("pert", "reno"), above("cubic", "reno"), above("pert", "cubic")], notes
    )


def judge_receiver(results: Results) -> Finding:
    """The parts of algorithms 1 to 3 that Linux's own receiver implements."""
    packets = results.table("packets")
    seen, answered = data_arrivals(packets), answers(packets, alg1.FLOW)
    gaps = out_of_order(seen)
    times = [answer.time_s for answer in answered]
    at_once = sum(any(0 <= time - one.time_s < AT_ONCE_S for time in times) for one in gaps)
    # Those of the handshake and of the connection's end cover no data.
    counts = [count for count in covered(seen, answered) if count]
    last = seen[-1] if seen else Arrival(0.0, -1)
    final = [answer.time_s for answer in answered if answer.number > last.number]
    finished = int(results.table("flows")["transfers"].sum())
    waited = f"{number((min(final) - last.time_s) * 1e3)} ms after it arrived" if final else "never"
    if not seen:
        waited = "did not arrive"
    lateness_s = results.table(MACHINE)["lateness_p99_s"].max()
    too_late = ""
    if isinstance(lateness_s, float) and lateness_s > AT_ONCE_S / LATE_SHARE:
        too_late = f"; cannot tell: 1 % of the packets came {lateness_s * 1e3:.1f} ms late or more"
    none = "not judged: Linux's receiver has its own rules, and no adaptive ACKs"
    checks = [
        Check(
            "A packet that is not in order is acknowledged at once.",
            "every one",
            f"{at_once} of {len(gaps)} within {AT_ONCE_S * 1e3:g} ms{too_late}",
            None if not gaps or (too_late and at_once < len(gaps)) else at_once == len(gaps),
            values=(float(at_once), float(len(gaps))),
        ),
        Check(
            "The last packets are acknowledged although none follows: no deadlock.",
            "acknowledged",
            f"the last packet {waited}",
            bool(final) and finished == 1 if seen else None,
        ),
        Check(
            "An ACK covers one to four packets.",
            "1 to 4",
            f"{min(counts, default=0)} to {max(counts, default=0)}; {none}",
            None,
        ),
        Check(
            "An ACK that is held goes out after twice the smoothed time between arrivals.",
            "every one",
            f"{none}; it holds an ACK for 40 ms or more",
            None,
        ),
    ]
    notes = [
        circumstances(results.table(MACHINE)),
        "The algorithms are the receiver's. PERT in the kernel is the sender's, and a receiver"
        " cannot be changed by loading a congestion control; only what Linux's receiver does alike"
        " can be judged.",
    ]
    return Finding([], checks, notes)


def data_arrivals(packets: pl.DataFrame) -> list[Arrival]:
    """The data that reached the receiver, by the time that its last bit did."""
    link = {"link": f"right -> {alg1.FLOW}.sink", "kind": "data"}
    data = packets.filter(pl.col("size_bytes") >= SMALLEST_DATA, **link).sort("started_s")
    at = pl.col("started_s") + pl.col("size_bytes") * 8 / ACCESS_BPS + ACCESS_DELAY_S
    return [Arrival(*row) for row in data.select(at, "number").iter_rows()]


def out_of_order(seen: Sequence[Arrival]) -> list[Arrival]:
    """Arrivals beyond a gap."""
    beyond: list[Arrival] = []
    following, ahead = 0, set[int]()
    for arrival in seen:
        if arrival.number > following:
            beyond.append(arrival)
            ahead.add(arrival.number)
        elif arrival.number == following:
            following += 1
        while following in ahead:
            following += 1
    return beyond


CLAIMS = (
    emulated(fig2.CLAIM, queue_emulated, beside_twins(fig2.judge, BESIDE_BURSTY)),
    emulated(
        replace(
            fig9.CLAIM,
            expectation="The same order at one setting, T/μ between 1.0 and 1.4, 1,000 bytes.",
        ),
        video_emulated,
        beside_twins(judge_videos),
    ),
    emulated(
        homogeneous.CLAIM,
        homogeneous_emulated,
        beside_twins(homogeneous.judge),
    ),
    emulated(alg1.CLAIM, acknowledgement_emulated, judge_receiver),
    SCALE,
)
