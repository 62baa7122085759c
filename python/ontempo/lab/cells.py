"""Cells: what a study is made of, and what a place that runs them must do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ontempo.lab.engine import Engine, Scenario
from ontempo.lab.store import Store

Label = str | int | float
"""A value by which cells are told apart in their common table."""


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
        """Core-seconds that the missing cells take, roughly."""
        return sum(planned.cell.cost for planned in self.missing)


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
