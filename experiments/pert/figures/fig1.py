"""Figure 1: the probability of an early response against the smoothed queueing delay."""

import ontempo
from ontempo.lab.claims import Check, Claim, Finding, World, no_cells
from ontempo.lab.judging import number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.study import Results

MAX_MS = (20, 48, 100)
"""Largest queueing delays seen: the middle one is a full buffer of Table I."""

ROUNDING = 1e-9
"""Tolerance of floating-point arithmetic."""

T_MIN_MS, T_MAX_MS, P_MAX = 5.0, 10.0, 0.05


def probability(queueing_ms: float, largest_ms: float) -> float:
    """The probability that the mechanism computes."""
    return ontempo.pert_response_probability(queueing_ms / 1e3, largest_ms / 1e3)


def third_ms(largest_ms: float) -> float:
    """The threshold at which the probability reaches 1."""
    return max(2 * T_MAX_MS, 0.65 * largest_ms)


def expected(queueing_ms: float, largest_ms: float) -> float:
    """The published curve: nothing, two straight lines, certainty."""
    top = third_ms(largest_ms)
    if queueing_ms < T_MIN_MS:
        return 0.0
    if queueing_ms < T_MAX_MS:
        return P_MAX * (queueing_ms - T_MIN_MS) / (T_MAX_MS - T_MIN_MS)
    if queueing_ms < top:
        return P_MAX + (1 - P_MAX) * (queueing_ms - T_MAX_MS) / (top - T_MAX_MS)
    return 1.0


def judge(_results: Results) -> Finding:
    """Compare the mechanism with the curve, in steps of a tenth of a millisecond."""
    delays = [step / 10 for step in range(701)]
    series, checks = [], []
    for step, largest in enumerate(MAX_MS):
        curve = {delay: probability(delay, largest) for delay in delays}
        points = {delay: exact(value) for delay, value in curve.items() if delay % 0.5 == 0}
        name = f"largest queueing delay {largest} ms"
        series.append(Series(name, f"step-{step * 2}", points, markers=False))
        off = max(abs(curve[delay] - expected(delay, largest)) for delay in delays)
        checks.append(
            Check(
                f"The curve for a largest queueing delay of {largest} ms.",
                f"0 below 5 ms, 0.05 at 10 ms, 1 from {third_ms(largest):g} ms,"
                " straight lines between",
                f"{number(curve[5.0])}, {number(curve[10.0])},"
                f" {number(probability(third_ms(largest), largest))} there;"
                f" nowhere off by more than {number(ROUNDING)}"
                if off <= ROUNDING
                else f"up to {number(off)} off",
                off <= ROUNDING,
                values=(float(off <= ROUNDING),),
            )
        )
    figure = Figure(
        "The probability of an early response is 0 up to 5 ms of queueing delay, 0.05 at 10 ms,"
        " and climbs from there to 1 at 20 ms or 0.65 times the largest delay seen.",
        Axis("Smoothed queueing delay (ms)", (0, 70)),
        Axis("Probability of an early response", (-0.02, 1.05)),
        [View("", series)],
    )
    return Finding([figure], checks)


CLAIM = Claim(
    id="pert/fig1",
    title="Probability of an early response against smoothed delay",
    world=World.ANALYSIS,
    published="PERT does not respond below one threshold, seldom between it and a second, and"
    " ever more surely beyond.",
    expectation="0 below 5 ms; linear to 0.05 at 10 ms; linear to 1 at the third threshold, the"
    " larger of 20 ms and 0.65 times the largest queueing delay; 1 beyond.",
    cells=no_cells,
    judge=judge,
    scaling=lambda _scale: "Nothing to scale: computed.",
)
