"""Means over paths, intervals over seeds, and the differences between two worlds."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ontempo.lab.arena.cells import DEFAULT, EMULATION, ROUND_TRIPS, SIMULATION
from ontempo.lab.statistics import Interval, mean_interval

BUFFERS = (*(f"{times:g}" for times in ROUND_TRIPS), DEFAULT)

MEASURES = (
    "on_time",
    "at_most",
    "sound",
    "bytes",
    "back",
    "latency_p99_s",
    "freezes_a_minute",
    "frozen",
)

RUN = ("class", "path", "film", "contender", "buffer")

ROUNDING = 1e-9
"""What a mean of equal shares may differ from them."""

POINTS = 0.03
"""A difference between worlds that is larger is listed, as a share of pictures."""


def by_path(rows: pl.DataFrame) -> pl.DataFrame:
    """The mean of each path over its films and seeds."""
    keys = ["class", "path", "contender", "buffer"]
    means = [pl.col(name).mean() for name in MEASURES]
    return rows.group_by(keys, maintain_order=True).agg(*means)


def by_class(rows: pl.DataFrame) -> pl.DataFrame:
    """The mean over the paths of a class, each path weighing the same.

    Latencies are means over the paths where anything arrived whole.
    """
    means = [pl.col(name).mean() for name in MEASURES]
    keys = ["class", "contender", "buffer"]
    return by_path(rows).group_by(keys, maintain_order=True).agg(*means)


def bounds(means: pl.DataFrame) -> dict[str, float]:
    """The bound by buffer, of the means of one class; empty where UDP was not run."""
    return {row["buffer"]: row["at_most"] for row in means.drop_nulls("at_most").to_dicts()}


def over_seeds(rows: pl.DataFrame, measure: str = "on_time") -> Interval:
    """A path's mean over its films, with the interval over its seeds."""
    seeds = rows.group_by("seed", maintain_order=True).agg(pl.col(measure).mean())
    return mean_interval([float(one) for one in seeds[measure].drop_nulls()])


@dataclass(frozen=True)
class Apart:
    """A run in both worlds: pictures decodable on time.

    `emulated` is the mean over its seeds, `simulated` that over the same ones; `low` and `high` are
    the least and the greatest of ten simulated seeds.
    """

    path: str
    film: str
    contender: str
    buffer: str
    simulated: float
    low: float
    high: float
    emulated: float
    seeds: int

    @property
    def difference(self) -> float:
        """Emulated minus simulated."""
        return self.emulated - self.simulated

    @property
    def within(self) -> bool:
        """Whether a simulated seed is as low, and another as high."""
        return self.low - ROUNDING <= self.emulated <= self.high + ROUNDING


def both_worlds(rows: pl.DataFrame) -> Sequence[Apart]:
    """The runs that both worlds have, in the order of the emulated ones."""
    share = pl.col("on_time")
    simulated = rows.filter(world=SIMULATION)
    ends = simulated.group_by(*RUN).agg(share.min().alias("low"), share.max().alias("high"))
    emulated = rows.filter(world=EMULATION).select(*RUN, "seed", share.alias("emulated"))
    twins = simulated.select(*RUN, "seed", share.alias("simulated"))
    joined = (
        emulated.join(twins, on=[*RUN, "seed"], how="inner", maintain_order="left")
        .group_by(*RUN, maintain_order=True)
        .agg(pl.col("simulated").mean(), pl.col("emulated").mean(), pl.len().alias("seeds"))
        .join(ends, on=RUN, how="inner", maintain_order="left")
    )
    values = ("film", "contender", "buffer", "simulated", "low", "high", "emulated", "seeds")
    return [
        Apart(f"{row['class']}/{row['path']}", *(row[name] for name in values))
        for row in joined.iter_rows(named=True)
    ]


def far_apart(found: Sequence[Apart]) -> list[Apart]:
    """Those that differ by more than `POINTS`."""
    return [one for one in found if abs(one.difference) > POINTS]
