"""Figure 29: aggregate throughput and the worst stream's late packets against the buffer."""

import polars as pl

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.judging import Curve, above_everywhere
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import mean_interval, mean_of_runs
from ontempo.lab.study import Results

from ..causes import paced_streams
from ..curves import views_by_delay
from ..extensions import scaling
from ..flavours import STREAMED, stream_cells
from ..streams import STARTUP_S

KINDS = {"paced": "Delay Pacing", "immediate": "No Delay"}
COLOURS = {"paced": "step-4", "immediate": "ink"}
ONE_BDP = 1.0


def judge(results: Results) -> Finding:
    """Compare both with and without pacing, buffer by buffer."""
    total = {name: _aggregate(results, name) for name in STREAMED}
    worst = {name: _worst(results, name, STARTUP_S) for name in STREAMED}
    buffers = results.asked("bdp")
    cause = paced_streams(*(_video_bps(results, name) for name in ("paced", "immediate")))
    checks = [
        above_everywhere(
            "With a buffer below one bandwidth-delay product, pacing has the higher aggregate"
            " throughput.",
            "higher",
            (KINDS["paced"], total["paced"]),
            (KINDS["immediate"], total["immediate"]),
            [bdp for bdp in buffers if bdp < ONE_BDP],
            _bdp,
            cause,
        ),
        above_everywhere(
            "With pacing the worst stream has the fewer late packets.",
            "better with each buffer",
            (KINDS["immediate"], worst["immediate"]),
            (KINDS["paced"], worst["paced"]),
            buffers,
            _bdp,
            cause,
        ),
    ]
    axis = Axis("Buffer (bandwidth-delay products)")
    throughput = Figure(
        "Aggregate throughput of all flows against the buffer.",
        axis,
        Axis("Aggregate throughput (Mbit/s)"),
        [View("", [Series(KINDS[name], COLOURS[name], total[name]) for name in STREAMED])],
    )

    def lines(delay: float) -> list[Series]:
        return [
            Series(KINDS[name], COLOURS[name], _worst(results, name, delay)) for name in STREAMED
        ]

    views, shown = views_by_delay(lines, STARTUP_S)
    late = Figure(
        "Late packets of the worst stream against the buffer.",
        axis,
        Axis("Late packets of the worst stream", format=".2%"),
        views,
        "Start-up delay",
        shown,
    )
    notes = [
        "25 videos over PERT, 25 transfers over RENO and 300 web users: the middle of Table I. The"
        " aggregate is that of all of them. The thesis states no start-up delay for this figure;"
        f" judged at {STARTUP_S:g} s.",
    ]
    return Finding([throughput, late], checks, notes)


def _aggregate(results: Results, name: str) -> Curve:
    table = results.table("flows").filter(flavour=name).sort("bdp")
    runs = table.group_by("bdp", "seed", maintain_order=True).agg(
        (pl.col("goodput_bps").sum() / 1e6).alias("rate")
    )
    return _by_buffer(runs, "rate")


def _video_bps(results: Results, name: str) -> float:
    """What a video gets at one bandwidth-delay product."""
    videos = results.table("flows").filter(flavour=name, bdp=ONE_BDP, group="video")
    return mean_interval(videos["goodput_bps"]).value


def _worst(results: Results, name: str, delay: float) -> Curve:
    table = results.table("playout").filter(flavour=name, startup_delay_s=delay).sort("bdp")
    runs = table.group_by("bdp", "seed", maintain_order=True).agg(
        (pl.col("late") / pl.col("units")).max().alias("late")
    )
    return _by_buffer(runs, "late")


def _by_buffer(runs: pl.DataFrame, column: str) -> Curve:
    return {
        float(bdp): mean_of_runs(part, column)
        for (bdp,), part in runs.group_by(["bdp"], maintain_order=True)
    }


def _bdp(place: float) -> str:
    return f"{place:g} BDP"


CLAIM = Claim(
    id="pert/fig29",
    title="Aggregate throughput and the worst stream with pacing",
    world=World.SIMULATION,
    published="With pacing and coalesced ACKs the aggregate throughput is higher than with neither"
    " where the buffer is below one bandwidth-delay product, and the worst stream has a better rate"
    " of late packets.",
    expectation="Paced above none below 1.0 bandwidth-delay products; the worst late rate better"
    " with every buffer.",
    cells=stream_cells,
    judge=judge,
    scaling=scaling(stream_cells),
)
