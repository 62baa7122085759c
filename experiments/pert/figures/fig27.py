"""Figure 27: fairness of paced and unpaced transfers against the buffer."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.study import Cell, Results

from ..causes import PACED_LOSE
from ..extensions import scaling
from ..fairness import ALMOST_ALL, figures, measured, paced_fairer
from ..flavours import fairness_cells
from .fig26 import NOTE

SWEEP = "bdp"


def judge(results: Results) -> Finding:
    """Paced flows are fairer with almost every buffer."""
    table = results.derive(measured)
    checks = paced_fairer(
        table,
        SWEEP,
        results.asked("at", sweep=SWEEP),
        ALMOST_ALL,
        "better in almost all cases (9 in 10)",
        PACED_LOSE,
    )
    return Finding(figures(table, SWEEP), checks, [NOTE])


def cells(scale: Scale) -> list[Cell]:
    """Each buffer."""
    return fairness_cells(scale, SWEEP)


CLAIM = Claim(
    id="pert/fig27",
    headline="Buffer (bandwidth-delay products): paced flows have the larger Jain index.",
    title="Fairness against the buffer, half of the flows paced",
    world=World.SIMULATION,
    published="With buffers of 0.4 to 4.0 bandwidth-delay products paced flows are fairer in"
    " almost all cases.",
    expectation="Paced flows have the better share, drop ratio, Jain's index and normalised queue"
    " with nine buffers in ten.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
