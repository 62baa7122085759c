"""Taking connections."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from ontempo._native import Answer, Identity, LiveConnection, LiveListener, Waker, bind

from .bridge import Bridge, Keyed, Watched, answered, bridge
from .checks import Data, address, secret
from .connection import Connection
from .contexts import Closing, Opening
from .errors import ClosedError, CloseReason
from .options import Options

__all__ = ["Door", "Listener", "Refused", "listen"]

C = TypeVar("C")
L_co = TypeVar("L_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Refused:
    """One with whom there is no connection: a wrong token, no answer, or it did not trust us."""

    remote: tuple[str, int] | None
    """Its address and port, where these are still known."""
    reason: str
    """Why, in words."""
    close_reason: CloseReason | None = None
    """Why, for programs; ``None`` where it was not the transport that refused."""


class NativeDoor(Keyed, Protocol[L_co]):
    """What the compiled core listens by."""

    @property
    def local(self) -> tuple[str, int]:
        """Its address and port."""

    def try_accept(
        self, waker: Waker
    ) -> L_co | tuple[tuple[str, int] | None, str, str | None] | None:
        """Who came next: one to talk to, or one who was refused; ``None`` where nobody did."""

    def close(self, waker: Waker) -> Answer | None:
        """Take no more; ``None`` where that is so already."""


class Door(Watched[NativeDoor[L_co]], Closing, Generic[L_co, C]):
    """Takes those who come, each as a connection of its kind, or refuses them."""

    def __init__(
        self, native: NativeDoor[L_co], bridge: Bridge, connection: Callable[[L_co, Bridge], C]
    ) -> None:
        super().__init__(native, bridge)
        self._connection = connection
        self._turn = asyncio.Lock()

    @property
    def local(self) -> tuple[str, int]:
        """Where it listens: an address and a port."""
        return self._native.local

    async def arrival(self) -> C | Refused:
        """Wait for the next who comes, be it one who is refused.

        Raises `ClosedError` once the listener is closed.
        """
        async with self._turn:
            return await self.until(self._next)

    def _next(self) -> C | Refused | None:
        found = self._native.try_accept(self._bridge.waker)
        if isinstance(found, tuple):
            remote, reason, name = found
            return Refused(remote, reason, None if name is None else CloseReason(name))
        return None if found is None else self._connection(found, self._bridge)

    async def accept(self) -> C:
        """Wait for the next connection that can be used.

        Raises `ClosedError` once the listener is closed.
        """
        while isinstance(found := await self.arrival(), Refused):
            pass
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> C:
        try:
            return await self.accept()
        except ClosedError:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """Take no more connections."""
        closing = self._native.close(self._bridge.waker)
        self.tell()
        if closing is not None:
            await answered(self._bridge, closing)


class Listener(Door[LiveConnection, Connection]):
    """Takes connections at a UDP port: ``async for`` yields those that can be used.

    As a context (``async with``) it is closed at the end of the block. Connections outlive it.
    """

    def __init__(self, native: LiveListener, bridge: Bridge, identity: Identity) -> None:
        super().__init__(native, bridge, Connection)
        self._identity = identity

    @property
    def fingerprint(self) -> str:
        """Its certificate's fingerprint, by which a client can know it."""
        return self._identity.fingerprint


def listen(
    address: str = ":4433",
    *,
    identity: Identity | None = None,
    token: str | Data = b"",
    options: Options | None = None,
) -> Opening[Listener]:
    """Listen at ``HOST:PORT``, or at every address (``:PORT``); port 0 is any free one.

    To be awaited, or entered by ``async with``. `identity` is who this side is; where not given,
    a certificate made on the spot. `token` is what clients must know, at most 256 bytes; none
    means that everybody may connect.

    Raises `BindError` where there is no such socket.
    """
    return Opening(lambda: _listen(address, identity, secret(token), options or Options()))


async def _listen(at: str, identity: Identity | None, token: bytes, options: Options) -> Listener:
    if identity is None:
        identity = Identity.self_made()
    made = bridge()
    place = address(at, listening=True)
    native = await answered(made, bind(place, identity, token, options, made.waker))
    return Listener(native, made, identity)
