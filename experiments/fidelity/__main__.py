"""Scenarios simulated and emulated, side by side.

python -m experiments.fidelity
sudo python -m experiments.fidelity --emulate --page docs/fidelity.md
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ontempo.lab.errors import BadInputError, UnfitEnvironmentError
from ontempo.lab.folder import replace_part
from ontempo.lab.real_time import MACHINE, circumstances, hindrance
from ontempo.lab.terminal import exit_codes, run_shown

from .agreement import Compared, chosen_default, compared, counts, values_of
from .emulated import keep_emulated, read_emulated
from .grid import PROFILES, ROWS, Row
from .page import MARKS, measured, number, read_causes

SIMULATED_RUNS = 20
"""Simulated runs of a scenario: so many that the emulation's spread decides."""


def choose(texts: Sequence[str]) -> list[Row]:
    """The scenarios whose names contain one of the texts; all if there are none."""
    if unknown := [text for text in texts if not any(text in row.name for row in ROWS)]:
        names = ", ".join(row.name for row in ROWS)
        raise BadInputError(f"no scenario's name contains {unknown[0]!r}; there are: {names}")
    return [row for row in ROWS if not texts or any(text in row.name for text in texts)]


def show(rows: Sequence[Compared], console: Console) -> None:
    """Each cell on the terminal."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("scenario", "of", "quantity", "emulated", *PROFILES):
        table.add_column(
            heading, justify="left" if heading in ("scenario", "of", "quantity") else "right"
        )
    marks = {"agrees": "", "differs": " !", "cannot be told": " ?"}
    for row in rows:
        simulated = (
            number(row.simulated[one]) + marks[row.verdict(one)] if one in row.simulated else ""
            for one in PROFILES
        )
        table.add_row(row.scenario, row.subject, row.quantity, number(row.emulated), *simulated)
    console.print(table)
    for profile in PROFILES:
        words = ", ".join(f"{many} {verdict}" for verdict, many in counts(rows, profile).items())
        console.print(f"{profile}: {words}", markup=False)
    console.print("! differs by more than its interval and 10 %; ? cannot be told", markup=False)


def as_dict(rows: Sequence[Compared]) -> dict[str, object]:
    """The cells, to be written as JSON."""
    cells = [
        {
            "scenario": row.scenario,
            "of": row.subject,
            "quantity": row.quantity,
            "emulated": row.emulated.value,
            "runs": row.emulated.n,
            "simulated": {
                one: {"value": row.simulated[one].value, "verdict": row.verdict(one)}
                for one in row.simulated
            },
        }
        for row in rows
    ]
    return {"default": chosen_default(rows), "cells": cells}


def main(
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Run real packets; needs root and real time.")
    ] = False,
    runs: Annotated[int, typer.Option(min=2, help="Emulated runs of each scenario.")] = 4,
    only: Annotated[
        list[str] | None, typer.Option(help="A part of a scenario's name; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of finished cells.")] = Path("out/fidelity"),
    page: Annotated[Path | None, typer.Option(help="Write the measured part of this page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the cells as JSON.")] = False,
) -> None:
    """Simulate scenarios and judge where they agree with real packets.

    Real packets are those of `emulated.json`, unless `--emulate` measures them again.
    Finished cells are stored: an interrupted study resumes.
    """
    words = " --emulate" if emulate else ""
    words += "".join(f" --only '{text}'" for text in only or [])
    with exit_codes(f"python -m experiments.fidelity --runs {runs} --out {out}{words}"):
        if page and only:
            raise BadInputError("--page: the page shows all scenarios: omit --only")
        if emulate and (hindered := hindrance()):
            raise UnfitEnvironmentError(hindered)
        chosen = choose(only or [])
        cells = [cell for row in chosen for cell in row.simulated(SIMULATED_RUNS)]
        if emulate:
            cells += [cell for row in chosen for cell in row.emulated(runs)]
        results = run_shown(cells, out)
        if emulate:
            real = results.of(cell for cell in cells if cell.real)
            keep_emulated(values_of(real, "emulated"), circumstances(real.table(MACHINE)))
        emulated, note = read_emulated([row.name for row in chosen])
        rows = compared(emulated, {one: values_of(results, one) for one in PROFILES})
        if as_json:
            print(json.dumps(as_dict(rows), indent=2))
        else:
            console = Console(highlight=False)
            show(rows, console)
            console.print(note, markup=False, soft_wrap=True)
        if page:
            replace_part(page, MARKS, measured(rows, read_causes(), note))


if __name__ == "__main__":
    typer.run(main)
