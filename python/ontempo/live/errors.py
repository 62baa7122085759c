"""Exceptions of connections, flows and listeners."""

__all__ = [
    "BindError",
    "ClosedError",
    "EndpointError",
    "IdentityError",
    "NotConnectedError",
    "UnitError",
]

_ORDERLY = (
    "the connection is over: the peer closed: ",
    "the connection is over: it was closed by this side",
)


class EndpointError(Exception):
    """An operation on a connection, a flow or a listener failed.

    Wrong arguments raise `ValueError` or `TypeError` instead.
    """


class BindError(EndpointError, OSError):
    """The socket cannot be bound: its port is taken, or the address is not this machine's."""


class IdentityError(EndpointError, ValueError):
    """A certificate or key cannot be read, written or used."""


class NotConnectedError(EndpointError, ConnectionError):
    """The peer did not answer, refused the connection, or was not verified."""


class ClosedError(EndpointError, ConnectionError):
    """The connection was closed or lost."""

    @property
    def orderly(self) -> bool:
        """True where either side closed it; false where it was lost."""
        return str(self).startswith(_ORDERLY)


class UnitError(EndpointError, ValueError):
    """A unit that cannot be sent.

    It is too long, follows the flow's end, has wrong dependencies, or a deadline that the flow's
    reliability ignores.
    """
