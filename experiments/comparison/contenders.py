"""Who carries the stream, and how each is started, with what its own documents advise.

A contender's words may hold ``{peer}``, for which the program of its end puts the other's address.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path as File

from ontempo.lab.errors import UnfitEnvironmentError

from .paths import Path

INPUT, OUTPUT, WIRE = 5000, 5001, 4434
"""UDP ports: into the sender, out of the receiver, between them. RIST wants an even one."""

RELAY = File(__file__).parent / "relay.py"

Words = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Contender:
    """A way to carry the stream.

    `send` and `receive` are the programs of its two ends, none for the harness itself. `package`
    is what to install where `program` is missing; `about` says what is run, for the page.
    """

    name: str
    shown: str
    about: str
    send: Words
    receive: Words
    program: str = ""
    package: str = ""
    version: Callable[[], str] = lambda: ""

    def lacks(self) -> str:
        """Why it cannot be run on this machine; empty where it can."""
        if self.program and shutil.which(self.program) is None:
            return f"not run: install {self.package}"
        return ""


def _relay(*words: str) -> list[str]:
    return [sys.executable, str(RELAY), *words]


def _srt(name: str, shown: str, latency: Callable[[Path], int], about: str) -> Contender:
    def send(path: Path) -> list[str]:
        target = f"srt://{{peer}}:{WIRE}?mode=caller&latency={latency(path)}"
        return ["srt-live-transmit", "-q", f"udp://127.0.0.1:{INPUT}", target]

    def receive(path: Path) -> list[str]:
        source = f"srt://:{WIRE}?mode=listener&latency={latency(path)}"
        return ["srt-live-transmit", "-q", source, f"udp://127.0.0.1:{OUTPUT}"]

    return Contender(
        name, shown, about, send, receive, "srt-live-transmit", "srt-tools", srt_version
    )


def _rist(name: str, shown: str, buffer: Callable[[Path], int], about: str) -> Contender:
    quiet = ("-p", "1", "-S", "0", "-v", "3")

    def send(path: Path) -> list[str]:
        target = f"rist://{{peer}}:{WIRE}?buffer={buffer(path)}"
        return ["ristsender", *quiet, "-i", f"udp://@127.0.0.1:{INPUT}", "-o", target]

    def receive(path: Path) -> list[str]:
        source = f"rist://@0.0.0.0:{WIRE}?buffer={buffer(path)}"
        return ["ristreceiver", *quiet, "-i", source, "-o", f"udp://127.0.0.1:{OUTPUT}"]

    return Contender(name, shown, about, send, receive, "ristsender", "rist-tools", rist_version)


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


DIRECT = Contender(
    "direct", "nothing", "the source's datagrams go straight to the recorder", none, none
)

RTP = Contender(
    "rtp",
    "RTP over UDP",
    "a header before each datagram, nothing else",
    lambda _path: _relay("rtp-send", str(INPUT), "{peer}", str(WIRE)),
    lambda _path: _relay("rtp-receive", str(WIRE), str(OUTPUT)),
)

HTTP = Contender(
    "http",
    "HTTP, CUBIC",
    "a chunked response over the kernel's TCP with CUBIC, which a reader pulls",
    lambda _path: _relay("http-serve", str(INPUT), str(WIRE), "cubic"),
    lambda _path: _relay("http-read", "{peer}", str(WIRE), str(OUTPUT)),
)

SRT = _srt("srt", "SRT", lambda path: path.latency_ms, "latency by the rule")
SRT_FIXED = _srt("srt-120", "SRT, 120 ms", lambda _path: 120, "its default latency")
RIST = _rist("rist", "RIST", lambda path: path.latency_ms, "main profile, buffer by the rule")
RIST_FIXED = _rist("rist-1000", "RIST, 1 s", lambda _path: 1000, "main profile, its default buffer")

CONTENDERS = (DIRECT, RTP, HTTP, SRT, RIST, SRT_FIXED, RIST_FIXED)
