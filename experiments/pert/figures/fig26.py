"""Figure 26: fairness of paced and unpaced transfers against their number."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.study import Cell, Results

from ..causes import PACED_LOSE
from ..extensions import scaling
from ..fairness import figures, less_fair, measured, paced_fairer
from ..flavours import fairness_cells

SWEEP = "flows"

NOTE = (
    "Share: mean goodput of a kind's flows over the link's rate. Drop ratio: dropped over sent."
    " Jain's index: among the flows of a kind. Normalised queue: packets that a kind's packets find"
    " waiting, over the buffer. The thesis names the four and defines none."
)


def judge(results: Results) -> Finding:
    """Fairness falls with the number of flows, and is better with pacing throughout."""
    table = results.derive(measured)
    settings = results.asked("at", sweep=SWEEP)
    checks = [
        *less_fair(table, SWEEP, settings, PACED_LOSE),
        *paced_fairer(table, SWEEP, settings, 1.0, "always better", PACED_LOSE),
    ]
    return Finding(figures(table, SWEEP), checks, [NOTE])


def cells(scale: Scale) -> list[Cell]:
    """Each number of flows."""
    return fairness_cells(scale, SWEEP)


CLAIM = Claim(
    id="pert/fig26",
    headline="Delay Pacing: the Jain index falls.",
    title="Fairness against the number of flows, half of them paced",
    world=World.SIMULATION,
    published="With 10 to 100 flows that coalesce ACKs, half of them paced, fairness falls with"
    " their number by bandwidth share, drop ratio, Jain's index and normalised queue; paced flows"
    " are always fairer.",
    expectation="For both kinds share and Jain's index fall, drop ratio and normalised queue rise"
    " with each step; paced flows have the better of all four at every number.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
