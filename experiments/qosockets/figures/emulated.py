"""Figures 6 to 12 and the ACKs' path with real packets, by the rules of the simulation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ontempo.lab.beside import beside_twins
from ontempo.lab.cells import Cell
from ontempo.lab.claims import Cause, Claim, Finding, Scale, World
from ontempo.lab.judging import counted, number
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Results

from ..causes import (
    CAPACITY,
    DRAINING,
    ENOUGH_LEFT,
    FAIR,
    FAIR_HERE,
    IDLE,
    KERNEL_QUEUE,
    LITTLE_LOAD,
    LITTLE_LOAD_HERE,
    NO_QUEUE,
    RATE_AND_SHARE,
    SLOWER_IN_TURN,
    SMALL_SOCKETS,
    WEIGHT,
)
from ..emulated import ack_cells_played, played_cells, played_scaling
from ..grid import FLOWS, Application
from ..measures import intervals
from . import ack_path, coercion, fig6, fig7, fig8, fig9, fig10, fig11, fig12, overhead, violation

Cells = Callable[[Scale], Sequence[Cell]]


CAUSES: Mapping[str, Mapping[str, Cause]] = {
    "fig6": {IDLE: CAPACITY, IDLE + FAIR: CAPACITY + FAIR_HERE},
    "fig7": {IDLE: CAPACITY, IDLE + FAIR: CAPACITY + FAIR_HERE},
    "fig8": {NO_QUEUE: KERNEL_QUEUE},
    "fig9": {DRAINING: SLOWER_IN_TURN},
    "fig10": {
        "": RATE_AND_SHARE,
        ENOUGH_LEFT: RATE_AND_SHARE,
        WEIGHT: RATE_AND_SHARE,
        LITTLE_LOAD: LITTLE_LOAD_HERE,
    },
    "fig11": {SMALL_SOCKETS: RATE_AND_SHARE},
}
"""Causes with real packets, by figure, in place of those of the simulation."""


def _emulated(claim: Claim, cells: Cells) -> Claim:
    """The claim, of the programs themselves."""
    causes = CAUSES.get(claim.answers, {})

    def judge(results: Results) -> Finding:
        finding = beside_twins(claim.judge)(results)
        checks = [
            replace(check, cause=causes.get(check.cause, check.cause)) for check in finding.checks
        ]
        return replace(finding, checks=checks)

    return replace(
        claim,
        id=f"{claim.id}-emulated",
        title=f"{claim.title}, real packets",
        world=World.EMULATION,
        cells=cells,
        judge=judge,
        scaling=played_scaling,
        row=claim.answers,
    )


def _cells(application: Application) -> Cells:
    return lambda scale: played_cells(application, scale)


def judge_no_loss(results: Results) -> Finding:
    """Every message of every flow arrived."""
    real = results.of(cell for cell in results.cells if cell.real)
    table = intervals(real)
    sent, lost = (int(table[f"{what}_messages"].sum()) for what in ("sent", "lost"))
    of = {flow: table.filter(flow_name=flow)["sent_messages"].sum() for flow in FLOWS}
    silent = [flow for flow, count in of.items() if not count]
    flows = len(FLOWS) - len(silent)
    check = counted(
        "DIRM: no message is lost in any test.",
        "none",
        (lost, sent),
        f"messages of {flows} flows",
    )
    if silent and not lost:
        text = f"{check.measured}; nothing was sent in {', '.join(silent)}"
        check = replace(check, measured=text, ok=None)
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
