"""The event loop is told by the threads of connections, and never waits for them.

A thread writes a byte to a socket that the loop watches (`ontempo._native.Waker`); the loop then
wakes who waits for the objects that have changed. No such thread takes the interpreter's lock, so
that packets leave on time whatever Python does, and nothing hangs when the interpreter ends.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ontempo._native import Answer, Waker

from .errors import EndpointError

T = TypeVar("T")


class Keyed(Protocol):
    """A native object, whose changes are told under its key."""

    @property
    def key(self) -> int:
        """Its key."""


N = TypeVar("N", bound=Keyed)


class Bridge:
    """What one event loop is told."""

    def __init__(self) -> None:
        self.waker = Waker()
        self.watched: WeakValueDictionary[int, Watched[Any]] = WeakValueDictionary()

    def tell(self) -> None:
        """Wake who waits for what has changed."""
        for key in self.waker.take():
            if watched := self.watched.get(key):
                watched.tell()


_BRIDGES: WeakKeyDictionary[asyncio.AbstractEventLoop, Bridge] = WeakKeyDictionary()


def bridge() -> Bridge:
    """The running loop's bridge."""
    loop = asyncio.get_running_loop()
    if (found := _BRIDGES.get(loop)) is None:
        found = _BRIDGES[loop] = Bridge()
        loop.add_reader(found.waker.fileno(), found.tell)
    return found


class Watched(Generic[N]):
    """A native object whose changes can be waited for."""

    def __init__(self, native: N, bridge: Bridge) -> None:
        self._native = native
        self._bridge = bridge
        self._waiting: list[asyncio.Future[None]] = []
        bridge.watched[native.key] = self

    def tell(self) -> None:
        """Wake all who wait."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def changed(self) -> None:
        """Wait until it may be worth to ask again."""
        if _BRIDGES.get(asyncio.get_running_loop()) is not self._bridge:
            raise EndpointError("a connection belongs to the event loop in which it was made")
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            self._waiting.remove(future)

    async def until(self, ask: Callable[[], T | None]) -> T:
        """Wait until `ask` answers something."""
        while (found := ask()) is None:
            await self.changed()
        return found


async def answered(bridge: Bridge, answer: Answer) -> Any:
    """What a thread works out.

    Who is cancelled meanwhile does not get it: connections and flows are then closed.
    """
    (result,) = await Watched(answer, bridge).until(answer.take)
    return result
