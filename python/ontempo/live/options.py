"""Options of endpoints and of flows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ontempo._native import check_options

from .checks import parameter_texts, seconds, whole

__all__ = ["DeliveryOrder", "FlowConfig", "Options", "Reliability"]

_MAX_LABEL = 256


class DeliveryOrder(StrEnum):
    """How a flow's units are delivered."""

    IN_ORDER = "in-order"
    """As they were sent: each waits for all before it."""
    OUT_OF_ORDER = "out-of-order"
    """As they arrive."""
    PARTIAL_ORDER = "partial-order"
    """Each after those that it depends on."""


class Reliability(StrEnum):
    """What becomes of units that are lost."""

    FULL = "full"
    """They are sent again until they arrive."""
    DEADLINE = "deadline"
    """They are sent again until their deadline, and then dropped; both sides agree which."""
    NONE = "none"
    """They are not sent again: each travels in datagrams."""


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """A flow's order of delivery, reliability and label.

    Without retransmission no unit waits for a lost one: in order then means that a unit which
    arrives after a later one is dropped. Units of a flow with full reliability cannot have a
    deadline: such a flow drops none.

    Raises `ValueError` or `TypeError` where a value is out of its range.
    """

    order: DeliveryOrder = DeliveryOrder.IN_ORDER
    reliability: Reliability = Reliability.FULL
    label: str = ""
    """A text for the peer's application; at most 256 bytes in UTF-8."""

    def __post_init__(self) -> None:
        for name, kind in (("order", DeliveryOrder), ("reliability", Reliability)):
            value = getattr(self, name)
            if value not in list(kind):
                raise ValueError(f"{name} is {value!r}: one of {', '.join(kind)}")
            object.__setattr__(self, name, kind(value))
        if not isinstance(self.label, str):
            raise TypeError(f"label is {self.label!r}: a text")
        if len(self.label.encode()) > _MAX_LABEL:
            raise ValueError(f"label has {len(self.label.encode())} bytes: at most {_MAX_LABEL}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of an endpoint, its socket and its thread.

    Raises `ValueError` or `TypeError` where a value is out of its range.
    """

    congestion: str = "pert"
    """The congestion control of what this side sends: ``pert``, ``cubic``, ``newreno``, ``reno``,
    ``vegas``, ``bbr``, ``psp`` or ``psp-damped``."""
    congestion_parameters: Mapping[str, str | float | bool] = field(
        default_factory=dict, hash=False
    )
    """Its parameters that are not to be the defaults, by the names, units and ranges of the
    scenario file: ``{"t-min": "5 ms", "p-max": 0.1}``."""
    initial_window: int = 10
    """The window at the start, in packets (RFC 6928: ten)."""
    acknowledge: str = "adaptive"
    """How the peer is asked to acknowledge: ``immediate``, ``delayed`` or ``adaptive``."""
    idle_timeout_s: float = 10.0
    """A connection without packets for so long is lost, in seconds."""
    keep_alive_s: float | None = 3.0
    """How often an idle connection sends a packet to stay open, in seconds; ``None``: never."""
    handshake_timeout_s: float = 5.0
    """How long handshake and greeting may take, in seconds."""
    send_units: int = 4096
    """Send queue of one flow, in units: waiting, or sent and not acknowledged."""
    send_bytes: int = 8 << 20
    """Send queue of one flow, in bytes: waiting, or sent and not acknowledged."""
    receive_flows: int = 16
    """Flows that the peer may have at a time: open, or ended and not yet received to their end by
    the program."""
    receive_units: int = 4096
    """Receive window of one flow, in units: in flight, or not received by the program."""
    receive_bytes: int = 8 << 20
    """Receive window of one flow, in bytes: in flight, or not received by the program."""
    max_unit_bytes: int = 4 << 20
    """The longest unit that the peer may send, in bytes."""
    connections: int = 4096
    """Connections at a time; more are refused. One of a client counts once it has sent the token,
    and until then in `half_open`. Those accepted may use three quarters of `receive_memory`."""
    connections_of_host: int = 1024
    """Connections at a time that have sent the token, of one address of IPv4, or prefix of 56 bits
    of IPv6; more are refused."""
    half_open: int = 512
    """Connections at a time whose client has not sent the token yet. One address of IPv4, or prefix
    of 56 bits of IPv6, has a sixteenth of them. Clients whose address is not validated have an
    eighth: beyond it, or beyond half of an address's share, they must validate it first."""
    retry: bool = False
    """True: a client must prove its address before the endpoint stores anything about it (RFC 9000,
    section 8.1.2)."""
    receive_memory: int = 160 << 20
    """Memory of all connections of the endpoint and of what they have received and the program has
    not, in bytes. Beyond it the connection that holds most is closed with
    `CloseReason.OVERLOADED`, and no connection is accepted."""
    dscp: str = "cs0"
    """The DSCP of the packets: 0 to 63, or a name such as ``af41`` or ``ef``."""
    precise: bool = False
    """Send paced packets on time to the microsecond, by busy waiting on up to one core."""

    def __post_init__(self) -> None:
        for name in ("idle_timeout_s", "handshake_timeout_s"):
            seconds(name, getattr(self, name), above=True)
        if self.keep_alive_s is not None:
            seconds("keep_alive_s", self.keep_alive_s, above=True)
        for name in _COUNTS:
            whole(name, getattr(self, name), 1, 2**48)
        for name in ("congestion", "acknowledge", "dscp"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is {getattr(self, name)!r}: a text")
        object.__setattr__(
            self, "congestion_parameters", parameter_texts(self.congestion_parameters)
        )
        check_options(self)


_COUNTS = (
    "initial_window",
    "send_units",
    "send_bytes",
    "receive_flows",
    "receive_units",
    "receive_bytes",
    "max_unit_bytes",
    "connections",
    "connections_of_host",
    "half_open",
    "receive_memory",
)
