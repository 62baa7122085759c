"""Listeners."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from ontempo._native import Identity, LiveConnection, LiveListener, PendingResult, Waker, bind

from .bridge import Bridge, Keyed, Waitable, bridge, result_of
from .checks import Data, address, admitted
from .connection import Connection
from .contexts import Closing, Opening
from .errors import ClosedError, CloseReason
from .options import Options

__all__ = ["BaseListener", "Listener", "Refused", "listen"]

C = TypeVar("C")
L_co = TypeVar("L_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Refused:
    """A client that was refused: wrong token, no answer, or it did not verify this side."""

    remote: tuple[str, int] | None
    """Its address and port; ``None`` where they are not known any more."""
    reason: str
    """Why, as a sentence."""
    close_reason: CloseReason | None = None
    """Why, for programs; ``None`` where it was not the transport that refused."""


class NativeListener(Keyed, Protocol[L_co]):
    """A listener of the compiled core."""

    @property
    def local(self) -> tuple[str, int]:
        """Its address and port."""

    def try_accept(
        self, waker: Waker
    ) -> L_co | tuple[tuple[str, int] | None, str, str | None] | None:
        """The next connection, or a refused one's address and the reason; ``None``: none yet."""

    def close(self, waker: Waker) -> PendingResult | None:
        """Stop accepting; ``None`` where it is closed already."""


class BaseListener(Waitable[NativeListener[L_co]], Closing, Generic[L_co, C]):
    """A listener, whatever kind of connection it accepts."""

    def __init__(
        self, native: NativeListener[L_co], bridge: Bridge, connection: Callable[[L_co, Bridge], C]
    ) -> None:
        super().__init__(native, bridge)
        self._connection = connection
        self._turn = asyncio.Lock()

    @property
    def local(self) -> tuple[str, int]:
        """The address and port at which it listens."""
        return self._native.local

    async def arrival(self) -> C | Refused:
        """Wait for the next connection or refused client.

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
        """Wait for the next connection; refused clients are skipped.

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
        """Stop accepting connections."""
        closing = self._native.close(self._bridge.waker)
        self.wake()
        if closing is not None:
            await result_of(self._bridge, closing)


class Listener(BaseListener[LiveConnection, Connection]):
    """Accepts connections at a UDP port: ``async for connection in listener``.

    An ``async with`` block closes it at its end; its connections stay open.
    """

    def __init__(
        self, native: LiveListener, bridge: Bridge, identity: Identity, token: bytes
    ) -> None:
        super().__init__(native, bridge, Connection)
        self._identity = identity
        self._token = token

    @property
    def fingerprint(self) -> str:
        """Its certificate's fingerprint, by which clients can verify it."""
        return self._identity.fingerprint

    @property
    def token(self) -> bytes:
        """The secret that clients must send; empty with ``anyone=True``."""
        return self._token


def listen(
    address: str = ":4433",
    *,
    identity: Identity | None = None,
    token: str | Data | None = None,
    anyone: bool = False,
    options: Options | None = None,
) -> Opening[Listener]:
    """Listen at ``HOST:PORT``, or at every address (``:PORT``); port 0 chooses a free one.

    Await it, or enter it by ``async with``. `identity` is this side's certificate and key; by
    default a new self-signed certificate. `token` is the secret that clients must send, 1 to 256
    bytes; by default a new one of 128 random bits, which `Listener.token` returns. With `anyone`
    every client may connect, without a token.

    Raises `BindError` where the socket cannot be bound; `ValueError` or `TypeError` for a wrong
    argument.
    """
    return Opening(
        lambda: _listen(address, identity, admitted(token, anyone), options or Options())
    )


async def _listen(at: str, identity: Identity | None, token: bytes, options: Options) -> Listener:
    if identity is None:
        identity = Identity.self_signed()
    made = bridge()
    place = address(at, listening=True)
    native = await result_of(made, bind(place, identity, token, options, made.waker))
    return Listener(native, made, identity, token)
