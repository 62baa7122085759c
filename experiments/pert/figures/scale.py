"""Chapter II, property a: one flow on a link of 10 Gbit/s."""

import polars as pl

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.statistics import mean_interval
from ontempo.lab.study import Results

from ..extensions import high_speed_cells, scaling

LINK_BPS = 10e9
FILLED = 0.9


def judge(results: Results) -> Finding:
    """How much of the link is used."""
    used = mean_interval(results.table("flows")["goodput_bps"] / LINK_BPS).value
    check = judged(
        "One transfer over PERT fills 10 Gbit/s.",
        "scales to 10 Gbit/s (over 90 %)",
        lambda: f"{used:.1%}",
        {"the transfer's rate over the link's": used},
        lambda: used > FILLED,
    )
    table = results.table("samples").filter(quantity="cwnd_packets").sort("time_s")
    rows = table.select("time_s", pl.col("value") / 1e3).iter_rows()
    figure = Figure(
        f"Congestion window of one transfer over PERT on 10 Gbit/s; it uses {number(used)} of it.",
        Axis("Time (s)"),
        Axis("Congestion window (thousands of packets)"),
        [View("", [Series("PERT", "pert", {t: exact(v) for t, v in rows}, markers=False)])],
    )
    notes = [
        "Judged over the last 5 s of 30 in quick, over the last 60 s of 120 in full: after the slow"
        " start's overshoot the window grows by at most 32 packets a round trip, and takes half a"
        " minute to fill the link. The thesis gives the rate alone: round trip 50 ms, 1,500-byte"
        " packets, a buffer of one bandwidth-delay product."
    ]
    return Finding([figure], [check], notes)


CLAIM = Claim(
    id="pert/scale",
    title="One transfer on 10 Gbit/s",
    world=World.SIMULATION,
    published="A single PERT flow scales to links of 10 Gbit/s.",
    expectation="It uses over 90 % of an empty link.",
    cells=high_speed_cells,
    judge=judge,
    scaling=scaling(high_speed_cells),
)
