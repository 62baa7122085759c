"""Figure 9: message jitter of NetVideo and its traffic generators."""

from ontempo.lab.claims import Claim, Finding, World, no_cells
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, View
from ontempo.lab.study import Results

from ..causes import DRAINING, IMPOSSIBLE_JITTER, SMOOTH
from ..grid import VIDEO, cells, scaling
from ..measures import FLOW_AXIS, above, below, check, jitter, published, series

HEADLINE = "Reserved: under 10 ms under any load."

UNRESERVED_MS, UNRESERVED_KBPS = 115, 250
"""Published of C1a: mean jitter, and what it receives."""


def largest_mean_jitter_ms(payload_bytes: int, received_kbps: float) -> float:
    """The largest mean of equation (5) in a network that keeps a flow's order, in milliseconds.

    From one message to the next the delay rises by no more than the time between their arrivals,
    and falls by no more than that between their sendings. All rises of a run together are at most
    its length, all falls too: a mean of at most twice the time between received messages.
    """
    return 2 * 8 * payload_bytes / received_kbps


def judge(results: Results) -> Finding:
    """A reserved video's jitter is bounded, and its neighbours' lower."""
    values = jitter(results)
    checks = [
        check(
            HEADLINE,
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


def judge_unreserved(_results: Results) -> Finding:
    """By arithmetic: what a line that keeps the order can do at the published rate."""
    most = largest_mean_jitter_ms(VIDEO.payload_bytes, UNRESERVED_KBPS)
    checks = [
        judged(
            "A mean jitter of 115 ms is possible for messages of 1,280 bytes of which 250 kbit/s"
            " arrive.",
            f"{UNRESERVED_MS} ms",
            lambda: f"at most 2 · 8 · 1,280 bytes / 250 kbit/s = {number(most)} ms",
            {"the largest mean": most},
            lambda: most >= UNRESERVED_MS,
            IMPOSSIBLE_JITTER,
        )
    ]
    notes = [
        "No run: the bound holds for every network that keeps a flow's order, and so under every"
        " reading. What is measured is in figure 9."
    ]
    return Finding([], checks, notes)


CLAIM = Claim(
    id="qosockets/fig9",
    title="NetVideo: jitter",
    world=World.SIMULATION,
    published="A reserved video's jitter stays below 10 ms, 5 ms under overload and far below that"
    " without a reservation; the traffic generators' is lower beside a reserved video.",
    expectation="Reserved under 10 ms (C2a 5), below C1a; generators lower beside a reserved"
    " video.",
    headline=HEADLINE,
    cells=lambda scale: cells("nv", scale),
    judge=judge,
    scaling=scaling,
)

UNRESERVED = Claim(
    id="qosockets/fig9-unreserved",
    title="NetVideo: jitter of the unreserved video",
    world=World.ANALYSIS,
    published="Under overload the jitter of an unreserved video is 115 ms.",
    expectation="C1a 115 ms, which has to be possible at the 250 kbit/s that it receives.",
    cells=no_cells,
    judge=judge_unreserved,
    scaling=lambda _scale: "Arithmetic.",
    row="fig9",
)
