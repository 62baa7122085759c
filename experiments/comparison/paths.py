"""The paths that the stream is carried over."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import product

from .encode import RATE_MBIT_S, Source

QUEUE_PACKETS = 100
"""The queue limit: 135 ms of full packets at twice the stream's rate, 340 ms at 0.8 times."""

MIN_LATENCY_MS, LATENCY_RTTS = 120, 4
"""The rule for receivers' buffers: as SRT's makers and users advise."""

MARGIN_MS = 60
"""How much later than path and buffer a frame may arrive, in ms: a frame and a half."""

OUTAGE_AT_S = 12
"""When nothing passes, in seconds of the run: in the eighth second of the stream."""

FULL_PACKET_BYTES = 1500


class Grid(StrEnum):
    """Which paths: `QUICK`, `HARD` too, or `COMMON` too."""

    quick = "quick"
    hard = "hard"
    full = "full"


@dataclass(frozen=True)
class Path:
    """One path: losses in both directions, round trip, and its rate beside the stream's.

    Losses are random, or in bursts of `burst` packets in the mean if that is not 0. Each packet's
    delay is up to `jitter_ms` longer each way, and packets overtake. Nothing passes for
    `outage_ms`. With `queue_bdp` a download over the kernel's CUBIC uses the same path, whose queue
    is of so many bandwidth-delay products; else it is of `QUEUE_PACKETS`. `buffer_ms` is the
    receivers' buffer if it is not that of the rule.
    """

    loss: float = 0.0
    burst: int = 0
    rtt_ms: int = 100
    share: float = 2.0
    source: Source = "paced"
    jitter_ms: int = 0
    outage_ms: int = 0
    queue_bdp: float = 0.0
    buffer_ms: int = 0

    @property
    def rate_kbit_s(self) -> int:
        """Rate of the bottleneck, headers counted, in kbit/s."""
        return round(RATE_MBIT_S * self.share * 1000)

    @property
    def queue_packets(self) -> int:
        """The queue limit, in packets."""
        if not self.queue_bdp:
            return QUEUE_PACKETS
        return round(self.queue_bdp * self.rate_kbit_s * self.rtt_ms / 8 / FULL_PACKET_BYTES)

    @property
    def latency_ms(self) -> int:
        """The buffer, in ms: of the rule four round trips, and not less than 120 ms.

        Beside a download a full queue, too.
        """
        if self.buffer_ms:
            return self.buffer_ms
        queue_ms = round(self.queue_bdp * self.rtt_ms)
        return max(MIN_LATENCY_MS, LATENCY_RTTS * self.rtt_ms) + queue_ms

    def playout_ms(self, buffer_ms: int) -> float:
        """The delay beyond which a frame is late with such a buffer, in ms."""
        return self.rtt_ms / 2 + buffer_ms + MARGIN_MS

    @property
    def words(self) -> str:
        """A description."""
        loss = "no loss"
        if self.loss:
            pattern = f"bursts of {self.burst}" if self.burst else "random"
            loss = f"{self.loss:.0%} loss, {pattern}".replace("%", " %")
        parts = [loss, f"{self.rtt_ms} ms", f"{self.share:g} times the stream's rate"]
        if self.jitter_ms:
            parts.append(f"up to {self.jitter_ms} ms more, out of order")
        if self.outage_ms:
            parts.append(f"an outage of {self.outage_ms / 1000:g} s")
        if self.queue_bdp:
            parts.append(f"beside a download, queue of {self.queue_bdp:g} BDP")
        if self.source != "paced":
            parts.append(f"{self.source.upper()} in bursts")
        if self.buffer_ms:
            parts.append(f"buffers of {self.buffer_ms:,} ms")
        return "; ".join(parts)

    def link(self, begin: str, end: str) -> str:
        """The path as a link of a scenario, in TOML."""
        more = ""
        if self.loss and self.burst:
            q = 1 / self.burst
            p = q * self.loss / (1 - self.loss)
            more = f', loss = {{ kind = "gilbert", p = {p:.6f}, q = {q} }}'
        elif self.loss:
            more = f', loss = {{ kind = "bernoulli", rate = {self.loss} }}'
        delay = f'"{self.rtt_ms * 500} us"'
        if self.jitter_ms:
            high_us = self.rtt_ms * 500 + self.jitter_ms * 1000
            delay = f'{{ kind = "uniform", low = {delay}, high = "{high_us} us" }}'
            more += ", reordering = true"
        if self.outage_ms:
            more += f', outages = [{{ at = "{OUTAGE_AT_S} s", for = "{self.outage_ms} ms" }}]'
        return (
            f'{{ from = "{begin}", to = "{end}", rate = "{self.rate_kbit_s} kbit/s",'
            f" delay = {delay},"
            f' queue = {{ kind = "drop-tail", limit = "{self.queue_packets} packets" }}{more} }}'
        )


LABELS = tuple(field.name for field in fields(Path))
"""The fields of a path, which are labels of its cells."""

BURST_PACKETS = 4
"""Mean length of a burst of losses on `COMMON` paths, in packets."""

LOSSES = ((0.0, 0), *product((0.01, 0.05, 0.1), (0, BURST_PACKETS)))
RTTS_MS = (20, 100, 300)
SHARES = (2.0, 1.1, 0.8)

COMMON = tuple(
    Path(loss, burst, rtt_ms, share)
    for share, rtt_ms, (loss, burst) in product(SHARES, RTTS_MS, LOSSES)
)
"""Constant links."""

QUICK = (
    Path(),
    Path(0.01),
    Path(0.05),
    Path(0.05, BURST_PACKETS),
    Path(0.05, rtt_ms=20),
    Path(share=0.8),
)
"""Of these: losses, bursts, a short path, one that is too narrow."""

DOWNLOAD_SHARE = 2.5
"""Ten Mbit/s, of which a download's fair share is six."""

HARD = (
    Path(0.1, rtt_ms=300),
    Path(0.2),
    Path(0.05, burst=20),
    Path(0.01, share=1.1),
    Path(jitter_ms=50),
    Path(outage_ms=1000, buffer_ms=2000),
    *(
        Path(0.02, source=source, buffer_ms=buffer_ms)
        for source in ("cbr", "vbr")
        for buffer_ms in (120, 200, 400)
    ),
    *(Path(share=DOWNLOAD_SHARE, queue_bdp=bdp) for bdp in (0.5, 1.0, 4.0)),
    *(Path(rtt_ms=rtt_ms, share=DOWNLOAD_SHARE, queue_bdp=1.0) for rtt_ms in (20, 300)),
)
"""High losses, little room, delays that vary, an outage, a source in bursts, downloads."""


def paths(grid: Grid) -> Sequence[Path]:
    """The paths of a grid."""
    hard = (*QUICK, *HARD)
    chosen = {Grid.quick: QUICK, Grid.hard: hard, Grid.full: (*hard, *COMMON)}[grid]
    return list(dict.fromkeys(chosen))
