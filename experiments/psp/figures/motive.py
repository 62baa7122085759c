"""The paper's motive: queue disciplines beside plain and spaced UDP, and its headline."""

import math
from itertools import pairwise

import polars as pl

from ontempo.lab.claims import Cause, Check, Claim, Finding, Scale, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import Interval, mean_of_runs
from ontempo.lab.study import Results

from ..grid import (
    ADAPTIVE_MEDIA,
    HEADLINE_FROM_S,
    HEADLINE_S,
    HEADLINE_SEEDS,
    LINK_MBIT_S,
    MEDIA,
    PLAIN_S,
    QUEUES,
    aqm_cells,
    headline_cells,
)
from .curves import loss_of_sent

PLACES = {float(place): name for place, name in enumerate(QUEUES)}
COLOURS = {"plain UDP": "step-0", "PSA, 1500 μs": "step-1", "PSP": "step-3", "damped PSP": "step-4"}
LOSES_LESS = "Packet spacing with feedback loses less."
PARTS_S = (10, 30, 100, 200, 300, 500)
"""Parts of a run, for what is sent in each."""
FAIR_SHARE = 0.5
"""Of 8 media flows and 8 TCPs, TCP's fair share of the bandwidth."""
MIN_SHARE = 0.45
"""Share of the bandwidth that counts as TCP's fair share."""


def by_queue(table: pl.DataFrame, value: str) -> dict[str, dict[float, Interval]]:
    """A value for each kind of media and each discipline."""
    return {
        media: {
            place: mean_of_runs(table.filter(media=media, queue=queue), value)
            for place, queue in PLACES.items()
        }
        for media in MEDIA
    }


def judge_aqm(results: Results) -> Finding:
    """Under every discipline: losses of the media, and TCP's remaining share."""
    flows = results.table("flows")
    losses = by_queue(flows.filter(group="media").with_columns(loss_of_sent()), "loss_rate")
    bits = flows.group_by("queue", "media", "seed").agg(
        (
            pl.col("goodput_bps").filter(pl.col("group") == "tcp").sum()
            / pl.col("goodput_bps").sum()
        ).alias("share")
    )
    shares = by_queue(bits, "share")
    goodput = by_queue(flows.filter(group="media"), "goodput_bps")
    checks = [check for queue in PLACES for check in _under(queue, losses, shares)]
    axis = Axis("Queue discipline", ticks=PLACES, hover="%{x}")
    figures = [
        Figure(
            f"{what} under each discipline, by kind of media.",
            axis,
            y,
            [View("", [Series(media, COLOURS[media], of[media]) for media in MEDIA])],
        )
        for what, y, of in (
            ("Loss of the media's packets", Axis("Packet loss of the media", format=".1%"), losses),
            ("TCP's share of the bandwidth", Axis("TCP's share", (0, 1), format=".0%"), shares),
            ("Throughput of a media flow", Axis("Media throughput (bit/s)", format=".3s"), goodput),
        )
    ]
    notes = [
        "The paper measures no queue discipline; this tests what it gives as its motive, with 8"
        " media flows and 8 TCPs of window 800 and a buffer of 300 packets.",
        "Under FQ-CoDel plain UDP gets what TCP leaves unused: CoDel halves a Reno window at a wait"
        " of 5 ms, too early to fill 9.7 Mbit/s over 84 ms. With a target of 84 ms each flow has"
        " its share (`python -m experiments.psp.readings queues`).",
    ]
    return Finding(figures, checks, notes)


def _under(
    place: float,
    losses: dict[str, dict[float, Interval]],
    shares: dict[str, dict[float, Interval]],
) -> list[Check]:
    queue = PLACES[place]
    udp, psp = losses["plain UDP"][place].value, losses["damped PSP"][place].value
    tcp = shares["damped PSP"][place].value
    return [
        judged(
            f"Under {queue} PSP loses far less than plain UDP.",
            "far less (a tenth or less)",
            lambda: f"PSP {psp:.2%}, plain UDP {udp:.1%}",
            # Where plain UDP loses nothing, there is nothing to lose less of.
            {"the loss of PSP": psp, "a loss of plain UDP": udp or None},
            lambda: psp <= udp / 10,
        ),
        judged(
            f"Under {queue} PSP leaves TCP its share.",
            f"its {FAIR_SHARE:.0%}, or more",
            lambda: (
                f"TCP has {tcp:.0%} beside damped PSP,"
                f" {shares['plain UDP'][place].value:.0%} beside plain UDP"
            ),
            {"TCP's share beside PSP": tcp},
            lambda: tcp >= MIN_SHARE,
        ),
    ]


def ratio(value: Interval, beside: Interval) -> float:
    """One estimate over another; not a number where either is missing, or the second is nothing."""
    known = value.known and beside.known and beside.value != 0
    return value.value / beside.value if known else math.nan


def _media(results: Results) -> list[str]:
    """The kinds of senders that were run, in a fixed order."""
    asked = {dict(cell.labels)["media"] for cell in results.cells}
    return [media for media in MEDIA if media in asked]


def _by_run(flows: pl.DataFrame) -> pl.DataFrame:
    """The mean over the agents of each run."""
    means = (pl.col(name).mean() for name in ("loss_rate", "goodput_bps"))
    return flows.group_by("seed").agg(*means).sort("seed")


def sent_over_time(results: Results, media: str) -> dict[str, list[float]]:
    """What is sent in parts of the run, by part: of the link's rate, in each run."""
    samples = results.table("samples").filter(media=media, quantity="sent_bytes")
    sums = samples.group_by("seed", "time_s").agg(pl.col("value").sum()).sort("seed", "time_s")
    found = {}
    for since, until in pairwise(PARTS_S):
        part = sums.filter(pl.col("time_s").is_between(since, until))
        rates = part.group_by("seed", maintain_order=True).agg(
            (pl.col("value").last() - pl.col("value").first())
            / (pl.col("time_s").last() - pl.col("time_s").first())
        )
        shares = rates["value"] * 8 / (LINK_MBIT_S * 1e6)
        found[f"{since} to {until} s"] = shares.to_list()
    return found


def _convergence(results: Results) -> list[str]:
    """How what is sent grows over the run: a short run would measure the start."""
    found = []
    for media in _media(results):
        parts = sent_over_time(results, media) if media in ADAPTIVE_MEDIA else {}
        texts = [
            f"{min(shares):.0%} to {max(shares):.0%} from {part}"
            for part, shares in parts.items()
            if shares
        ]
        if texts:
            found.append(f"Of the link's rate 16 agents of {media} send {', '.join(texts)}.")
    return found


def judge_headline(results: Results) -> Finding:
    """Loss and throughput of 16 adaptive agents against 16 that send as fast as they can."""
    flows = results.table("flows").filter(group="psa").with_columns(loss_of_sent())
    of = {media: _by_run(flows.filter(media=media)) for media in _media(results)}
    loss = {media: mean_of_runs(part, "loss_rate") for media, part in of.items()}
    rate = {media: mean_of_runs(part, "goodput_bps").scaled(1e-6) for media, part in of.items()}
    missing = Interval(math.nan, math.nan, math.nan, 0)
    less = 1 - ratio(loss.get("damped PSP", missing), loss.get("plain UDP", missing))
    kept = ratio(rate.get("damped PSP", missing), rate.get("plain UDP", missing))
    checks = [
        judged(
            LOSES_LESS,
            "90 % less",
            lambda: (
                f"{less:.1%} less: {loss['damped PSP'].value:.2%} against"
                f" {loss['plain UDP'].value:.1%}"
            ),
            {"losses of both": less},
            lambda: less >= 0.9,
        ),
        judged(
            "Throughput does not suffer.",
            "the same",
            lambda: (
                f"{number(rate['damped PSP'].value)} Mbit/s against"
                f" {number(rate['plain UDP'].value)} Mbit/s ({kept:.1%})"
            ),
            {"throughputs of both": kept},
            lambda: kept >= 0.95,
            Cause(
                "plain UDP keeps the link full all the time; what adapts must leave it idle now and"
                " then to find out whether it is. And the first losses double the spacing several"
                " times before the first doubling shows in a report; from there it shrinks by 2 μs"
                " in each round trip.",
                "python -m experiments.psp.readings convergence",
            ),
        ),
    ]
    places = {float(place): media for place, media in enumerate(of)}
    axis = Axis("", ticks=places, hover="%{x}")
    figures = [
        Figure(
            "Packet loss by kind of sender.",
            axis,
            Axis("Packet loss", (0, 1), format=".1%"),
            [View("", [Series("", "pert", {at: loss[name] for at, name in places.items()})])],
        ),
        Figure(
            "Throughput of one of 16 by kind of sender.",
            axis,
            Axis("Throughput (Mbit/s)", format=".3~f"),
            [View("", [Series("", "pert", {at: rate[name] for at, name in places.items()})])],
        ),
    ]
    return Finding(figures, checks, _convergence(results))


def _aqm_scaling(scale: Scale) -> str:
    return "20 s, one seed." if scale == "quick" else "300 s, 5 seeds. The paper has no such runs."


def _headline_scaling(scale: Scale) -> str:
    plain = "" if scale == "full" else " Without plain PSP."
    return (
        f"{HEADLINE_S} s, {len(HEADLINE_SEEDS)} seeds, of plain UDP {PLAIN_S} s; measured from"
        f" {HEADLINE_FROM_S} s on.{plain}"
    )


AQM = Claim(
    id="psp/aqm",
    headline="Under drop-tail PSP loses far less than plain UDP.",
    title="Media and TCP under queue disciplines",
    world=World.SIMULATION,
    published="Routers will punish flows that do not adapt; spacing with feedback lets media do"
    " well there and leaves TCP its bandwidth (the paper's motive, not measured in it).",
    expectation="Under drop-tail, RED, CoDel, PIE and FQ-CoDel: PSP loses at most a tenth of what"
    " plain UDP loses, and TCP beside PSP has its half of the bandwidth (45 % or more).",
    cells=aqm_cells,
    judge=judge_aqm,
    scaling=_aqm_scaling,
)

HEADLINE = Claim(
    id="psp/headline",
    headline=LOSES_LESS,
    title="PSP against plain UDP",
    world=World.SIMULATION,
    published="Spacing with feedback reduces packet loss by 90 % without adversely affecting the"
    " delivered throughput.",
    expectation="16 agents: at least 90 % less loss, at least 95 % of the throughput.",
    cells=headline_cells,
    judge=judge_headline,
    scaling=_headline_scaling,
)
