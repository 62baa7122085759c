"""Figures 21 to 24: the smoothed round trip with coalescing and pacing."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.study import Cell, Results

from ..causes import HELD_ACKS
from ..extensions import PACED_SETTINGS, coalescing_cells, scaling
from ..roundtrips import error_figure, means, off_by, same_mean, time_figure

SWEEPS = ("cross flows", "cross packet (bytes)", "delay (ms)")
SENTENCES = {
    "alone": "Two transfers alone: paced, the mean is that of no coalescing (figure 21).",
    "cross flows": "With 1 to 10 cross flows it is in most settings (figure 22).",
    "cross packet (bytes)": "With cross packets of 500 to 1,500 bytes too (figure 23).",
    "delay (ms)": "With end-to-end delays of 5 to 50 ms too (figure 24).",
}


def judge(results: Results) -> Finding:
    """Compare the means in every setting."""
    table = results.derive(means)
    checks = [
        same_mean(
            sentence,
            "the error disappears in most settings (within 2 %)",
            off_by(table, sweep, "pacing"),
            results.asked("at", sweep=sweep, cure="pacing"),
            sweep,
            HELD_ACKS,
        )
        for sweep, sentence in SENTENCES.items()
    ]
    shown = ("none", "pacing")
    figures = [time_figure(results, shown)]
    figures += [error_figure(table, sweep, shown) for sweep in SWEEPS]
    return Finding(figures, checks, [NOTE])


NOTE = (
    "Means over time of PERT's own smoothed round trip from 30 s on, two transfers in one queue;"
    " means over seeds of how far they are apart. Cross traffic: transfers over RENO, 5 where their"
    " number is not varied. The thesis says neither what cross traffic is nor how large the buffer"
    " is: taken as in Table I, 150 packets."
)


def cells(scale: Scale) -> list[Cell]:
    """Every setting, with pacing and without."""
    return coalescing_cells(scale, PACED_SETTINGS, ("none", "pacing"))


CLAIM = Claim(
    id="pert/fig21-24",
    title="Smoothed round trip with coalescing and pacing",
    world=World.SIMULATION,
    published="With pacing, the smoothed round trip with coalesced ACKs is that without, in most"
    " settings of cross flows (1 to 10), their packets (500 to 1,500 bytes) and end-to-end delay"
    " (5 to 50 ms).",
    expectation="Mean smoothed round trip within 2 % of that without coalescing, in most settings"
    " of each kind; the others are listed.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
