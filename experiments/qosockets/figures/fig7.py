"""Figure 7: message loss of NetVideo and its traffic generators."""

from collections.abc import Callable

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.plots import Axis, Figure, View
from ontempo.lab.study import Results

from ..causes import FAIR, IDLE, LOSS_ALONE
from ..grid import cells, scaling
from ..measures import FLOW_AXIS, above, check, loss, published, series

NONE = 0.05
"""Loss in per cent that counts as none: packets still in the network at the end of a run."""


HEADLINE = "Reserved: no loss."


def within(published: float) -> Callable[[float], bool]:
    """Whether a loss is the published one, give or take five points."""
    return lambda measured: abs(measured - published) <= 5


def judge(results: Results) -> Finding:
    """Nothing of a reserved flow is lost; under overload the others lose."""
    lost = loss(results)

    def near(published: float) -> tuple[str, float]:
        return f"{published:g} %", published

    checks = [
        check(HEADLINE, "0", lost, ("A2", "B2a", "C2a"), lambda x: abs(x) < NONE, " %"),
        check(
            "Normal and heavy load: no loss.",
            "0",
            lost,
            ("A3", "B1a", "B1b", "B2b"),
            lambda x: abs(x) < NONE,
            " %",
        ),
        check(
            "The unreserved video alone loses something.",
            "some, no number",
            lost,
            ("A1",),
            lambda x: x > NONE,
            " %",
            LOSS_ALONE,
        ),
    ]
    for sentence, flows, (text, value), cause in (
        ("Overload: the unreserved video loses 47 %.", ("C1a",), near(47), IDLE + FAIR),
        ("The generators beside it lose 25 %.", ("C1b", "C1c"), near(25), IDLE),
        ("The generators beside a reserved video lose 40 %.", ("C2b", "C2c"), near(40), IDLE),
    ):
        checks.append(check(sentence, text, lost, flows, within(value), " %", cause))
    checks.append(
        above(
            "They lose more beside a reserved video than beside an unreserved one.",
            "40 beside 25 %",
            lost,
            (("C2b", "C1b"), ("C2c", "C1c")),
            " %",
            IDLE,
        )
    )
    figure = Figure(
        "Message loss by flow of Table 1, NetVideo.",
        FLOW_AXIS,
        Axis("Loss (%)"),
        [
            View(
                "",
                [
                    series("loss", "ink", lost),
                    published({"C1a": 47, "C1b": 25, "C1c": 25, "C2a": 0, "C2b": 40, "C2c": 40}),
                ],
            )
        ],
    )
    notes = [
        "Equation (3) over the messages of all samples of a run. Within 5 points counts as the"
        " published loss."
    ]
    return Finding([figure], checks, notes)


CLAIM = Claim(
    id="qosockets/fig7",
    title="NetVideo: loss",
    world=World.SIMULATION,
    published="A reserved video loses nothing. Under overload an unreserved one loses 47 %, and the"
    " traffic generators 25 % beside it, 40 % beside a reserved one.",
    expectation="Reserved 0; C1a 47 %, C1b and C1c 25 %, C2b and C2c 40 %.",
    headline=HEADLINE,
    cells=lambda scale: cells("nv", scale),
    judge=judge,
    scaling=scaling,
)
