"""The Transport Services API (RFC 9622) over `ontempo.live`: its words for what is there.

A `Preconnection` has endpoints, transport properties and whom to trust; it initiates a `Connection`
or listens for some. What this transport does not have is refused by its name
(`NotProvidedError`), never ignored. Both ends in one program::

    import asyncio
    from ontempo import taps

    async def answer(listener):
        async for connection in listener:              # the event ConnectionReceived
            async for message in connection:
                await connection.send(message.data.upper())
            await connection.close()

    async def main():
        properties = taps.TransportProperties(reliability=taps.Preference.PREFER)
        here = taps.LocalEndpoint(address="127.0.0.1", port=0)
        async with await taps.Preconnection(local=here, transport=properties).listen() as listener:
            answering = asyncio.create_task(answer(listener))
            there = taps.RemoteEndpoint(host="127.0.0.1", port=listener.local[1])
            security = taps.SecurityParameters(trust=listener.fingerprint, token=listener.token)
            preconnection = taps.Preconnection(
                remote=there, transport=properties, security=security
            )
            async with await preconnection.initiate() as connection:
                brief = taps.MessageProperties(msg_lifetime_s=5, final=True)
                await connection.send(b"hello", brief)
                print((await connection.receive()).data)
            answering.cancel()

    asyncio.run(main())

The mapping, property by property: docs/taps.md. Times are seconds, sizes bytes.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Self

from ontempo import live
from ontempo._native import Identity, Trust
from ontempo.live.checks import Data

from .connection import (
    AbortedError,
    Closed,
    Connection,
    ConnectionError,  # noqa: A004 (the RFC's word)
    ConnectionState,
    Expired,
    Message,
    PathChange,
    SendError,
)
from .group import Group
from .properties import (
    CapacityProfile,
    ConnectionProperties,
    Direction,
    MessageProperties,
    NotProvidedError,
    Preference,
    TransportProperties,
)

__all__ = [
    "AbortedError",
    "CapacityProfile",
    "Closed",
    "Connection",
    "ConnectionError",
    "ConnectionProperties",
    "ConnectionState",
    "Direction",
    "EstablishmentError",
    "Expired",
    "Listener",
    "LocalEndpoint",
    "Message",
    "MessageProperties",
    "NotProvidedError",
    "PathChange",
    "Preconnection",
    "Preference",
    "RemoteEndpoint",
    "SecurityParameters",
    "SendError",
    "TransportProperties",
]


class EstablishmentError(live.EndpointError):
    """No connection, or no listener, could be made (RFC 9622, section 7.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEndpoint:
    """Where to listen: an address of this machine, or all (empty); port 0 chooses a free one."""

    address: str = ""
    port: int = 0

    @property
    def written(self) -> str:
        """As one text."""
        return _at(self.address, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEndpoint:
    """Whom to reach: a name or an address, and a port."""

    host: str
    port: int

    @property
    def written(self) -> str:
        """As one text."""
        return _at(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityParameters:
    """Whom to trust, and who may connect; QUIC is always encrypted (RFC 9622, section 6.3)."""

    trust: Trust | str | None = None
    """Of the side that initiates: the peer's fingerprint, or a `Trust`."""
    token: str | bytes | None = None
    """The secret of both; a listener without one makes one."""
    identity: Identity | None = None
    """Of a listener: certificate and key; by default new ones."""
    anyone: bool = False
    """A listener admits everybody, without a token."""
    disabled: bool = False
    """Nothing is encrypted and nobody verified, over TCP or UDP; of `ontempo.taps.qos` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconnection:
    """What a connection is to be (RFC 9622, section 6)."""

    local: LocalEndpoint | None = None
    remote: RemoteEndpoint | None = None
    transport: TransportProperties = field(default_factory=TransportProperties)
    connection: ConnectionProperties = field(default_factory=ConnectionProperties)
    security: SecurityParameters = field(default_factory=SecurityParameters)
    options: live.Options = field(default_factory=live.Options)
    """Ours: all else, such as the congestion control. Properties come before it."""

    async def initiate(self) -> Connection:
        """Connect: the event Ready is the return (RFC 9622, section 7.1).

        Raises `EstablishmentError` where there is no answer or the peer refuses, `ValueError` where
        something is missing here.
        """
        self._check_security()
        if self.remote is None or self.security.trust is None:
            raise ValueError("remote and security.trust are needed to initiate")
        token = self.security.token
        try:
            carrier = await live.connect(
                self.remote.written,
                trust=self.security.trust,
                token=b"" if token is None else token,
                options=self.connection.options(self.transport, self.options),
            )
        except live.NotConnectedError as error:
            raise EstablishmentError(str(error)) from error
        return Group(carrier, self.transport, initiates=True).first

    async def initiate_with_send(
        self, data: Data, properties: MessageProperties | None = None
    ) -> Connection:
        """Connect, and send a first message after the handshake (RFC 9622, section 7.1).

        Raises what `initiate` and `Connection.send` raise; the connection is aborted where the
        message cannot be sent.
        """
        connection = await self.initiate()
        try:
            await connection.send(data, properties)
        except BaseException:
            await connection.abort("the first message could not be sent")
            raise
        return connection

    async def listen(self) -> "Listener":
        """Wait for peers (RFC 9622, section 7.2).

        Raises `EstablishmentError` where the address cannot be bound.
        """
        self._check_security()
        try:
            listener = await live.listen(
                (self.local or LocalEndpoint()).written,
                identity=self.security.identity,
                token=self.security.token,
                anyone=self.security.anyone,
                options=self.connection.options(self.transport, self.options),
            )
        except live.BindError as error:
            raise EstablishmentError(str(error)) from error
        return Listener(listener, self.transport)

    def _check_security(self) -> None:
        if self.security.disabled:
            raise NotProvidedError(
                "disabled: units are over QUIC, which is always encrypted; see ontempo.taps.qos"
            )

    async def rendezvous(self) -> Connection:
        """Refused: peers do not meet without a listener (RFC 9622, section 7.3)."""
        raise NotProvidedError("rendezvous: one side has to listen")


class Listener:
    """Accepts connections: ``async for connection in listener``.

    The connections that a peer clones come from ``connection.cloned()``. At the end of an ``async
    with`` block it stops; its connections stay.
    """

    def __init__(self, listener: live.Listener, transport: TransportProperties) -> None:
        self._listener = listener
        self._transport = transport

    @property
    def local(self) -> tuple[str, int]:
        """Where it listens."""
        return self._listener.local

    @property
    def fingerprint(self) -> str:
        """By which peers verify it."""
        return self._listener.fingerprint

    @property
    def token(self) -> bytes:
        """The secret that peers must send."""
        return self._listener.token

    async def __aiter__(self) -> AsyncIterator[Connection]:
        async for carrier in self._listener:
            yield Group(carrier, self._transport, initiates=False).first

    async def stop(self) -> None:
        """Accept no more; the event Stopped is the end of the iteration."""
        await self._listener.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stop()


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
