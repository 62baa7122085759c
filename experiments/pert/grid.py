"""The cells of chapter III: which are run in full, which in quick."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ontempo.lab.claims import Scale
from ontempo.lab.study import Cell

HERE = Path(__file__).parent
VIDEO = HERE / "video.toml"
QUEUE_SHARE = HERE / "queue-share.toml"

PERT = {
    "thesis": '{ kind = "pert", variant = "thesis" }',
    "reference": '{ kind = "pert", variant = "reference" }',
}
"""Both readings of PERT's open points."""

CUBIC = {
    "linux-2.6": '{ kind = "cubic", variant = "linux-2.6" }',
    "rfc9438": '{ kind = "cubic", variant = "rfc9438" }',
}
"""CUBIC as in ns-2, and as standardized today."""

CONTROLLERS = {"pert": PERT["reference"], "cubic": CUBIC["linux-2.6"], "reno": '"reno"'}
"""The controllers under test. Why these readings: docs/experiments-pert.md."""

DELAYS = {50: (5, 15), 100: (10, 30), 150: (15, 45)}
"""Access and bottleneck delay by round trip, in milliseconds; see video.toml."""

PUBLISHED_RTTS = tuple(DELAYS)


@dataclass(frozen=True)
class Block:
    """A part of the grid: every combination of its values."""

    packet: int
    counts: tuple[int, ...]
    rtts: tuple[int, ...]
    seeds: tuple[int, ...]
    duration_s: int
    cost_per_700_s: float

    @property
    def cost(self) -> float:
        """Core-seconds a cell takes, roughly."""
        return self.cost_per_700_s * self.duration_s / 700


FULL = {
    1000: Block(1000, tuple(range(20, 36)), PUBLISHED_RTTS, tuple(range(20)), 7000, 0.9),
    200: Block(200, tuple(range(20, 36)), PUBLISHED_RTTS, tuple(range(20)), 7000, 4.5),
}

QUICK = {
    # 20 and 21: with 20 alone, T/mu at 150 ms is just above 2.0 and the last range is empty.
    1000: Block(1000, (20, 21, 22, 24, 26, 29, 31, 35), PUBLISHED_RTTS, (0, 1), 700, 0.75),
    # Fewer videos bring T/mu to 1.0 with small packets: their headers weigh more in the web users'
    # load, and 150 of them are a buffer of 10 ms only. Above T/mu 1.2 all their streams succeed, so
    # that two numbers of videos show as much as more would.
    200: Block(200, (22, 26), (50, 100), (0,), 700, 4.0),
}


def blocks(scale: Scale) -> dict[int, Block]:
    """The grid by packet size."""
    return QUICK if scale == "quick" else FULL


def video_cells(
    scale: Scale, controllers: Sequence[str], packets: Sequence[int] = (1000,)
) -> list[Cell]:
    """The cells of Table I for some controllers and packet sizes."""
    cells = []
    for packet in packets:
        block = blocks(scale)[packet]
        grid = product(controllers, block.rtts, block.counts, block.seeds)
        cells += [video_cell(block, *values) for values in grid]
    return cells


def video_cell(block: Block, controller: str, rtt_ms: int, count: int, seed: int) -> Cell:
    """One run of Table I."""
    access_ms, bottleneck_ms = DELAYS[rtt_ms]
    overrides = [
        f'duration="{block.duration_s} s"',
        f'topology.access.delay="{access_ms} ms"',
        f'topology.bottleneck.delay="{bottleneck_ms} ms"',
        f"flows.video.count={count}",
        f"flows.ftp.count={count}",
        f"flows.video.transport.congestion={CONTROLLERS[controller]}",
    ]
    overrides += [
        f'flows.{group}.transport.packet="{block.packet} B"' for group in ("video", "ftp", "http")
    ]
    return Cell(
        VIDEO,
        tuple(overrides),
        seed,
        (
            ("controller", controller),
            ("packet", block.packet),
            ("rtt_ms", rtt_ms),
            ("flows", count),
        ),
        block.cost,
    )


def queue_cells(scale: Scale) -> list[Cell]:
    """The cells of figure 2."""
    duration_s, seeds = (90, range(3)) if scale == "quick" else (300, range(20))
    overrides = (
        f'duration="{duration_s} s"',
        f"flows.pert.transport.congestion={CONTROLLERS['pert']}",
    )
    return [Cell(QUEUE_SHARE, overrides, seed, (), duration_s / 200) for seed in seeds]


def video_scaling(scale: Scale, packets: Sequence[int] = (1000,)) -> str:
    """A description of how much of the published grid is run."""
    parts = []
    for packet in packets:
        block, full = blocks(scale)[packet], FULL[packet]
        parts.append(
            f"With {packet:,}-byte packets: {block.duration_s:,} of {full.duration_s:,} s of video;"
            f" {_of(block.counts, full.counts, 'numbers of flows')};"
            f" {_of(block.rtts, full.rtts, 'round trips')};"
            f" {_of(block.seeds, full.seeds, 'seeds')}."
        )
    if scale == "quick":
        parts.append(
            "In a shorter video a single lapse weighs more: one part in 10,000 is 2.6 packets of"
            " 1,000 bytes in 700 s, and 26 in 7,000 s."
        )
    return " ".join(parts)


def _of(run: Sequence[int], published: Sequence[int], what: str) -> str:
    if run == published:
        return f"all {len(published)} {what}"
    listed = ", ".join(map(str, run))
    return f"{len(run)} of {len(published)} {what} ({listed})"
