"""Figure 31: the smoothed round trip, corrected for self-induced delay."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.study import Cell, Results

from ..causes import CORRECTED_AWAY
from ..extensions import ALONE, coalescing_cells, scaling
from ..roundtrips import every_mean, means, off_by, time_figure


def judge(results: Results) -> Finding:
    """Compare the means of the two transfers."""
    table = results.derive(means)
    uncorrected = off_by(table, "alone", "none")
    check = every_mean(
        "Corrected, the mean round trip is that of no coalescing.",
        off_by(table, "alone", "correction"),
        results.asked("at", sweep="alone", cure="correction"),
        "two transfers",
        CORRECTED_AWAY,
    )
    note = "; ".join(f"{value.value:+.1%}" for value in uncorrected.values())
    return Finding(
        [time_figure(results, ("correction", "none"))],
        [check],
        [f"Without the correction the mean of the same two transfers is {note} off."],
    )


def cells(scale: Scale) -> list[Cell]:
    """The two transfers, with the correction and without."""
    return coalescing_cells(scale, ALONE, ("none", "correction"))


CLAIM = Claim(
    id="pert/fig31",
    title="Corrected round trip, two transfers",
    world=World.SIMULATION,
    published="Two transfers over PERT, one with coalesced ACKs and the correction, one with"
    " neither, on 3 Mbit/s, 20 ms, with 1,000-byte packets: their smoothed round trips have the"
    " same mean.",
    expectation="Mean smoothed round trips within 2 %.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
