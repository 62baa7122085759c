"""Figure 7: the model's gain in blocking time over Ta and n."""

import math
from fractions import Fraction

from ontempo.lab.claims import Check, Claim, Finding, World, no_cells
from ontempo.lab.judging import MISSING, at, every, is_positive, judged, monotone, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.study import Results

from ..causes import SMALL_STEPS
from ..curves import (
    COLOURS,
    GAINS,
    MAXIMAL,
    MAXIMAL_WHY,
    NOTHING,
    PROCESSING_AXIS,
    RUNS_NOTE,
    ms,
    scaling,
    swept_cells,
)
from ..grid import Setting
from ..metrics import gain_curve, highest
from ..model import blocking_gain

RTT_MS, INTERVAL_MS = 200, 10
BURSTS = (2, 5, 10, 20, 40)
FINE_MS = [step / 4 for step in range(401)]
SLICE = 10


def gain(processing_ms: float | Fraction, burst: int) -> float | Fraction:
    """Gb at the figure's round trip and R; exact where the processing time is a fraction."""
    return blocking_gain(processing_ms, burst, RTT_MS, INTERVAL_MS)


def expected(processing_ms: Fraction, burst: int) -> Fraction:
    """The paper's statements on the three areas."""
    if processing_ms <= INTERVAL_MS - Fraction(RTT_MS, burst):
        return Fraction(0)
    if processing_ms <= INTERVAL_MS:
        return Fraction(1)
    return RTT_MS / (RTT_MS + burst * (processing_ms - INTERVAL_MS))


def surface(bursts: tuple[int, ...]) -> Figure:
    """Gb against Ta, a line for each n."""
    lines = [
        Series(
            f"n = {burst}",
            COLOURS[place % 6],
            {time: exact(float(gain(time, burst))) for time in FINE_MS},
            markers=False,
        )
        for place, burst in enumerate(bursts)
    ]
    return Figure(
        "The model's gain in blocking time: nothing for small Ta where losses are rare, 1 up to"
        " Ta = R, and falling beyond.",
        PROCESSING_AXIS,
        Axis("Gain Gb in blocking time", (-0.05, 1.05)),
        [View("", lines)],
    )


def judge_left(_results: Results) -> Finding:
    """Compare the two functions of the model with the paper's three areas."""
    grid = [(Fraction(time), burst) for time in range(101) for burst in range(1, 101)]
    edge = [(INTERVAL_MS - Fraction(RTT_MS, burst), burst) for burst in range(20, 101)]
    off = sum(gain(*place) != expected(*place) for place in grid)
    most = max(gain(*place) for place in edge)
    checks = [
        Check(
            "Gb is 0, 1, or rtt/(rtt + n(Ta - R)), by area.",
            "exactly",
            f"equal at {len(grid) - off:,} of {len(grid):,} points, computed in fractions",
            off == 0,
            values=(float(off),),
        ),
        Check(
            "On the line Ta = R - rtt/n, nothing is gained yet.",
            "exactly 0",
            f"at most {number(float(most))} at {len(edge)} points",
            most == 0,
            values=(float(most),),
        ),
    ]
    return Finding([surface(BURSTS)], checks)


def judge_right(results: Results) -> Finding:
    """The slice n = 10, and the simulation of a loss rate of 10 % beside it."""
    simulated = gain_curve(results)
    places = results.asked("processing_ms")
    most = highest(simulated, places)[1].value
    upto = {time: at(simulated, time) for time in places if time <= INTERVAL_MS}
    least = {ms(time): point for time, point in upto.items()}
    low = min(upto, key=lambda time: upto[time].value, default=math.nan)
    lowest = upto.get(low, MISSING)
    checks = [
        judged(
            "For n = 10 the model gains nothing at no Ta; nor does the simulation at small Ta.",
            "G above 0 for all Ta up to R",
            lambda: f"at least {number(lowest.value)}",
            least,
            lambda: every(is_positive(point) for point in upto.values()),
        ),
        judged(
            "The gain is maximal for all Ta up to R.",
            f"within {1 - MAXIMAL:.0%} of its maximum",
            lambda: f"{number(lowest.value)} at {ms(low)}, the maximum is {number(most)}",
            {**least, "the largest gain": most},
            lambda: lowest.value >= MAXIMAL * most,
        ),
        monotone(
            "It falls beyond R.",
            "falls",
            simulated,
            [time for time in places if time >= INTERVAL_MS],
            rising=False,
            place=ms,
            cause=SMALL_STEPS,
            ends=NOTHING,
        ),
    ]
    figure = surface((SLICE,))
    views = [
        View(
            label,
            [
                *figure.views[0].series,
                Series(
                    "simulated G, L = 10 %", "step-4", gain_curve(results, metric), symbol="square"
                ),
            ],
        )
        for metric, label in GAINS.items()
    ]
    both = Figure(
        "The model's gain in blocking time for n = 10 and the simulated gain in total time.",
        figure.x,
        Axis("Gain", (-0.05, 1.05)),
        views,
        selector="Total time",
    )
    return Finding([both], checks, [RUNS_NOTE])


LEFT = Claim(
    id="rr3216/fig7-left",
    title="The model's gain in blocking time",
    world=World.ANALYSIS,
    published="Three areas: no gain, all of the blocking time, and a gain that falls beyond R.",
    expectation="Exactly 0 where Ta <= R - rtt/n; exactly 1 where R - rtt/n < Ta <= R;"
    " rtt/(rtt + n(Ta - R)) beyond.",
    cells=no_cells,
    judge=judge_left,
    scaling=lambda _scale: "Nothing to scale: computed.",
)

RIGHT = Claim(
    id="rr3216/fig7-right",
    title="A slice of the model beside the simulation",
    world=World.ANALYSIS,
    published="For n = 10, that is a loss rate of 10 %, Gb behaves as G does.",
    expectation="The simulated gain is positive, maximal and falling where the model's is. "
    + MAXIMAL_WHY,
    cells=lambda scale: swept_cells(scale, [Setting()]),
    judge=judge_right,
    scaling=scaling,
)
