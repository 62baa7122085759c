"""Figure 8: message delay of NetVideo and its traffic generators."""

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.plots import Axis, Figure, View
from ontempo.lab.study import Results

from ..causes import QUEUE, RATIO
from ..grid import cells, scaling
from ..measures import FLOW_AXIS, Values, above, check, compare, delay, published, series


def largest(values: Values, flows: tuple[str, ...]) -> Values:
    """The largest of some flows' values, under the names of all; nothing where one is missing."""
    if not all(flow in values and values[flow].known for flow in flows):
        return {}
    found = max((values[flow] for flow in flows), key=lambda interval: interval.value)
    return {" or ".join(flows): found}


def judge(results: Results) -> Finding:
    """A reserved video's delay stays low; the others' rises tenfold."""
    late = delay(results)
    checks = [
        check(
            "Reserved: under 30 ms under any load.",
            "< 30 ms",
            late,
            ("A2", "B2a", "C2a"),
            lambda x: x < 30,
            " ms",
        ),
        compare(
            "Overload: the others' delays are 10 to 30 times as high.",
            "10 to 30 times",
            late,
            tuple((flow, "C2a") for flow in ("C1a", "C1b", "C1c", "C2b", "C2c")),
            lambda other, reserved: 10 <= other / reserved <= 30,
            " ms",
            QUEUE + RATIO,
        ),
        check(
            "Unreserved: around 600 ms.",
            "600 ms",
            late,
            ("C1a", "C1b", "C1c"),
            lambda x: abs(x - 600) <= 60,
            " ms",
            QUEUE,
        ),
        check(
            "The generators beside a reserved video: up to 720 ms.",
            "720 ms",
            largest(late, ("C2b", "C2c")),
            ("C2b or C2c",),
            lambda x: abs(x - 720) <= 72,
            " ms",
            QUEUE,
        ),
        above(
            "They wait longer beside a reserved video than beside an unreserved one.",
            "720 beside 600 ms",
            late,
            (("C2b", "C1b"), ("C2c", "C1c")),
            " ms",
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
    " 10 to 30 times as high: about 600 ms, up to 720 ms beside a reserved video.",
    expectation="Reserved under 30 ms; C1 around 600 ms; C2b and C2c up to 720 ms.",
    cells=lambda scale: cells("nv", scale),
    judge=judge,
    scaling=scaling,
)
