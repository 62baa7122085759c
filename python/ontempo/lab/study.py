"""A study: many cells, each run once and stored as soon as it is finished.

Everything that runs cells (`reproduce`, `sweep`, an experiment's own scripts) goes through
`Study`; a `Runner` decides where they run: this machine's cores (`cores`) or a cluster
(`cluster`).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import polars as pl

from ontempo.lab.cells import Cell, Label, Plan, Planned, Runner
from ontempo.lab.cores import CoreRunner
from ontempo.lab.engine import Engine, Scenario
from ontempo.lab.errors import BadInputError, InterruptedStudyError, UnfitEnvironmentError
from ontempo.lab.real_time import machine, made_with, run_real
from ontempo.lab.store import Store, cell_key

__all__ = ["Cell", "Label", "Plan", "Planned", "Progress", "Results", "Runner", "Silent", "Study"]

T = TypeVar("T")


class Progress(Protocol):
    """Callbacks about the progress of a study."""

    def start(self, plan: Plan) -> None:
        """The study begins."""
        ...

    def finished(self, planned: Planned) -> None:
        """A cell has been run and stored."""
        ...


class Silent:
    """No progress shown."""

    def start(self, plan: Plan) -> None:
        """Show nothing."""

    def finished(self, planned: Planned) -> None:
        """Show nothing."""


class Results:
    """The tables of a study's cells; `of` narrows them to some cells."""

    def __init__(
        self, store: Store, keys: Mapping[Cell, str], cells: Sequence[Cell] | None = None
    ) -> None:
        self._store = store
        self._keys = keys
        self._cache: dict[Any, Any] = {}
        self.cells = tuple(keys if cells is None else cells)

    def of(self, cells: Iterable[Cell]) -> "Results":
        """The same results, restricted to some cells; cached values are shared."""
        view = Results(self._store, self._keys, tuple(cells))
        view._cache = self._cache
        return view

    def table(self, name: str) -> pl.DataFrame:
        """One table over all cells, in their order, with their labels and seeds as columns.

        A measurement of several runs at a time writes the column ``seed`` itself.
        """

        def build() -> pl.DataFrame:
            parts = [self._labelled(cell, name) for cell in self.cells]
            return pl.concat(parts) if parts else pl.DataFrame()

        return self._once(("table", name, self.cells), build)

    def tables(self, cell: Cell) -> dict[str, pl.DataFrame]:
        """All tables of a cell; they are not cached."""
        return read_whole(self._store, self._keys[cell])

    def asked(self, label: str, **labels: Label) -> list[float]:
        """The values of a label over the requested cells, in ascending order.

        Checks take their places from here, never from the tables, so that missing data show.
        """
        wanted = labels.items()
        found = (dict(cell.labels) for cell in self.cells)
        return sorted(
            {float(one[label]) for one in found if label in one and wanted <= one.items()}
        )

    def derive(self, builder: Callable[["Results"], T]) -> T:
        """The value of `builder` for these results, computed once and cached."""
        return self._once((builder, self.cells), lambda: builder(self))

    def _once(self, key: Any, build: Callable[[], T]) -> T:
        if key not in self._cache:
            self._cache[key] = build()
        found: T = self._cache[key]
        return found

    def _labelled(self, cell: Cell, name: str) -> pl.DataFrame:
        table = self._once(("cell", cell, name), lambda: self._read(cell, name))
        labels = [pl.lit(value).alias(label) for label, value in cell.labels]
        if "seed" not in table.columns:
            labels.append(pl.lit(cell.seed).alias("seed"))
        return table.with_columns(labels)

    def _read(self, cell: Cell, name: str) -> pl.DataFrame:
        found = read_whole(self._store, self._keys[cell], name)
        if name not in found:
            raise BadInputError(f"{cell}: the run has no table {name}")
        return found[name]


def read_whole(store: Store, key: str, only: str | None = None) -> dict[str, pl.DataFrame]:
    """A cell that has been run, or `only` one table; it may have been damaged since."""
    tables = store.read(key, only)
    if tables is None:
        raise UnfitEnvironmentError(f"{store.path(key)}: vanished or was damaged; run again")
    return tables


class Study:
    """Runs the cells of a plan that the store does not have.

    `any_size` runs cells even if they are estimated to take more memory than is free, or more than
    a day each.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        jobs: int | Runner,
        *,
        any_size: bool = False,
    ) -> None:
        self.engine = engine
        self.store = store
        self.any_size = any_size
        self.runner = CoreRunner(jobs) if isinstance(jobs, int) else jobs

    def plan(self, cells: Iterable[Cell]) -> Plan:
        """Read every scenario, so that a mistake in any is found before any runs.

        Raises `BadInputError` where a missing cell is larger than this machine bears.
        """
        scenarios: dict[tuple[Path, tuple[str, ...]], tuple[Scenario, str]] = {}
        fingerprint = self.engine.fingerprint()
        planned = []
        for cell in dict.fromkeys(cells):
            source = (cell.scenario, cell.overrides)
            if source not in scenarios:
                scenario = self.engine.load(cell.scenario, cell.overrides)
                scenarios[source] = (scenario, scenario.canonical())
            scenario, canonical = scenarios[source]
            if cell.real:
                more = made_with(canonical, cell.real.controls)
                canonical = json.dumps([canonical, cell.real.identity(), machine(), *more])
            planned.append(Planned(cell, scenario, cell_key(canonical, cell.seed, fingerprint)))
        missing = {one.key: one for one in reversed(planned) if not self.store.has(one.key)}
        plan = Plan(tuple(planned), tuple(reversed(missing.values())))
        if not self.any_size:
            self._require_bearable(plan)
        return plan

    def _require_bearable(self, plan: Plan) -> None:
        at_once = min(self.runner.here(), len(plan.simulated))
        seen: set[tuple[Path, tuple[str, ...]]] = set()
        for cell, scenario in ((one.cell, one.scenario) for one in plan.simulated):
            if (source := (cell.scenario, cell.overrides)) in seen:
                continue
            seen.add(source)
            if why := self.engine.too_large(scenario, at_once):
                raise BadInputError(
                    f"{cell}: {why}, fewer jobs take less memory, and --any-size (in Python"
                    " any_size=True) runs it as it is"
                )

    def run(self, plan: Plan, progress: Progress | None = None) -> Results:
        """Run what is missing and return everything.

        Raises `InterruptedStudyError` on Ctrl-C; finished cells stay in the store.
        """
        progress = progress or Silent()
        progress.start(plan)
        # The most expensive first, so that none runs alone at the end.
        order = sorted(plan.simulated, key=lambda planned: -planned.cell.cost)
        try:
            if order:
                self.runner.run(self.engine, self.store, order, progress.finished)
            # Last: they run in real time, and no simulation may run beside them.
            run_real(self.engine, self.store, plan.real, progress.finished)
        except KeyboardInterrupt:
            lost = sum(not self.store.path(one.key).exists() for one in plan.missing)
            planned = len(plan.cells)
            raise InterruptedStudyError(planned - lost, planned) from None
        return Results(self.store, {planned.cell: planned.key for planned in plan.cells})
