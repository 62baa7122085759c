"""Intervals against published tables and known cases."""

import math

import polars as pl
import pytest

from ontempo.lab.statistics import (
    Interval,
    difference,
    mean_interval,
    mean_of_runs,
    t_distribution,
    t_quantile,
    wilson,
)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (30, 2.04227)],
)
def test_t_quantiles_agree_with_the_printed_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(quantile, abs=1e-5)
    assert t_quantile(0.025, degrees) == pytest.approx(-quantile, abs=1e-5)


def test_the_t_distribution_is_symmetric_and_tends_to_the_normal() -> None:
    assert t_distribution(0.0, 7) == pytest.approx(0.5)
    assert t_distribution(1.3, 4) + t_distribution(-1.3, 4) == pytest.approx(1.0)
    assert t_quantile(0.975, 100_000) == pytest.approx(1.95996, abs=1e-4)


@pytest.mark.parametrize("probability", [0.0, 1.0, -1.0])
def test_a_quantile_outside_of_the_distribution_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(probability, 3)


def test_a_mean_of_five_values_has_the_textbook_interval() -> None:
    interval = mean_interval([4.9, 5.1, 5.0, 5.2, 4.8])
    assert interval.value == pytest.approx(5.0)
    assert interval.high - interval.value == pytest.approx(2.77645 * 0.158114 / math.sqrt(5), 1e-4)
    assert interval.n == 5


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    assert math.isnan(mean_interval([3.0]).low)
    assert mean_interval([3.0]).value == 3.0
    assert not mean_interval([]).known
    assert mean_interval([math.nan, 2.0]).n == 1


def test_what_is_not_finite_is_no_observation() -> None:
    assert mean_interval([1.0, math.inf, 2.0, math.nan, -math.inf]) == mean_interval([1.0, 2.0])
    table = pl.DataFrame({"seed": [1, 2, 3], "value": [1.0, math.inf, 2.0]})
    assert mean_of_runs(table, "value").runs == ((1, 1.0), (3, 2.0))


def runs(values: dict[int, float]) -> Interval:
    return mean_of_runs(
        pl.DataFrame({"seed": list(values), "value": list(values.values())}), "value"
    )


def test_a_difference_is_paired_over_the_seeds_that_both_sides_have() -> None:
    one = {1: 10.0, 2: 20.0, 3: 30.0, 4: 40.0}
    other = {seed: value - 1 - seed / 100 for seed, value in one.items()}
    every = difference(runs(one), runs(other))
    assert every.low > 1
    assert every.n == 4
    del other[2]
    most = difference(runs(one), runs(other))
    assert most.n == 3
    assert (most.low, most.high) == pytest.approx(mean_interval([1.01, 1.03, 1.04])[1:3])
    # One seed in common has no interval of its own, and none in common no pair: both are combined.
    for seeds in ({4: 4, 5: 1}, {5: 4, 6: 1}):
        apart = difference(runs(one), runs({new: other[old] for new, old in seeds.items()}))
        assert apart.low < 0 < apart.high
    # A single run on each side: compared as it is.
    single = difference(runs({1: 3.0}), runs({1: 2.0}))
    assert single.value == 1
    assert math.isnan(single.low)


def test_wilson_agrees_with_a_published_example() -> None:
    # Newcombe, Statistics in Medicine 17 (1998): 81 of 263.
    interval = wilson(81, 263)
    assert interval.low == pytest.approx(0.2553, abs=1e-4)
    assert interval.high == pytest.approx(0.3662, abs=1e-4)


def test_wilson_stays_within_zero_and_one() -> None:
    assert wilson(0, 20).low == 0.0
    assert wilson(20, 20).high == 1.0
    assert 0 < wilson(20, 20).low < 1
    assert not wilson(0, 0).known


def test_more_successes_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="3 successes in 2"):
        wilson(3, 2)
