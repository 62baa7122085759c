"""QoS sockets for asyncio, over TCP, UDP or QUIC (qosockets, section II).

A QoS socket negotiates a specification with the other end, reserves with RSVP where that is asked
for, monitors what is delivered and reports violations. Both ends in one program::

    import asyncio
    from ontempo import qos

    video = qos.Specification(max_rate=80, size=1280, max_delay_s=0.1)

    async def receive(listener):
        async with await listener.accept() as connection:
            async for message in connection:           # ends when the sender closes
                print(message.sequence, len(message.data), "bytes")

    async def main():
        async with qos.listen("127.0.0.1:0") as listener:
            receiving = asyncio.create_task(receive(listener))
            address = f"127.0.0.1:{listener.local[1]}"
            async with qos.connect(address, qos.QosOptions(send=video)) as connection:
                print("agreed:", connection.agreed("sending").max_rate, "messages/s")
                await connection.send(bytes(1280))
            await receiving

    asyncio.run(main())

`Connection.events` yields violations, steps of the ladder, renegotiations and changes of the
reservation. Rates are messages per second, spans seconds, sizes bytes, losses per cent.

`Identity`, `Trust`, `Refused` and the exceptions are those of `ontempo.live`.
"""

from ontempo._native import Identity, Trust
from ontempo.live.errors import (
    BindError,
    ClosedError,
    EndpointError,
    IdentityError,
    NotConnectedError,
    UnitError,
)
from ontempo.live.listener import Refused

from .connection import Connection, Delivery, Message, connect
from .errors import DisagreementError, SpecificationError
from .events import (
    Changed,
    ConnectionLost,
    ConnectionRecovered,
    ConnectionUnrecoverable,
    Events,
    Lasting,
    Reservation,
    Step,
    Violation,
)
from .listener import Listener, listen
from .specification import Ladder, QosOptions, Specification, read

__all__ = [
    "BindError",
    "Changed",
    "ClosedError",
    "Connection",
    "ConnectionLost",
    "ConnectionRecovered",
    "ConnectionUnrecoverable",
    "Delivery",
    "DisagreementError",
    "EndpointError",
    "Events",
    "Identity",
    "IdentityError",
    "Ladder",
    "Lasting",
    "Listener",
    "Message",
    "NotConnectedError",
    "QosOptions",
    "Refused",
    "Reservation",
    "Specification",
    "SpecificationError",
    "Step",
    "Trust",
    "UnitError",
    "Violation",
    "connect",
    "listen",
    "read",
]
