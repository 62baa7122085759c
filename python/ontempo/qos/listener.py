"""Listeners."""

from ontempo._native import Identity, QosAcceptor, QosChannel, qos_bind
from ontempo.live.bridge import Bridge, bridge, result_of
from ontempo.live.checks import Data, address, admitted
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

    def __init__(
        self, native: QosAcceptor, bridge: Bridge, known: tuple[Identity, bytes] | None
    ) -> None:
        super().__init__(native, bridge, Connection)
        self._known = known

    @property
    def fingerprint(self) -> str | None:
        """Its certificate's fingerprint, by which clients can verify it; ``None`` without QUIC."""
        return None if self._known is None else self._known[0].fingerprint

    @property
    def token(self) -> bytes | None:
        """The secret that clients must send; empty with ``anyone=True``, ``None`` without QUIC."""
        return None if self._known is None else self._known[1]


def listen(
    address: str,
    options: QosOptions | None = None,
    *,
    carrier: Carrier = "tcp",
    identity: Identity | None = None,
    token: str | Data | None = None,
    anyone: bool = False,
) -> Opening[Listener]:
    """Listen at ``HOST:PORT``, or at every address of IPv4 (``:PORT``); port 0 chooses a free one.

    Await it, or enter it by ``async with``. `options` apply to every connection that it accepts.

    With `carrier` ``"quic"``, and only then, as for `ontempo.live.listen`: `identity` is this
    side's certificate and key; by default a new self-signed certificate. `token` is the secret that
    clients must send, 1 to 256 bytes; by default a new one of 128 random bits, which
    `Listener.token` returns. With `anyone` every client may connect, without a token. The port is
    free again once the listener and the connections that it accepted are closed.

    Raises `BindError` where the socket cannot be bound; `ValueError` or `TypeError` for a wrong
    argument.
    """
    return Opening(
        lambda: _listen(
            address, options or QosOptions(), carrier_name(carrier), identity, token, anyone
        )
    )


async def _listen(
    at: str,
    options: QosOptions,
    carrier: Carrier,
    identity: Identity | None,
    token: str | Data | None,
    anyone: bool,
) -> Listener:
    host, port = address(at, listening=True)
    if carrier == "quic":
        identity = identity or Identity.self_signed()
        known = (identity, admitted(token, anyone))
    else:
        only_quic(carrier, identity=identity, token=token, anyone=anyone)
        known = None
    made = bridge()
    if host is not None:
        ((host, _), *_) = await resolve(host, port)
    native = await result_of(made, qos_bind(carrier, (host, port), options, known, made.waker))
    return Listener(native, made, known)
