"""Cells with real packets: by the emulator, or by a measurement in Python.

They run without a simulation beside them, because they run in real time, and one at a time unless
the study asks for several emulations at once.
Each writes its tables to a folder; they go into the same store as those of simulated cells.
"""

import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

import polars as pl

from ontempo.lab.cells import Cell, Planned
from ontempo.lab.engine import Engine
from ontempo.lab.errors import LabError, UnfitEnvironmentError
from ontempo.lab.programs import URGENT, program, run_program, run_programs
from ontempo.lab.store import Store

MACHINE = "machine"
"""The table with each real cell's circumstances: kernel, load, lateness of the emulator."""

NET_ADMIN, SYS_ADMIN = 12, 21
"""Bits of a process's capabilities: to make interfaces, and namespaces."""

TUN = Path("/dev/net/tun")


@dataclass(frozen=True)
class Emulation:
    """A cell's scenario as it is, by ``ontempo emulate``.

    `controls` are those of its congestion controls that are ours and must be loaded.
    """

    controls: tuple[str, ...] = ()

    def identity(self) -> str:
        """The scenario alone decides."""
        return "emulation"

    def write(self, cell: Cell, folder: Path) -> None:
        """Run the scenario as long as it lasts."""
        emulate(cell, folder)


def emulate(cell: Cell, folder: Path, options: Sequence[str] = ()) -> None:
    """Emulate a cell's scenario; its tables, logs and ``run.json`` are left in `folder`."""
    run_program([*_command(cell, folder), *options], str(cell))


def _command(cell: Cell, folder: Path) -> list[str]:
    sets = [word for one in cell.overrides for word in ("--set", one)]
    command = [*URGENT, program(), "emulate", str(cell.scenario), "--out", str(folder)]
    return [*command, "--seed", str(cell.seed), *sets]


def hindrance() -> str:
    """What this process lacks to run real packets; empty if nothing."""
    if platform.system() != "Linux":
        return "needs Linux"
    if not _may(NET_ADMIN) or not _may(SYS_ADMIN):
        return "needs the rights of root: run with sudo"
    if not TUN.exists():
        return f"needs {TUN}: load the kernel's module tun"
    return ""


def _may(capability: int) -> bool:
    status = Path("/proc/self/status").read_text("utf-8")
    held = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(held.split()[1], 16) >> capability & 1)


def load_control(control: str) -> bool:
    """Load one of our congestion controls into the kernel; false if it was loaded already.

    `control` is its name, and after it the settings that differ from its defaults, with a space
    before each: ``"pert compete=alpha"``. One that was loaded with other settings is unloaded
    first. It stays loaded: another process may use it by now. Raises `UnfitEnvironmentError` if
    sockets use one with other settings than the cell needs.
    """
    name, *settings = control.split()
    loaded = json.loads(run_program([program(), "kernel", "list", "--json"], name))["loaded"]
    found = [one for one in loaded if one["name"] == name]
    if found:
        changed = found[0].get("changed", [])
        if sorted(changed) == sorted(settings):
            return False
        try:
            run_program([program(), "kernel", "unload", name], name)
        except LabError as error:
            how = f"was loaded with {', '.join(changed)}" if changed else "was loaded as it is"
            raise UnfitEnvironmentError(
                f"the kernel's {name} {how}, not with {', '.join(settings) or 'its defaults'}, and"
                f" cannot be unloaded: {error}"
            ) from error
    sets = (part for setting in settings for part in ("--set", setting))
    run_program([program(), "kernel", "load", name, *sets], name)
    return True


@cache
def machine() -> str:
    """Kernel and digest of the program: the code that a real cell's result depends on."""
    digest = blake2b(Path(program()).read_bytes(), digest_size=16).hexdigest()
    return f"{platform.system()} {platform.release()}, {digest}"


def run_real(
    engine: Engine,
    store: Store,
    cells: Sequence[Planned],
    finished: Callable[[Planned], None],
    at_once: int = 1,
) -> None:
    """Run cells, and store each as it ends; as `Runner.run`.

    One after another; where all are emulations, up to `at_once` beside each other.
    """
    places = max(1, at_once) if all(one.cell.real == Emulation() for one in cells) else 1
    # Those of a batch should last about as long as each other.
    order = sorted(cells, key=lambda one: one.cell.cost) if places > 1 else cells
    for place in range(0, len(order), places):
        batch = order[place : place + places]
        try:
            found = measured([one.cell for one in batch])
        except (LabError, KeyboardInterrupt):
            raise
        except Exception as error:
            names = " and ".join(str(one.cell) for one in batch)
            raise UnfitEnvironmentError(f"{names}: the run failed: {error}") from error
        for planned, tables in zip(batch, found, strict=True):
            store.keep(planned.key, tables, planned.about(engine.fingerprint()))
            finished(planned)


def measured(cells: Sequence[Cell]) -> list[Mapping[str, pl.DataFrame]]:
    """The tables of a real run, or of emulations at once, with that of their circumstances."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ontempo-lab-") as name:
        folders = [Path(name, str(place)) for place in range(len(cells))]
        for folder in folders:
            folder.mkdir()
        if len(cells) == 1:
            assert cells[0].real is not None
            cells[0].real.write(cells[0], folders[0])
        else:
            pairs = zip(cells, folders, strict=True)
            run_programs([(_command(cell, folder), str(cell)) for cell, folder in pairs])
        return [_tables(folder, before) for folder in folders]


def _tables(folder: Path, load_before: float) -> Mapping[str, pl.DataFrame]:
    tables = {
        path.stem: pl.read_parquet(path).with_columns(pl.selectors.categorical().cast(pl.String))
        for path in sorted(folder.glob("*.parquet"))
    }
    return {**tables, MACHINE: _circumstances(folder, load_before)}


def _circumstances(folder: Path, load_before: float) -> pl.DataFrame:
    """Kernel, load and, if the emulator ran, how late its packets were."""
    manifest = folder / "run.json"
    content = json.loads(manifest.read_text("utf-8")) if manifest.exists() else {}
    work = content.get("work", {})
    return pl.DataFrame(
        {
            "kernel": [platform.release()],
            "load_before": [load_before],
            "load_after": [os.getloadavg()[0]],
            "lateness_p50_s": [work.get("lateness_p50_s")],
            "lateness_p99_s": [work.get("lateness_p99_s")],
        },
        schema_overrides={"lateness_p50_s": pl.Float64, "lateness_p99_s": pl.Float64},
    )


def circumstances(tables: pl.DataFrame) -> str:
    """The table `MACHINE` of some cells in a sentence, for a claim's notes."""
    loads = [*tables["load_before"], *tables["load_after"]]
    kernels = ", ".join(sorted(set(tables["kernel"])))
    text = f"Linux {kernels}; load {min(loads):.1f} to {max(loads):.1f}"
    late = tables["lateness_p99_s"].drop_nulls()
    if late.is_empty():
        return f"{text}."
    micros = max(late) * 1e6
    return f"{text}; 99 % of the packets left the emulator within {micros:.0f} μs of their time."
