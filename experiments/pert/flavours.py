"""The cells that set flavours of PERT side by side: figures 25 to 29."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from ontempo.lab.claims import Scale
from ontempo.lab.study import Cell, Label

from .grid import CONTROLLERS, HERE, VIDEO

FLAVOURS = HERE / "flavours.toml"


@dataclass(frozen=True)
class Sweep:
    """One thing that figures 26 to 28 vary: its values in full and in quick, and how it is set."""

    name: str
    values: tuple[float, ...]
    quick: tuple[float, ...]
    overrides: Callable[[float], list[str]]


RATE_MBPS, RTT_MS, FLOWS = 25, 100, 40
"""The defaults of flavours.toml."""


def buffer_packets(factor: float, rtt_ms: float = RTT_MS) -> int:
    """So many bandwidth-delay products in packets of 1,000 bytes."""
    return int(factor * RATE_MBPS * rtt_ms / 8)


def buffer(packets: int) -> str:
    """The bottleneck's buffer."""
    return f'topology.bottleneck.queue.limit="{packets} packets"'


def _halves(flows: float) -> list[str]:
    return [f"flows.{group}.count={round(flows / 2)}" for group in ("paced", "unpaced")]


def _round_trip(rtt_ms: float) -> list[str]:
    tenth_us = round(rtt_ms * 100)
    return [
        f'topology.access.delay="{tenth_us} us"',
        f'topology.bottleneck.delay="{3 * tenth_us} us"',
    ]


def _coalescing_part(percent: float) -> list[str]:
    coalescing = FLOWS * percent / 100
    rest = round(FLOWS - coalescing)
    values = _halves(coalescing)
    if rest:
        values.append(_immediate(rest))
    return values


def _immediate(count: int) -> str:
    return (
        f'flows.immediate={{ count = {count}, application = {{ kind = "ftp" }},'
        ' start = { low = "0 s", high = "20 s" },'
        f' transport = {{ kind = "tcp", congestion = {CONTROLLERS["pert"]}, packet = "1000 B" }} }}'
    )


TENTHS = tuple(range(10, 101, 10))

SWEEPS: Mapping[str, Sweep] = {
    "flows": Sweep("Number of flows", TENTHS, (10, 20, 40, 60, 80, 100), _halves),
    "bdp": Sweep(
        "Buffer (bandwidth-delay products)",
        tuple(round(0.4 * step, 1) for step in range(1, 11)),
        (0.4, 0.8, 1.2, 2.0, 4.0),
        lambda _factor: [],
    ),
    "rtt": Sweep("Round trip (ms)", TENTHS, (10, 30, 50, 70, 100), _round_trip),
    "part": Sweep("Flows that coalesce (%)", TENTHS, (10, 30, 50, 70, 100), _coalescing_part),
    "http": Sweep(
        "Web users",
        tuple(range(100, 1001, 100)),
        (100, 300, 600, 1000),
        lambda users: [f"flows.http.count={round(users)}"],
    ),
}
"""Figures 26 (flows), 27 (buffer) and 28 (round trip), and the two sweeps of the text alone."""


def fairness_cells(scale: Scale, *sweeps: str) -> list[Cell]:
    """Paced and unpaced transfers in one queue."""
    cells = []
    for name in sweeps:
        sweep = SWEEPS[name]
        values = sweep.quick if scale == "quick" else sweep.values
        for value, seed in product(values, _seeds(scale)):
            packets = buffer_packets(
                value if name == "bdp" else 1.0, value if name == "rtt" else RTT_MS
            )
            labels = (("sweep", name), ("at", float(value)), ("buffer", packets))
            cells.append(_flavours(scale, [*sweep.overrides(value), buffer(packets)], seed, labels))
    return cells


def flavour_cells(scale: Scale) -> list[Cell]:
    """Figure 25: three flavours of PERT, 20 flows of each."""
    return [_flavours(scale, [_immediate(20)], seed, ()) for seed in _seeds(scale)]


def _seeds(scale: Scale) -> range:
    return range(2) if scale == "quick" else range(20)


def _flavours(
    scale: Scale, overrides: list[str], seed: int, labels: tuple[tuple[str, Label], ...]
) -> Cell:
    duration_s = 160 if scale == "quick" else 1000
    return Cell(
        FLAVOURS, (f'duration="{duration_s} s"', *overrides), seed, labels, duration_s / 650
    )


STREAM_BDPS = tuple(round(0.2 * step, 1) for step in range(1, 11))
QUICK_STREAM_BDPS = (0.2, 0.4, 0.6, 0.8, 1.0, 2.0)
"""Buffers of figure 29 in bandwidth-delay products, on both sides of 1.0."""

STREAMED = {
    "paced": (
        'flows.video.transport.ack={ kind = "adaptive", most = "4 packets" }',
        'flows.video.transport.pacing="window"',
    ),
    "immediate": (),
}
"""The flavours of PERT that figure 29 compares."""


def stream_cells(scale: Scale) -> list[Cell]:
    """Figure 29: the videos of Table I over each flavour."""
    quick = scale == "quick"
    duration_s, seeds = (300, range(1)) if quick else (7000, range(20))
    return [
        Cell(
            VIDEO,
            (f'duration="{duration_s} s"', buffer(buffer_packets(bdp)), *STREAMED[flavour]),
            seed,
            (("flavour", flavour), ("bdp", bdp)),
            duration_s / 900,
        )
        for flavour, bdp, seed in product(
            STREAMED, QUICK_STREAM_BDPS if quick else STREAM_BDPS, seeds
        )
    ]
