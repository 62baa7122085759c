"""Why something could not be done with a connection."""

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
    """Something that could not be done with a connection, a flow or a listener.

    Arguments that are wrong by themselves raise `ValueError` or `TypeError` instead.
    """


class BindError(EndpointError, OSError):
    """There is no such UDP socket: its port is taken, or the address is not this machine's."""


class IdentityError(EndpointError, ValueError):
    """A certificate or key cannot be had or used."""


class NotConnectedError(EndpointError, ConnectionError):
    """The peer did not answer, refused, or is not who it should be."""


class ClosedError(EndpointError, ConnectionError):
    """The connection is over."""

    @property
    def orderly(self) -> bool:
        """True where one of both sides closed it, and it was not lost."""
        return str(self).startswith(_ORDERLY)


class UnitError(EndpointError, ValueError):
    """A unit that cannot be sent: too long, after the flow's end, or with wrong dependencies."""
