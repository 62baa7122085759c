"""Figure 12: the gain against the loss rate."""

from collections.abc import Iterable
from functools import partial

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import MISSING, about, at, is_above, judged, monotone, number
from ontempo.lab.plots import Axis
from ontempo.lab.statistics import Interval
from ontempo.lab.study import Cell, Results

from ..causes import CONTRADICTION, SLOWED_BY_LOSS, SMALL_STEPS
from ..curves import NOTHING, RUNS_NOTE, gain_figure, ms
from ..grid import SEEDS, Setting, cells
from ..metrics import curve, gains, highest

LOSSES = {
    "quick": (0.01, 0.05, 0.1, 0.2, 0.4, 0.6),
    "full": (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6),
}
PROCESSING_MS = (1.0, 5.0, 10.0, 20.0, 40.0)
HIGHEST_LOSS = 0.6

TEXT = "Text: the largest gain is around 90 % at 60 % loss."
CONCLUSIONS = "Conclusions: it is up to 50 % at 60 % loss."


def wanted(scale: Scale) -> list[Cell]:
    """Each loss rate at several processing times."""
    settings = [
        Setting(loss=loss, processing_ms=time) for loss in LOSSES[scale] for time in PROCESSING_MS
    ]
    return cells(scale, settings)


def percent(loss: float) -> str:
    """The label of a loss rate."""
    return f"L = {loss:.0%}"


def judge(results: Results) -> Finding:
    """The rise with the loss rate, and its end."""
    table = results.derive(gains)
    found = {time: curve(table.filter(processing_ms=time), "loss") for time in PROCESSING_MS}
    losses = results.asked("loss")
    most = {time: highest(points, losses)[1] for time, points in found.items()}
    below = _largest(most[time] for time in PROCESSING_MS if time < Setting().interval_ms)
    above = _largest(most[time] for time in PROCESSING_MS if time >= Setting().interval_ms)
    end = _largest(at(points, HIGHEST_LOSS) for points in found.values())
    checks = [
        *(
            monotone(
                f"With {ms(time)} the gain grows with the loss rate.",
                "grows",
                points,
                losses,
                rising=True,
                place=percent,
                cause=SMALL_STEPS,
                ends=NOTHING,
            )
            for time, points in found.items()
        ),
        judged(
            "The largest gain is where Ta is less than R.",
            "Ta below 10 ms",
            lambda: f"{number(below.value)} below, {number(above.value)} from there on",
            {"the largest gain below R": below, "the largest from R on": above},
            lambda: is_above(below, above),
            SLOWED_BY_LOSS,
        ),
        *(
            judged(
                sentence,
                f"about {published:g}",
                lambda: number(end.value),
                {"the largest gain at 60 % loss": end},
                partial(about, end.value, published),
                CONTRADICTION,
            )
            for sentence, published in (
                (TEXT, 0.9),
                (CONCLUSIONS, 0.5),
            )
        ),
    ]
    figure = gain_figure(
        "The gain against the loss rate for several processing times.",
        lambda metric: {
            ms(time): curve(table.filter(processing_ms=time), "loss", metric)
            for time in PROCESSING_MS
        },
        Axis("Loss rate L", (-0.02, 0.62), format=".0%"),
    )
    return Finding([figure], checks, [RUNS_NOTE])


def _largest(estimates: Iterable[Interval]) -> Interval:
    """The largest estimate; missing where one of them is."""
    found = list(estimates)
    return max(found, key=lambda one: one.value) if all(one.known for one in found) else MISSING


CLAIM = Claim(
    id="rr3216/fig12",
    title="Gain against the loss rate",
    world=World.SIMULATION,
    published="The gain grows with the loss rate, most where Ta is less than R; the text speaks of"
    " 90 % at a loss rate of 60 %, the conclusions of 50 %.",
    expectation="Grows with L for each Ta; largest for Ta < R; about 0.9, or 0.5, at 60 %: they"
    " exclude each other, so that one check must fail. “Around” is read as within a tenth.",
    exclusive=(TEXT, CONCLUSIONS),
    cells=wanted,
    judge=judge,
    scaling=lambda scale: (
        f"{len(SEEDS[scale])} of {len(SEEDS['full'])} runs a point;"
        f" {len(LOSSES[scale])} of {len(LOSSES['full'])} loss rates."
    ),
)
