"""What an application asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Literal, TypeAlias

from ontempo._native import qos_check, qos_read
from ontempo.live.checks import seconds, whole

__all__ = ["Ladder", "QosOptions", "Specification", "read"]

Reserve: TypeAlias = Literal["none", "controlled-load", "guaranteed"]

_MAX_RATE = 1e12
_MAX_PERCENT = 100
_RATES = ("min_rate", "max_rate", "peak_rate")
_SPANS = ("min_delay_s", "max_delay_s", "int_delay_s", "jitter_s", "rec_time_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """The quality that one end asks for of a flow of messages; what is not given, it does not.

    Raises `SpecificationError` where it contradicts itself, and `ValueError` or `TypeError` where
    a value is out of its range.
    """

    min_rate: float | None = None
    """Least messages per second."""
    max_rate: float | None = None
    """Most messages per second over an interval of measurement."""
    peak_rate: float | None = None
    """Most messages per second at any time."""
    size: int | None = None
    """Largest message, in bytes."""
    min_delay_s: float | None = None
    """Least delay from sending to arrival, in seconds."""
    max_delay_s: float | None = None
    """Most delay from sending to arrival, in seconds."""
    int_delay_s: float | None = None
    """Most time between the arrivals of two messages, in seconds."""
    jitter_s: float | None = None
    """Most difference between the delays of two consecutive messages, in seconds."""
    loss_percent: float | None = None
    """Most messages lost, in per cent."""
    rec_time_s: float | None = None
    """Most time until a disrupted flow goes on, in seconds."""
    permutable: bool | None = None
    """Whether messages may be delivered out of their order."""
    coerced: Sequence[str] = ()
    """Parameters that give way where the other end asks for less, as a file names them:
    ``("max_rate", "loss")``."""

    def __post_init__(self) -> None:
        for name in _RATES:
            _number(name, getattr(self, name), _MAX_RATE, "messages per second")
        for name in _SPANS:
            if (value := getattr(self, name)) is not None:
                seconds(name, value, above=False)
        _number("loss_percent", self.loss_percent, _MAX_PERCENT, "per cent")
        if self.size is not None:
            whole("size", self.size)
        if isinstance(self.coerced, str):
            raise TypeError(f"coerced is {self.coerced!r}: the names of parameters, in a tuple")
        object.__setattr__(self, "coerced", tuple(self.coerced))
        qos_check(self)


def _number(name: str, value: float | None, most: float, unit: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: a number of {unit}")
    if not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r}: {unit}, from 0 to {most:g}")


def read(path: str | PathLike[str]) -> Specification:
    """Read a specification from a TOML file, whose quantities have their units.

    Raises `SpecificationError` with file, line and field where it is none.
    """
    return Specification(**qos_read(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """What to ask for instead while a violation lasts: lesser and lesser."""

    below: Sequence[Specification]
    """In place of the first specification."""
    patience_s: float = 5.0
    """How long a violation lasts before the step down, in seconds."""
    calm_s: float = 30.0
    """How long there is none before the step up, in seconds."""

    def __post_init__(self) -> None:
        seconds("patience_s", self.patience_s, above=False)
        seconds("calm_s", self.calm_s, above=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QosOptions:
    """What one end asks for.

    Raises `ValueError` or `TypeError` where a value is out of its range.
    """

    name: str = ""
    """What reports call the connection."""
    send: Specification = field(default_factory=Specification)
    """What is asked of what this end sends."""
    receive: Specification = field(default_factory=Specification)
    """What is asked of what it receives."""
    dscp: str | None = None
    """The code point of the packets: 0 to 63, or a name such as ``af41``; that of RFC 4594 for
    what is agreed where not given."""
    reserve: Reserve = "none"
    """What the host's RSVP daemon is asked for, if the other end asks, too."""
    must_reserve: bool = False
    """Whether to connect fails where nothing is reserved within `patience_s`."""
    begins_after: int = 2
    """Bad intervals of 0.5 s in a row, after which a violation begins."""
    ends_after: int = 4
    """Good ones in a row, after which it ends."""
    ladder: Ladder | None = None
    """What to ask for instead while it is violated."""
    patience_s: float = 5.0
    """How long the set-up may take, in seconds."""

    def __post_init__(self) -> None:
        whole("begins_after", self.begins_after, 1, 2**31)
        whole("ends_after", self.ends_after, 1, 2**31)
        seconds("patience_s", self.patience_s, above=True)
