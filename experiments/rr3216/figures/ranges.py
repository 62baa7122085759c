"""Section 4.2.4: up to which processing time it is useful, near and far."""

import math

from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.judging import Curve, at, judged, number
from ontempo.lab.study import Cell, Results

from ..causes import R_STAYS
from ..curves import RUNS_NOTE, USELESS_BELOW, USELESS_WHY, gain_figure
from ..grid import SEEDS, Setting, cells
from ..metrics import curve, falls_below, gains

PUBLISHED_MS = {10.0: 1.0, 50.0: 10.0, 250.0: 50.0}
"""Useful processing times by delay: local, nationwide, across continents."""

TIMES_MS = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 70.0, 100.0)
FACTOR = 2.0


def wanted(scale: Scale) -> list[Cell]:
    """Each delay at a range of processing times."""
    settings = [
        Setting(delay_ms=delay, processing_ms=time) for delay in PUBLISHED_MS for time in TIMES_MS
    ]
    return cells(scale, settings)


def judge(results: Results) -> Finding:
    """Where the gain falls below what counts as useful."""
    table = results.derive(gains)
    found = {delay: curve(table.filter(delay_ms=delay), "processing_ms") for delay in PUBLISHED_MS}
    checks = []
    for delay, published in PUBLISHED_MS.items():
        checks.append(_limit_check(delay, published, found[delay]))
    figure = gain_figure(
        "The gain against the processing time for a local, a national and a transcontinental path.",
        lambda metric: {
            f"D = {delay:g} ms": curve(table.filter(delay_ms=delay), "processing_ms", metric)
            for delay in PUBLISHED_MS
        },
    )
    return Finding([figure], checks, [RUNS_NOTE])


def _limit_check(delay: float, published: float, points: Curve) -> Check:
    limit = falls_below(points, USELESS_BELOW)
    never = math.isnan(limit)
    return judged(
        f"With D = {delay:g} ms it is useful for Ta below about {published:g} ms.",
        f"G falls below {USELESS_BELOW:g} within a factor of {FACTOR:g} of it",
        lambda: f"not up to {TIMES_MS[-1]:g} ms" if never else f"it does at {number(limit)} ms",
        {
            **{f"Ta = {time:g} ms": at(points, time) for time in TIMES_MS},
            "the place": math.inf if never else limit,
        },
        lambda: published / FACTOR <= limit <= published * FACTOR,
        R_STAYS,
    )


CLAIM = Claim(
    id="rr3216/ranges",
    title="Useful processing times",
    world=World.SIMULATION,
    published="Ta should be less than 1 ms for local, 10 ms for national and 50 ms for"
    " transcontinental paths.",
    expectation="G falls below 0.05 near Ta = 1, 10 and 50 ms with D = 10, 50 and 250 ms. “Near” is"
    " read as within a factor of two: our bound, since the paper gives one round number for ranges"
    f" of delays. {USELESS_WHY}",
    cells=wanted,
    judge=judge,
    scaling=lambda scale: f"{len(SEEDS[scale])} of {len(SEEDS['full'])} runs a point.",
)
