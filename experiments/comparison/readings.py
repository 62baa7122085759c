"""The results of the cells: one row for each path and contender."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from ontempo.lab.study import Results

from .contenders import Contender
from .paths import Path

PATH = ("loss", "pattern", "rtt_ms", "share")
"""The labels of a cell that name its path."""


def readings(results: Results, contenders: Sequence[Contender]) -> pl.DataFrame:
    """Shares of frames and sound, latencies, bytes and processor time, in the order of paths.

    `late` frames were whole after `Path.playout_ms`, `lost` never. `wire_forth` and `wire_back`
    are bytes on the path for each byte of the stream, `sender_ms` and `receiver_ms` milliseconds
    of processor time for each second of it.
    """
    keys = [*PATH, "contender"]
    video = pl.col("kind") == "video"
    lost = pl.col("latency_s").is_null()
    late = (pl.col("latency_s") > pl.col("playout_s")).fill_null(value=False)
    units = results.table("units")
    deadlines = [
        {**row, "contender": one.name, "playout_s": playout_s(row, one)}
        for row in units.select(PATH).unique(maintain_order=True).iter_rows(named=True)
        for one in contenders
    ]
    units = units.join(pl.DataFrame(deadlines), on=keys, maintain_order="left")
    counted = units.group_by(keys, maintain_order=True).agg(
        video.sum().alias("frames"),
        (video & lost).sum().alias("lost"),
        (video & late).sum().alias("late"),
        ((~video & (lost | late)).sum() / (~video).sum()).alias("sound"),
        pl.col("latency_s").filter(video).quantile(0.99, "higher").alias("frame_p99_s"),
    )
    carried = results.table("carried").select(
        *keys,
        "together",
        "latency_p50_s",
        "latency_p99_s",
        (pl.col("forth_bytes") / pl.col("stream_bytes")).alias("wire_forth"),
        (pl.col("back_bytes") / pl.col("stream_bytes")).alias("wire_back"),
        (pl.col("sender_processor_s") * 1000 / pl.col("stream_s")).alias("sender_ms"),
        (pl.col("receiver_processor_s") * 1000 / pl.col("stream_s")).alias("receiver_ms"),
        "pacing_p99_s",
        "pacing_max_s",
        "ended_early",
        "overflowed",
    )
    order = pl.DataFrame(
        {"contender": [one.name for one in contenders], "place": range(len(contenders))}
    )
    runs = pl.DataFrame(carried.select(PATH)).unique(maintain_order=True).with_row_index("path")
    return (
        counted.join(carried, on=keys)
        .join(order, on="contender")
        .join(runs, on=list(PATH))
        .sort("path", "place")
    )


def path_of(row: Mapping[str, Any]) -> Path:
    """The path that a row's labels name."""
    return Path(row["loss"], row["pattern"] == "bursts", row["rtt_ms"], row["share"])


def playout_s(row: Mapping[str, Any], one: Contender) -> float:
    """The delay beyond which a contender's frames are late on the path of a row, in seconds."""
    path = path_of(row)
    return path.playout_ms(one.buffer_ms(path)) / 1000


def bad_share(row: Mapping[str, Any]) -> float:
    """The share of the frames that were lost or late."""
    bad: float = (row["lost"] + row["late"]) / row["frames"]
    return bad
