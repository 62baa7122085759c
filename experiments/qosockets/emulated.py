"""The cells that are run with real packets: the tests of Table 1 by the programs themselves.

Each is the cell of the simulation, shorter in quick because it runs in real time, and is also
simulated at the same length.

``python -m experiments.qosockets.emulated nv C2 out/c2`` runs one, prints what ``tc`` counted at
the slow link halfway, and the measures of each flow. Needs root.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from ontempo.lab.beside import with_twins
from ontempo.lab.cells import Measurement
from ontempo.lab.claims import Scale
from ontempo.lab.errors import LabError
from ontempo.lab.place import make_folder
from ontempo.lab.real_time import Emulation
from ontempo.lab.study import Cell

from .grid import CASES, Application, ack_cell, ack_tests, links, test_cell
from .played import Test, write_tables

SPANS: dict[Scale, dict[tuple[Application, bool], tuple[int, int]]] = {
    "quick": {
        ("nv", False): (1, 4),
        ("nv", True): (4, 7),
        ("dirm", False): (2, 6),
        ("dirm", True): (2, 8),
    },
    "full": {
        ("nv", False): (10, 60),
        ("nv", True): (10, 60),
        ("dirm", False): (10, 110),
        ("dirm", True): (10, 110),
    },
}
"""Seconds before and of the measurement, by application and whether a test is an overload. The
paper has 100 samples or more of NetVideo, 200 or more of DIRM, each of 0.5 s."""

RUNS: dict[Scale, int] = {"quick": 1, "full": 1}
"""How often each test is run; the paper says of none that it was repeated."""

KERNEL_QUEUE = '{ kind = "wfq", unreserved = "by-flow", limit = "64 packets" }'
"""As the scenarios', but that a queue of the kernel's takes packets again as soon as one left."""

SET_UP_S = 4
"""Overhead of a run in seconds, roughly."""


def played_cell(application: Application, name: str, scale: Scale, seed: int = 0) -> Cell:
    """A test of Table 1 by its name."""
    case = next(case for case in CASES if case.name == name)
    warm_s, measured_s = SPANS[scale][application, case.generators > 1]
    cell = test_cell(application, case, warm_s + measured_s, seed)
    main = application if case.with_application else ""
    over = "udp" if application == "nv" else "tcp"
    reserved = "receive" if case.reserved else ""
    test = Test(main, over, case.generators, reserved, 0, warm_s, measured_s)
    return measured(cell, test)


def measured(cell: Cell, test: Test) -> Cell:
    """A cell of the simulation, run by the programs; its twin has the queues of the kernel."""
    measurement = Measurement("testbed", partial(write_tables, test=test), (("test", repr(test)),))
    overrides = (*cell.overrides, f'measure.from="{test.warm_s:g} s"', links(KERNEL_QUEUE))
    cost = test.warm_s + test.measured_s + SET_UP_S
    return replace(cell, overrides=overrides, cost=cost, real=measurement)


def ack_cells_played(scale: Scale) -> list[Cell]:
    """Test C2 of DIRM with and without reserved ACKs, as `grid.ack_cells`."""
    warm_s, measured_s = SPANS[scale]["dirm", True]
    ways = {"nothing": "", "data only": "receive", "data and ACKs": "both"}
    found = []
    for scenario, back, variant, reservations in ack_tests():
        for seed in range(RUNS[scale]):
            backward = 3 if back == "crowded" else 0
            test = Test("dirm", "tcp", 2, ways[variant], backward, warm_s, measured_s)
            cell = ack_cell(scenario, back, variant, reservations, warm_s + measured_s, seed)
            found.append(measured(cell, test))
    return with_twins(found)


SOCKETS = ("plain", "with quality")
"""The kernel's own sockets, and these."""


BURSTS = (None, 63_000, 16_000, 3_000)
"""Bursts of the images' reservation, in bytes: two images, as in RSVP's TSpec; one; less."""


def burst_cells(scale: Scale) -> list[Cell]:
    """Test C2 of DIRM by the depth of the images' bucket at the slow link."""
    spans = SPANS[scale]["dirm", True]
    cell = test_cell("dirm", CASES[-1], sum(spans), 0)
    tests = (Test("dirm", "tcp", 2, "receive", 0, *spans, burst) for burst in BURSTS)
    return [
        measured(replace(cell, labels=(*cell.labels, ("burst", test.burst or 0))), test)
        for test in tests
    ]


def overhead_cells(scale: Scale) -> list[Cell]:
    """Test A1 of both applications over plain sockets, and as it is."""
    found = []
    for seed in range(RUNS[scale]):
        for application in APPLICATIONS.values():
            ours = played_cell(application, "A1", scale, seed)
            plain = replace(ours, real=Emulation())
            if application == "dirm":
                spans = SPANS[scale]["dirm", False]
                plain = measured(
                    test_cell("dirm", CASES[0], sum(spans), seed),
                    Test("direct", "tcp", 0, "", 0, *spans),
                )
            found += [
                replace(cell, labels=(*cell.labels, ("sockets", sockets)))
                for sockets, cell in zip(SOCKETS, (plain, ours), strict=True)
            ]
    return found


def played_cells(application: Application, scale: Scale) -> list[Cell]:
    """Every test of an application, and each of them simulated."""
    return with_twins(
        [
            played_cell(application, case.name, scale, seed)
            for seed in range(RUNS[scale])
            for case in CASES
        ]
    )


def played_scaling(scale: Scale) -> str:
    """A description of what is run."""

    def words(application: Application, name: str) -> str:
        normal, overload = (SPANS[scale][application, it][1] for it in (False, True))
        return f"{name} {normal} s (overload: {overload} s)"

    of = f"{words('nv', 'NetVideo')}, {words('dirm', 'DIRM')}"
    times = "once" if RUNS[scale] == 1 else f"{RUNS[scale]} times"
    return f"Each test {times}, measured for: {of}. The paper: 50 s or more, and 100 s or more."


APPLICATIONS: dict[str, Application] = {"nv": "nv", "dirm": "dirm"}


def main(arguments: Sequence[str]) -> None:
    """Run one test, and print what was measured."""
    if len(arguments) != 3 or arguments[0] not in APPLICATIONS:
        raise SystemExit(__doc__)
    folder = Path(arguments[2])
    cell = played_cell(APPLICATIONS[arguments[0]], arguments[1], "quick")
    assert cell.real is not None
    try:
        make_folder(folder)
        cell.real.write(cell, folder)
    except LabError as error:
        sys.exit(f"error: {error}")
    print(pl.read_parquet(folder / "classes.parquet")["text"][0])
    for line in _lines(folder):
        print(line)


def _lines(folder: Path) -> Iterator[str]:
    by = ["group", "index"]
    intervals = pl.read_parquet(folder / "intervals.parquet").group_by(by, maintain_order=True)
    counted = intervals.agg(
        pl.col("sent_bps", "received_bps").mean(),
        (100 * pl.col("lost_messages").sum() / pl.col("sent_messages").sum()).alias("lost"),
    )
    timed = pl.read_parquet(folder / "messages.parquet").group_by(by, maintain_order=True)
    means: Mapping[tuple[object, ...], Mapping[str, float]] = {
        (row["group"], row["index"]): row
        for row in timed.agg(pl.col("delay_s", "jitter_s").mean()).iter_rows(named=True)
    }
    for row in counted.iter_rows(named=True):
        times = means[row["group"], row["index"]]
        yield (
            f"{row['group']}.{row['index']}: sent {row['sent_bps'] / 1e3:.0f} kbit/s, received"
            f" {row['received_bps'] / 1e3:.0f}, lost {row['lost']:.2f} %, delay"
            f" {times['delay_s'] * 1e3:.1f} ms, jitter {times['jitter_s'] * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
