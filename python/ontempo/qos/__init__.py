"""Sockets that say what quality they need, for asyncio (qosockets, section II).

Each end says by `QosOptions` what it asks of what it sends and of what it receives; when a
connection is there, both have agreed, or both know why not. From then on what is delivered is
measured, told to both ends and held against what was agreed::

    asked = qos.Specification(min_rate=60, max_rate=80, size=1280, max_delay_s=0.1)
    async with qos.connect("host.example:7000", qos.QosOptions(send=asked)) as connection:
        await connection.send(frame)
        async for event in connection.events():
            print(event)    # a Violation: max_delay is not kept: 100 ms agreed, 143 ms delivered
"""

from ontempo.live.listener import Refused

from .connection import Connection, Delivery, Message, connect
from .errors import DisagreementError, SpecificationError
from .events import Changed, Events, Reservation, Step, Violation
from .listener import Listener, listen
from .specification import Ladder, QosOptions, Specification, read

__all__ = [
    "Changed",
    "Connection",
    "Delivery",
    "DisagreementError",
    "Events",
    "Ladder",
    "Listener",
    "Message",
    "QosOptions",
    "Refused",
    "Reservation",
    "Specification",
    "SpecificationError",
    "Step",
    "Violation",
    "connect",
    "listen",
    "read",
]
