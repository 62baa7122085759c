"""Figures 7 to 9: constant-spacing agents with no other traffic."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import polars as pl

from ontempo.lab.claims import Cause, Check, Claim, Finding, World
from ontempo.lab.judging import at, counted, every, is_above, judged, number
from ontempo.lab.plots import Series
from ontempo.lab.study import Results

from ..grid import LINK_MBIT_S, Scaling, psa_cells
from .curves import (
    EACH_NOTE,
    SAME,
    best,
    both,
    by_spacing,
    lost,
    microseconds,
    plateau_end,
    received,
    sent,
)

COUNTS = (2, 4, 8, 16)
FLAT = Cause(
    "a first-in first-out link carries as much with losses as without: 16 packets take 1179 μs at"
    " 155 Mbit/s, and up to a spacing of 1065 μs the link is full.",
    "python -m experiments.psp.readings agents",
)
FEWER_CAUSE = (
    "the peak is where the agents just fill 155 Mbit/s; the grid of spacings is not fine there."
)


def judge_one(results: Results) -> Finding:
    """Nothing of a single agent is lost."""
    table = results.table("flows").filter(group="psa", agents=1)
    dropped = int(table["dropped_packets"].sum())
    rates, losses = received(table), lost(table)
    spacings = results.asked("spacing_us", agents=1)
    silent = [us for us in spacings if not table.filter(spacing_us=us)["sent_packets"].sum()]
    check = counted(
        "Sender and receiver have the same throughput at every spacing.",
        "no loss",
        (dropped, int(table["sent_packets"].sum())),
        "packets lost",
    )
    if silent and not dropped:
        listed = ", ".join(map(microseconds, silent))
        check = replace(check, measured=f"{check.measured}; nothing was sent at {listed}", ok=None)
    lines = [Series("Sent", "reno", sent(table)), Series("Received", "pert", rates, "dash")]
    return Finding(both("one agent alone", lines, [Series("", "pert", losses)]), [check])


def judge_many(results: Results) -> Finding:
    """Where 16 agents lose nine packets of ten, and where they receive most."""
    table = results.table("flows").filter(group="psa")
    of = {count: table.filter(agents=count) for count in COUNTS}
    rates, losses, sending = received(of[16]), lost(of[16]), sent(of[16])
    end = plateau_end(rates)
    sent_0, received_0, lost_0 = (at(curve, 0) for curve in (sending, rates, losses))
    spacings = {count: results.asked("spacing_us", agents=count) for count in COUNTS}
    falling = by_spacing(losses, (0, 500, 1000))
    checks = [
        judged(
            "Without spacing each sends at its link's rate.",
            "100 Mbit/s",
            lambda: f"{number(sent_0.value)} Mbit/s",
            {"what is sent at 0 μs": sent_0},
            lambda: 95 <= sent_0.value <= 105,
        ),
        judged(
            "Without spacing each receives about a tenth.",
            "10 Mbit/s",
            lambda: f"{number(received_0.value)} Mbit/s",
            {"what is received at 0 μs": received_0},
            lambda: 9 <= received_0.value <= 11,
        ),
        judged(
            "Without spacing nine packets of ten are lost.",
            "90 %",
            lambda: f"{lost_0.value:.1%}",
            {"the loss at 0 μs": lost_0},
            lambda: 0.88 <= lost_0.value <= 0.92,
        ),
        judged(
            "The receiver's throughput is largest up to about 1000 μs, and falls from there.",
            "1000 μs",
            lambda: (
                f"within 1 % of the largest up to {microseconds(end)},"
                f" {number(rates[end].value)} Mbit/s"
            ),
            {"the end of the plateau": end, **by_spacing(rates, spacings[16])},
            lambda: 900 <= end <= 1100,
        ),
        judged(
            "It rises from 0 to 1000 μs.",
            "increases",
            lambda: (
                f"{number(received_0.value)} Mbit/s at 0, {number(at(rates, 1000).value)} at"
                " 1000 μs"
            ),
            by_spacing(rates, (0, 1000)),
            lambda: at(rates, 1000).value > (1 + SAME) * received_0.value,
            FLAT,
        ),
        judged(
            "The loss falls at once with spacing.",
            "sharply",
            lambda: "; ".join(f"{loss.value:.0%} at {us}" for us, loss in falling.items()),
            falling,
            lambda: every(is_above(*step) for step in pairwise(falling.values())),
        ),
        *[_fewer(count, of[count], spacings[count]) for count in COUNTS if count < 16],
    ]
    figures = both(
        "one of 16 agents",
        [Series("Sent", "reno", sending), Series("Received", "pert", rates, "dash")],
        [Series("", "pert", losses)],
    )
    return Finding(figures, checks, [EACH_NOTE])


def _fewer(count: int, table: pl.DataFrame, spacings: Sequence[float]) -> Check:
    rates, losses = received(table), lost(table)
    offered = sent(table)
    after = [us for us in spacings if count * at(offered, us).value < LINK_MBIT_S / 1.05]
    first, peak = at(losses, 0), best(rates)
    free = all(losses[us].value == 0 for us in after if us in losses)
    return judged(
        f"{count} agents behave alike: losses below a spacing, none above, throughput falling.",
        "the same shape",
        lambda: (
            f"loss {first.value:.0%} without spacing;"
            f" {'none' if free else 'some'} from {microseconds(min(after))};"
            f" most received at {microseconds(peak)}"
        ),
        {
            "the loss without spacing": first,
            "the place of the largest throughput": peak,
            "a spacing that leaves room": min(after, default=math.nan),
            **by_spacing(losses, spacings),
        },
        lambda: first.value > 0 and free and peak <= min(after),
        FEWER_CAUSE,
    )


FIG7 = Claim(
    id="psp/fig7",
    title="One agent alone, spacing 0 to 5000 μs",
    world=World.SIMULATION,
    published="A single agent with no other traffic receives what it sends at every spacing.",
    expectation="No packet is lost.",
    cells=lambda scale: psa_cells(scale, (1,)),
    judge=judge_one,
    scaling=Scaling(8),
)

FIG8_9 = Claim(
    id="psp/fig8-9",
    headline="Without spacing nine packets of ten are lost.",
    title="16 agents, spacing 0 to 5000 μs",
    world=World.SIMULATION,
    published="Without spacing each of 16 agents sends 100 Mbit/s and receives 10, with 90 %"
    " lost. Loss falls sharply with spacing, and the receiver's throughput rises to its largest"
    " value at 1000 μs. With 2, 4 and 8 agents the behaviour is similar.",
    expectation="The same; near 1000 μs is taken as 900 to 1100 μs, where the throughput begins to"
    " fall by more than 1 %; a rise is more than 1 %.",
    cells=lambda scale: psa_cells(scale, COUNTS),
    judge=judge_many,
    scaling=Scaling(8),
)
