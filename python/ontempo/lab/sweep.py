"""A sweep: every point of a grid, run until its interval is narrow enough.

Cells, store and runner are those of every study. This module adds which cells there are, which
columns are computed of each, and when a point has been run often enough. That decision uses only a
point's own values, in the order of its seeds, so it is the same wherever the cells ran.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

import polars as pl

from ontempo.lab.batches import cut
from ontempo.lab.cells import Cell, Label, Plan, Planned
from ontempo.lab.engine import Engine
from ontempo.lab.errors import BadInputError
from ontempo.lab.recorded import names, unrecorded
from ontempo.lab.statistics import Interval, mean_interval
from ontempo.lab.store import Store
from ontempo.lab.study import Progress, Silent, Study, read_whole
from ontempo.lab.sweep_file import Seeds, SweepFile

MAX_CELLS = 1_000_000
"""A grid with more is taken for a mistake."""


@dataclass(frozen=True)
class Point:
    """A place in the grid."""

    id: str
    labels: tuple[tuple[str, Label], ...]
    overrides: tuple[str, ...]
    canonical: str

    def __str__(self) -> str:
        return _place(self.labels)


@dataclass(frozen=True)
class Outcome:
    """A point after its runs: one row of values a run or batch, and an interval a column.

    `narrow` is whether the study's stopping rule was met; None if it has no rule.
    """

    point: Point
    cells: tuple[Cell, ...]
    rows: pl.DataFrame
    intervals: Mapping[str, Interval]
    narrow: bool | None


@dataclass(frozen=True)
class Swept:
    """A finished sweep."""

    file: SweepFile
    engine: str
    outcomes: tuple[Outcome, ...]
    store: Store
    keys: Mapping[Cell, str]

    def tables(self, cell: Cell) -> dict[str, pl.DataFrame]:
        """The tables of one run."""
        return read_whole(self.store, self.keys[cell])

    def summary(self) -> pl.DataFrame:
        """One row a point: its axes, how many seeds, and each column with its limits."""
        rows = []
        for outcome in self.outcomes:
            row: dict[str, Any] = {"cell": outcome.point.id, **dict(outcome.point.labels)}
            row["seeds"] = len(outcome.cells)
            for name, interval in outcome.intervals.items():
                row[name] = _or_none(interval.value)
                row[f"{name}_low"] = _or_none(interval.low)
                row[f"{name}_high"] = _or_none(interval.high)
            if outcome.narrow is not None:
                row["narrow"] = outcome.narrow
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)


def points_of(file: SweepFile, engine: Engine) -> list[Point]:
    """Every point, its scenario read: a mistake is found, and named, before anything runs."""
    _load(engine, file, file.fixed, "set" if file.fixed else "scenario")
    count = math.prod(len(axis.values) for axis in file.axes)
    if count * len(file.seeds) > MAX_CELLS:
        raise BadInputError(
            f"{file.path}: axes: {count:,} points with up to {len(file.seeds):,} seeds are more"
            f" than {MAX_CELLS:,} runs"
        )
    for axis in file.axes:
        for value in axis.values:
            _load(engine, file, (*file.fixed, *value.overrides), f"axes.{axis.name}")
    points = []
    for values in product(*(axis.values for axis in file.axes)):
        overrides = (*file.fixed, *(one for value in values for one in value.overrides))
        canonical = _load(engine, file, overrides, "axes")
        labels = tuple((axis.name, v.label) for axis, v in zip(file.axes, values, strict=True))
        points.append(Point(_digest(canonical).hex()[:12], labels, overrides, canonical))
    seen: dict[str, Point] = {}
    for point in points:
        if (same := seen.setdefault(point.id, point)) is not point:
            raise BadInputError(f"{file.path}: axes: {same} and {point} are one and the same")
    return points


def seed_of(point: Point, seeds: Seeds, replicate: int) -> int:
    """A replicate's seed: as given, or from the content of the cell.

    From the content, it does not depend on the order of the axes, on what else is in the study,
    or on who runs it; and no two points share random numbers by accident.
    """
    if seeds.given:
        return seeds.given[replicate]
    return int.from_bytes(_digest(f"{point.canonical} {replicate}")[:6])


def sweep(
    file: SweepFile,
    study: Study,
    progress: Progress | None = None,
    notify: Callable[[str], None] = lambda _text: None,
) -> Swept:
    """Run a study file; `notify` receives sentences about its progress."""
    run = _Sweep(file, study, progress or Silent(), notify)
    return run.go(points_of(file, study.engine))


def planned_cells(file: SweepFile, engine: Engine) -> list[Cell]:
    """The cells that a sweep runs at least; with a stopping rule there may be more."""
    count = file.stop.least if file.stop else len(file.seeds)
    return [
        _cell(file, point, replicate)
        for point in points_of(file, engine)
        for replicate in range(count)
    ]


def _cell(file: SweepFile, point: Point, replicate: int) -> Cell:
    seed = seed_of(point, file.seeds, replicate)
    labels = (*point.labels, ("replicate", replicate))
    return Cell(file.scenario, point.overrides, seed, labels)


class _Sweep:
    """One execution: rounds of cells until every point has enough."""

    def __init__(
        self, file: SweepFile, study: Study, progress: Progress, notify: Callable[[str], None]
    ) -> None:
        self.file = file
        self.study = study
        self.progress = progress
        self.notify = notify
        self.rows: dict[Cell, list[dict[str, Any]]] = {}
        self.infinite: set[str] = set()
        self.keys: dict[Cell, str] = {}

    def go(self, points: Sequence[Point]) -> Swept:
        file = self.file
        first = file.stop.least if file.stop else len(file.seeds)
        seeds = dict.fromkeys(points, first)
        while True:
            cells = {p: tuple(_cell(file, p, i) for i in range(n)) for p, n in seeds.items()}
            plan = self.study.plan(cell for each in cells.values() for cell in each)
            for rejected in self.study.store.take_rejected():
                self.notify(f"run again: {rejected.path}: {rejected.reason}")
            self.study.run(plan, _Trying(self, self.progress))
            self.keys = {planned.cell: planned.key for planned in plan.cells}
            found = [self._outcome(point, each) for point, each in cells.items()]
            more = self._more(found)
            if not more:
                engine = self.study.engine.fingerprint()
                return Swept(file, engine, tuple(found), self.study.store, self.keys)
            seeds |= more
            self.notify(
                f"{len(more)} of {len(points)} points are not narrow enough yet:"
                f" {sum(more.values()) - sum(len(cells[p]) for p in more)} more runs"
            )

    def _outcome(self, point: Point, cells: tuple[Cell, ...]) -> Outcome:
        for cell in cells:
            if cell not in self.rows:
                tables = read_whole(self.study.store, self.keys[cell])
                self.rows[cell] = list(self.measure(cell, tables))
        table = pl.DataFrame(
            [row for cell in cells for row in self.rows[cell]], infer_schema_length=None
        )
        confidence = self.file.interval.confidence
        intervals = {
            name: mean_interval(_numbers(table[name]), confidence) for name in self.file.columns
        }
        return Outcome(point, cells, table, intervals, self._narrow(table))

    def measure(self, cell: Cell, tables: Mapping[str, pl.DataFrame]) -> Iterator[dict[str, Any]]:
        """The derived columns of one run: a row, or a row a batch."""
        labels = {**dict(cell.labels), "seed": cell.seed}
        for name in self.file.tables:
            if name not in tables:
                raise self._bad("tables", f"{name!r} is no table; known: {', '.join(tables)}")
            for axis in self.file.axes:
                if axis.name in tables[name].columns:
                    what = f"the table {name} has a column of this name; choose another"
                    raise self._bad(f"axes.{axis.name}", what)

        def canonical() -> str:
            return self.study.engine.load(cell.scenario, cell.overrides).canonical()

        lacking = unrecorded(tables, self.file.columns.values(), canonical)
        if self.file.interval.by == "seed":
            yield {**labels, **self._columns(cell, tables, lacking)}
            return
        for batch, part in enumerate(cut(tables, canonical(), self.file.interval.batches)):
            yield {**labels, "batch": batch, **self._columns(cell, part, lacking)}

    def _columns(
        self, cell: Cell, tables: Mapping[str, pl.DataFrame], lacking: Mapping[str, str]
    ) -> dict[str, float | None]:
        # No query finds a table that was not recorded: its rows are not none, but unknown.
        there = {name: table for name, table in tables.items() if name not in lacking}
        context = pl.SQLContext(there, eager=True)
        found = {name: self._query(context, name, lacking) for name in self.file.columns}
        for name, value in found.items():
            if value is not None and math.isinf(value):
                found[name] = None
                self._tell_infinite(cell, name)
        return found

    def _tell_infinite(self, cell: Cell, name: str) -> None:
        """Once a column and point: no mean can be taken of an infinite value."""
        place = _place([label for label in cell.labels if label[0] != "replicate"])
        text = (
            f"{self.file.path}: columns.{name}: infinite at {place}, as by a division by zero;"
            " counted as missing"
        )
        if text not in self.infinite:
            self.infinite.add(text)
            self.notify(text)

    def _query(
        self, context: "pl.SQLContext[pl.DataFrame]", name: str, lacking: Mapping[str, str]
    ) -> float | None:
        where, query = f"columns.{name}", self.file.columns[name].strip()
        if not query.lower().startswith(("select", "with")):
            query = f"SELECT {query}"
        try:
            found = context.execute(query, eager=True)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            for table, line in lacking.items():
                if names(query, table):
                    what = f"the runs do not record the table {table}; the scenario asks for it by"
                    raise self._bad(where, f"{what} {line}") from error
            known = ", ".join(sorted(context.tables()))
            first = str(error).strip().splitlines()[0]
            raise self._bad(where, f"{first}; tables: {known}") from error
        if found.width != 1 or found.height > 1:
            raise self._bad(
                where, f"gives {found.height} rows of {found.width} values; one value is needed"
            )
        value = found.item() if found.height else None
        if isinstance(value, Decimal):
            raise self._bad(
                where,
                "gives a decimal, in which small values are lost; write 1.0 as 1e0, or leave it",
            )
        if value is not None and not isinstance(value, int | float):
            raise self._bad(where, f"gives {value!r}, which is no number")
        return None if value is None or math.isnan(value) else float(value)

    def _bad(self, where: str, what: str) -> BadInputError:
        return BadInputError(f"{self.file.path}: {where}: {what}")

    def _narrow(self, table: pl.DataFrame) -> bool | None:
        stop = self.file.stop
        if stop is None:
            return None
        interval = mean_interval(_numbers(table[stop.column]), stop.confidence)
        half = (interval.high - interval.low) / 2
        return half <= max(stop.absolute, stop.relative * abs(interval.value))

    def _more(self, found: Sequence[Outcome]) -> dict[Point, int]:
        """How many seeds the points that are too wide get next.

        The width falls with the square root of their number, which gives an estimate; at least one
        more, at most twice as many, to bound a bad first estimate.
        """
        stop = self.file.stop
        if stop is None:
            return {}
        more = {}
        for outcome in found:
            n = len(outcome.cells)
            if outcome.narrow or n >= stop.most:
                continue
            interval = mean_interval(_numbers(outcome.rows[stop.column]), stop.confidence)
            half = (interval.high - interval.low) / 2
            target = max(stop.absolute, stop.relative * abs(interval.value))
            guess = n * (half / target) ** 2 if target > 0 and not math.isnan(half) else 2 * n
            more[outcome.point] = min(stop.most, 2 * n, max(n + 1, math.ceil(min(guess, 2 * n))))
        return more


class _Trying:
    """Evaluates the columns on the first finished run, so that a mistake in them costs one run."""

    def __init__(self, owner: _Sweep, progress: Progress) -> None:
        self.owner = owner
        self.progress = progress

    def start(self, plan: Plan) -> None:
        """Pass it on."""
        self.progress.start(plan)

    def finished(self, planned: Planned) -> None:
        """Measure the first, and pass all on."""
        if not self.owner.rows:
            tables = self.owner.study.store.read(planned.key) or {}
            self.owner.rows[planned.cell] = list(self.owner.measure(planned.cell, tables))
        self.progress.finished(planned)


def _load(engine: Engine, file: SweepFile, overrides: Sequence[str], where: str) -> str:
    """The canonical form without title and seed, which identify no point."""
    try:
        canonical = engine.load(file.scenario, overrides).canonical()
    except BadInputError as error:
        raise BadInputError(f"{file.path}: {where}: {error}") from error
    content = json.loads(canonical)
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if key not in ("title", "seed")}
    return json.dumps(content, separators=(",", ":"))


def _place(labels: Sequence[tuple[str, Label]]) -> str:
    return ", ".join(f"{name} {value}" for name, value in labels) or "the scenario itself"


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=20).digest()


def _numbers(column: pl.Series) -> list[float]:
    return [float(value) for value in column if value is not None]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
