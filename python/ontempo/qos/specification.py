"""Specifications and options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Literal, TypeAlias

from ontempo._native import qos_check, qos_read
from ontempo.live.checks import parameter_texts, seconds, whole

__all__ = ["Ladder", "QosOptions", "Specification", "read"]

Reserve: TypeAlias = Literal["none", "controlled-load", "guaranteed"]

_MAX_RATE = 1e12
_MAX_PERCENT = 100
_RATES = ("min_rate", "max_rate", "peak_rate")
_SPANS = ("min_delay_s", "max_delay_s", "int_delay_s", "jitter_s", "rec_time_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """The quality of service that one end asks for; a parameter that is ``None`` is not asked for.

    The parameters are those of qosockets, section II.

    Raises `SpecificationError` where it contradicts itself, and `ValueError` or `TypeError` where
    a value is out of its range.
    """

    min_rate: float | None = None
    """Minimum rate, in messages per second."""
    max_rate: float | None = None
    """Maximum mean rate over an interval of measurement, in messages per second."""
    peak_rate: float | None = None
    """Maximum rate at any time, in messages per second."""
    size: int | None = None
    """Maximum message size, in bytes."""
    min_delay_s: float | None = None
    """Minimum delay from sending to arrival, in seconds."""
    max_delay_s: float | None = None
    """Maximum delay from sending to arrival, in seconds."""
    int_delay_s: float | None = None
    """Maximum time between the arrivals of two messages, in seconds."""
    jitter_s: float | None = None
    """Maximum difference between the delays of two consecutive messages, in seconds."""
    loss_percent: float | None = None
    """Maximum share of lost messages, in per cent."""
    rec_time_s: float | None = None
    """Maximum recovery time of a disrupted flow, in seconds."""
    permutable: bool | None = None
    """True: messages may be delivered out of order."""
    coerced: Sequence[str] = ()
    """Parameters that are coerced to the other end's where that asks for less, by their names in a
    file: ``("max_rate", "loss")``."""

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


def _number(name: str, value: float | None, maximum: float, unit: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: a number of {unit}")
    if not 0 <= value <= maximum:
        raise ValueError(f"{name} is {value!r}: {unit}, from 0 to {maximum:g}")


def read(path: str | PathLike[str]) -> Specification:
    """Read a specification from a TOML file, whose values carry their units.

    Raises `SpecificationError`, which names file, line and field, where the file does not hold one.
    """
    return Specification(**qos_read(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Specifications to fall back to, step by step, while a violation lasts."""

    below: Sequence[Specification]
    """The specifications below the first one, each asking for less than the one before."""
    step_down_after_s: float = 5.0
    """How long a violation lasts before a step down, in seconds."""
    step_up_after_s: float = 30.0
    """How long there is no violation before a step up, in seconds."""

    def __post_init__(self) -> None:
        seconds("step_down_after_s", self.step_down_after_s, above=False)
        seconds("step_up_after_s", self.step_up_after_s, above=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QosOptions:
    """Options of one end of a connection.

    Raises `ValueError` or `TypeError` where a value is out of its range.
    """

    name: str = ""
    """The connection's name in reports."""
    send: Specification = field(default_factory=Specification)
    """The specification of what this end sends."""
    receive: Specification = field(default_factory=Specification)
    """The specification of what this end receives."""
    dscp: str | None = None
    """The DSCP of the packets: 0 to 63, or a name such as ``af41``; by default that of RFC 4594 for
    the agreed specification."""
    congestion: str | None = None
    """The congestion control of what this end sends over QUIC: ``pert``, ``cubic``, ``newreno``,
    ``reno``, ``vegas``, ``bbr``, ``psp`` or ``psp-damped``; by default ``pert``. Over TCP the
    kernel chooses it and UDP has none: one that is given there is a `ValueError`."""
    congestion_parameters: Mapping[str, str | float | bool] = field(
        default_factory=dict, hash=False
    )
    """Its parameters, as in `ontempo.live.Options`."""
    reserve: Reserve = "none"
    """The service to reserve through the hosts' RSVP daemons (RFC 2210); both ends have to ask."""
    must_reserve: bool = False
    """True: connecting fails where nothing is reserved within `setup_timeout_s`."""
    begins_after: int = 2
    """A violation begins after so many consecutive intervals of 0.5 s that violate a parameter."""
    ends_after: int = 4
    """A violation ends after so many consecutive intervals that meet the parameter."""
    ladder: Ladder | None = None
    """Specifications to fall back to while what this end sends is violated."""
    setup_timeout_s: float = 5.0
    """Time limit of the set-up, in seconds."""

    def __post_init__(self) -> None:
        if self.congestion_parameters and self.congestion is None:
            raise ValueError("congestion_parameters are given, but no congestion")
        parameters = parameter_texts(self.congestion_parameters)
        object.__setattr__(self, "congestion_parameters", parameters)
        whole("begins_after", self.begins_after, 1, 2**31)
        whole("ends_after", self.ends_after, 1, 2**31)
        seconds("setup_timeout_s", self.setup_timeout_s, above=True)
