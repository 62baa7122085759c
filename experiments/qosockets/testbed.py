"""The paper's testbed with real packets: kernels as routers, an RSVP daemon on every node.

The network is that of the scenarios beside this file, carried by ``ontempo shell``; programs run in
the namespaces of its nodes, and their JSON output goes to files.
"""

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from ontempo.lab.cells import Cell
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import END_WITHIN_S, URGENT, end, program

HUB, LINE = "10 Mbit/s", "1.5 Mbit/s"

INTERFACES = {
    "ws1": {"to-r11": HUB},
    "r11": {"to-ws1": HUB, "to-r10": LINE},
    "r10": {"to-r11": LINE, "to-ws0": HUB},
    "ws0": {"to-r10": HUB},
}
"""Nodes, and the rates of their interfaces, for RSVP."""

BOTTLENECK = ("r11", "to-r10")
"""The interface at which packets from ws1 to ws0 queue."""

RESERVED = "1:1001"
"""The class of the first reservation there."""

REFRESH = "1 s"
"""R of RSVP: short, so that state times out and comes back within a run."""

TIMEOUT_S = 10.0
LOOK_EVERY_S = 0.02

T = TypeVar("T")

Report = dict[str, Any]
"""One JSON document of a program's output; `event` names its kind."""


class Program:
    """A program in a node's network; what it prints goes to a file, a JSON document a line."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, extra: Mapping[str, str]
    ) -> None:
        self.name = name
        self.output = folder / f"{name}.jsonl"
        self.complaints = folder / f"{name}.err"
        with self.output.open("w") as out, self.complaints.open("w") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **extra},
            )

    def reports(self) -> list[Report]:
        """Its output so far; an incomplete last line is left out."""
        lines = self.output.read_text("utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def of(self, event: str) -> list[Report]:
        """Its reports of one kind."""
        return [one for one in self.reports() if one["event"] == event]

    def wait_for(self, event: str, holds: Callable[[Report], bool] = lambda _: True) -> Report:
        """Wait for a report; `UnfitEnvironmentError` if it does not come in time."""
        return self.until(lambda: next(filter(holds, self.of(event)), None), f"reported no {event}")

    def until(self, look: Callable[[], T | None], otherwise: str) -> T:
        """Wait until `look` finds something; `UnfitEnvironmentError` on timeout or exit."""
        until = time.monotonic() + TIMEOUT_S
        while True:
            # Before looking: once it has ended, its last report is in the file.
            is_over = self.process.poll() is not None or time.monotonic() > until
            found = look()
            if found is not None:
                return found
            if is_over:
                raise UnfitEnvironmentError(f"{self.name} {otherwise}: {self.complaint()}")
            time.sleep(LOOK_EVERY_S)

    def complaint(self) -> str:
        """The last line of its stderr, or how it ended."""
        lines = self.complaints.read_text("utf-8").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.process.poll()}, without a message"

    def finish(self, within_s: float) -> None:
        """Wait for its end; `UnfitEnvironmentError` on timeout or a nonzero exit code."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise UnfitEnvironmentError(f"{self.name} did not end in time") from None
        if code:
            raise UnfitEnvironmentError(f"{self.name}: {self.complaint()}")

    def interrupt(self) -> None:
        """Send SIGINT, and wait."""
        if self.process.poll() is None:
            end(self.process)

    def terminate(self) -> None:
        """Send SIGTERM, and wait; kill it after `END_WITHIN_S`."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Testbed:
    """The network of a cell's scenario with its daemons; a context manager."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        self.folder = folder / "programs"
        self.folder.mkdir()
        self.name = f"qos{os.getpid()}"
        # Here the programs request the reservations, not the scenario.
        own = [one for one in cell.overrides if not one.startswith("reservations=")]
        sets = [word for one in own for word in ("--set", one)]
        words = [program(), "shell", str(cell.scenario), "ws1", "--name", self.name, *sets]
        self.network_command = [*URGENT, *words, "--", "sh", "-c", "echo up; exec cat"]
        self.programs: list[Program] = []
        self.daemons: dict[str, Program] = {}
        self.network: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        complaints = self.folder / "network.err"
        with complaints.open("w") as err:
            self.network = subprocess.Popen(
                self.network_command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )
        try:
            assert self.network.stdout
            if self.network.stdout.readline() != "up\n":
                message = complaints.read_text("utf-8").strip()
                raise UnfitEnvironmentError(f"the network: {message or 'it did not start'}")
            for node in INTERFACES:
                self.start_daemon(node)
        except BaseException:
            self.take_down()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.take_down()

    def take_down(self) -> None:
        """End all started processes: programs, then daemons, then the network."""
        for one in reversed(self.programs):
            one.interrupt()
        for daemon in self.daemons.values():
            daemon.terminate()
        if self.network is None:
            return
        assert self.network.stdin
        # It may be gone already.
        with contextlib.suppress(BrokenPipeError):
            self.network.stdin.close()
        try:
            self.network.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.network.terminate()
            self.network.wait()

    def inside(self, node: str, *words: str) -> list[str]:
        """The command that runs `words` in a node's network."""
        return ["ip", "netns", "exec", f"ontempo-{self.name}-{node}", *words]

    def look(self, node: str, *words: str) -> str:
        """The output of a short command in a node's network."""
        done = subprocess.run(
            self.inside(node, *words), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise UnfitEnvironmentError(f"{node}: {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def run(self, name: str, node: str, *words: str) -> Program:
        """Start a program in a node's network; it is ended with the testbed."""
        command = [*URGENT, *self.inside(node, *words)]
        extra = {"ONTEMPO_RSVP_SOCKET": str(self.socket(node))}
        started = Program(name, command, self.folder, extra)
        self.programs.append(started)
        return started

    def serve(self, name: str, node: str, *words: str) -> Program:
        """Start a program to which others connect, and wait until it listens."""
        started = self.run(name, node, *words)
        started.wait_for("listening")
        return started

    def socket(self, node: str) -> Path:
        """The socket on which a node's daemon serves applications."""
        return self.folder / f"{node}.sock"

    def start_daemon(self, node: str) -> None:
        """Start a node's RSVP daemon, and wait until it serves."""
        config = self.folder / f"{node}.toml"
        lines = [
            f'socket = "{self.socket(node)}"',
            f'refresh = "{REFRESH}"',
            "trust-network = true",
        ]
        for interface, rate in INTERFACES[node].items():
            lines += [f"[interfaces.{interface}]", f'rate = "{rate}"']
        config.write_text("\n".join(lines) + "\n", "utf-8")
        command = [*URGENT, *self.inside(node, program(), "rsvpd", str(config))]
        self.daemons[node] = daemon = Program(f"rsvpd-{node}", command, self.folder, {})
        daemon.until(lambda: self.socket(node).exists() or None, "does not serve")

    def stop_daemon(self, node: str) -> None:
        """End a node's RSVP daemon."""
        self.daemons.pop(node).terminate()

    def classes(self, where: tuple[str, str] = BOTTLENECK) -> str:
        """Output of ``tc -s class show`` for an interface: iproute2 6.1 has no JSON for classes."""
        node, interface = where
        return self.look(node, "tc", "-s", "class", "show", "dev", interface)

    def is_reserved(self) -> bool:
        """Whether there is a reservation at the bottleneck."""
        return f"class htb {RESERVED} " in self.classes()

    def wait_for_reservation(self, reserved: bool, otherwise: str) -> None:
        """Wait until there is one, or none; `UnfitEnvironmentError` on timeout."""
        until = time.monotonic() + TIMEOUT_S
        while self.is_reserved() != reserved:
            if time.monotonic() > until:
                raise UnfitEnvironmentError(otherwise)
            time.sleep(LOOK_EVERY_S)

    def change_burst(self, burst: int) -> None:
        """Set the burst, in bytes, of the reservation at the bottleneck."""
        node, interface = BOTTLENECK
        rate = rate_of(self.classes(), RESERVED)
        words = (
            f"tc class change dev {interface} parent 1:1 classid {RESERVED} htb prio 7 rate {rate}"
        )
        self.look(node, *words.split(), "ceil", "1500kbit", "burst", str(burst), "cburst", "3000")

    def solaris(self, nodes: Sequence[str] = ("ws0", "ws1")) -> None:
        """TCP as in the scenarios of DIRM: Reno, windows of 8 kB, neither SACK nor timestamps."""
        for node in nodes:
            settings = [f"{name}={value}" for name, value in SOLARIS.items()]
            self.look(node, "sysctl", "-qw", *settings)


SOLARIS: Mapping[str, str] = {
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_sack": "0",
    "net.ipv4.tcp_timestamps": "0",
    "net.ipv4.tcp_rmem": "4096 16384 16384",
    "net.ipv4.tcp_wmem": "4096 16384 16384",
}
"""The closest settings of Linux to Solaris 2.5.1: half of a buffer is window."""


_CLASS = re.compile(r"class htb (?P<name>\S+) .*?rate (?P<rate>\S+) ")
_SENT = re.compile(r" *Sent (\S+) bytes (\S+) pkt \(dropped ([^,]+),")


def rate_of(text: str, name: str) -> str:
    """The rate of a class in ``tc -s class show``; `UnfitEnvironmentError` without that class."""
    for line in text.splitlines():
        found = _CLASS.match(line)
        if found and found["name"] == name:
            return found["rate"]
    raise UnfitEnvironmentError(f"tc class show: rate: no class {name} with a rate in {text!r}")


def classes_of(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Of ``tc -s class show``: class, bytes and packets sent, packets dropped.

    A number that cannot be read is an `UnfitEnvironmentError` with the field and the text.
    """
    name = ""
    for line in text.splitlines():
        if found := _CLASS.match(line):
            name = found["name"]
        elif line.split()[:1] == ["Sent"]:
            fields = _SENT.match(line)
            if not name or fields is None:
                raise UnfitEnvironmentError(f"tc class show: Sent: cannot read {line!r}")
            sent, packets, dropped = (
                _count(field, text)
                for field, text in zip(("bytes", "pkt", "dropped"), fields.groups(), strict=True)
            )
            yield name, sent, packets, dropped


def _count(field: str, text: str) -> int:
    if not text.isdecimal():
        raise UnfitEnvironmentError(f"tc class show: {field}: {text!r} is not a number")
    return int(text)
