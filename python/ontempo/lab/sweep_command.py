"""``ontempo-lab sweep`` behind its command line."""

from pathlib import Path

from rich.console import Console

from ontempo.lab.engine import Engine
from ontempo.lab.folder import claimed
from ontempo.lab.store import Store
from ontempo.lab.study import Study
from ontempo.lab.sweep import planned_cells, sweep
from ontempo.lab.sweep_file import read_sweep
from ontempo.lab.sweep_output import (
    as_tables,
    equal_runs,
    json_text,
    related,
    require_own,
    write_results,
)
from ontempo.lab.terminal import ShownProgress, chosen_runner


def run_sweep(
    engine: Engine,
    path: Path,
    out: Path | None,
    jobs: int,
    dask: str | None,
    *,
    any_size: bool,
    as_json: bool,
) -> None:
    """Run a study file, write its results, and print them."""
    file = read_sweep(path)
    folder = out or default_out(path)
    console = Console(stderr=True, highlight=False)
    planned_cells(file, engine)  # finds a mistake before anything is touched
    with claimed(folder), chosen_runner(dask, jobs, console) as runner:
        require_own(path, folder)
        store = Store(folder / "cells", engine.fingerprint())
        study = Study(engine, store, runner, any_size=any_size)
        with ShownProgress(console, runner, costs_known=False) as progress:
            swept = sweep(file, study, progress, progress.show)
        write_results(swept, folder)
    for sentence in equal_runs(swept):
        console.print(sentence, markup=False, soft_wrap=True)
    for warning in related(swept):
        console.print(f"[yellow]warning:[/] {warning}", soft_wrap=True)
    if as_json:
        print(json_text(swept, folder))
        return
    shown = Console(highlight=False)
    shown.print(file.title, style="bold", markup=False)
    for place, table in enumerate(as_tables(swept, shown)):
        shown.print(*[""] * (place > 0), table, sep="\n")
    shown.print(f"\nresults: {folder}", soft_wrap=True, markup=False)


def print_plan(engine: Engine, path: Path) -> None:
    """Print the minimum that a study would run; run nothing."""
    file = read_sweep(path)
    cells = planned_cells(file, engine)
    seeds = f"{file.stop.least} to {file.stop.most}" if file.stop else str(len(file.seeds))
    points = len(cells) // (file.stop.least if file.stop else len(file.seeds))
    print(f"{file.title}: {points:,} points, {seeds} seeds each, {len(cells):,} runs at least")


def default_out(path: Path) -> Path:
    """Where results go: a folder named after the study."""
    return Path("out/sweep") / path.stem
