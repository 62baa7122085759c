"""Figures 6 to 12 and the ACKs' way with real packets, by the rules of the simulation."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ontempo.lab.beside import beside_twins
from ontempo.lab.cells import Cell
from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.judging import number
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Results

from ..emulated import ack_cells_played, played_cells, played_scaling
from ..grid import Application
from ..measures import intervals
from . import ack_path, coercion, fig6, fig7, fig8, fig9, fig10, fig11, fig12, overhead, violation

Cells = Callable[[Scale], Sequence[Cell]]


def _emulated(claim: Claim, cells: Cells) -> Claim:
    """The claim, of the programs themselves."""
    return replace(
        claim,
        id=f"{claim.id}-emulated",
        title=f"{claim.title}, real packets",
        world=World.EMULATION,
        cells=cells,
        judge=beside_twins(claim.judge),
        scaling=played_scaling,
        row=claim.answers,
    )


def _cells(application: Application) -> Cells:
    return lambda scale: played_cells(application, scale)


def judge_no_loss(results: Results) -> Finding:
    """Every message of every flow came."""
    real = results.of(cell for cell in results.cells if cell.real)
    table = intervals(real)
    sent, lost = table["sent_messages"].sum(), table["lost_messages"].sum()
    flows = table["flow_name"].n_unique()
    found = f"{lost} of {sent} messages of {flows} flows"
    check = Check("DIRM: no message is lost in any test.", "none", found, lost == 0)
    notes = [
        circumstances(real.table(MACHINE)),
        f"Images and the generators' messages, all over TCP; {number(flows)} flows of Table 1."
        " What was sent while it was measured, whenever it came.",
    ]
    return Finding([], [check], notes)


NO_LOSS = Claim(
    id="qosockets/no-loss",
    title="DIRM: no message is lost",
    world=World.EMULATION,
    published="No message is lost in any test of DIRM, since all its flows are TCP.",
    expectation="No message lost in any case.",
    cells=lambda scale: [cell for cell in played_cells("dirm", scale) if cell.real],
    judge=judge_no_loss,
    scaling=played_scaling,
)

CLAIMS = [
    coercion.CLAIM,
    *(_emulated(figure.CLAIM, _cells("nv")) for figure in (fig6, fig7, fig8, fig9)),
    *(_emulated(figure.CLAIM, _cells("dirm")) for figure in (fig10, fig11, fig12)),
    NO_LOSS,
    _emulated(ack_path.CLAIM, ack_cells_played),
    overhead.CLAIM,
    violation.CLAIM,
]
