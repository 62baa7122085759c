"""Made-up tables of the scenarios of chapters II, IV and V, as in the thesis."""

import random
from collections.abc import Callable, Mapping

import polars as pl
from rows import flow

from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Results

Tables = Mapping[str, pl.DataFrame]

SERVICE_S = 8 / 3e3
"""A packet's time on the bottleneck of 3 Mbit/s."""

PER_ACK = {"immediate": 1, "delayed": 2, "adaptive": 4}
SAMPLE = ("time_s", "subject", "quantity", "value")


class Made(Results):
    """Results whose cells are made up on request."""

    def __init__(self, cells: tuple[Cell, ...], make: Callable[[Cell], Tables]) -> None:
        super().__init__(Store.__new__(Store), {}, cells)
        self._make = make

    def of(self, cells: object) -> "Made":
        return Made(tuple(cells), self._make)  # type: ignore[arg-type]

    def _read(self, cell: Cell, name: str) -> pl.DataFrame:
        return self._make(cell)[name]


def lone(
    per_ack: int = 4, *, train: int = 1, jitter: float = 0.0, bps: float = 3e6, uneven: float = 0.0
) -> Tables:
    """One transfer from 30 s on: `train` packets leave at once, each `per_ack` share an ACK."""
    chance = random.Random(1)
    rows: list[tuple[object, ...]] = []
    for number in range(400):
        first = number - number % train
        gap = chance.uniform(1 - jitter, 1 + jitter)
        sent = 30.1 + SERVICE_S * (first + gap if train == 1 else first)
        wait = SERVICE_S * (number % train) * (1 + uneven * (number % train == 1))
        started = 30.1 + SERVICE_S * first + 0.02 + wait
        rows.append((sent, "ftp.0.source -> left", "data", number, sent))
        rows.append((started, "right -> ftp.0.sink", "data", number, started))
        if number % per_ack == per_ack - 1:
            arrived = started + 0.0048
            rows.append((arrived, "ftp.0.sink -> right", "ack", number + 1, arrived))
    row = flow(0, "ftp", 0, "pert", bps, 0.0, 1000)
    delivered = 11250
    acks = delivered // per_ack
    flows = pl.DataFrame(
        [{**row, "goodput_bps": bps, "delivered_packets": delivered, "acks": acks}]
    )
    columns = ["time_s", "link", "kind", "number", "started_s"]
    return {"flows": flows, "packets": pl.DataFrame(rows, schema=columns, orient="row")}


def side_by_side(
    off: float = 0.0, immediate_ms: float = 50.0, gap_ms: float | None = None
) -> Tables:
    """Two smoothed round trips, the second off by a part of the first or by so much."""
    second = immediate_ms * (1 + off) if gap_ms is None else immediate_ms + gap_ms
    rows = [
        (time, f"{name}.0", "controller_srtt_s", value / 1e3)
        for time in (10.0, 30.0, 31.0, 32.0)
        for name, value in (("immediate", immediate_ms), ("coalescing", second))
    ]
    return {"samples": pl.DataFrame(rows, schema=list(SAMPLE), orient="row")}


def flavours(
    rates: Mapping[str, float],
    losses: Mapping[str, float],
    queue: Mapping[str, int] | None = None,
    spread: Mapping[str, float] | None = None,
) -> Tables:
    """Ten flows a group, half of them faster by `spread` and half slower; where packets queue."""
    flows: list[dict[str, object]] = []
    for group, bps in rates.items():
        for index in range(10):
            part = (spread or {}).get(group, 0.0) * (1 if index % 2 else -1)
            row = flow(len(flows), group, index, "pert", bps * (1 + part), losses[group], 1000)
            sent = 1_000_000
            dropped = round(sent * losses[group])
            flows.append(
                {
                    **row,
                    "goodput_bps": bps * (1 + part),
                    "sent_packets": sent,
                    "dropped_packets": dropped,
                }
            )
    queues = [("bottleneck", group, length, 1000, 0) for group, length in (queue or {}).items()]
    columns = ["link", "group", "length", "arrivals", "drops"]
    return {
        "flows": pl.DataFrame(flows),
        "queues": pl.DataFrame(queues, schema=columns, orient="row"),
    }


def windows(spread: float, *, every: float = 0.01) -> Tables:
    """A window that swings about 100 packets, from 120 s on."""
    rows = [
        (120 + every * step, "film.0", "cwnd_packets", 100 * (1 + spread * (-1) ** step))
        for step in range(200)
    ]
    return {"samples": pl.DataFrame(rows, schema=list(SAMPLE), orient="row")}


def high_speed(bps: float = 9.5e9) -> Tables:
    """One fast flow."""
    row = {**flow(0, "ftp", 0, "pert", 1e6, 0.0, 1500), "goodput_bps": bps}
    return {"flows": pl.DataFrame([row]), **windows(0.1)}


def homogeneous(loss: float, queue: float) -> Tables:
    """Twenty flows and their bottleneck."""
    made = flavours({"ftp": 1.25e6}, {"ftp": loss})
    links = pl.DataFrame({"link": ["bottleneck"], "mean_packets": [queue]})
    return {"flows": made["flows"], "links": links}


def streams(late: float, bps: float) -> Tables:
    """Figure 29's streams: the worst is late by this part."""
    made = flavours({"video": bps}, {"video": 0.01})
    units = 10_000
    rows = [
        (index, "video", index, delay, units, round(units * late * (index + 1) / 10))
        for index in range(10)
        for delay in (1.0, 11.0)
    ]
    columns = ["flow", "group", "index", "startup_delay_s", "units", "late"]
    return {
        "flows": made["flows"],
        "playout": pl.DataFrame(rows, schema=columns, orient="row"),
    }


def acknowledged() -> Tables:
    """A file of nine packets in order, each answered at once."""
    rows: list[tuple[object, ...]] = []
    for number in range(9):
        started = number * SERVICE_S
        arrived = started + 0.0048
        rows.append((started, "right -> file.0.sink", "data", number, started))
        rows.append((arrived, "file.0.sink -> right", "ack", number + 1, arrived))
    columns = ["time_s", "link", "kind", "number", "started_s"]
    row = {**flow(0, "file", 0, "pert", 1e6, 0.0, 1000), "transfers": 1}
    return {
        "flows": pl.DataFrame([row]),
        "packets": pl.DataFrame(rows, schema=columns, orient="row"),
    }


GROUPS = ("paced", "unpaced", "immediate")

ANY: Mapping[str, Callable[[], Tables]] = {
    "acknowledgement": acknowledged,
    "coalescing": side_by_side,
    "flavours": lambda: flavours(
        dict.fromkeys(GROUPS, 1e6), dict.fromkeys(GROUPS, 0.01), dict.fromkeys(GROUPS, 10)
    ),
    "high-speed": high_speed,
    "homogeneous": lambda: homogeneous(0.0, 10.0),
    "lone": lone,
    "movie": lambda: windows(0.1),
}
"""Tables of each scenario, the same for all its cells."""
