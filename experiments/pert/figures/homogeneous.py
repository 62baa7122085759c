"""Chapter II, property c: PERT among its own."""

import math

import polars as pl

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import mean_interval, mean_of_runs
from ontempo.lab.study import Results

from ..causes import queue_at_threshold
from ..curves import NAMES
from ..extensions import homogeneous_cells, scaling

NEAR_ZERO = 1e-4
QUARTER = 0.25


def judge(results: Results) -> Finding:
    """Losses of PERT, and its queue beside RENO's."""
    losses = (
        results.table("flows")
        .group_by("controller", "seed", maintain_order=True)
        .agg((pl.col("dropped_packets").sum() / pl.col("sent_packets").sum()).alias("loss"))
    )
    queues = results.table("links").filter(link="bottleneck")
    loss = {name: mean_of_runs(losses.filter(controller=name), "loss") for name in ("pert", "reno")}
    queue = {
        name: mean_interval(queues.filter(controller=name)["mean_packets"])
        for name in ("pert", "reno")
    }
    ratio = queue["pert"].value / (queue["reno"].value or math.nan)
    cause = queue_at_threshold(queue["pert"].value, QUARTER * queue["reno"].value)
    checks = [
        judged(
            "Flows over PERT alone lose next to nothing.",
            "near-zero loss rate (below 10⁻⁴)",
            lambda: f"{number(loss['pert'].value)} (RENO {number(loss['reno'].value)})",
            {"PERT's packets": loss["pert"]},
            lambda: loss["pert"].value < NEAR_ZERO,
            cause,
        ),
        judged(
            "Their queue is short.",
            "very low queueing delay (below a quarter of RENO's queue)",
            lambda: (
                f"{number(queue['pert'].value)} packets, RENO {number(queue['reno'].value)}:"
                f" {number(ratio)} of it"
            ),
            {"the queues of both": ratio},
            lambda: ratio < QUARTER,
            cause,
        ),
    ]
    ticks = {float(place): NAMES[name] for place, name in enumerate(queue)}
    figures = [
        Figure(
            f"{title}: PERT {number(values['pert'].value)}, RENO {number(values['reno'].value)}.",
            Axis("Controller of all flows", ticks=ticks),
            Axis(title),
            [
                View(
                    "", [Series("20 flows", "pert", dict(zip(ticks, values.values(), strict=True)))]
                )
            ],
        )
        for title, values in (("Loss rate", loss), ("Mean queue (packets)", queue))
    ]
    return Finding(
        figures,
        checks,
        ["20 transfers and nothing else on Table I's link, buffer and middle round trip."],
    )


CLAIM = Claim(
    id="pert/homogeneous",
    title="PERT among its own",
    world=World.SIMULATION,
    published="Where all flows are PERT's, losses are near zero and queueing delays very low.",
    expectation="Loss rate under 10⁻⁴ and a mean queue under a quarter of RENO's.",
    cells=homogeneous_cells,
    judge=judge,
    scaling=scaling(homogeneous_cells),
)
