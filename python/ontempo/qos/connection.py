"""Connections of messages whose quality is agreed on and watched."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from ontempo._native import QosLink, Trust, qos_connect
from ontempo.live.bridge import Bridge, Watched, answered, bridge
from ontempo.live.checks import Data, address, octets, seconds, secret
from ontempo.live.connection import resolve, trusted
from ontempo.live.contexts import Closing, Opening
from ontempo.live.errors import NotConnectedError

from .errors import DisagreementError
from .events import Direction, Events, Reservation
from .specification import QosOptions, Specification

__all__ = ["Carrier", "Connection", "Delivery", "Message", "connect"]

Carrier: TypeAlias = Literal["tcp", "udp", "quic"]
"""What carries the messages."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was received."""

    data: bytes
    sequence: int
    """The sender's count, from 0: what is missing was lost."""
    delay_s: float
    """From sending to arrival, in seconds, as far as the clocks are known."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was delivered in one direction, as its receiver has measured it.

    A sender knows what that has told, which it does twice a second.
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
    """Mean delay in the last interval, in seconds (equation 4)."""
    delay_error_s: float | None
    """How far that may be off for the clocks' sake, in seconds."""
    jitter_s: float | None
    """Mean jitter in the last interval, in seconds (equation 5)."""


class Connection(Watched[QosLink], Closing):
    """A connection of messages: ``async for`` yields those that come.

    As a context (``async with``) it is closed at the end of the block.
    """

    def __init__(self, native: QosLink, bridge: Bridge) -> None:
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
        """The code point of the packets, 0 to 63."""
        return self._native.dscp

    @property
    def most_sent(self) -> int:
        """Bytes of the longest message that may be sent."""
        return self._native.most_sent

    @property
    def most_received(self) -> int:
        """Bytes of the longest message that may come."""
        return self._native.most_received

    async def send(self, data: Data) -> None:
        """Send a message; wait while the system takes no more.

        Who is cancelled while waiting for others' messages has sent nothing; later, the message
        may still be sent.

        Raises `UnitError` where it is longer than was agreed, `ClosedError` where the connection
        is over.
        """
        message = octets(data)
        async with self._sending:
            await self.until(lambda: self._native.try_send(message) or None)
            await self.until(lambda: self._native.has_sent() or None)

    async def receive(self) -> Message | None:
        """Wait for a message; ``None`` where the other end sends no more.

        Who is cancelled while waiting has taken nothing.

        Raises `ClosedError` where the connection broke, or this side has closed it.
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
        """What was agreed for a direction; a change shows here."""
        return Specification(**self._native.agreed(direction))

    def change(self, asked: Specification) -> Specification:
        """Ask for something else of what this end sends; the size of messages stays.

        Answers what both ends have agreed on. Raises `DisagreementError` where they do not:
        nothing changes.
        """
        return Specification(**self._native.change(asked))

    def delivery(self, direction: Direction) -> Delivery:
        """What was delivered in a direction, by the last interval's end."""
        return Delivery(**self._native.delivery(direction))

    def reservation(self, direction: Direction) -> Reservation:
        """How the reservation of a direction stands."""
        return Reservation(direction, *self._native.reservation(direction))

    def reports(self) -> list[dict[str, Any]]:
        """All figures, as ``ontempo monitor`` and ``ontempo export`` have them.

        One for each direction of which something is asked or that has carried messages.
        """
        reports: list[dict[str, Any]] = json.loads(self._native.reports())
        return reports

    def events(self) -> Events:
        """What changes from now on: violations that begin and end, above all."""
        return Events(self._native.events(self._bridge.waker), self._bridge)

    async def close(self, patience_s: float = 0.0) -> None:
        """Close it.

        With `patience_s`, in seconds, what was handed over is sent first, and the other end may
        take so long: over TCP to have it all and to close, over QUIC to have it all. What still
        comes is dropped.
        """
        patience_s = seconds("patience_s", patience_s, above=False)
        closing = self._native.close(patience_s, self._bridge.waker)
        if closing is not None:
            await answered(self._bridge, closing)


def carrier_name(carrier: Carrier) -> Carrier:
    """The carrier, if it is one."""
    if carrier not in ("tcp", "udp", "quic"):
        raise ValueError(f"carrier is {carrier!r}: one of tcp, udp, quic")
    return carrier


def only_quic(carrier: Carrier, **given: object) -> None:
    """Raise `ValueError` where another carrier is given what only QUIC knows of."""
    for name, value in given.items():
        if value:
            raise ValueError(f"{name} is given, but carrier is {carrier!r}: {name} is for 'quic'")


@dataclass(frozen=True, slots=True)
class _Peer:
    """Who should be at the other end of a connection over QUIC."""

    trust: Trust | str | None
    token: bytes
    name: str | None

    def known(self, carrier: Carrier, host: str) -> tuple[str, Trust, bytes] | None:
        """What the compiled core wants of it; ``None`` where the carrier is not QUIC."""
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
    """Connect to ``HOST:PORT`` and agree with the other end: awaited, or entered by ``async with``.

    With `carrier` ``"quic"``, and only then, as for `ontempo.connect`: `trust` says by what the
    other end is known, its certificate's fingerprint (64 hexadecimal digits) or a `Trust`; without
    it there is no connection. `token` is what it wants to be known, at most 256 bytes. `name` is
    whom its certificate is for, where trust looks at that; the address's host where not given.

    Raises `DisagreementError` where the ends do not agree, and `NotConnectedError` where nobody
    answers within `QosOptions.patience_s`, a reservation that must be is not had, or, over QUIC,
    the other end refuses the token or is not who it should be.
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
    known = peer.known(carrier, host or "")
    made = bridge()
    failed: NotConnectedError | None = None
    for remote in await resolve(host or "", port):
        try:
            connecting = qos_connect(carrier, remote, options, known, made.waker)
            return Connection(await answered(made, connecting), made)
        except DisagreementError:
            raise
        except NotConnectedError as error:
            failed = failed or error
    raise failed or NotConnectedError(f"{host}: this name has no address")
