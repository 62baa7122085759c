"""Who carries the stream, and how each is started, with what its own documents advise.

A contender's words may hold ``{peer}``, for which the program of its end puts the other's address.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path as File

from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import program

from .paths import Path

INPUT, OUTPUT, WIRE = 5000, 5001, 4434
"""UDP ports: into the sender, out of the receiver, between them. RIST wants an even one."""

RELAY = File(__file__).parent / "relay.py"

Words = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Contender:
    """A way to carry the stream.

    `send` and `receive` are the programs of its two ends, none for the harness itself. `lacks`
    says why it cannot be run on this machine, and is empty where it can. `buffer_ms` is how long
    what arrives may wait: by the path's rule, where it has no buffer of its own.
    """

    name: str
    shown: str
    send: Words
    receive: Words
    lacks: Callable[[], str] = lambda: ""
    version: Callable[[], str] = lambda: ""
    buffer_ms: Callable[[Path], int] = lambda path: path.latency_ms


def _package(name: str, program: str) -> Callable[[], str]:
    return lambda: "" if shutil.which(program) else f"not run: install {name}"


def _relay(*words: str) -> list[str]:
    return [sys.executable, str(RELAY), *words]


def _srt(name: str, shown: str, latency: Callable[[Path], int]) -> Contender:
    def send(path: Path) -> list[str]:
        target = f"srt://{{peer}}:{WIRE}?mode=caller&latency={latency(path)}"
        return ["srt-live-transmit", "-q", f"udp://127.0.0.1:{INPUT}", target]

    def receive(path: Path) -> list[str]:
        source = f"srt://:{WIRE}?mode=listener&latency={latency(path)}"
        return ["srt-live-transmit", "-q", source, f"udp://127.0.0.1:{OUTPUT}"]

    lacks = _package("srt-tools", "srt-live-transmit")
    return Contender(name, shown, send, receive, lacks, srt_version, latency)


def _rist(name: str, shown: str, buffer: Callable[[Path], int]) -> Contender:
    quiet = ("-p", "1", "-S", "0", "-v", "3")

    def send(path: Path) -> list[str]:
        target = f"rist://{{peer}}:{WIRE}?buffer={buffer(path)}"
        return ["ristsender", *quiet, "-i", f"udp://@127.0.0.1:{INPUT}", "-o", target]

    def receive(path: Path) -> list[str]:
        source = f"rist://@0.0.0.0:{WIRE}?buffer={buffer(path)}"
        return ["ristreceiver", *quiet, "-i", source, "-o", f"udp://127.0.0.1:{OUTPUT}"]

    lacks = _package("rist-tools", "ristsender")
    return Contender(name, shown, send, receive, lacks, rist_version, buffer)


def srt_version() -> str:
    """As `srt-live-transmit` tells it."""
    return _told(["srt-live-transmit", "-version"], r"SRT Library version: ([\d.]+)")


def rist_version() -> str:
    """As `ristsender` tells it."""
    return _told(["ristsender", "--help"], r"libRIST library: ([\d.]+)")


def _told(words: Sequence[str], pattern: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(pattern, done.stdout + done.stderr)
    if not found:
        raise UnfitEnvironmentError(f"{words[0]} does not tell its version")
    return found[1]


def none(_path: Path) -> list[str]:
    """No program of its own."""
    return []


DIRECT = Contender("direct", "nothing", none, none)
"""The source's datagrams go straight to the recorder: the floor of the harness."""

RTP = Contender(
    "rtp",
    "RTP over UDP",
    lambda _path: _relay("rtp-send", str(INPUT), "{peer}", str(WIRE)),
    lambda _path: _relay("rtp-receive", str(WIRE), str(OUTPUT)),
)

HTTP = Contender(
    "http",
    "HTTP, CUBIC",
    lambda _path: _relay("http-serve", str(INPUT), str(WIRE), "cubic"),
    lambda _path: _relay("http-read", "{peer}", str(WIRE), str(OUTPUT)),
)

SRT = _srt("srt", "SRT", lambda path: path.latency_ms)
SRT_FIXED = _srt("srt-120", "SRT, 120 ms", lambda _path: 120)
RIST = _rist("rist", "RIST", lambda path: path.latency_ms)
RIST_FIXED = _rist("rist-1000", "RIST, 1 s", lambda _path: 1000)


def _ontempo(name: str, shown: str, delivery: str, control: str = "pert") -> Contender:
    def send(path: Path) -> list[str]:
        source, target = f"udp://127.0.0.1:{INPUT}", f"{{peer}}:{WIRE}"
        wanted = ("--delivery", delivery, "--latency", f"{path.latency_ms} ms")
        controlled = ("--congestion", control)
        return [
            program(),
            "send",
            "--from",
            source,
            "--to",
            target,
            "--insecure",
            *wanted,
            *controlled,
        ]

    def receive(_path: Path) -> list[str]:
        return [program(), "receive", "--listen", f":{WIRE}", "--to", f"udp://127.0.0.1:{OUTPUT}"]

    return Contender(name, shown, send, receive, _ontempo_lacks)


@cache
def _ontempo_lacks() -> str:
    try:
        asked = subprocess.run([program(), "send", "--help"], capture_output=True, check=False)
    except UnfitEnvironmentError as error:
        return f"not run: {error}"
    return "not run: this ontempo has no command send" if asked.returncode else ""


ORDERS = (
    _ontempo("ontempo-ordered", "ontempo, in order", "in-order"),
    _ontempo("ontempo-out-of-sequence", "ontempo, out of order", "out-of-order"),
    _ontempo("ontempo-partial-order", "ontempo, partial order", "partial-order"),
    _ontempo("ontempo-cubic", "ontempo, in order, CUBIC", "in-order", "cubic"),
)
"""Over PERT, the program's default, and once over CUBIC."""

CONTENDERS = (DIRECT, RTP, HTTP, SRT, RIST, SRT_FIXED, RIST_FIXED, *ORDERS)
