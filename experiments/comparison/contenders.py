"""The contenders, and how each is started: real programs, set as their own documents advise.

A contender's command may hold ``{peer}``, which its end replaces with the other end's address.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path as File

from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import program

from .paths import Path

INPUT, OUTPUT, WIRE = 5000, 5001, 4434
"""UDP ports: into the sender, out of the receiver, between them. RIST needs an even one."""

Words = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Contender:
    """A transport for the stream, with its programs.

    `send` and `receive` are the commands of its two ends, none for the harness itself. `lacks`
    returns why it cannot be run on this machine, empty if it can. `buffer_ms` is how
    long received packets may wait, in milliseconds: its own setting, or the path's rule if it
    has no buffer. `congestion` is the kernel's TCP congestion control in the hosts of both ends, by
    default the machine's. One that is not `everywhere` runs over the paths of the quick grid and
    the hard ones only.
    """

    name: str
    shown: str
    send: Words
    receive: Words
    lacks: Callable[[], str] = lambda: ""
    version: Callable[[], str] = lambda: ""
    buffer_ms: Callable[[Path], int] = lambda path: path.latency_ms
    congestion: str = ""
    everywhere: bool = True


def _package(name: str, program: str) -> Callable[[], str]:
    return lambda: "" if shutil.which(program) else f"not run: install {name}"


def _rule(path: Path) -> int:
    return path.latency_ms


def _srt(
    name: str,
    shown: str,
    latency: Callable[[Path], int] = _rule,
    options: str = "",
) -> Contender:
    def send(path: Path) -> list[str]:
        target = f"srt://{{peer}}:{WIRE}?mode=caller&latency={latency(path)}{options}"
        return ["srt-live-transmit", "-q", f"udp://127.0.0.1:{INPUT}", target]

    def receive(path: Path) -> list[str]:
        source = f"srt://:{WIRE}?mode=listener&latency={latency(path)}{options}"
        return ["srt-live-transmit", "-q", source, f"udp://127.0.0.1:{OUTPUT}"]

    lacks = _package("srt-tools", "srt-live-transmit")
    return Contender(name, shown, send, receive, lacks, srt_version, latency)


def _rist(
    name: str,
    shown: str,
    buffer: Callable[[Path], int] = _rule,
    options: tuple[str, ...] = (),
) -> Contender:
    quiet = ("-p", "1", "-S", "0", "-v", "3")

    def send(path: Path) -> list[str]:
        target = f"rist://{{peer}}:{WIRE}?buffer={buffer(path)}"
        return ["ristsender", *quiet, *options, "-i", f"udp://@127.0.0.1:{INPUT}", "-o", target]

    def receive(path: Path) -> list[str]:
        source = f"rist://@0.0.0.0:{WIRE}?buffer={buffer(path)}"
        return ["ristreceiver", *quiet, "-i", source, "-o", f"udp://127.0.0.1:{OUTPUT}"]

    lacks = _package("rist-tools", "ristsender")
    return Contender(name, shown, send, receive, lacks, rist_version, buffer)


def srt_version() -> str:
    """The version that `srt-live-transmit` prints."""
    return _version(("srt-live-transmit", "-version"), r"SRT Library version: ([\d.]+)")


def rist_version() -> str:
    """The version that `ristsender` prints."""
    return _version(("ristsender", "--help"), r"libRIST library: ([\d.]+)")


def gstreamer_version() -> str:
    """The version that `gst-launch-1.0` prints."""
    return _version(("gst-launch-1.0", "--version"), r"GStreamer ([\d.]+)")


def ffmpeg_version() -> str:
    """The version that `ffmpeg` prints."""
    return _version(("ffmpeg", "-version"), r"ffmpeg version (\S+)")


@cache
def _version(words: tuple[str, ...], pattern: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = re.search(pattern, done.stdout + done.stderr)
    if not found:
        raise UnfitEnvironmentError(f"{words[0]} does not print its version")
    return found[1]


def none(_path: Path) -> list[str]:
    """No separate program."""
    return []


DIRECT = Contender("direct", "nothing", none, none)
"""The source's datagrams go straight to the sink: the floor of the harness."""


def _rtp_send(_path: Path) -> list[str]:
    caps = "caps=video/mpegts,systemstream=(boolean)true,packetsize=(int)188"
    source = ["udpsrc", "address=127.0.0.1", f"port={INPUT}", caps]
    sink = ["udpsink", "host={peer}", f"port={WIRE}", "sync=false", "async=false"]
    return ["gst-launch-1.0", "-q", *source, "!", "rtpmp2tpay", "!", *sink]


def _rtp_receive(path: Path) -> list[str]:
    fields = "media=(string)video,clock-rate=(int)90000,encoding-name=(string)MP2T,payload=(int)33"
    source = ["udpsrc", f"port={WIRE}", f"caps=application/x-rtp,{fields}"]
    buffer = ["rtpjitterbuffer", f"latency={path.latency_ms}"]
    # With sync=true packets leave at the times of their RTP timestamps, as to a player.
    sink = ["udpsink", "host=127.0.0.1", f"port={OUTPUT}", "sync=true", "async=false"]
    return ["gst-launch-1.0", "-q", *source, "!", *buffer, "!", "rtpmp2tdepay", "!", *sink]


_RTP_ELEMENTS = ("udpsrc", "udpsink", "rtpmp2tpay", "rtpmp2tdepay", "rtpjitterbuffer")


@cache
def _rtp_lacks() -> str:
    if not (shutil.which("gst-launch-1.0") and shutil.which("gst-inspect-1.0")):
        return "not run: install gstreamer1.0-tools"
    for element in _RTP_ELEMENTS:
        asked = ["gst-inspect-1.0", "--exists", element]
        if subprocess.run(asked, capture_output=True, check=False).returncode:
            return f"not run: install gstreamer1.0-plugins-good ({element})"
    return ""


RTP = Contender("rtp", "RTP", _rtp_send, _rtp_receive, _rtp_lacks, gstreamer_version)
"""Payload type 33 (RFC 2250) with a jitter buffer and without retransmission."""

_FFMPEG = ("ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "warning")
_AS_IT_IS = ("-map", "0", "-c", "copy", "-f", "data")
"""Bytes pass unchanged: ffmpeg would otherwise multiplex the stream anew."""

MAX_WAITING_PACKETS = 1 << 18
"""Transport packets that wait where TCP is slower than the stream: 49 MB, more than any run has."""


def _http_send(_path: Path) -> list[str]:
    source = f"udp://127.0.0.1:{INPUT}?fifo_size={MAX_WAITING_PACKETS}"
    datagrams = ["-f", "data", "-raw_packet_size", "1316", "-i", source]
    post = ["-method", "POST", "-content_type", "video/mp2t", "-tcp_nodelay", "1"]
    target = f"http://{{peer}}:{WIRE}/live.ts"
    return [*_FFMPEG, *datagrams, *_AS_IT_IS, "-flush_packets", "1", *post, target]


def _http_receive(_path: Path) -> list[str]:
    source = ["-listen", "1", "-f", "mpegtsraw", "-i", f"http://0.0.0.0:{WIRE}/live.ts"]
    target = f"udp://127.0.0.1:{OUTPUT}?pkt_size=1316"
    return [*_FFMPEG, "-fflags", "nobuffer", *source, *_AS_IT_IS, "-flush_packets", "0", target]


_AVAILABLE = File("/proc/sys/net/ipv4/tcp_available_congestion_control")


def _http_lacks() -> str:
    if shutil.which("ffmpeg") is None:
        return "not run: install ffmpeg"
    if "cubic" not in _AVAILABLE.read_text().split():
        return "not run: the kernel has no CUBIC (modprobe tcp_cubic)"
    return ""


HTTP = Contender(
    "http",
    "HTTP, CUBIC",
    _http_send,
    _http_receive,
    _http_lacks,
    ffmpeg_version,
    congestion="cubic",
)
"""A chunked POST over the kernel's TCP."""

SRT = _srt("srt", "SRT")
SRT_ENCRYPTED = _srt("srt-encrypted", "SRT, AES", options="&passphrase=a+long+secret&pbkeylen=16")
SRT_FEC = _srt("srt-fec", "SRT, FEC", options="&packetfilter=fec,cols:10,rows:10,arq:always")
"""A packet of repair for each ten in a row and in a column, and retransmissions from the first."""

RIST = _rist("rist", "RIST")
RIST_NO_NULLS = _rist("rist-no-nulls", "RIST, no nulls", options=("-n",))
"""Null packets do not travel."""

SRT_FIXED = _srt("srt-120", "SRT, 120 ms", lambda _path: 120)
RIST_FIXED = _rist("rist-1000", "RIST, 1 s", lambda _path: 1000)


def _ontempo(
    name: str, shown: str, delivery: str, control: str = "", *, everywhere: bool = False
) -> Contender:
    def send(path: Path) -> list[str]:
        target = ("--to", f"{{peer}}:{WIRE}", "--insecure")
        delivered = ("--delivery", delivery, "--latency", f"{path.latency_ms} ms")
        controlled = ("--congestion", control) if control else ()
        source = ("--from", f"udp://127.0.0.1:{INPUT}")
        return [program(), "send", *source, *target, *delivered, *controlled]

    def receive(_path: Path) -> list[str]:
        sink = f"udp://127.0.0.1:{OUTPUT}"
        return [program(), "receive", "--listen", f":{WIRE}", "--to", sink, "--anyone"]

    return Contender(name, shown, send, receive, _ontempo_lacks, everywhere=everywhere)


@cache
def _ontempo_lacks() -> str:
    try:
        asked = subprocess.run([program(), "send", "--help"], capture_output=True, check=False)
    except UnfitEnvironmentError as error:
        return f"not run: {error}"
    return "not run: this ontempo has no command send" if asked.returncode else ""


IN_ORDER = _ontempo("ontempo-ordered", "ontempo, in order", "in-order", everywhere=True)
PARTIAL_ORDER = _ontempo(
    "ontempo-partial-order", "ontempo, partial order", "partial-order", everywhere=True
)
OUT_OF_ORDER = _ontempo("ontempo-out-of-sequence", "ontempo, out of order", "out-of-order")
"""Over BBR for media, the program's default; in order, likewise."""

CONTROLS = (
    _ontempo("ontempo-media", "ontempo, in order, media", "in-order", "media"),
    _ontempo("ontempo-pert", "ontempo, in order, PERT", "in-order", "pert"),
    _ontempo("ontempo-cubic", "ontempo, in order, CUBIC", "in-order", "cubic"),
)

SIDE_BY_SIDE = (
    (DIRECT, RTP, HTTP, SRT, SRT_ENCRYPTED, IN_ORDER),
    (SRT_FEC, SRT_FIXED, RIST, RIST_NO_NULLS, RIST_FIXED, PARTIAL_ORDER),
    (OUT_OF_ORDER, *CONTROLS),
)
"""Who runs at the same time; its effect: docs/comparison.md."""

CONTENDERS = tuple(one for row in SIDE_BY_SIDE for one in row)
