"""The words of RFC 9622 for QoS sockets (`ontempo.qos`): QUIC, or without security TCP or UDP.

Without security the properties select between TCP and UDP. Both ends give the same ones. What the
RFC has no word for is in `Preconnection.options`: the specifications of both directions,
reservations, ladders::

    import asyncio
    from ontempo import taps
    from ontempo.taps import qos

    async def main():
        properties = taps.TransportProperties(
            reliability=taps.Preference.AVOID, congestion_control=taps.Preference.AVOID
        )
        plain = taps.SecurityParameters(disabled=True)
        here = taps.LocalEndpoint(address="127.0.0.1")
        listening = qos.Preconnection(local=here, transport=properties, security=plain)
        async with await listening.listen() as listener:
            there = taps.RemoteEndpoint(host="127.0.0.1", port=listener.local[1])
            initiating = qos.Preconnection(remote=there, transport=properties, security=plain)
            near, far = await asyncio.gather(initiating.initiate(), anext(aiter(listener)))
            await near.send(b"a sample")
            print(near.protocol, (await far.receive()).data)
            await asyncio.gather(near.close(), far.close())

    asyncio.run(main())
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from ontempo import live, qos
from ontempo.live.checks import Data

from . import (
    AbortedError,
    ConnectionProperties,
    Direction,
    EstablishmentError,
    LocalEndpoint,
    Message,
    MessageProperties,
    NotProvidedError,
    Preference,
    RemoteEndpoint,
    SecurityParameters,
    SendError,
    TransportProperties,
)
from .properties import CapacityProfile

__all__ = ["Connection", "Listener", "Preconnection", "Protocol"]

Protocol = Literal["quic", "tcp", "udp"]
"""A protocol under QoS sockets."""

LINGER_S = 5.0
"""How long `Connection.close` waits for the peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconnection:
    """What a connection is to be: a QoS socket over the protocol that the properties select."""

    local: LocalEndpoint | None = None
    """Where to listen."""
    remote: RemoteEndpoint | None = None
    transport: TransportProperties = field(default_factory=TransportProperties)
    connection: ConnectionProperties = field(default_factory=ConnectionProperties)
    security: SecurityParameters = field(default_factory=SecurityParameters)
    """Disabled: TCP or UDP."""
    options: qos.QosOptions = field(default_factory=qos.QosOptions)
    """Ours: the specifications of both directions and all else. Properties come before it."""

    def protocol(self) -> Protocol:
        """The protocol that the properties select.

        QUIC; without security the one of TCP and UDP which fits best, TCP where both do. Raises
        `NotProvidedError` with the first property that excludes one where none is left.
        """
        if self.transport.partial_order:
            raise NotProvidedError("partial_order: messages of a QoS socket name no others")
        candidates: Sequence[Protocol] = ("tcp", "udp") if self.security.disabled else ("quic",)
        conflicts = {one: _conflict(one, self.transport, self.options) for one in candidates}
        left = [one for one in candidates if conflicts[one] is None]
        if not left:
            raise NotProvidedError("; ".join(why for why in conflicts.values() if why))
        return max(left, key=lambda one: _fit(one, self.transport, self.options))

    def _selected(self) -> tuple[Protocol, qos.QosOptions]:
        """The protocol, and the options with what the properties ask for."""
        protocol = self.protocol()
        for name in ("conn_timeout_s", "keep_alive_timeout_s"):
            if getattr(self.connection, name) != getattr(ConnectionProperties(), name):
                instead = "a QoS socket has rec_time and max_delay of its specification instead"
                raise NotProvidedError(f"{name}: {instead}")
        options = self.options
        both = (options.send, options.receive)
        is_required = protocol == "quic" and self.transport.reliability is Preference.REQUIRE
        if is_required and any(one.loss_percent for one in both):
            raise NotProvidedError(
                "reliability: the specification allows loss; let it be Preference.PREFER"
            )
        send, receive = (_ordered(one, self.transport.preserve_order) for one in both)
        profile = self.connection.conn_capacity_profile
        dscp = options.dscp if profile is CapacityProfile.DEFAULT else profile.dscp
        return protocol, replace(options, send=send, receive=receive, dscp=dscp)

    async def initiate(self) -> "Connection":
        """Connect and negotiate: the event Ready is the return.

        Raises `EstablishmentError` where there is no answer, the peer refuses or the ends do not
        agree, `NotProvidedError` where the properties cannot be fulfilled, `ValueError` where
        something is missing here.
        """
        protocol, options = self._selected()
        if self.local is not None:
            raise NotProvidedError("local: the system binds a QoS socket that connects")
        if self.remote is None:
            raise ValueError("remote is needed to initiate")
        trust, token = self.security.trust, self.security.token
        if protocol == "quic" and trust is None:
            raise ValueError("security.trust is needed to initiate, unless security is disabled")
        try:
            socket = await qos.connect(
                self.remote.written,
                options,
                carrier=protocol,
                trust=trust,
                token=b"" if token is None else token,
            )
        except (live.NotConnectedError, qos.DisagreementError) as error:
            raise EstablishmentError(str(error)) from error
        return Connection(socket, protocol, self.transport)

    async def listen(self) -> "Listener":
        """Wait for peers that agree.

        Raises `EstablishmentError` where the address cannot be bound, `NotProvidedError` where the
        properties cannot be fulfilled.
        """
        protocol, options = self._selected()
        try:
            listener = await qos.listen(
                (self.local or LocalEndpoint()).written,
                options,
                carrier=protocol,
                identity=self.security.identity,
                token=self.security.token,
                anyone=self.security.anyone,
            )
        except live.BindError as error:
            raise EstablishmentError(str(error)) from error
        return Listener(listener, protocol, self.transport)

    async def rendezvous(self) -> "Connection":
        """Refused: one side has to listen (RFC 9622, section 7.3)."""
        raise NotProvidedError("rendezvous: one side has to listen")


class Listener:
    """Accepts connections: ``async for connection in listener``; those that agree.

    At the end of an ``async with`` block it stops; its connections stay.
    """

    def __init__(
        self, listener: qos.Listener, protocol: Protocol, transport: TransportProperties
    ) -> None:
        self._listener = listener
        self._transport = transport
        self.protocol = protocol
        """The protocol that was selected."""

    @property
    def local(self) -> tuple[str, int]:
        """Where it listens."""
        return self._listener.local

    @property
    def fingerprint(self) -> str | None:
        """By which peers verify it, over QUIC."""
        return self._listener.fingerprint

    @property
    def token(self) -> bytes | None:
        """The secret that peers must send, over QUIC."""
        return self._listener.token

    async def __aiter__(self) -> AsyncIterator["Connection"]:
        async for socket in self._listener:
            yield Connection(socket, self.protocol, self._transport)

    async def stop(self) -> None:
        """Accept no more; the event Stopped is the end of the iteration."""
        await self._listener.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stop()


class Connection:
    """Messages to and from a peer, of an agreed quality."""

    def __init__(
        self, socket: qos.Connection, protocol: Protocol, transport: TransportProperties
    ) -> None:
        self.socket = socket
        """What the RFC has no word for: what was agreed, delivery, events such as violations."""
        self.protocol = protocol
        """Over which protocol."""
        self._direction = transport.direction
        agreed = socket.agreed("sending")
        self._is_ordered = protocol == "tcp" or not agreed.permutable
        self._is_reliable = protocol == "tcp" or (protocol == "quic" and not agreed.loss_percent)

    @property
    def can_send(self) -> bool:
        """The property canSend, until the connection has ended."""
        return self._direction is not Direction.UNIDIRECTIONAL_RECEIVE

    @property
    def can_receive(self) -> bool:
        """The property canReceive, until the connection has ended."""
        return self._direction is not Direction.UNIDIRECTIONAL_SEND

    @property
    def remote(self) -> tuple[str, int]:
        """The peer's address and port."""
        return self.socket.remote

    @property
    def local(self) -> tuple[str, int]:
        """The address and port of this side."""
        return self.socket.local

    def clone(self) -> "Connection":
        """Refused: a QoS socket is one connection."""
        raise NotProvidedError("clone: a QoS socket is one connection; initiate another")

    async def send(self, data: Data, properties: MessageProperties | None = None) -> None:
        """Send a message; wait while the send queue is full (that is the event Sent).

        Raises `SendError` where it cannot be sent, `NotProvidedError` for a property that is not
        there.
        """
        if not self.can_send:
            raise SendError("this connection does not send: it is one-way")
        if properties is not None:
            self._check(properties)
        try:
            await self.socket.send(data)
        except (live.ClosedError, live.UnitError) as error:
            raise SendError(str(error)) from error

    def _check(self, properties: MessageProperties) -> None:
        properties.check(is_ordered=self._is_ordered, is_reliable=self._is_reliable)
        usual = MessageProperties()
        for name, why in (
            ("msg_lifetime_s", "max_delay of the specification is that of all messages"),
            ("msg_priority", "a QoS socket has none"),
            ("depends_on", "a QoS socket has none"),
            ("final", "a direction does not end by itself; close the connection"),
        ):
            if getattr(properties, name) != getattr(usual, name):
                raise NotProvidedError(f"{name}: {why}")

    async def receive(self) -> Message | None:
        """Wait for the next message; None where the peer has ended.

        Raises `AbortedError` where the connection was lost (the event ReceiveError).
        """
        try:
            message = await self.socket.receive()
        except live.ClosedError as error:
            raise AbortedError(str(error)) from error
        if message is None:
            return None
        return Message(message.data, message.sequence, message.delay_s, ())

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.receive()) is not None:
            yield message

    async def close(self) -> None:
        """End it in order: what was sent arrives, for up to 5 s; over UDP at once."""
        await self.socket.close(LINGER_S)

    async def abort(self) -> None:
        """End it at once: what has not arrived may be lost."""
        await self.socket.close()


def _has(protocol: Protocol, options: qos.QosOptions) -> dict[str, bool | None]:
    """Which properties a protocol always has or never has; None: as it is asked for."""
    both = (options.send, options.receive)
    may_be_lost = all(one.loss_percent and one.max_delay_s is None for one in both)
    is_reliable = None if protocol == "quic" and may_be_lost else protocol != "udp"
    return {
        "reliability": is_reliable,
        "preserve_msg_boundaries": True,
        "preserve_order": True if protocol == "tcp" else None,
        "multistreaming": False,
        "full_checksum_send": True,
        "full_checksum_recv": True,
        "congestion_control": protocol != "udp",
        # Clocks are compared twice a second.
        "keep_alive": True,
        "active_read_before_send": True,
    }


def _conflict(
    protocol: Protocol, properties: TransportProperties, options: qos.QosOptions
) -> str | None:
    """The property that excludes a protocol, and why."""
    for name, has in _has(protocol, options).items():
        preference = getattr(properties, name)
        if preference is Preference.REQUIRE and has is False:
            return f"{name}: {protocol.upper()} does not have it"
        if preference is Preference.PROHIBIT and has is True:
            return f"{name}: {protocol.upper()} always has it"
    return None


def _fit(protocol: Protocol, properties: TransportProperties, options: qos.QosOptions) -> int:
    """How well a protocol fits: what is preferred and there, avoided and not there."""
    fit = 0
    for name, has in _has(protocol, options).items():
        preference = getattr(properties, name)
        if preference in (Preference.PREFER, Preference.AVOID):
            fit += -1 if has is (preference is Preference.AVOID) else 1
    return fit


def _ordered(specification: qos.Specification, asked: Preference) -> qos.Specification:
    """Make `permutable` of the property preserve_order."""
    if asked is Preference.REQUIRE and specification.permutable:
        raise NotProvidedError(
            "preserve_order: the specification is permutable; let it be Preference.NO_PREFERENCE"
        )
    if asked > Preference.NO_PREFERENCE or specification.permutable is not None:
        return specification
    # An end that asks for order has it.
    coerced = (*specification.coerced, "permutable")
    return replace(specification, permutable=True, coerced=coerced)
