"""A study: many cells, run on every core, each kept as soon as it is finished."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import polars as pl

from ontempo.lab.engine import Engine, Scenario, Stop, StoppedError
from ontempo.lab.errors import InterruptedStudyError, LabError, UnfitEnvironmentError
from ontempo.lab.store import Store, cell_key

T = TypeVar("T")

Label = str | int | float
"""A value by which cells are told apart in their common table."""

LOOK_EVERY_S = 0.1
"""How long Ctrl-C may go unseen. polars' signal handler restarts a system call that the signal
interrupts, so a wait without a limit would never see it."""


@dataclass(frozen=True)
class Cell:
    """One run: a scenario file, what is replaced in it, a seed.

    `labels` become columns of every table that is read from the cell. `cost` is roughly how
    many core-seconds it takes: dear cells are started first.
    """

    scenario: Path
    overrides: tuple[str, ...] = ()
    seed: int = 0
    labels: tuple[tuple[str, Label], ...] = ()
    cost: float = 1.0

    def __str__(self) -> str:
        labels = ", ".join(f"{name} {value}" for name, value in self.labels)
        return f"{self.scenario.name} ({labels or f'seed {self.seed}'})"


@dataclass(frozen=True)
class Planned:
    """A cell with its scenario read and its place in the store known."""

    cell: Cell
    scenario: Scenario
    key: str


@dataclass(frozen=True)
class Plan:
    """What a study will do: cells in the order asked for, each once."""

    cells: tuple[Planned, ...]
    missing: tuple[Planned, ...]

    @property
    def cost(self) -> float:
        """Core-seconds that the missing cells take, roughly."""
        return sum(planned.cell.cost for planned in self.missing)


class Progress(Protocol):
    """Is told how a study advances."""

    def start(self, plan: Plan) -> None:
        """The study begins."""
        ...

    def finished(self, planned: Planned) -> None:
        """A cell has been run and kept."""
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
        """The same results, seen through fewer cells; what was computed is shared."""
        view = Results(self._store, self._keys, tuple(cells))
        view._cache = self._cache
        return view

    def table(self, name: str) -> pl.DataFrame:
        """One table over all cells, in their order, with their labels as columns."""

        def build() -> pl.DataFrame:
            parts = [self._labelled(cell, name) for cell in self.cells]
            return pl.concat(parts) if parts else pl.DataFrame()

        return self._once(("table", name, self.cells), build)

    def derive(self, builder: Callable[["Results"], T]) -> T:
        """What `builder` makes of these results, made once for all who ask."""
        return self._once((builder, self.cells), lambda: builder(self))

    def _once(self, key: Any, build: Callable[[], T]) -> T:
        if key not in self._cache:
            self._cache[key] = build()
        found: T = self._cache[key]
        return found

    def _labelled(self, cell: Cell, name: str) -> pl.DataFrame:
        tables = self._once(("cell", cell), lambda: self._read(cell))
        labels = [pl.lit(value).alias(label) for label, value in cell.labels]
        return tables[name].with_columns(pl.lit(cell.seed).alias("seed"), *labels)

    def _read(self, cell: Cell) -> dict[str, pl.DataFrame]:
        tables = self._store.read(self._keys[cell])
        if tables is None:
            raise UnfitEnvironmentError(
                f"{self._store.path(self._keys[cell])}: vanished or was damaged; run again"
            )
        return tables


class Study:
    """Runs the cells of a plan that the store does not have."""

    def __init__(self, engine: Engine, store: Store, jobs: int) -> None:
        self.engine = engine
        self.store = store
        self.jobs = jobs

    def plan(self, cells: Iterable[Cell]) -> Plan:
        """Read every scenario, so that a mistake in any is found before any runs."""
        scenarios: dict[tuple[Path, tuple[str, ...]], tuple[Scenario, str]] = {}
        fingerprint = self.engine.fingerprint()
        planned = []
        for cell in dict.fromkeys(cells):
            source = (cell.scenario, cell.overrides)
            if source not in scenarios:
                scenario = self.engine.load(cell.scenario, cell.overrides)
                scenarios[source] = (scenario, scenario.canonical())
            scenario, canonical = scenarios[source]
            planned.append(Planned(cell, scenario, cell_key(canonical, cell.seed, fingerprint)))
        missing = {one.key: one for one in reversed(planned) if not self.store.has(one.key)}
        return Plan(tuple(planned), tuple(reversed(missing.values())))

    def run(self, plan: Plan, progress: Progress | None = None) -> Results:
        """Run what is missing and return everything.

        Raises `InterruptedStudyError` on Ctrl-C; what had finished by then is kept.
        """
        progress = progress or Silent()
        progress.start(plan)
        if plan.missing:
            _Run(self, plan, progress).go()
        return Results(self.store, {planned.cell: planned.key for planned in plan.cells})


class _Run:
    """One execution of a plan: the threads, and how they are stopped."""

    def __init__(self, study: Study, plan: Plan, progress: Progress) -> None:
        self.study = study
        self.plan = plan
        self.progress = progress
        self.before = len(plan.cells) - len(plan.missing)
        self.kept: set[str] = set()
        self.stopping = threading.Event()
        self.running: set[Stop] = set()
        self.lock = threading.Lock()

    def go(self) -> None:
        """Run every missing cell, the dearest first, so that none is left alone at the end."""
        order = sorted(self.plan.missing, key=lambda planned: -planned.cell.cost)
        with ThreadPoolExecutor(self.study.jobs, thread_name_prefix="cell") as pool:
            futures = {pool.submit(self._work, planned): planned for planned in order}
            try:
                pending = set(futures)
                while pending:
                    done, pending = wait(pending, LOOK_EVERY_S, FIRST_COMPLETED)
                    for future in done:
                        self._finish(futures[future], future)
            except KeyboardInterrupt:
                self._stop(pool)
                kept = self.before + len(self.kept)
                raise InterruptedStudyError(kept, len(self.plan.cells)) from None
            except BaseException:
                self._stop(pool)
                raise

    def _work(self, planned: Planned) -> None:
        engine, cell = self.study.engine, planned.cell
        stop = engine.stop()
        with self.lock:
            self.running.add(stop)
        try:
            if self.stopping.is_set():
                raise StoppedError
            tables = engine.run(planned.scenario, cell.seed, stop)
            about = {
                "scenario": cell.scenario.name,
                "overrides": list(cell.overrides),
                "seed": cell.seed,
                "engine": engine.fingerprint(),
            }
            self._keep(planned.key, tables, about)
        finally:
            with self.lock:
                self.running.discard(stop)

    def _keep(self, key: str, tables: Mapping[str, pl.DataFrame], about: Mapping[str, Any]) -> None:
        """Keep a finished cell, even if Ctrl-C is pressed meanwhile.

        polars raises `KeyboardInterrupt` in every thread that is inside it at that moment, so
        the write that it broke off is done again before the study is told.
        """
        try:
            self.study.store.keep(key, tables, about)
        except KeyboardInterrupt:
            self.study.store.keep(key, tables, about)
            raise
        finally:
            if self.study.store.path(key).exists():
                self.kept.add(key)

    def _finish(self, planned: Planned, future: "Future[None]") -> None:
        try:
            future.result()
        except (LabError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise UnfitEnvironmentError(f"{planned.cell}: the run failed: {error}") from error
        self.progress.finished(planned)

    def _stop(self, pool: ThreadPoolExecutor) -> None:
        self.stopping.set()
        with self.lock:
            for stop in self.running:
                stop.cancel()
        pool.shutdown(wait=True, cancel_futures=True)
