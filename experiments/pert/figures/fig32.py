"""Figures 32 to 34: the corrected round trip in other settings."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.study import Cell, Results

from ..causes import CORRECTED_AWAY
from ..extensions import CORRECTED_SETTINGS, coalescing_cells, scaling
from ..roundtrips import error_figure, every_mean, means, off_by
from .fig21 import NOTE

SENTENCES = {
    "cross flows": "With 5 to 10 cross flows, the mean is that of no coalescing (figure 32).",
    "delay (ms)": "With end-to-end delays of 5 to 50 ms too (figure 33).",
    "cross packet (bytes)": "With cross packets of 500 to 1,500 bytes too (figure 34).",
    "rate (Mbit/s)": "With bottlenecks of 1 to 10 Mbit/s too.",
}


def judge(results: Results) -> Finding:
    """Compare the means in every setting."""
    table = results.derive(means)
    checks = [
        every_mean(
            sentence,
            off_by(table, sweep, "correction"),
            results.asked("at", sweep=sweep, cure="correction"),
            sweep,
            CORRECTED_AWAY,
        )
        for sweep, sentence in SENTENCES.items()
    ]
    figures = [error_figure(table, sweep, ("none", "correction")) for sweep in SENTENCES]
    return Finding(figures, checks, [NOTE])


def cells(scale: Scale) -> list[Cell]:
    """Every setting, with the correction and without."""
    return coalescing_cells(scale, CORRECTED_SETTINGS, ("none", "correction"))


CLAIM = Claim(
    id="pert/fig32-34",
    title="Corrected round trip in other settings",
    world=World.SIMULATION,
    published="The mean corrected round trip is nearly that without coalescing in all settings:"
    " 5 to 10 cross flows, end-to-end delay of 5 to 50 ms, cross packets of 500 to 1,500 bytes,"
    " bottleneck of 1 to 10 Mbit/s.",
    expectation="Mean smoothed round trips within 2 % in every setting.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
