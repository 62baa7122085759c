"""Figure 10: throughput of image transfers and their traffic generators."""

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.plots import Axis, Figure, View
from ontempo.lab.study import Results

from ..causes import ENOUGH_LEFT, LITTLE_LOAD, WEIGHT
from ..grid import cells, scaling
from ..measures import FLOW_AXIS, above, compare, received, sent, series

GAIN = (1.15, 1.25)
"""What counts as 20 % above."""


def judge(results: Results) -> Finding:
    """A reservation helps where the load is heavy, and all get less as it rises."""
    out, there = sent(results), received(results)
    checks = [
        compare(
            "Alone, a reservation makes no difference.",
            "no obvious difference",
            there,
            (("A2", "A1"),),
            lambda with_it, without: abs(with_it / without - 1) < 0.05,
            " kbit/s",
        ),
        compare(
            "Under heavy load, reserved images get 20 % more.",
            "20 % more",
            there,
            (("B2a", "B1a"),),
            lambda with_it, without: GAIN[0] <= with_it / without <= GAIN[1],
            " kbit/s",
            ENOUGH_LEFT,
        ),
        compare(
            "Under overload, reserved images get 20 % more.",
            "20 % more",
            there,
            (("C2a", "C1a"),),
            lambda with_it, without: GAIN[0] <= with_it / without <= GAIN[1],
            " kbit/s",
            WEIGHT,
        ),
        above(
            "With rising load images get less, reserved or not.",
            "falls from A over B to C",
            there,
            (("A1", "B1a"), ("B1a", "C1a"), ("A2", "B2a"), ("B2a", "C2a")),
            " kbit/s",
        ),
        above(
            "So do traffic generators.",
            "falls from A over B to C",
            there,
            (("A3", "B1b"), ("B1b", "C1b"), ("B2b", "C2b")),
            " kbit/s",
            LITTLE_LOAD,
        ),
    ]
    figure = Figure(
        "Sending and receiving rates by flow of Table 1, DIRM.",
        FLOW_AXIS,
        Axis("Throughput (kbit/s)", (0, 600)),
        [View("", [series("sent", "step-2", out), series("received", "ink", there, "square")])],
    )
    notes = [
        "Mean of samples of 0.5 s, payload; equation (2). “20 % more” is 15 to 25 %; “no"
        " difference” is under 5 %. A1 has the rate of the traffic profile by construction: the"
        " client's pause between images was set for it."
    ]
    return Finding([figure], checks, notes)


CLAIM = Claim(
    id="qosockets/fig10",
    headline="Under heavy load, reserved images get 20 % more.",
    title="DIRM: throughput",
    world=World.SIMULATION,
    published="Reserved images get 20 % more than unreserved ones under heavy load and overload,"
    " and no more when alone; all flows get less as the load rises.",
    expectation="Reserved 20 % above unreserved in B and C.",
    cells=lambda scale: cells("dirm", scale),
    judge=judge,
    scaling=scaling,
)
