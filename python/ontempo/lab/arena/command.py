"""``ontempo-lab arena`` behind its command line."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path as File

import polars as pl
from rich.console import Console

from ontempo.lab.arena.cells import EMULATION, SIMULATION
from ontempo.lab.arena.contenders import Contender
from ontempo.lab.arena.engine import FilmEngine
from ontempo.lab.arena.grid import EMULATED, Grid, grid
from ontempo.lab.arena.output import Outcome, as_dict, show, write_page, write_results
from ontempo.lab.arena.page import write_html
from ontempo.lab.arena.rows import rows
from ontempo.lab.claims import Scale
from ontempo.lab.cores import CoreRunner
from ontempo.lab.engine import Engine
from ontempo.lab.errors import BadInputError, UnfitEnvironmentError
from ontempo.lab.folder import claimed
from ontempo.lab.real_time import MACHINE, circumstances, hindrance
from ontempo.lab.store import Store
from ontempo.lab.study import Study
from ontempo.lab.terminal import ShownProgress

WORLDS = (SIMULATION, EMULATION)

CONTROLS = File("/proc/sys/net/ipv4/tcp_available_congestion_control")

MANY = 1000
"""Reading the scenarios of more cells takes a while, and is said."""


def read_worlds(text: str) -> tuple[str, ...]:
    """Parse ``--worlds``: names separated by commas. Raises `BadInputError` for an unknown one."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in WORLDS:
            raise BadInputError(f"--worlds: {name!r} is none of {', '.join(WORLDS)}")
    return tuple(world for world in WORLDS if world in names)


def lacking(contenders: Sequence[Contender]) -> dict[Contender, str]:
    """The contenders whose programs this machine lacks, and what to install."""
    found = {}
    for one in contenders:
        if any(shutil.which(name) is None for name in one.programs):
            found[one] = f"{one.shown} with real packets: install {one.package}"
        elif one.control and not _has_control(one.control):
            found[one] = f"{one.shown} with real packets: load the module tcp_{one.control}"
    return found


def _has_control(control: str) -> bool:
    """Whether the kernel has a congestion control, loaded now if it is a module."""
    if control in CONTROLS.read_text("utf-8").split():
        return True
    if (modprobe := shutil.which("modprobe")) is None:
        return False
    loaded = subprocess.run([modprobe, "-q", f"tcp_{control}"], check=False, capture_output=True)
    return loaded.returncode == 0


def run_arena(
    engine: Engine,
    scale: Scale,
    worlds: Sequence[str],
    only: Sequence[str],
    out: File,
    jobs: int,
    page: File | None,
    *,
    as_json: bool,
) -> File:
    """Run what is missing, write the results, print them, and return the HTML page."""
    asked = grid(scale, worlds, only)
    if asked.empty:
        where = "with real packets, " if SIMULATION not in worlds else ""
        raise BadInputError(f"--only: nothing is left to run ({where}{scale})")
    if EMULATION in worlds and (why := hindrance()):
        raise UnfitEnvironmentError(f"--worlds emulation: {why}")
    lacks = lacking([one for one in asked.contenders if one.name in EMULATED]) if asked.both else {}
    outcome = run_grid(FilmEngine(engine), scale, asked, lacks, out, jobs)
    html = out / "index.html"
    write_results(outcome, out)
    write_html(outcome, html)
    if page:
        write_page(page, outcome)
    if as_json:
        print(json.dumps(as_dict(outcome), indent=2, ensure_ascii=False))
        return html
    console = Console(highlight=False)
    show(outcome, console)
    console.print(f"\nresults: {out}, page: {html}", soft_wrap=True, markup=False)
    return html


def run_grid(
    engine: FilmEngine,
    scale: str,
    asked: Grid,
    lacks: dict[Contender, str],
    out: File,
    jobs: int,
) -> Outcome:
    """Run the cells of a grid that the folder does not have."""
    console = Console(stderr=True, highlight=False)
    for line in lacks.values():
        console.print(f"not run: {line}", markup=False, soft_wrap=True)
    with claimed(out):
        asked.write(out)
        cells = asked.cells(out, tuple(lacks))
        if len(cells) > MANY:
            console.print(f"reading the scenarios of {len(cells):,} cells")
        runner = CoreRunner(jobs)
        store = Store(out / "cells", engine.fingerprint())
        study = Study(engine, store, runner)
        plan = study.plan(cells)
        for one in study.store.take_rejected():
            console.print(f"[yellow]run again:[/] {one.path}: {one.reason}", soft_wrap=True)
        with ShownProgress(console, runner) as progress:
            results = study.run(plan, progress)
        every = rows(results, cells)
        real = [cell for cell in cells if cell.real]
        machine = circumstances(results.of(real).table(MACHINE)) if real else ""
    both = {f"{one.path.group}/{one.path.name}" for one in asked.both}
    of_both = pl.format("{}/{}", "class", "path").is_in(sorted(both))
    return Outcome(
        scale,
        every.filter(~of_both),
        every.filter(of_both),
        engine.fingerprint(),
        tuple(lacks.values()),
        machine,
    )
