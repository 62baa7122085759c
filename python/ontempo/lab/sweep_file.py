"""The study file: scenario, axes, seeds, and the columns computed of each run.

Its format: docs/studies.md. Errors name the file, the field, and what would be right.
"""

import math
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from ontempo.lab.cells import Label
from ontempo.lab.errors import BadInputError
from ontempo.lab.statistics import CONFIDENCE
from ontempo.lab.toml_text import toml

FIELDS = ("title", "scenario", "set", "axes", "seeds", "columns", "tables", "interval", "stop")
RANGE = {"from", "to", "step", "points", "scale", "unit"}
RESERVED = ("cell", "seed", "seeds", "replicate", "batch", "n", "narrow")
SPAN = re.compile(r"(\d+)\.\.(\d+)")
MAX_VALUES = 100_000
"""A range with more is taken for a mistake."""

MAX_SEEDS = 1_000_000
"""More seeds, points or batches are taken for a mistake."""

LAST_SEED = 2**64 - 1
"""The simulator's seeds have 64 bits."""


@dataclass(frozen=True)
class Value:
    """A place on an axis: its label, and the values that it sets in the scenario."""

    label: Label
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Axis:
    """A varied key; `name` heads its column."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Seeds:
    """Seeds of each point: `given`, or `count` seeds derived from the cell's content."""

    count: int = 1
    given: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.given) or self.count


@dataclass(frozen=True)
class Spread:
    """Observations of an interval: one a seed, or one a batch of a run's measured time."""

    by: Literal["seed", "batch"] = "seed"
    batches: int = 20
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class Stop:
    """When a point has been run often enough.

    `relative` and `absolute` are half-widths of the interval of `column`; either suffices.
    """

    column: str
    relative: float = 0.0
    absolute: float = 0.0
    confidence: float = CONFIDENCE
    least: int = 5
    most: int = 50


@dataclass(frozen=True)
class SweepFile:
    """A study as written."""

    path: Path
    scenario: Path
    title: str = ""
    fixed: tuple[str, ...] = ()
    axes: tuple[Axis, ...] = ()
    seeds: Seeds = Seeds()
    columns: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    interval: Spread = Spread()
    stop: Stop | None = None


def read_sweep(path: Path) -> SweepFile:
    """Read a study file, or raise `BadInputError`."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInputError(f"{path}: cannot read the study: {reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path}: this is not TOML: {error}") from error
    return _Reader(path).study(content)


class _Reader:
    """Reads one file; every error begins with its name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, where: str, what: str) -> BadInputError:
        return BadInputError(f"{self.path}: {where}: {what}")

    def known(self, table: Mapping[str, Any], fields: Sequence[str], where: str = "") -> None:
        for name in table:
            if name not in fields:
                near = get_close_matches(name, fields, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(fields)}"
                raise self.fail(f"{where}{name}", f"no such field{hint}")

    def study(self, content: Mapping[str, Any]) -> SweepFile:
        self.known(content, FIELDS)
        if "scenario" not in content:
            raise self.fail("scenario", 'is missing; name a file, as in scenario = "network.toml"')
        scenario = self.path.parent / self.typed(content, "scenario", str, "a file's name")
        if not scenario.is_file():
            raise self.fail("scenario", f"there is no file {scenario}")
        columns = self.columns(content)
        tables = self.names(content, "tables")
        if not columns and not tables:
            raise self.fail(
                "columns",
                'nothing is computed of the runs; add [columns], as in goodput = "AVG(goodput_bps)'
                ' FROM flows", or tables = ["flows"]',
            )
        fixed = self.overrides(content.get("set", {}), "set")
        axes = tuple(self.axes(content.get("axes", {})))
        self.apart(fixed, axes, columns)
        spread = self.spread(content)
        stop = self.stop(content, columns, spread)
        return SweepFile(
            self.path,
            scenario,
            self.typed(content, "title", str, "a text") if "title" in content else self.path.stem,
            fixed,
            axes,
            self.seeds(content, stop),
            columns,
            tables,
            spread,
            stop,
        )

    def typed(self, table: Mapping[str, Any], name: str, kind: type, what: str) -> Any:
        value = table[name]
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise self.fail(name, f"{value!r} is not {what}")
        return value

    def number(
        self, table: Mapping[str, Any], where: str, default: float, low: float, high: float
    ) -> float:
        value = table.get(where.rpartition(".")[2], default)
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not (low < value < high):
            raise self.fail(where, f"{value!r} is not a number between {low:g} and {high:g}")
        return float(value)

    def whole(self, table: Mapping[str, Any], where: str, default: int, least: int) -> int:
        value = table.get(where.rpartition(".")[2], default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.fail(where, f"{value!r} is not a whole number from {least} up")
        if value > MAX_SEEDS:
            raise self.fail(where, f"{value:,} is more than {MAX_SEEDS:,}")
        return value

    def columns(self, content: Mapping[str, Any]) -> dict[str, str]:
        columns = content.get("columns", {})
        if not isinstance(columns, Mapping):
            raise self.fail("columns", "is not a table of names and queries")
        for name, query in columns.items():
            if not isinstance(query, str) or "from" not in query.lower():
                example = "SUM(late) / SUM(units) FROM playout"
                raise self.fail(f"columns.{name}", f"{query!r} is not a query such as '{example}'")
            if name in RESERVED:
                raise self.fail(f"columns.{name}", "the name is taken; choose another")
        return dict(columns)

    def names(self, content: Mapping[str, Any], where: str) -> tuple[str, ...]:
        names = content.get(where, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.fail(where, f'{names!r} is not a list of names such as ["flows", "playout"]')
        return tuple(names)

    def overrides(self, table: Any, where: str) -> tuple[str, ...]:
        if not isinstance(table, Mapping):
            raise self.fail(where, "is not a table of scenario keys and values")
        return tuple(f"{key}={toml(value)}" for key, value in _leaves(table))

    def axes(self, table: Any) -> Iterator[Axis]:
        if not isinstance(table, Mapping):
            raise self.fail("axes", "is not a table of scenario keys and lists")
        for name, given in _leaves(table, stop_at=_is_range):
            where = f"axes.{name}"
            values = self.range(given, where) if isinstance(given, Mapping) else given
            if not isinstance(values, list):
                example = "[10, 20] or { from = 10, to = 40, step = 10 }"
                raise self.fail(where, f"{toml(given)} is neither a list nor a range; {example}")
            if not values:
                raise self.fail(where, "has no values, so there is nothing to run")
            axis = Axis(name, tuple(self.value(name, value) for value in values))
            labels = [value.label for value in axis.values]
            for label in labels:
                self.finite(label, where)
            if len(set(labels)) < len(labels):
                twice = next(label for label in labels if labels.count(label) > 1)
                raise self.fail(where, f"{twice} is listed twice")
            if len({isinstance(label, str) for label in labels}) > 1:
                raise self.fail(where, "mixes numbers and texts; write all of them as texts")
            yield axis

    def value(self, name: str, given: Any) -> Value:
        if isinstance(given, Mapping) and set(given) == {"label", "set"}:
            label = given["label"]
            if not isinstance(label, Label) or isinstance(label, bool):
                raise self.fail(f"axes.{name}.label", f"{label!r} is neither a text nor a number")
            return Value(label, self.overrides(given["set"], f"axes.{name}.set"))
        plain = isinstance(given, str | int | float) and not isinstance(given, bool)
        return Value(given if plain else toml(given), (f"{name}={toml(given)}",))

    def range(self, given: Mapping[str, Any], where: str) -> list[Any]:
        self.known(given, sorted(RANGE), f"{where}.")
        low, high = given["from"], given["to"]
        for end, place in (("from", low), ("to", high)):
            self.finite(place, f"{where}.{end}")
        if low > high:
            raise self.fail(where, f"runs from {low} to {high}, which is empty; swap them")
        if ("step" in given) == ("points" in given):
            raise self.fail(where, "a range has either a step or a number of points")
        logarithmic = given.get("scale", "linear") == "log"
        if given.get("scale", "linear") not in ("linear", "log"):
            raise self.fail(f"{where}.scale", f"{given['scale']!r} is neither linear nor log")
        if logarithmic and (low <= 0 or "points" not in given):
            raise self.fail(where, "a log range begins above 0 and has a number of points")
        if "points" in given:
            count = self.whole(given, f"{where}.points", 2, 2)
            self.few(count, where)
            places = _points(low, high, count, logarithmic)
        else:
            places = self.steps(low, high, given["step"], where)
        unit = given.get("unit", "")
        return [f"{_digits(place)} {unit}" for place in places] if unit else places

    def steps(self, low: float, high: float, step: Any, where: str) -> list[float]:
        if not isinstance(step, int | float) or isinstance(step, bool) or not step > 0:
            raise self.fail(f"{where}.step", f"{step!r} is not a number above 0")
        self.finite(step, f"{where}.step")
        # As written, so that 0.1 and 0.1 are 0.2.
        begin, end, each = (Fraction(repr(part)) for part in (low, high, step))
        count = (end - begin) // each + 1
        self.few(count, where)
        exact = all(isinstance(part, int) for part in (low, step))
        found = (begin + index * each for index in range(count))
        return [int(place) if exact else float(place) for place in found]

    def few(self, count: int, where: str) -> None:
        if count > MAX_VALUES:
            raise self.fail(where, f"has {count:,} values; at most {MAX_VALUES:,} are allowed")

    def finite(self, value: Any, where: str) -> None:
        if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
            raise self.fail(where, f"{value} is not a finite number")

    def apart(self, fixed: Sequence[str], axes: Sequence[Axis], columns: Mapping[str, str]) -> None:
        """No key is set twice, no column named twice, nor as the limit of another's interval."""
        taken = {override.partition("=")[0]: "set" for override in fixed}
        for axis in axes:
            for key in {o.partition("=")[0] for value in axis.values for o in value.overrides}:
                if key in taken:
                    raise self.fail(f"axes.{axis.name}", f"{key} is already set in {taken[key]}")
                taken[key] = f"axes.{axis.name}"
            if axis.name in columns or axis.name in RESERVED:
                raise self.fail(f"axes.{axis.name}", "a column has this name; choose another")
        others = {name: f"columns.{name}" for name in columns}
        others |= {axis.name: f"axes.{axis.name}" for axis in axes}
        for name in columns:
            for limit in (f"{name}_low", f"{name}_high"):
                if limit in others:
                    raise self.fail(others[limit], f"is a limit of columns.{name}; choose another")

    def seeds(self, content: Mapping[str, Any], stop: Stop | None) -> Seeds:
        given = content.get("seeds", stop.most if stop else 1)
        if isinstance(given, str) and (span := SPAN.fullmatch(given)):
            first, last = int(span[1]), int(span[2])
            if last - first >= MAX_SEEDS:
                raise self.fail("seeds", f"{given} are more than {MAX_SEEDS:,}")
            given = list(range(first, last + 1))
        if isinstance(given, list):
            good = all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in given)
            if not given or not good or len(set(given)) < len(given):
                raise self.fail("seeds", f"{given!r} is not a list of different seeds from 0 up")
            if max(given) > LAST_SEED:
                raise self.fail("seeds", f"{max(given)} is more than 2^64 - 1")
            if stop and len(given) < stop.most:
                raise self.fail("seeds", f"are {len(given)}, but stop.most is {stop.most}")
            return Seeds(given=tuple(given))
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise self.fail("seeds", f'{given!r} is neither a number, nor a list, nor like "0..9"')
        if given > MAX_SEEDS:
            raise self.fail("seeds", f"{given:,} are more than {MAX_SEEDS:,}")
        if stop and "seeds" in content:
            raise self.fail("seeds", "leave the number out: stop.least and stop.most set it")
        return Seeds(given)

    def spread(self, content: Mapping[str, Any]) -> Spread:
        table = self.section(content, "interval", ("by", "batches", "confidence"))
        by = table.get("by", "seed")
        if by not in ("seed", "batch"):
            raise self.fail("interval.by", f"{by!r} is neither seed nor batch")
        if by == "seed" and "batches" in table:
            raise self.fail("interval.batches", 'is for by = "batch"')
        return Spread(
            by,
            self.whole(table, "interval.batches", 20, 2),
            self.number(table, "interval.confidence", CONFIDENCE, 0, 1),
        )

    def stop(
        self, content: Mapping[str, Any], columns: Mapping[str, str], spread: Spread
    ) -> Stop | None:
        if "stop" not in content:
            return None
        fields = ("column", "relative", "absolute", "confidence", "least", "most")
        table = self.section(content, "stop", fields)
        column = table.get("column")
        if not isinstance(column, str) or column not in columns:
            known = ", ".join(columns) or "none"
            raise self.fail("stop.column", f"{column!r} is no column of this study; known: {known}")
        if "relative" not in table and "absolute" not in table:
            raise self.fail("stop", "has no width; add relative = 0.05, or absolute = ...")
        low = 1 if spread.by == "batch" else 2
        least = self.whole(table, "stop.least", min(5, table.get("most", 5)), low)
        return Stop(
            column,
            self.number(table, "stop.relative", 0.05, 0, 1) if "relative" in table else 0.0,
            self.number(table, "stop.absolute", 1, 0, math.inf) if "absolute" in table else 0.0,
            self.number(table, "stop.confidence", spread.confidence, 0, 1),
            least,
            self.whole(table, "stop.most", max(50, least), least),
        )

    def section(
        self, content: Mapping[str, Any], name: str, fields: Sequence[str]
    ) -> Mapping[str, Any]:
        table = content.get(name, {})
        if not isinstance(table, Mapping):
            raise self.fail(name, f"is not a table; write [{name}]")
        self.known(table, fields, f"{name}.")
        return table


def _points(low: float, high: float, count: int, logarithmic: bool) -> list[float]:
    """Places at equal distances, or ratios: whole ones exact, others of nine digits."""
    begin, end = Fraction(repr(low)), Fraction(repr(high))
    whole = all(isinstance(place, int) for place in (low, high))
    found: list[float] = []
    for index in range(count):
        share = Fraction(index, count - 1)
        place = begin + (end - begin) * share
        if logarithmic and 0 < index < count - 1:
            place = Fraction(f"{low ** float(1 - share) * high ** float(share):.9g}")
        if place.denominator == 1:
            found.append(int(place))
        else:
            found.append(float(place) if index in (0, count - 1) else float(f"{float(place):.9g}"))
    every_whole = whole and all(isinstance(place, int) for place in found)
    return found if every_whole else [float(place) for place in found]


def _digits(place: float) -> str:
    """A number without a power of ten."""
    text = str(place) if isinstance(place, int) else format(Decimal(repr(place)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _leaves(
    table: Mapping[str, Any], prefix: str = "", stop_at: Any = lambda _value: False
) -> Iterator[tuple[str, Any]]:
    """Keys with dots, whether they were written in quotes or as tables."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and not stop_at(value) and "kind" not in value:
            yield from _leaves(value, f"{name}.", stop_at)
        else:
            yield name, value


def _is_range(value: Mapping[str, Any]) -> bool:
    numbers = (value.get(end) for end in ("from", "to"))
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers)
