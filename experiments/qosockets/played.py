"""One test of Table 1 with real packets: the applications themselves, reservations by RSVP."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import polars as pl

from ontempo.lab.cells import Cell
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import program

from .grid import HERE
from .testbed import Program, Report, Testbed, classes_of

SLIDESHOW = HERE.parents[1] / "examples" / "slideshow"
QUALITY = HERE / "images.toml"

PORT = 5004
GATEWAY, WEB = 7070, 8000

DRAIN_S = 1.5
"""After the measured time: messages sent in it arrive, or count as lost."""

INTERVAL_NS = 500_000_000
"""Of equations (2) and (3)."""

ENDLESS_S = 3600
"""Programs run until SIGINT."""


@dataclass(frozen=True)
class Test:
    """The programs of a test, and its duration."""

    application: str
    """``nv``, ``dirm``, ``direct`` for the slide show without gateways, or empty for traffic
    generators alone."""
    over: str
    """The generators' transport: ``udp`` or ``tcp``."""
    generators: int
    reserved: str
    """Empty for nothing; else the reserved directions: ``back`` for images or video, ``both`` for
    ACKs and requests, too."""
    backward: int
    """Generators in the direction opposite to the images."""
    warm_s: float
    measured_s: float
    burst: int | None = None
    """Burst of the reservation at the bottleneck, in bytes, if not that of RSVP."""


@dataclass(frozen=True)
class Flow:
    """A flow's names, and the programs that report its messages."""

    group: str
    index: int
    sender: Program
    receiver: Program


def write_tables(cell: Cell, folder: Path, *, test: Test) -> None:
    """Run a test; write the tables `intervals`, `messages` and `classes` to `folder`."""
    with Testbed(cell, folder) as testbed:
        flows = list(_start(testbed, test))
        for flow in flows:
            flow.sender.wait_for("image" if flow.group == "images" else "sent")
        if test.burst:
            testbed.change_burst(test.burst)
        time.sleep(test.warm_s)
        from_ns = time.time_ns()
        time.sleep(test.measured_s / 2)
        counted = testbed.classes()
        time.sleep(test.measured_s / 2)
        until_ns = time.time_ns()
        time.sleep(DRAIN_S)
        _still_run(testbed.programs)
        reports = {flow: (flow.sender.reports(), flow.receiver.reports()) for flow in flows}
    intervals, messages = [], []
    for flow, (sent, received) in reports.items():
        pairs = _pairs(flow, sent, received)
        intervals.append(interval_rows(flow, pairs, from_ns, until_ns))
        messages.append(message_rows(flow, pairs, from_ns, until_ns))
    pl.concat(intervals).write_parquet(folder / "intervals.parquet")
    pl.concat(messages).write_parquet(folder / "messages.parquet")
    names = ("class", "sent_bytes", "sent_packets", "dropped_packets")
    rows = pl.DataFrame(list(classes_of(counted)), schema=list(names), orient="row")
    rows.with_columns(pl.lit(counted).alias("text")).write_parquet(folder / "classes.parquet")


def _still_run(programs: Sequence[Program]) -> None:
    for one in programs:
        if one.process.poll() is not None:
            raise UnfitEnvironmentError(f"{one.name} ended too soon: {one.complaint()}")


def _start(testbed: Testbed, test: Test) -> Iterator[Flow]:
    """Start the programs of a test; receivers first."""
    pair = 0
    if test.application == "nv":
        yield _video(testbed, test)
        pair = 1
    elif test.application in ("dirm", "direct"):
        testbed.solaris()
        yield _images(testbed, test)
        # In the scenario, requests are a separate flow.
        pair = 2
    elif test.over == "tcp":
        testbed.solaris()
    for index in range(test.generators):
        yield _generator(testbed, test.over, "tg", index, pair + index)
    for index in range(test.backward):
        yield _generator(testbed, test.over, "tg-back", index, pair + test.generators + index)


def ends(pair: int) -> tuple[str, str]:
    """The addresses of source and sink of a scenario's flow."""
    return f"10.0.0.{2 * pair + 2}", f"10.0.0.{2 * pair + 3}"


def _quality(test: Test) -> list[str]:
    return ["--reserve", "controlled-load", "--must-reserve"] if test.reserved else []


def _video(testbed: Testbed, test: Test) -> Flow:
    """NetVideo: 60 packets a second on average and at most 80, as the scenario says."""
    at = f"{ends(0)[1]}:{PORT}"
    options = [*_quality(test), "--json", "--messages"]
    receiver = testbed.serve(
        "nv.0.sink", "ws0", program(), "netvideo", "receive", "--listen", at, *options
    )
    rate = ["--rate", "60 messages/s", "--vary", "25 %", "--seconds", str(ENDLESS_S)]
    sender = testbed.run("nv.0.source", "ws1", program(), "netvideo", "send", at, *rate, *options)
    return Flow("nv", 0, sender, receiver)


def _generator(testbed: Testbed, over: str, group: str, index: int, pair: int) -> Flow:
    """A traffic generator: 1024 bytes each 15.17 ms, give or take 10 %."""
    there, back = ("ws1", "ws0") if group == "tg" else ("ws0", "ws1")
    at = f"{ends(pair)[1]}:{PORT}"
    options = ["--over", over, "--json", "--messages"]
    name = f"{group}.{index}"
    receive = [program(), "tg", "receive", "--listen", at, *options]
    receiver = testbed.serve(f"{name}.sink", back, *receive)
    rate = ["--rate", "65.918 messages/s", "--vary", "10 %", "--seconds", str(ENDLESS_S)]
    sender = testbed.run(f"{name}.source", there, program(), "tg", "send", at, *rate, *options)
    return Flow(group, index, sender, receiver)


def _images(testbed: Testbed, test: Test) -> Flow:
    """The slide show over a pair of gateways; of the paper's PCs each is its workstation here."""
    web, far = f"127.0.0.1:{WEB}", f"{ends(0)[0]}:{GATEWAY}"
    is_direct = test.application == "direct"
    if is_direct:
        web = f"{ends(0)[0]}:{WEB}"
    testbed.serve(
        "slides.server", "ws1", sys.executable, str(SLIDESHOW / "server.py"), "--listen", web
    )
    if not is_direct:
        _gateways(testbed, test, web, far)
    words = [str(SLIDESHOW / "client.py"), web, "--seconds", str(ENDLESS_S), "--json"]
    client = testbed.run("slides.client", "ws0", sys.executable, *words)
    return Flow("images", 0, client, client)


def _gateways(testbed: Testbed, test: Test, web: str, far: str) -> None:
    """One gateway beside the server, one beside the client, to which the client connects."""
    options = ["--spec", str(QUALITY), "--direction", test.reserved or "receive"]
    options += [*_quality(test), "--json"]
    # Over TCP, as the paper's; the testbed has no other hosts.
    words = [program(), "gateway", "--over", "tcp", "--listen"]
    testbed.serve("gateway.source", "ws1", *words, far, "--anyone", "--server", web, *options)
    testbed.serve("gateway.sink", "ws0", *words, web, "--to", far, *options)


@dataclass(frozen=True)
class Message:
    """A sent message; times in nanoseconds since 1970; no arrival time if it was lost."""

    number: int
    payload: int
    sent_ns: int
    received_ns: int | None
    delay_ns: int | None

    def came_in(self, from_ns: int, until_ns: int) -> bool:
        """Whether it arrived within a span."""
        return self.received_ns is not None and from_ns <= self.received_ns < until_ns


def _pairs(flow: Flow, sent: Sequence[Report], received: Sequence[Report]) -> list[Message]:
    """The messages of a flow, by their number."""
    if flow.group == "images":
        return [
            Message(
                one["number"],
                one["bytes"],
                one["sent_ns"],
                one["received_ns"],
                one["received_ns"] - one["sent_ns"],
            )
            for one in received
            if one["event"] == "image"
        ]
    arrived = {one["number"]: one for one in received if one["event"] == "received"}
    return [
        Message(
            one["number"],
            one["bytes"],
            one["time_ns"],
            arrived.get(one["number"], {}).get("time_ns"),
            arrived.get(one["number"], {}).get("delay_ns"),
        )
        for one in sent
        if one["event"] == "sent"
    ]


def interval_rows(
    flow: Flow, messages: Sequence[Message], from_ns: int, until_ns: int
) -> pl.DataFrame:
    """A row for each interval: messages sent in it, received in it, and of those sent, lost."""
    rows = []
    for begins in range(from_ns, until_ns - INTERVAL_NS + 1, INTERVAL_NS):
        ends_ns = begins + INTERVAL_NS
        sent = [one for one in messages if begins <= one.sent_ns < ends_ns]
        received = [one for one in messages if one.came_in(begins, ends_ns)]
        rows.append(
            {
                "group": flow.group,
                "index": flow.index,
                "begins_s": (begins - from_ns) / 1e9,
                "sent_messages": len(sent),
                "received_messages": len(received),
                "lost_messages": sum(one.received_ns is None for one in sent),
                "sent_bps": _bps(sent),
                "received_bps": _bps(received),
            }
        )
    return pl.DataFrame(rows)


def _bps(messages: Sequence[Message]) -> float:
    return sum(one.payload for one in messages) * 8e9 / INTERVAL_NS


def message_rows(
    flow: Flow, messages: Sequence[Message], from_ns: int, until_ns: int
) -> pl.DataFrame:
    """A row for each message received in the span, in the order of arrival; equations (4), (5)."""
    there = [one for one in messages if one.came_in(from_ns, until_ns)]
    there.sort(key=lambda one: one.received_ns or 0)
    delay = [(one.delay_ns or 0) / 1e9 for one in there]
    jitter = [None, *(abs(b - a) for a, b in pairwise(delay))]
    return pl.DataFrame(
        {
            "group": [flow.group] * len(there),
            "index": [flow.index] * len(there),
            "message": [one.number for one in there],
            "received_s": [((one.received_ns or 0) - from_ns) / 1e9 for one in there],
            "payload_bytes": [one.payload for one in there],
            "delay_s": delay,
            "jitter_s": jitter[: len(there)],
        },
        schema_overrides={"delay_s": pl.Float64, "jitter_s": pl.Float64},
    )
