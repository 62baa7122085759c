"""Exceptions of connections, flows and listeners."""

from enum import StrEnum

__all__ = [
    "BindError",
    "CloseReason",
    "ClosedError",
    "EndpointError",
    "IdentityError",
    "NotConnectedError",
    "UnitError",
]


class CloseReason(StrEnum):
    """Why a connection is over, or never came to be.

    Those up to `OTHER` travel as the application error code of QUIC's CONNECTION_CLOSE
    (RFC 9000, section 19.19); the others are what this side finds by itself.
    """

    DONE = "done"
    """Code 0: one of both programs closed it."""
    PROTOCOL_VIOLATION = "protocol_violation"
    """Code 1: the other side broke the protocol."""
    WRONG_TOKEN = "wrong_token"
    """Code 2: the client's token is not the server's."""
    NO_ANSWER = "no_answer"
    """Code 3: the greeting, or later an answer, did not come in time."""
    BUSY = "busy"
    """Code 4: the receiver serves another sender."""
    UNSUPPORTED = "unsupported"
    """Code 5: the program does not understand what it was sent."""
    FAILED = "failed"
    """Code 6: the program failed, for example because its disk is full."""
    COMPLETE = "complete"
    """Code 7: the receiver has processed all that was sent."""
    OVERLOADED = "overloaded"
    """Code 8: the receiver has no memory left for what its program has not received."""
    REFUSED = "refused"
    """Code 9, or QUIC's CONNECTION_REFUSED: the peer takes no more connections now."""
    OTHER = "other"
    """A code that this version does not know."""
    INCOMPATIBLE_VERSION = "incompatible_version"
    """Both sides have no version of the protocol in common."""
    UNTRUSTED = "untrusted"
    """One side does not trust the other's certificate, or TLS failed."""
    TIMED_OUT = "timed_out"
    """Nothing was heard of the peer for as long as the options allow."""
    RESET = "reset"
    """The peer has forgotten the connection."""
    TRANSPORT = "transport"
    """The connection failed in another way."""
    ENDED = "ended"
    """What carried the connection, or the listener, has ended."""

    @property
    def orderly(self) -> bool:
        """True where one of both programs closed the connection, and it was not lost."""
        return self in _ORDERLY

    @property
    def code(self) -> int | None:
        """Its application error code, from 0 to 8.

        ``None`` for `OTHER`, which stands for all further codes, and for what this side finds by
        itself.
        """
        return _CODES.get(self)


_CODES = {
    reason: code
    for code, reason in enumerate(
        (
            CloseReason.DONE,
            CloseReason.PROTOCOL_VIOLATION,
            CloseReason.WRONG_TOKEN,
            CloseReason.NO_ANSWER,
            CloseReason.BUSY,
            CloseReason.UNSUPPORTED,
            CloseReason.FAILED,
            CloseReason.COMPLETE,
            CloseReason.OVERLOADED,
            CloseReason.REFUSED,
        )
    )
}

_ORDERLY = frozenset(
    {
        CloseReason.DONE,
        CloseReason.BUSY,
        CloseReason.UNSUPPORTED,
        CloseReason.FAILED,
        CloseReason.COMPLETE,
    }
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

    def __init__(
        self,
        sentence: str,
        close_reason: str | None = None,
        close_code: int | None = None,
        said: str = "",
    ) -> None:
        super().__init__(sentence)
        self.close_reason = None if close_reason is None else CloseReason(close_reason)
        """Why; ``None`` where nothing was heard of a peer, as where a name has no address."""
        self.close_code = close_code
        """The application error code, also of `CloseReason.OTHER`; ``None`` where none was sent."""
        self.said = said
        """The peer's own words, escaped as `Connection.said` is; empty where it sent none."""


class ClosedError(EndpointError, ConnectionError):
    """The connection was closed or lost."""

    def __init__(
        self,
        sentence: str,
        close_reason: str = CloseReason.ENDED,
        close_code: int | None = None,
        said: str = "",
    ) -> None:
        super().__init__(sentence)
        self.close_reason = CloseReason(close_reason)
        """Why."""
        self.close_code = close_code
        """The application error code, also of `CloseReason.OTHER`; ``None`` where none was sent."""
        self.said = said
        """The peer's own words, escaped as `Connection.said` is; empty where it sent none."""

    @property
    def orderly(self) -> bool:
        """True where either side closed it; false where it was lost."""
        return self.close_reason.orderly


class UnitError(EndpointError, ValueError):
    """A unit that cannot be sent.

    It is too long, follows the flow's end, has wrong dependencies, or a deadline that the flow's
    reliability ignores.
    """
