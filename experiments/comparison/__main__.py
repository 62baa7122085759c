"""ontempo compared with other transports.

sudo python -m experiments.comparison
sudo python -m experiments.comparison --grid full --page docs/comparison.md
"""

from collections.abc import Sequence
from pathlib import Path as File
from typing import Annotated

import polars as pl
import typer
from rich.console import Console
from rich.table import Table

from ontempo.lab.errors import BadInputError, UnfitEnvironmentError
from ontempo.lab.real_time import MACHINE, circumstances, hindrance
from ontempo.lab.study import Cell
from ontempo.lab.terminal import exit_codes, run_shown

from .contenders import CONTENDERS, SIDE_BY_SIDE, Contender
from .measure import comparison_cell
from .page import COLUMNS, cells, figures, tables, write_page
from .paths import Grid, Path, paths
from .readings import path_of, readings

COUNTED_S = 20
"""Measured seconds of the stream."""

SHOWN = ("carried by", "decodable", "late", "sound", "p99", "bytes", "download")
"""Columns on the terminal, which is 80 wide; the page has all."""


def batches(chosen: Sequence[Contender], path: Path) -> list[list[Contender]]:
    """The contenders that run side by side: the same ones together, whichever are missing."""
    seldom = path in paths(Grid.hard)
    left = [
        [one for one in row if one in chosen and (one.everywhere or seldom)] for row in SIDE_BY_SIDE
    ]
    return [row for row in left if row]


def comparison_cells(grid: Grid, chosen: Sequence[Contender]) -> list[Cell]:
    """Every path with every contender."""
    return [
        comparison_cell(path, together, COUNTED_S, seed=0)
        for path in paths(grid)
        for together in batches(chosen, path)
    ]


def choose(names: Sequence[str]) -> list[Contender]:
    """The contenders with these names; all if there are none."""
    known = [one.name for one in CONTENDERS]
    if unknown := [name for name in names if name not in known]:
        raise BadInputError(f"no contender is called {unknown[0]!r}; there are {', '.join(known)}")
    return [one for one in CONTENDERS if not names or one.name in names]


def show(rows: pl.DataFrame, contenders: Sequence[Contender], console: Console) -> None:
    """The readings on the terminal."""
    shown = {one.name: one.shown for one in contenders}
    for (_,), of_path in rows.group_by(["path"], maintain_order=True):
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        for heading in SHOWN:
            first = heading == COLUMNS[0]
            table.add_column(heading, justify="left" if first else "right", no_wrap=True)
        for row in of_path.iter_rows(named=True):
            words = dict(zip(COLUMNS, cells(row, shown[row["contender"]]), strict=True))
            table.add_row(*(words[heading] for heading in SHOWN))
        console.print(path_of(of_path.row(0, named=True)).words, markup=False)
        console.print(table)


def pacing_words(rows: pl.DataFrame) -> str:
    """A sentence on how punctually the source sent."""
    worst = rows.select(pl.col("pacing_p99_s", "pacing_max_s").max()).row(0)
    return (
        f"Of the source's datagrams 99 % left within {worst[0] * 1000:.2f} ms of their time in"
        f" every run; the latest by {worst[1] * 1000:.1f} ms."
    )


def main(
    grid: Annotated[
        Grid, typer.Option(help="Six paths; 17 hard ones, too; or all constant links, too.")
    ] = Grid.quick,
    only: Annotated[
        list[str] | None, typer.Option(help="A contender by name; may be repeated.")
    ] = None,
    out: Annotated[File, typer.Option(help="The folder of finished cells.")] = File(
        "out/comparison"
    ),
    page: Annotated[
        File | None, typer.Option(help="Write the measured part of this page, and its plots.")
    ] = None,
) -> None:
    """Carry one live stream over emulated paths with each contender; needs root.

    Finished cells are stored: an interrupted study resumes.
    """
    words = "".join(f" --only {name}" for name in only or [])
    with exit_codes(f"python -m experiments.comparison --grid {grid} --out {out}{words}"):
        if hindered := hindrance():
            raise UnfitEnvironmentError(hindered)
        asked = choose(only or [])
        lacking = {one: lack for one in asked if (lack := one.lacks())}
        missing = [f"{one.shown}: {lack}" for one, lack in lacking.items()]
        chosen = [one for one in asked if one not in lacking]
        console = Console(highlight=False, width=None)
        for line in missing:
            console.print(line, markup=False)
        if not chosen:
            raise UnfitEnvironmentError("none of the contenders is on this machine")
        results = run_shown(comparison_cells(grid, chosen), out)
        rows = readings(results, chosen)
        show(rows, chosen, console)
        notes = [pacing_words(rows), circumstances(results.table(MACHINE))]
        console.print("\n" + "\n".join(notes), markup=False, soft_wrap=True)
        if page:
            measured = "\n\n".join([tables(rows, chosen, missing).rstrip(), *notes])
            write_page(page, measured, figures(rows, chosen))
            console.print(f"page: {page}", markup=False)


if __name__ == "__main__":
    typer.run(main)
