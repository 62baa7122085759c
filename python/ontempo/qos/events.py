"""Events of a connection."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from ontempo._native import QosEvents
from ontempo.live.bridge import Waitable

from .specification import Specification

__all__ = [
    "Changed",
    "ConnectionLost",
    "ConnectionRecovered",
    "ConnectionUnrecoverable",
    "Direction",
    "Event",
    "Events",
    "Lasting",
    "Reservation",
    "Step",
    "Violation",
]

Direction: TypeAlias = Literal["sending", "receiving"]
"""A direction of a connection, seen from this end."""

ReservationState: TypeAlias = Literal[
    "none", "requested", "controlled-load", "guaranteed", "refused", "lost"
]


@dataclass(frozen=True, slots=True)
class Violation:
    """A parameter is violated, or is met again. A sender has it from its receiver's report."""

    direction: Direction
    """The direction of the messages."""
    parameter: str
    """The parameter, by its name in a file, such as ``max_delay``."""
    begins: bool
    """True where the violation begins, false where it ends."""
    asked: float | bool
    """The agreed value: messages per second, bytes, seconds, per cent, or true or false."""
    delivered: float | bool
    """The measured value, in the same unit: the worst since the first interval that violated it or,
    at the end of a violation, that of the last interval."""
    text: str
    """The event as a sentence with units."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Lasting:
    """A violation lasts: told again every 10 s until it ends."""

    direction: Direction
    """The direction of the messages."""
    parameter: str
    """The parameter, by its name in a file, such as ``max_delay``."""
    asked: float | bool
    """The agreed value: messages per second, bytes, seconds, per cent, or true or false."""
    delivered: float | bool | None
    """The value of the last interval, in the same unit; None if nothing was measured."""
    lasted_s: float
    """How long it has lasted so far, in seconds."""
    text: str
    """The event as a sentence with units."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Step:
    """The ladder stepped to another specification, which the application has to follow."""

    down: bool
    """True for a step down, to less; false for a step up."""
    rung: int
    """The rung now; 0 is the first specification, 1 the first of `Ladder.below`."""
    agreed: Specification
    """The specification now in force for what this end sends."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The other end renegotiated the specification of a direction."""

    direction: Direction
    agreed: Specification


@dataclass(frozen=True, slots=True)
class Reservation:
    """The state of a reservation."""

    direction: Direction
    state: ReservationState
    reason: str
    """Why it was refused or lost; otherwise empty."""


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """Over TCP, where ``rec_time`` is agreed: the connection is broken, and is being made anew."""

    reason: str
    """What broke it."""


@dataclass(frozen=True, slots=True)
class ConnectionRecovered:
    """A lost connection is made anew, and goes on where it broke."""

    after_s: float
    """How long it was lost, in seconds."""


@dataclass(frozen=True, slots=True)
class ConnectionUnrecoverable:
    """``rec_time`` is agreed, but this connection is not made anew if it breaks."""

    reason: str
    """Why not: the other end is of an older version."""


Event: TypeAlias = (
    Violation
    | Lasting
    | Step
    | Changed
    | Reservation
    | ConnectionLost
    | ConnectionRecovered
    | ConnectionUnrecoverable
)


_PLAIN: dict[str, Callable[..., Event]] = {
    "violation": Violation,
    "lasting": Lasting,
    "reservation": Reservation,
    "lost": ConnectionLost,
    "recovered": ConnectionRecovered,
    "unrecoverable": ConnectionUnrecoverable,
}


class Events(Waitable[QosEvents]):
    """The events of a connection since `Connection.events`: ``async for``, until it is closed."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self.until(self._next)

    def _next(self) -> Event | None:
        parts: tuple[Any, ...] | None = self._native.try_next()
        if parts is None:
            return None
        kind, *rest = parts
        if kind == "step":
            down, rung, agreed = rest
            return Step(down, rung, Specification(**agreed))
        if kind == "changed":
            direction, agreed = rest
            return Changed(direction, Specification(**agreed))
        return _PLAIN[kind](*rest)
