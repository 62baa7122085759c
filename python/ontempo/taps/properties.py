"""The properties of RFC 9622, and what of them this transport has."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum, StrEnum
from typing import Any

from ontempo.live import DeliveryOrder, FlowConfig, Options, Reliability

__all__ = [
    "CapacityProfile",
    "ConnectionProperties",
    "Direction",
    "MessageProperties",
    "NotProvidedError",
    "Preference",
    "TransportProperties",
]

DEFAULT_PRIORITY = 100
"""Of connections and messages (RFC 9622, sections 8.1.2 and 9.1.3.2)."""
MOST_PRIORITY = 255
"""The most important of `ontempo.live`, where a larger number is the more important."""
LABEL = "taps"
"""Begins the label of a flow; its connection's number in the group follows."""


class NotProvidedError(ValueError):
    """A property asks for what this transport does not have; its name is in the sentence."""


class Preference(IntEnum):
    """How much a selection property matters (RFC 9622, section 6.2)."""

    PROHIBIT = -2
    AVOID = -1
    NO_PREFERENCE = 0
    PREFER = 1
    REQUIRE = 2


class Direction(StrEnum):
    """Which way data flows (RFC 9622, section 6.2.16)."""

    BIDIRECTIONAL = "bidirectional"
    UNIDIRECTIONAL_SEND = "unidirectional-send"
    UNIDIRECTIONAL_RECEIVE = "unidirectional-receive"


class CapacityProfile(StrEnum):
    """What the network is asked for (RFC 9622, section 8.1.6)."""

    DEFAULT = "default"
    SCAVENGER = "scavenger"
    LOW_LATENCY_INTERACTIVE = "low-latency-interactive"
    LOW_LATENCY_NON_INTERACTIVE = "low-latency-non-interactive"
    CONSTANT_RATE_STREAMING = "constant-rate-streaming"
    CAPACITY_SEEKING = "capacity-seeking"

    @property
    def dscp(self) -> str:
        """Its DSCP, by the service classes of RFC 4594; of the scavenger RFC 8622."""
        return _DSCP[self]


_DSCP = {
    CapacityProfile.DEFAULT: "cs0",
    CapacityProfile.SCAVENGER: "1",
    CapacityProfile.LOW_LATENCY_INTERACTIVE: "af41",
    CapacityProfile.LOW_LATENCY_NON_INTERACTIVE: "af21",
    CapacityProfile.CONSTANT_RATE_STREAMING: "af31",
    CapacityProfile.CAPACITY_SEEKING: "af11",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportProperties:
    """Selection properties (RFC 9622, section 6.2), with the defaults that are given there.

    Raises `NotProvidedError` where one requires what QUIC with units does not have, or prohibits
    what it always has.
    """

    reliability: Preference = Preference.REQUIRE
    """Require: lost messages are sent again until they arrive, and none has a lifetime. Prefer, no
    preference: until their lifetime has passed. Avoid, prohibit: never."""
    preserve_msg_boundaries: Preference = Preference.NO_PREFERENCE
    """Always preserved: a message is a unit."""
    per_msg_reliability: Preference = Preference.NO_PREFERENCE
    """Not there: a message's lifetime is what may differ."""
    preserve_order: Preference = Preference.REQUIRE
    """Require, prefer: in order. Otherwise as they arrive, or with `partial_order` each after those
    that it depends on."""
    partial_order: bool = False
    """Ours, not of RFC 9622: see `preserve_order` and `MessageProperties.depends_on`."""
    zero_rtt_msg: Preference = Preference.NO_PREFERENCE
    """Not there."""
    multistreaming: Preference = Preference.PREFER
    """Always there: the connections of a group are flows of one connection of QUIC."""
    full_checksum_send: Preference = Preference.REQUIRE
    """Always: QUIC authenticates each packet."""
    full_checksum_recv: Preference = Preference.REQUIRE
    """Always."""
    congestion_control: Preference = Preference.REQUIRE
    """Always there."""
    keep_alive: Preference = Preference.NO_PREFERENCE
    """Avoid, prohibit: an idle connection sends nothing, and ends after its timeout."""
    interface: Mapping[str, Preference] = field(default_factory=dict)
    """Not there: the system's routes choose."""
    pvd: Mapping[str, Preference] = field(default_factory=dict)
    """Not there."""
    use_temporary_local_address: Preference = Preference.NO_PREFERENCE
    """Not there: the system chooses."""
    multipath: str = "disabled"
    """Disabled only; `ontempo send` has several paths for a stream."""
    advertises_altaddr: bool = False
    """Not there."""
    direction: Direction = Direction.BIDIRECTIONAL
    """Which way this connection's messages go."""
    soft_error_notify: Preference = Preference.NO_PREFERENCE
    """Not there."""
    active_read_before_send: Preference = Preference.NO_PREFERENCE
    """Always there: the side that initiates may receive first."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(one.default, Preference):
                object.__setattr__(self, one.name, Preference(value))
        for name in _ALWAYS:
            if getattr(self, name) is Preference.PROHIBIT:
                raise NotProvidedError(f"{name}: it is always there and cannot be prohibited")
        for name in _NEVER:
            value = getattr(self, name)
            wanted = value.values() if isinstance(value, Mapping) else [value]
            if Preference.REQUIRE in wanted:
                raise NotProvidedError(f"{name}: this transport does not have it")
            if isinstance(value, Mapping) and Preference.PROHIBIT in wanted:
                raise NotProvidedError(f"{name}: the system's routes choose, not this transport")
        if self.multipath != "disabled":
            raise NotProvidedError("multipath: a connection has one path; ontempo send has several")
        if self.advertises_altaddr:
            raise NotProvidedError("advertises_altaddr: this transport does not have it")
        object.__setattr__(self, "direction", Direction(self.direction))

    def flow(self, number: int) -> FlowConfig:
        """The flow that carries the messages of connection `number` of a group, one way."""
        if self.reliability is Preference.REQUIRE:
            reliability = Reliability.FULL
        elif self.reliability >= Preference.NO_PREFERENCE:
            reliability = Reliability.DEADLINE
        else:
            reliability = Reliability.NONE
        if self.preserve_order >= Preference.PREFER:
            order = DeliveryOrder.IN_ORDER
        elif self.partial_order:
            order = DeliveryOrder.PARTIAL_ORDER
        else:
            order = DeliveryOrder.OUT_OF_ORDER
        return FlowConfig(order, reliability, f"{LABEL} {number}")


_ALWAYS = (
    "preserve_msg_boundaries",
    "multistreaming",
    "full_checksum_send",
    "full_checksum_recv",
    "congestion_control",
    "active_read_before_send",
)
_NEVER = (
    "per_msg_reliability",
    "zero_rtt_msg",
    "interface",
    "pvd",
    "use_temporary_local_address",
    "soft_error_notify",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionProperties:
    """Connection properties that can be set (RFC 9622, section 8.1), before a connection begins.

    Those of the RFC that are not here are refused by their names (`of`). Raises `ValueError` where
    one is out of its range.
    """

    conn_timeout_s: float = 10.0
    """How long nothing is heard of the peer before the connection is lost, in seconds."""
    keep_alive_timeout_s: float = 3.0
    """How often an idle connection sends a packet, in seconds; infinity: never."""
    conn_capacity_profile: CapacityProfile = CapacityProfile.DEFAULT
    """What the network is asked for, by DSCP."""

    def __post_init__(self) -> None:
        profile = CapacityProfile(self.conn_capacity_profile)
        object.__setattr__(self, "conn_capacity_profile", profile)
        for name in ("conn_timeout_s", "keep_alive_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}: above 0 s")

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> "ConnectionProperties":
        """By name; raises `NotProvidedError` for a property that this transport does not have."""
        known = {one.name for one in fields(cls)}
        for name, value in properties.items():
            if name in known:
                continue
            if name not in _DEFAULTS:
                raise NotProvidedError(f"{name}: RFC 9622 has no such connection property")
            default = _DEFAULTS[name]
            # 0 is equal to False, and is no choice.
            if value != default or isinstance(value, bool) is not isinstance(default, bool):
                raise NotProvidedError(f"{name}: this transport does not have it")
        return cls(**{name: value for name, value in properties.items() if name in known})

    def options(self, transport: TransportProperties, base: Options) -> Options:
        """The options of an endpoint with these, and for all else `base`."""
        is_kept = transport.keep_alive >= Preference.NO_PREFERENCE
        keep_alive_s = self.keep_alive_timeout_s if is_kept else math.inf
        return replace(
            base,
            idle_timeout_s=self.conn_timeout_s,
            keep_alive_s=None if math.isinf(keep_alive_s) else keep_alive_s,
            dscp=self.conn_capacity_profile.dscp,
        )


_DEFAULTS: Mapping[str, Any] = {
    "conn_priority": DEFAULT_PRIORITY,
    "recv_checksum_len": "full",
    "conn_scheduler": "weighted-fair-queueing",
    "multipath_policy": "handover",
    "min_send_rate_bps": None,
    "min_recv_rate_bps": None,
    "max_send_rate_bps": None,
    "max_recv_rate_bps": None,
    "group_conn_limit": None,
    "isolate_session": False,
}
"""Properties that are not there, and the values that ask for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageProperties:
    """Properties of a message (RFC 9622, section 9.1.3).

    Raises `NotProvidedError` where one asks for what this transport does not have, `ValueError`
    where one is out of its range.
    """

    msg_lifetime_s: float = math.inf
    """After so long it is of no use and dropped where it has not arrived, in seconds."""
    msg_priority: int = DEFAULT_PRIORITY
    """The smaller, the more important; all above 255 are alike. Messages in order keep it."""
    msg_ordered: bool | None = None
    """None: as the connection's `preserve_order`; any other value must say the same."""
    safely_replayable: bool = False
    """Without effect: nothing is sent before the handshake."""
    final: bool = False
    """The last one of this connection, this way."""
    msg_checksum_len: str = "full"
    """Full only."""
    msg_reliable: bool | None = None
    """None: as the connection's `reliability`; any other value must say the same."""
    msg_capacity_profile: CapacityProfile | None = None
    """None: the connection's; no other can be had."""
    no_fragmentation: bool = False
    """Not there: a unit may be longer than a packet."""
    no_segmentation: bool = False
    """Not there."""
    depends_on: tuple[int, ...] = ()
    """Ours, not of RFC 9622: numbers of earlier messages without which it is of no use; at most
    32."""

    def __post_init__(self) -> None:
        if not self.msg_lifetime_s > 0:
            raise ValueError(f"msg_lifetime_s is {self.msg_lifetime_s!r}: above 0 s")
        if self.msg_priority < 0:
            raise ValueError(f"msg_priority is {self.msg_priority!r}: 0 or more")
        if self.msg_checksum_len != "full":
            raise NotProvidedError("msg_checksum_len: a checksum always covers all of a message")
        for name in ("no_fragmentation", "no_segmentation", "msg_capacity_profile"):
            if getattr(self, name):
                raise NotProvidedError(f"{name}: this transport does not have it")

    def check(self, *, is_ordered: bool, is_reliable: bool) -> None:
        """Raise `NotProvidedError` where it is to be other than all messages of a connection."""
        for name, wanted, there in (
            ("msg_ordered", self.msg_ordered, is_ordered),
            ("msg_reliable", self.msg_reliable, is_reliable),
        ):
            if wanted is not None and wanted is not there:
                raise NotProvidedError(f"{name}: it is the connection's, {there}, for all messages")

    def arguments(self, flow: FlowConfig) -> dict[str, Any]:
        """What `SendFlow.send` is given beside the data, on this flow."""
        self.check(
            is_ordered=flow.order is DeliveryOrder.IN_ORDER,
            is_reliable=flow.reliability is not Reliability.NONE,
        )
        has_lifetime = not math.isinf(self.msg_lifetime_s)
        if has_lifetime and flow.reliability is Reliability.FULL:
            raise NotProvidedError(
                "msg_lifetime_s: a connection that requires reliability drops no message; let its"
                " reliability be Preference.PREFER"
            )
        return {
            "lifetime_s": self.msg_lifetime_s if has_lifetime else None,
            "priority": MOST_PRIORITY - min(self.msg_priority, MOST_PRIORITY),
            "depends_on": self.depends_on,
        }
