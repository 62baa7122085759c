"""Made-up tables with which a claim holds or fails."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from fake import STARTUP_S
from rows import flow

from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Label, Results

N = 20
"""Videos in a made-up run: shares come in twentieths."""

UNITS = 100_000

STREAMS = 200
"""How often each video of a run is counted."""


class Given(Results):
    """Results whose tables are in memory instead of in a store; `cells` are the requested ones."""

    def __init__(self, cells: Sequence[Cell] = (), /, **tables: pl.DataFrame) -> None:
        super().__init__(_no_store(), {}, tuple(cells))
        self._given = tables

    def table(self, name: str) -> pl.DataFrame:
        return self._given[name]


def _no_store() -> Store:
    return Store.__new__(Store)


@dataclass(frozen=True)
class Run:
    """A made-up run: its parameters, and its outcome."""

    controller: str = "pert"
    packet: int = 1000
    rtt_ms: int = 100
    flows: int = N
    t_mu: float = 1.5
    loss: float = 0.01
    late: float = 0.01
    video_bps: float = 300e3
    http_bps: float = 20e3
    success: Callable[[float], float] = field(default=lambda _delay: 1.0)

    def labels(self, seed: int) -> dict[str, object]:
        return {**self.cell_labels(), "seed": seed}

    def cell_labels(self) -> dict[str, Label]:
        return {
            "controller": self.controller,
            "packet": self.packet,
            "rtt_ms": self.rtt_ms,
            "flows": self.flows,
        }


def results(runs: Sequence[Run]) -> Given:
    """Tables that give each run its T/mu, and each delay its share of successful streams.

    A run's seed is its place, so that no two are taken for one.
    """
    flows: list[dict[str, object]] = []
    playout: list[pl.DataFrame] = []
    for seed, run in enumerate(runs):
        number = 0
        kinds = (("video", run.video_bps), ("ftp", run.t_mu * 300e3), ("http", run.http_bps))
        for group, bps in kinds:
            for index in range(run.flows):
                row = flow(number, group, index, "reno", bps, run.loss, run.packet)
                flows.append({**row, "goodput_bps": bps, **run.labels(seed)})
                number += 1
        playout += [_streams(run, seed, delay) for delay in STARTUP_S]
    cells = [
        Cell(Path("video.toml"), (), seed, tuple(run.cell_labels().items()))
        for seed, run in enumerate(runs)
    ]
    return Given(cells, flows=pl.DataFrame(flows), playout=pl.concat(playout))


def _streams(run: Run, seed: int, delay: float) -> pl.DataFrame:
    succeeding = round(run.success(delay) * run.flows)
    # Many more streams than videos, so that the intervals of different shares do not touch.
    index = pl.int_range(run.flows * STREAMS, eager=True) % run.flows
    return pl.DataFrame({"flow": index}).with_columns(
        pl.lit("video").alias("group"),
        pl.col("flow").alias("index"),
        pl.lit(delay).alias("startup_delay_s"),
        pl.lit(UNITS).alias("units"),
        pl.when(pl.col("flow") < succeeding).then(0).otherwise(int(run.late * UNITS)).alias("late"),
        *(pl.lit(value).alias(name) for name, value in run.labels(seed).items()),
    )


def queue_results(
    pert_at: Callable[[float], float], pert_loss: float = 0.004, pert_bps: float = 1.5e6
) -> Given:
    """Figure 2's tables: PERT's share of packets by place in the queue, from 0 to 1."""
    queues = [
        {
            "seed": seed,
            "link": "bottleneck",
            "group": group,
            "length": length,
            "arrivals": int(10_000 * share),
            "drops": 0,
        }
        for seed in (0, 1)
        for length in range(101)
        for group, share in (
            ("pert", pert_at(length / 100)),
            ("reno", 1 - pert_at(length / 100)),
        )
    ]
    rows = (("pert", pert_bps, pert_loss), ("reno", 1.5e6, 0.006))
    flows = [
        {**flow(i, group, i, group, bps, loss, 1000), "seed": 0}
        for i, (group, bps, loss) in enumerate(rows)
    ]
    return Given(queues=pl.DataFrame(queues), flows=pl.DataFrame(flows))
