"""Figure 6: the gain against the processing time, without and with rate control."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import Curve, is_above, judged, monotone, number
from ontempo.lab.plots import Figure
from ontempo.lab.study import Cell, Results

from ..causes import LEVEL, RATE_RAISES, SMALL_STEPS
from ..curves import (
    RUNS_NOTE,
    USELESS_WHY,
    gain_figure,
    maximum_between,
    ms,
    never_negative,
    scaling,
    swept_cells,
    useless_for_large,
)
from ..grid import Setting
from ..metrics import gain_curve, highest

WINDOW_ONLY = Setting(interval_ms=0)
RATE_CONTROLLED = Setting()
NAMES = {0.0: "window only (R = 0)", 10.0: "rate control (R = 10 ms)"}


def wanted(scale: Scale) -> list[Cell]:
    """Both halves of the figure."""
    return swept_cells(scale, [WINDOW_ONLY, RATE_CONTROLLED])


def curves(results: Results, metric: str = "gain") -> dict[float, Curve]:
    """G by processing time, for each R."""
    return {interval: gain_curve(results, metric, interval_ms=interval) for interval in NAMES}


def judge_left(results: Results) -> Finding:
    """Window control only."""
    found, places = curves(results), results.asked("processing_ms", interval_ms=0.0)
    checks = [
        never_negative(found[0.0], places),
        monotone(
            "G falls, or stays, with every increase of Ta.",
            "decreasing",
            found[0.0],
            places,
            rising=False,
            strictly=False,
            place=ms,
            cause=SMALL_STEPS,
        ),
        useless_for_large(found[0.0], places),
    ]
    return Finding([figure(results)], checks, [RUNS_NOTE])


def judge_right(results: Results) -> Finding:
    """With rate control."""
    found, places = curves(results), results.asked("processing_ms", interval_ms=10.0)
    (place, most), (_, window_only) = (highest(found[r], places) for r in (10.0, 0.0))
    checks = [
        maximum_between(found[10.0], places, 0.2, 0.4, LEVEL),
        judged(
            "The largest gain is where Ta is at most R.",
            "Ta at most 10 ms",
            lambda: f"at {ms(place)}",
            {"the place of the largest gain": place},
            lambda: place <= RATE_CONTROLLED.interval_ms,
        ),
        judged(
            "The largest gain is larger than without rate control.",
            "larger",
            lambda: f"{number(most.value)} against {number(window_only.value)}",
            {"the largest gain": most, "the largest without rate control": window_only},
            lambda: is_above(most, window_only),
            RATE_RAISES,
        ),
        never_negative(found[10.0], places),
        useless_for_large(found[10.0], places),
    ]
    return Finding([figure(results)], checks, [RUNS_NOTE])


def figure(results: Results) -> Figure:
    """Both curves."""
    return gain_figure(
        "The gain of out-of-sequence processing against the processing time, with window control"
        " only and with rate control.",
        lambda metric: {
            NAMES[interval]: points for interval, points in curves(results, metric).items()
        },
    )


LEFT = Claim(
    id="rr3216/fig6-left",
    title="Gain against processing time, window control only",
    world=World.SIMULATION,
    published="Without rate control G falls with Ta, is never negative, and is nothing from about"
    " 40 ms on.",
    expectation="G at least 0, decreasing in Ta, below 0.05 for Ta of 40 ms or more. "
    + USELESS_WHY,
    cells=wanted,
    judge=judge_left,
    scaling=scaling,
)

RIGHT = Claim(
    id="rr3216/fig6-right",
    title="Gain against processing time, with rate control",
    world=World.SIMULATION,
    published="With R = 10 ms the largest gain is around 30 %, where Ta is at most R, and higher"
    " than without rate control.",
    expectation="Largest G from 0.2 to 0.4 at Ta up to R, above that of R = 0; below 0.05 for Ta of"
    " 40 ms or more. “Around 30 %” is read as within a tenth. " + USELESS_WHY,
    cells=wanted,
    judge=judge_right,
    scaling=scaling,
)
