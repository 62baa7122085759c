"""Connections."""

import asyncio
import socket
import time
from typing import Self

from ontempo._native import LiveConnection, Trust, begin

from .bridge import Bridge, Waitable, bridge, result_of
from .checks import Data, address, close_code, secret
from .contexts import Closing, Opening
from .errors import ClosedError, CloseReason, NotConnectedError
from .flow import ReceiveFlow, SendFlow
from .options import FlowConfig, Options
from .statistics import ConnectionStatistics

__all__ = ["Connection", "connect"]


class Connection(Waitable[LiveConnection], Closing):
    """A connection: ``async for flow in connection`` yields the flows that the peer opens.

    An ``async with`` block closes it at its end; a connection that is no longer referenced is
    closed, too. It belongs to the event loop in which it was made.
    """

    def __init__(self, native: LiveConnection, bridge: Bridge) -> None:
        super().__init__(native, bridge)
        # The connection's clock is the system's monotonic clock with another zero.
        self._zero_s = time.monotonic() - native.now_s()
        self._turn = asyncio.Lock()

    @property
    def remote(self) -> tuple[str, int]:
        """The peer's address and port when the connection began; `remote_now` has those now."""
        return self._native.remote

    @property
    def local(self) -> tuple[str, int]:
        """The address and port of this side."""
        return self._native.local

    @property
    def closed_because(self) -> str | None:
        """Why it was closed or lost, in a sentence; ``None`` while it is open."""
        return self._native.closed_because()

    @property
    def close_reason(self) -> CloseReason | None:
        """Why it is over, for programs; ``None`` while it is not."""
        name = self._native.close_reason()
        return None if name is None else CloseReason(name)

    @property
    def close_code(self) -> int | None:
        """The application error code that it was closed with, also of `CloseReason.OTHER`.

        ``None`` while it is open, and where it was lost.
        """
        return self._native.close_code()

    @property
    def said(self) -> str:
        """The peer's own words on closing; empty where it sent none.

        At most 200 bytes in UTF-8; control characters in it are then escaped as in JSON.
        """
        return self._native.said()

    def open_flow(self, config: FlowConfig | None = None) -> Opening[SendFlow]:
        """Open a flow to the peer: await it, or enter it by ``async with``.

        Waits where the peer's program has not received the finished flows before it to their end:
        the peer takes its `Options.receive_flows` at a time. Raises `ClosedError` once the
        connection is closed, and `EndpointError` where as many flows are open and not finished, so
        that waiting would not help.
        """
        return Opening(lambda: self._open_flow(config or FlowConfig()))

    async def _open_flow(self, config: FlowConfig) -> SendFlow:
        waker = self._bridge.waker
        opening = self._native.open_flow(config.order, config.reliability, config.label, waker)
        return SendFlow(await result_of(self._bridge, opening), self._bridge, config)

    async def accept_flow(self) -> ReceiveFlow:
        """Wait for a flow that the peer opens.

        Raises `ClosedError` once the connection is closed and no flow is left to accept.
        """
        async with self._turn:
            native = await self.until(lambda: self._native.try_accept(self._bridge.waker))
        return ReceiveFlow(native, self._bridge, self._zero_s)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceiveFlow:
        """The next flow; iteration ends where either side has closed the connection.

        Raises `ClosedError` where the connection was lost.
        """
        try:
            return await self.accept_flow()
        except ClosedError as error:
            if error.orderly:
                raise StopAsyncIteration from None
            raise

    async def remote_now(self) -> tuple[str, int] | None:
        """The peer's address and port now: it may have moved. ``None`` once it is closed."""
        if self.close_reason is not None:
            return None
        remote: tuple[str, int] | None = await result_of(
            self._bridge, self._native.remote_now(self._bridge.waker)
        )
        return remote

    async def statistics(self) -> ConnectionStatistics | None:
        """The connection's statistics now; ``None`` once it is closed."""
        if self.close_reason is not None:
            return None
        found = await result_of(self._bridge, self._native.statistics(self._bridge.waker))
        return None if found is None else ConnectionStatistics(**found)

    async def closed(self) -> str:
        """Wait until it is closed or lost, and return the reason as a sentence."""
        return await self.until(self._native.closed_because)

    async def close(self, reason: str = "", code: CloseReason | int = CloseReason.DONE) -> None:
        """Close it and send the peer the reason: a sentence, and a code for programs.

        `code` is a `CloseReason` with a code, or a number of the program's own from 256 to
        2**62 - 1, which the peer sees as `CloseReason.OTHER`. Raises `ValueError` for any other.

        Units that have not arrived, or that the peer's program has not received, are lost. To avoid
        that, wait for an answer of the peer, or for the peer to close (`closed`).
        """
        closing = self._native.close(reason, close_code(code), self._bridge.waker)
        self.wake()
        if closing is not None:
            await result_of(self._bridge, closing)


def connect(
    address: str,
    *,
    trust: Trust | str,
    token: str | Data = b"",
    name: str | None = None,
    options: Options | None = None,
) -> Opening[Connection]:
    """Connect to ``HOST:PORT``: await it, or enter it by ``async with``.

    `trust` verifies the peer: its certificate's fingerprint (64 hexadecimal digits), or a `Trust`.
    `token` is the secret that the peer asks for, at most 256 bytes; it is sent only to a verified
    peer. `name` is the name in the peer's certificate, for a `Trust` that checks names; by default
    the address's host. Where a host has several addresses, each is tried in turn.

    Raises `NotConnectedError` where there is no such host, no answer within
    `Options.handshake_timeout_s`, or the peer refuses the token or is not verified; `ValueError` or
    `TypeError` for a wrong argument.
    """
    return Opening(lambda: _connect(address, trust, secret(token), name, options or Options()))


async def _connect(
    at: str, trust: Trust | str, token: bytes, name: str | None, options: Options
) -> Connection:
    host, port = address(at, listening=False)
    trust = trusted(trust)
    name = name or host or ""
    failed: NotConnectedError | None = None
    for remote in await resolve(host or name, port):
        try:
            return await _connect_to(remote, name, trust, token, options)
        except NotConnectedError as error:
            failed = failed or error
    raise failed or NotConnectedError(f"{host}: this name has no address")


def trusted(trust: Trust | str) -> Trust:
    """A `Trust`, from itself or from a certificate's fingerprint."""
    if isinstance(trust, Trust):
        return trust
    if not isinstance(trust, str):
        raise TypeError(f"trust is {trust!r}: a fingerprint's text, or a Trust")
    return Trust.fingerprint(trust)


async def resolve(host: str, port: int) -> list[tuple[str, int]]:
    """The addresses of a host, in the system's order of preference.

    Raises `NotConnectedError` where there is no such host.
    """
    loop = asyncio.get_running_loop()
    try:
        # For one kind of socket only: otherwise each address comes several times.
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise NotConnectedError(f"{host}: no such name: {error}") from error
    return list(dict.fromkeys((str(address[0]), port) for *_, address in found))


async def _connect_to(
    remote: tuple[str, int], name: str, trust: Trust, token: bytes, options: Options
) -> Connection:
    made = bridge()
    native = await result_of(made, begin(remote, name, trust, token, options, made.waker))
    pending = Waitable(native, made)
    return Connection(await pending.until(lambda: native.take(made.waker)), made)
