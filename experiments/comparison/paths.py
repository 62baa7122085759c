"""The paths that the stream is carried over."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ontempo.lab.claims import Scale

from .encode import RATE_MBIT_S

BURST_PACKETS = 4
"""Mean length of a burst of losses, in packets."""

QUEUE_PACKETS = 100
"""The queue limit: 135 ms of full packets at twice the stream's rate, 340 ms at 0.8 times."""

MIN_LATENCY_MS, LATENCY_RTTS = 120, 4
"""The rule for receivers' buffers: as SRT's makers and users advise."""

MARGIN_MS = 60
"""How much later than path and buffer a frame may arrive, in ms: a frame and a half."""


@dataclass(frozen=True)
class Path:
    """One path: losses in both directions, round trip, and its rate beside the stream's."""

    loss: float
    bursty: bool
    rtt_ms: int
    share: float

    @property
    def rate_kbit_s(self) -> int:
        """Rate of the bottleneck, headers counted, in kbit/s."""
        return round(RATE_MBIT_S * self.share * 1000)

    @property
    def latency_ms(self) -> int:
        """The buffer by the rule, in ms: four round trips, and not less than 120 ms."""
        return max(MIN_LATENCY_MS, LATENCY_RTTS * self.rtt_ms)

    def playout_ms(self, buffer_ms: int) -> float:
        """The delay beyond which a frame is late with such a buffer, in ms."""
        return self.rtt_ms / 2 + buffer_ms + MARGIN_MS

    @property
    def pattern(self) -> str:
        """The pattern of losses: ``none``, ``random`` or ``bursts``."""
        return "none" if not self.loss else "bursts" if self.bursty else "random"

    def link(self, begin: str, end: str) -> str:
        """The path as a link of a scenario, in TOML."""
        loss = ""
        if self.loss and self.bursty:
            q = 1 / BURST_PACKETS
            p = q * self.loss / (1 - self.loss)
            loss = f', loss = {{ kind = "gilbert", p = {p:.6f}, q = {q} }}'
        elif self.loss:
            loss = f', loss = {{ kind = "bernoulli", rate = {self.loss} }}'
        return (
            f'{{ from = "{begin}", to = "{end}", rate = "{self.rate_kbit_s} kbit/s",'
            f' delay = "{self.rtt_ms * 500} us",'
            f' queue = {{ kind = "drop-tail", limit = "{QUEUE_PACKETS} packets" }}{loss} }}'
        )


LOSSES = ((0.0, False), *product((0.01, 0.05, 0.1), (False, True)))
RTTS_MS = (20, 100, 300)
SHARES = (2.0, 1.1, 0.8)

QUICK = (
    Path(0.0, False, 100, 2.0),
    Path(0.01, False, 100, 2.0),
    Path(0.05, False, 100, 2.0),
    Path(0.05, True, 100, 2.0),
    Path(0.05, False, 20, 2.0),
    Path(0.0, False, 100, 0.8),
)
"""The quick scale: losses, bursts, a short path, one that is too narrow."""


def paths(scale: Scale) -> Sequence[Path]:
    """The paths of a scale."""
    if scale == "quick":
        return QUICK
    return [
        Path(loss, bursty, rtt_ms, share)
        for share, rtt_ms, (loss, bursty) in product(SHARES, RTTS_MS, LOSSES)
    ]
