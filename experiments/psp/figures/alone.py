"""Figures 7 to 9: constant-spacing agents with no other traffic."""

import polars as pl

from ontempo.lab.claims import Cause, Check, Claim, Finding, World
from ontempo.lab.judging import number
from ontempo.lab.plots import Series
from ontempo.lab.study import Results

from ..grid import PACKET_BITS, TRANSMISSION_US, Scaling, psa_cells
from .curves import EACH_NOTE, best, both, lost, microseconds, received, sent

COUNTS = (2, 4, 8, 16)
FLAT = Cause(
    "16 packets of 1,400 bytes take 1156 μs at 155 Mbit/s: up to a spacing of 1044 μs the link is"
    " full and the mean of the 16 does not change. Single agents are not like the mean: which lose"
    " depends on when they started, so one of 16 may rise to 1000 μs.",
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
    check = Check(
        "Sender and receiver have the same throughput at every spacing.",
        "no loss",
        f"{dropped} of {int(table['sent_packets'].sum()):,} packets lost",
        dropped == 0,
    )
    lines = [Series("Sent", "reno", sent(table)), Series("Received", "pert", rates, "dash")]
    return Finding(both("one agent alone", lines, [Series("", "pert", losses)]), [check])


def judge_many(results: Results) -> Finding:
    """Where 16 agents lose nine packets of ten, and where they receive most."""
    table = results.table("flows").filter(group="psa")
    of = {count: table.filter(agents=count) for count in COUNTS}
    rates, losses, sending = received(of[16]), lost(of[16]), sent(of[16])
    peak = best(rates)
    checks = [
        Check(
            "Without spacing each sends at its link's rate.",
            "100 Mbit/s",
            f"{number(sending[0].value)} Mbit/s",
            95 <= sending[0].value <= 105,
        ),
        Check(
            "Without spacing each receives about a tenth.",
            "10 Mbit/s",
            f"{number(rates[0].value)} Mbit/s",
            9 <= rates[0].value <= 11,
        ),
        Check(
            "Without spacing nine packets of ten are lost.",
            "90 %",
            f"{losses[0].value:.1%}",
            0.88 <= losses[0].value <= 0.92,
        ),
        Check(
            "The receiver's throughput is largest near 1000 μs.",
            "1000 μs",
            f"{microseconds(peak)}, {number(rates[peak].value)} Mbit/s",
            900 <= peak <= 1100,
            FLAT,
        ),
        Check(
            "The loss falls at once with spacing.",
            "sharply",
            "; ".join(f"{losses[us].value:.0%} at {microseconds(us)}" for us in (0, 500, 1000)),
            losses[0].value > losses[500].value > losses[1000].value,
        ),
        *[_fewer(count, of[count]) for count in COUNTS if count < 16],
    ]
    figures = both(
        "one of 16 agents",
        [Series("Sent", "reno", sending), Series("Received", "pert", rates, "dash")],
        [Series("", "pert", losses)],
    )
    return Finding(figures, checks, [EACH_NOTE])


def _fewer(count: int, table: pl.DataFrame) -> Check:
    rates, losses = received(table), lost(table)
    fits = count * PACKET_BITS / 155
    after = [us for us in rates if us + TRANSMISSION_US > 1.05 * fits]
    return Check(
        f"{count} agents behave alike: losses below a spacing, none above, throughput falling.",
        "the same shape",
        f"loss {losses[0].value:.0%} without spacing; none from {microseconds(min(after))};"
        f" most received at {microseconds(best(rates))}",
        losses[0].value > 0
        and all(losses[us].value == 0 for us in after)
        and best(rates) <= min(after),
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
    title="16 agents, spacing 0 to 5000 μs",
    world=World.SIMULATION,
    published="Without spacing each of 16 agents sends 100 Mbit/s and receives 10, with 90 %"
    " lost. Loss falls sharply with spacing, and the receiver's throughput rises to its largest"
    " value at 1000 μs. With 2, 4 and 8 agents the behaviour is similar.",
    expectation="The same; near 1000 μs is taken as 900 to 1100 μs.",
    cells=lambda scale: psa_cells(scale, COUNTS),
    judge=judge_many,
    scaling=Scaling(8),
)
