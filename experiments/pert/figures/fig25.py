"""Figure 25: three flavours of PERT in one queue."""

import polars as pl

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.judging import every, is_above, judged, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import mean_of_runs
from ontempo.lab.study import Results

from ..causes import PACED_LOSE
from ..extensions import scaling
from ..flavours import flavour_cells

FLAVOURS = {
    "paced": "coalescing and pacing",
    "unpaced": "coalescing",
    "immediate": "neither",
}
NEAR = 0.1


def judge(results: Results) -> Finding:
    """Compare bandwidth and losses."""
    runs = (
        results.table("flows")
        .filter(pl.col("group").is_in(list(FLAVOURS)))
        .group_by("seed", "group", maintain_order=True)
        .agg(
            (pl.col("goodput_bps").sum() / 1e6).alias("rate"),
            (pl.col("dropped_packets").sum() / pl.col("sent_packets").sum()).alias("loss"),
        )
    )
    found = {
        column: {name: mean_of_runs(runs.filter(group=name), column) for name in FLAVOURS}
        for column in ("rate", "loss")
    }
    rate = {name: one.value for name, one in found["rate"].items()}
    loss = {name: one.value for name, one in found["loss"].items()}
    fair = sum(rate.values()) / len(rate)
    checks = [
        judged(
            "The three flavours have nearly the same bandwidth.",
            "nearly the same (each within 10 % of their mean)",
            lambda: _listed(rate, " Mbit/s"),
            found["rate"],
            lambda: all(abs(value - fair) <= NEAR * fair for value in rate.values()),
            PACED_LOSE,
        ),
        judged(
            "With pacing and coalescing the loss rate is the lowest.",
            "lower than of the other two",
            lambda: _listed(loss, ""),
            found["loss"],
            lambda: every(
                is_above(found["loss"][other], found["loss"]["paced"])
                for other in ("unpaced", "immediate")
            ),
            PACED_LOSE,
        ),
    ]
    ticks = {float(place): name for place, name in enumerate(FLAVOURS.values())}
    titles = {"rate": "Bandwidth (Mbit/s)", "loss": "Loss rate"}
    figures = [
        Figure(
            f"{titles[column]}: {_listed({k: v.value for k, v in values.items()}, '')}.",
            Axis("Flavour of PERT", ticks=ticks),
            Axis(titles[column]),
            [
                View(
                    "", [Series("20 flows", "pert", dict(zip(ticks, values.values(), strict=True)))]
                )
            ],
        )
        for column, values in found.items()
    ]
    notes = ["20 flows of each flavour, with 300 web users, on Table I's link."]
    return Finding(figures, checks, notes)


def _listed(values: dict[str, float], unit: str) -> str:
    return ", ".join(f"{FLAVOURS[name]} {number(value)}{unit}" for name, value in values.items())


CLAIM = Claim(
    id="pert/fig25",
    title="Bandwidth and loss of three flavours of PERT",
    world=World.SIMULATION,
    published="PERT with pacing and coalescing, with coalescing alone and with neither have nearly"
    " the same bandwidth together; with both, its loss rate is the lowest.",
    expectation="Bandwidths within 10 % of their mean; loss lowest with pacing and coalescing.",
    cells=flavour_cells,
    judge=judge,
    scaling=scaling(flavour_cells),
)
