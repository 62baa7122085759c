"""Figure 9: message jitter of NetVideo and its traffic generators."""

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.plots import Axis, Figure, View
from ontempo.lab.study import Results

from ..causes import DRAINING, IMPOSSIBLE_JITTER, SMOOTH
from ..grid import cells, scaling
from ..measures import FLOW_AXIS, above, below, check, jitter, published, series


def judge(results: Results) -> Finding:
    """A reserved video's jitter is bounded, and its neighbours' lower."""
    values = jitter(results)
    checks = [
        check(
            "Reserved: under 10 ms under any load.",
            "< 10 ms",
            values,
            ("A2", "B2a", "C2a"),
            lambda x: x < 10,
            " ms",
        ),
        below(
            "Overload: a reserved video's jitter is below an unreserved one's.",
            "5 beside 115 ms",
            values,
            (("C2a", "C1a"),),
            " ms",
        ),
        check(
            "The reserved video's is about 5 ms under overload.",
            "5 ms",
            values,
            ("C2a",),
            lambda x: abs(x - 5) <= 0.5,
            " ms",
            SMOOTH,
        ),
        check(
            "The unreserved video's is about 115 ms.",
            "115 ms",
            values,
            ("C1a",),
            lambda x: abs(x - 115) <= 11.5,
            " ms",
            IMPOSSIBLE_JITTER,
        ),
        above(
            "The generators' jitter is lower beside a reserved video.",
            "lower",
            values,
            (("C1b", "C2b"), ("C1c", "C2c")),
            " ms",
            DRAINING,
        ),
    ]
    figure = Figure(
        "Message jitter by flow of Table 1, NetVideo.",
        FLOW_AXIS,
        Axis("Jitter (ms)"),
        [View("", [series("jitter", "ink", values), published({"C1a": 115, "C2a": 5})])],
    )
    return Finding([figure], checks, ["Mean over messages, equation (5); within 10 % is “about”."])


CLAIM = Claim(
    id="qosockets/fig9",
    title="NetVideo: jitter",
    world=World.SIMULATION,
    published="A reserved video's jitter stays below 10 ms, 5 ms under overload beside 115 ms"
    " without a reservation; the traffic generators' is lower beside a reserved video.",
    expectation="Reserved under 10 ms (C2a 5); C1a 115 ms; generators lower beside a reserved"
    " video.",
    cells=lambda scale: cells("nv", scale),
    judge=judge,
    scaling=scaling,
)
