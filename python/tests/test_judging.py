"""Checks that can hold, fail, and be undecided."""

import math

import pytest

from ontempo.lab.claims import Check, Finding, Verdict
from ontempo.lab.judging import (
    MISSING,
    Curve,
    about,
    above_everywhere,
    all_counted,
    counted,
    distinguishable,
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
from ontempo.lab.plots import exact
from ontempo.lab.statistics import Interval


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
        (Interval(2, 1.5, 2.5, 9), Interval(1, 0.5, 1.5, 9), False),
        (Interval(1, 0.5, 1.6, 9), Interval(2, 1.5, 2.5, 9), False),
        (Interval(2, math.nan, math.nan, 1), Interval(1, 0.5, 2.5, 9), True),
        (Interval(2, 2, 2, 9), Interval(2, 2, 2, 9), True),
        (Interval(2, 2, 2, 9), Interval(1, 0, 3, 9), False),
    ],
)
def test_estimates_are_distinguishable_if_their_intervals_do_not_touch(
    one: Interval, other: Interval, apart: bool
) -> None:
    assert distinguishable(one, other) is apart
    assert distinguishable(other, one) is apart
    assert is_above(one, other) is ((one.value > other.value) if apart else None)


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
    assert check.measured == "Cannot be told from zero at 1 of 3: 0.1 at 2"
    assert never_below_zero("", "", curve(1, 0.5, 2), AT).ok is True
    failing = never_below_zero("", "", curve(1, 0.1, -2), AT)
    assert failing.ok is False
    assert "Outside at 1 of 3: -2 at 3" in failing.measured


def test_indistinguishable_curves_are_neither_above_nor_below() -> None:
    near = above(curve(2.1, 3, 4), curve(2, 2, 2))
    assert near.ok is None
    assert near.measured == "Cannot be told apart at 1 of 3: A 2.1, B 2 at 1"
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
    assert (near.ok, near.measured) == (None, "1 and 2; cannot be told apart: the intervals touch")


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


def verdict(*outcomes: bool | None) -> Verdict:
    return Finding([], [Check("", "", "", ok) for ok in outcomes]).verdict


def test_a_claim_is_reproduced_only_if_every_check_holds() -> None:
    assert verdict(True, True) is Verdict.REPRODUCED
    assert verdict(True, None) is Verdict.UNDECIDED
    assert verdict(True, False, None) is Verdict.DIFFERS
    assert verdict() is Verdict.UNDECIDED


def test_many_places_are_summed_up_and_few_are_listed() -> None:
    low = {float(x): exact(0.1 * x) for x in range(6)}
    high = {float(x): exact(0.0) for x in range(6)}
    many = above_everywhere("", "", ("A", high), ("B", low), list(low))
    assert many.measured == "Below at 5 of 6: most A 0, B 0.5 at 5. Equal at 1 of 6: 0 at 0"
    few = above_everywhere("", "", ("A", high), ("B", low), [1.0, 2.0])
    assert few.measured == "Below at 2 of 2: A 0, B 0.1 at 1; A 0, B 0.2 at 2"
    same = above_everywhere("", "", ("A", high), ("B", high), list(high))
    assert same.measured == "Equal at 6 of 6: 0, between 0 and 5"
