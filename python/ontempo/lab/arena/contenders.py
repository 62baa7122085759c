"""The contenders: the transports of a film, each with the settings of its program."""

from collections.abc import Sequence
from dataclasses import dataclass

from ontempo.lab.real_time import CARRIERS

SRT_MS, RIST_MS = 120, 1000
"""Buffers that `srt-live-transmit` and `ristsender` have by default, in ms. That of `ontempo send`
is four round trips, which are compared anyway."""


@dataclass(frozen=True)
class Contender:
    """A transport: its name, a description, its table in a scenario.

    `transport` holds ``{buffer}`` where the buffer stands; one without has none of its own, and
    its runs serve every latency of a player. `default_ms` is the buffer that its program has by
    default. `programs` are those that the emulated world needs besides ontempo, `package` the one
    that has them, `control` is the kernel's congestion control that it needs. `colour` and
    `symbol` are its look in plots. `cost` is the core-seconds of a second of film, measured. One
    `on_request` runs only where a pattern names it.
    """

    name: str
    shown: str
    transport: str
    default_ms: int | None = None
    programs: tuple[str, ...] = ()
    package: str = ""
    colour: str = "quiet"
    symbol: str = "circle"
    cost: float = 0.004
    control: str = ""
    on_request: bool = False

    @property
    def has_buffer(self) -> bool:
        """Whether it has a buffer to be set."""
        return "{buffer}" in self.transport

    def table(self, buffer_ms: int) -> str:
        """Its transport in a scenario, with such a buffer, as TOML."""
        return "{ " + self.transport.replace("{buffer}", f"{buffer_ms} ms") + " }"


def _tcp(name: str, shown: str, congestion: str, colour: str, symbol: str) -> Contender:
    table = f'kind = "tcp", packet = "1500 bytes", congestion = {congestion}'
    control = name.removeprefix("tcp-")
    return Contender(name, shown, table, control=control, colour=colour, symbol=symbol)


def _ontempo(
    name: str,
    shown: str,
    order: str,
    symbol: str,
    congestion: str = '"bbr"',
    *,
    on_request: bool = False,
) -> Contender:
    flow = f'latency = "{{buffer}}", order = "{order}", congestion = {congestion}'
    table = f'kind = "ontempo", {flow}'
    return Contender(
        name, shown, table, colour="pert", symbol=symbol, cost=0.017, on_request=on_request
    )


def _candidate(name: str, shown: str, congestion: str) -> Contender:
    return _ontempo(f"ontempo-{name}", shown, "partial-order", "x", congestion, on_request=True)


_VERSION_3 = '"bbr", congestion-parameters = { variant = "v3" }'
_RIST = 'kind = "rist", buffer = "{buffer}"'
_RIST_PROGRAMS = CARRIERS["rist"]

CONTENDERS = (
    Contender("udp", "UDP", 'kind = "udp"', symbol="circle-open"),
    _tcp("tcp-cubic", "TCP CUBIC", '{ kind = "cubic", variant = "linux" }', "cubic", "square"),
    _tcp("tcp-bbr", "TCP BBR", '{ kind = "bbr", variant = "v1" }', "step-3", "triangle-up"),
    _tcp("tcp-pert", "TCP PERT", '"pert"', "step-4", "diamond-open"),
    Contender(
        "srt",
        "SRT",
        'kind = "srt", latency = "{buffer}"',
        SRT_MS,
        CARRIERS["srt"],
        "srt-tools",
        "step-0",
        "circle",
    ),
    Contender("rist", "RIST", _RIST, RIST_MS, _RIST_PROGRAMS, "rist-tools", "step-2", "square"),
    Contender(
        "rist-no-nulls",
        "RIST, no nulls",
        f"{_RIST}, null-packet-deletion = true",
        RIST_MS,
        _RIST_PROGRAMS,
        "rist-tools",
        "step-2",
        "square-open",
    ),
    _ontempo("ontempo", "ontempo", "partial-order", "diamond"),
    _ontempo("ontempo-pert", "ontempo, PERT", "partial-order", "cross", '"pert"'),
    _ontempo("ontempo-media", "ontempo, media", "partial-order", "star", '"media"'),
    _ontempo("ontempo-in-order", "ontempo in order", "in-order", "triangle-down"),
    _candidate("cubic", "ontempo, CUBIC", '"cubic"'),
    _candidate("newreno", "ontempo, NewReno", '"newreno"'),
    _candidate("bbr-v3", "ontempo, BBR version 3", _VERSION_3),
)
"""`ontempo send` as shipped is over BBR for media, and `in-order`."""


def named(names: Sequence[str]) -> tuple[Contender, ...]:
    """Some contenders, in the order of all."""
    return tuple(one for one in CONTENDERS if one.name in names)
