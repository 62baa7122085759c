"""Section 3.2: whether five runs of 1,000 ADUs suffice."""

import math

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import within_everywhere
from ontempo.lab.plots import Axis, exact
from ontempo.lab.statistics import Interval
from ontempo.lab.study import Cell, Results

from ..causes import FIVE_RUNS
from ..curves import ORDER_NAMES, PROCESSING_AXIS, lines_figure, ms, sweep
from ..grid import PROCESSING_MS, SEEDS, Setting, cells
from ..metrics import curve, runs

AT_MOST = 0.05


def wanted(scale: Scale) -> list[Cell]:
    """Five runs at every processing time, quick or not."""
    return cells(scale, sweep(scale, [Setting()]), seeds=SEEDS["full"])


def width(interval: Interval) -> Interval:
    """Half the width of a confidence interval, over its estimate."""
    if math.isnan(interval.low):
        return Interval(math.nan, math.nan, math.nan, 0)
    return exact((interval.high - interval.low) / 2 / interval.value)


def judge(results: Results) -> Finding:
    """The intervals of the total time."""
    table = results.derive(runs)
    found = {
        name: {
            place: width(interval)
            for place, interval in curve(
                table.filter(order=order), "processing_ms", "judged_s"
            ).items()
        }
        for order, name in ORDER_NAMES.items()
    }
    checks = [
        within_everywhere(
            f"The 95 % interval of the total time {name} is small.",
            f"less than {AT_MOST:.0%} of the estimate to either side",
            points,
            lambda found: found < AT_MOST,
            results.asked("processing_ms"),
            ms,
            FIVE_RUNS,
        )
        for name, points in found.items()
    ]
    figure = lines_figure(
        "Half the 95 % confidence interval of the total time, relative to the estimate.",
        found,
        PROCESSING_AXIS,
        Axis("Half the interval / estimate", format=".0%"),
    )
    return Finding([figure], checks)


CLAIM = Claim(
    id="rr3216/confidence",
    title="Confidence of five runs",
    world=World.SIMULATION,
    published="With 1,000 ADUs and five runs the 95 % interval is less than 5 % of the estimate.",
    expectation="The t-interval over five runs, to either side, below 5 % of the total time.",
    cells=wanted,
    judge=judge,
    scaling=lambda scale: (
        f"{len(PROCESSING_MS[scale])} of {len(PROCESSING_MS['full'])}"
        " processing times; five runs a point, as published."
    ),
)
