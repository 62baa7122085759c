"""Figure 28: fairness of paced and unpaced transfers against the round trip, and two more."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.study import Cell, Results

from ..causes import PACED_LOSE
from ..extensions import scaling
from ..fairness import ALMOST_ALL, figures, measured, paced_fairer
from ..flavours import fairness_cells
from .fig26 import NOTE

SHOWN = ("rtt", "part", "http")


def judge(results: Results) -> Finding:
    """Paced flows are fairer in almost every setting of each sweep."""
    table = results.derive(measured)
    checks = [
        check
        for sweep in SHOWN
        for check in paced_fairer(
            table,
            sweep,
            results.asked("at", sweep=sweep),
            ALMOST_ALL,
            "better in almost all cases (9 in 10)",
            PACED_LOSE,
        )
    ]
    drawn = [figure for sweep in SHOWN for figure in figures(table, sweep)]
    notes = [
        NOTE,
        "The plot is of the round trip; the part of the flows that coalesce and the number of web"
        " users are in the text alone. Of the flows that coalesce half are paced, the others"
        " acknowledge each packet.",
    ]
    return Finding(drawn, checks, notes)


def cells(scale: Scale) -> list[Cell]:
    """Each round trip, part and number of web users."""
    return fairness_cells(scale, *SHOWN)


CLAIM = Claim(
    id="pert/fig28",
    headline="Round trip (ms): paced flows have the larger Jain index.",
    title="Fairness against round trip, coalescing flows and web users",
    world=World.SIMULATION,
    published="With round trips of 10 to 100 ms, 10 to 100 % of the flows coalescing, and 100 to"
    " 1,000 web users paced flows are fairer in almost all cases.",
    expectation="Paced flows have the better share, drop ratio, Jain's index and normalised queue"
    " in nine settings of ten, in each of the three sweeps.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
