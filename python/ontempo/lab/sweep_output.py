"""Results of a sweep: Parquet files, JSON, and a table for the terminal.

``results/cell=ID/runs.parquet``   a row a run (or batch): axes, seed, derived columns
``tables/NAME/cell=ID/SEED.parquet``  whole tables of the runs, those that the study names
``summary.parquet``                a row a cell: each column with its interval
``study.json``                     the study, its cells, and the simulator's fingerprint

Each of these is replaced whole, so that a reader never finds old and new parts mixed.
"""

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ontempo.lab.batches import lag_one
from ontempo.lab.errors import BadInputError
from ontempo.lab.folder import replace_folder, require_replaceable, unwritable, write_parquet
from ontempo.lab.narrow import Column, fitting, shown
from ontempo.lab.statistics import Interval
from ontempo.lab.sweep import Outcome, Swept

RESULT, RESULTS, TABLES = "study.json", "results", "tables"

MANY, TOO_MANY = 1e4, 1e12
"""Between these a number is written out, without a power of ten."""

MAX_PLACES = 6
"""A smaller half-width is written with a power of ten."""


def require_own(study: Path, out: Path) -> None:
    """Raise `BadInputError` if a folder holds the results of another study, or other files."""
    for name in (RESULTS, TABLES):
        require_replaceable(out / name, _has_cells)
    try:
        found = json.loads((out / RESULT).read_text("utf-8"))
        named = str(found["study"])
        other = (out / found["path"] if "path" in found else Path(named)).resolve()
    except (OSError, ValueError, TypeError, KeyError):
        return  # Nothing there, or nothing that names a study.
    if other != study.resolve():
        raise BadInputError(
            f"{out}: holds the results of {named} ({other}), not of {study}; choose another folder"
            " with --out"
        )


def _has_cells(folder: Path) -> bool:
    """Whether a folder holds nothing but tables of cells."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return all(path.suffix == ".parquet" and path.parent.name.startswith("cell=") for path in files)


def write_results(swept: Swept, out: Path) -> None:
    """Write everything; tables of an earlier version of the study go, too."""
    replace_folder(out / RESULTS, _has_cells, lambda folder: _runs(swept, folder))
    if swept.file.tables:
        replace_folder(out / TABLES, _has_cells, lambda folder: _tables(swept, folder))
    try:
        if not swept.file.tables and (out / RESULT).exists():
            require_replaceable(out / TABLES, _has_cells)
            shutil.rmtree(out / TABLES, ignore_errors=True)
        _whole(out / "summary.parquet", lambda path: write_parquet(swept.summary(), path))
        text = json_text(swept, out)
        _whole(out / RESULT, lambda path: path.write_text(f"{text}\n", "utf-8"))
    except OSError as error:
        raise unwritable(out, error) from error


def _runs(swept: Swept, folder: Path) -> None:
    for outcome in swept.outcomes:
        part = folder / f"cell={outcome.point.id}"
        part.mkdir()
        write_parquet(outcome.rows, part / "runs.parquet")


def _tables(swept: Swept, folder: Path) -> None:
    for outcome in swept.outcomes:
        for cell in outcome.cells:
            tables = swept.tables(cell)
            labels = [pl.lit(value).alias(name) for name, value in outcome.point.labels]
            for name in swept.file.tables:
                part = folder / name / f"cell={outcome.point.id}"
                part.mkdir(parents=True, exist_ok=True)
                table = tables[name].with_columns(*labels, pl.lit(cell.seed).alias("seed"))
                write_parquet(table, part / f"{cell.seed}.parquet")


def _whole(path: Path, write: Any) -> None:
    temporary = path.with_name(f".tmp-{uuid4().hex}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def json_text(swept: Swept, out: Path) -> str:
    """The sweep as JSON, without what only Python takes for JSON."""
    return json.dumps(as_dict(swept, out), indent=2, ensure_ascii=False, allow_nan=False)


def as_dict(swept: Swept, out: Path) -> dict[str, Any]:
    """The sweep, to be written as JSON."""
    file = swept.file
    return {
        "study": str(file.path),
        "path": os.path.relpath(file.path.resolve(), out.resolve()),
        "title": file.title,
        "scenario": str(file.scenario),
        "engine": swept.engine,
        "out": str(out),
        "interval": {
            "by": file.interval.by,
            "confidence": file.interval.confidence,
        },
        "cells": [_cell(swept, outcome) for outcome in swept.outcomes],
    }


def _cell(swept: Swept, outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cell": outcome.point.id,
        "axes": dict(outcome.point.labels),
        "overrides": list(outcome.point.overrides),
        "seeds": [cell.seed for cell in outcome.cells],
        "equal": is_equal(swept, outcome),
        "columns": {name: _limits(one) for name, one in outcome.intervals.items()},
    }
    if outcome.narrow is not None:
        found["narrow"] = outcome.narrow
    if swept.file.interval.by == "batch":
        found["lag_one"] = {name: lags(outcome, name) for name in swept.file.columns}
    return found


def _limits(interval: Interval) -> dict[str, Any]:
    known = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {
        **{name: None if math.isnan(value) else value for name, value in known.items()},
        "n": interval.n,
    }


def lags(outcome: Outcome, column: str) -> float:
    """The mean lag-one correlation of a column's batches, over the runs."""
    found = []
    for _, run in outcome.rows.group_by("replicate", maintain_order=True):
        values = [float(value) for value in run[column] if value is not None]
        if len(values) > 1:
            found.append(lag_one(values))
    return sum(found) / len(found) if found else 0.0


def is_equal(swept: Swept, outcome: Outcome) -> bool:
    """Whether a point has several runs with equal tables: its seeds decide nothing."""
    if len(outcome.cells) <= 1:
        return False
    # Columns that differ spare reading the tables.
    names = list(swept.file.columns)
    parts = outcome.rows.partition_by("replicate", maintain_order=True)
    if any(not part.select(names).equals(parts[0].select(names)) for part in parts):
        return False
    first, *others = outcome.cells
    tables = swept.tables(first)
    return all(_same(tables, swept.tables(other)) for other in others)


def _same(one: Mapping[str, pl.DataFrame], other: Mapping[str, pl.DataFrame]) -> bool:
    return one.keys() == other.keys() and all(one[name].equals(other[name]) for name in one)


def equal_runs(swept: Swept) -> list[str]:
    """A sentence for each point whose runs are equal; one for all if all are."""
    equal = [outcome for outcome in swept.outcomes if is_equal(swept, outcome)]
    if len(equal) == len(swept.outcomes):
        counts = {len(outcome.cells) for outcome in equal}
        runs = counts.pop() if len(counts) == 1 else None
        where = "" if len(equal) == 1 else " of each point"
        return [_equal_sentence(runs, where)] if equal else []
    return [
        f"{outcome.point}: " + _equal_sentence(len(outcome.cells), "").lower() for outcome in equal
    ]


def _equal_sentence(runs: int | None, where: str) -> str:
    """The sentence of `ontempo simulate --seeds`."""
    count = "" if runs is None else f"{runs} "
    return f"All {count}runs{where} are equal: nothing in them depends on the seed."


def related(swept: Swept) -> list[str]:
    """Warnings: columns whose batches depend on each other more than chance explains."""
    if swept.file.interval.by != "batch":
        return []
    warnings = []
    for name in swept.file.columns:
        bound = 2 / math.sqrt(swept.file.interval.batches)
        worst = max(swept.outcomes, key=lambda outcome: lags(outcome, name))
        if (lag := lags(worst, name)) > bound:
            warnings.append(
                f"columns.{name}: batches depend on each other (correlation {lag:.2f} from one to"
                f" the next at {worst.point}), so that its intervals are too narrow: take fewer"
                " batches, or longer runs"
            )
    return warnings


def as_tables(swept: Swept, console: Console) -> list[Table]:
    """The summary for the terminal, no wider than it if names and values allow."""
    outcomes = swept.outcomes
    axes = [
        Column(
            axis.name, [shown(str(one.point.labels[place][1])) for one in outcomes], is_axis=True
        )
        for place, axis in enumerate(swept.file.axes)
    ]
    values = [Column("seeds", [_seeds(one) for one in outcomes])]
    for name in swept.file.columns:
        cells = [Text.from_markup(_words(one.intervals[name])) for one in outcomes]
        values.append(Column(name, cells))
    return fitting(axes, values, console)


def _seeds(outcome: Outcome) -> Text:
    wide = " [yellow]wide[/]" if outcome.narrow is False else ""
    return Text.from_markup(f"{len(outcome.cells)}{wide}")


def _words(interval: Interval) -> str:
    if not interval.known:
        return "none"
    half = (interval.high - interval.low) / 2
    if math.isnan(half) or half == 0:
        return _digits(interval.value, 4)
    # As many places as the half-width has in two digits: more are not significant.
    places = max(0, 1 - math.floor(math.log10(half)))
    if places > MAX_PLACES:
        return f"{_digits(interval.value, 4)} [dim]± {_digits(half, 2)}[/]"
    return f"{interval.value:,.{places}f} [dim]± {half:,.{places}f}[/]"


def _digits(value: float, digits: int) -> str:
    return f"{value:,.0f}" if MANY <= abs(value) < TOO_MANY else f"{value:.{digits}g}"
