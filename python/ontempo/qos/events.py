"""What an application is told of its connection."""

from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from ontempo._native import QosEvents
from ontempo.live.bridge import Watched

from .specification import Specification

__all__ = ["Changed", "Direction", "Event", "Events", "Reservation", "Step", "Violation"]

Direction: TypeAlias = Literal["sending", "receiving"]
"""One of the two of a connection, as this end sees them."""

ReservationState: TypeAlias = Literal[
    "none", "requested", "controlled-load", "guaranteed", "refused", "lost"
]


@dataclass(frozen=True, slots=True)
class Violation:
    """A parameter is not kept any more, or is kept again. A sender hears it from its receiver."""

    direction: Direction
    """Of what this end sends, or receives."""
    parameter: str
    """Which one, as a file names it: ``max_delay``."""
    begins: bool
    """Whether it begins or ends."""
    asked: float | bool
    """What was agreed: messages per second, bytes, seconds, per cent, or whether."""
    delivered: float | bool
    """What was delivered: the worst since the first bad interval or, at the end of a violation,
    in the last interval."""
    text: str
    """The same as a sentence with units."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Step:
    """The ladder has stepped. To keep what is agreed now is the application's part."""

    down: bool
    """Down, or up."""
    rung: int
    """The rung it came to; 0 is the first specification."""
    agreed: Specification
    """What is agreed now for what is sent."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The other end has asked for something else, which is agreed now."""

    direction: Direction
    agreed: Specification


@dataclass(frozen=True, slots=True)
class Reservation:
    """How a reservation stands: it is there, is refused or is lost."""

    direction: Direction
    state: ReservationState
    reason: str
    """Why it was refused or lost; else empty."""


Event: TypeAlias = Violation | Step | Changed | Reservation


class Events(Watched[QosEvents]):
    """The events of a connection from when this was asked for; ends with the connection."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self.until(self._next)

    def _next(self) -> Event | None:
        parts: tuple[Any, ...] | None = self._native.try_next()
        if parts is None:
            return None
        kind, *rest = parts
        match kind:
            case "violation":
                return Violation(*rest)
            case "step":
                down, rung, agreed = rest
                return Step(down, rung, Specification(**agreed))
            case "changed":
                direction, agreed = rest
                return Changed(direction, Specification(**agreed))
            case _:
                return Reservation(*rest)
