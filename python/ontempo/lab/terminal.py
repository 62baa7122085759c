"""What both commands show on the terminal: progress, durations, failures. All of it on stderr."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ontempo.lab.cells import Cell, Plan, Planned, Runner
from ontempo.lab.cluster import DaskRunner
from ontempo.lab.cores import CoreRunner
from ontempo.lab.engine import NativeEngine
from ontempo.lab.errors import INTERRUPTED, InterruptedStudyError, LabError
from ontempo.lab.folder import claimed
from ontempo.lab.store import Store
from ontempo.lab.study import Results, Study

MANY_SECONDS = 120


@contextmanager
def exit_codes(again: str) -> Iterator[None]:
    """Turn failures that a user can act on into one sentence and an exit code.

    `again` is the command that resumes after an interruption.
    """
    console = Console(stderr=True, highlight=False)
    try:
        yield
    except InterruptedStudyError as error:
        console.print(f"\n{error}\nto go on: {again}", markup=False, soft_wrap=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        console.print(f"\ninterrupted\nto go on: {again}", markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    except LabError as error:
        console.print("[bold red]error:[/] ", end="")
        console.print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(error.exit_code) from None


@contextmanager
def chosen_runner(dask: str | None, jobs: int, console: Console) -> Iterator[Runner]:
    """The place where cells run: this machine's cores, or a Dask cluster."""
    if dask is None:
        yield CoreRunner(jobs)
        return

    def show(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    with DaskRunner(dask, jobs, show).connected() as runner:
        yield runner


class ShownProgress:
    """A progress bar; a sentence if stderr is not a terminal."""

    def __init__(self, console: Console, runner: Runner, *, costs_known: bool = True) -> None:
        self.console = console
        self.runner = runner
        self.costs_known = costs_known
        self.done = 0
        self.planned = 0
        self.task: TaskID | None = None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> "ShownProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, text: str) -> None:
        """Print a sentence between two rounds."""
        self.console.print(text, markup=False, soft_wrap=True)

    def start(self, plan: Plan) -> None:
        """Print how many cells are stored and how many will run."""
        self.planned, missing = len(plan.cells), len(plan.missing)
        cells = f"{self.planned:,} cell{'s' if self.planned != 1 else ''}"
        kept = f"{cells}, {self.planned - missing:,} of them kept from before"
        if not missing:
            self.console.print(f"{kept}: nothing to run")
            self.task = None
            return
        simulated, real = len(plan.simulated), len(plan.real)
        running = [f"{simulated:,} {self.runner.words()}"] if simulated else []
        running += [f"{real:,} with real packets"] if real else []
        words = f"{kept}; running {', then '.join(running)}"
        if self.costs_known:
            words += f", about {duration(plan.seconds(self.runner.slots()))}"
        self.console.print(words, soft_wrap=True)
        self.done = self.planned - missing
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.bar.start()
        self.task = self.bar.add_task(self._words(), total=plan.cost)

    def finished(self, planned: Planned) -> None:
        """Advance by what the cell was expected to cost."""
        self.done += 1
        if self.task is not None:
            self.bar.update(self.task, advance=planned.cell.cost, description=self._words())

    def _words(self) -> str:
        return f"cells {self.done:,}/{self.planned:,}"


def run_shown(cells: Sequence[Cell], out: Path) -> Results:
    """Run the cells that `out` does not have yet, on one core; show the progress."""
    engine, runner = NativeEngine(), CoreRunner(1)
    with claimed(out):
        study = Study(engine, Store(out / "cells", engine.fingerprint()), runner)
        with ShownProgress(Console(stderr=True, highlight=False), runner) as progress:
            return study.run(study.plan(cells), progress)


def duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours, rounded to whole ones."""
    if seconds < MANY_SECONDS:
        return f"{seconds:.0f} s"
    if seconds < MANY_SECONDS * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
