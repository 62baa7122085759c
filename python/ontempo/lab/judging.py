"""Checks that many claims share, and the one rule by which each of them is decided.

The rule is in ``docs/verdicts.md``. In short: a check with missing data is undecided; two estimates
whose 95 % intervals touch are indistinguishable; a value is compared with a published bound by its
estimate alone, whatever its interval.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from ontempo.lab.claims import Check
from ontempo.lab.statistics import Interval

ABOUT = 0.1
"""How far from a published value "about" reaches: one step of its last digit."""

PLAIN = (1e-3, 1e4)
"""Within these bounds a number is written without a power of ten."""

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

LISTED = 3
"""Up to so many places are listed one by one; of more, only the one that is farthest off."""

MISSING = Interval(math.nan, math.nan, math.nan, 0)
"""An estimate without observations."""

Curve = Mapping[float, Interval]
"""Estimates by place on the x axis."""

Place = Callable[[float], str]

Outcome = bool | None
"""Whether something holds; None if undecided."""


def number(value: float) -> str:
    """A value with three significant digits."""
    if math.isnan(value):
        return "none"
    if value == 0 or PLAIN[0] <= abs(value) < PLAIN[1]:
        return f"{float(f'{value:.3g}'):,g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPT)}"


def about(value: float, published: float) -> bool:
    """Whether a value is about the published one."""
    return abs(value - published) <= ABOUT + 1e-9


# One comparison.


def distinguishable(one: Interval, other: Interval) -> bool:
    """Whether the sign of the difference of two estimates is known.

    It is if their intervals do not touch, if both have no width, and, for lack of a better rule,
    if either has no interval.
    """
    if any(math.isnan(limit) for limit in (one.low, one.high, other.low, other.high)):
        return True
    if one.low == one.high and other.low == other.high:
        return True
    return one.low > other.high or other.low > one.high


def is_above(upper: Interval, lower: Interval, *, or_equal: bool = False) -> Outcome:
    """Whether the first estimate is above the second."""
    if not (upper.known and lower.known) or not distinguishable(upper, lower):
        return None
    return upper.value > lower.value or (or_equal and upper.value == lower.value)


def is_positive(difference: Interval, *, or_zero: bool = False) -> Outcome:
    """Whether a mean of paired differences is above zero."""
    if not difference.known:
        return None
    return is_above(difference, Interval(0.0, 0.0, 0.0, 1), or_equal=or_zero)


def every(outcomes: Iterable[Outcome]) -> Outcome:
    """Whether all hold: one that fails decides; None without any outcome."""
    found = list(outcomes)
    if False in found:
        return False
    return None if None in found or not found else True


def enough(outcomes: Iterable[Outcome], needed: float) -> Outcome:
    """Whether at least `needed` hold; None if the undecided ones decide it."""
    found = list(outcomes)
    if not found:
        return None
    if found.count(True) >= needed:
        return True
    return False if found.count(True) + found.count(None) < needed else None


def at(curve: Curve, place: float) -> Interval:
    """The estimate at a place, or `MISSING`."""
    return curve.get(place, MISSING)


# Checks.


def judged(
    sentence: str,
    published: str,
    measured: Callable[[], str],
    needs: Mapping[str, Interval | float | None],
    holds: Callable[[], Outcome],
    cause: str = "",
) -> Check:
    """A check of some values, by name; undecided where one of them is missing.

    A value is missing if it is None or not a number, or an estimate of no observations. `measured`
    and `holds` are called only if none is missing.
    """
    values = {name: _value(value) for name, value in needs.items()}
    missing = [name for name, value in values.items() if math.isnan(value)]
    if missing or not values:
        text = f"No data: {', '.join(missing) or 'nothing was measured'}"
        return Check(sentence, published, text, None, cause, tuple(values.values()))
    ok = holds()
    text = measured() + (INDISTINGUISHABLE if ok is None else "")
    return Check(sentence, published, text, ok, cause, tuple(values.values()))


INDISTINGUISHABLE = "; cannot be told apart: the intervals touch"


def _value(value: Interval | float | None) -> float:
    if isinstance(value, Interval):
        return value.value if value.known else math.nan
    return math.nan if value is None else float(value)


def counted(
    sentence: str, published: str, counts: tuple[int, int], what: str, cause: str = ""
) -> Check:
    """The count must be 0 of the total; undecided if the total is 0."""
    found, total = counts
    text = f"{found:,} of {total:,} {what}"
    ok = None if total == 0 else found == 0
    return Check(sentence, published, text, ok, cause, (float(found), float(total)))


def all_counted(
    sentence: str, published: str, counts: tuple[int, int], more: str = "", cause: str = ""
) -> Check:
    """The count must equal the total; undecided if the total is 0."""
    found, total = counts
    text = f"{found:,} of {total:,}{more}"
    ok = None if total == 0 else found == total
    return Check(sentence, published, text, ok, cause, (float(found), float(total)))


def above_everywhere(
    sentence: str,
    published: str,
    upper: tuple[str, Curve],
    lower: tuple[str, Curve],
    places: Sequence[float],
    place: Place = number,
    cause: str = "",
) -> Check:
    """The first curve lies above the second at every requested place."""
    (high_name, high), (low_name, low) = upper, lower
    known, unknown = _split(places, high, low)
    outcomes = {x: is_above(high[x], low[x]) for x in known}
    below = [x for x in known if outcomes[x] is False and high[x].value < low[x].value]
    ties = [x for x in known if outcomes[x] is False and high[x].value == low[x].value]
    near = [x for x in known if outcomes[x] is None]

    def beside(x: float) -> str:
        return (
            f"{high_name} {number(high[x].value)}, {low_name} {number(low[x].value)} at {place(x)}"
        )

    def farthest(found: Sequence[float]) -> str:
        if len(found) <= LISTED:
            return "; ".join(map(beside, found))
        return f"most {beside(min(found, key=lambda x: high[x].value - low[x].value))}"

    parts = []
    if below:
        parts.append(f"below at {len(below)} of {len(known)}: {farthest(below)}")
    if ties:
        equal = ", ".join(f"{number(high[x].value)} at {place(x)}" for x in ties)
        values = {high[x].value for x in ties}
        if len(ties) > LISTED and len(values) == 1:
            equal = f"{number(values.pop())}, between {place(min(ties))} and {place(max(ties))}"
        parts.append(f"equal at {len(ties)} of {len(known)}: {equal}")
    if near:
        parts.append(f"cannot be told apart at {len(near)} of {len(known)}: {farthest(near)}")
    closest = min(known, key=lambda x: high[x].value - low[x].value, default=math.nan)
    if known and not parts:
        parts.append(f"above at all {len(known)}; closest: {beside(closest)}")
    decisive = (at(high, closest).value, at(low, closest).value)
    return Check(
        sentence,
        published,
        _text(parts, unknown, place),
        every([*outcomes.values(), *(None for _ in unknown)]),
        cause,
        (float(len(below) + len(ties)), *decisive),
    )


def within_everywhere(
    sentence: str,
    published: str,
    curve: Curve,
    holds: Callable[[float], bool],
    places: Sequence[float],
    place: Place = number,
    cause: str = "",
) -> Check:
    """The curve's value satisfies a condition at every requested place."""
    outcomes = {x: holds(curve[x].value) for x in _split(places, curve)[0]}
    return _everywhere(sentence, published, curve, outcomes, places, place, cause)


def never_below_zero(
    sentence: str,
    published: str,
    differences: Curve,
    places: Sequence[float],
    place: Place = number,
    cause: str = "",
) -> Check:
    """Mean differences of paired runs are zero or more at every requested place."""
    outcomes = {
        x: is_positive(differences[x], or_zero=True) for x in _split(places, differences)[0]
    }
    return _everywhere(sentence, published, differences, outcomes, places, place, cause)


def _everywhere(
    sentence: str,
    published: str,
    curve: Curve,
    outcomes: Mapping[float, Outcome],
    places: Sequence[float],
    place: Place,
    cause: str,
) -> Check:
    known, unknown = _split(places, curve)
    failing = [x for x in known if outcomes[x] is False]
    near = [x for x in known if outcomes[x] is None]
    values = [curve[x].value for x in known]

    def listed(found: Sequence[float]) -> str:
        return "; ".join(f"{number(curve[x].value)} at {place(x)}" for x in found)

    parts = []
    if failing:
        parts.append(f"outside at {len(failing)} of {len(known)}: {listed(failing)}")
    if near:
        parts.append(f"cannot be told from zero at {len(near)} of {len(known)}: {listed(near)}")
    if known and not parts:
        parts.append(f"{number(min(values))} to {number(max(values))}, within at all {len(known)}")
    spread = (min(values), max(values)) if values else (math.nan, math.nan)
    return Check(
        sentence,
        published,
        _text(parts, unknown, place),
        every([*outcomes.values(), *(None for _ in unknown)]),
        cause,
        (float(len(failing)), *spread),
    )


def monotone(
    sentence: str,
    published: str,
    curve: Curve,
    places: Sequence[float],
    *,
    rising: bool,
    strictly: bool = True,
    place: Place = number,
    cause: str = "",
) -> Check:
    """The curve rises (or falls) from each requested place to the next."""
    known, unknown = _split(sorted(set(places)), curve)
    if len(known) < 2:  # noqa: PLR2004 - two points make a step
        text = _text(["Too few data"], unknown, place)
        return Check(sentence, published, text, None, cause, (math.nan,) * 3)

    def goes_on(a: float, b: float) -> Outcome:
        upper, lower = (curve[b], curve[a]) if rising else (curve[a], curve[b])
        return is_above(upper, lower, or_equal=not strictly)

    outcomes = {(a, b): goes_on(a, b) for a, b in pairwise(known)}
    parts = []
    for words, outcome in (("not from", False), ("cannot be told apart", None)):
        found = [step for step, result in outcomes.items() if result is outcome]
        if found:
            listed = "; ".join(
                f"{number(curve[a].value)} at {place(a)}, {number(curve[b].value)} at {place(b)}"
                for a, b in found
            )
            parts.append(f"{words}: {listed}")
    first, last = curve[known[0]].value, curve[known[-1]].value
    if not parts:
        parts.append(f"from {number(first)} to {number(last)}")
    return Check(
        sentence,
        published,
        _text(parts, unknown, place),
        every([*outcomes.values(), *(None for _ in unknown)]),
        cause,
        (float(list(outcomes.values()).count(False)), first, last),
    )


def _split(places: Sequence[float], *curves: Curve) -> tuple[list[float], list[float]]:
    known = [x for x in places if all(at(curve, x).known for curve in curves)]
    return known, [x for x in places if x not in known]


def _text(parts: Sequence[str], unknown: Sequence[float], place: Place) -> str:
    text = ". ".join(part[:1].upper() + part[1:] for part in parts) or "No data"
    return text + (f". Nothing at {', '.join(map(place, unknown))}" if unknown else "")
