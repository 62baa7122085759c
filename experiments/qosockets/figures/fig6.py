"""Figure 6: sending and receiving rates of NetVideo and its traffic generators."""

from collections.abc import Callable

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.plots import Axis, Figure, View
from ontempo.lab.study import Results

from ..causes import FAIR, IDLE
from ..grid import GENERATORS_SENT, VIDEO_SENT, cells, scaling
from ..measures import FLOW_AXIS, above, check, compare, published, received, sent, series
from ..measures import share as received_of_sent

MATCH = 0.01
"""Sending and receiving rates that match differ by less than this fraction."""

ABOUT_KBPS = 10.0
"""How far from a published rate "about" reaches."""

HEADLINE = "Reserved: what is sent is received (received over sent)."


def near(received_kbps: float, sent_kbps: float) -> Callable[[float], bool]:
    """Whether a share is the published one, give or take 10 kbit/s of what was sent then."""
    return lambda share: abs(share * sent_kbps - received_kbps) <= ABOUT_KBPS


def judge(results: Results) -> Finding:
    """Reserved flows receive what is sent; the unreserved ones give way."""
    out, there, share = sent(results), received(results), received_of_sent(results)
    c1, c2 = GENERATORS_SENT["C1"], GENERATORS_SENT["C2"]
    checks = [
        check(
            HEADLINE,
            "match",
            share,
            ("A2", "B2a", "C2a"),
            lambda value: abs(value - 1) < MATCH,
        ),
        check(
            "Overload: the unreserved video receives 250 of 472 kbit/s (received over sent).",
            "0.53",
            share,
            ("C1a",),
            near(250, VIDEO_SENT["C1"]),
            cause=IDLE + FAIR,
        ),
        check(
            "The generators beside it receive 120 kbit/s less than the 480 that they send (received"
            " over sent).",
            "0.75",
            share,
            ("C1b", "C1c"),
            near(c1 - 120, c1),
            cause=IDLE,
        ),
        check(
            "Those beside a reserved video receive 200 kbit/s less than the 500 that they send"
            " (received over sent).",
            "0.60",
            share,
            ("C2b", "C2c"),
            near(c2 - 200, c2),
            cause=IDLE,
        ),
        compare(
            "Under overload a reservation doubles what the video receives.",
            "520 beside 250 kbit/s",
            there,
            (("C2a", "C1a"),),
            lambda with_it, without: with_it >= 1.9 * without,
            " kbit/s",
            IDLE + FAIR,
        ),
        above(
            "Unreserved, the video receives less of what it sends under overload.",
            "570 in A1 to 250 in C1a",
            share,
            (("A1", "C1a"), ("B1a", "C1a")),
            cause=IDLE,
        ),
        above(
            "Beside a reserved video, traffic generators receive less of what they send than beside"
            " an unreserved one.",
            "200 below what is sent, beside 120",
            share,
            (("C1b", "C2b"), ("C1c", "C2c")),
            cause=IDLE,
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
                        {
                            "A1": 570,
                            "A2": 530,
                            "B2a": 530,
                            "C1a": 250,
                            "C1b": 360,
                            "C1c": 360,
                            "C2a": 520,
                            "C2b": 300,
                            "C2c": 300,
                        },
                        "received, published",
                    ),
                ],
            )
        ],
    )
    notes = [
        "Mean of samples of 0.5 s, payload; equation (2). What is sent is an input, as figure 6 has"
        " it; what is judged is how much of it is received. Rates match within 1 %; of a part of"
        " what is sent, “about” is within 10 of the published kbit/s."
    ]
    return Finding([figure], checks, notes)


CLAIM = Claim(
    id="qosockets/fig6",
    title="NetVideo: throughput",
    world=World.SIMULATION,
    published="A reserved video receives what it sends, 520 to 530 kbit/s, under any load; an"
    " unreserved one falls from 570 to 250 kbit/s.",
    expectation="Reserved: sent and received match; unreserved: 250 of 472 kbit/s (C1a); generators"
    " 120 below what they send (C1b, C1c), 200 beside a reserved video (C2b, C2c).",
    headline=HEADLINE,
    cells=lambda scale: cells("nv", scale),
    judge=judge,
    scaling=scaling,
)
