"""SRT and RIST, simulated by their models and emulated with their programs, side by side.

sudo python -m experiments.carriers
sudo python -m experiments.carriers --page docs/validation.md
"""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from ontempo.lab.errors import BadInputError, UnfitEnvironmentError
from ontempo.lab.folder import replace_part
from ontempo.lab.real_time import MACHINE, circumstances, hindrance
from ontempo.lab.terminal import exit_codes, run_shown

from .agreement import Compared, compared
from .grid import ROWS
from .page import MARKS, counts, measured, read_causes

SIMULATED_RUNS = 10
EMULATED_RUNS = 2

PROGRAMS = {"srt-live-transmit": "srt-tools", "ristsender": "rist-tools"}


def _lacks() -> str:
    missing = [package for name, package in PROGRAMS.items() if shutil.which(name) is None]
    return hindrance() or (f"needs {missing[0]}: apt-get install {missing[0]}" if missing else "")


def _as_dict(row: Compared) -> dict[str, object]:
    return {
        "carrier": row.carrier,
        "path": row.path,
        "quantity": row.quantity,
        "simulated": list(row.simulated),
        "emulated": list(row.emulated),
        "verdict": row.verdict,
    }


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="A part of a path's name; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of finished cells.")] = Path("out/carriers"),
    page: Annotated[Path | None, typer.Option(help="Write the measured part of this page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Run each path with the models and with the programs, and judge where they agree.

    Real time: 10 minutes, as root. Finished cells are stored: an interrupted study resumes.
    """
    words = "".join(f" --only '{text}'" for text in only or [])
    with exit_codes(f"python -m experiments.carriers --out {out}{words}"):
        if page and only:
            raise BadInputError("--page: the page shows all paths: omit --only")
        if lacking := _lacks():
            raise UnfitEnvironmentError(lacking)
        chosen = [row for row in ROWS if not only or any(text in row.name for text in only)]
        if not chosen:
            names = ", ".join(row.name for row in ROWS)
            raise BadInputError(f"--only: no path's name contains it; there are: {names}")
        cells = [cell for row in chosen for cell in row.simulated(SIMULATED_RUNS)]
        cells += [cell for row in chosen for cell in row.emulated(EMULATED_RUNS)]
        results = run_shown(cells, out)
        rows = compared(results)
        real = results.of(cell for cell in cells if cell.real)
        note = circumstances(real.table(MACHINE))
        if as_json:
            print(json.dumps([_as_dict(row) for row in rows], indent=2))
        else:
            print(f"{measured(rows, note, read_causes())}\n\n{counts(rows)}")
        if page:
            replace_part(page, MARKS, measured(rows, note, read_causes()))


if __name__ == "__main__":
    typer.run(main)
