"""Figure 20: how evenly packets leave."""

import polars as pl

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.statistics import mean_interval
from ontempo.lab.study import Cell, Results

from ..extensions import lone_cells, scaling
from ..trains import STEADY_S, sent, variation

FLOW = "ftp.0"
TIMES = 5.0
DRAWN_S = 0.2

KINDS = {
    ("immediate", "off"): ("no delay", "ink"),
    ("adaptive", "off"): ("coalescing", "step-0"),
    ("adaptive", "window"): ("coalescing, paced", "step-4"),
}


def judge(results: Results) -> Finding:
    """Compare the times between packets, paced and not."""
    packets = results.table("packets")
    spread, series = {}, []
    for (ack, pacing), (name, colour) in KINDS.items():
        own = packets.filter(ack=ack, pacing=pacing)
        spread[name] = mean_interval(
            variation(gaps)
            for _, part in own.group_by(["seed"], maintain_order=True)
            if len(gaps := sent(part, FLOW)["time_s"].diff().drop_nulls())
        )
        drawn = sent(own.filter(pl.col("seed") == pl.col("seed").min()), FLOW)
        rows = drawn.filter(pl.col("time_s") <= STEADY_S + DRAWN_S)
        first = int(str(rows["number"][0])) if rows.height else 0
        points = {
            time: exact(place - first) for time, place in rows.select("time_s", "number").rows()
        }
        series.append(Series(name, colour, points))
    paced, bursty = spread["coalescing, paced"].value, spread["coalescing"].value
    text = ", ".join(f"{name} {number(one.value)}" for name, one in spread.items())
    check = judged(
        "Pacing spreads packets: times between them vary far less than with coalescing alone.",
        "almost uniform against severe bursts (coefficient of variation 5 times smaller or more)",
        lambda: f"{text}: {number(bursty / paced) if paced else 'infinitely'} times smaller",
        {"packets sent, coalescing": bursty, "packets sent, coalescing and paced": paced},
        lambda: bursty >= TIMES * paced and bursty > 0,
    )
    figure = Figure(
        f"Packets sent over {DRAWN_S:g} s. Coefficients of variation of the times between them:"
        f" {text}.",
        Axis("Time (s)"),
        Axis("Packets sent"),
        [View("", series)],
    )
    return Finding([figure], [check])


def cells(scale: Scale) -> list[Cell]:
    """One transfer without coalescing, with it, and with pacing too."""
    return [
        *lone_cells(scale, ["immediate"]),
        *lone_cells(scale, ["adaptive"]),
        *lone_cells(scale, ["adaptive"], ["window"]),
    ]


CLAIM = Claim(
    id="pert/fig20",
    title="Packets in time with pacing",
    world=World.SIMULATION,
    published="Paced packets are spread almost evenly; with coalesced ACKs alone they come in"
    " severe bursts; without delay they are slightly bursty.",
    expectation="Pacing makes the coefficient of variation of the times between packets at least"
    " five times smaller.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
