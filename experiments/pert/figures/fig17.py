"""Figure 17: data and ACKs with three kinds of receivers."""

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.judging import about, every, is_above, judged, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import Interval, mean_of_runs
from ontempo.lab.study import Cell, Results

from ..extensions import ACKS, lone_cells, scaling
from ..trains import STEADY_S

RECEIVERS = {"immediate": "no delay", "delayed": "by two", "adaptive": "adaptive"}
PUBLISHED_RATIO = {"immediate": 1.0, "delayed": 2.0, "adaptive": 4.0}
ACK_BITS = 40 * 8
SPAN_S = 60.0 - STEADY_S


def judge(results: Results) -> Finding:
    """Compare throughput, ACK traffic and their ratio."""
    flows = results.table("flows").with_columns(
        (pl.col("goodput_bps") / 1e6).alias("data"),
        (pl.col("acks") * (ACK_BITS / SPAN_S / 1e3)).alias("ack_traffic"),
        (pl.col("delivered_packets") / pl.col("acks")).alias("ratio"),
    )
    found = {
        column: {ack: mean_of_runs(flows.filter(ack=ack), column) for ack in RECEIVERS}
        for column in ("data", "ack_traffic", "ratio")
    }
    data, traffic, ratio = (found[column] for column in ("data", "ack_traffic", "ratio"))
    checks = [
        _as_much(
            "Adaptive coalescing carries as much data as by two.", data, "adaptive", "delayed"
        ),
        _as_much("By two carries as much as no delay.", data, "delayed", "immediate"),
        judged(
            "Adaptive coalescing sends the fewest ACKs, no delay the most.",
            "fewest, most",
            lambda: _listed(traffic, "kbit/s"),
            traffic,
            lambda: every(
                is_above(traffic[more], traffic[less])
                for less, more in (("adaptive", "delayed"), ("delayed", "immediate"))
            ),
        ),
    ]
    checks += [_per_ack(ack, ratio[ack]) for ack in PUBLISHED_RATIO]
    ticks = {float(place): name for place, name in enumerate(RECEIVERS.values())}
    titles = {
        "data": "Data (Mbit/s)",
        "ack_traffic": "ACKs (kbit/s)",
        "ratio": "Packets to an ACK",
    }
    figures = [
        Figure(
            f"{titles[column]} without delay, by two and adaptive: {_listed(values, '')}.",
            Axis("Receiver", ticks=ticks),
            Axis(titles[column]),
            [
                View(
                    "",
                    [
                        Series(
                            "one transfer", "pert", dict(zip(ticks, values.values(), strict=True))
                        )
                    ],
                )
            ],
        )
        for column, values in found.items()
    ]
    notes = [
        f"Judged over {SPAN_S:g} s from {STEADY_S:g} s on. One transfer alone fills its link"
        " whatever its receiver does, so equal throughput is to be expected. The paper plots all"
        " three against time."
    ]
    return Finding(figures, checks, notes)


def _as_much(sentence: str, data: dict[str, Interval], more: str, less: str) -> Check:
    return judged(
        sentence,
        "adaptive highest, no delay lowest (at least as much)",
        lambda: _listed(data, "Mbit/s"),
        {f"data, {RECEIVERS[ack]}": data[ack] for ack in (more, less)},
        lambda: is_above(data[more], data[less], or_equal=True),
    )


def _per_ack(ack: str, ratio: Interval) -> Check:
    published = PUBLISHED_RATIO[ack]
    return judged(
        f"Packets to an ACK, {RECEIVERS[ack]}.",
        f"{published:.1f}",
        lambda: number(ratio.value),
        {f"packets to an ACK, {RECEIVERS[ack]}": ratio},
        lambda: about(ratio.value, published),
    )


def _listed(values: dict[str, Interval], unit: str) -> str:
    return ", ".join(
        f"{RECEIVERS[ack]} {number(value.value)} {unit}".rstrip() for ack, value in values.items()
    )


def cells(scale: Scale) -> list[Cell]:
    """One transfer with each receiver."""
    return lone_cells(scale, list(ACKS), packets=False)


CLAIM = Claim(
    id="pert/fig17",
    title="Data, ACKs and data per ACK with three receivers",
    world=World.SIMULATION,
    published="Adaptive coalescing has the highest data throughput and no delay the lowest; ACK"
    " traffic the other way round. Packets to an ACK: nearly 4.0, 2.0 and 1.0.",
    expectation="Throughput: adaptive at least as high as by two, by two as no delay. Packets to"
    " an ACK about 4.0, 2.0, 1.0.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
