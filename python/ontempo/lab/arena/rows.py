"""What is read from the cells: a row for each run, buffer and player."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from ontempo.lab.arena.cells import Entry, playout_ms
from ontempo.lab.arena.contenders import Contender
from ontempo.lab.cells import Cell
from ontempo.lab.study import Results

SCHEMA: Mapping[str, Any] = {
    "world": pl.String,
    "class": pl.String,
    "path": pl.String,
    "film": pl.String,
    "contender": pl.String,
    "buffer": pl.String,
    "buffer_ms": pl.Int64,
    "player_ms": pl.Float64,
    "seed": pl.Int64,
    "pictures": pl.Int64,
    "on_time": pl.Float64,
    "at_most": pl.Float64,
    "sound": pl.Float64,
    "bytes": pl.Float64,
    "back": pl.Float64,
    "latency_p50_s": pl.Float64,
    "latency_p99_s": pl.Float64,
    "freezes_a_minute": pl.Float64,
    "frozen": pl.Float64,
}
"""Columns of the rows; shares are of 1, `bytes` and `back` of each byte of the film.

`at_most` is the share that the best sender has on time; UDP's rows have it."""

PICTURES_A_MINUTE = 25.0 * 60
LATENCIES = ("latency_p50_s", "latency_p99_s")
NEAR_S = 1e-4


def rows(results: Results, cells: Mapping[Cell, tuple[Entry, Contender]]) -> pl.DataFrame:
    """A row for each cell and each buffer that it serves; without pictures there is none."""
    found = [
        row
        for cell, (one, contender) in cells.items()
        for row in of_cell(results.of([cell]).table("media"), cell, one, contender)
    ]
    return pl.DataFrame(found, schema=SCHEMA, orient="row")


def of_cell(
    media: pl.DataFrame, cell: Cell, one: Entry, contender: Contender
) -> Iterator[dict[str, Any]]:
    """The rows of one run: one for each buffer that it serves."""
    labels = dict(cell.labels)
    groups = [name for name, _ in one.path.films]
    for buffer in one.of(contender):
        if contender.has_buffer and buffer.label != labels["buffer"]:
            continue
        player_ms = playout_ms(one.path, buffer.ms)
        near = (pl.col("player_latency_s") - player_ms / 1000).abs() < NEAR_S
        of_player = media.filter(near & pl.col("group").is_in(groups))
        # Where buffers are equally long, the run has a player of each.
        of_player = of_player.unique(["flow", "player_latency_s"], maintain_order=True)
        if of_player["pictures"].sum() == 0:
            continue
        yield {
            **labels,
            "buffer": buffer.label,
            "buffer_ms": buffer.ms,
            "player_ms": player_ms,
            "seed": cell.seed,
            **measures(of_player),
        }


def measures(media: pl.DataFrame) -> dict[str, float | None]:
    """The measures of all films of a run together."""
    summed = media.select(pl.selectors.numeric().sum()).row(0, named=True)
    pictures = summed["pictures"]
    minutes = pictures / PICTURES_A_MINUTE
    return {
        "pictures": pictures,
        "on_time": summed["decodable_pictures"] / pictures,
        "at_most": summed["at_most_pictures"] / pictures if "at_most_pictures" in summed else None,
        "sound": summed["decodable_sound"] / max(summed["sound_frames"], 1),
        "bytes": summed["wire_bytes"] / max(summed["media_bytes"], 1),
        "back": summed["back_bytes"] / max(summed["media_bytes"], 1),
        **{name: _mean(media[name]) for name in LATENCIES},
        "freezes_a_minute": summed["freezes"] / minutes,
        "frozen": min(1.0, summed["frozen_s"] / (60 * minutes)),
    }


def _mean(values: pl.Series) -> float | None:
    """The mean of the films that have a value."""
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None
