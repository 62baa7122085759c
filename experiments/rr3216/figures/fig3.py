"""Figures 3 and 4: one loss, small and large processing times."""

import math
from functools import partial

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.study import Cell, Results

from ..causes import SMALL_TA
from ..curves import ORDER_COLOURS, ORDER_NAMES, USELESS_WHY
from ..grid import ORDERS, Setting, cells
from ..metrics import adus, gains

TIMES_MS = (0.1, 200.0)
COUNT = 20
LOST = 3
NEAR = 0.05


def wanted(_scale: Scale) -> list[Cell]:
    """One run for each order and processing time: nothing in them is random."""
    settings = [
        Setting(processing_ms=time, count=COUNT, law="constant", lost=(LOST,)) for time in TIMES_MS
    ]
    return cells("quick", settings, seeds=(0,))


def judge(results: Results) -> Finding:
    """The gain at both ends."""
    found, times = results.derive(gains), results.derive(adus)
    checks, views = [], []
    for time in TIMES_MS:
        rows = found.filter(processing_ms=time).to_dicts()
        gain = float(rows[0]["gain"]) if rows else math.nan
        checks.append(
            judged(
                f"At Ta = {time:g} ms out-of-sequence processing has very little impact.",
                f"G within {NEAR:g} of 0",
                partial(number, gain),
                {f"G at {time:g} ms": gain},
                partial(_is_near, gain),
                SMALL_TA if time < 1 else "",
            )
        )
        lines = []
        for order in ORDERS:
            done = times.filter(processing_ms=time, order=order)["processed_s"].sort()
            points = {1e3 * at: exact(place + 1) for place, at in enumerate(done)}
            lines.append(Series(ORDER_NAMES[order], ORDER_COLOURS[order], points, markers=time > 1))
        views.append(View(f"{time:g} ms", lines))
    figure = Figure(
        "ADUs processed over time, in order and out of sequence, with one loss: with small"
        " processing times order delays a batch of them and then catches up; with large ones the"
        " lines coincide.",
        Axis("Time (ms)"),
        Axis("ADUs processed"),
        views,
        selector="Processing time Ta",
    )
    return Finding([figure], checks, [f"{COUNT} ADUs, the fourth lost once; a constant delay."])


def _is_near(gain: float) -> bool:
    return abs(gain) <= NEAR


CLAIM = Claim(
    id="rr3216/fig3-4",
    title="One loss, small and large processing times",
    world=World.SIMULATION,
    published="As Ta tends to 0 or to infinity, out-of-sequence processing has very little impact.",
    expectation=f"G within 0.05 of 0 at Ta = 0.1 ms and at Ta = 200 ms. {USELESS_WHY}",
    cells=wanted,
    judge=judge,
    scaling=lambda _scale: "Nothing to scale: one loss, no randomness.",
)
