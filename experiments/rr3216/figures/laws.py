"""Section 3.1.4: whether the laws of losses and of delays matter."""

import math
from collections.abc import Sequence

from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.judging import MISSING, Curve, at, judged, number
from ontempo.lab.plots import Axis
from ontempo.lab.statistics import Interval
from ontempo.lab.study import Cell, Results

from ..causes import MEMORY, ORDER_KEPT
from ..curves import RUNS_NOTE, SAME, SAME_WHY, gain_figure, ms
from ..grid import SEEDS, Setting, cells
from ..metrics import curve, gains

LOSSES = (0.1, 0.3)
BURSTS: tuple[float | None, ...] = (None, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Mean number of ADUs lost together; None is the paper's q = 1 - p."""

BURST_SEEDS = range(20)
"""Long bursts are few in a run: five runs would say little."""

LAWS = ("erlang", "constant", "exponential", "hyper-exponential")
TIMES_MS = {"quick": (1.0, 10.0, 20.0), "full": (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0)}


def loss_cells(_scale: Scale) -> list[Cell]:
    """Each burst length at two loss rates."""
    settings = [Setting(loss=loss, burst=burst) for loss in LOSSES for burst in BURSTS]
    return cells("full", settings, seeds=BURST_SEEDS)


def rate(loss: float) -> str:
    """The label of a loss rate."""
    return f"L = {loss:.0%}"


def judge_losses(results: Results) -> Finding:
    """G by burst length, beside that of memoryless losses."""
    table = results.derive(gains)

    def by_burst(metric: str) -> dict[str, dict[float, Interval]]:
        # Without memory, a loss is followed by another with probability L.
        return {
            rate(loss): {
                burst or 1 / (1 - loss): point
                for burst, point in curve(table.filter(loss=loss), "burst", metric).items()
            }
            for loss in LOSSES
        }

    checks, found = [], by_burst("gain")
    for loss in LOSSES:
        alone = 1 / (1 - loss)
        asked = [burst or alone for burst in results.asked("burst", loss=loss)]
        points = {place: at(found[rate(loss)], place) for place in sorted(asked)}
        checks.append(_burst_check(loss, points, points.get(alone, MISSING).value))
    figure = gain_figure(
        "The gain against the mean number of ADUs that are lost together, at constant loss rates.",
        by_burst,
        Axis("Mean burst length (ADUs)", (0, 33)),
    )
    return Finding([figure], checks, ["Ta = 10 ms.", RUNS_NOTE])


def _burst_check(loss: float, points: Curve, base: float) -> Check:
    far = [place for place, point in points.items() if abs(point.value - base) > SAME]
    listed = ", ".join(f"{number(p.value)} at {number(x)}" for x, p in points.items())
    return judged(
        f"At L = {loss:.0%} the gain does not depend on p and q.",
        f"within {SAME:g} of that of q = 1 - p at every mean burst length",
        lambda: (
            f"G by mean burst length: {listed}"
            + (f"; it breaks from {number(min(far))} on" if far else "")
        ),
        {"q = 1 - p": base, **{f"bursts of {number(x)}": p for x, p in points.items()}},
        lambda: not far,
        MEMORY,
    )


def delay_cells(scale: Scale) -> list[Cell]:
    """Each law at several processing times."""
    settings = [Setting(law=law, processing_ms=time) for law in LAWS for time in TIMES_MS[scale]]
    return cells(scale, settings, seeds=SEEDS["full"])


def judge_delays(results: Results) -> Finding:
    """Each law's curve beside that of constant and Erlang-3 delay."""
    table = results.derive(gains)
    found = {law: curve(table.filter(law=law), "processing_ms") for law in LAWS}
    times = results.asked("processing_ms")
    base = found[LAWS[0]]
    checks = [_law_check(law, found[law], base, times) for law in LAWS[1:]]
    figure = gain_figure(
        "The gain against the processing time for four laws of delay.",
        lambda metric: {law: curve(table.filter(law=law), "processing_ms", metric) for law in LAWS},
    )
    return Finding([figure], checks, [RUNS_NOTE])


def _law_check(law: str, points: Curve, base: Curve, times: Sequence[float]) -> Check:
    off = {time: at(points, time).value - at(base, time).value for time in times}
    widest = max(off, key=lambda time: abs(off[time]), default=math.nan)
    return judged(
        f"With a delay that is {law} the gain is the same.",
        f"within {SAME:g} of that of the default law at every Ta",
        lambda: (
            f"most apart: {number(points[widest].value)} against {number(base[widest].value)}"
            f" at {ms(widest)}"
        ),
        {ms(time): value for time, value in off.items()},
        lambda: abs(off[widest]) <= SAME,
        ORDER_KEPT,
    )


GILBERT = Claim(
    id="rr3216/gilbert",
    title="Bursts of losses",
    world=World.SIMULATION,
    published="The gain depends on the loss rate only, not on p and q of the loss chain.",
    expectation="G depends on L alone. The published runs have q = 1 - p; bursts are beyond them. "
    + SAME_WHY,
    cells=loss_cells,
    judge=judge_losses,
    scaling=lambda _scale: "Nothing to scale: twenty runs a point.",
)

DELAY = Claim(
    id="rr3216/delay-law",
    title="The law of the delay",
    world=World.SIMULATION,
    published="Results do not depend on the law of the delay.",
    expectation="G with constant, exponential and hyper-exponential delays within 0.05 of that with"
    f" the default law. {SAME_WHY}",
    cells=delay_cells,
    judge=judge_delays,
    scaling=lambda scale: f"{len(TIMES_MS[scale])} of {len(TIMES_MS['full'])} processing times.",
)
