"""Checks that many claims share, and the one rule by which each of them is decided.

The rule is in ``docs/verdicts.md``. In short: a check with missing data is undecided; of two
estimates one is the larger only if the interval of their difference excludes zero, paired by seed
where both have the same seeds; a value is compared with a published bound by its estimate alone,
whatever its interval.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from ontempo.lab.claims import Check
from ontempo.lab.statistics import Interval, difference

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
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if value == 0 or PLAIN[0] <= abs(value) < PLAIN[1]:
        return f"{float(f'{value:.3g}'):,g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPT)}"


def about(value: float, published: float) -> bool:
    """Whether a value is about the published one."""
    return abs(value - published) <= ABOUT + 1e-9


# One comparison.


def is_above(upper: Interval, lower: Interval, *, or_equal: bool = False) -> Outcome:
    """Whether the first estimate is above the second, by the interval of their difference.

    Without an interval, the two values are compared. A difference of exactly zero in every run is
    a tie: not above, but equal.
    """
    apart = difference(upper, lower)
    if not apart.known:
        return None
    if math.isnan(apart.low) or math.isnan(apart.high) or apart.exact:
        return apart.value > 0 or (or_equal and apart.value == 0)
    if apart.low > 0 or (or_equal and apart.low >= 0):
        return True
    return False if apart.high < 0 or (not or_equal and apart.high <= 0) else None


def is_positive(found: Interval, *, or_zero: bool = False) -> Outcome:
    """Whether a mean of paired differences is above zero."""
    if not found.known:
        return None
    return is_above(found, Interval(0.0, 0.0, 0.0, 1), or_equal=or_zero)


def saturated(one: Interval, other: Interval, ends: Collection[float]) -> bool:
    """Whether both estimates are exactly the same end of what their quantity can be."""
    return one.known and other.known and one.value == other.value and one.value in ends


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


INDISTINGUISHABLE = "; cannot be told apart: the interval of the difference contains zero"


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
    ends: Collection[float] = (),
) -> Check:
    """The first curve lies above the second at every requested place.

    Where both are exactly at one of `ends`, the ends of what their quantity can be, neither can be
    above: such a place is named, and decides nothing.
    """
    (high_name, high), (low_name, low) = upper, lower
    known, unknown = _split(places, high, low)
    full = [x for x in known if saturated(high[x], low[x], ends)]
    outcomes = {x: is_above(high[x], low[x]) for x in known if x not in full}
    ties = [x for x, ok in outcomes.items() if ok is False and high[x].value == low[x].value]
    below = [x for x, ok in outcomes.items() if ok is False and x not in ties]
    near = [x for x, ok in outcomes.items() if ok is None]
    holding = sum(ok is True for ok in outcomes.values())

    def beside(x: float) -> str:
        return (
            f"{high_name} {number(high[x].value)}, {low_name} {number(low[x].value)} at {place(x)}"
        )

    def farthest(found: Sequence[float]) -> str:
        if len(found) <= LISTED:
            return "; ".join(map(beside, found))
        return f"most {beside(min(found, key=lambda x: high[x].value - low[x].value))}"

    parts = []
    if holding and holding < len(known):
        parts.append(f"above at {holding} of {len(known)}")
    if below:
        parts.append(f"below at {len(below)} of {len(known)}: {farthest(below)}")
    for what, found in (("equal", ties), ("both at the end of what is possible", full)):
        if found:
            parts.append(f"{what} at {len(found)} of {len(known)}: {_equal(found, high, place)}")
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


def _equal(found: Sequence[float], curve: Curve, place: Place) -> str:
    values = {curve[x].value for x in found}
    if len(found) > LISTED and len(values) == 1:
        return f"{number(values.pop())}, between {place(min(found))} and {place(max(found))}"
    return ", ".join(f"{number(curve[x].value)} at {place(x)}" for x in found)


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
    holding = len(known) - len(failing) - len(near)
    if holding and holding < len(known):
        parts.append(f"within at {holding} of {len(known)}")
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
    ends: Collection[float] = (),
) -> Check:
    """The curve rises (or falls) from each requested place to the next.

    A step between two values that are exactly the same of `ends` is named, and decides nothing.
    """
    known, unknown = _split(sorted(set(places)), curve)
    if len(known) < 2:  # noqa: PLR2004 - two points make a step
        text = _text(["Too few data"], unknown, place)
        return Check(sentence, published, text, None, cause, (math.nan,) * 3)

    def goes_on(a: float, b: float) -> Outcome:
        upper, lower = (curve[b], curve[a]) if rising else (curve[a], curve[b])
        return is_above(upper, lower, or_equal=not strictly)

    steps = list(pairwise(known))
    full = [(a, b) for a, b in steps if saturated(curve[a], curve[b], ends)]
    outcomes = {(a, b): goes_on(a, b) for a, b in steps if (a, b) not in full}
    parts = []
    going = sum(ok is True for ok in outcomes.values())
    if going and going < len(steps):
        parts.append(f"{'rises' if rising else 'falls'} at {going} of {len(steps)} steps")
    for words, some in (
        ("not from", [step for step, ok in outcomes.items() if ok is False]),
        ("cannot be told apart", [step for step, ok in outcomes.items() if ok is None]),
        ("both at the end of what is possible", full),
    ):
        if some:
            listed = "; ".join(
                f"{number(curve[a].value)} at {place(a)}, {number(curve[b].value)} at {place(b)}"
                for a, b in some
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
