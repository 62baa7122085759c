"""Listeners."""

from ontempo._native import Identity, QosAcceptor, QosChannel, qos_bind
from ontempo.live.bridge import Bridge, bridge, result_of
from ontempo.live.checks import Data, address, secret
from ontempo.live.connection import resolve
from ontempo.live.contexts import Opening
from ontempo.live.listener import BaseListener

from .connection import Carrier, Connection, carrier_name, only_quic
from .specification import QosOptions

__all__ = ["Listener", "listen"]


class Listener(BaseListener[QosChannel, Connection]):
    """Accepts connections whose ends agree: ``async for connection in listener``.

    An ``async with`` block closes it at its end; its connections stay open.
    """

    def __init__(self, native: QosAcceptor, bridge: Bridge, identity: Identity | None) -> None:
        super().__init__(native, bridge, Connection)
        self._identity = identity

    @property
    def fingerprint(self) -> str | None:
        """Its certificate's fingerprint, by which clients can verify it; ``None`` without QUIC."""
        return None if self._identity is None else self._identity.fingerprint


def listen(
    address: str,
    options: QosOptions | None = None,
    *,
    carrier: Carrier = "tcp",
    identity: Identity | None = None,
    token: str | Data = b"",
) -> Opening[Listener]:
    """Listen at ``HOST:PORT``, or at every address of IPv4 (``:PORT``); port 0 chooses a free one.

    Await it, or enter it by ``async with``. `options` apply to every connection that it accepts.

    With `carrier` ``"quic"``, and only then, as for `ontempo.live.listen`: `identity` is this
    side's certificate and key; by default a new self-signed certificate. `token` is the secret that
    clients must send, at most 256 bytes; with an empty one every client may connect. The port is
    free again once the listener and the connections that it accepted are closed.

    Raises `BindError` where the socket cannot be bound; `ValueError` or `TypeError` for a wrong
    argument.
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
        identity = identity or Identity.self_signed()
        known = (identity, token)
    else:
        only_quic(carrier, identity=identity, token=token)
        known = None
    made = bridge()
    if host is not None:
        ((host, _), *_) = await resolve(host, port)
    native = await result_of(made, qos_bind(carrier, (host, port), options, known, made.waker))
    return Listener(native, made, identity)
