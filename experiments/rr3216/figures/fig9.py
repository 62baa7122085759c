"""Figure 9: the gain for several acknowledgement frequencies and emission intervals."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import about, above_everywhere, at, is_above, judged, monotone, number
from ontempo.lab.statistics import mean_interval
from ontempo.lab.study import Cell, Results

from ..causes import RARE_ACKS, RATE_LOWERS, RATE_RAISES
from ..curves import ORDER_NAMES, RUNS_NOTE, gain_figure, ms, scaling, swept_cells
from ..grid import ORDERS, Setting, cells
from ..metrics import curve, gain_curve, highest, runs

EVERY = (1, 2, 4, 8, 16)
STALLED = Setting(every=32)
"""An acknowledgement for each window: the end of the range."""
STALL = 2.0
"""How many times longer than with the default all must take to be called a stall."""

LOWERS = "Section 4.2.3: rate control of 10 ms reduces the largest gain."
RAISES = "Section 4.1: rate control of 10 ms raises the largest gain."

INTERVALS_MS = (0.0, 5.0, 10.0, 20.0)
IDLE_AT = Setting(interval_ms=20)
"""R = 20 ms, Ta = 10 ms: an application that is idle half of the time."""


def wanted_left(scale: Scale) -> list[Cell]:
    """Each A at every processing time."""
    found = swept_cells(scale, [Setting(every=every) for every in EVERY])
    return [*found, *cells(scale, [STALLED])]


def wanted_right(scale: Scale) -> list[Cell]:
    """Each R at every processing time."""
    return swept_cells(scale, [Setting(interval_ms=interval) for interval in INTERVALS_MS])


def every(size: float) -> str:
    """The label of a frequency."""
    return f"A = {size:g}"


def interval(time: float) -> str:
    """The label of an interval."""
    return f"R = {time:g} ms"


def judge_left(results: Results) -> Finding:
    """The maximum by A, and the stall at its end."""
    found = {size: gain_curve(results, every=size) for size in EVERY}
    table = results.derive(runs).filter(processing_ms=STALLED.processing_ms)
    took = {
        (order, size): mean_interval(table.filter(order=order, every=size)["makespan_s"]).value
        for order in ORDERS
        for size in (Setting().every, STALLED.every)
    }
    ratios = {
        ORDER_NAMES[order]: took[order, STALLED.every] / took[order, Setting().every]
        for order in ORDERS
    }
    checks = [
        monotone(
            "The largest gain does not grow with A.",
            "falls or stays",
            {
                float(size): highest(points, results.asked("processing_ms", every=size))[1]
                for size, points in found.items()
            },
            EVERY,
            rising=False,
            strictly=False,
            place=every,
            cause=RARE_ACKS,
        ),
        judged(
            "With A close to W both kinds of delivery stall.",
            f"all takes more than {STALL:g} times as long as with A = 2",
            lambda: (
                "; ".join(f"{order} {number(ratio)} times" for order, ratio in ratios.items())
                + f" with A = {STALLED.every}"
            ),
            ratios,
            lambda: all(ratio > STALL for ratio in ratios.values()),
        ),
    ]
    figure = gain_figure(
        "The gain against the processing time for acknowledgements after 1 to 16 ADUs.",
        lambda metric: {every(size): gain_curve(results, metric, every=size) for size in EVERY},
    )
    return Finding([figure], checks, [RUNS_NOTE])


def judge_right(results: Results) -> Finding:
    """The effect of rate control on the gain, by either of the paper's sentences."""
    found = {time: gain_curve(results, interval_ms=time) for time in INTERVALS_MS}
    idle = results.derive(runs).filter(
        interval_ms=IDLE_AT.interval_ms, processing_ms=IDLE_AT.processing_ms
    )
    shares = {
        ORDER_NAMES[order]: at(
            curve(idle.filter(order=order), "interval_ms", "idle"), IDLE_AT.interval_ms
        )
        for order in ORDERS
    }
    places = results.asked("processing_ms", interval_ms=10.0)
    (best_place, best), (_, none) = (highest(found[r], places) for r in (10.0, 0.0))
    largest = {"the largest gain": best, "the largest without rate control": none}
    checks = [
        judged(
            "With R = 20 ms and Ta = 10 ms the receiver is idle about half of the time.",
            "about 50 %",
            lambda: "; ".join(f"{order} {share.value:.0%}" for order, share in shares.items()),
            shares,
            lambda: all(about(share.value, 0.5) for share in shares.values()),
        ),
        above_everywhere(
            "Section 4.2.3: spacing ADUs by 20 ms instead of 10 ms reduces the gain where Ta is at"
            " most 10 ms.",
            "reduces",
            ("10 ms", found[10.0]),
            ("20 ms", found[20.0]),
            [place for place in places if place <= IDLE_AT.processing_ms],
            ms,
            RATE_LOWERS,
        ),
        judged(
            LOWERS,
            "smaller than with R = 0",
            lambda: f"{number(best.value)} at {ms(best_place)}, against {number(none.value)}",
            largest,
            lambda: is_above(none, best),
            RATE_LOWERS,
        ),
        judged(
            RAISES,
            "larger than with R = 0",
            lambda: f"{number(best.value)} at {ms(best_place)}, against {number(none.value)}",
            largest,
            lambda: is_above(best, none),
            RATE_RAISES,
        ),
    ]
    figure = gain_figure(
        "The gain against the processing time for emission intervals of 0 to 20 ms.",
        lambda metric: {
            interval(time): gain_curve(results, metric, interval_ms=time) for time in INTERVALS_MS
        },
    )
    raised = ", ".join(
        ms(place)
        for place in found[10.0]
        if place in found[0.0] and found[10.0][place].value > found[0.0][place].value
    )
    return Finding(
        [figure],
        checks,
        [f"R = 10 ms gains more than R = 0 at: {raised or 'no processing time'}.", RUNS_NOTE],
    )


LEFT = Claim(
    id="rr3216/fig9-left",
    title="Gain for several acknowledgement frequencies",
    world=World.SIMULATION,
    published="Fewer acknowledgements lessen the gain; very few block both kinds of delivery.",
    expectation="The largest G does not grow over A = 1, 2, 4, 8, 16; with A close to W both"
    " stall.",
    cells=wanted_left,
    judge=judge_left,
    scaling=scaling,
)

RIGHT = Claim(
    id="rr3216/fig9-right",
    title="Gain for several emission intervals",
    world=World.SIMULATION,
    published="Rate control reduces the gain (section 4.2.3), though it raises it (section 4.1);"
    " with R = 20 ms and Ta = 10 ms the receiver is idle half of the time.",
    expectation="Idle for about half of the time there; which of the two sentences holds, and"
    " where, is reported. They exclude each other, so that one check must fail.",
    exclusive=(LOWERS, RAISES),
    cells=wanted_right,
    judge=judge_right,
    scaling=scaling,
)
