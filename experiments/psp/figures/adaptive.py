"""Figures 5 and 16 to 19: agents whose spacing adapts."""

import math

import polars as pl

from ontempo.lab.claims import Cause, Check, Claim, Finding, Scale, World
from ontempo.lab.judging import is_above, judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.statistics import Interval, mean_interval, mean_of_runs
from ontempo.lab.study import Results

from ..grid import SEEDS, adaptive_cells, background_cells, delayed_cells
from .curves import loss_of_sent

SEED = "seed"
LINK_MBIT_S = 155
SETTLED_S = 20
"""From when on a run counts as settled."""
SMALL = 0.1
"""A small oscillation: a standard deviation of at most a tenth of the mean."""
ALIKE = 0.1
"""Rates are alike where they differ by at most a tenth of the larger."""

STALE = Cause(
    "stale reports. A report tells of packets sent one to two round trips ago: a loss doubles the"
    " spacing again before the first doubling shows, and it shrinks by 2 μs in each round trip from"
    " there. With fresh feedback, over 20 seeds, two damped agents' deviation is 0.070 of the mean"
    " instead of 0.267, below that of undamped ones (0.124 instead of 0.222).",
    "python -m experiments.psp.readings damping",
)
NEAR_ITS_LINK = Cause(
    "two agents fill 155 Mbit/s at spacings of 33 μs, beside 114 that a packet takes: doubling a"
    " shorter one hardly slows an agent, doubling a longer one does. So the faster comes close to"
    " its own link's 100 Mbit/s: over 20 seeds it sends 89 (undamped) and 77 (damped), with fresh"
    " feedback 90 and 88. It is not damping: undamped agents are further apart, 58 % (median)"
    " against 21. Nor is it only that agents stay in step at a full queue: with host noise damped"
    " ones are 16 % apart, with fresh feedback, too, 22, and at most 43 to 44.",
    "python -m experiments.psp.readings damping",
)
TIME_AXIS = Axis("Time (s)", (0, 100), hover="%{x} s")
SEND_AXIS = Axis("Sending rate (Mbit/s)", format=".3~f")
SETUP_NOTE = (
    "The paper does not say what else is on the network of figure 5: taken as two agents of a"
    " kind, as in figures 16 and 17, for one alone never loses a packet. Sending rates are those"
    " of intervals of 250 ms, about three round trips."
)


def sending(results: Results) -> pl.DataFrame:
    """The sending rate of each agent over time, in Mbit/s."""
    labels = [
        name for name in ("controller", "delayed") if name in results.table("samples").columns
    ]
    of = [*labels, SEED, "subject"]
    return (
        results.table("samples")
        .filter(quantity="sent_bytes")
        .sort(*of, "time_s")
        .with_columns(
            (pl.col("value").diff().over(of) * 8 / 1e6 / pl.col("time_s").diff().over(of)).alias(
                "mbit"
            )
        )
        .drop_nulls("mbit")
    )


def line(table: pl.DataFrame, subject: str) -> dict[float, Interval]:
    """One agent's rate over time, of the first seed."""
    part = table.filter(subject=subject, seed=0)
    return {row["time_s"]: exact(row["mbit"]) for row in part.iter_rows(named=True)}


def variation(table: pl.DataFrame) -> Interval:
    """The coefficient of variation of an agent's rate once settled: a run's mean over agents."""
    settled = table.filter(pl.col("time_s") > SETTLED_S)
    rate = pl.col("mbit")
    agents = settled.group_by(SEED, "subject").agg((rate.std() / rate.mean()).alias("cv"))
    return mean_of_runs(agents.group_by(SEED).agg(pl.col("cv").mean()).sort(SEED), "cv")


def unlikeness(table: pl.DataFrame, since_s: float) -> list[float]:
    """How far apart the two agents' mean rates are, by seed, as a fraction of the larger."""
    means = (
        table.filter(pl.col("time_s") > since_s)
        .group_by(SEED, "subject")
        .agg(pl.col("mbit").mean())
        .group_by(SEED)
        .agg(((pl.col("mbit").max() - pl.col("mbit").min()) / pl.col("mbit").max()).alias("apart"))
    )
    return sorted(means["apart"].to_list())


def judge_damping(results: Results) -> Finding:
    """Damping makes the oscillation smaller and the throughput larger."""
    table = sending(results)
    plain, damped = (table.filter(controller=name) for name in ("psp", "psp-damped"))
    cv = {"psp": variation(plain), "psp-damped": variation(damped)}
    flows = results.table("flows").group_by("controller").agg(pl.col("goodput_bps").sum())
    goodput = {row["controller"]: row["goodput_bps"] for row in flows.iter_rows(named=True)}
    less, more = (goodput.get(name, math.nan) for name in ("psp", "psp-damped"))
    gain = more / less - 1 if less else math.nan
    checks = [
        judged(
            "Damped PSP oscillates less.",
            "smaller",
            lambda: (
                f"standard deviation over mean: PSP {number(cv['psp'].value)},"
                f" damped {number(cv['psp-damped'].value)}"
            ),
            cv,
            lambda: is_above(cv["psp"], cv["psp-damped"]),
            STALE,
        ),
        judged(
            "Damping raises throughput.",
            "by 10 %",
            lambda: f"by {gain:.1%}",
            {"the throughput of both": gain},
            lambda: 0.05 <= gain <= 0.15,
            STALE,
        ),
    ]
    figure = Figure(
        "Sending rate of one agent over time, PSP and damped PSP.",
        TIME_AXIS,
        SEND_AXIS,
        [
            View(
                "",
                [
                    Series("PSP", "reno", line(plain, "first.0"), markers=False),
                    Series("Damped PSP", "pert", line(damped, "first.0"), markers=False),
                ],
            )
        ],
    )
    return Finding([figure], checks, [SETUP_NOTE])


def judge_two(results: Results) -> Finding:
    """Two agents started together: steady, and alike."""
    table = sending(results).filter(controller="psp-damped")
    cv, apart = variation(table), unlikeness(table, SETTLED_S)
    checks = [
        _small("Each makes small oscillations around its rate.", cv),
        _alike("Both send at the same rate.", apart),
    ]
    return Finding([_over_time(table), _fairness(table)], checks, [SETUP_NOTE])


def judge_delayed(results: Results) -> Finding:
    """The second agent starts later, and they meet."""
    table = sending(results)
    late = table.filter(pl.col("time_s").is_between(10, 30))
    cv = variation(table.filter(pl.col("time_s") > 80))
    checks = [
        _alike("In the last 20 of 100 s both send at the same rate.", unlikeness(table, 80)),
        _small("In the end each makes small oscillations.", cv),
    ]
    return Finding([_over_time(table), _fairness(late)], checks)


def judge_background(results: Results) -> Finding:
    """Two agents and ten TCPs: they give way, and stay alike."""
    table = sending(results)
    flows = results.table("flows").with_columns(loss_of_sent())
    losses = mean_interval(flows.filter(pl.col("group") != "tcp")["loss_rate"])
    rate = mean_interval(table.filter(pl.col("time_s") > SETTLED_S)["mbit"]).value
    checks = [
        judged(
            "The agents respond to congestion.",
            "readily",
            lambda: (
                f"they send {number(rate)} Mbit/s, of {number(LINK_MBIT_S / 2)} that are half the"
                f" link, and lose {losses.value:.2%} of their packets"
            ),
            {"what the agents send": rate, "their losses": losses},
            lambda: rate < LINK_MBIT_S / 2 and losses.value < 0.05,
        ),
        _alike("Both send at very similar rates.", unlikeness(table, SETTLED_S)),
    ]
    return Finding([_over_time(table)], checks)


def _small(sentence: str, cv: Interval) -> Check:
    return judged(
        sentence,
        "small",
        lambda: f"standard deviation {cv.value:.1%} of the mean",
        {"the agents' rates": cv},
        lambda: cv.value <= SMALL,
        STALE,
    )


def _alike(sentence: str, apart: list[float]) -> Check:
    ends = {"the least difference": min, "the largest difference": max}
    return judged(
        sentence,
        "the same",
        lambda: f"{apart[0]:.1%} to {apart[-1]:.1%} apart, over {len(apart)} seeds",
        {name: end(apart) if apart else math.nan for name, end in ends.items()},
        lambda: apart[-1] <= ALIKE,
        NEAR_ITS_LINK,
    )


def _over_time(table: pl.DataFrame) -> Figure:
    lines = [
        Series("First", "pert", line(table, "first.0"), markers=False),
        Series("Second", "cubic", line(table, "second.0"), "dash", markers=False),
    ]
    return Figure("Sending rates of two agents over time.", TIME_AXIS, SEND_AXIS, [View("", lines)])


def _fairness(table: pl.DataFrame) -> Figure:
    first, second = (line(table, f"{name}.0") for name in ("first", "second"))
    points = {first[at].value: second[at] for at in first if at in second}
    top = max([*points, *(point.value for point in points.values())], default=1.0)
    fair = {0.0: exact(0.0), top: exact(top)}
    return Figure(
        "Sending rate of the second agent against that of the first.",
        Axis("First agent (Mbit/s)", format=".3~f", hover="first %{x} Mbit/s"),
        Axis("Second agent (Mbit/s)", format=".3~f"),
        [
            View(
                "",
                [
                    Series("Rates", "pert", points),
                    Series("Fairness line", "reno", fair, "dash", markers=False),
                ],
            )
        ],
    )


def _scaling(scale: Scale) -> str:
    return f"100 s, as published; {len(SEEDS[scale])} seeds of other starts."


FIG5 = Claim(
    id="psp/fig5",
    headline="Damped PSP oscillates less.",
    title="PSP and damped PSP",
    world=World.SIMULATION,
    published="Over 100 s damped PSP oscillates less, and its throughput is 10 % higher.",
    expectation="A smaller standard deviation over mean; 5 to 15 % more throughput.",
    cells=lambda scale: adaptive_cells(scale, ("psp", "psp-damped")),
    judge=judge_damping,
    scaling=_scaling,
)

FIG16_17 = Claim(
    id="psp/fig16-17",
    headline="Each makes small oscillations around its rate.",
    title="Two adaptive agents, started together",
    world=World.SIMULATION,
    published="Each of two adaptive agents makes small oscillations around its ideal rate; the"
    " two rates lie on the fairness line.",
    expectation="A standard deviation of at most 10 % of the mean; means within 10 %.",
    cells=adaptive_cells,
    judge=judge_two,
    scaling=_scaling,
)

FIG18 = Claim(
    id="psp/fig18",
    headline="In the last 20 of 100 s both send at the same rate.",
    title="Two adaptive agents, one 10 s later",
    world=World.SIMULATION,
    published="Started 10 s apart, both change their rates fairly and settle at small"
    " oscillations.",
    expectation="From 80 to 100 s the means are within 10 %, the oscillation within 10 %.",
    cells=delayed_cells,
    judge=judge_delayed,
    scaling=_scaling,
)

FIG19 = Claim(
    id="psp/fig19",
    headline="The agents respond to congestion.",
    title="Two adaptive agents and ten TCPs",
    world=World.SIMULATION,
    published="With ten TCPs in the background the agents respond readily to congestion, and"
    " their rates are very similar.",
    expectation="Less than half the link each, at a loss below 5 %; means within 10 %.",
    cells=background_cells,
    judge=judge_background,
    scaling=_scaling,
)
