"""Media between programs over QUIC, for asyncio: flows of units, each delivered as it says.

A `Listener` takes connections and `connect` begins one; a `Connection` opens a `SendFlow` and
accepts a `ReceiveFlow`. What order units are delivered in, and what becomes of those that are
lost, is each flow's choice (`FlowConfig`); each unit may have a deadline, a priority, and units
that it depends on::

    async with ontempo.connect("player.example:4433", trust=fingerprint, token="secret") as peer:
        async with peer.open_flow(FlowConfig(order=DeliveryOrder.ARRIVAL)) as flow:
            tables = await flow.send(header)
            for piece in pieces:
                await flow.send(piece, depends_on=[tables])

    async with ontempo.listen(":4433", identity=identity, token="secret") as door:
        async for connection in door:
            async for flow in connection:
                async for delivery in flow:
                    ...  # a Unit, or word of one that was Dropped

Packets are carried by threads of the compiled core, which never wait for Python. What a program
does not take keeps the peer from sending more, and who sends faster than the network waits.
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
from .flow import Dropped, ReceiveFlow, SendFlow, Unit
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
    "Dropped",
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
