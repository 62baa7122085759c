"""The cells that are run with real packets, over the kernel's TCP, and their settings.

They run in real time: in quick a run is as short as is still meaningful, and flows start sooner.
Each is also simulated at the same length (`with_twins`).
"""

from itertools import product

from ontempo.lab.beside import with_twins
from ontempo.lab.claims import Scale
from ontempo.lab.real_time import Emulation
from ontempo.lab.study import Cell

from .extensions import ACKNOWLEDGEMENT, HOMOGENEOUS
from .grid import DELAYS, QUEUE_SHARE, VIDEO

THESIS_PERT = "pert compete=alpha"
"""The kernel's PERT by the thesis' letter: beside loss-based flows it is not Reno."""

WITH_PERT = Emulation(controls=(THESIS_PERT,))
ALONE = Emulation()
"""Runs that need the kernel's PERT, and runs that do not."""

VIDEOS, RTT_MS = 29, 100
"""Figure 9's one setting: T/μ between 1.0 and 1.4, where the paper has PERT above CUBIC."""


def _ways(controller: str) -> Emulation:
    return WITH_PERT if controller == "pert" else ALONE


def _spans(duration_s: int, from_s: int) -> tuple[str, ...]:
    return (f'duration="{duration_s} s"', f'measure.from="{from_s} s"')


def _starts(groups: tuple[str, ...], within_s: int) -> tuple[str, ...]:
    return tuple(
        f'flows.{group}.start={{ low = "0 s", high = "{within_s} s" }}' for group in groups
    )


def queue_emulated(scale: Scale) -> list[Cell]:
    """Figure 2."""
    duration_s, from_s, within_s, seeds = (24, 10, 3, 1) if scale == "quick" else (300, 30, 10, 5)
    overrides = (
        *_spans(duration_s, from_s),
        *_starts(("pert", "reno"), within_s),
        'flows.pert.transport.congestion="pert"',
    )
    return with_twins(
        [
            Cell(QUEUE_SHARE, overrides, seed, (), float(duration_s), WITH_PERT)
            for seed in range(seeds)
        ]
    )


def video_emulated(scale: Scale) -> list[Cell]:
    """Figure 9 at one setting, with packets of 1,000 bytes."""
    duration_s, from_s, within_s, seeds = (32, 8, 4, 1) if scale == "quick" else (700, 60, 20, 5)
    access_ms, bottleneck_ms = DELAYS[RTT_MS]
    fixed = (
        *_spans(duration_s, from_s),
        *_starts(("video", "ftp", "http"), within_s),
        f'topology.access.delay="{access_ms} ms"',
        f'topology.bottleneck.delay="{bottleneck_ms} ms"',
        f"flows.video.count={VIDEOS}",
        f"flows.ftp.count={VIDEOS}",
    )
    labels = (("packet", 1000), ("rtt_ms", RTT_MS), ("flows", VIDEOS))
    return with_twins(
        [
            Cell(
                VIDEO,
                (*fixed, f'flows.video.transport.congestion="{controller}"'),
                seed,
                (("controller", controller), *labels),
                float(duration_s),
                _ways(controller),
            )
            for controller, seed in product(("pert", "cubic", "reno"), range(seeds))
        ]
    )


def homogeneous_emulated(scale: Scale) -> list[Cell]:
    """Transfers over PERT alone and over RENO alone."""
    duration_s, from_s, within_s, seeds = (20, 8, 3, 1) if scale == "quick" else (300, 60, 20, 5)
    return with_twins(
        [
            Cell(
                HOMOGENEOUS,
                (
                    *_spans(duration_s, from_s),
                    *_starts(("ftp",), within_s),
                    f'flows.ftp.transport.congestion="{controller}"',
                ),
                seed,
                (("controller", controller),),
                float(duration_s),
                _ways(controller),
            )
            for controller, seed in product(("pert", "reno"), range(seeds))
        ]
    )


def acknowledgement_emulated(_scale: Scale) -> list[Cell]:
    """The file with two losses, received by Linux."""
    return [Cell(ACKNOWLEDGEMENT, ('duration="6 s"',), 0, (), 6.0, ALONE)]
