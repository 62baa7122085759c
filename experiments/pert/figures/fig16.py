"""Figure 16: packets and ACKs of one transfer against time."""

from collections import Counter

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.study import Cell, Results

from ..extensions import lone_cells, scaling
from ..trains import STEADY_S, answers, arrivals, covered

FLOW = "ftp.0"
DRAWN_S = 0.2


def judge(results: Results) -> Finding:
    """Count the packets that each ACK of the steady part covers."""
    packets = results.table("packets")
    counts: Counter[int] = Counter()
    for (_seed,), own in packets.group_by(["seed"], maintain_order=True):
        seen, answered = arrivals(own, FLOW), answers(own, FLOW)
        found = zip(covered(seen, answered), answered, strict=True)
        counts.update(count for count, answer in found if answer.time_s >= STEADY_S)
    total = sum(counts.values())
    text = ", ".join(f"{count} packets: {counts[count]:,}" for count in sorted(counts))
    check = Check(
        "In the steady part each ACK is for four packets.",
        "every four data packets one ACK",
        f"of {total:,} ACKs, {text}",
        counts[4] == total if total else None,
        values=(float(counts[4]), float(total)),
    )
    first = packets.filter(pl.col("seed") == pl.col("seed").min())
    end = STEADY_S + DRAWN_S
    shown = [one for one in arrivals(first, FLOW) if STEADY_S <= one.time_s <= end]
    replies = [one for one in answers(first, FLOW) if STEADY_S <= one.time_s <= end]
    series = [
        Series("data received", "step-4", {one.time_s: exact(one.number) for one in shown}),
        Series(
            "ACK sent",
            "step-0",
            {one.time_s: exact(one.number) for one in replies},
            symbol="diamond",
        ),
    ]
    figure = Figure(
        f"Packets received and ACKs sent over {DRAWN_S:g} s; {text}.",
        Axis("Time (s)", (STEADY_S, end)),
        Axis("Packet number"),
        [View("", series)],
    )
    return Finding([figure], [check], [f"The steady part: after {STEADY_S:g} s."])


def cells(scale: Scale) -> list[Cell]:
    """One transfer with coalesced ACKs."""
    return lone_cells(scale, ["adaptive"])


CLAIM = Claim(
    id="pert/fig16",
    title="Sequence against time with coalesced ACKs",
    world=World.SIMULATION,
    published="One transfer to a receiver with adaptive delayed ACKs: one ACK for every four"
    " packets.",
    expectation="Four packets to an ACK in the steady part.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
