"""From a study's tables to the runs, streams and bins of chapter III."""

from collections.abc import Mapping, Sequence

import polars as pl

from ontempo.lab.statistics import Interval, mean_interval, mean_of_runs, wilson
from ontempo.lab.study import Results

MU_BPS = 300_000
"""The rate of a video, headers counted."""

SUCCESS_BELOW = 1e-4
"""A stream succeeds if a smaller fraction of its packets than this is late."""

STARTUP_S = 11.0
"""The start-up delay of figures for which the paper says only "a few seconds": the one from
which on, it says, success is nearly complete."""

RUN = ("controller", "packet", "rtt_ms", "flows", "seed")
"""The labels of a run."""

GROUPS = ("video", "ftp", "http")
"""The kinds of flows."""

T_BINS = ((1.0, 1.2), (1.2, 1.4), (1.4, 1.6), (1.6, 1.8), (1.8, 2.0))
"""Ranges of T/mu; each holds its lower end, the last one also its upper."""

LOSS_BINS = ((0.0, 0.02), (0.02, 0.04), (0.04, 0.06))
"""Ranges of a video's own loss rate, likewise."""

Bin = tuple[float, float]


def runs(results: Results) -> pl.DataFrame:
    """One row a run: T/mu, and the bandwidth of each kind of flow.

    Like mu, the tables' goodput counts whole packets, headers included.
    """
    rate = pl.col("goodput_bps")
    return (
        results.table("flows")
        .group_by(RUN, maintain_order=True)
        .agg(
            (rate.filter(group="ftp").mean() / MU_BPS).alias("t_mu"),
            *(rate.filter(group=group).sum().alias(f"{group}_bps") for group in GROUPS),
        )
    )


def streams(results: Results) -> pl.DataFrame:
    """One row a video and start-up delay: late fraction, success, loss rate, T/mu of its run."""
    own_loss = results.table("flows").filter(group="video").select(*RUN, "flow", "loss_rate")
    return (
        results.table("playout")
        .join(results.derive(runs).select(*RUN, "t_mu"), on=RUN)
        .join(own_loss, on=[*RUN, "flow"])
        .with_columns((pl.col("late") / pl.col("units")).alias("late_fraction"))
        .with_columns((pl.col("late_fraction") < SUCCESS_BELOW).alias("success"))
    )


def within(column: str, bounds: Bin, bins: Sequence[Bin]) -> pl.Expr:
    """Whether a value falls into one of several adjoining bins."""
    low, high = bounds
    last = high == bins[-1][1]
    return pl.col(column).is_between(low, high, closed="both" if last else "left")


ALL_SUCCEED = (1.0,)
"""Where a comparison of successful fractions ends: no controller can be above another there, and
the thesis itself has almost all streams succeed for large T/mu and long delays."""


def success(table: pl.DataFrame) -> Interval:
    """The fraction of successful streams, with its Wilson interval."""
    return wilson(int(table["success"].sum()), table.height)


def success_by_delay(table: pl.DataFrame) -> dict[float, Interval]:
    """The fraction of successful streams by start-up delay."""
    return {
        float(delay): success(part)
        for (delay,), part in table.sort("startup_delay_s").group_by(
            ["startup_delay_s"], maintain_order=True
        )
    }


def success_by_t(table: pl.DataFrame, delay_s: float = STARTUP_S) -> dict[float, Interval]:
    """The fraction of successful streams by range of T/mu."""
    chosen = table.filter(startup_delay_s=delay_s)
    return {centre(b): success(chosen.filter(within("t_mu", b, T_BINS))) for b in T_BINS}


def late_by_t(table: pl.DataFrame, delay_s: float) -> dict[float, Interval]:
    """The mean late fraction of streams by range of T/mu."""
    chosen = table.filter(startup_delay_s=delay_s)
    return {
        centre(b): mean_interval(chosen.filter(within("t_mu", b, T_BINS))["late_fraction"])
        for b in T_BINS
    }


def by_count(table: pl.DataFrame, column: str) -> dict[float, Interval]:
    """The mean of a column over runs, by number of videos."""
    return {
        float(count): mean_of_runs(part, column)
        for (count,), part in table.sort("flows").group_by(["flows"], maintain_order=True)
    }


DELAYS_S = (1.0, 2.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 20.0, 25.0, 30.0)
"""The start-up delays that video.toml asks for."""


def centre(bounds: Bin) -> float:
    """Where a bin is drawn."""
    return round(sum(bounds) / 2, 6)


def bin_name(bounds: Bin) -> str:
    """A bin as the paper writes it."""
    digits = 1 if bounds[1] >= 1 else 2
    return f"{bounds[0]:.{digits}f} to {bounds[1]:.{digits}f}"


T_NAMES: Mapping[float, str] = {centre(b): bin_name(b) for b in T_BINS}
"""The bins of T/mu by the place where they are drawn."""
