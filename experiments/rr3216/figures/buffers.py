"""Section 5: buffers and jitter with the defaults."""

from collections.abc import Callable

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.judging import about, at, judged
from ontempo.lab.plots import Axis
from ontempo.lab.study import Results

from ..curves import PROCESSING_AXIS, lines_figure, scaling, swept_cells
from ..grid import Setting
from ..metrics import curve, gains

PROCESSING_MS = 10.0
"""The operating point: the paper gives no Ta here."""

NOTE = "Judged at the operating point, Ta = R = 10 ms, since the paper gives no Ta here."


def judge(
    column: str, what: str, published: float, *, or_more: bool = False
) -> Callable[[Results], Finding]:
    """How much less of a metric there is out of sequence: about so much, `or_more`."""
    amount = f"{published:.0%} less, or even less" if or_more else f"about {published:.0%} less"

    def finding(results: Results) -> Finding:
        points = curve(results.derive(gains), "processing_ms", column)
        found = at(points, PROCESSING_MS)
        check = judged(
            f"Out of sequence {what} is {amount}.",
            f"at least {published:g}" if or_more else f"about {published:g}",
            lambda: f"{found.value:.3f}",
            {f"the gain at {PROCESSING_MS:g} ms": found},
            lambda: about(found.value, published) or (or_more and found.value > published),
        )
        figure = lines_figure(
            f"How much less {what} is out of sequence, against the processing time.",
            {f"gain in {what}": points},
            PROCESSING_AXIS,
            Axis("Gain", (-0.05, 1.05)),
        )
        return Finding([figure], [check], [NOTE])

    return finding


BUFFERS = Claim(
    id="rr3216/buffers",
    title="Mean buffer occupancy with the defaults",
    world=World.SIMULATION,
    published="Out-of-sequence processing saves around 70 % of the receiver's buffers.",
    expectation="Mean occupancy about 70 % less out of sequence.",
    cells=lambda scale: swept_cells(scale, [Setting()]),
    judge=judge("occupancy_gain", "mean buffer occupancy", 0.7),
    scaling=scaling,
)

JITTER = Claim(
    id="rr3216/jitter",
    title="Jitter with the defaults",
    world=World.SIMULATION,
    published="It lessens jitter, the variance of the application's blocking time, by around 30 %"
    " (section 5), by more than 30 % (section 4.4).",
    expectation="Jitter less by 30 % or more out of sequence.",
    cells=lambda scale: swept_cells(scale, [Setting()]),
    judge=judge("jitter_gain", "jitter", 0.3, or_more=True),
    scaling=scaling,
)
