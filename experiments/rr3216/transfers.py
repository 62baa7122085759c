"""ADUs as real packets: `ontempo adus` between hosts of the emulator, several transfers at a time.

Each has its own hosts and links, so that they share nothing but this machine; a hundred packets
a second are a small load, and runs take place in real time.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from ontempo.lab.cells import Cell, Measurement
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import program
from ontempo.lab.real_time import emulate
from ontempo.lab.toml_text import toml

from .grid import SCENARIO, Setting, delay_law, loss_law

PORT = 4435
ENDS = ("source", "sink")

PUBLISHED = "adu"
"""The protocol of the paper's experiment, as far as the endpoint can be set to it."""

ALONE_BYTES = 1000
"""An ADU under the published protocol. Of the paper's 512 bytes, two would share a packet of
QUIC's, which may not be smaller than 1,200, and be lost together."""

PUBLISHED_BYTES = 512
"""An ADU otherwise (appendix)."""

CONNECT_S = 6
"""Extra time of a transfer beyond its ADUs: to connect over a lossy path, and to repair its last
ADUs by a timer."""

SLOWEST_S = {PUBLISHED: 0.026}
"""Maximum time of an ADU in order, roughly, with short processing."""

CONTROLLED_S = 0.05
"""The same with a congestion control and a loss of one in ten."""


@dataclass(frozen=True)
class Transfer:
    """One transfer of a setting in an order; `seed` numbers it among its like.

    `protocol` is `PUBLISHED`, or a congestion control with the endpoint's defaults.
    """

    setting: Setting
    order: str
    seed: int
    protocol: str = PUBLISHED

    def sender(self) -> list[str]:
        """Arguments of the sender's program."""
        setting = self.setting
        published = self.protocol == PUBLISHED
        return [
            *("adus", "send", f"{{sink}}:{PORT}", "--count", str(setting.count)),
            *("--size", f"{ALONE_BYTES if published else PUBLISHED_BYTES} B"),
            *("--interval", f"{setting.interval_ms:g} ms", "--delivery", self.order),
            *(
                ("--uncontrolled", "--ack-every", str(setting.every))
                if published
                else ("--congestion", self.protocol)
            ),
        ]

    def receiver(self) -> list[str]:
        """Arguments of the receiver's program."""
        window = f"{self.setting.window * ALONE_BYTES} B"
        return [
            *("adus", "receive", "--listen", f":{PORT}"),
            *("--processing", f"{self.setting.processing_ms:g} ms"),
            *(("--window", window) if self.protocol == PUBLISHED else ()),
        ]

    @property
    def most_s(self) -> float:
        """The time limit, in seconds."""
        each = max(SLOWEST_S.get(self.protocol, CONTROLLED_S), self.setting.processing_ms * 1.15e-3)
        return CONNECT_S + self.setting.count * each

    def links(self, number: int) -> Iterator[str]:
        """The links: forward, where ADUs are lost, and back."""
        setting = self.setting
        sender, receiver = f"sender{number}", f"receiver{number}"
        law = delay_law(setting.law, setting.delay_ms)
        for ends, loss in (
            ((sender, receiver), f", loss = {loss_law(setting.loss, setting.burst)}"),
            ((receiver, sender), ""),
        ):
            yield (
                f'{{ from = "{ends[0]}", to = "{ends[1]}", duplex = false, rate = "1 Gbit/s",'
                f" delay = {law}{loss} }}"
            )


AT_A_TIME = 28
"""Transfers in one run: two programs each, and 150 packets a second."""


def runs_of(transfers: Sequence[Transfer], seed: int) -> list[Cell]:
    """Runs of all these transfers, those that take as long beside each other."""
    by_length = sorted(transfers, key=lambda one: one.most_s)
    return [
        together(by_length[at : at + AT_A_TIME], seed) for at in range(0, len(by_length), AT_A_TIME)
    ]


def transfers_in(cell: Cell) -> Sequence[Transfer]:
    """The transfers of a run with real packets; empty for another run."""
    write = cell.real.write_tables if isinstance(cell.real, Measurement) else None
    found: Sequence[Transfer] = write.keywords["transfers"] if isinstance(write, partial) else ()
    return found


def together(transfers: Sequence[Transfer], seed: int) -> Cell:
    """One run of several transfers, as long as the longest time limit."""
    duration_s = math.ceil(max(transfer.most_s for transfer in transfers))
    listed = json.dumps([[one.sender(), one.receiver(), one.seed] for one in transfers])
    measurement = Measurement(
        "adus", partial(deliver, transfers=transfers), (("transfers", listed),)
    )
    return Cell(SCENARIO, (f'duration="{duration_s} s"',), seed, (), duration_s, measurement)


def deliver(cell: Cell, folder: Path, *, transfers: Sequence[Transfer]) -> None:
    """Run the transfers; write the tables `adus` and `connections` to `folder`.

    Raises `UnfitEnvironmentError` if one ends early.
    """
    ours = program()
    links = ", ".join(link for at, one in enumerate(transfers) for link in one.links(at))
    flows = {
        _name(at): {
            "from": f"sender{at}",
            "to": f"receiver{at}",
            "application": {
                "kind": "command",
                "command": [ours, *one.sender()],
                # Nobody else is on the emulated path.
                "peer": [ours, *one.receiver(), "--anyone"],
            },
            "transport": {"kind": "own"},
        }
        for at, one in enumerate(transfers)
    }
    more = (f"topology.links=[{links}]", f"flows={toml(flows)}", "measure={}")
    emulate(replace(cell, overrides=(*cell.overrides, *more)), folder)
    adus, connections = [], []
    for at, one in enumerate(transfers):
        sent, taken = (_read(folder / f"{_name(at)}.0.{end}.log", cell) for end in ENDS)
        if not (sent[-1]["complete"] and taken[-1]["complete"]):
            raise UnfitEnvironmentError(
                f"{cell}: when the run was over, of {one.setting.count} ADUs {len(sent) - 1} were"
                f" sent and {len(taken) - 1} processed ({' '.join(one.receiver())})"
            )
        labels = {
            **dict(one.setting.labels(one.order)),
            "transport": one.protocol,
            "seed": one.seed,
        }
        columns = [pl.lit(value).alias(name) for name, value in labels.items()]
        adus.append(times(sent[:-1], taken[:-1]).with_columns(columns))
        connections.append(pl.DataFrame([sent[-1]["connection"]]).with_columns(columns))
    pl.concat(adus).write_parquet(folder / "adus.parquet")
    pl.concat(connections).write_parquet(folder / "connections.parquet")


def _name(number: int) -> str:
    return f"adus{number}"


def _read(path: Path, cell: Cell) -> list[dict[str, Any]]:
    """The output of one end: a line for each ADU, and one on how it ended."""
    text = path.read_text("utf-8")
    try:
        lines = [json.loads(line) for line in text.splitlines()]
    except json.JSONDecodeError:
        lines = []
    if not lines or "complete" not in lines[-1]:
        raise UnfitEnvironmentError(f"{cell}: {path.name}: {text.strip() or 'it logged nothing'}")
    return lines


def times(sent: Sequence[dict[str, Any]], taken: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """A transfer's rows of the table `adus`, in seconds since the first ADU was sent."""
    both = pl.DataFrame(taken).join(pl.DataFrame(sent), on="adu", validate="1:1").sort("adu")
    first = pl.col("emitted_ns").min()
    return both.select(
        pl.col("adu").alias("unit"),
        *(
            ((pl.col(f"{name}_ns") - first) / 1e9).alias(f"{name}_s")
            for name in ("emitted", "arrived", "delivered", "processed")
        ),
        # QUIC retransmits a packet's data without reporting its ADU.
        pl.lit(None, pl.Int64).alias("retransmissions"),
    )
