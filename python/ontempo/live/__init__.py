"""Carries media between programs over QUIC, for asyncio: connections, flows, units.

`listen` and `connect` make a `Connection`; it opens a `SendFlow` and accepts a `ReceiveFlow`. Each
flow has an order of delivery and a reliability (`FlowConfig`); each unit has a priority, may depend
on other units and, where the flow's reliability drops late units, may have a deadline. Both ends in
one program::

    import asyncio
    from ontempo import live

    async def play(listener):
        async with await listener.accept() as connection:
            flow = await connection.accept_flow()
            async for unit in flow:                    # ends when the sender finishes the flow
                print(unit.number, unit.data)
            print("dropped at their deadline:", flow.dropped())
            await connection.close("received")

    async def main():
        async with live.listen("127.0.0.1:0") as listener:
            playing = asyncio.create_task(play(listener))
            address = f"127.0.0.1:{listener.local[1]}"
            known = {"trust": listener.fingerprint, "token": listener.token}
            async with live.connect(address, **known) as connection:
                config = live.FlowConfig(reliability=live.Reliability.DEADLINE)
                async with connection.open_flow(config) as flow:
                    keyframe = await flow.send(b"keyframe", lifetime_s=5)
                    await flow.send(b"frame", lifetime_s=5, depends_on=[keyframe])
                await connection.closed()
            await playing

    asyncio.run(main())

Times are seconds of `time.monotonic`, the event loop's clock; spans are seconds; sizes are bytes.
Threads of the compiled core carry the packets and never wait for Python. A receiver that takes no
units stops its sender: `SendFlow.send` then waits (backpressure).

Failures are `EndpointError` and its subclasses; wrong arguments are `ValueError` or `TypeError`.
"""

from ontempo._native import Identity, Trust

from .connection import Connection, connect
from .errors import (
    BindError,
    ClosedError,
    CloseReason,
    EndpointError,
    IdentityError,
    NotConnectedError,
    UnitError,
)
from .flow import ReceiveFlow, SendFlow, Unit
from .listener import Listener, Refused, listen
from .options import DeliveryOrder, FlowConfig, Options, Reliability
from .statistics import (
    ConnectionStatistics,
    DelayStatistics,
    ReceiveStatistics,
    SendStatistics,
)

__all__ = [
    "BindError",
    "CloseReason",
    "ClosedError",
    "Connection",
    "ConnectionStatistics",
    "DelayStatistics",
    "DeliveryOrder",
    "EndpointError",
    "FlowConfig",
    "Identity",
    "IdentityError",
    "Listener",
    "NotConnectedError",
    "Options",
    "ReceiveFlow",
    "ReceiveStatistics",
    "Refused",
    "Reliability",
    "SendFlow",
    "SendStatistics",
    "Trust",
    "Unit",
    "UnitError",
    "connect",
    "listen",
]
