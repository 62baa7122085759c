"""Figure 8: message delay of NetVideo and its traffic generators."""

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.plots import Axis, Figure, View
from ontempo.lab.study import Results

from ..causes import NO_QUEUE
from ..grid import cells, scaling
from ..measures import FLOW_AXIS, Values, above, check, compare, delay, published, series

HEADLINE = "Reserved: under 30 ms under any load."

TIMES = (10, 30)
"""How many times as high the delays of unreserved flows are published to be."""

RESERVED_MS = 25
"""The published delay of C2a. A reserved video that waits less than that is no difference, so that
the upper bound is asked in milliseconds."""


def largest(values: Values, flows: tuple[str, ...]) -> Values:
    """The largest of some flows' values, under the names of all; nothing where one is missing."""
    if not all(flow in values and values[flow].known for flow in flows):
        return {}
    found = max((values[flow] for flow in flows), key=lambda interval: interval.value)
    return {" or ".join(flows): found}


def judge(results: Results) -> Finding:
    """A reserved video's delay stays low; the others' rises tenfold."""
    late = delay(results)
    others = ("C1a", "C1b", "C1c", "C2b", "C2c")
    checks = [
        check(
            HEADLINE,
            "< 30 ms",
            late,
            ("A2", "B2a", "C2a"),
            lambda x: x < 30,
            " ms",
        ),
        compare(
            "Overload: the others' delays are at least 10 times as high.",
            "10 to 30 times",
            late,
            tuple((flow, "C2a") for flow in others),
            lambda other, reserved: other >= TIMES[0] * reserved,
            " ms",
            NO_QUEUE,
        ),
        check(
            "The unreserved video's is 250 to 750 ms, 10 to 30 times the reserved one's published"
            " 25 ms.",
            "250 to 750 ms",
            late,
            ("C1a",),
            lambda x: TIMES[0] * RESERVED_MS <= x <= TIMES[1] * RESERVED_MS,
            " ms",
            NO_QUEUE,
        ),
        check(
            "The generators beside it: around 600 ms.",
            "600 ms",
            late,
            ("C1b", "C1c"),
            lambda x: abs(x - 600) <= 60,
            " ms",
            NO_QUEUE,
        ),
        check(
            "The generators beside a reserved video: up to 720 ms.",
            "720 ms",
            largest(late, ("C2b", "C2c")),
            ("C2b or C2c",),
            lambda x: abs(x - 720) <= 72,
            " ms",
            NO_QUEUE,
        ),
        above(
            "They wait longer beside a reserved video than beside an unreserved one.",
            "720 beside 600 ms",
            late,
            (("C2b", "C1b"), ("C2c", "C1c")),
            " ms",
            NO_QUEUE,
        ),
    ]
    figure = Figure(
        "Message delay by flow of Table 1, NetVideo.",
        FLOW_AXIS,
        Axis("Delay (ms)"),
        [
            View(
                "",
                [
                    series("delay", "ink", late),
                    published({"C1b": 600, "C1c": 600, "C2a": 25, "C2b": 720}),
                ],
            )
        ],
    )
    return Finding([figure], checks, ["Mean over messages, equation (4); within 10 % is “around”."])


CLAIM = Claim(
    id="qosockets/fig8",
    title="NetVideo: delay",
    world=World.SIMULATION,
    published="A reserved video's delay stays below 30 ms. Under overload those of other flows are"
    " 10 to 30 times as high: 600 ms of generators, up to 720 ms beside a reserved video.",
    expectation="Reserved under 30 ms; C1a 250 to 750 ms, C1b and C1c around 600; C2b and C2c up to"
    " 720 ms.",
    headline=HEADLINE,
    cells=lambda scale: cells("nv", scale),
    judge=judge,
    scaling=scaling,
)
