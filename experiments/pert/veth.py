"""Two hosts of the kernel alone, a veth pair behind HTB: for rates beyond the emulator's."""

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from ontempo.lab.cells import Cell
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import end, run_program

RUN_LOCKS = Path("/run/ontempo")
"""Folder of run locks, in which the emulator looks for namespaces of dead processes."""

DEVICE, SOURCE, SINK = "ontempo0", "10.99.0.1", "10.99.0.2"

LISTENS_WITHIN_S = 5

HTB_BURST = "1mb"
"""The longest burst: 0.8 ms at 10 Gbit/s, above the timer's step."""


@contextmanager
def hosts(rate_bps: int, mtu: int) -> Iterator[tuple[str, str]]:
    """Two namespaces with a link of this rate from the first to the second; removed at the end.

    They are listed in a run lock as the emulator's are, so that its next run removes them if this
    process is killed.
    """
    run = f"lab{os.getpid()}"
    names = f"ontempo-{run}-source", f"ontempo-{run}-sink"
    RUN_LOCKS.mkdir(exist_ok=True)
    lock = RUN_LOCKS / run
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write("".join(f"{name}\n" for name in names))
        file.flush()
        try:
            _set_up(names, rate_bps, mtu)
            yield names
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
            lock.unlink()


def _set_up(names: tuple[str, str], rate_bps: int, mtu: int) -> None:
    source, sink = names
    for name in names:
        _run("ip", "netns", "add", name)
    pair = ("type", "veth", "peer", "name", DEVICE, "netns", sink)
    _run("ip", "link", "add", DEVICE, "netns", source, *pair)
    for name, address in ((source, SOURCE), (sink, SINK)):
        _run("ip", "-n", name, "address", "add", f"{address}/30", "dev", DEVICE)
        _run("ip", "-n", name, "link", "set", DEVICE, "mtu", str(mtu), "up")
    root = ("dev", DEVICE, "root", "handle", "1:", "htb", "default", "1")
    _run("tc", "-n", source, "qdisc", "add", *root)
    limits = ("rate", f"{rate_bps}bit", "burst", HTB_BURST, "cburst", HTB_BURST)
    _run(
        *("tc", "-n", source, "class", "add", "dev", DEVICE, "parent", "1:", "classid", "1:1"),
        *("htb", *limits, "quantum", "60000"),
    )


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise UnfitEnvironmentError(f"the program {command[0]} is missing: install iproute2")
    run_program(command, command[0])


def transfer(cell: Cell, folder: Path) -> None:
    """One transfer by iperf3 with the congestion control of the cell's labels; table `transfer`."""
    labels = dict(cell.labels)
    control, seconds = str(labels["controller"]), int(labels["seconds"])
    if shutil.which("iperf3") is None:
        raise UnfitEnvironmentError("the program iperf3 is missing: install it")
    with hosts(int(labels["rate_bps"]), int(labels["mtu"])) as (source, sink):
        inside = ("ip", "netns", "exec")
        server = subprocess.Popen(
            [*inside, sink, "iperf3", "--server", "--one-off"], stdout=subprocess.DEVNULL
        )
        try:
            _await_listening(sink)
            options = ("--congestion", control, "--time", str(seconds), "--omit", "2", "--json")
            result = run_program([*inside, source, "iperf3", "--client", SINK, *options], "iperf3")
        finally:
            end(server)
    _write(json.loads(result), control, folder)


def _await_listening(namespace: str) -> None:
    by = time.monotonic() + LISTENS_WITHIN_S
    while time.monotonic() < by:
        if run_program(["ip", "netns", "exec", namespace, "ss", "-Hltn"], "ss").strip():
            return
        time.sleep(0.05)
    raise UnfitEnvironmentError(f"iperf3 did not listen within {LISTENS_WITHIN_S} s")


def _write(result: dict[str, dict[str, dict[str, float]]], control: str, folder: Path) -> None:
    received = result["end"]["sum_received"]
    pl.DataFrame(
        {
            "control": [control],
            "received_bps": [received["bits_per_second"]],
            "retransmitted": [int(result["end"]["sum_sent"]["retransmits"])],
            "sender_cpu": [result["end"]["cpu_utilization_percent"]["host_total"] / 100],
            "receiver_cpu": [result["end"]["cpu_utilization_percent"]["remote_total"] / 100],
        }
    ).write_parquet(folder / "transfer.parquet")
