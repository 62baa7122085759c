"""Claims with real packets, judged beside the same runs simulated."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ontempo.lab.cells import Cell
from ontempo.lab.claims import Finding
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Results

SIMULATED_COST = 0.05
"""Core-seconds a second of these scenarios, roughly."""


def with_twins(cells: Sequence[Cell]) -> list[Cell]:
    """Cells with real packets, and the same cells simulated: the effect of shorter runs alone."""
    twins = [replace(cell, real=None, cost=cell.cost * SIMULATED_COST) for cell in cells]
    return [*cells, *twins]


def beside_twins(
    judge: Callable[[Results], Finding], cause: str = ""
) -> Callable[[Results], Finding]:
    """Judge the real cells by the rules of the simulation; show the twins' values.

    `cause` replaces the judge's causes of differences with real packets.
    """

    def judged(results: Results) -> Finding:
        real = results.of(cell for cell in results.cells if cell.real)
        twins = results.of(cell for cell in results.cells if not cell.real)
        finding = judge(real)
        checks = [
            replace(
                check,
                measured=f"{check.measured}. Simulated alike: {twin.measured}",
                cause=cause or check.cause,
            )
            for check, twin in zip(finding.checks, judge(twins).checks, strict=True)
        ]
        return Finding(
            finding.figures, checks, [circumstances(real.table(MACHINE)), *finding.notes]
        )

    return judged
