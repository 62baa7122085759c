"""A reserved video under overload is disturbed: by its own rate, a router's restart, a cut link.

Each part runs on a fresh network. Its tables hold what is reported to the application at both ends,
with the values requested and delivered, the arrivals of messages, and the output of SNMP.
"""

import shutil
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import polars as pl

from ontempo.lab.cells import Cell, Measurement
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import program

from .grid import HERE
from .played import PORT, ends
from .testbed import BOTTLENECK, TIMEOUT_S, Program, Testbed

REC_TIME_S = 5.0
"""NetVideo's rec_time: the longest that recovery may take."""

PARTS = ("over", "restart", "short cut", "long cut")

CUT_S = {"short cut": 2.0, "long cut": 8.0}
"""Seconds without the link: below and above `REC_TIME_S`."""

LOAD_S = 3.0
"""Seconds until the generators have filled the line."""

OVER = """min_rate = "20 messages/s"
max_rate = "30 messages/s"
size = "1280 bytes"
max_delay = "100 ms"
loss = "5 %"
rec_time = "5 s"
coerced = true
"""
"""The specification of the part that sends 100 messages a second: three times as many."""

COUNT_OID = "1.3.6.1.4.1.8072.9999.9999.2000.1"
"""The MIB's objects."""

VIOLATED_COLUMN = ".2000.1.3.1.5."
"""OID of the column of the parameters' table that shows whether one is violated."""


def disturbed_cells() -> list[Cell]:
    """A run of each part."""
    seconds = {"over": 10.0, "restart": 15.0, "short cut": 16.0, "long cut": 22.0}
    return [
        Cell(
            HERE / "nv-tg.toml",
            ('duration="60 s"', "flows.tg.count=2"),
            0,
            (("part", part),),
            seconds[part],
            Measurement("disturbed", partial(write_part, part=part), (("part", part),)),
        )
        for part in PARTS
    ]


def write_part(cell: Cell, folder: Path, *, part: str) -> None:
    """Write the tables `told`, `arrivals`, `phases` and `snmp` to `folder`."""
    phases: dict[str, int] = {}

    def mark(name: str) -> None:
        phases[name] = time.time_ns()

    with Testbed(cell, folder) as testbed:
        sender, receiver = _start(testbed, part)
        time.sleep(LOAD_S)
        mark("disturbed")
        snmp: Iterable[str] = ()
        if part == "over":
            receiver.wait_for("violation")
            sender.wait_for("violation")
            snmp = _walk(testbed)
        elif part == "restart":
            _restart(testbed, mark)
            time.sleep(REC_TIME_S)
        else:
            _cut(testbed, CUT_S[part], mark)
            _until_reserved(testbed)
            mark("reserved again")
            time.sleep(4.0)
        mark("ended")
        reports = {"sender": sender.reports(), "receiver": receiver.reports()}
    kinds = ("violation", "reservation")
    rows = [
        {
            "end": end,
            "event": one["event"],
            "parameter": one.get("parameter"),
            "turn": one.get("turn") or one.get("state"),
            "asked": one.get("asked"),
            "delivered": one.get("delivered") or one.get("reason"),
        }
        for end, of_end in reports.items()
        for one in of_end
        if one["event"] in kinds
    ]
    columns = ("end", "event", "parameter", "turn", "asked", "delivered")
    schema = dict.fromkeys(columns, pl.String)
    pl.DataFrame(rows, schema=schema).write_parquet(folder / "told.parquet")
    times = [one["time_ns"] for one in reports["receiver"] if one["event"] == "received"]
    numbers = [one["number"] for one in reports["receiver"] if one["event"] == "received"]
    arrivals = pl.DataFrame({"time_ns": times, "number": numbers})
    arrivals.write_parquet(folder / "arrivals.parquet")
    pl.DataFrame({"phase": list(phases), "time_ns": list(phases.values())}).write_parquet(
        folder / "phases.parquet"
    )
    pl.DataFrame({"line": list(snmp)}, schema={"line": pl.String}).write_parquet(
        folder / "snmp.parquet"
    )


def _start(testbed: Testbed, part: str) -> tuple[Program, Program]:
    """A reserved video, and two generators beside it."""
    at = f"{ends(0)[1]}:{PORT}"
    options = ["--reserve", "controlled-load", "--json", "--messages"]
    rate = "60 messages/s"
    if part == "over":
        specification = testbed.folder / "over.toml"
        specification.write_text(OVER, "utf-8")
        options += ["--spec", str(specification)]
        rate = "100 messages/s"
    receiver = testbed.serve(
        "receiver", "ws0", program(), "netvideo", "receive", "--listen", at, *options
    )
    words = [program(), "netvideo", "send", at, "--rate", rate, "--seconds", "3600", *options]
    sender = testbed.run("sender", "ws1", *words)
    sender.wait_for("reservation", lambda one: one["state"] == "controlled load")
    for index in range(2):
        sink = f"{ends(1 + index)[1]}:{PORT}"
        testbed.serve(
            f"tg.{index}.sink", "ws0", program(), "tg", "receive", "--listen", sink, "--json"
        )
        testbed.run(
            f"tg.{index}", "ws1", program(), "tg", "send", sink, "--seconds", "3600", "--json"
        )
    return sender, receiver


def _until_reserved(testbed: Testbed) -> None:
    testbed.wait_for_reservation(True, "the reservation did not come back")


def _restart(testbed: Testbed, mark: Callable[[str], None]) -> None:
    """A router's daemon ends, with its classes and its state, and is started again."""
    node, _ = BOTTLENECK
    testbed.stop_daemon(node)
    if testbed.is_reserved():
        raise UnfitEnvironmentError("the daemon left its class behind")
    mark("cut")
    time.sleep(1.0)
    testbed.start_daemon(node)
    mark("mended")
    _until_reserved(testbed)
    mark("reserved again")


def _cut(testbed: Testbed, seconds: float, mark: Callable[[str], None]) -> None:
    """The line between the routers is cut and restored."""
    node, interface = BOTTLENECK
    routes = testbed.look(node, "ip", "route", "show", "dev", interface).splitlines()
    testbed.look(node, "ip", "link", "set", interface, "down")
    mark("cut")
    time.sleep(seconds)
    testbed.look(node, "ip", "link", "set", interface, "up")
    # The kernel removes them with the interface.
    for route in routes:
        testbed.look(node, "ip", "route", "add", *route.split(), "dev", interface)
    mark("mended")


def _walk(testbed: Testbed) -> list[str]:
    """The lines of an SNMP walk; empty if net-snmp is not installed."""
    if not all(map(shutil.which, ("snmpd", "snmpwalk"))):
        return []
    folder = testbed.folder
    (folder / "snmpd.conf").write_text(
        f"agentaddress udp:127.0.0.1:1161\nrocommunity public\nmaster agentx\n"
        f"agentXSocket {folder}/master\n",
        "utf-8",
    )
    # No state between runs, and no MIB files.
    plain = ("env", f"SNMP_PERSISTENT_DIR={folder}/kept", "MIBS=")
    testbed.run("snmpd", "ws0", *plain, "snmpd", "-f", "-Lo", "-C", "-c", f"{folder}/snmpd.conf")
    testbed.run("export", "ws0", program(), "export", f"--agentx={folder}/master")
    ask = ("-v2c", "-c", "public", "-On", "-OQ", "-t", "1", "-r", "0", "127.0.0.1:1161", COUNT_OID)
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            lines = testbed.look("ws0", *plain, "snmpwalk", *ask).splitlines()
        except UnfitEnvironmentError:
            lines = []
        if any(VIOLATED_COLUMN in line and line.endswith("= 1") for line in lines):
            return lines
        if time.monotonic() > until:
            return lines
        time.sleep(0.2)
