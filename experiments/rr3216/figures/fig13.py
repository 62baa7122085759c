"""Figure 13: the receiver's buffer over time."""

import math
from collections.abc import Sequence
from statistics import fmean

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.statistics import quantiles
from ontempo.lab.study import Cell, Results

from ..causes import ONE_RUN
from ..curves import ORDER_COLOURS, ORDER_NAMES
from ..grid import ORDERS, Setting, cells
from ..metrics import adus, gains, runs

SETTING = Setting(count=100, every=4)
RUNS = (0, 1, 2, 3, 4)
"""The runs with real packets."""

SINGLE = range(200)
"""The paper shows one run: it is held against so many single ones, of which the first is drawn."""

PEAKS = {"in-order": 28.0, "out-of-order": 10.0}
TOTALS_S = {"in-order": 2.5, "out-of-order": 1.5}
GAIN = 0.4
LEVELS = (0.05, 0.95)
"""Between these quantiles of single runs the published one is one of them: nine runs in ten."""


def wanted(_scale: Scale) -> list[Cell]:
    """Single runs in each order."""
    return cells("quick", [SETTING], seeds=SINGLE)


def occupancy(table: pl.DataFrame) -> dict[float, int]:
    """ADUs in the buffer of one run after each change, by time in milliseconds."""
    changes = [(at, 1) for at in table["arrived_s"]] + [(at, -1) for at in table["delivered_s"]]
    held, found = 0, {0.0: 0}
    for at, change in sorted(changes, key=lambda one: (one[0], -one[1])):
        held += change
        found[1e3 * at] = held
    return found


def peaks(results: Results, order: str) -> list[float]:
    """The largest occupancy of each run; an ADU that is taken as it arrives counts as none."""
    table = results.derive(adus).filter(order=order)
    parts = table.partition_by("seed", maintain_order=True)
    return [float(max(occupancy(run).values())) for run in parts]


def among(
    sentence: str, published: str, value: float, found: Sequence[float], unit: str = ""
) -> Check:
    """The published run's value lies between the quantiles of single runs."""
    low, high = quantiles(found, LEVELS)
    middle = fmean(found) if found else math.nan
    return judged(
        sentence,
        published,
        lambda: (
            f"nine of ten single runs {number(low)} to {number(high)}{unit}, mean"
            f" {number(middle)}{unit}"
        ),
        {"the 5th percentile": low, "the 95th percentile": high},
        lambda: low <= value <= high,
        ONE_RUN,
    )


def judge(results: Results) -> Finding:
    """The published run among single runs, and the first of these as drawn."""
    table = results.derive(runs)
    took = {order: table.filter(order=order)["makespan_s"].to_list() for order in ORDERS}
    ordered, out = ORDERS
    low, _ = quantiles(took[out], LEVELS)
    share = sum(one < TOTALS_S[out] for one in took[out]) / (len(took[out]) or math.nan)
    checks = [
        among(
            "In order the buffer holds up to 28 ADUs.",
            "at most 28 in the run",
            PEAKS[ordered],
            peaks(results, ordered),
        ),
        among(
            "Out of sequence it holds up to 10.",
            "at most 10 in the run",
            PEAKS[out],
            peaks(results, out),
        ),
        among(
            "In order 100 ADUs take close to 2.5 s.",
            "2.5 s in the run",
            TOTALS_S[ordered],
            took[ordered],
            " s",
        ),
        judged(
            "Out of sequence they take less than 1.5 s.",
            "less than 1.5 s in the run",
            lambda: f"{share:.0%} of single runs do; the 5th percentile is {number(low)} s",
            {"the 5th percentile": low},
            lambda: low < TOTALS_S[out],
            ONE_RUN,
        ),
        among(
            "That is a gain of 40 %.",
            "0.4 in the run",
            GAIN,
            results.derive(gains)["makespan_gain"].to_list(),
        ),
    ]
    lines = [
        Series(
            ORDER_NAMES[order],
            ORDER_COLOURS[order],
            {
                at: exact(held)
                for at, held in occupancy(
                    results.derive(adus).filter(order=order, seed=SINGLE[0])
                ).items()
            },
            markers=False,
        )
        for order in ORDERS
    ]
    figure = Figure(
        "ADUs in the receiver's buffer over time: peaks in order, hardly any out of sequence.",
        Axis("Time (ms)"),
        Axis("ADUs in the buffer"),
        [View("", lines)],
    )
    note = (
        "Ta = 10 ms. The paper shows one run: judged is whether it lies between the 5th and the"
        f" 95th percentile of {len(took[ordered])} single ones, of which the first is drawn."
    )
    return Finding([figure], checks, [note])


CLAIM = Claim(
    id="rr3216/fig13",
    title="The receiver's buffer over time",
    world=World.SIMULATION,
    published="100 ADUs with A = 4 fill up to 28 of 32 buffers in order and 10 out of sequence, and"
    " take close to 2.5 s in order and less than 1.5 s out of sequence.",
    expectation="The published run is one of nine in ten single runs: by its peaks of 28 and 10,"
    " its times of 2.5 s and less than 1.5 s, and its gain of 0.4.",
    cells=wanted,
    judge=judge,
    scaling=lambda _scale: "Nothing to scale: as published, 200 runs instead of one.",
)
