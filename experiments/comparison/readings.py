"""The results of the cells: one row for each path and contender."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from ontempo.lab.study import Results

from .contenders import Contender
from .measure import LEAD_S
from .paths import LABELS, Path


def readings(results: Results, contenders: Sequence[Contender]) -> pl.DataFrame:
    """Shares of frames and sound, latencies, bytes and processor time, in the order of paths.

    `late` frames were whole after `Path.playout_ms`, `lost` never; `decodable` ones were on time,
    and all on which they depend. `wire_forth` and `wire_back` are bytes on the path for each byte
    of the stream, `sender_ms` and `receiver_ms` milliseconds of processor time a second of it.
    """
    keys = [*LABELS, "contender"]
    units = results.table("units")
    deadlines = [
        {**row, "contender": one.name, "playout_s": playout_s(row, one)}
        for row in units.select(LABELS).unique(maintain_order=True).iter_rows(named=True)
        for one in contenders
    ]
    units = units.join(pl.DataFrame(deadlines), on=keys, maintain_order="left")
    units = pl.concat(
        run.with_columns(with_decodable(run))
        for run in units.partition_by(keys, maintain_order=True)
    ).filter(pl.col("sent_s") >= LEAD_S)
    sound = pl.col("kind") == "sound"
    lost = pl.col("latency_s").is_null()
    late = (pl.col("latency_s") > pl.col("playout_s")).fill_null(value=False)
    counted = units.group_by(keys, maintain_order=True).agg(
        (~sound).sum().alias("frames"),
        (~sound & lost).sum().alias("lost"),
        (~sound & late).sum().alias("late"),
        pl.col("decodable").sum(),
        ((sound & (lost | late)).sum() / sound.sum()).alias("sound"),
        pl.col("latency_s").filter(~sound).quantile(0.99, "higher").alias("frame_p99_s"),
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
        "download_bps",
        "pacing_p99_s",
        "pacing_max_s",
        "ended_early",
        "overflowed",
    )
    order = pl.DataFrame(
        {"contender": [one.name for one in contenders], "place": range(len(contenders))}
    )
    runs = pl.DataFrame(carried.select(LABELS)).unique(maintain_order=True).with_row_index("path")
    return (
        counted.join(carried, on=keys)
        .join(order, on="contender")
        .join(runs, on=list(LABELS))
        .sort("path", "place")
    )


def with_decodable(run: pl.DataFrame) -> pl.Series:
    """Which frames of one run can be decoded on time; false for sound.

    A frame depends on the one before it that is not disposable, and so on back to a key frame. As
    in the arena, one that is late is not decoded.
    """
    decodable, has_reference = [], False
    for kind, latency_s, playout_s in run.select("kind", "latency_s", "playout_s").iter_rows():
        on_time = latency_s is not None and latency_s <= playout_s
        is_decodable = on_time and (kind == "key" or (kind != "sound" and has_reference))
        decodable.append(is_decodable)
        if kind in ("key", "frame"):
            has_reference = is_decodable
    return pl.Series("decodable", decodable, dtype=pl.Boolean)


def path_of(row: Mapping[str, Any]) -> Path:
    """The path that a row's labels name."""
    return Path(**{name: row[name] for name in LABELS})


def playout_s(row: Mapping[str, Any], one: Contender) -> float:
    """The delay beyond which a contender's frames are late on the path of a row, in seconds."""
    path = path_of(row)
    return path.playout_ms(one.buffer_ms(path)) / 1000


def decodable_share(row: Mapping[str, Any]) -> float:
    """The share of the frames that could be decoded on time."""
    share: float = row["decodable"] / row["frames"]
    return share
