"""Checks that can hold, fail, and be undecided."""

import math

import pytest

from ontempo.lab.claims import Check, Finding, Verdict
from ontempo.lab.judging import about, above_everywhere, monotone, number, within_everywhere
from ontempo.lab.statistics import Interval


def curve(*values: float) -> dict[float, Interval]:
    return {
        float(place): Interval(value, value - 0.5, value + 0.5, 0 if math.isnan(value) else 9)
        for place, value in enumerate(values, 1)
    }


AT = [1.0, 2.0, 3.0]


def above(upper: dict[float, Interval], lower: dict[float, Interval]) -> Check:
    return above_everywhere("", "", ("A", upper), ("B", lower), AT)


def test_above_holds_only_if_strictly_above_at_every_place() -> None:
    assert above(curve(2, 3, 4), curve(1, 2, 3)).ok is True
    assert above(curve(2, 3, 3), curve(1, 2, 3)).ok is False
    assert above(curve(2, 1, 4), curve(1, 2, 3)).ok is False


def test_above_tells_a_tie_from_a_reversal() -> None:
    text = above(curve(2, 1, 3), curve(1, 2, 3)).measured
    assert "Below at 1 of 3: A 1, B 2 at 2" in text
    assert "Equal at 1 of 3: 3 at 3" in text


def test_a_missing_place_leaves_above_undecided_unless_another_fails() -> None:
    assert above(curve(2, math.nan, 4), curve(1, 2, 3)).ok is None
    assert above(curve(2, 3), curve(1, 2, 3)).ok is None
    assert above(curve(0, math.nan, 4), curve(1, 2, 3)).ok is False


def test_an_interval_does_not_help_a_value_over_a_bound() -> None:
    check = within_everywhere("", "", curve(0.9, 0.96), lambda v: v >= 0.95, [1.0, 2.0])
    assert check.ok is False
    assert "0.9 at 1" in check.measured
    assert within_everywhere("", "", curve(0.95), lambda v: v >= 0.95, [1.0]).ok is True
    assert within_everywhere("", "", {}, lambda v: v >= 0.95, [1.0]).ok is None


@pytest.mark.parametrize(
    ("values", "strictly", "ok"),
    [
        ((1, 2, 3), True, True),
        ((1, 2, 2), True, False),
        ((1, 2, 2), False, True),
        ((1, 3, 2), False, False),
        ((1,), False, None),
    ],
)
def test_a_rise_is_checked_step_by_step(
    values: tuple[float, ...], strictly: bool, ok: bool | None
) -> None:
    assert monotone("", "", curve(*values), rising=True, strictly=strictly).ok is ok


def test_about_reaches_one_tenth_and_no_further() -> None:
    assert about(1.9, 2.0)
    assert about(2.1, 2.0)
    assert not about(2.11, 2.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.12345, "0.123"), (1234.0, "1,230"), (math.nan, "none"), (2e-5, "2.0·10⁻⁵")],
)
def test_numbers_read_as_people_write_them(value: float, text: str) -> None:
    assert number(value) == text


def verdict(*outcomes: bool | None) -> Verdict:
    return Finding([], [Check("", "", "", ok) for ok in outcomes]).verdict


def test_a_claim_is_reproduced_only_if_every_check_holds() -> None:
    assert verdict(True, True) is Verdict.REPRODUCED
    assert verdict(True, None) is Verdict.NOT_YET
    assert verdict(True, False, None) is Verdict.DIFFERS
    assert verdict() is Verdict.NOT_YET


def test_many_places_are_summed_up_and_few_are_listed() -> None:
    low = {float(x): Interval(0.1 * x, 0, 1, 9) for x in range(6)}
    high = {float(x): Interval(0.0, 0, 1, 9) for x in range(6)}
    many = above_everywhere("", "", ("A", high), ("B", low), list(low))
    assert many.measured == "Below at 5 of 6: most A 0, B 0.5 at 5. Equal at 1 of 6: 0 at 0"
    few = above_everywhere("", "", ("A", high), ("B", low), [1.0, 2.0])
    assert few.measured == "Below at 2 of 2: A 0, B 0.1 at 1; A 0, B 0.2 at 2"
    same = above_everywhere("", "", ("A", high), ("B", high), list(high))
    assert same.measured == "Equal at 6 of 6: 0, between 0 and 5"
