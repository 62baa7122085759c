"""Figure 12: the gain against the loss rate."""

from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.judging import about, monotone, number
from ontempo.lab.plots import Axis
from ontempo.lab.study import Cell, Results

from ..causes import CONTRADICTION, SLOWED_BY_LOSS, SMALL_STEPS
from ..curves import RUNS_NOTE, gain_figure, ms
from ..grid import SEEDS, Setting, cells
from ..metrics import curve, gains, highest

LOSSES = {
    "quick": (0.01, 0.05, 0.1, 0.2, 0.4, 0.6),
    "full": (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6),
}
PROCESSING_MS = (1.0, 5.0, 10.0, 20.0, 40.0)
HIGHEST_LOSS = 0.6


def wanted(scale: Scale) -> list[Cell]:
    """Each loss rate at several processing times."""
    settings = [
        Setting(loss=loss, processing_ms=time) for loss in LOSSES[scale] for time in PROCESSING_MS
    ]
    return cells(scale, settings)


def percent(loss: float) -> str:
    """A loss rate in words."""
    return f"L = {loss:.0%}"


def judge(results: Results) -> Finding:
    """The rise with the loss rate, and its end."""
    table = results.derive(gains)
    found = {time: curve(table.filter(processing_ms=time), "loss") for time in PROCESSING_MS}
    most = {time: highest(points)[1].value for time, points in found.items()}
    below = max(most[time] for time in PROCESSING_MS if time < Setting().interval_ms)
    above = max(most[time] for time in PROCESSING_MS if time >= Setting().interval_ms)
    end = max(points[HIGHEST_LOSS].value for points in found.values())
    checks = [
        *(
            monotone(
                f"With {ms(time)} the gain grows with the loss rate.",
                "grows",
                points,
                rising=True,
                place=percent,
                cause=SMALL_STEPS,
            )
            for time, points in found.items()
        ),
        Check(
            "The largest gain is where Ta is less than R.",
            "Ta below 10 ms",
            f"{number(below)} below, {number(above)} from there on",
            below > above,
            SLOWED_BY_LOSS,
        ),
        Check(
            "Text: the largest gain is around 90 % at 60 % loss.",
            "about 0.9",
            number(end),
            about(end, 0.9),
            CONTRADICTION,
        ),
        Check(
            "Conclusions: it is up to 50 % at 60 % loss.",
            "about 0.5",
            number(end),
            about(end, 0.5),
            CONTRADICTION,
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


CLAIM = Claim(
    id="rr3216/fig12",
    title="Gain against the loss rate",
    world=World.SIMULATION,
    published="The gain grows with the loss rate, most where Ta is less than R; the text speaks of"
    " 90 % at a loss rate of 60 %, the conclusions of 50 %.",
    expectation="Grows with L for each Ta; largest for Ta < R; about 0.9, or 0.5, at 60 %: they"
    " exclude each other, so that one check must fail.",
    cells=wanted,
    judge=judge,
    scaling=lambda scale: (
        f"{len(SEEDS[scale])} of {len(SEEDS['full'])} runs a point;"
        f" {len(LOSSES[scale])} of {len(LOSSES['full'])} loss rates."
    ),
)
