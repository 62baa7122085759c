"""What ``ontempo-lab reproduce`` does: claims run under their readings, and what is kept."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import typer
from rich.console import Console
from rich.table import Table

from ontempo.lab.cells import Plan, Runner
from ontempo.lab.claims import Claim, Reading, Scale
from ontempo.lab.claims_engine import CarriesFilmError, ClaimsEngine
from ontempo.lab.engine import Engine
from ontempo.lab.errors import BadInputError
from ontempo.lab.folder import claimed, write_text
from ontempo.lab.keep import cell_rows, kept_of, part_name, today, write_kept
from ontempo.lab.known import FILE, bound_anew, known_text, read_known, with_known_causes
from ontempo.lab.readings import under
from ontempo.lab.report import Judged
from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Results, Study
from ontempo.lab.terminal import ShownProgress, chosen_runner, duration
from ontempo.lab.verdict_file import COMPUTED, changed_verdicts

DIFFERENT = 1
"""The exit code if verdicts differ from the file that they are compared with."""


def list_claims(
    claims: Sequence[Claim],
    readings: Mapping[str, Sequence[Reading]],
    scale: Scale,
    *,
    as_json: bool,
) -> None:
    """Print the claims, their worlds, and how many cells each needs under all readings."""
    needed = {
        claim.id: {
            cell
            for read in under(claim, readings[claim.paper]).values()
            for cell in read.cells(scale)
        }
        for claim in claims
    }
    rows = [
        {
            "id": claim.id,
            "world": claim.world,
            "title": claim.title,
            "cells": len(cells := needed[claim.id]),
            "core_seconds": round(sum(cell.cost for cell in cells if not cell.real)),
            "real_seconds": round(sum(cell.cost for cell in cells if cell.real)),
        }
        for claim in claims
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("claim", "world", "what", "cells", "core-time", "real time"):
        right = heading in ("cells", "core-time", "real time")
        table.add_column(heading, justify="right" if right else "left")
    for row in rows:
        times = (float(str(row[kind])) for kind in ("core_seconds", "real_seconds"))
        shown = (duration(seconds) if seconds else "" for seconds in times)
        table.add_row(*(str(row[k]) for k in ("id", "world", "title", "cells")), *shown)
    console = Console()
    console.print(table)
    every = {cell for cells in needed.values() for cell in cells}
    total = duration(sum(cell.cost for cell in every if not cell.real))
    real = duration(sum(cell.cost for cell in every if cell.real))
    console.print(
        f"\n{len(every):,} different cells, about {total} of core-time and {real} of real time in"
        f" all ({scale})"
    )


def check_options(
    scale: Scale,
    only: Sequence[str],
    reading: Sequence[str],
    seeds: int | None,
    *,
    of_quick: bool,
    keep: bool,
) -> None:
    """Refuse what is not of this scale, readings or seeds, and a part of a paper to be kept."""
    if of_quick and seeds:
        raise BadInputError("causes and verdicts are those of all seeds: omit --seeds")
    if of_quick and reading:
        raise BadInputError("causes and verdicts are those of all readings: omit --reading")
    if of_quick and scale == "full":
        raise BadInputError("causes and verdicts are those of the quick grid: add --quick")
    if keep and scale == "quick":
        raise BadInputError("--keep: only results at full length are kept: add --full")
    if keep and len({name.partition("/")[0] for name in only}) != 1:
        raise BadInputError("--keep: one paper at a time, or some of its claims: --only psp")


@dataclass(frozen=True)
class Ran:
    """The claims judged, their different cells, and how many of them ran now, in which time.

    `engine` is the fingerprint under which the cells are kept.
    """

    judged: list[Judged]
    results: Results
    cells: int
    missing: int
    seconds: float
    jobs: int
    engine: str

    def made(self) -> dict[str, Any]:
        """What is kept of it beside the claims."""
        return {
            "engine": self.engine,
            "made": today(),
            "cells": self.cells,
            "ran": self.missing,
            "seconds": round(self.seconds, 1),
            "jobs": self.jobs,
        }


def run(
    engine: Engine,
    claims: Sequence[tuple[Claim, Mapping[str, Claim]]],
    scale: Scale,
    out: Path,
    jobs: int,
    dask: str | None,
) -> Ran:
    """Run what is missing, and judge the claims, each under its readings.

    The cells are kept under the claims' fingerprint, or under the whole one if a scenario has a
    film.
    """
    needed = {
        (claim.id, name): list(read.cells(scale))
        for claim, readings in claims
        for name, read in readings.items()
    }
    every: list[Cell] = [cell for cells in needed.values() for cell in cells]
    console = Console(stderr=True, highlight=False)
    with claimed(out), chosen_runner(dask, jobs, console) as runner:
        try:
            study, plan = _planned(ClaimsEngine(engine), every, out, runner)
        except CarriesFilmError as error:
            line = f"{error}: the whole engine's fingerprint is taken for all"
            console.print(line, markup=False, soft_wrap=True)
            study, plan = _planned(engine, every, out, runner)
        for one in study.store.take_rejected():
            console.print(f"[yellow]run again:[/] {one.path}: {one.reason}", soft_wrap=True)
        with ShownProgress(console, runner) as progress:
            begin = time.monotonic()
            results = study.run(plan, progress)
            seconds = time.monotonic() - begin
        judged = []
        for claim, readings in claims:
            parts = {name: results.of(needed[claim.id, name]) for name in readings}
            judged.append(_judge(claim, readings, scale, parts))
        return Ran(
            judged,
            results,
            len(set(every)),
            len(plan.missing),
            seconds,
            runner.slots(),
            study.engine.fingerprint(),
        )


def _planned(
    engine: Engine, cells: Sequence[Cell], out: Path, runner: Runner
) -> tuple[Study, Plan]:
    # Their sizes are known, and were run before they were published.
    store = Store(out / "cells", engine.fingerprint())
    study = Study(engine, store, runner, any_size=True)
    return study, study.plan(cells)


def bind(folder: Path, judged: Sequence[Judged]) -> None:
    """Rewrite ``known.toml`` of each judged paper."""
    for paper in sorted({one.claim.paper for one in judged}):
        findings = {one.claim.id: one.finding for one in judged if one.claim.paper == paper}
        real = {one.claim.id for one in judged if one.claim.world not in COMPUTED}
        known = bound_anew(read_known(folder / paper), findings, real)
        write_text(folder / paper / FILE, known_text(known))


def with_causes(folder: Path, judged: Sequence[Judged]) -> list[Judged]:
    """The same, with the causes of ``known.toml`` that bind."""
    known = {
        paper: read_known(folder / paper) for paper in sorted({one.claim.paper for one in judged})
    }
    return [
        replace(one, finding=with_known_causes(one.claim.id, one.finding, known[one.claim.paper]))
        for one in judged
    ]


def keep(
    folder: Path, only: Sequence[str], judged: Sequence[Judged], ran: Ran, seeds: int | None
) -> None:
    """Keep results of a paper, computed claims and those with real packets apart."""
    name = part_name(only)
    for computed in (True, False):
        found = [one for one in judged if (one.claim.world in COMPUTED) is computed]
        if not found:
            continue
        rows = cell_rows(ran.results) if computed else pl.DataFrame()
        write_kept(folder, name, kept_of(found, {**ran.made(), "seeds": seeds}), rows)


def compare(path: Path, judged: Sequence[Judged]) -> None:
    """Exit with `DIFFERENT` if verdicts differ from the file."""
    changed = changed_verdicts(path, judged)
    if changed:
        print(
            *changed,
            f"verdicts differ from {path}: find out why; `make differences` rewrites it",
            sep="\n",
            file=sys.stderr,
        )
        raise typer.Exit(DIFFERENT)


def _judge(
    claim: Claim, readings: Mapping[str, Claim], scale: Scale, results: Mapping[str, Results]
) -> Judged:
    primary, *others = readings
    found = {name: read.judge(results[name]) for name, read in readings.items()}
    cells = len({cell for part in results.values() for cell in part.cells})
    return Judged(
        claim, found[primary], claim.scaling(scale), cells, {name: found[name] for name in others}
    )
