"""Statistics of connections and flows."""

from dataclasses import dataclass

__all__ = ["ConnectionStatistics", "DelayStatistics", "ReceiveStatistics", "SendStatistics"]


@dataclass(frozen=True, slots=True)
class DelayStatistics:
    """One-way delay and jitter of units, from their sending to being deliverable."""

    units: int
    """Units measured."""
    last_s: float
    """The last one's delay, in seconds."""
    min_s: float
    """The minimum, in seconds."""
    max_s: float
    """The maximum, in seconds."""
    mean_s: float
    """The mean, in seconds; 0 before the first unit."""
    mean_jitter_s: float
    """The mean change from one unit to the next, in seconds (qosockets, equation 5)."""
    uncertainty_s: float | None
    """Error bound of the delays, in seconds: half the minimum round trip in which the clocks were
    compared; ``None`` before that."""


@dataclass(frozen=True, slots=True)
class SendStatistics:
    """A flow as its sender sees it."""

    units: int
    """Units accepted for sending."""
    bytes: int
    """Their bytes."""
    written: int
    """Units handed to the transport."""
    written_bytes: int
    """Their bytes."""
    arrived: int
    """Units acknowledged by the peer; 0 where the reliability is ``none``."""
    dropped: int
    """Units dropped at their deadline; where the reliability is ``none``, before they were sent."""
    blocked_s: float
    """How long units waited for the peer's flow control, in seconds."""
    held_units: int
    """Units in the send queue now."""
    held_bytes: int
    """Their bytes."""
    oldest_s: float
    """Age of the oldest of them, in seconds."""
    settled: int
    """Every unit below this number has arrived or been dropped."""
    reported_units: int
    """Units that arrived whole, by the receiver's last report."""
    reported_bytes: int
    """Their bytes."""
    reported_late: int
    """Units that arrived after their deadline, by the receiver's last report."""
    reported_delay_s: float
    """The delay of the last unit, in seconds, by the receiver's last report."""


@dataclass(frozen=True, slots=True)
class ReceiveStatistics:
    """A flow as its receiver sees it."""

    units: int
    """Units that arrived whole."""
    bytes: int
    """Their bytes."""
    late: int
    """Units that arrived after their deadline."""
    dropped: int
    """Units that will not be delivered: dropped by the sender, overtaken, or incomplete."""
    discarded: int
    """Units discarded: they arrived twice, or after they had been dropped."""
    waiting: int
    """Units that arrived and wait for earlier ones, or for those that they depend on."""
    ready: int
    """Units ready for the application to receive."""
    held_bytes: int
    """Bytes of all units held."""
    max_held_bytes: int
    """The maximum of `held_bytes` so far."""
    blocked_s: float
    """How long arrived units have waited for others, in seconds, summed over units."""
    throughput_bps: int
    """Payload over the last half second, in bits per second."""
    delay: DelayStatistics
    """One-way delay and jitter."""


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """A connection."""

    packets_sent: int
    """Packets sent, with those of acknowledgements alone, and those declared lost."""
    packets_lost: int
    """Packets declared lost."""
    bytes_sent: int
    """UDP payload sent, in bytes."""
    bytes_received: int
    """UDP payload received, in bytes."""
    datagrams_sent: int
    """UDP datagrams sent."""
    datagrams_received: int
    """UDP datagrams received."""
    packets_refused: int
    """Packets that failed authentication: damaged, or forged."""
    congestion_events: int
    """Losses and ECN marks to which the congestion control reacted."""
    spurious_congestion_events: int
    """Losses that turned out to be none."""
    round_trip_s: float | None
    """The smoothed round-trip time, in seconds; ``None`` before the first sample."""
    window_bytes: int
    """The congestion window, in bytes."""
    target_bps: int | None
    """What the path bears, for an encoder, in bits per second; ``None`` before it is known.

    It falls at once and rises by 5 % a second."""
    pacing_rate_bps: int | None
    """The pacing rate of the congestion control, in bits per second; ``None`` where it has none."""
    spacing_s: float | None
    """The packet spacing of the congestion control, in seconds; ``None`` where it has none."""
    burst_packets: int
    """Packets that may leave back to back."""
    acks_sent: int
    """ACK frames sent."""
    acks_received: int
    """ACK frames received."""
