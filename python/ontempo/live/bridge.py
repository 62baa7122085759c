"""Wakes coroutines of an event loop when native objects change.

A thread of a connection writes a byte to a socket that the loop watches (`ontempo._native.Waker`);
the loop then wakes the coroutines that wait for the objects that have changed. Such a thread never
takes the interpreter's lock, so that packets leave on time whatever Python does, and nothing hangs
when the interpreter ends.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ontempo._native import PendingResult, Waker

from .errors import EndpointError

T = TypeVar("T")


class Keyed(Protocol):
    """A native object, whose changes are reported under its key."""

    @property
    def key(self) -> int:
        """Its key."""


N = TypeVar("N", bound=Keyed)


class Bridge:
    """Between the native objects of one event loop and the coroutines that wait for them."""

    def __init__(self) -> None:
        self.waker = Waker()
        self.waitables: WeakValueDictionary[int, Waitable[Any]] = WeakValueDictionary()

    def dispatch(self) -> None:
        """Wake the coroutines that wait for objects that have changed."""
        for key in self.waker.take():
            if waitable := self.waitables.get(key):
                waitable.wake()


_BRIDGES: WeakKeyDictionary[asyncio.AbstractEventLoop, Bridge] = WeakKeyDictionary()


def bridge() -> Bridge:
    """The running loop's bridge."""
    loop = asyncio.get_running_loop()
    if (found := _BRIDGES.get(loop)) is None:
        found = _BRIDGES[loop] = Bridge()
        loop.add_reader(found.waker.fileno(), found.dispatch)
    return found


class Waitable(Generic[N]):
    """A native object whose changes can be awaited."""

    def __init__(self, native: N, bridge: Bridge) -> None:
        self._native = native
        self._bridge = bridge
        self._waiters: list[asyncio.Future[None]] = []
        bridge.waitables[native.key] = self

    def wake(self) -> None:
        """Wake all coroutines that wait for a change."""
        for future in self._waiters:
            if not future.done():
                future.set_result(None)

    async def changed(self) -> None:
        """Wait until the native object may have changed."""
        if _BRIDGES.get(asyncio.get_running_loop()) is not self._bridge:
            raise EndpointError("a connection belongs to the event loop in which it was made")
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        try:
            await future
        finally:
            self._waiters.remove(future)

    async def until(self, poll: Callable[[], T | None]) -> T:
        """Call `poll` at each change until it returns something other than ``None``."""
        while (found := poll()) is None:
            await self.changed()
        return found


async def result_of(bridge: Bridge, pending: PendingResult) -> Any:
    """Wait for the result of work on another thread.

    Cancelling the wait discards the result: a connection or flow in it is closed.
    """
    (result,) = await Waitable(pending, bridge).until(pending.take)
    return result
