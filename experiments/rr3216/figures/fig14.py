"""Figure 14: how long the application waits for each ADU."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.statistics import mean_interval
from ontempo.lab.study import Cell, Results

from ..curves import ORDER_COLOURS, ORDER_NAMES
from ..grid import ORDERS, Setting, cells
from ..metrics import adus, gains

SETTING = Setting(count=100, every=8)
RUNS = (0, 1, 2, 3, 4)
AT_LEAST = 0.3
STEP_MS = 10


def wanted(_scale: Scale) -> list[Cell]:
    """Five runs in each order."""
    return cells("quick", [SETTING], seeds=RUNS)


def judge(results: Results) -> Finding:
    """The jitter, and the distribution of the waits."""
    saved = mean_interval(results.derive(gains)["jitter_gain"])
    checks = [
        judged(
            "Jitter, the variance of the application's blocking time, is less out of sequence.",
            "by 30 % or more",
            lambda: f"by {saved.value:.0%}",
            {"the jitter in both orders": saved},
            lambda: saved.value >= AT_LEAST,
        )
    ]
    lines = []
    for order in ORDERS:
        waits = results.derive(adus).filter(order=order)["idle_s"].drop_nulls()
        steps = range(STEP_MS, int(1e3 * max(waits, default=0.0)) + 2 * STEP_MS, STEP_MS)
        points = {
            float(step): exact(sum(1e3 * wait >= step for wait in waits) / len(RUNS))
            for step in steps
        }
        lines.append(Series(ORDER_NAMES[order], ORDER_COLOURS[order], points, markers=False))
    figure = Figure(
        "For how many ADUs the application waits how long: far longer in order.",
        Axis("Application blocking time (ms)"),
        Axis(f"ADUs waited for so long or longer, of {SETTING.count}"),
        [View("", lines)],
    )
    checks_note = f"Ta = 10 ms; the variance is {number(saved.value)} less, the mean of five runs."
    return Finding([figure], checks, [checks_note])


CLAIM = Claim(
    id="rr3216/fig14",
    title="Application blocking times",
    world=World.SIMULATION,
    published="For 100 ADUs with A = 8, blocking times are longer in order; their variance is more"
    " than 30 % less out of sequence.",
    expectation="Jitter lower by 30 % or more.",
    cells=wanted,
    judge=judge,
    scaling=lambda _scale: "Nothing to scale: as published, five runs instead of one.",
)
