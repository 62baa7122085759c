"""Figures 10 to 15, and the spacing at the receiver: agents beside TCP."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, stdev

import polars as pl

from ontempo.lab.claims import Cause, Claim, Finding, Scale, World
from ontempo.lab.judging import at, every, is_above, judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.statistics import quantiles
from ontempo.lab.study import Results

from ..grid import (
    ARRIVAL_SEEDS,
    LINK_MBIT_S,
    MIXED,
    PACKET_BITS,
    PSA,
    SINGLE,
    TRANSMISSION_US,
    Scaling,
    arrival_cells,
    mixed_cells,
    psa_cells,
    single_cells,
)
from .curves import (
    EACH_NOTE,
    best,
    both,
    by_spacing,
    least_without_loss,
    lost,
    microseconds,
    received,
)

BEST_US = (1000.0, 1050.0)
"""Where agents are to receive most."""

TCP_MBIT_S = 6.57
LEFT_MBIT_S = LINK_MBIT_S / 16 - PACKET_BITS / (5000 + TRANSMISSION_US)
"""What agents spaced by 5000 μs leave each of 16 TCPs."""

LEVELS = (0.05, 0.95)
"""Between these quantiles of single flows the published one is one of them: nine in ten."""

NEAR = 0.05
"""How far from a published throughput a measured one may be, as a fraction."""

OVERFULL = Cause(
    "16 agents of 11 Mbit/s are 176 Mbit/s, more than the link's 155. The published figures are of"
    " one particular agent; but with spacing from the end of a packet, as in figure 3, none can"
    " send more than 10.3 Mbit/s at 1000 μs. From start to start it can, and which agents lose"
    " depends on when they started.",
    "python -m experiments.psp.readings agents",
)


PHASES = Cause(
    "the wait behind other packets varies by up to ten packets of 74 μs, and a lost packet leaves a"
    " gap of two: how far depends on how senders happen to be in step, which differs from run to"
    " run.",
    "python -m experiments.psp.readings arrivals",
)


def near(value: float, published: float) -> bool:
    """Whether a throughput is the published one."""
    return abs(value - published) <= NEAR * published


def judge_agents(results: Results) -> Finding:
    """Where agents beside TCP do best."""
    table = _of(results, MIXED).filter(group="psa")
    alone = lost(_of(results, PSA))
    rates, losses = received(table), lost(table)
    peak, free = best(rates), least_without_loss(losses)
    there, not_there = by_spacing(rates, BEST_US), by_spacing(losses, BEST_US)
    checks = [
        judged(
            "Agents receive most at 1000 to 1050 μs.",
            "1000 to 1050 μs",
            lambda: microseconds(peak),
            {
                "the place of the largest": peak,
                **by_spacing(rates, results.asked("spacing_us", window=20)),
            },
            lambda: BEST_US[0] <= peak <= BEST_US[-1],
            OVERFULL,
        ),
        judged(
            "There each receives 11 Mbit/s.",
            "11 Mbit/s",
            lambda: "; ".join(f"{number(rate.value)} Mbit/s at {us}" for us, rate in there.items()),
            there,
            lambda: all(near(rate.value, 11) for rate in there.values()),
            OVERFULL,
        ),
        judged(
            "There nothing is lost.",
            "0 %",
            lambda: (
                "; ".join(f"{loss.value:.2%} at {us}" for us, loss in not_there.items())
                + f"; none from {microseconds(free)} on"
            ),
            not_there,
            lambda: all(loss.value < 0.005 for loss in not_there.values()),
            OVERFULL,
        ),
    ]
    figures = both(
        "one of 16 agents beside 16 TCPs of window 20",
        [Series("Received", "pert", rates)],
        [Series("", "pert", losses)],
    )
    without = "; ".join(
        f"{loss.value:.2%} at {us}" for us, loss in by_spacing(alone, BEST_US).items()
    )
    tested = (
        f"The same 16 agents without any TCP lose {without}, and nothing from"
        f" {microseconds(least_without_loss(alone))} on: TCP is not what takes their bandwidth."
    )
    return Finding(figures, checks, [EACH_NOTE, tested])


def _of(results: Results, scenario: Path) -> pl.DataFrame:
    """The flows of the cells of one scenario."""
    return results.of(cell for cell in results.cells if cell.scenario == scenario).table("flows")


def judge_tcp(results: Results) -> Finding:
    """TCP's window of 20 packets bounds it, small spacings starve it."""
    table = results.table("flows").filter(group="tcp", window=20)
    rates, losses = received(table), lost(table)
    most = best(rates)
    spacings = results.asked("spacing_us", window=20)
    starved = by_spacing(rates, [us for us in spacings if us <= 500])
    last = at(rates, 5000)
    checks = [
        judged(
            "A TCP never exceeds 2.7 Mbit/s.",
            "2.7 Mbit/s",
            lambda: f"{number(rates[most].value)} Mbit/s at most, at {microseconds(most)}",
            {"the largest": at(rates, most), **by_spacing(rates, spacings)},
            lambda: rates[most].value <= 2.7 * (1 + NEAR / 5),
            "20 packets of 1,400 bytes in 84 ms are 2.67 Mbit/s.",
        ),
        judged(
            "It comes up to that where agents leave room.",
            "2.7 Mbit/s",
            lambda: f"{number(last.value)} Mbit/s at 5000 μs",
            {"TCP at 5000 μs": last},
            lambda: near(last.value, 2.7),
        ),
        judged(
            "At very small spacings TCP starves.",
            "no bandwidth",
            lambda: "; ".join(f"{number(rate.value)} at {us}" for us, rate in starved.items()),
            starved,
            lambda: all(rate.value < 0.1 for rate in starved.values()),
        ),
    ]
    figures = both(
        "one of 16 TCPs of window 20 beside 16 agents",
        [Series("TCP", "reno", rates)],
        [Series("", "reno", losses)],
    )
    return Finding(figures, checks, [EACH_NOTE])


def judge_large_window(results: Results) -> Finding:
    """With a window of 800 packets TCP takes what agents leave."""
    table = _labelled(results, "window").table("flows").filter(window=800)
    single = _labelled(results, "single").table("flows")
    ones = _of_group(single, "tcp")["goodput_bps"].to_list() if single.height else []
    lowest, highest = quantiles([one / 1e6 for one in ones], LEVELS)
    tcp, psa = received(table.filter(group="tcp")), received(table.filter(group="psa"))
    losses = lost(table.filter(group="tcp"))
    agent = at(psa, 5000)
    growing = by_spacing(tcp, (1000, 2000, 5000))
    checks = [
        judged(
            "At 5000 μs an agent receives its rate.",
            "2.23 Mbit/s",
            lambda: f"{number(agent.value)} Mbit/s",
            {"an agent at 5000 μs": agent},
            lambda: near(agent.value, 2.23),
        ),
        judged(
            "At 5000 μs one TCP receives 6.57 Mbit/s.",
            "6.57 Mbit/s",
            lambda: (
                f"nine of ten single TCPs {number(lowest)} to {number(highest)} Mbit/s, mean"
                f" {number(fmean(ones) / 1e6)} of {number(LEFT_MBIT_S)} left to each"
            ),
            {"the 5th percentile": lowest, "the 95th percentile": highest},
            lambda: lowest <= TCP_MBIT_S <= highest,
        ),
        judged(
            "TCP's throughput grows with the agents' spacing.",
            "grows",
            lambda: "; ".join(f"{number(rate.value)} at {us}" for us, rate in growing.items()),
            growing,
            lambda: every(is_above(b, a) for a, b in pairwise(growing.values())),
        ),
    ]
    figures = both(
        "one of 16 TCPs of window 800, and of 16 agents",
        [Series("TCP", "reno", tcp), Series("Agent", "pert", psa, "dash")],
        [Series("TCP", "reno", losses)],
    )
    return Finding(figures, checks, [EACH_NOTE])


def _labelled(results: Results, label: str) -> Results:
    """The cells that have a label."""
    return results.of(cell for cell in results.cells if label in dict(cell.labels))


def _of_group(table: pl.DataFrame, group: str) -> pl.DataFrame:
    return table.filter(pl.col("group") == group)


def spread(gaps: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; not numbers where there are less than two."""
    return (fmean(gaps), stdev(gaps)) if len(gaps) > 1 else (math.nan, math.nan)


def gaps_us(results: Results) -> list[pl.Series]:
    """The spacing of packets at the receiver in each run: from the end of one to the next's start.

    A packet's own time on the gateway's link is no part of it (fig. 3).
    """
    own = pl.col("size_bytes") * 8 / LINK_MBIT_S
    table = results.table("packets").sort("seed", "time_s")
    gaps = table.select("seed", gap=pl.col("time_s").diff().over("seed") * 1e6 - own).drop_nulls()
    return [part["gap"] for part in gaps.partition_by("seed", maintain_order=True)]


def judge_arrivals(results: Results) -> Finding:
    """Packets spaced by 1500 us still are when they arrive."""
    runs = [part for part in gaps_us(results) if len(part) > 1]
    spreads = [spread(part.to_list()) for part in runs]
    mean, deviation = (
        median(values) if spreads else math.nan
        for values in ([one[place] for one in spreads] for place in (0, 1))
    )
    gaps = pl.concat(runs) if runs else pl.Series("gap", [], pl.Float64)
    clumped = int((gaps < 750).sum())
    counted = float(clumped) if len(gaps) else None
    every = f"the median of {len(runs)} runs" if len(runs) > 1 else "one run"

    def ends(place: int, digits: int) -> str:
        values = [one[place] for one in spreads]
        return f"{min(values):.{digits}f} to {max(values):.{digits}f}"

    checks = [
        judged(
            "The mean spacing at the receiver.",
            "1540.6 μs",
            lambda: f"{mean:.1f} μs, {every}; {ends(0, 1)}",
            {"packets at the receiver": mean},
            lambda: abs(mean - 1540.6) <= 15.4,
        ),
        judged(
            "Its standard deviation.",
            "64.75 μs",
            lambda: f"{deviation:.2f} μs, {every}; {ends(1, 2)}",
            {"packets at the receiver": deviation},
            lambda: abs(deviation - 64.75) <= 6.5,
            PHASES,
        ),
        judged(
            "Packets stay spaced out.",
            "not clumped",
            lambda: f"{clumped / len(gaps):.2%} of gaps are below half of 1500 μs",
            {"packets at the receiver": counted},
            lambda: clumped == 0,
        ),
    ]
    counts = (gaps / 20).floor().value_counts().sort("gap")
    points = {
        float(row["gap"]) * 20 + 10: exact(row["count"] / len(gaps))
        for row in counts.iter_rows(named=True)
    }
    figure = Figure(
        "Share of gaps between packets at the receiver, by length in steps of 20 μs.",
        Axis("Gap between packets (μs)", hover="%{x} μs"),
        Axis("Share of gaps", format=".2%"),
        [View("", [Series("", "pert", points, markers=False)])],
    )
    return Finding([figure], checks)


def _scaling(scale: Scale) -> str:
    one = "20 of 500 s" if scale == "quick" else "500 s, as published"
    return f"{one}; {len(ARRIVAL_SEEDS)} draws of the starts."


def _large_window_scaling(scale: Scale) -> str:
    return f"{Scaling(20)(scale)} Single TCPs: 500 s, {len(SINGLE[scale])} draws of the starts."


FIG10_11 = Claim(
    id="psp/fig10-11",
    headline="Agents receive most at 1000 to 1050 μs.",
    title="16 agents beside 16 TCPs: the agents",
    world=World.SIMULATION,
    published="An agent among 16, beside 16 TCPs, does best at 1000 to 1050 μs: 11 Mbit/s, no"
    " loss.",
    expectation="The same, which physics does not allow: 16 times 11 Mbit/s exceed 155.",
    cells=lambda scale: [*mixed_cells(scale, 20), *psa_cells(scale, (16,))],
    judge=judge_agents,
    scaling=Scaling(20),
)

FIG12_13 = Claim(
    id="psp/fig12-13",
    headline="A TCP never exceeds 2.7 Mbit/s.",
    title="16 agents beside 16 TCPs: TCP with a window of 20 packets",
    world=World.SIMULATION,
    published="TCP does not exceed 2.7 Mbit/s even where agents leave room, for its window is"
    " 20 packets; small spacings starve it.",
    expectation="The same; starved is below 0.1 Mbit/s, up to 500 μs.",
    cells=lambda scale: mixed_cells(scale, 20),
    judge=judge_tcp,
    scaling=Scaling(20),
)

FIG14_15 = Claim(
    id="psp/fig14-15",
    headline="At 5000 μs an agent receives its rate.",
    title="16 agents beside 16 TCPs: TCP with a window of 800 packets",
    world=World.SIMULATION,
    published="With a large window TCP takes its share: at 5000 μs an agent receives 2.23 and a"
    " TCP 6.57 Mbit/s.",
    expectation="An agent the same within 5 %. The figure is of one TCP: 6.57 Mbit/s lies where"
    " nine of ten single TCPs do.",
    cells=lambda scale: [*mixed_cells(scale, 800), *single_cells(scale)],
    judge=judge_large_window,
    scaling=_large_window_scaling,
)

ARRIVALS = Claim(
    id="psp/spacing",
    headline="The mean spacing at the receiver.",
    title="Spacing of packets at the receiver",
    world=World.SIMULATION,
    published="Sent with a spacing of 1500 μs beside 16 TCPs, packets have one of 1540.6 μs at the"
    " receiver on average, with a standard deviation of 64.75 μs.",
    expectation="The mean within 1 %, the deviation within 10 %; no clumps. Spacing is from the end"
    " of a packet to the start of the next (figure 3), and a packet takes 114 μs before the gateway"
    " and 74 μs behind it: 1500 + 114.24 - 73.70 = 1540.54 μs.",
    cells=arrival_cells,
    judge=judge_arrivals,
    scaling=_scaling,
)
