"""Figure 6: sending and receiving rates of NetVideo and its traffic generators."""

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.plots import Axis, Figure, View, exact
from ontempo.lab.study import Results

from ..causes import CAPACITY, FAIR, SENT_RATE
from ..grid import cells, scaling
from ..measures import FLOW_AXIS, above, check, compare, published, received, sent, series

MATCH = 0.01
"""Sending and receiving rates that match differ by less than this fraction."""


def judge(results: Results) -> Finding:
    """Reserved flows receive what is sent; the unreserved one gives way."""
    out, there = sent(results), received(results)
    reserved = ("A2", "B2a", "C2a")
    ratio = {
        flow: exact(value.value / out[flow].value)
        for flow, value in there.items()
        if value.known and flow in out and out[flow].value
    }
    checks = [
        check(
            "Reserved: what is sent is received (received over sent).",
            "match",
            ratio,
            reserved,
            lambda share: abs(share - 1) < MATCH,
        ),
        check(
            "Reserved: about 530 kbit/s in A2 and B2a, received.",
            "530 kbit/s",
            there,
            ("A2", "B2a"),
            lambda rate: abs(rate - 530) <= 10,
            " kbit/s",
            SENT_RATE,
        ),
        check(
            "Reserved: about 520 kbit/s in C2a, received.",
            "520 kbit/s",
            there,
            ("C2a",),
            lambda rate: abs(rate - 520) <= 10,
            " kbit/s",
            SENT_RATE,
        ),
        compare(
            "Under overload a reservation doubles what the video receives.",
            "520 beside 250 kbit/s",
            there,
            (("C2a", "C1a"),),
            lambda with_it, without: with_it >= 1.9 * without,
            " kbit/s",
            CAPACITY + FAIR,
        ),
        check(
            "Unreserved: about 570 kbit/s in A1, received.",
            "570 kbit/s",
            there,
            ("A1",),
            lambda rate: abs(rate - 570) <= 10,
            " kbit/s",
            SENT_RATE,
        ),
        check(
            "Unreserved: about 250 kbit/s in C1a, received.",
            "250 kbit/s",
            there,
            ("C1a",),
            lambda rate: abs(rate - 250) <= 10,
            " kbit/s",
            CAPACITY + FAIR,
        ),
        above(
            "Unreserved, the video receives less under overload.",
            "570 in A1 to 250 in C1a",
            there,
            (("A1", "C1a"), ("B1a", "C1a")),
            " kbit/s",
        ),
        above(
            "Beside a reserved video, traffic generators receive less than beside an unreserved"
            " one.",
            "200 below what is sent, beside 120",
            there,
            (("C1b", "C2b"), ("C1c", "C2c")),
            " kbit/s",
        ),
    ]
    figure = Figure(
        "Sending and receiving rates by flow of Table 1, NetVideo.",
        FLOW_AXIS,
        Axis("Throughput (kbit/s)", (0, 700)),
        [
            View(
                "",
                [
                    series("sent", "step-2", out),
                    series("received", "ink", there, "square"),
                    published(
                        {"A1": 570, "A2": 530, "B2a": 530, "C1a": 250, "C2a": 520},
                        "received, published",
                    ),
                ],
            )
        ],
    )
    notes = [
        "Mean of samples of 0.5 s, payload; equation (2). Rates match within 1 %;"
        " “about” is within 10 kbit/s."
    ]
    return Finding([figure], checks, notes)


CLAIM = Claim(
    id="qosockets/fig6",
    title="NetVideo: throughput",
    world=World.SIMULATION,
    published="A reserved video receives what it sends, 520 to 530 kbit/s, under any load; an"
    " unreserved one falls from 570 to 250 kbit/s.",
    expectation="Reserved: sent and received match, about 530 in A2 and B2a and 520 in C2a;"
    " unreserved: falls from 570 (A1) to 250 (C1a).",
    cells=lambda scale: cells("nv", scale),
    judge=judge,
    scaling=scaling,
)
