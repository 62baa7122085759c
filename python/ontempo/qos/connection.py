"""QoS connections: messages under a negotiated and monitored specification."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from ontempo._native import QosChannel, Trust, qos_connect
from ontempo.live.bridge import Bridge, Waitable, bridge, result_of
from ontempo.live.checks import Data, address, octets, seconds, secret
from ontempo.live.connection import resolve, trusted
from ontempo.live.contexts import Closing, Opening
from ontempo.live.errors import NotConnectedError

from .errors import DisagreementError
from .events import Direction, Events, Reservation
from .specification import QosOptions, Specification

__all__ = ["Carrier", "Connection", "Delivery", "Message", "connect"]

Carrier: TypeAlias = Literal["tcp", "udp", "quic"]
"""The transport that carries the messages."""


@dataclass(frozen=True, slots=True)
class Message:
    """A received message."""

    data: bytes
    sequence: int
    """Its sequence number, counted from 0 by the sender: a gap is a lost message."""
    delay_s: float
    """One-way delay from sending to arrival, in seconds; exact to the error of the clock offset."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was delivered in one direction, measured by its receiver.

    A sender has its receiver's last report; there are two a second.
    """

    sent_messages: int
    """Messages sent."""
    messages: int
    """Messages delivered."""
    bytes: int
    """Their payload."""
    lost_messages: int
    """Messages lost."""
    throughput_bps: int
    """Payload in the last interval, in bits per second (qosockets, equation 2)."""
    loss_percent: float | None
    """Loss in the last interval, in per cent (equation 3); ``None`` where nothing was sent."""
    delay_s: float | None
    """Mean delay in the last interval, in seconds (equation 4); ``None`` without messages."""
    delay_error_s: float | None
    """Error bound of `delay_s`, from the clock offset, in seconds; ``None`` where unknown."""
    jitter_s: float | None
    """Mean jitter in the last interval, in seconds (equation 5); ``None`` without messages."""


class Connection(Waitable[QosChannel], Closing):
    """A QoS connection: ``async for message in connection`` yields the received messages.

    An ``async with`` block closes it at its end.
    """

    def __init__(self, native: QosChannel, bridge: Bridge) -> None:
        super().__init__(native, bridge)
        self._sending = asyncio.Lock()
        self._receiving = asyncio.Lock()

    @property
    def remote(self) -> tuple[str, int]:
        """The other end's address and port."""
        return self._native.remote

    @property
    def local(self) -> tuple[str, int]:
        """The address and port of this end."""
        return self._native.local

    @property
    def dscp(self) -> int:
        """The DSCP of the packets, 0 to 63."""
        return self._native.dscp

    @property
    def max_send_size(self) -> int:
        """The longest message that may be sent, in bytes."""
        return self._native.max_send_size

    @property
    def max_receive_size(self) -> int:
        """The longest message that may be received, in bytes."""
        return self._native.max_receive_size

    async def send(self, data: Data) -> None:
        """Send a message; wait while the send buffer is full (backpressure).

        A call that is cancelled while other calls send has sent nothing; one that is cancelled
        while its own message is being sent may still send it.

        Raises `UnitError` where the message is longer than `max_send_size`, and `ClosedError` where
        the connection is closed or lost.
        """
        message = octets(data)
        async with self._sending:
            await self.until(lambda: self._native.try_send(message) or None)
            await self.until(lambda: self._native.has_sent() or None)

    async def receive(self) -> Message | None:
        """Wait for a message; ``None`` where the other end has finished sending.

        A call that is cancelled while it waits has taken no message.

        Raises `ClosedError` where the connection is lost, or this side has closed it.
        """
        try:
            return await anext(self)
        except StopAsyncIteration:
            return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        async with self._receiving:
            return Message(*await self.until(self._native.try_receive))

    def agreed(self, direction: Direction) -> Specification:
        """The specification in force for a direction, after renegotiations and ladder steps."""
        return Specification(**self._native.agreed(direction))

    def change(self, asked: Specification) -> Specification:
        """Renegotiate the specification of what this end sends; its `size` cannot change.

        Returns the agreed specification. Raises `DisagreementError` where the ends do not agree;
        the specification in force then stays.
        """
        return Specification(**self._native.change(asked))

    def delivery(self, direction: Direction) -> Delivery:
        """What was delivered in a direction until the end of the last interval of 0.5 s."""
        return Delivery(**self._native.delivery(direction))

    def reservation(self, direction: Direction) -> Reservation:
        """The state of a direction's reservation."""
        return Reservation(direction, *self._native.reservation(direction))

    def reports(self) -> list[dict[str, Any]]:
        """All statistics, in the fields of ``ontempo monitor`` and ``ontempo export``.

        One report for each direction that has a specification or has carried messages.
        """
        reports: list[dict[str, Any]] = json.loads(self._native.reports())
        return reports

    def events(self) -> Events:
        """The events from now on: `Violation`, `Lasting`, `Step`, `Changed`, `Reservation`.

        Over TCP also `ConnectionLost`, `ConnectionRecovered`, `ConnectionUnrecoverable`.
        """
        return Events(self._native.events(self._bridge.waker), self._bridge)

    async def close(self, timeout_s: float = 0.0) -> None:
        """Close it; messages that still arrive are dropped.

        With `timeout_s` above 0, in seconds, wait at most so long until the messages sent so far
        have been delivered: over TCP until the other end closes, over QUIC until it has
        acknowledged them all.
        """
        timeout_s = seconds("timeout_s", timeout_s, above=False)
        closing = self._native.close(timeout_s, self._bridge.waker)
        if closing is not None:
            await result_of(self._bridge, closing)


def carrier_name(carrier: Carrier) -> Carrier:
    """The carrier; raises `ValueError` where there is none of that name."""
    if carrier not in ("tcp", "udp", "quic"):
        raise ValueError(f"carrier is {carrier!r}: one of tcp, udp, quic")
    return carrier


def only_quic(carrier: Carrier, **given: object) -> None:
    """Raise `ValueError` where arguments for QUIC are given for another carrier."""
    for name, value in given.items():
        if value:
            raise ValueError(f"{name} is given, but carrier is {carrier!r}: {name} is for 'quic'")


@dataclass(frozen=True, slots=True)
class _Peer:
    """How the other end of a connection over QUIC is verified."""

    trust: Trust | str | None
    token: bytes
    name: str | None

    def arguments(self, carrier: Carrier, host: str) -> tuple[str, Trust, bytes] | None:
        """Name, trust and token for the compiled core; ``None`` where the carrier is not QUIC."""
        if carrier != "quic":
            only_quic(carrier, trust=self.trust is not None, token=self.token, name=self.name)
            return None
        if self.trust is None:
            raise ValueError("trust is missing: with carrier 'quic', a fingerprint or a Trust")
        return self.name or host, trusted(self.trust), self.token


def connect(
    address: str,
    options: QosOptions | None = None,
    *,
    carrier: Carrier = "tcp",
    trust: Trust | str | None = None,
    token: str | Data = b"",
    name: str | None = None,
) -> Opening[Connection]:
    """Connect to ``HOST:PORT`` and negotiate: await it, or enter it by ``async with``.

    With `carrier` ``"quic"``, and only then, as for `ontempo.live.connect`: `trust`, which is
    required, verifies the other end by its certificate's fingerprint (64 hexadecimal digits) or by
    a `Trust`. `token` is the secret that the other end asks for, at most 256 bytes. `name` is the
    name in its certificate, for a `Trust` that checks names; by default the address's host.

    Raises `DisagreementError` where the ends do not agree; `NotConnectedError` where there is no
    answer within `QosOptions.setup_timeout_s`, a required reservation is refused or, over QUIC, the
    other end refuses the token or is not verified; `ValueError` or `TypeError` for a wrong
    argument.
    """
    return Opening(
        lambda: _connect(
            address,
            options or QosOptions(),
            carrier_name(carrier),
            _Peer(trust, secret(token), name),
        )
    )


async def _connect(at: str, options: QosOptions, carrier: Carrier, peer: _Peer) -> Connection:
    host, port = address(at, listening=False)
    known = peer.arguments(carrier, host or "")
    made = bridge()
    failed: NotConnectedError | None = None
    for remote in await resolve(host or "", port):
        try:
            connecting = qos_connect(carrier, remote, options, known, made.waker)
            return Connection(await result_of(made, connecting), made)
        except DisagreementError:
            raise
        except NotConnectedError as error:
            failed = failed or error
    raise failed or NotConnectedError(f"{host}: this name has no address")
