"""Cells, the runs of a study, and the interface of a place that runs them."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ontempo.lab.engine import Engine, Scenario
from ontempo.lab.store import Store

Label = str | int | float
"""A value that distinguishes cells in their common table."""


class RealTime(Protocol):
    """How a cell is run with real packets, in real time, instead of simulated.

    Must be hashable; equal objects with equal cells measure the same.
    """

    @property
    def controls(self) -> tuple[str, ...]:
        """Congestion controls of ours that the kernel must have loaded, for `load_control`."""
        ...

    @property
    def at_once(self) -> int:
        """How many such cells may run side by side: one where processor time is filled."""
        ...

    def identity(self) -> str:
        """The measurement's part of the key, beside scenario, seed, machine and program."""
        ...

    def write(self, cell: "Cell", folder: Path) -> None:
        """Run the cell; write each table to `folder` as ``NAME.parquet``.

        Runs in the main thread, so that Ctrl-C raises `KeyboardInterrupt` in it: clean up, and let
        it pass. Side by side, it runs in a thread of its own, and on Ctrl-C its `run_program` ends.
        Raises `LabError` if the cell cannot be run.
        """
        ...


@dataclass(frozen=True)
class Measurement:
    """A measurement by a Python function that writes its own tables.

    `name` and `parameters` are its part of the key: change one of them when the function comes to
    measure something else. `write_tables` runs the cell, as `RealTime.write` does.
    """

    name: str
    write_tables: Callable[["Cell", Path], None] = field(compare=False)
    parameters: tuple[tuple[str, Label], ...] = ()
    controls: tuple[str, ...] = ()
    at_once: int = 1

    def identity(self) -> str:
        """Name and parameters."""
        return json.dumps([self.name, self.parameters])

    def write(self, cell: "Cell", folder: Path) -> None:
        """Run the function."""
        self.write_tables(cell, folder)


@dataclass(frozen=True)
class Cell:
    """One run: a scenario file, what is replaced in it, a seed.

    `labels` become columns of every table that is read from the cell. `real` is how it is run with
    real packets; if None, it is simulated. `cost` is roughly its core-seconds or, with real
    packets, its seconds: expensive cells are started first.
    """

    scenario: Path
    overrides: tuple[str, ...] = ()
    seed: int = 0
    labels: tuple[tuple[str, Label], ...] = ()
    cost: float = 1.0
    real: RealTime | None = None

    def __str__(self) -> str:
        labels = ", ".join(f"{name} {value}" for name, value in self.labels)
        return f"{self.scenario.name} ({labels or f'seed {self.seed}'})"


@dataclass(frozen=True)
class Planned:
    """A cell with its scenario and its key in the store."""

    cell: Cell
    scenario: Scenario
    key: str

    @property
    def at_once(self) -> int:
        """How many such cells with real packets run side by side here: at most one a core."""
        asked = self.cell.real.at_once if self.cell.real else 1
        return min(asked, len(os.sched_getaffinity(0)))

    def about(self, engine: str) -> dict[str, Any]:
        """Metadata that is written beside the tables, for inspection."""
        return {
            "scenario": self.cell.scenario.name,
            "overrides": list(self.cell.overrides),
            "seed": self.cell.seed,
            "engine": engine,
        }


@dataclass(frozen=True)
class Plan:
    """The work of a study: its cells in the order requested, each once; `missing` must be run."""

    cells: tuple[Planned, ...]
    missing: tuple[Planned, ...]

    @property
    def cost(self) -> float:
        """Estimated core-seconds and seconds of the missing cells."""
        return sum(planned.cell.cost for planned in self.missing)

    @property
    def simulated(self) -> list[Planned]:
        """The missing cells that are simulated."""
        return [planned for planned in self.missing if planned.cell.real is None]

    @property
    def real(self) -> list[Planned]:
        """The missing cells that are run with real packets."""
        return [planned for planned in self.missing if planned.cell.real is not None]

    def seconds(self, slots: int) -> float:
        """Estimated duration in seconds, with `slots` simulated cells at a time."""
        simulated = sum(planned.cell.cost for planned in self.simulated)
        return simulated / slots + sum(one.cell.cost / one.at_once for one in self.real)


class Runner(Protocol):
    """A place where cells run."""

    def slots(self) -> int:
        """How many cells run at a time, as far as is known."""
        ...

    def here(self) -> int:
        """How many cells run at a time on this machine; 0 if they run elsewhere."""
        ...

    def words(self) -> str:
        """A description of the place, printed after "running 12"."""
        ...

    def run(
        self,
        engine: Engine,
        store: Store,
        cells: Sequence[Planned],
        finished: Callable[[Planned], None],
    ) -> None:
        """Run every cell and store each as it ends; then call `finished` in this thread.

        On any exception, `KeyboardInterrupt` among them, stop running cells and let it pass.
        """
        ...
