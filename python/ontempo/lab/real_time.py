"""Cells with real packets: by the emulator, or by a measurement in Python.

They run one at a time unless a cell allows more, and with no simulation beside them, because they
run in real time.
Each writes its tables to a folder; they go into the same store as those of simulated cells.
"""

import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import groupby
from pathlib import Path

import polars as pl

from ontempo.lab.cells import Cell, Planned
from ontempo.lab.engine import REPLACED, Engine
from ontempo.lab.errors import LabError, UnfitEnvironmentError
from ontempo.lab.programs import LOOK_EVERY_S, URGENT, end_running, program, run_program
from ontempo.lab.store import Store

MACHINE = "machine"
"""The table with each real cell's circumstances: kernel, load, lateness of the emulator."""

NET_ADMIN, SYS_ADMIN = 12, 21
"""Bits of a process's capabilities: to make interfaces, and namespaces."""

TUN = Path("/dev/net/tun")

CARRIERS: Mapping[str, tuple[str, ...]] = {
    "srt": ("srt-live-transmit",),
    "rist": ("ristsender", "ristreceiver"),
}
"""The system's programs that the emulator starts for a transport: crates/emulator/src/carriers.rs.
"""


@dataclass(frozen=True)
class Emulation:
    """A cell's scenario as it is, by ``ontempo emulate``.

    `controls` are those of its congestion controls that are ours and must be loaded; `at_once` is
    how many may run side by side.
    """

    controls: tuple[str, ...] = ()
    at_once: int = 1

    def identity(self) -> str:
        """The scenario decides, and what `made_with` finds in it."""
        return "emulation"

    def write(self, cell: Cell, folder: Path) -> None:
        """Run the scenario as long as it lasts."""
        emulate(cell, folder)


def emulate(cell: Cell, folder: Path, options: Sequence[str] = ()) -> None:
    """Emulate a cell's scenario; its tables, logs and ``run.json`` are left in `folder`."""
    sets = [word for one in cell.overrides for word in ("--set", one)]
    command = [*URGENT, program(), "emulate", str(cell.scenario), "--out", str(folder)]
    run_program([*command, "--seed", str(cell.seed), *sets, *options], str(cell), meant=REPLACED)


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


def made_with(canonical: str, controls: Sequence[str]) -> list[str]:
    """What else a real cell's result depends on: the programs of its flows, the kernel's controls.

    Of each program its name and a digest of it and of the libraries that it loads; of a flow's
    command each word that is a program. In order of the names.
    """
    content = json.loads(canonical)
    flows = content.get("flows", {}).values() if isinstance(content, dict) else ()
    names: set[str] = set()
    for flow in flows:
        names.update(CARRIERS.get(flow["transport"]["kind"], ()))
        ends = (flow["application"].get(end) for end in ("command", "peer"))
        names.update(word for words in ends for word in words or () if shutil.which(word))
    return [*sorted(controls), *(f"{name} {_digest(name)}" for name in sorted(names))]


@cache
def _digest(name: str) -> str:
    """Of a program and its libraries; empty if it is missing, so that the run will fail."""
    if (path := shutil.which(name)) is None:
        return ""
    found = blake2b(digest_size=16)
    for file in (path, *_libraries(path)):
        found.update(blake2b(Path(file).read_bytes()).digest())
    return found.hexdigest()


def _libraries(path: str) -> list[str]:
    """Those that a program loads as it starts; none of a script, or without ``ldd``."""
    try:
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    return sorted(word for word in listed.split() if word.startswith("/") and Path(word).is_file())


def run_real(
    engine: Engine,
    store: Store,
    cells: Sequence[Planned],
    finished: Callable[[Planned], None],
) -> None:
    """Run cells, as many at a time as they allow, and store each as it ends; as `Runner.run`."""

    def stored(planned: Planned, tables: Mapping[str, pl.DataFrame]) -> None:
        store.keep(planned.key, tables, planned.about(engine.fingerprint()))
        finished(planned)

    for at_once, some in groupby(cells, key=lambda planned: planned.at_once):
        if at_once == 1:
            for planned in some:
                stored(planned, _tables(planned))
        else:
            _side_by_side(list(some), at_once, stored)


def _side_by_side(
    cells: Sequence[Planned],
    at_once: int,
    stored: Callable[[Planned, Mapping[str, pl.DataFrame]], None],
) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(_tables, planned): planned for planned in cells}
        try:
            while running:
                for done in wait(running, LOOK_EVERY_S, FIRST_COMPLETED).done:
                    stored(running.pop(done), done.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_running()
            raise


def _tables(planned: Planned) -> Mapping[str, pl.DataFrame]:
    try:
        return measured(planned.cell)
    except (LabError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise UnfitEnvironmentError(f"{planned.cell}: the run failed: {error}") from error


def measured(cell: Cell) -> Mapping[str, pl.DataFrame]:
    """The tables of one real run, with that of its circumstances."""
    assert cell.real is not None
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ontempo-lab-") as name:
        folder = Path(name)
        cell.real.write(cell, folder)
        tables = {
            path.stem: pl.read_parquet(path).with_columns(
                pl.selectors.categorical().cast(pl.String)
            )
            for path in sorted(folder.glob("*.parquet"))
        }
        tables[MACHINE] = _circumstances(folder, before)
    return tables


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
