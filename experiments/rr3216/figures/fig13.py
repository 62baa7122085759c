"""Figure 13: the receiver's buffer over time."""

from collections.abc import Iterable

import polars as pl

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import about, judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.statistics import Interval, mean_interval
from ontempo.lab.study import Cell, Results

from ..causes import ONE_RUN
from ..curves import ORDER_COLOURS, ORDER_NAMES
from ..grid import ORDERS, Setting, cells
from ..metrics import adus, gains, runs

SETTING = Setting(count=100, every=4)
RUNS = (0, 1, 2, 3, 4)
"""The paper shows one run; we judge the mean of five and draw the first."""

ORDERED_PEAK, OUT_PEAK = (15, 28), 10
TOTALS_S = {"in-order": 2.5, "out-of-order": 1.5}
NEAR = 0.1
"""Within this fraction of a published time ours is close to it."""


def wanted(_scale: Scale) -> list[Cell]:
    """Five runs in each order."""
    return cells("quick", [SETTING], seeds=RUNS)


def occupancy(table: pl.DataFrame) -> dict[float, int]:
    """ADUs in the buffer of one run after each change, by time in milliseconds."""
    changes = [(at, 1) for at in table["arrived_s"]] + [(at, -1) for at in table["delivered_s"]]
    held, found = 0, {0.0: 0}
    for at, change in sorted(changes, key=lambda one: (one[0], -one[1])):
        held += change
        found[1e3 * at] = held
    return found


def peak(results: Results, order: str, seeds: Iterable[int] = RUNS) -> Interval:
    """The largest occupancy, over runs; one that is taken as it arrives counts as none."""
    table = results.derive(adus).filter(order=order)
    runs = (table.filter(seed=seed) for seed in seeds)
    return mean_interval(float(max(occupancy(run).values())) for run in runs if not run.is_empty())


def judge(results: Results) -> Finding:
    """Peaks and totals, and the first run as drawn."""
    peaks = {order: peak(results, order) for order in ORDERS}
    table = results.derive(runs)
    took = {order: mean_interval(table.filter(order=order)["makespan_s"]) for order in ORDERS}
    makespan = mean_interval(results.derive(gains)["makespan_gain"])
    total = mean_interval(results.derive(gains)["gain"])
    low, high = ORDERED_PEAK
    ordered, out = (peaks[order].value for order in ORDERS)
    checks = [
        judged(
            "In order the buffer's peak is large.",
            f"above {low}, at most {high}",
            lambda: f"{number(ordered)} on average",
            {"the peak in order": ordered},
            lambda: low < ordered <= high,
            ONE_RUN,
        ),
        judged(
            "Out of sequence it is small.",
            f"at most {OUT_PEAK}",
            lambda: f"{number(out)} on average",
            {"the peak out of sequence": out},
            lambda: out <= OUT_PEAK,
            ONE_RUN,
        ),
        judged(
            "In order 100 ADUs take close to 2.5 s.",
            "2.5 s",
            lambda: f"{number(took['in-order'].value)} s",
            {"the time in order": took["in-order"]},
            lambda: abs(took["in-order"].value / TOTALS_S["in-order"] - 1) <= NEAR,
            ONE_RUN,
        ),
        judged(
            "Out of sequence they take less than 1.5 s.",
            "less than 1.5 s",
            lambda: f"{number(took['out-of-order'].value)} s",
            {"the time out of sequence": took["out-of-order"]},
            lambda: took["out-of-order"].value < TOTALS_S["out-of-order"],
            ONE_RUN,
        ),
        judged(
            "That is a gain of 40 %.",
            "about 0.4",
            lambda: (
                f"{number(makespan.value)} (in the mean total time of an ADU:"
                f" {number(total.value)})"
            ),
            {"the gain in the run's total time": makespan},
            lambda: about(makespan.value, 0.4),
            ONE_RUN,
        ),
    ]
    lines = [
        Series(
            ORDER_NAMES[order],
            ORDER_COLOURS[order],
            {
                at: exact(held)
                for at, held in occupancy(
                    results.derive(adus).filter(order=order, seed=RUNS[0])
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
    return Finding([figure], checks, ["Ta = 10 ms; means of five runs, the first one drawn."])


CLAIM = Claim(
    id="rr3216/fig13",
    title="The receiver's buffer over time",
    world=World.SIMULATION,
    published="100 ADUs with A = 4 fill up to 28 of 32 buffers in order and 10 out of sequence, and"
    " take close to 2.5 s in order and less than 1.5 s out of sequence.",
    expectation="Peak in order above 15 and at most 28, out of sequence at most 10; 2.5 s against"
    " less than 1.5 s, a gain of about 0.4.",
    cells=wanted,
    judge=judge,
    scaling=lambda _scale: "Nothing to scale: as published, five runs instead of one.",
)
