"""Both ends of the comparison: the source sends a stream in real time, the sink records it.

The same for all contenders. A separate program, run in the hosts of the emulated network; it
needs the standard library only.

    python ends.py source PLAN.json PEER
    python ends.py sink PLAN.json PEER

Each runs the contender's program of its end meanwhile. In the plan's folder, the source writes
``departures``, the time of CLOCK_REALTIME in ns at which each datagram was passed to the kernel,
and ``source.json``; the sink ``recording``, for each datagram the time of CLOCK_REALTIME in ns at
which the kernel received it (8 bytes), its length (4 bytes) and its bytes, and ``sink.json``.
"""

import json
import os
import resource
import socket
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRIORITY = 1
"""The lowest real-time priority, that of the emulator: both ends and the contender's programs
precede the machine's other work, which must not affect the measurement."""

BUFFER_BYTES = 16 << 20
"""Receive buffer of the source's and the sink's sockets, so that they lose nothing."""

END_WITHIN_S = 0.5
"""How long a contender's program may take to end, in seconds."""

_SO_RCVBUFFORCE = 33
ENTRY = struct.Struct("=qI")
"""Before each datagram of a recording: time in ns, length."""

_SO_TIMESTAMPNS, _SO_RXQ_OVFL = 35, 40
_TIMESPEC = struct.Struct("=qq")
_MAX_DATAGRAM = 65_536

LOOK_EVERY_S = 0.1

NAMESPACE = "/proc/self/ns/net"


@dataclass
class Running:
    """A contender's program: the code with which it ended by itself, if it did."""

    ended_early: int | None = None


class ClockCheck:
    """Detects whether CLOCK_REALTIME, the clock of packet timestamps, was set meanwhile."""

    def __init__(self) -> None:
        self.before_ns = self._ahead_ns()

    @staticmethod
    def _ahead_ns() -> int:
        return time.time_ns() - time.monotonic_ns()

    def moved_ns(self) -> int:
        """By how much it was set, or drifted, in ns."""
        return self._ahead_ns() - self.before_ns


def read_plan(path: str) -> tuple[Path, dict[str, Any]]:
    """The folder of this contender, and the plan."""
    plan: dict[str, Any] = json.loads(Path(path).read_text("utf-8"))
    return Path(path).parent, plan


def udp() -> socket.socket:
    """A UDP socket with a large receive buffer; beyond the system's limit where run as root."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
    except PermissionError:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return made


def set_congestion(plan: dict[str, Any]) -> None:
    """Put the plan's TCP congestion control on the routes of the emulated host, if it names one.

    By ``ip route ... congctl`` (ip-route(8)), since a network namespace cannot make a restricted
    congestion control its default. Raises `RuntimeError` in the machine's own network namespace.
    """
    if not (control := plan["congestion"]):
        return
    if Path(NAMESPACE).stat().st_ino == plan["machine_namespace"]:
        raise RuntimeError("not in an emulated host: the machine's routes stay")
    # `ip` prints "rto_min lock 200ms", and does not take the word.
    routes = _output(["ip", "-4", "route", "show"]).replace("rto_min lock", "rto_min")
    for route in routes.splitlines():
        _output(["ip", "route", "replace", *route.split(), "congctl", control])


def check_congestion(plan: dict[str, Any]) -> None:
    """Raise `RuntimeError` if a TCP connection of the host has another congestion control."""
    if not (control := plan["congestion"]):
        return
    sockets = _output(["ss", "-H", "-t", "-n", "-i", "-O", "state", "established"]).splitlines()
    if others := [socket for socket in sockets if control not in socket.split()]:
        raise RuntimeError(f"a connection does not use {control}: {others[0]}")


def _output(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def go_first() -> None:
    """Run this program, and those that it starts, before the machine's other work."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except PermissionError as error:
        print(f"runs as an ordinary process: {error}", file=sys.stderr)


@contextmanager
def program(words: list[str], peer: str, log: Path) -> Iterator[Running]:
    """Run a contender's program meanwhile, if it has one; ended, and waited for, at the end."""
    running = Running()
    if not words:
        yield running
        return
    with log.open("wb") as file:
        command = [word.replace("{peer}", peer) for word in words]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            yield running
        finally:
            running.ended_early = child.poll()
            child.terminate()
            try:
                child.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def write_report(path: Path, running: Running, clock: ClockCheck, **more: object) -> None:
    """Write processor time and exit of the contender's program, and by how much the clock moved."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = {
        "processor_s": used.ru_utime + used.ru_stime,
        "ended_early": running.ended_early,
        "clock_moved_ns": clock.moved_ns(),
        **more,
    }
    path.write_text(json.dumps(report), "utf-8")


def send(
    datagrams: list[bytes], due_ns: "array[int]", to: tuple[str, int], begin_ns: int
) -> "array[int]":
    """Send each datagram at its time of CLOCK_MONOTONIC; return the times by CLOCK_REALTIME."""
    left = array("q")
    with udp() as out:
        for datagram, due in zip(datagrams, due_ns, strict=True):
            wait_ns = begin_ns + due - time.monotonic_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / 1e9)
            left.append(time.time_ns())
            out.sendto(datagram, to)
    return left


def source(plan_file: str, peer: str) -> None:
    """Start the contender, send once it has had time to connect, end it after the drain time."""
    folder, plan = read_plan(plan_file)
    stream = Path(plan["stream"]).read_bytes()
    size = plan["datagram"]
    datagrams = [stream[at : at + size] for at in range(0, len(stream), size)]
    due_ns = array("q", Path(plan["due"]).read_bytes())
    started_ns = time.monotonic_ns()
    set_congestion(plan)
    go_first()
    clock = ClockCheck()
    with program(plan["send"], peer, folder / "send.log") as running:
        begin_ns = started_ns + round(plan["warm_up_s"] * 1e9)
        to = ("127.0.0.1", plan["input"]) if plan["send"] else (peer, plan["wire"])
        left = send(datagrams, due_ns, to, begin_ns)
        check_congestion(plan)
        time.sleep(plan["drain_s"])
    (folder / "departures").write_bytes(left.tobytes())
    write_report(folder / "source.json", running, clock)


def record(inlet: socket.socket, until: float) -> tuple[bytearray, int]:
    """The recording until a time of CLOCK_MONOTONIC, and how many datagrams the socket lost."""
    recording, overflowed = bytearray(), 0
    inlet.settimeout(LOOK_EVERY_S)
    while time.monotonic() < until:
        try:
            datagram, notes, _, _ = inlet.recvmsg(_MAX_DATAGRAM, 128)
        except TimeoutError:
            continue
        stamp_ns = time.time_ns()
        for _, kind, value in notes:
            if kind == _SO_TIMESTAMPNS:
                seconds, nanos = _TIMESPEC.unpack_from(value)
                stamp_ns = seconds * 1_000_000_000 + nanos
            elif kind == _SO_RXQ_OVFL:
                overflowed = int.from_bytes(value, sys.byteorder)
        recording += ENTRY.pack(stamp_ns, len(datagram))
        recording += datagram
    return recording, overflowed


def sink(plan_file: str, peer: str) -> None:
    """Record for the time in the plan."""
    folder, plan = read_plan(plan_file)
    until = time.monotonic() + plan["listen_s"]
    set_congestion(plan)
    go_first()
    clock = ClockCheck()
    with udp() as inlet:
        for option in (_SO_TIMESTAMPNS, _SO_RXQ_OVFL):
            inlet.setsockopt(socket.SOL_SOCKET, option, 1)
        if plan["receive"]:
            inlet.bind(("127.0.0.1", plan["output"]))
        else:
            inlet.bind(("", plan["wire"]))
        with program(plan["receive"], peer, folder / "receive.log") as running:
            recording, overflowed = record(inlet, until)
    (folder / "recording").write_bytes(recording)
    write_report(folder / "sink.json", running, clock, overflowed=overflowed)


def main() -> None:
    """Run one of the two ends."""
    role, plan_file, peer = sys.argv[1:]
    {"source": source, "sink": sink}[role](plan_file, peer)


if __name__ == "__main__":
    main()
