"""Axes, figures and checks that several of the claims share."""

from collections.abc import Callable, Mapping, Sequence

from ontempo.lab.claims import Check, Scale
from ontempo.lab.judging import Curve, judged, never_below_zero, number, within_everywhere
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.study import Cell

from .grid import PROCESSING_MS, SEEDS, Setting, cells
from .metrics import highest

COLOURS = ("step-0", "step-1", "step-2", "step-3", "step-4", "ink")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "circle-open")

ORDER_NAMES = {"in-order": "in order", "out-of-order": "out of sequence"}
ORDER_COLOURS = {"in-order": "step-0", "out-of-order": "step-4"}

PROCESSING_AXIS = Axis("Processing time Ta (ms)", (-2, 102), hover="Ta %{x} ms")
GAIN_AXIS = Axis("Gain G in total time", (-0.05, 1.0))

USELESS_BELOW = 0.05
"""A gain below which out-of-sequence processing is called useless."""

USELESS_WHY = (
    "“Useless”, “equivalent”, “very little impact” are read as G below 0.05: our bound, half of the"
    " tenth in which the paper gives its gains."
)

MAXIMAL = 0.9
"""Within this share of the largest a gain counts as maximal."""

MAXIMAL_WHY = (
    "“Maximal” is read as within a tenth of the largest: our bound, as the paper gives gains in"
    " tenths."
)

SAME = 0.05
"""Gains within so much of each other count as equal."""

SAME_WHY = (
    "“The same” is read as within 0.05: our bound, half of the tenth in which the paper gives its"
    " gains."
)

NOTHING = (0.0,)
"""The end of what G can be: section 4.1 finds it never negative."""

USELESS_FROM_MS = 40.0
"""The processing time from which on, with the defaults, the paper calls it so."""

RUNS_NOTE = (
    "Checks are of the mean total time over all ADUs, as section 3.3 defines G; the total time of"
    " the whole run, which the paper uses at figure 13, is the plot's other choice. Points are"
    " means over runs with different seeds; bands are 95 % t-intervals."
)

GAINS = {"gain": "of an ADU, mean", "makespan_gain": "of the whole run"}
"""The two total times that the paper's G may be of: the one it defines, and figure 13's."""


def ms(processing: float) -> str:
    """The label of a processing time."""
    return f"Ta = {processing:g} ms"


def sweep(scale: Scale, settings: Sequence[Setting]) -> list[Setting]:
    """Each setting at every processing time."""
    return [
        Setting(**{**vars(setting), "processing_ms": processing})
        for setting in settings
        for processing in PROCESSING_MS[scale]
    ]


def swept_cells(scale: Scale, settings: Sequence[Setting]) -> list[Cell]:
    """The runs of settings at every processing time."""
    return cells(scale, sweep(scale, settings))


def lines(curves: Mapping[str, Curve]) -> list[Series]:
    """One line a curve."""
    return [
        Series(name, COLOURS[place % 6], points, symbol=SYMBOLS[place % 6])
        for place, (name, points) in enumerate(curves.items())
    ]


def lines_figure(
    alt: str, curves: Mapping[str, Curve], x: Axis = PROCESSING_AXIS, y: Axis = GAIN_AXIS
) -> Figure:
    """One line a curve."""
    return Figure(alt, x, y, [View("", lines(curves))])


def gain_figure(
    alt: str, curves: Callable[[str], Mapping[str, Curve]], x: Axis = PROCESSING_AXIS
) -> Figure:
    """One line a curve, for either total time; `curves` makes them from the gain's column."""
    views = [View(label, lines(curves(metric))) for metric, label in GAINS.items()]
    return Figure(alt, x, GAIN_AXIS, views, selector="Total time")


def never_negative(points: Curve, places: Sequence[float], cause: str = "") -> Check:
    """Out of sequence is never the worse, by the mean of G over pairs of runs."""
    return never_below_zero(
        "Out of sequence is never worse than in order.",
        "G is at least 0",
        points,
        places,
        ms,
        cause,
    )


def useless_for_large(points: Curve, places: Sequence[float], cause: str = "") -> Check:
    """No gain for large processing times."""
    return within_everywhere(
        f"It is useless where processing takes {USELESS_FROM_MS:g} ms or more.",
        f"G is below {USELESS_BELOW:g} there",
        points,
        lambda gain: gain < USELESS_BELOW,
        [place for place in places if place >= USELESS_FROM_MS],
        ms,
        cause,
    )


def maximum_between(
    points: Curve, places: Sequence[float], low: float, high: float, cause: str = ""
) -> Check:
    """The largest gain lies in a range: “around” is a tenth to either side."""
    place, most = highest(points, places)
    return judged(
        "The largest gain is around 30 %.",
        f"{low:g} to {high:g}",
        lambda: f"{number(most.value)} at {ms(place)}",
        {"the largest gain": most},
        lambda: low <= most.value <= high,
        cause,
    )


def scaling(scale: Scale) -> str:
    """A description of how much of the published grid is run."""
    return (
        f"{len(SEEDS[scale])} of {len(SEEDS['full'])} runs a point;"
        f" {len(PROCESSING_MS[scale])} of {len(PROCESSING_MS['full'])} processing times."
    )
