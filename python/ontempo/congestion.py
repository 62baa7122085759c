"""Congestion controllers of one's own, for the simulator: their base class, and what they are told.

Windows are in packets, and may be fractions; times are seconds of virtual time. `ontempo.run` takes
classes as ``controllers``; docs/controllers.md has an example, and what a class costs.
"""

from abc import ABC, abstractmethod
from math import inf
from typing import NamedTuple

__all__ = ["Ack", "CongestionController", "Loss", "Snapshot", "Start", "Timeout"]

FLOOR = 2.0
"""The smallest window after a reduction, in packets (RFC 5681, section 3.1, equation 4)."""


class Start(NamedTuple):
    """What a connection begins with."""

    flow: str = ""
    """The flow's name: its group and its number there, as in ``video.3``."""
    packet_bytes: int = 1000
    """Size of a full packet on the wire."""
    initial_window: float = 2.0
    """Window at the start and after an idle time, in packets."""
    initial_ssthresh: float = inf
    """Slow-start threshold at the start, in packets; infinite if unknown."""
    seed: int = 0
    """For random decisions: the same for the same scenario, seed and flow; otherwise different."""


class Ack(NamedTuple):
    """An acknowledgement has arrived."""

    now_s: float
    """Time of the event."""
    packets: float = 1.0
    """Packets that it newly acknowledges; 0 for a duplicate."""
    rtt_s: float | None = None
    """Round trip of the last of them, uncorrected; None if it was sent again (Karn's rule)."""
    srtt_s: float | None = None
    """The transport's smoothed round trip (RFC 6298); None before the first sample."""
    acked: int = 0
    """The highest packet number acknowledged so far."""
    next: int = 0
    """The number of the next new packet."""
    in_flight: float = 0.0
    """Packets in flight now."""
    in_recovery: bool = False
    """True while losses are repaired, and for a duplicate: a window does not grow then."""
    repairs: bool = False
    """True if losses were being repaired before it came, by a timeout, too."""
    window_limited: bool = True
    """True if the window limited the sender; a window does not grow otherwise (RFC 7661)."""


class Loss(NamedTuple):
    """A packet was found lost, or a congestion mark (ECN) came back."""

    now_s: float
    """Time of the event."""
    packet: int = 0
    """The number of the lost or marked packet."""
    next: int = 0
    """The number of the next new packet: a packet from there on belongs to a later window."""
    in_flight: float = 0.0
    """Packets in flight when it was found."""


class Timeout(NamedTuple):
    """The retransmission timer has expired."""

    now_s: float
    """Time of the event."""
    next: int = 0
    """The number of the next new packet."""
    in_flight: float = 0.0
    """Packets in flight when it expired."""
    repeated: bool = False
    """True from the second expiry for the same packet on: ssthresh stays (RFC 5681, 3.1)."""


class Snapshot(NamedTuple):
    """A controller's window and threshold at an earlier time."""

    cwnd: float
    """Congestion window, packets."""
    ssthresh: float = inf
    """Slow-start threshold, packets."""


class CongestionController(ABC):
    """A congestion controller: one instance for each connection, told of events, read after each.

    Write `on_ack` and `on_loss`; the other methods have defaults, those of Reno. A method changes
    attributes and returns nothing. The parameters that a scenario gives are the arguments of
    ``__init__``, ``max-rate`` as ``max_rate``. The same events must give the same attributes: no
    clock, no state shared between instances, and random numbers from `start.seed` alone.
    """

    start: Start
    """What the connection begins with; set after ``__init__``, before `on_start`."""
    cwnd: float
    """Congestion window in packets, above 0 and at most 1e9; less than 1 counts as 1."""
    ssthresh: float = inf
    """Slow-start threshold in packets, at least 0; the defaults and table `samples` use it."""
    pacing_rate_bps: float | None = None
    """Rate of sending in bit/s, from 1 to 1e12; None leaves it to the transport.

    TCP obeys it with ``pacing = "controller"``.
    """
    burst: int = 1
    """Packets that may be sent back to back under pacing, from 1 to 1e6; over ``ontempo`` alone."""
    reductions: int | None = None
    """Window reductions so far; None: `on_loss`, `on_ecn` and `on_timeout` are counted that make
    `cwnd` smaller."""
    early_responses: int = 0
    """Reductions so far that answered a delay, before any loss."""

    def on_start(self) -> None:
        """Begin: window and threshold are those of `start`."""
        self.cwnd = self.start.initial_window
        self.ssthresh = self.start.initial_ssthresh

    @abstractmethod
    def on_ack(self, ack: Ack, /) -> None:
        """Answer an acknowledgement."""

    @abstractmethod
    def on_loss(self, loss: Loss, /) -> None:
        """Answer a loss.

        Over TCP it is called once for each loss episode, over ``kind = "ontempo"`` once for each
        window of data.
        """

    def on_ecn(self, mark: Loss, /) -> None:
        """Answer a congestion mark; it counts as a loss (RFC 3168, section 6.1.2)."""
        self.on_loss(mark)

    def on_timeout(self, timeout: Timeout, /) -> None:
        """Answer a timeout: half of the window as threshold, a window of 1 (RFC 5681, 3.1)."""
        if not timeout.repeated:
            self.ssthresh = max(self.cwnd / 2, FLOOR)
        self.cwnd = 1.0

    def on_spurious_timeout(self, before: Snapshot, /) -> None:
        """Undo the last timeout: window and threshold are no smaller than before (RFC 4015)."""
        self.cwnd = max(self.cwnd, before.cwnd)
        self.ssthresh = max(self.ssthresh, before.ssthresh)

    def on_idle_restart(self) -> None:
        """Begin anew after more than an RTO without sending (RFC 5681, section 4.1)."""
        self.cwnd = min(self.cwnd, self.start.initial_window)

    def on_idle_decay(self, timeouts: int, /) -> None:
        """Halve the window for each of so many RTOs without sending (RFC 2861, section 3.1)."""
        self.ssthresh = max(self.ssthresh, self.cwnd * 0.75)
        floor = min(self.start.initial_window, self.cwnd)
        while timeouts > 0 and self.cwnd > floor:
            self.cwnd /= 2
            timeouts -= 1
        self.cwnd = max(self.cwnd, floor)
