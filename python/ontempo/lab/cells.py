"""Cells: what a study is made of, and what a place that runs them must do."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ontempo.lab.engine import Engine, Scenario
from ontempo.lab.store import Store

Label = str | int | float
"""A value by which cells are told apart in their common table."""


class RealTime(Protocol):
    """How a cell is run that is not simulated: with real packets, by the clock on the wall.

    It must be hashable; equal ones of equal cells measure the same.
    """

    @property
    def controls(self) -> tuple[str, ...]:
        """Congestion controls of ours that the kernel must have loaded."""
        ...

    def identity(self) -> str:
        """What it measures, apart from scenario, seed, machine and program; part of the key."""
        ...

    def write(self, cell: "Cell", folder: Path) -> None:
        """Run the cell; leave each table in `folder` as ``NAME.parquet``.

        Runs in the main thread, so that Ctrl-C raises `KeyboardInterrupt` in it: take down what
        was set up, and let it pass. Raises `LabError` where it cannot be done.
        """
        ...


@dataclass(frozen=True)
class Measurement:
    """A measurement by a function of Python that makes tables of its own.

    `name` and `parameters` are its part of the key: change one of them where the function comes to
    measure something else. `write_tables` runs the cell, as `RealTime.write` says.
    """

    name: str
    write_tables: Callable[["Cell", Path], None] = field(compare=False)
    parameters: tuple[tuple[str, Label], ...] = ()
    controls: tuple[str, ...] = ()

    def identity(self) -> str:
        """Name and parameters."""
        return json.dumps([self.name, self.parameters])

    def write(self, cell: "Cell", folder: Path) -> None:
        """Run the function."""
        self.write_tables(cell, folder)


@dataclass(frozen=True)
class Cell:
    """One run: a scenario file, what is replaced in it, a seed.

    `labels` become columns of every table that is read from the cell. `real` says how it is run
    with real packets; without, it is simulated. `cost` is roughly how many core-seconds it takes,
    or, with real packets, how many seconds: dear cells are started first.
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
    """A cell with its scenario read and its place in the store known."""

    cell: Cell
    scenario: Scenario
    key: str

    def about(self, engine: str) -> dict[str, Any]:
        """What is written beside the tables, for people who look inside."""
        return {
            "scenario": self.cell.scenario.name,
            "overrides": list(self.cell.overrides),
            "seed": self.cell.seed,
            "engine": engine,
        }


@dataclass(frozen=True)
class Plan:
    """What a study will do: cells in the order asked for, each once."""

    cells: tuple[Planned, ...]
    missing: tuple[Planned, ...]

    @property
    def cost(self) -> float:
        """Core-seconds and seconds that the missing cells take, roughly."""
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
        """How long the missing cells take, roughly, with so many simulated ones at a time."""
        simulated = sum(planned.cell.cost for planned in self.simulated)
        return simulated / slots + sum(planned.cell.cost for planned in self.real)


class Runner(Protocol):
    """A place where cells run."""

    def slots(self) -> int:
        """How many cells run at a time, as far as is known."""
        ...

    def words(self) -> str:
        """The place in words, after "running 12"."""
        ...

    def run(
        self,
        engine: Engine,
        store: Store,
        cells: Sequence[Planned],
        finished: Callable[[Planned], None],
    ) -> None:
        """Run every cell and keep each as it ends; `finished` is told of each in this thread.

        On any exception, `KeyboardInterrupt` among them, stop what runs and let it pass.
        """
        ...
