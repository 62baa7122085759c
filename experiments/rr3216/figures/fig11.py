"""Figure 11: the model's gain against rtt/Ta."""

from ontempo.lab.claims import Check, Claim, Finding, World, no_cells
from ontempo.lab.judging import number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.study import Results

from ..causes import MODEL_HAS_R
from ..curves import COLOURS
from ..model import blocking_gain

BURSTS = (2, 5, 10, 20, 50)
RATIOS = [step / 2 for step in range(1, 121)]
SPREAD = 1e-9
"""Tolerance of independence: rounding."""
DIGITS = 9
"""Decimals of what is compared between machines: rounding is beyond them."""

HALF = 0.5
PUBLISHED_RATIO = 20.0
INTERVALS = (0.0, 0.25, 0.5, 1.0)
"""R as shares of Ta: 0 is none, 1 the operating point."""


def gain(ratio: float, burst: float, share: float, processing_ms: float = 10.0) -> float:
    """Gb by rtt/Ta, n and R/Ta."""
    return float(blocking_gain(processing_ms, burst, ratio * processing_ms, share * processing_ms))


def crossing(burst: float, share: float) -> float:
    """The ratio rtt/Ta at which Gb passes one half, to a hundredth; 0 where it always has."""
    return next(step / 100 for step in range(1, 100_000) if gain(step / 100, burst, share) > HALF)


def judge(_results: Results) -> Finding:
    """Independence of R and Ta, and where the gain becomes significant."""
    scaled = max(
        abs(gain(ratio, burst, share, 10.0) - gain(ratio, burst, share, 77.0))
        for ratio in RATIOS
        for burst in BURSTS
        for share in INTERVALS
    )
    off = max(
        abs(gain(ratio, burst, 0.0) - gain(ratio, burst, share))
        for ratio in RATIOS
        for burst in BURSTS
        for share in INTERVALS
    )
    crossings = {share: crossing(10, share) for share in INTERVALS[:-1]}
    checks = [
        Check(
            "At a given rtt/Ta, Gb does not depend on Ta, R/Ta being the same.",
            "independent",
            f"differs by at most {number(scaled)}",
            scaled <= SPREAD,
            values=(round(scaled, DIGITS),),
        ),
        Check(
            "At a given rtt/Ta, Gb does not depend on R.",
            "independent",
            f"differs by up to {number(off)}",
            off <= SPREAD,
            MODEL_HAS_R,
            (round(off, DIGITS),),
        ),
        Check(
            "For n = 10, Gb exceeds one half only beyond rtt/Ta of about 20.",
            f"from {PUBLISHED_RATIO:g} on",
            "; ".join(
                f"from {value:g} on with R = {share:g} Ta" for share, value in crossings.items()
            ),
            all(
                abs(value - PUBLISHED_RATIO) <= 0.1 * PUBLISHED_RATIO
                for value in crossings.values()
            ),
            MODEL_HAS_R,
            tuple(crossings.values()),
        ),
    ]
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
    figure = Figure(
        "The model's gain in blocking time against the ratio of round trip and processing time.",
        Axis("rtt/Ta", (0, 60)),
        Axis("Gain Gb in blocking time", (-0.05, 1.05)),
        views,
        selector="R",
    )
    return Finding([figure], checks)


CLAIM = Claim(
    id="rr3216/fig11",
    title="The model's gain against rtt/Ta",
    world=World.ANALYSIS,
    published="Where Ta is at least R, Gb depends on rtt/Ta and n alone, and is significant only"
    " for a ratio above about 20.",
    expectation="Independent of R and Ta at a fixed ratio; above 0.5 only beyond about 20 for"
    " n = 10.",
    cells=no_cells,
    judge=judge,
    scaling=lambda _scale: "Nothing to scale: computed.",
)
