"""Intervals: how far a measured value may be from the one that it estimates."""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import NormalDist, fmean, stdev, variance
from typing import NamedTuple

import polars as pl

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An estimate between its confidence limits, from `n` observations.

    The limits are NaN where the observations do not suffice for an interval; the value is NaN
    where there are none. `runs` are the observations by their seeds, where each run gives one.
    """

    value: float
    low: float
    high: float
    n: int
    runs: tuple[tuple[int, float], ...] = ()

    @property
    def known(self) -> bool:
        """Whether there is a value at all; an infinite one is none."""
        return self.n > 0 and math.isfinite(self.value)

    @property
    def exact(self) -> bool:
        """Whether it has limits, and no width."""
        return self.low == self.high

    def scaled(self, factor: float) -> "Interval":
        """The same in another unit; `factor` is positive."""
        runs = tuple((seed, factor * value) for seed, value in self.runs)
        return Interval(factor * self.value, factor * self.low, factor * self.high, self.n, runs)


def mean_interval(values: Iterable[float], confidence: float = CONFIDENCE) -> Interval:
    """The mean with its Student t interval, observations taken as independent and near normal.

    What is not a number, or infinite, is no observation.
    """
    observed = [value for value in values if math.isfinite(value)]
    n = len(observed)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    mean = fmean(observed)
    if n == 1:
        return Interval(mean, math.nan, math.nan, 1)
    half = t_quantile((1 + confidence) / 2, n - 1) * stdev(observed) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def mean_of_runs(table: pl.DataFrame, column: str, confidence: float = CONFIDENCE) -> Interval:
    """The mean of a column over runs, with each run's value by its `seed`.

    Several rows of one seed, or a table without seeds, give the mean of all rows alone.
    """
    known = table.filter(pl.col(column).cast(pl.Float64).is_finite())
    found = mean_interval(known[column].cast(pl.Float64).to_list(), confidence)
    if "seed" not in known.columns or known["seed"].n_unique() != known.height:
        return found
    runs = zip(known["seed"].to_list(), known[column].cast(pl.Float64).to_list(), strict=True)
    return found._replace(runs=tuple(sorted(runs)))


def difference(one: Interval, other: Interval, confidence: float = CONFIDENCE) -> Interval:
    """One estimate minus another, with the interval of the difference.

    Student's t of the differences within the seeds that both have, where these are two or more; a
    run that is missing on a side takes its partner with it. Else the limits of both are combined
    (Newcombe, 1998; Zou and Donner, 2008): each side's distance from its own limit, as the root of
    the sum of squares. One seed in common gives no interval, and makes the combined one no
    narrower than it should be. Without limits on a side there are none here.
    """
    if not (one.known and other.known):
        return Interval(math.nan, math.nan, math.nan, 0)
    theirs = dict(other.runs)
    paired = [value - theirs[seed] for seed, value in one.runs if seed in theirs]
    if len(paired) > 1:
        return mean_interval(paired, confidence)
    value = one.value - other.value
    below = math.hypot(one.value - one.low, other.high - other.value)
    above = math.hypot(one.high - one.value, other.value - other.low)
    return Interval(value, value - below, value + above, min(one.n, other.n))


def quantiles(values: Sequence[float], levels: Sequence[float]) -> tuple[float, ...]:
    """Quantiles of single runs, interpolated linearly; NaN where there is no value."""
    series = pl.Series(values, dtype=pl.Float64).drop_nans()
    found = (series.quantile(level, "linear") for level in levels)
    return tuple(math.nan if one is None else float(one) for one in found)


def wilson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """A proportion with its score interval (Wilson, 1927), which stays within 0 and 1."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    if trials == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / trials
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Interval(share, low, high, trials)


@cache
def t_quantile(probability: float, degrees: int) -> float:
    """The quantile of Student's t for a whole number of degrees of freedom."""
    if not 0 < probability < 1 or degrees < 1:
        raise ValueError(f"no t quantile at {probability} for {degrees} degrees of freedom")
    if probability < 1 / 2:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while t_distribution(high, degrees) < probability:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_distribution(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_distribution(t: float, degrees: int) -> float:
    """The distribution function of Student's t, by its finite series.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(degrees))
    cosine_squared = math.cos(angle) ** 2
    odd = degrees % 2 == 1
    term = math.cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine_squared * (k - 1) / k
        total += term
    within = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return (1 + within) / 2


def difference_half_width(
    one: Iterable[float], other: Iterable[float], confidence: float = CONFIDENCE
) -> float:
    """Half the interval of the difference of two means, by Welch's t.

    The degrees of freedom (Welch and Satterthwaite, 1946) are rounded down, the safe side. NaN
    where a side has fewer than two observations.
    """
    sides = [[value for value in side if math.isfinite(value)] for side in (one, other)]
    if any(len(side) < 2 for side in sides):  # noqa: PLR2004 - a variance needs two
        return math.nan
    parts = [(variance(side) / len(side), len(side) - 1) for side in sides]
    squared = sum(part for part, _ in parts)
    if squared == 0:
        return 0.0
    degrees = squared**2 / sum(part**2 / free for part, free in parts)
    return t_quantile((1 + confidence) / 2, max(1, math.floor(degrees))) * math.sqrt(squared)
