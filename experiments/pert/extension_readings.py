"""Open points of chapters IV and V, with other readings; see readings.py."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ontempo.lab.study import Cell

from .grid import PERT

Reading = Callable[[Cell], Cell]

PUT_ON: Mapping[str, Sequence[str]] = {
    "high-speed.toml": ("ftp",),
    "lone.toml": ("ftp",),
    "coalescing.toml": ("immediate", "coalescing"),
    "flavours.toml": ("paced", "unpaced"),
    "video.toml": ("video",),
}
"""The groups over PERT, by scenario."""


def timer_of(least: str) -> Reading:
    """Another minimum retransmission timeout for flows over PERT."""

    def read(cell: Cell) -> Cell:
        groups = [*PUT_ON.get(cell.scenario.name, ())]
        if any(one.startswith("flows.immediate=") for one in cell.overrides):
            groups.append("immediate")
        more = tuple(f'flows.{group}.transport.min-rto="{least}"' for group in groups)
        return replace(cell, overrides=(*cell.overrides, *more))

    return read


def where(scenarios: Sequence[str], override: str) -> Reading:
    """One more override, for some of the scenarios."""
    return lambda cell: (
        replace(cell, overrides=(*cell.overrides, override))
        if cell.scenario.stem in scenarios
        else cell
    )


def thesis_reading(cell: Cell) -> Cell:
    """PERT as in the thesis, where the scenario file differs."""
    groups = PUT_ON.get(cell.scenario.name, ())
    more = tuple(f"flows.{group}.transport.congestion={PERT['thesis']}" for group in groups)
    inside = tuple(one.replace(PERT["reference"], PERT["thesis"]) for one in cell.overrides)
    return replace(cell, overrides=(*inside, *more))


EXTENSION_READINGS: Mapping[str, Reading] = {
    "as chosen": lambda cell: cell,
    "PERT thesis": thesis_reading,
    "least timeout 1 s": timer_of("1 s"),
    "15 packets": where(["coalescing"], 'topology.bottleneck.queue.limit="15 packets"'),
    "50 packets": where(["coalescing"], 'topology.bottleneck.queue.limit="50 packets"'),
    "access without limit": where(
        ["flavours", "homogeneous"], 'topology.access.queue={ kind = "drop-tail" }'
    ),
}
"""Open points of chapters IV and V, with other readings."""
