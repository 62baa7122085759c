"""Checks that can hold, fail, and be undecided."""

import math

import polars as pl
import pytest

from ontempo.lab.claims import Check, Finding
from ontempo.lab.figure_html import figure_html
from ontempo.lab.judging import (
    MISSING,
    Curve,
    about,
    above_everywhere,
    all_counted,
    counted,
    enough,
    every,
    is_above,
    is_positive,
    judged,
    monotone,
    never_below_zero,
    number,
    within_everywhere,
)
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.statistics import Interval, difference, mean_interval, mean_of_runs
from ontempo.lab.verdicts_output import checks_as_dicts


def curve(*values: float, half: float = 0.4) -> dict[float, Interval]:
    return {
        float(place): Interval(value, value - half, value + half, 0 if math.isnan(value) else 9)
        for place, value in enumerate(values, 1)
    }


AT = [1.0, 2.0, 3.0]


def above(upper: dict[float, Interval], lower: dict[float, Interval]) -> Check:
    return above_everywhere("", "", ("A", upper), ("B", lower), AT)


def test_above_holds_only_if_strictly_above_at_every_place() -> None:
    assert above(curve(2, 3, 4), curve(1, 2, 3)).ok is True
    assert above(curve(2, 3, 3, half=0.0), curve(1, 2, 3, half=0.0)).ok is False
    assert above(curve(2, 3, 3), curve(1, 2, 3)).ok is None
    assert above(curve(2, 1, 4), curve(1, 2, 3)).ok is False


def test_above_distinguishes_a_tie_from_a_reversal() -> None:
    text = above(curve(2, 1, 3, half=0.0), curve(1, 2, 3, half=0.0)).measured
    assert "Below at 1 of 3: A 1, B 2 at 2" in text
    assert "Equal at 1 of 3: 3 at 3" in text


def test_a_missing_place_leaves_above_undecided_unless_another_fails() -> None:
    assert above(curve(2, math.nan, 4), curve(1, 2, 3)).ok is None
    assert above(curve(2, 3), curve(1, 2, 3)).ok is None
    assert above(curve(0, math.nan, 4), curve(1, 2, 3)).ok is False


def test_an_interval_neither_helps_a_value_over_a_bound_nor_takes_it_back() -> None:
    def at_least(points: Curve) -> Check:
        return within_everywhere("", "", points, lambda v: v >= 0.95, [1.0, 2.0])

    check = at_least(curve(0.9, 0.96))
    assert check.ok is False
    assert "0.9 at 1" in check.measured
    assert at_least(curve(0.95, 0.96)).ok is True


@pytest.mark.parametrize("places", [[], [1.0, 2.0], [1.0, 2.0, 3.0]])
def test_without_places_or_without_values_nothing_holds(places: list[float]) -> None:
    """Without requested places, or without values, a check is undecided."""
    empty: Curve = {}
    for points in (empty, curve(math.nan, math.nan, math.nan)):
        checks = [
            above_everywhere("", "", ("A", points), ("B", points), places),
            within_everywhere("", "", points, lambda _v: True, places),
            never_below_zero("", "", points, places),
            monotone("", "", points, places, rising=True),
        ]
        for check in checks:
            assert check.ok is None
            assert "o data" in check.measured or "Too few data" in check.measured
            assert all(f"{place:g}" in check.measured for place in places)


def test_a_place_that_is_missing_is_named_and_one_that_fails_decides() -> None:
    partly = curve(1, math.nan, 3)
    held = within_everywhere("", "", partly, lambda v: v > 0, AT)
    assert (held.ok, "Nothing at 2" in held.measured) == (None, True)
    assert within_everywhere("", "", partly, lambda v: v > 1, AT).ok is False
    rise = monotone("", "", partly, AT, rising=True)
    assert (rise.ok, "Nothing at 2" in rise.measured) == (None, True)
    assert monotone("", "", partly, AT, rising=False).ok is False
    assert never_below_zero("", "", partly, AT).ok is None
    assert never_below_zero("", "", curve(-1, math.nan, 3), AT).ok is False


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (Interval(2, 1.5, 2.5, 9), Interval(1, 0.5, 1.4, 9), True),
        # They touch, but the root of the sum of squares of 0.5 and 0.6 is less than 1.
        (Interval(2, 1.5, 2.5, 9), Interval(1, 0.5, 1.6, 9), True),
        (Interval(2, 1.2, 2.8, 9), Interval(1, 0.3, 1.7, 9), False),
        (Interval(2, math.nan, math.nan, 1), Interval(1, 0.5, 2.5, 9), True),
        (Interval(2, 2, 2, 9), Interval(1, 0, 3, 9), False),
    ],
)
def test_estimates_without_common_seeds_are_apart_by_both_of_their_limits(
    one: Interval, other: Interval, apart: bool
) -> None:
    assert is_above(one, other) is (True if apart else None)
    assert is_above(other, one) is (False if apart else None)


def of_runs(*values: float) -> Interval:
    return mean_of_runs(pl.DataFrame({"seed": range(len(values)), "x": values}), "x")


def test_a_comparison_is_paired_by_seed() -> None:
    """What seeds have in common hides no difference, and one seed's luck makes none."""
    low, high = of_runs(1.0, 5.0, 9.0), of_runs(1.5, 5.4, 9.6)
    assert low.high > high.low
    assert (is_above(high, low), is_above(low, high)) == (True, False)
    mixed = of_runs(1.5, 4.9, 9.6)
    assert is_above(mixed, low) is is_above(low, mixed) is None
    apart = difference(high, low)
    assert apart.value == pytest.approx(0.5)
    assert apart.low == pytest.approx(0.5 - 4.303 * 0.1 / math.sqrt(3), abs=1e-3)
    other_seeds = high._replace(runs=tuple((seed + 2, value) for seed, value in high.runs))
    assert is_above(other_seeds, low) is None


def test_a_place_that_pairs_contradict_is_named_though_the_means_do_not() -> None:
    high = {1.0: mean_of_runs(pl.DataFrame({"seed": [1, 2, 3], "x": [1.0, 2.0, 99.0]}), "x")}
    low = {1.0: of_runs(0.0, 2.0, 3.1)._replace(value=2.55, runs=((1, 2.0), (2, 3.1)))}
    check = above_everywhere("", "", ("A", high), ("B", low), [1.0])
    assert check.ok is False
    assert check.measured == "Below at 1 of 1: A 34, B 2.55 at 1"


def test_an_infinite_value_has_words_and_a_figure_has_no_place_for_it() -> None:
    assert number(math.inf) == "infinite"
    assert number(-math.inf) == "-infinite"
    assert not exact(math.inf).known
    points = {1.0: exact(2.0), 2.0: exact(math.inf)}
    figure = Figure("", Axis("x"), Axis("y"), [View("", [Series("A", "pert", points)])])
    assert "Infinity" not in figure_html(figure, "it")
    check = judged("S.", "P", lambda: "M", {"the place": math.inf}, lambda: False)
    (written,) = checks_as_dicts(Finding([], [check]))
    assert written["values"] == [None]
    assert written["ok"] is False


def test_a_table_with_several_rows_of_a_seed_has_no_value_of_a_run() -> None:
    table = pl.DataFrame({"seed": [0, 0, 1], "x": [1.0, 2.0, 3.0]})
    assert mean_of_runs(table, "x").runs == ()
    assert mean_of_runs(table.unique("seed"), "x").runs != ()
    assert mean_of_runs(table.drop("seed"), "x") == mean_interval([1.0, 2.0, 3.0])
    assert of_runs(1.0, math.nan, 3.0).runs == ((0, 1.0), (2, 3.0))
    assert of_runs(1.0, 3.0).scaled(2.0) == of_runs(2.0, 6.0)


def test_a_tie_at_saturation_is_named_and_is_no_failure() -> None:
    def beside(upper: Curve, lower: Curve, ends: tuple[float, ...]) -> Check:
        return above_everywhere("", "", ("A", upper), ("B", lower), AT, ends=ends)

    high, low = curve(2, 3, 1, half=0.0), curve(1, 2, 1, half=0.0)
    held = beside(high, low, (1.0,))
    assert held.ok is True
    assert held.measured == "Above at 2 of 3. Both at the end of what is possible at 1 of 3: 1 at 3"
    assert beside(high, low, ()).ok is beside(high, low, (0.0,)).ok is False
    everywhere = beside(curve(1, 1, 1), curve(1, 1, 1), (1.0,))
    assert everywhere.ok is None
    below = beside(curve(0.5, 3, 1, half=0.0), low, (1.0,))
    assert below.ok is False
    flat = curve(0, 0, 2, half=0.0)
    rise = monotone("", "", flat, AT, rising=True, ends=(0.0,))
    assert (rise.ok, "Both at the end" in rise.measured) == (True, True)
    assert monotone("", "", flat, AT, rising=True).ok is False
    assert monotone("", "", curve(0, 0, 0), AT, rising=True, ends=(0.0,)).ok is None


def test_of_two_exact_values_a_tie_is_known() -> None:
    two = Interval(2, 2, 2, 3)
    assert is_above(two, two) is False
    assert is_above(two, two, or_equal=True) is True
    assert is_above(two, MISSING) is is_above(MISSING, two) is None


def test_a_paired_difference_is_compared_with_zero_by_its_interval() -> None:
    assert is_positive(Interval(1, 0.1, 1.9, 5)) is True
    assert is_positive(Interval(-1, -1.9, -0.1, 5)) is False
    assert is_positive(Interval(1, -0.1, 2.1, 5)) is None
    assert is_positive(Interval(-0.1, -1.1, 0.9, 5), or_zero=True) is None
    assert is_positive(Interval(0, 0, 0, 5)) is False
    assert is_positive(Interval(0, 0, 0, 5), or_zero=True) is True
    assert is_positive(Interval(0.1, math.nan, math.nan, 1)) is True
    assert is_positive(MISSING) is None


def test_a_gain_that_may_be_a_loss_is_undecided_and_named() -> None:
    check = never_below_zero("", "", curve(1, 0.1, 2), AT)
    assert check.ok is None
    assert check.measured == "Within at 2 of 3. Cannot be told from zero at 1 of 3: 0.1 at 2"
    assert never_below_zero("", "", curve(1, 0.5, 2), AT).ok is True
    failing = never_below_zero("", "", curve(1, 0.1, -2), AT)
    assert failing.ok is False
    assert "Outside at 1 of 3: -2 at 3" in failing.measured


def test_indistinguishable_curves_are_neither_above_nor_below() -> None:
    near = above(curve(2.1, 3, 4), curve(2, 2, 2))
    assert near.ok is None
    assert near.measured == "Above at 2 of 3. Cannot be told apart at 1 of 3: A 2.1, B 2 at 1"
    assert above(curve(1.9, 3, 4), curve(2, 2, 2)).ok is None
    assert above(curve(1.9, 1, 4), curve(2, 2, 2)).ok is False
    assert above(curve(2.1, 3, 4, half=0.0), curve(2, 2, 2, half=0.0)).ok is True


def test_a_step_with_indistinguishable_ends_is_neither_up_nor_down() -> None:
    for strictly in (True, False):
        for second in (1.9, 2.0, 2.1):
            check = monotone("", "", curve(1, 2, second), AT, rising=True, strictly=strictly)
            assert check.ok is None
            assert "Cannot be told apart: 2 at 2" in check.measured


def test_all_hold_only_where_there_are_some_and_enough_where_it_cannot_change() -> None:
    assert every([]) is None
    assert every([True, None]) is None
    assert every([True, None, False]) is False
    assert every([True, True]) is True
    assert enough([], 0) is None
    assert enough([True, True, None, False], 2) is True
    assert enough([True, False, None, False], 2) is None
    assert enough([True, False, False, False], 2) is False


def test_none_of_nothing_and_all_of_nothing_are_undecided() -> None:
    assert [
        counted("", "", (lost, sent), "lost").ok for lost, sent in ((0, 9), (1, 9), (0, 0))
    ] == [
        True,
        False,
        None,
    ]
    assert [all_counted("", "", both).ok for both in ((9, 9), (8, 9), (0, 0))] == [
        True,
        False,
        None,
    ]


def test_a_judgement_needs_all_its_values() -> None:
    def of(value: Interval | float | None) -> Check:
        return judged("", "", lambda: "measured", {"the rate": value}, lambda: value != 2.0)

    assert (of(1.0).ok, of(1.0).measured) == (True, "measured")
    assert of(2.0).ok is False
    for missing in (None, math.nan, MISSING, Interval(math.nan, 0, 1, 5)):
        assert (of(missing).ok, of(missing).measured) == (None, "No data: the rate")
    nothing = judged("", "", lambda: "measured", {}, lambda: True)
    assert (nothing.ok, nothing.measured) == (None, "No data: nothing was measured")
    near = judged("", "", lambda: "1 and 2", {"the rate": 1.0}, lambda: None)
    assert (near.ok, near.measured) == (
        None,
        "1 and 2; cannot be told apart: the interval of the difference contains zero",
    )


@pytest.mark.parametrize(
    ("values", "strictly", "ok"),
    [
        ((1, 2, 3), True, True),
        ((1, 2, 2), True, None),
        ((1, 2, 2), False, None),
        ((1, 3, 2), False, False),
        ((1,), False, None),
    ],
)
def test_a_rise_is_checked_step_by_step(
    values: tuple[float, ...], strictly: bool, ok: bool | None
) -> None:
    assert (
        monotone("", "", curve(*values), AT[: len(values)], rising=True, strictly=strictly).ok is ok
    )


def test_about_reaches_one_tenth_and_no_further() -> None:
    assert about(1.9, 2.0)
    assert about(2.1, 2.0)
    assert not about(2.11, 2.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.12345, "0.123"), (1234.0, "1,230"), (math.nan, "none"), (2e-5, "2.0·10⁻⁵")],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


def finding(*outcomes: bool | None) -> Finding:
    return Finding([], [Check(f"{place}", "", "", ok) for place, ok in enumerate(outcomes)])


def test_a_finding_holds_only_if_every_check_does() -> None:
    assert finding(True, True).holds is True
    assert finding(True, None).holds is None
    assert finding(True, False, None).holds is False
    assert finding().holds is None
    assert finding(True, False, None, True).held == 2
    assert finding(True, False).check("1") == Check("1", "", "", False)
    assert finding(True, False).check("") == Check("0", "", "", True)
    assert finding().check("") is finding(True).check("other") is None


def test_many_places_are_summed_up_and_few_are_listed() -> None:
    low = {float(x): exact(0.1 * x) for x in range(6)}
    high = {float(x): exact(0.0) for x in range(6)}
    many = above_everywhere("", "", ("A", high), ("B", low), list(low))
    assert many.measured == "Below at 5 of 6: most A 0, B 0.5 at 5. Equal at 1 of 6: 0 at 0"
    few = above_everywhere("", "", ("A", high), ("B", low), [1.0, 2.0])
    assert few.measured == "Below at 2 of 2: A 0, B 0.1 at 1; A 0, B 0.2 at 2"
    same = above_everywhere("", "", ("A", high), ("B", high), list(high))
    assert same.measured == "Equal at 6 of 6: 0, between 0 and 5"
