"""Taking connections."""

import asyncio
import socket
from types import TracebackType
from typing import Self

from ontempo._native import QosDoor, QosLink, qos_bind
from ontempo.live.bridge import Bridge, Opening, Watched, answered, bridge
from ontempo.live.checks import address
from ontempo.live.connection import resolve
from ontempo.live.errors import ClosedError
from ontempo.live.listener import Refused

from .connection import Carrier, Connection, carrier_name
from .specification import QosOptions

__all__ = ["Listener", "listen"]


class Listener(Watched):
    """Takes connections: ``async for`` yields those on which there is an agreement.

    As a context (``async with``) it is closed at the end of the block. Connections outlive it.
    """

    def __init__(self, native: QosDoor, bridge: Bridge) -> None:
        super().__init__(native, bridge)
        self._native = native
        self._turn = asyncio.Lock()

    @property
    def local(self) -> tuple[str, int]:
        """Where it listens: an address and a port."""
        return self._native.local

    async def arrival(self) -> Connection | Refused:
        """Wait for the next who comes, be it one with whom there is no agreement.

        Raises `ClosedError` once the listener is closed.
        """
        async with self._turn:
            return await self.until(self._next)

    def _next(self) -> Connection | Refused | None:
        found = self._native.try_accept(self._bridge.waker)
        if isinstance(found, QosLink):
            return Connection(found, self._bridge)
        return None if found is None else Refused(*found)

    async def accept(self) -> Connection:
        """Wait for the next connection on which there is an agreement.

        Raises `ClosedError` once the listener is closed.
        """
        while not isinstance(found := await self.arrival(), Connection):
            pass
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Connection:
        try:
            return await self.accept()
        except ClosedError:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """Take no more connections."""
        closing = self._native.close(self._bridge.waker)
        self.tell()
        await answered(self._bridge, closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def listen(
    address: str, options: QosOptions | None = None, *, carrier: Carrier = "tcp"
) -> Opening[Listener]:
    """Listen at ``HOST:PORT``, or at every address of IPv4 (``:PORT``); port 0 is any free one.

    To be awaited, or entered by ``async with``. `options` are asked of every connection there.

    Raises `BindError` where there is no such socket.
    """
    return Opening(lambda: _listen(address, options or QosOptions(), carrier_name(carrier)))


async def _listen(at: str, options: QosOptions, carrier: Carrier) -> Listener:
    host, port = address(at, listening=True)
    made = bridge()
    if host is not None:
        kind = socket.SOCK_STREAM if carrier == "tcp" else socket.SOCK_DGRAM
        ((host, _), *_) = await resolve(host, port, kind)
    native = await answered(made, qos_bind(carrier, (host, port), options, made.waker))
    return Listener(native, made)
