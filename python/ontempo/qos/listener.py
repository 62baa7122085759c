"""Taking connections."""

from ontempo._native import Identity, QosDoor, QosLink, qos_bind
from ontempo.live.bridge import Bridge, answered, bridge
from ontempo.live.checks import Data, address, secret
from ontempo.live.connection import resolve
from ontempo.live.contexts import Opening
from ontempo.live.listener import Door

from .connection import Carrier, Connection, carrier_name, only_quic
from .specification import QosOptions

__all__ = ["Listener", "listen"]


class Listener(Door[QosLink, Connection]):
    """Takes connections: ``async for`` yields those on which there is an agreement.

    As a context (``async with``) it is closed at the end of the block. Connections outlive it.
    """

    def __init__(self, native: QosDoor, bridge: Bridge, identity: Identity | None) -> None:
        super().__init__(native, bridge, Connection)
        self._identity = identity

    @property
    def fingerprint(self) -> str | None:
        """Its certificate's fingerprint, by which a client can know it; only over QUIC."""
        return None if self._identity is None else self._identity.fingerprint


def listen(
    address: str,
    options: QosOptions | None = None,
    *,
    carrier: Carrier = "tcp",
    identity: Identity | None = None,
    token: str | Data = b"",
) -> Opening[Listener]:
    """Listen at ``HOST:PORT``, or at every address of IPv4 (``:PORT``); port 0 is any free one.

    To be awaited, or entered by ``async with``. `options` are asked of every connection there.

    With `carrier` ``"quic"``, and only then, as for `ontempo.listen`: `identity` is who this side
    is; where not given, a certificate made on the spot. `token` is what clients must know, at most
    256 bytes; none means that everybody may connect. The port is free again once the listener
    and the connections that came there are closed.

    Raises `BindError` where there is no such socket.
    """
    return Opening(
        lambda: _listen(
            address, options or QosOptions(), carrier_name(carrier), identity, secret(token)
        )
    )


async def _listen(
    at: str, options: QosOptions, carrier: Carrier, identity: Identity | None, token: bytes
) -> Listener:
    host, port = address(at, listening=True)
    if carrier == "quic":
        identity = identity or Identity.self_made()
        known = (identity, token)
    else:
        only_quic(carrier, identity=identity, token=token)
        known = None
    made = bridge()
    if host is not None:
        ((host, _), *_) = await resolve(host, port)
    native = await answered(made, qos_bind(carrier, (host, port), options, known, made.waker))
    return Listener(native, made, identity)
