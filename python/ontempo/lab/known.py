"""Causes bound to the values that were measured when they were found.

A cause explains a measurement, not a check: if other values are measured, it is no longer known to
be the cause. ``known.toml`` beside a paper's claims lists, for each differing check with a cause,
the values that decided it then, and the bounds within which the cause was found to hold. Outside of
them, and without an entry, the cause is not shown, and the check's `doubt` gives the reason.

``ontempo-lab reproduce --quick --bind-causes`` writes entries for causes without a valid one. An
entry that still holds is not changed, so that bounds can be narrowed by hand.
"""

import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ontempo.lab.claims import Check, Finding
from ontempo.lab.errors import BadInputError
from ontempo.lab.judging import number
from ontempo.lab.toml_text import toml

FILE = "known.toml"

SPREAD = 0.1
"""How far from a value, as a part of it, a bound is set; as for differences from ns-2."""

REAL_SPREAD = 0.5
"""The same with real packets, of which no two runs are equal."""

DIGITS = 6
"""Significant digits of a written value: more than two machines can differ in."""

HEAD = """\
# Causes of differences, and what was measured when they were found: a cause is shown only
# between these bounds. Written by `ontempo-lab reproduce --quick --bind-causes`; do so after
# looking whether a cause still is one. Bounds may be narrowed by hand.
"""

Key = tuple[str, str]
"""A claim's id and the sentence of a check."""


@dataclass(frozen=True)
class Bounds:
    """Values that decided a check when its cause was found, and the range of each."""

    found: tuple[float, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]

    def hold(self, values: Sequence[float]) -> bool:
        """Whether these values are between the bounds; a missing one only where one was missing."""
        if len(values) != len(self.found):
            return False
        return all(
            (math.isnan(value) and math.isnan(low)) or low <= value <= high
            for value, low, high in zip(values, self.least, self.most, strict=True)
        )


def bounds_around(values: Sequence[float], spread: float = SPREAD) -> Bounds:
    """Bounds that lie this part of each value away from it."""
    found = tuple(map(_rounded, values))
    least, most = (
        tuple(_rounded(value * (1 + sign * math.copysign(spread, value))) for value in found)
        for sign in (-1, 1)
    )
    return Bounds(found, least, most)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def read_known(folder: Path) -> dict[Key, Bounds]:
    """The entries of a paper's folder; empty without the file."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        return {
            (str(one["claim"]), str(one["check"])): Bounds(
                *(tuple(map(float, one[name])) for name in ("found", "least", "most"))
            )
            for one in content.get("cause", [])
        }
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{path}: {error}") from error


def known_text(known: Mapping[Key, Bounds]) -> str:
    """The file, in the order of its entries' names."""
    parts = [HEAD]
    for (claim, check), bounds in sorted(known.items()):
        lines = ["[[cause]]", f"claim = {toml(claim)}", f"check = {toml(check)}"]
        lines += [
            f"{name} = {_array(getattr(bounds, name))}" for name in ("found", "least", "most")
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def bound_anew(
    known: Mapping[Key, Bounds], findings: Mapping[str, Finding], real: Collection[str] = ()
) -> dict[Key, Bounds]:
    """The entries after these findings: those that hold unchanged, the others replaced.

    Claims that were not judged keep their entries. `real` are the claims judged by real packets.
    """
    entries = {key: bounds for key, bounds in known.items() if key[0] not in findings}
    for claim, finding in findings.items():
        for check in finding.checks:
            if check.ok is False and check.cause:
                spread = REAL_SPREAD if claim in real else SPREAD
                bounds = known.get((claim, check.sentence))
                if bounds is None or not bounds.hold(check.values):
                    bounds = bounds_around(check.values, spread)
                entries[claim, check.sentence] = bounds
    return entries


def with_known_causes(claim: str, finding: Finding, known: Mapping[Key, Bounds]) -> Finding:
    """The finding with only those causes that are bound to the measured values."""
    checks = [_bound(check, known.get((claim, check.sentence))) for check in finding.checks]
    return replace(finding, checks=checks)


def _bound(check: Check, bounds: Bounds | None) -> Check:
    if check.ok is not False or not check.cause:
        return check
    if bounds is None:
        doubt = f"no cause is bound to what is measured: {_values(check.values)}"
        return replace(check, cause="", doubt=doubt)
    if bounds.hold(check.values):
        return check
    doubt = (
        f"the cause is no longer known: it was found at {_values(bounds.found)}, now"
        f" {_values(check.values)} is measured"
    )
    return replace(check, cause="", doubt=doubt)


def _values(values: Sequence[float]) -> str:
    return ", ".join(map(number, values)) or "nothing"


def _array(values: Sequence[float]) -> str:
    return f"[{', '.join(repr(value) for value in values)}]"
