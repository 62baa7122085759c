"""Figure 11: the model's gain against rtt/Ta."""

from collections.abc import Callable

from ontempo.lab.claims import Check, Claim, Finding, World, no_cells
from ontempo.lab.judging import number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.study import Results

from ..causes import MODEL_HAS_R
from ..curves import COLOURS
from ..model import blocking_gain

BURSTS = (2, 5, 10, 20, 50)
RATIOS = [step / 2 for step in range(1, 121)]
PROCESSING_MS = (10.0, 20.0, 50.0, 77.0, 100.0)
"""Processing times of R and more, to which the paper limits the figure."""
INTERVAL_MS = 10.0
"""R of section 4.2, by the captions."""
SPREAD = 1e-9
"""Tolerance of independence: rounding."""
DIGITS = 9
"""Decimals of what is compared between machines: rounding is beyond them."""

INTERVALS = (0.0, 0.25, 0.5, 1.0)
"""R as shares of Ta: 0 is none, 1 the operating point."""

SIGNIFICANT = 20.0


def gain(ratio: float, burst: float, share: float, processing_ms: float = 10.0) -> float:
    """Gb by rtt/Ta, n and R/Ta."""
    return float(blocking_gain(processing_ms, burst, ratio * processing_ms, share * processing_ms))


def judge_with(interval_ms: float) -> Callable[[Results], Finding]:
    """The judgement where section 4.2 has this R."""

    def judge(_results: Results) -> Finding:
        """Independence of Ta and of R."""
        return Finding([figure()], _checks(interval_ms), [NOTE])

    return judge


def _checks(interval_ms: float) -> list[Check]:
    places = [(ratio, burst) for ratio in RATIOS for burst in BURSTS]

    def spread(values: Callable[[float, float], list[float]]) -> float:
        return max(max(found) - min(found) for found in (values(*place) for place in places))

    scaled = spread(
        lambda ratio, burst: [
            gain(ratio, burst, interval_ms / time, time) for time in PROCESSING_MS
        ]
    )
    off = spread(lambda ratio, burst: [gain(ratio, burst, share) for share in INTERVALS])
    return [
        Check(
            "At a given rtt/Ta, Gb is the same for every Ta from R on.",
            "independent",
            f"differs by up to {number(scaled)} with R = {interval_ms:g} ms",
            scaled <= SPREAD,
            MODEL_HAS_R,
            (round(scaled, DIGITS),),
        ),
        Check(
            "At a given rtt/Ta, Gb is the same whatever R is.",
            "independent",
            f"differs by up to {number(off)}",
            off <= SPREAD,
            MODEL_HAS_R,
            (round(off, DIGITS),),
        ),
    ]


NOTE = (
    "The paper calls the gain significant only where rtt/Ta is above about 20, and does not say"
    " from which gain on: this is not judged. With n = 10 and R = 0 the gain at 20 is"
    f" {number(gain(SIGNIFICANT, 10, 0.0))}."
)


def figure() -> Figure:
    """Gb against rtt/Ta, for several R."""
    views = [
        View(
            f"{share:g} Ta",
            [
                Series(
                    f"n = {burst}",
                    COLOURS[place],
                    {ratio: exact(gain(ratio, burst, share)) for ratio in RATIOS},
                    markers=False,
                )
                for place, burst in enumerate(BURSTS)
            ],
        )
        for share in INTERVALS[:-1]
    ]
    return Figure(
        "The model's gain in blocking time against the ratio of round trip and processing time.",
        Axis("rtt/Ta", (0, 60)),
        Axis("Gain Gb in blocking time", (-0.05, 1.05)),
        views,
        selector="R",
    )


CLAIM = Claim(
    id="rr3216/fig11",
    title="The model's gain against rtt/Ta",
    world=World.ANALYSIS,
    published="Where Ta is at least R, Gb depends on rtt/Ta and n alone, whatever R and Ta are, and"
    " is significant only for a ratio above about 20.",
    expectation="Independent of Ta, and of R, at a fixed ratio.",
    cells=no_cells,
    judge=judge_with(INTERVAL_MS),
    scaling=lambda _scale: "Nothing to scale: computed.",
)
