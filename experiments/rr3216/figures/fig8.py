"""Figure 8: the gain for several windows."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import is_above, judged, monotone, number
from ontempo.lab.plots import exact
from ontempo.lab.study import Cell, Results

from ..curves import MAXIMAL_WHY, RUNS_NOTE, gain_figure, scaling, swept_cells
from ..grid import Setting
from ..metrics import gain_curve, highest, wide

WINDOWS = (8, 16, 32, 64)


def wanted(scale: Scale) -> list[Cell]:
    """Each window at every processing time."""
    return swept_cells(scale, [Setting(window=window) for window in WINDOWS])


def window(size: float) -> str:
    """The label of a window."""
    return f"W = {size:g}"


def judge(results: Results) -> Finding:
    """How the maximum and its width depend on the window."""
    found = {size: gain_curve(results, window=size) for size in WINDOWS}
    places = {size: results.asked("processing_ms", window=size) for size in WINDOWS}
    most = {float(size): highest(found[size], places[size])[1] for size in WINDOWS}
    checks = [
        monotone(
            "The largest gain grows with the window.",
            "grows",
            most,
            WINDOWS,
            rising=True,
            place=window,
        ),
        monotone(
            "The range of Ta with a gain within 90 % of the largest shrinks as the window grows.",
            "shrinks",
            {
                float(size): exact(wide(points))
                for size, points in found.items()
                if most[float(size)].known
            },
            WINDOWS,
            rising=False,
            strictly=False,
            place=window,
        ),
        judged(
            "The largest gain with a window of 32 is above that with 16.",
            "above",
            lambda: f"{number(most[32.0].value)} against {number(most[16.0].value)}",
            {"W = 32": most[32.0], "W = 16": most[16.0]},
            lambda: is_above(most[32.0], most[16.0]),
        ),
    ]
    figure = gain_figure(
        "The gain against the processing time for windows of 8, 16, 32 and 64 ADUs.",
        lambda metric: {window(size): gain_curve(results, metric, window=size) for size in WINDOWS},
    )
    return Finding([figure], checks, [RUNS_NOTE])


CLAIM = Claim(
    id="rr3216/fig8",
    title="Gain for several windows",
    world=World.SIMULATION,
    published="A larger window raises the largest gain and narrows the range of Ta where it is"
    " reached; 16 ADUs are too few for it.",
    expectation="The maximum grows and its range shrinks over W = 8, 16, 32, 64; the maximum of"
    " W = 16 lies below that of W = 32. " + MAXIMAL_WHY,
    cells=wanted,
    judge=judge,
    scaling=scaling,
)
