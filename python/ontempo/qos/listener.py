"""Taking connections."""

from ontempo._native import QosLink, qos_bind
from ontempo.live.bridge import answered, bridge
from ontempo.live.checks import address
from ontempo.live.connection import resolve
from ontempo.live.contexts import Opening
from ontempo.live.listener import Door

from .connection import Carrier, Connection, carrier_name
from .specification import QosOptions

__all__ = ["Listener", "listen"]


class Listener(Door[QosLink, Connection]):
    """Takes connections: ``async for`` yields those on which there is an agreement.

    As a context (``async with``) it is closed at the end of the block. Connections outlive it.
    """


def listen(
    address: str, options: QosOptions | None = None, *, carrier: Carrier = "tcp"
) -> Opening[Listener]:
    """Listen at ``HOST:PORT``, or at every address of IPv4 (``:PORT``); port 0 is any free one.

    To be awaited, or entered by ``async with``. `options` are asked of every connection there.

    Raises `BindError` where there is no such socket.
    """
    return Opening(lambda: _listen(address, options or QosOptions(), carrier_name(carrier)))


async def _listen(at: str, options: QosOptions, carrier: Carrier) -> Listener:
    host, port = address(at, listening=True)
    made = bridge()
    if host is not None:
        ((host, _), *_) = await resolve(host, port)
    native = await answered(made, qos_bind(carrier, (host, port), options, made.waker))
    return Listener(native, made, Connection)
