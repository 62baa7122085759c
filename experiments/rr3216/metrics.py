"""The metrics of section 3.3, from the table of ADUs.

S is when an ADU is first sent, R when it first arrives, A when the application is ready for it,
Ta how long it is processed. The paper prints the total time with S - R; it is R - S.
"""

import math
from collections.abc import Sequence

import polars as pl

from ontempo.lab.judging import MISSING, Curve, at
from ontempo.lab.statistics import Interval, mean_of_runs
from ontempo.lab.study import Results

SETTING = (
    *("processing_ms", "interval_ms", "window", "every", "delay_ms", "loss", "burst", "law"),
    *("count", "transport", "images"),
)
"""The labels of a setting."""


def adus(results: Results) -> pl.DataFrame:
    """One row a delivered ADU, in the order of processing, with its times in seconds.

    `blocked_s` is how long it waits to be taken (B), `idle_s` how long the application waited
    for it (I); the first ADU's is left out, since it is the way of the first ADU and no more.
    """
    run = [*SETTING, "order", "seed"]
    before = pl.col("processed_s").shift(1).over(run)
    table = results.table("adus")
    if "last_emitted_s" not in table.columns:
        # Real packets: the transport does not tell when it sent an ADU again.
        table = table.with_columns(last_emitted_s=pl.col("emitted_s"))
    return (
        table.drop_nulls("delivered_s")
        .sort([*run, "delivered_s", "processed_s"])
        .with_columns(
            (pl.col("delivered_s") - pl.col("arrived_s")).alias("blocked_s"),
            (pl.col("processed_s") - pl.col("emitted_s")).alias("total_s"),
            (pl.col("processed_s") - pl.col("last_emitted_s")).alias("last_total_s"),
            (pl.col("delivered_s") - before).clip(lower_bound=0).alias("idle_s"),
        )
    )


def runs(results: Results) -> pl.DataFrame:
    """One row a run, in seconds: mean total and blocking time, jitter, makespan, occupancy.

    `judged_s` is the total time by which a claim is judged, the mean of an ADU's unless a reading
    says otherwise; `last_total_s` is the same from an ADU's last sending.
    `jitter_s2` is the variance of the application's blocking time in square seconds,
    `occupancy` the time average of ADUs in the buffer until the last is processed, `idle` the
    share of the time, from the first ADU on, that the application waits.
    """
    end = pl.col("processed_s").max()
    from_first = end - pl.col("delivered_s").min()
    return (
        results.derive(adus)
        .group_by([*SETTING, "order", "seed"], maintain_order=True)
        .agg(
            pl.len().alias("adus"),
            pl.col("total_s").mean(),
            pl.col("total_s").mean().alias("judged_s"),
            pl.col("last_total_s").mean(),
            pl.col("blocked_s").mean(),
            pl.col("idle_s").var().alias("jitter_s2"),
            end.alias("makespan_s"),
            (pl.col("blocked_s").sum() / end).alias("occupancy"),
            (pl.col("idle_s").sum() / from_first).alias("idle"),
            pl.col("retransmissions").sum(),
        )
    )


def gains(results: Results) -> pl.DataFrame:
    """One row a setting and seed: how much less of each metric out of sequence, as a fraction.

    `gain` is the paper's G, of the mean total time over ADUs (section 3.3); `last_gain` the same
    from the last sending; `makespan_gain` is that of the whole run, which the paper calls G, too,
    at figure 13.
    """
    table = results.derive(runs)
    on = [*SETTING, "seed"]
    ordered, out = (table.filter(order=order) for order in ("in-order", "out-of-order"))
    both = ordered.join(out, on=on, suffix="_out", maintain_order="left")

    def saved(metric: str) -> pl.Expr:
        return 1 - pl.col(f"{metric}_out") / pl.col(metric)

    return both.with_columns(
        saved("total_s").alias("gain"),
        saved("last_total_s").alias("last_gain"),
        saved("blocked_s").alias("blocked_gain"),
        saved("jitter_s2").alias("jitter_gain"),
        saved("makespan_s").alias("makespan_gain"),
        saved("occupancy").alias("occupancy_gain"),
    )


def curve(table: pl.DataFrame, x: str, y: str = "gain") -> dict[float, Interval]:
    """The mean of a column over runs, by another."""
    return {
        float(place): mean_of_runs(part, y)
        for (place,), part in table.sort(x).group_by([x], maintain_order=True)
    }


def gain_curve(results: Results, metric: str = "gain", **setting: object) -> dict[float, Interval]:
    """G by processing time in milliseconds, for runs whose setting has the given values."""
    return curve(results.derive(gains).filter(**setting), "processing_ms", metric)


def highest(points: Curve, places: Sequence[float] = ()) -> tuple[float, Interval]:
    """Where a curve is highest, and how high.

    Not a number and `MISSING` where it has no point, or lacks one of the places asked for.
    """
    if not all(at(points, place).known for place in places):
        return math.nan, MISSING
    known = ((place, point) for place, point in points.items() if point.known)
    return max(known, key=lambda point: point[1].value, default=(math.nan, MISSING))


def wide(points: Curve, share: float = 0.9) -> float:
    """The largest place at which a curve is still within a share of its maximum, if it has one."""
    most = highest(points)[1].value
    near = (place for place, point in points.items() if point.value >= share * most)
    return max(near, default=math.nan)


def falls_below(points: Curve, level: float) -> float:
    """The place from which on a curve stays below a level, interpolated; NaN if it does not."""
    places = sorted(place for place, point in points.items() if point.known)
    above = [place for place in places if points[place].value >= level]
    if not above:
        return places[0] if places else math.nan
    last = above[-1]
    if last == places[-1]:
        return math.nan
    after = places[places.index(last) + 1]
    high, low = points[last].value, points[after].value
    return last + (after - last) * (high - level) / (high - low)
