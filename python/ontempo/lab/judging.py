"""Checks that many claims share: one curve above another, a curve above a bound.

Every comparison is strict and made on the estimates themselves: an interval is shown beside a
value but never helps it over a bound. Where a value is missing, the check is undecided.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from ontempo.lab.claims import Check
from ontempo.lab.statistics import Interval

ABOUT = 0.1
"""How far from a published value "about" reaches: one step of its last digit."""

PLAIN = (1e-3, 1e4)
"""Within these bounds a number is written without a power of ten."""

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

LISTED = 3
"""Of how many places each value is written out; of more, the one that is farthest off."""

Curve = Mapping[float, Interval]
"""Estimates by place on the x axis."""

Place = Callable[[float], str]


def number(value: float) -> str:
    """A value as a reader wants it: three significant digits."""
    if math.isnan(value):
        return "none"
    if value == 0 or PLAIN[0] <= abs(value) < PLAIN[1]:
        return f"{float(f'{value:.3g}'):,g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPT)}"


def about(value: float, published: float) -> bool:
    """Whether a value is about the published one."""
    return abs(value - published) <= ABOUT + 1e-9


def above_everywhere(
    sentence: str,
    published: str,
    upper: tuple[str, Curve],
    lower: tuple[str, Curve],
    at: Sequence[float],
    place: Place = number,
    cause: str = "",
) -> Check:
    """The first curve lies above the second at every place."""
    (high_name, high), (low_name, low) = upper, lower
    known, unknown = _split(at, high, low)
    below = [x for x in known if high[x].value < low[x].value]
    ties = [x for x in known if high[x].value == low[x].value]

    def beside(x: float) -> str:
        return (
            f"{high_name} {number(high[x].value)}, {low_name} {number(low[x].value)} at {place(x)}"
        )

    parts = []
    if below:
        widest = min(below, key=lambda x: high[x].value - low[x].value)
        listed = "; ".join(map(beside, below)) if len(below) <= LISTED else f"most {beside(widest)}"
        parts.append(f"below at {len(below)} of {len(known)}: {listed}")
    if ties:
        equal = ", ".join(f"{number(high[x].value)} at {place(x)}" for x in ties)
        values = {high[x].value for x in ties}
        if len(ties) > LISTED and len(values) == 1:
            equal = f"{number(values.pop())}, between {place(min(ties))} and {place(max(ties))}"
        parts.append(f"equal at {len(ties)} of {len(known)}: {equal}")
    if known and not parts:
        nearest = min(known, key=lambda x: high[x].value - low[x].value)
        parts.append(f"above at all {len(known)}; closest: {beside(nearest)}")
    text = ". ".join(_capital(part) for part in parts) if parts else "No data"
    text += _missing(unknown, place)
    return Check(sentence, published, text, _outcome([*below, *ties], unknown), cause)


def within_everywhere(
    sentence: str,
    published: str,
    curve: Curve,
    holds: Callable[[float], bool],
    at: Sequence[float],
    place: Place = number,
    cause: str = "",
) -> Check:
    """The curve's value satisfies a condition at every place."""
    known, unknown = _split(at, curve)
    failing = [x for x in known if not holds(curve[x].value)]
    values = [curve[x].value for x in known]
    if failing:
        listed = "; ".join(f"{number(curve[x].value)} at {place(x)}" for x in failing)
        text = f"Outside at {len(failing)} of {len(known)}: {listed}"
    elif known:
        text = f"{number(min(values))} to {number(max(values))}, within at all {len(known)}"
    else:
        text = "No data"
    text += _missing(unknown, place)
    return Check(sentence, published, text, _outcome(failing, unknown), cause)


def monotone(
    sentence: str,
    published: str,
    curve: Curve,
    *,
    rising: bool,
    strictly: bool = True,
    place: Place = number,
    cause: str = "",
) -> Check:
    """The curve rises (or falls) from each place to the next."""
    places = sorted(x for x, interval in curve.items() if interval.known)
    sign = 1 if rising else -1

    def goes_on(step: float) -> bool:
        return step > 0 if strictly else step >= 0

    failing = [
        (a, b) for a, b in pairwise(places) if not goes_on(sign * (curve[b].value - curve[a].value))
    ]
    if len(places) < 2:  # noqa: PLR2004 - two points make a step
        return Check(sentence, published, "Too few data", None, cause)
    if failing:
        text = "; ".join(
            f"{number(curve[a].value)} at {place(a)}, {number(curve[b].value)} at {place(b)}"
            for a, b in failing
        )
        text = f"Not from: {text}"
    else:
        first, last = places[0], places[-1]
        text = f"From {number(curve[first].value)} to {number(curve[last].value)}"
    return Check(sentence, published, text, not failing, cause)


def _split(at: Sequence[float], *curves: Curve) -> tuple[list[float], list[float]]:
    known = [x for x in at if all(x in curve and curve[x].known for curve in curves)]
    return known, [x for x in at if x not in known]


def _outcome(failing: Sequence[object], unknown: Sequence[float]) -> bool | None:
    if failing:
        return False
    return None if unknown else True


def _missing(unknown: Sequence[float], place: Place) -> str:
    return f". Nothing at {', '.join(map(place, unknown))}" if unknown else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
