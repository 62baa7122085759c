"""Flows of units."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ontempo._native import LiveReceiveFlow, LiveSendFlow

from .bridge import Bridge, Waitable, result_of
from .checks import Data, numbers, octets, seconds, whole
from .options import DeliveryOrder, FlowConfig, Reliability
from .statistics import DelayStatistics, ReceiveStatistics, SendStatistics

__all__ = ["ReceiveFlow", "SendFlow", "Unit"]

_MAX_PRIORITY = 255


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit that has arrived."""

    number: int
    """Its number within the flow, counted from 0."""
    data: bytes
    """Its data."""
    sent_s: float | None
    """When its sender sent it, in seconds of this side's `time.monotonic`; ``None`` until the
    clocks of both sides have been compared."""
    arrived_s: float
    """When it arrived whole, in seconds of `time.monotonic`, the event loop's clock."""
    lifetime_s: float | None
    """Its deadline, in seconds after `sent_s`; ``None`` where it has none."""
    priority: int
    """Its priority, 0 to 255; the larger is the more important."""
    missing: tuple[int, ...]
    """Numbers of the units that it depends on and that were dropped: it may be of no use."""


class SendFlow(Waitable[LiveSendFlow]):
    """A flow that this side sends.

    At the end of an ``async with`` block it is finished and, unless the block raised, awaited until
    it is settled. A flow that is no longer referenced is finished.
    """

    def __init__(self, native: LiveSendFlow, bridge: Bridge, config: FlowConfig) -> None:
        super().__init__(native, bridge)
        self._config = config
        self._turn = asyncio.Lock()

    @property
    def config(self) -> FlowConfig:
        """Its order of delivery, reliability and label."""
        return self._config

    async def send(
        self,
        data: Data,
        *,
        lifetime_s: float | None = None,
        priority: int = 0,
        depends_on: Sequence[int] = (),
    ) -> int:
        """Send a unit and return its number, counted from 0; wait while the send queue is full.

        `lifetime_s` is the unit's deadline, in seconds from now: where it has not arrived by then
        it is dropped. It is an error where the flow's reliability is ``full``, which drops no unit.
        `priority` is 0 to 255; units of a larger priority leave first, except in order.
        `depends_on` are numbers of earlier units of this flow without which this one is of no use,
        at most 32.

        A call that is cancelled while it waits has sent nothing. Concurrent calls are served in
        turn.

        Raises `UnitError` where the unit is longer than the peer accepts, has a deadline that the
        flow's reliability ignores or wrong dependencies, or the flow is finished; `ClosedError`
        once the connection is closed; `ValueError` or `TypeError` for a wrong argument.
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
        """The same without waiting; ``None`` while the send queue is full."""
        unit = _unit(data, lifetime_s, priority, depends_on)
        return None if self._turn.locked() else self._native.try_send(*unit)

    def dropped(self) -> list[int]:
        """Numbers of the units dropped at their deadline since the last call.

        The peer does not receive them. At most 4,096 are remembered, the latest.
        """
        return self._native.dropped()

    def finish(self) -> None:
        """End the flow after the units sent so far."""
        self._native.finish()

    async def settled(self) -> SendStatistics:
        """Wait until every unit of a finished flow has arrived at the peer or been dropped.

        Raises `ClosedError` where the connection ended before.
        """
        return SendStatistics(**await self.until(self._native.settled))

    async def statistics(self) -> SendStatistics | None:
        """The flow's statistics now; the last ones once its connection is closed."""
        found = await result_of(self._bridge, self._native.statistics(self._bridge.waker))
        return None if found is None else SendStatistics(**found)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        self.finish()
        if error is None:
            await self.settled()


class ReceiveFlow(Waitable[LiveReceiveFlow]):
    """A flow that the peer sends: ``async for unit in flow`` yields its units.

    Units that the sender dropped are not yielded; `dropped` lists them. Units that the program does
    not take stop the sender at the limits of `Options`.
    """

    def __init__(self, native: LiveReceiveFlow, bridge: Bridge, zero_s: float) -> None:
        super().__init__(native, bridge)
        self._zero_s = zero_s
        self._turn = asyncio.Lock()
        order, reliability, label = native.config()
        self._config = FlowConfig(DeliveryOrder(order), Reliability(reliability), label)

    @property
    def config(self) -> FlowConfig:
        """Its order of delivery, reliability and label, as the peer opened it."""
        return self._config

    async def receive(self) -> Unit | None:
        """Wait for the next unit; ``None`` at the end of the flow.

        A call that is cancelled while it waits has taken no unit. Concurrent calls are served in
        turn.

        Raises `ClosedError` where the connection ended before the flow.
        """
        try:
            return await anext(self)
        except StopAsyncIteration:
            return None

    def dropped(self) -> list[int]:
        """Numbers of the units that were dropped and are not delivered, since the last call.

        Of the units before those received so far in the flow's order of delivery; after the end of
        the flow, of all. At most 4,096 are remembered, the latest; `ReceiveStatistics.dropped`
        counts all.
        """
        return self._native.dropped()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Unit:
        async with self._turn:
            unit = await self.until(self._native.try_receive)
        number, data, sent_s, arrived_s, lifetime_s, priority, missing = unit
        zero_s = self._zero_s
        sent_s = None if sent_s is None else sent_s + zero_s
        return Unit(number, data, sent_s, arrived_s + zero_s, lifetime_s, priority, tuple(missing))

    async def statistics(self) -> ReceiveStatistics | None:
        """The flow's statistics now; ``None`` once its connection is closed."""
        found = await result_of(self._bridge, self._native.statistics(self._bridge.waker))
        if found is None:
            return None
        delay = DelayStatistics(**found.pop("delay"))
        return ReceiveStatistics(**found, delay=delay)


def _unit(
    data: Data, lifetime_s: float | None, priority: int, depends_on: Sequence[int]
) -> tuple[bytes, float | None, int, list[int]]:
    """The arguments of the native `try_send`, checked."""
    if lifetime_s is not None:
        lifetime_s = seconds("lifetime_s", lifetime_s, above=False)
    priority = whole("priority", priority, 0, _MAX_PRIORITY)
    return octets(data), lifetime_s, priority, numbers("depends_on", depends_on)
