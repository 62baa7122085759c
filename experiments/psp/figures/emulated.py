"""The spacing at the receiver with real packets: the kernel's UDP beside the kernel's TCP."""

from dataclasses import replace

from ontempo.lab.beside import beside_twins, with_twins
from ontempo.lab.claims import Check, Finding, Scale, World
from ontempo.lab.judging import judged
from ontempo.lab.real_time import Emulation
from ontempo.lab.study import Cell, Results

from ..grid import ARRIVED_US, MIXED, TRANSMISSION_US
from .with_tcp import ARRIVALS, gaps_us, judge_arrivals, spread

PUBLISHED_US = 1500
SPACINGS_US = (PUBLISHED_US, 2000, 3000, 5000)
"""What is set; from 1614 μs, of start to start, on 16 agents leave TCP room."""

WITHIN = 0.01
"""Tolerance of the mean spacing, as in the simulation."""

AGENTS = 16
"""In mixed.toml."""

KEPT_UP = 0.99
"""Share of the packets due at the spacing that agents must send for a check to count."""


def cells(scale: Scale) -> list[Cell]:
    """The mixed run at each spacing, with the arrivals at one sink."""
    duration_s, since_s = (5, 2) if scale == "quick" else (500, 5)
    return with_twins(
        [
            Cell(
                MIXED,
                (
                    f'duration="{duration_s} s"',
                    f'measure.from="{since_s} s"',
                    f'flows.psa.transport.spacing="{us} us"',
                    'measure.packets=["right -> psa.0.sink"]',
                ),
                0,
                (("spacing_us", us),),
                float(duration_s),
                Emulation(),
            )
            for us in SPACINGS_US
        ]
    )


def judge(results: Results) -> Finding:
    """The published setting as the simulation is judged, and the mean at the others."""
    at = {us: _at(results, us) for us in SPACINGS_US}
    finding = judge_arrivals(at[PUBLISHED_US])
    kept_up = {us: kept(part, us) for us, part in at.items()}
    shares = "; ".join(f"{share:.1%} at {us} μs" for us, share in kept_up.items())
    checks = [
        _if_kept_up(check, kept_up[us])
        for us, found in (
            (PUBLISHED_US, finding.checks),
            *((us, [_mean(at[us], us)]) for us in SPACINGS_US[1:]),
        )
        for check in found
    ]
    sent = f"Of the packets that the spacing asks for, agents sent {shares}."
    return Finding(finding.figures, checks, [*finding.notes, sent])


def _at(results: Results, us: int) -> Results:
    return results.of(cell for cell in results.cells if dict(cell.labels)["spacing_us"] == us)


def kept(results: Results, us: int) -> float:
    """Share of the packets due at the spacing that were sent."""
    (cell,) = results.cells
    values = dict(one.split("=", 1) for one in cell.overrides)
    ends = (values[name].strip('"').removesuffix(" s") for name in ("duration", "measure.from"))
    until, since = map(float, ends)
    sent = results.table("flows").filter(group="psa")["sent_packets"].sum()
    return float(sent) * (us + TRANSMISSION_US) * 1e-6 / AGENTS / (until - since)


def _if_kept_up(check: Check, kept_up: float) -> Check:
    """The check, undecided if this machine did not send at the requested spacing."""
    if kept_up >= KEPT_UP:
        return check
    text = f"{check.measured}; cannot tell: this machine was too busy, agents sent {kept_up:.0%}"
    return replace(check, measured=f"{text} of what the spacing asks for", ok=None)


def _mean(results: Results, us: int) -> Check:
    gaps = [gap for run in gaps_us(results) for gap in run]
    meant, (mean, deviation) = us + TRANSMISSION_US - ARRIVED_US, spread(gaps)
    return judged(
        f"Set to {us} μs, the mean spacing is that and what a packet gains at the gateway.",
        f"{meant:.1f} μs, as set",
        lambda: f"{mean:.1f} μs, deviation {deviation:.1f} μs",
        {"packets at the receiver": mean},
        lambda: abs(mean - meant) <= WITHIN * meant,
    )


def _scaling(scale: Scale) -> str:
    run = "5 of 500 s" if scale == "quick" else "500 s, as published,"
    return f"{run} at each of {len(SPACINGS_US)} spacings; only 1500 μs was published."


SPACING = replace(
    ARRIVALS,
    id="psp/spacing-emulated",
    row="spacing",
    world=World.EMULATION,
    cells=cells,
    judge=beside_twins(judge),
    scaling=_scaling,
)
