"""Figure 6: late packets against T/mu, by round-trip time."""

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import Curve, Outcome, at, every, is_above, judged, number
from ontempo.lab.plots import Axis, Figure, Series
from ontempo.lab.study import Results

from ..causes import AT_THE_START, SMALL_WINDOWS
from ..curves import T_AXIS, bin_of, views_by_delay
from ..grid import PUBLISHED_RTTS, video_cells, video_scaling
from ..streams import STARTUP_S, T_NAMES, late_by_t, streams

STEEP = 0.75
"""Which part of the whole fall must be over by 1.4 for it to be steep before and flat after."""


def judge(results: Results) -> Finding:
    """Where the late fraction falls, and how it depends on the round trip."""
    table = results.derive(streams)
    curves = {rtt: late_by_t(table.filter(rtt_ms=rtt), STARTUP_S) for rtt in PUBLISHED_RTTS}
    checks = [_steep(rtt, curve) for rtt, curve in curves.items()]
    checks.append(_larger_for_larger(curves))

    def lines(delay: float) -> list[Series]:
        return [
            Series(
                f"round trip {rtt} ms",
                f"step-{2 * step}",
                _of(table, rtt, delay),
                symbol=("circle", "square", "diamond")[step],
            )
            for step, rtt in enumerate(PUBLISHED_RTTS)
        ]

    views, shown = views_by_delay(lines, STARTUP_S)
    figure = Figure(
        "Mean fraction of late packets against T/mu for round trips of 50, 100 and 150 ms.",
        T_AXIS,
        Axis("Late packets", format=".2%"),
        views,
        "Start-up delay",
        shown,
    )
    return Finding(
        [figure],
        checks,
        [
            f"The paper states no start-up delay for this figure; judged at {STARTUP_S:g} s. Bands"
            " are 95 % t-intervals over streams. “Steeply” and “nearly flat” are read as:"
            f" at least {STEEP:.0%} of the fall from the first range to the last lies before 1.4."
        ],
    )


def _of(table: pl.DataFrame, rtt: int, delay: float) -> Curve:
    return late_by_t(table.filter(rtt_ms=rtt), delay)


def _steep(rtt: int, curve: Curve) -> Check:
    sentence = f"At a round trip of {rtt} ms the late fraction falls steeply to 1.4, then little."
    found = {T_NAMES[place]: at(curve, place) for place in (1.1, 1.5, 1.9)}
    first, knee, last = found.values()
    fall = first.value - last.value
    share = (first.value - knee.value) / fall if fall > 0 else 0.0

    def falls() -> Outcome:
        # That it falls is a comparison of two estimates; how much of the fall is over, is not.
        return is_above(first, last) and share >= STEEP

    return judged(
        sentence,
        "sharp, then nearly flat",
        lambda: (
            f"{', '.join(number(point.value) for point in found.values())} at 1.0 to 1.2,"
            f" 1.4 to 1.6, 1.8 to 2.0: {share:.0%} of the fall by 1.4"
        ),
        {f"a stream at T/μ {name}": point for name, point in found.items()},
        falls,
        AT_THE_START,
    )


def _larger_for_larger(curves: Mapping[int, Curve]) -> Check:
    sentence = "The larger the round trip, the larger the late fraction."
    rows = {x: [at(curves[rtt], x) for rtt in PUBLISHED_RTTS] for x in T_NAMES}
    outcomes = {
        x: every(is_above(b, a, or_equal=True) for a, b in pairwise(row)) for x, row in rows.items()
    }
    known = [x for x, row in rows.items() if all(one.known for one in row)]
    means = [
        fmean(rows[x][step].value for x in known) if known else math.nan
        for step in range(len(PUBLISHED_RTTS))
    ]
    text = f"on average {', '.join(map(number, means))} at 50, 100, 150 ms"
    for words, outcome in (("not in order", False), ("cannot be told apart", None)):
        if listed := [x for x in known if outcomes[x] is outcome]:
            text += f"; {words} at " + "; ".join(
                f"{bin_of(x)} ({', '.join(number(one.value) for one in rows[x])})" for x in listed
            )
    if missing := [x for x in T_NAMES if x not in known]:
        text += f"; no streams at {', '.join(map(bin_of, missing))}"
    ordered = [means[0] < means[1] < means[2]] if known else []
    ok = every([*outcomes.values(), *ordered])
    return Check(sentence, "larger in every range of T/μ", text, ok, SMALL_WINDOWS, tuple(means))


CLAIM = Claim(
    id="pert/fig6",
    title="Late packets against T/μ with PERT",
    world=World.SIMULATION,
    published="With PERT, the fraction of late packets drops sharply as T/μ goes from 1.0 to 1.4"
    " and hardly changes from there to 2.0. It is larger for longer round trips.",
    expectation="Falls steeply from 1.0 to 1.4, nearly flat to 2.0; larger for larger round trips.",
    cells=lambda scale: video_cells(scale, ["pert"]),
    judge=judge,
    scaling=video_scaling,
)
