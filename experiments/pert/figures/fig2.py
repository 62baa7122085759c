"""Figure 2: how long a queue PERT's and RENO's packets find."""

import math

import polars as pl

from ontempo.lab.claims import Cause, Check, Claim, Finding, Scale, World
from ontempo.lab.judging import is_above, judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, Zone
from ontempo.lab.statistics import Interval, mean_interval, mean_of_runs
from ontempo.lab.study import Results

from ..causes import READINGS
from ..grid import queue_cells

STEPS = 45
"""Into how many steps of queue length the plot is divided."""

SEED = "seed"

CAUSE = Cause(
    "in this queue PERT's alpha is 10 packets a round trip on average, more than makes good its"
    " early responses. The buffer decides, and is not in the paper: with a quarter, a half, one and"
    " two bandwidth-delay products PERT gets 0.8, 1.2, 1.6 and 0.4 times RENO's bandwidth.",
    f"{READINGS} buffers",
)


def enqueued(results: Results) -> pl.DataFrame:
    """Packets let in, by seed, group and the queue they found."""
    return (
        results.table("queues")
        .select(SEED, "group", "length", (pl.col("arrivals") - pl.col("drops")).alias("packets"))
        .filter(pl.col("packets") > 0)
    )


def longest_seen(table: pl.DataFrame) -> int:
    """The longest queue that let a packet in."""
    return max(table["length"].to_list(), default=0)


def shares(table: pl.DataFrame, where: pl.Expr) -> Interval:
    """PERT's share of the packets let in where the queue is so, over seeds."""
    by_seed = (
        table.filter(where)
        .group_by(SEED)
        .agg((pl.col("packets").filter(group="pert").sum() / pl.col("packets").sum()).alias("pert"))
    )
    return mean_interval(by_seed["pert"].fill_nan(None).drop_nulls())


def frequencies(table: pl.DataFrame, group: str, step: int) -> dict[float, Interval]:
    """The share of all packets let in that are of this group, for each length of the queue.

    Averaged over steps of several lengths, the last of which may be cut short.
    """
    first = (pl.col("length") // step * step).alias("first")
    past = longest_seen(table) + 1
    parts = (
        table.with_columns((pl.col("packets") / pl.col("packets").sum()).over(SEED).alias("share"))
        .filter(group=group)
        .group_by(SEED, first)
        .agg(pl.col("share").sum())
        .with_columns(pl.col("share") / (pl.lit(past) - pl.col("first")).clip(upper_bound=step))
    )
    return {
        place + step / 2: mean_interval(part["share"])
        for (place,), part in parts.sort("first").group_by(["first"], maintain_order=True)
    }


def judge(results: Results) -> Finding:
    """Compare shares by half and quarter of the queue, losses and bandwidth."""
    table = enqueued(results)
    longest = longest_seen(table)
    step = max(1, math.ceil((longest + 1) / STEPS))
    lower = shares(table, pl.col("length") < longest / 2)
    upper = shares(table, pl.col("length") >= longest * 3 / 4)
    by_seed = (
        results.table("flows")
        # Where nothing was sent the table has a loss rate of 0.
        .filter(pl.col("sent_packets") > 0)
        .group_by("group", SEED, maintain_order=True)
        .agg(pl.col("loss_rate").mean(), pl.col("goodput_bps").sum())
    )
    pert, reno = (by_seed.filter(group=group) for group in ("pert", "reno"))
    losses = {"PERT": mean_of_runs(pert, "loss_rate"), "RENO": mean_of_runs(reno, "loss_rate")}
    theirs = float(reno["goodput_bps"].sum())
    ratio = float(pert["goodput_bps"].sum()) / theirs if theirs else math.nan
    checks = [
        _share("In the lower half of the queue PERT's packets are the more.", lower, above=True),
        _share("In its upper quarter they are the fewer.", upper, above=False),
        judged(
            "PERT loses a smaller fraction of its packets than RENO.",
            "lower",
            lambda: ", ".join(f"{name} {number(one.value)}" for name, one in losses.items()),
            losses,
            lambda: is_above(losses["RENO"], losses["PERT"]),
            CAUSE,
        ),
        judged(
            "They share the bandwidth.",
            "within 20 %",
            lambda: f"PERT has {number(ratio)} times the bandwidth of RENO",
            {"the bandwidth of both": ratio},
            lambda: 1 / 1.2 <= ratio <= 1.2,
            CAUSE,
        ),
    ]
    series = [
        Series("PERT", "pert", frequencies(table, "pert", step), markers=False),
        Series("RENO", "reno", frequencies(table, "reno", step), "dash", markers=False),
    ]
    figure = Figure(
        "Share of packets let into the queue, by the queue length they found, for PERT and RENO."
        f" PERT has {number(lower.value)} of the packets in the lower half and"
        f" {number(upper.value)} in the upper quarter.",
        Axis("Packets waiting on arrival", (0, longest), hover="%{x} packets waiting"),
        Axis("Share of all packets enqueued, by queue length", format=".3~%"),
        [View("", series)],
        zones=[Zone(longest * 3 / 4, longest, "upper quarter")],
    )
    notes = [
        "The paper gives no buffer size and does not say whether 60 ms is one way: taken as the"
        " round trip, with a buffer of one bandwidth-delay product (1,125 packets of 1,000"
        " bytes). Halves and quarters are of the longest queue seen.",
    ]
    return Finding([figure], checks, notes)


def _share(sentence: str, share: Interval, *, above: bool) -> Check:
    asked = "more than RENO's" if above else "fewer than RENO's"
    half = Interval(0.5, 0.5, 0.5, 1)

    def text() -> str:
        spread = f" ({share.low:.1%} to {share.high:.1%})" if math.isfinite(share.low) else ""
        return f"{share.value:.1%} PERT's{spread}"

    return judged(
        sentence,
        asked,
        text,
        {"a packet that found the queue so": share},
        # A share above a half is one estimate above another: PERT's packets above RENO's.
        lambda: is_above(share, half) if above else is_above(half, share),
        CAUSE,
    )


def _scaling(scale: Scale) -> str:
    cells = queue_cells(scale)
    length = "90 s, 30 s of them before measuring" if scale == "quick" else "300 s"
    return f"{len(cells)} seeds of {length}. The paper gives neither."


CLAIM = Claim(
    id="pert/fig2",
    title="Queue found on arrival, 50 PERT and 50 RENO transfers",
    world=World.SIMULATION,
    published="Of 50 PERT and 50 RENO transfers on one link of 150 Mbit/s, PERT places more of"
    " its packets early in the queue and fewer late in it, and so loses fewer.",
    expectation="PERT's share of the packets enqueued is above RENO's in the lower half of the"
    " queue and below it in the upper quarter; PERT's loss rate is lower; the two shares of the"
    " bandwidth are within 20 %.",
    cells=queue_cells,
    judge=judge,
    scaling=_scaling,
)
