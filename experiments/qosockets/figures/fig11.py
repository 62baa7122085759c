"""Figure 11: message delay of image transfers and their traffic generators."""

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.plots import Axis, Figure, View
from ontempo.lab.study import Results

from ..causes import SMALL_SOCKETS
from ..grid import cells, scaling
from ..measures import FLOW_AXIS, above, below, compare, delay, series

SIMILAR = 0.25
"""Delays that differ by no more than this fraction are similar."""

HEADLINE = "Under overload, less with a reservation than without."


def judge(results: Results) -> Finding:
    """A reservation lowers it; large images have more of it than small messages."""
    values = delay(results)
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
        compare(
            "Traffic generators wait as long beside reserved images as beside unreserved ones.",
            "similar",
            values,
            (("B1b", "B2b"), ("C1b", "C2b"), ("C1c", "C2c")),
            lambda without, with_it: abs(with_it / without - 1) <= SIMILAR,
            " ms",
            SMALL_SOCKETS,
        ),
        below(
            "Under overload reserved images take less time than a generator's message.",
            "less",
            values,
            (("C2a", "C2b"), ("C2a", "C2c")),
            " ms",
            SMALL_SOCKETS,
        ),
    ]
    figure = Figure(
        "Message delay by flow of Table 1, DIRM.",
        FLOW_AXIS,
        Axis("Delay (ms)"),
        [View("", [series("delay", "ink", values)])],
    )
    return Finding(
        [figure], checks, ["Mean over messages, equation (4). Within 25 % is “similar”."]
    )


CLAIM = Claim(
    id="qosockets/fig11",
    title="DIRM: delay",
    world=World.SIMULATION,
    published="Delays rise with the load. Under overload reserved images take less time than"
    " unreserved ones; traffic generators wait as long beside either.",
    expectation="C2a below C1a; generators alike in tests 1 and 2.",
    headline=HEADLINE,
    cells=lambda scale: cells("dirm", scale),
    judge=judge,
    scaling=scaling,
)
