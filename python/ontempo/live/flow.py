"""Flows of units."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from ontempo._native import LiveReceiveFlow, LiveSendFlow

from .bridge import Bridge, Watched, answered
from .checks import Data, numbers, octets, seconds, whole
from .options import DeliveryOrder, FlowConfig, Reliability
from .statistics import DelayStatistics, ReceiveStatistics, SendStatistics

__all__ = ["Dropped", "ReceiveFlow", "SendFlow", "Unit"]

_MAX_PRIORITY = 255

_Arrived: TypeAlias = tuple[int, bytes, float | None, float, float | None, int, list[int]]
"""The fields of a `Unit`; times by the connection's clock."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit that has arrived."""

    number: int
    """Its number within the flow, counted from 0."""
    data: bytes
    """Its data."""
    sent_s: float | None
    """When it was handed over for sending, in seconds of this side's `time.monotonic`; ``None``
    until the clocks of both sides have been compared."""
    arrived_s: float
    """When it arrived whole, in seconds of `time.monotonic`, the event loop's clock."""
    lifetime_s: float | None
    """How many seconds after its sending it was wanted at the latest."""
    priority: int
    """Its priority, 0 to 255."""
    missing: tuple[int, ...]
    """Units that it depends on and that will never come: it may be of no use."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Word of a unit that will not come, since it was dropped."""

    number: int
    """Its number within the flow."""


class SendFlow(Watched[LiveSendFlow]):
    """A flow that this side sends.

    As a context (``async with``) it is finished at the end of the block and, where the block did
    not fail, waited for until it has settled. One that nobody has any more is finished.
    """

    def __init__(self, native: LiveSendFlow, bridge: Bridge, config: FlowConfig) -> None:
        super().__init__(native, bridge)
        self._config = config
        self._turn = asyncio.Lock()

    @property
    def config(self) -> FlowConfig:
        """How it is delivered, and what it carries."""
        return self._config

    async def send(
        self,
        data: Data,
        *,
        lifetime_s: float | None = None,
        priority: int = 0,
        depends_on: Sequence[int] = (),
    ) -> int:
        """Send a unit and answer its number, counted from 0; wait while as much waits as may.

        `lifetime_s` says how many seconds from now on it is wanted; it counts where the flow is
        not fully reliable. More important units have a larger `priority`, 0 to 255. `depends_on`
        are units of this flow that it is of no use without: numbers that sending answered, at
        most 32.

        Who is cancelled while waiting has sent nothing. Several who wait are served in turn.

        Raises `UnitError` for what is no unit, and `ClosedError` once the connection is over.
        """
        unit = _unit(data, lifetime_s, priority, depends_on)
        async with self._turn:
            return await self.until(lambda: self._native.try_send(*unit))

    def try_send(
        self,
        data: Data,
        *,
        lifetime_s: float | None = None,
        priority: int = 0,
        depends_on: Sequence[int] = (),
    ) -> int | None:
        """The same without waiting; ``None`` where as much waits as may."""
        unit = _unit(data, lifetime_s, priority, depends_on)
        return None if self._turn.locked() else self._native.try_send(*unit)

    def dropped(self) -> list[int]:
        """Numbers of units that were dropped at their deadline since this was last asked.

        The peer does not have them and will not. The oldest of more than 4,096 are forgotten.
        """
        return self._native.dropped()

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        self._native.finish()

    async def settled(self) -> SendStatistics:
        """Wait until all of a finished flow has arrived at the peer's transport or been dropped.

        Raises `ClosedError` where the connection ended before.
        """
        return SendStatistics(**await self.until(self._native.settled))

    async def statistics(self) -> SendStatistics | None:
        """The flow as it stands; ``None`` once its connection is over."""
        found = await answered(self._bridge, self._native.statistics(self._bridge.waker))
        return None if found is None else SendStatistics(**found)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        self.finish()
        if error is None:
            await self.settled()


class ReceiveFlow(Watched[LiveReceiveFlow]):
    """A flow that the peer sends: ``async for`` yields its units as they are delivered.

    What is not taken keeps the peer from sending more than both sides' limits.
    """

    def __init__(self, native: LiveReceiveFlow, bridge: Bridge, zero_s: float) -> None:
        super().__init__(native, bridge)
        self._zero_s = zero_s
        self._turn = asyncio.Lock()
        order, reliability, label = native.config()
        self._config = FlowConfig(DeliveryOrder(order), Reliability(reliability), label)

    @property
    def config(self) -> FlowConfig:
        """How it is delivered, and what the peer says that it carries."""
        return self._config

    async def receive(self) -> Unit | Dropped | None:
        """Wait for the next unit, or word of one that will not come; ``None``: the flow is over.

        Who is cancelled while waiting has taken nothing. Several who wait are served in turn.

        Raises `ClosedError` where the connection ended before the flow.
        """
        try:
            return await anext(self)
        except StopAsyncIteration:
            return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Unit | Dropped:
        async with self._turn:
            delivered: _Arrived | int = await self.until(self._native.try_receive)
        if isinstance(delivered, int):
            return Dropped(delivered)
        number, data, sent_s, arrived_s, lifetime_s, priority, missing = delivered
        zero_s = self._zero_s
        sent_s = None if sent_s is None else sent_s + zero_s
        return Unit(number, data, sent_s, arrived_s + zero_s, lifetime_s, priority, tuple(missing))

    async def statistics(self) -> ReceiveStatistics | None:
        """The flow as it stands; ``None`` once its connection is over."""
        found = await answered(self._bridge, self._native.statistics(self._bridge.waker))
        if found is None:
            return None
        delay = DelayStatistics(**found.pop("delay"))
        return ReceiveStatistics(**found, delay=delay)


def _unit(
    data: Data, lifetime_s: float | None, priority: int, depends_on: Sequence[int]
) -> tuple[bytes, float | None, int, list[int]]:
    """A unit as it is handed over."""
    if lifetime_s is not None:
        lifetime_s = seconds("lifetime_s", lifetime_s, above=False)
    priority = whole("priority", priority, 0, _MAX_PRIORITY)
    return octets(data), lifetime_s, priority, numbers("depends_on", depends_on)
