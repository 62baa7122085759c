"""The figures of connections and flows."""

from dataclasses import dataclass

__all__ = ["ConnectionStatistics", "DelayStatistics", "ReceiveStatistics", "SendStatistics"]


@dataclass(frozen=True, slots=True)
class DelayStatistics:
    """One-way delay and jitter of units, from their sending to being deliverable."""

    units: int
    """Units measured."""
    last_s: float
    """The last one's delay, in seconds."""
    least_s: float
    """The least, in seconds."""
    greatest_s: float
    """The greatest, in seconds."""
    mean_s: float
    """The mean, in seconds; 0 before the first unit."""
    mean_jitter_s: float
    """The mean change from one unit to the next, in seconds (qosockets, equation 5)."""
    uncertainty_s: float | None
    """By how many seconds delays may be wrong: half the least round trip in which the clocks were
    compared; ``None`` before that."""


@dataclass(frozen=True, slots=True)
class SendStatistics:
    """A flow as its sender sees it."""

    units: int
    """Units taken for sending."""
    bytes: int
    """Their bytes."""
    written: int
    """Units handed to the transport."""
    written_bytes: int
    """Their bytes."""
    arrived: int
    """Units that the peer's transport has; none of a flow that is not repaired."""
    dropped: int
    """Units dropped, both sides agreeing; of a flow that is not repaired, before they were sent."""
    blocked_s: float
    """How long units waited for the peer to give leave, in seconds."""
    held_units: int
    """Units held now."""
    held_bytes: int
    """Their bytes."""
    oldest_s: float
    """How long the oldest of them has been held, in seconds."""
    settled: int
    """Every unit below this number has arrived or been dropped."""
    told_units: int
    """Units that arrived whole, as the receiver told last."""
    told_bytes: int
    """Their bytes."""
    told_late: int
    """Units that arrived after their deadline, as the receiver told last."""
    told_delay_s: float
    """The delay of the last unit, in seconds, as the receiver told last."""


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
    """Units that the sender dropped, or that were overtaken or cut short and will not come."""
    unwanted: int
    """Units that arrived again, or after they had been dropped."""
    waiting: int
    """Units that arrived and wait for others."""
    ready: int
    """Units that the application has not taken."""
    held_bytes: int
    """Bytes of all that is held."""
    most_held_bytes: int
    """The highest number of bytes that were held."""
    blocked_s: float
    """How long arrived units have waited for others, in seconds in all."""
    throughput_bps: int
    """Payload over the last half second, in bits per second."""
    delay: DelayStatistics
    """One-way delay and jitter."""


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """A connection."""

    packets_sent: int
    """Packets sent that are acknowledged."""
    packets_lost: int
    """Packets held for lost."""
    bytes_sent: int
    """UDP payload sent, in bytes."""
    bytes_received: int
    """UDP payload received, in bytes."""
    datagrams_sent: int
    """UDP datagrams sent."""
    datagrams_received: int
    """UDP datagrams received."""
    packets_refused: int
    """Packets that could not be opened: damaged, or forged."""
    congestion_events: int
    """Losses and marks that the congestion control answered."""
    spurious_congestion_events: int
    """Losses that were none."""
    round_trip_s: float | None
    """The smoothed round trip, in seconds; ``None`` before the first."""
    window_bytes: int
    """How much may be in flight, in bytes."""
    pacing_rate_bps: int | None
    """The rate that the congestion control names, in bits per second."""
    spacing_s: float | None
    """The distance between packets that the congestion control names, in seconds."""
    burst_packets: int
    """Packets that may leave back to back."""
    acks_sent: int
    """ACK frames sent."""
    acks_received: int
    """ACK frames received."""
