"""Figure 12: message jitter of image transfers and their traffic generators."""

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.plots import Axis, Figure, View
from ontempo.lab.study import Results

from ..grid import cells, scaling
from ..measures import FLOW_AXIS, above, below, jitter, series

HEADLINE = "Under overload, less with a reservation than without."


def judge(results: Results) -> Finding:
    """A reservation lowers it; large images have more of it than small messages."""
    values = jitter(results)
    checks = [
        below(
            HEADLINE,
            "less",
            values,
            (("C2a", "C1a"),),
            " ms",
        ),
        below(
            "It rises with the load, reserved or not.",
            "rises from A over B to C",
            values,
            (("A1", "B1a"), ("B1a", "C1a"), ("A2", "B2a"), ("B2a", "C2a")),
            " ms",
        ),
        above(
            "Alone, images have more of it than small messages.",
            "far more",
            values,
            (("A1", "A3"), ("A2", "A3")),
            " ms",
        ),
    ]
    figure = Figure(
        "Message jitter by flow of Table 1, DIRM.",
        FLOW_AXIS,
        Axis("Jitter (ms)"),
        [View("", [series("jitter", "ink", values)])],
    )
    return Finding([figure], checks, ["Mean over messages, equation (5)."])


CLAIM = Claim(
    id="qosockets/fig12",
    title="DIRM: jitter",
    world=World.SIMULATION,
    published="Jitter rises with the load and is larger for images than for small messages."
    " Under overload it is lower with a reservation than without.",
    expectation="C2a below C1a.",
    headline=HEADLINE,
    cells=lambda scale: cells("dirm", scale),
    judge=judge,
    scaling=scaling,
)
