"""A connection of RFC 9622: messages in both directions, events, its end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from ontempo import live
from ontempo.live.checks import Data

from .properties import Direction, MessageProperties

if TYPE_CHECKING:
    from .group import Group

__all__ = [
    "AbortedError",
    "Closed",
    "Connection",
    "ConnectionError",
    "ConnectionState",
    "Expired",
    "Message",
    "PathChange",
    "SendError",
]

ABORTED = 256
"""The close code of an abort: the first that is a program's own."""
LOOK_S = 0.05
"""How often expired messages are looked for while nothing else happens."""
LOOK_AT_PATH_S = 0.25
"""How often another address of the peer is looked for: that takes a thread for a moment."""
LINGER_S = 5.0
"""How long `Connection.close` waits for the peer's end."""


class ConnectionState(StrEnum):
    """The property connState (RFC 9622, section 8.1.11.1)."""

    ESTABLISHED = "established"
    CLOSING = "closing"
    CLOSED = "closed"


class AbortedError(live.EndpointError):
    """The connection is closed, here or by the peer, or was lost."""


class SendError(live.EndpointError):
    """A message that cannot be sent (RFC 9622, section 9.2.2.3)."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was received (RFC 9622, section 9.3.2.1)."""

    data: bytes
    """Its data, whole."""
    number: int
    """Its number this way, from 0."""
    age_s: float | None
    """How long it was on its way, in seconds; None until the clocks have been compared."""
    missing: tuple[int, ...]
    """Numbers of the messages that it depends on and that expired."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The event Expired: a message's lifetime passed before it had arrived."""

    number: int
    """What `Connection.send` returned."""


@dataclass(frozen=True, slots=True)
class PathChange:
    """The event PathChange: the peer has another address (RFC 9622, section 8.3.2)."""

    remote: tuple[str, int]
    """The new address and port."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The event Closed: the connection has ended in order."""


@dataclass(frozen=True, slots=True)
class ConnectionError:  # noqa: A001 (the RFC's word)
    """The event ConnectionError: it was aborted, or lost."""

    reason: str
    """Why, in a sentence."""


Event = Expired | PathChange | Closed | ConnectionError


class Connection:
    """Messages to and from a peer; one of a group over one connection of QUIC.

    Made by `Preconnection.initiate`, a `Listener`, or `clone`. At the end of an ``async with``
    block it is closed.
    """

    def __init__(self, group: "Group", number: int) -> None:
        self._group = group
        self.number = number
        """Its number in the group; the same at both ends."""
        self._config = group.properties.flow(number)
        self._sending: live.SendFlow | None = None
        self._opening = asyncio.Lock()
        self._incoming: asyncio.Future[live.ReceiveFlow | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._is_closing = False
        self._has_final = False

    def attach(self, flow: live.ReceiveFlow | None) -> None:
        """The flow of the peer's messages; None where none will come."""
        if not self._incoming.done():
            self._incoming.set_result(flow)

    @property
    def has_incoming(self) -> bool:
        """Whether the peer's flow is here already."""
        return self._incoming.done()

    @property
    def state(self) -> ConnectionState:
        """The property connState."""
        if self._group.carrier.close_reason is not None:
            return ConnectionState.CLOSED
        return ConnectionState.CLOSING if self._is_closing else ConnectionState.ESTABLISHED

    @property
    def can_send(self) -> bool:
        """The property canSend."""
        is_one_way = self._group.properties.direction is Direction.UNIDIRECTIONAL_RECEIVE
        is_open = self.state is ConnectionState.ESTABLISHED and not self._has_final
        return is_open and not is_one_way

    @property
    def can_receive(self) -> bool:
        """The property canReceive."""
        is_one_way = self._group.properties.direction is Direction.UNIDIRECTIONAL_SEND
        return self.state is not ConnectionState.CLOSED and not is_one_way

    @property
    def remote(self) -> tuple[str, int]:
        """The peer's address and port: at first, or as the last `PathChange` said."""
        return self._group.remote

    @property
    def local(self) -> tuple[str, int]:
        """The address and port of this side."""
        return self._group.carrier.local

    def clone(self) -> "Connection":
        """Another connection of the same group (RFC 9622, section 7.4)."""
        if self.state is not ConnectionState.ESTABLISHED:
            raise AbortedError(f"a connection that is {self.state} cannot be cloned")
        return self._group.clone()

    def cloned(self) -> AsyncIterator["Connection"]:
        """The connections that the peer adds to this group (the event ConnectionReceived)."""
        return self._group.arrivals()

    async def send(self, data: Data, properties: MessageProperties | None = None) -> int:
        """Send a message; wait while the send queue is full (that is the event Sent).

        Returns its number this way, by which an `Expired` names it. Raises `SendError` where it
        cannot be sent, `NotProvidedError` for a property that is not there.
        """
        properties = properties or MessageProperties()
        if not self.can_send:
            raise SendError(f"this connection does not send: it is {self.state}, or one-way")
        arguments = properties.arguments(self._config)
        try:
            async with self._opening:
                if self._sending is None:
                    self._sending = await self._group.carrier.open_flow(self._config)
            number = await self._sending.send(data, **arguments)
        except (live.ClosedError, live.UnitError) as error:
            raise SendError(str(error)) from error
        if properties.final:
            self._has_final = True
            self._sending.finish()
        return number

    async def receive(self) -> Message | None:
        """Wait for the next message; None at the peer's last.

        Raises `AbortedError` where the connection ended before (the event ReceiveError).
        """
        flow = await asyncio.shield(self._incoming)
        if flow is None:
            if self._group.carrier.close_reason in (None, live.CloseReason.DONE):
                return None
            raise AbortedError(self._group.carrier.closed_because or "the connection has ended")
        try:
            unit = await flow.receive()
        except live.ClosedError as error:
            raise AbortedError(str(error)) from error
        if unit is None:
            return None
        age_s = None if unit.sent_s is None else max(unit.arrived_s - unit.sent_s, 0.0)
        return Message(unit.data, unit.number, age_s, unit.missing)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (message := await self.receive()) is not None:
            yield message

    async def events(self) -> AsyncIterator[Event]:
        """The events of this connection, the last one `Closed` or `ConnectionError`."""
        ending = asyncio.ensure_future(self._group.carrier.closed())
        remote, looks = self.remote, 0
        try:
            while True:
                is_over = ending.done()
                for number in self._sending.dropped() if self._sending else []:
                    yield Expired(number)
                if is_over:
                    break
                if looks % round(LOOK_AT_PATH_S / LOOK_S) == 0:
                    before, remote = remote, await self._group.find_remote()
                    if remote != before:
                        yield PathChange(remote)
                looks += 1
                await asyncio.wait([ending], timeout=LOOK_S)
        finally:
            ending.cancel()
        reason = self._group.carrier.close_reason
        is_orderly = reason is not None and reason.orderly
        yield Closed() if is_orderly else ConnectionError(ending.result())

    async def close(self) -> None:
        """End it in order: what was sent arrives, or expires, and the peer's end is waited for.

        Waits up to 5 s for the peer to close its side. The last connection of a group closes what
        carries it.
        """
        if self._is_closing:
            return
        self._is_closing = True
        with suppress(live.ClosedError):
            if self._sending is None and self._group.properties.direction is not (
                Direction.UNIDIRECTIONAL_RECEIVE
            ):
                self._sending = await self._group.carrier.open_flow(self._config)
            if self._sending is not None:
                self._sending.finish()
                await self._sending.settled()
            if self._group.properties.direction is not Direction.UNIDIRECTIONAL_SEND:
                await _within(self._end_of_peer())
        if self._group.ended(self):
            if self._group.properties.direction is Direction.UNIDIRECTIONAL_SEND:
                # A peer that only receives has no end but that of the group.
                await _within(self._group.carrier.closed())
            await self._group.carrier.close()
            await self._group.stop()

    async def _end_of_peer(self) -> None:
        """Wait until the peer sends no more; what it sends meanwhile is not received by anybody."""
        with suppress(AbortedError):
            while await self.receive() is not None:
                pass

    async def abort(self, reason: str = "aborted") -> None:
        """End the whole group at once (AbortGroup): what has not arrived is lost.

        The peer gets a `ConnectionError` with the reason.
        """
        self._is_closing = True
        await self._group.carrier.close(reason, ABORTED)
        await self._group.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await (self.close() if error is None else self.abort())


async def _within(work: Awaitable[object]) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(work, LINGER_S)
