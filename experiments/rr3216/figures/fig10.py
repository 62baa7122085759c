"""Figure 10: the gain for several delays, and against D/Ta."""

from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.judging import Curve, judged, monotone, number, within_everywhere
from ontempo.lab.plots import Axis, exact
from ontempo.lab.statistics import Interval, mean_of_runs
from ontempo.lab.study import Cell, Results

from ..causes import R_STAYS, WINDOW_PER_TRIP
from ..curves import (
    MAXIMAL,
    MAXIMAL_WHY,
    RUNS_NOTE,
    SAME,
    SAME_WHY,
    USELESS_BELOW,
    USELESS_WHY,
    gain_figure,
    ms,
    scaling,
    swept_cells,
)
from ..grid import SEEDS, Setting, cells
from ..metrics import gain_curve, gains, highest, wide

DELAYS_MS = (10.0, 50.0, 100.0, 200.0, 500.0)
MAX_MS = 500.0
STABLE_UPTO_MS = 50.0
STABLE = 0.5
"""From this share of the largest on a gain counts as stable."""

STABLE_WHY = (
    "“Stable” up to 50 ms is opposed to “equivalent” at 100 ms: what is nearer to the largest gain"
    " than to none counts as stable, our bound."
)

RATIOS = (1.0, 2.0, 4.0, 5.0, 8.0, 10.0, 20.0, 50.0)
USELESS_UNDER = 5.0
MAXIMAL_OVER = 10.0


def delay(time: float) -> str:
    """The label of a delay."""
    return f"D = {time:g} ms"


def ratio(value: float) -> str:
    """The label of a ratio."""
    return f"D/Ta = {value:g}"


def wanted_left(scale: Scale) -> list[Cell]:
    """Each delay at every processing time."""
    settings = [Setting(delay_ms=time) for time in DELAYS_MS]
    upto = Setting(delay_ms=MAX_MS, processing_ms=STABLE_UPTO_MS)
    return list(dict.fromkeys([*swept_cells(scale, settings), *cells(scale, [upto])]))


def wanted_right(scale: Scale) -> list[Cell]:
    """Each delay at every ratio."""
    settings = [
        Setting(delay_ms=time, processing_ms=time / value) for time in DELAYS_MS for value in RATIOS
    ]
    return cells(scale, settings)


def judge_left(results: Results) -> Finding:
    """How range and maximum depend on the delay."""
    found = {time: gain_curve(results, delay_ms=time) for time in DELAYS_MS}
    most = {
        time: highest(points, results.asked("processing_ms", delay_ms=time))[1]
        for time, points in found.items()
    }
    ranges = {time: wide(points) for time, points in found.items()}
    longest = found[MAX_MS]
    growth = {
        "range": ranges[MAX_MS] / ranges[DELAYS_MS[0]],
        "maximum": most[MAX_MS].value / most[DELAYS_MS[0]].value,
    }
    checks = [
        monotone(
            "The range of Ta with a gain within 90 % of the largest grows with the delay.",
            "grows",
            {time: exact(value) for time, value in ranges.items() if most[time].known},
            DELAYS_MS,
            rising=True,
            strictly=False,
            place=delay,
        ),
        judged(
            "The largest gain grows much less than the range.",
            "the delay affects the range, not the gain",
            lambda: (
                f"from D = 10 to 500 ms the range grows {number(growth['range'])} times, the"
                f" maximum {number(growth['maximum'])} times"
            ),
            growth,
            lambda: growth["maximum"] < growth["range"],
        ),
        within_everywhere(
            f"With D = 500 ms the gain is stable up to Ta = {STABLE_UPTO_MS:g} ms.",
            f"at least {STABLE:.0%} of its maximum, {number(most[MAX_MS].value)}",
            longest,
            lambda gain: gain >= STABLE * most[MAX_MS].value,
            [
                place
                for place in results.asked("processing_ms", delay_ms=MAX_MS)
                if place <= STABLE_UPTO_MS
            ],
            ms,
            WINDOW_PER_TRIP,
        ),
        within_everywhere(
            "With D = 500 ms both are equivalent at Ta = 100 ms.",
            f"below {USELESS_BELOW:g}",
            longest,
            lambda gain: gain < USELESS_BELOW,
            [100.0],
            ms,
            WINDOW_PER_TRIP,
        ),
    ]
    figure = gain_figure(
        "The gain against the processing time for delays of 10 to 500 ms.",
        lambda metric: {
            delay(time): gain_curve(results, metric, delay_ms=time) for time in DELAYS_MS
        },
    )
    return Finding([figure], checks, [RUNS_NOTE])


def by_ratio(results: Results, time: float, metric: str = "gain") -> dict[float, Interval]:
    """G by D/Ta for one delay."""
    table = results.derive(gains).filter(delay_ms=time)
    return {
        value: mean_of_runs(table.filter(processing_ms=time / value), metric) for value in RATIOS
    }


def maximal_beyond(name: str, points: Curve) -> Check:
    """The gain is near its maximum at every large ratio."""
    most = highest(points, RATIOS)[1].value
    return within_everywhere(
        f"Above D/Ta = {MAXIMAL_OVER:g} the gain is maximal, with {name}.",
        f"within {1 - MAXIMAL:.0%} of its maximum, {number(most)}",
        points,
        lambda gain: gain >= MAXIMAL * most,
        [value for value in RATIOS if value > MAXIMAL_OVER],
        ratio,
        R_STAYS,
    )


def judge_right(results: Results) -> Finding:
    """Whether the ratio alone decides."""
    found = {time: by_ratio(results, time) for time in DELAYS_MS}
    points = {value: [curve[value] for curve in found.values()] for value in RATIOS}
    # Where one of the delays has no value, neither has what is made of all of them.
    whole = {value: many for value, many in points.items() if all(one.known for one in many)}
    spread = {
        value: exact(max(one.value for one in many) - min(one.value for one in many))
        for value, many in whole.items()
    }
    worst = {value: max(many, key=lambda one: one.value) for value, many in whole.items()}
    checks = [
        within_everywhere(
            "The curves of all delays fall together.",
            f"within {SAME:g} of each other at every ratio",
            spread,
            lambda width: width <= SAME,
            RATIOS,
            ratio,
            R_STAYS,
        ),
        within_everywhere(
            f"Below D/Ta = {USELESS_UNDER:g} it is useless, with any delay.",
            f"below {USELESS_BELOW:g}",
            worst,
            lambda gain: gain < USELESS_BELOW,
            [value for value in RATIOS if value < USELESS_UNDER],
            ratio,
            R_STAYS,
        ),
        *(maximal_beyond(delay(time), points) for time, points in found.items()),
    ]
    figure = gain_figure(
        "The gain against the ratio of delay and processing time, for delays of 10 to 500 ms.",
        lambda metric: {delay(time): by_ratio(results, time, metric) for time in DELAYS_MS},
        Axis("D/Ta", ticks={value: f"{value:g}" for value in RATIOS}, hover="D/Ta %{x}"),
    )
    return Finding([figure], checks, [RUNS_NOTE])


LEFT = Claim(
    id="rr3216/fig10-left",
    title="Gain for several delays",
    world=World.SIMULATION,
    published="A longer delay widens the range of Ta in which out-of-sequence processing pays, and"
    " hardly raises the gain; at 500 ms it is stable up to 50 ms and nothing at 100 ms.",
    expectation="The range grows with D, the maximum much less; D = 500 ms: G stable up to Ta = 50"
    f" ms, below 0.05 at 100 ms. {STABLE_WHY} {MAXIMAL_WHY} {USELESS_WHY}",
    cells=wanted_left,
    judge=judge_left,
    scaling=scaling,
)

RIGHT = Claim(
    id="rr3216/fig10-right",
    title="Gain against D/Ta",
    world=World.SIMULATION,
    published="The gain is the same for the same D/Ta: useless below 5, maximal above 10.",
    expectation="Curves for different D within 0.05 of each other; G below 0.05 under 5, maximal"
    f" over 10. {SAME_WHY} {MAXIMAL_WHY} {USELESS_WHY}",
    cells=wanted_right,
    judge=judge_right,
    scaling=lambda scale: f"{len(SEEDS[scale])} of {len(SEEDS['full'])} runs a point.",
)
