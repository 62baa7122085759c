"""A group of connections: the flows of one connection of QUIC, paired by their numbers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from ontempo import live

from .connection import Connection
from .properties import LABEL, TransportProperties

MAX_CONNECTIONS = 256
"""Connections of a group that its peer may begin, at most; more end the group."""


class Group:
    """What the connections of a group share.

    Connection 0 is there from the beginning at both ends; those that the side which initiated
    begins have even numbers, those of the other side odd ones. A flow's label names its connection.
    """

    def __init__(
        self, carrier: live.Connection, properties: TransportProperties, *, initiates: bool
    ) -> None:
        self.carrier = carrier
        self.properties = properties
        self.remote = carrier.remote
        """The peer's address and port, as last found."""
        self.connections: dict[int, Connection] = {}
        self.received: asyncio.Queue[Connection | None] = asyncio.Queue()
        self._parity = 0 if initiates else 1
        self._next = 2 if initiates else 1
        self.first = self._add(0)
        self._accepting = asyncio.create_task(self._accept())

    def clone(self) -> Connection:
        """Begin another connection of the group."""
        number, self._next = self._next, self._next + 2
        return self._add(number)

    def _add(self, number: int) -> Connection:
        connection = Connection(self, number)
        self.connections[number] = connection
        return connection

    async def _accept(self) -> None:
        """Give each flow of the peer to its connection, until the carrier ends."""
        with suppress(live.ClosedError):
            while True:
                flow = await self.carrier.accept_flow()
                label, is_expected = flow.config.label, self._sort(flow)
                # One that nobody has is released; the variable would keep it.
                del flow
                if not is_expected:
                    code = live.CloseReason.PROTOCOL_VIOLATION
                    await self.carrier.close(f"no flow {label!r} is expected", code)
                    break
        self.received.put_nowait(None)
        for connection in self.connections.values():
            connection.attach(None)

    def _sort(self, flow: live.ReceiveFlow) -> bool:
        """Give a flow to its connection; False where it has none."""
        number = _number(flow.config.label)
        known = None if number is None else self.connections.get(number)
        is_twice = known is not None and known.has_incoming
        if number is None or is_twice:
            return False
        if known is None:
            if self._was_ours(number):
                # It has ended here: the peer did not know when it began the flow.
                return True
            if not self._may_begin(number):
                return False
        connection = known or self._add(number)
        connection.attach(flow)
        if known is None:
            self.received.put_nowait(connection)
        return True

    def _was_ours(self, number: int) -> bool:
        """Whether it is the first or one that this side has begun."""
        return number == 0 or (number % 2 == self._parity and number < self._next)

    def _may_begin(self, number: int) -> bool:
        """Whether this is a number of the peer's, and there are not too many."""
        return number % 2 != self._parity and len(self.connections) < MAX_CONNECTIONS

    async def arrivals(self) -> AsyncIterator[Connection]:
        """The connections that the peer begins (the event ConnectionReceived)."""
        while (connection := await self.received.get()) is not None:
            yield connection

    async def find_remote(self) -> tuple[str, int]:
        """The peer's address and port now, or the last ones."""
        with suppress(live.ClosedError):
            self.remote = await self.carrier.remote_now() or self.remote
        return self.remote

    def ended(self, connection: Connection) -> bool:
        """Note that one has ended; whether it was the last."""
        self.connections.pop(connection.number, None)
        # Who still waits for a message waits for a flow that would be released now.
        connection.attach(None)
        return not self.connections

    async def stop(self) -> None:
        """Wait for the end of the task that accepts flows."""
        self._accepting.cancel()
        with suppress(asyncio.CancelledError):
            await self._accepting


def _number(label: str) -> int | None:
    """The number of a flow's connection; None where the label is not one of ours."""
    word, _, digits = label.partition(" ")
    is_ours = word == LABEL and digits.isascii() and digits.isdecimal()
    return int(digits) if is_ours else None
