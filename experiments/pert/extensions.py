"""The cells of chapters IV and V, and of chapter II's statements on PERT alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from ontempo.lab.claims import Scale
from ontempo.lab.study import Cell

from .grid import CONTROLLERS, HERE

ACKNOWLEDGEMENT = HERE / "acknowledgement.toml"
COALESCING = HERE / "coalescing.toml"
HIGH_SPEED = HERE / "high-speed.toml"
HOMOGENEOUS = HERE / "homogeneous.toml"
LONE = HERE / "lone.toml"
MOVIE = HERE / "movie.toml"

ACKS = {
    "immediate": 'flows.ftp.transport.ack={ kind = "immediate" }',
    "delayed": 'flows.ftp.transport.ack={ kind = "delayed" }',
    "adaptive": 'flows.ftp.transport.ack={ kind = "adaptive", most = "4 packets" }',
}
"""The three receivers of figure 17."""

CURES = {
    "none": (),
    "pacing": ('flows.coalescing.transport.pacing="window"',),
    "correction": ("flows.coalescing.transport.correct-self-induced-delay=true",),
}
"""Corrections of the self-induced delay."""

CROSS = 5
"""Cross flows where their number is not varied: the minimum of chapter V's 5 to 10."""


def lone_cells(
    scale: Scale, acks: Sequence[str], pacing: Sequence[str] = ("off",), *, packets: bool = True
) -> list[Cell]:
    """One transfer with each receiver, paced or not."""
    seeds = range(2) if scale == "quick" else range(20)
    quiet = () if packets else ("measure.packets=[]",)
    return [
        Cell(
            LONE,
            (ACKS[ack], f'flows.ftp.transport.pacing="{paced}"', *quiet),
            seed,
            (("ack", ack), ("pacing", paced)),
            0.05,
        )
        for ack, paced, seed in product(acks, pacing, seeds)
    ]


@dataclass(frozen=True)
class Setting:
    """Conditions of two transfers side by side: cross traffic, delay and rate."""

    sweep: str
    value: int
    cross: int = CROSS
    packet: int = 1000
    delay_ms: int = 20
    rate_mbps: int = 3

    def overrides(self) -> list[str]:
        """The scenario's values for it; access, bottleneck and access share the delay 1 : 3 : 1."""
        fifth = self.delay_ms * 1000 // 5
        values = [
            f'topology.access.delay="{fifth} us"',
            f'topology.bottleneck.delay="{3 * fifth} us"',
            f'topology.bottleneck.rate="{self.rate_mbps} Mbit/s"',
        ]
        if self.cross:
            values.append(
                f'flows.cross={{ count = {self.cross}, application = {{ kind = "ftp" }},'
                ' start = { low = "0 s", high = "5 s" },'
                f' transport = {{ kind = "tcp", packet = "{self.packet} B" }} }}'
            )
        return values


ALONE = (Setting("alone", 0, cross=0),)
"""Figure 31's two transfers and nothing else."""

SIZES = (500, 750, 1000, 1250, 1500)
DELAYS_MS = tuple(range(5, 51, 5))

PACED_SETTINGS = (
    *ALONE,
    *(Setting("cross flows", n, cross=n) for n in range(1, 11)),
    *(Setting("cross packet (bytes)", size, packet=size) for size in SIZES),
    *(Setting("delay (ms)", delay, delay_ms=delay) for delay in DELAYS_MS),
)
"""Figures 21 to 24."""

CORRECTED_SETTINGS = (
    *(Setting("cross flows", n, cross=n) for n in range(5, 11)),
    *(Setting("delay (ms)", delay, delay_ms=delay) for delay in DELAYS_MS),
    *(Setting("cross packet (bytes)", size, packet=size) for size in SIZES),
    *(Setting("rate (Mbit/s)", rate, rate_mbps=rate) for rate in range(1, 11)),
)
"""Figures 32 to 34, and the bottleneck's rate of which the text speaks."""


def coalescing_cells(
    scale: Scale, settings: Sequence[Setting], cures: Sequence[str], *more: str
) -> list[Cell]:
    """Two transfers side by side in every setting, with every correction."""
    duration_s, seeds = (200, range(2)) if scale == "quick" else (1000, range(20))
    return [
        Cell(
            COALESCING,
            (f'duration="{duration_s} s"', *setting.overrides(), *CURES[cure], *more),
            seed,
            (("sweep", setting.sweep), ("at", float(setting.value)), ("cure", cure)),
            0.05 * duration_s / 200 * setting.rate_mbps / 3,
        )
        for setting, cure, seed in product(settings, cures, seeds)
    ]


def movie_cells(_scale: Scale) -> list[Cell]:
    """Figure 14: a film over each controller."""
    return [
        Cell(
            MOVIE,
            (f"flows.film.transport.congestion={congestion}",),
            0,
            (("controller", controller),),
            0.3,
        )
        for controller, congestion in CONTROLLERS.items()
    ]


def high_speed_cells(scale: Scale) -> list[Cell]:
    """One transfer on 10 Gbit/s."""
    duration_s, from_s = (30, 25) if scale == "quick" else (120, 60)
    overrides = (f'duration="{duration_s} s"', f'measure.from="{from_s} s"')
    return [Cell(HIGH_SPEED, overrides, 0, (), duration_s * 0.2)]


def homogeneous_cells(scale: Scale) -> list[Cell]:
    """Transfers over PERT alone and over RENO alone."""
    duration_s, seeds = (160, range(2)) if scale == "quick" else (1000, range(20))
    return [
        Cell(
            HOMOGENEOUS,
            (
                f'duration="{duration_s} s"',
                f"flows.ftp.transport.congestion={CONTROLLERS[controller]}",
            ),
            seed,
            (("controller", controller),),
            duration_s / 500,
        )
        for controller, seed in product(("pert", "reno"), seeds)
    ]


def acknowledgement_cells(_scale: Scale) -> list[Cell]:
    """Algorithms 1 to 3: a file with two losses."""
    return [Cell(ACKNOWLEDGEMENT, (), 0, (), 0.05)]


def scaling(cells: Callable[[Scale], Sequence[Cell]]) -> Callable[[Scale], str]:
    """A description of the runs: cells, seeds and their length, beside the full grid's."""

    def words(scale: Scale) -> str:
        run, full = cells(scale), cells("full")
        if list(run) == list(full):
            return f"In full: {len(full)} runs of {_length(full)}. The thesis gives no seeds."
        return (
            f"{len(run)} runs of {_length(run)}, {_seed_count(run)}; in full {len(full):,} of"
            f" {_length(full)}, {_seed_count(full)}. The thesis gives neither."
        )

    return words


def _length(cells: Sequence[Cell]) -> str:
    found = [one for one in cells[0].overrides if one.startswith("duration=")]
    return found[0].partition("=")[2].strip('"') if found else "the scenario's length"


def _seed_count(cells: Sequence[Cell]) -> str:
    count = len({cell.seed for cell in cells})
    return "1 seed" if count == 1 else f"{count} seeds"
