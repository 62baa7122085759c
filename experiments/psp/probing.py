"""`ontempo probe` between two hosts of the emulator: one sender at one spacing after the other."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from ontempo.lab.cells import Cell, Measurement
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import program
from ontempo.lab.real_time import emulate

LIVE = Path(__file__).parent / "live.toml"

PORT = 4434
PACKET_BYTES, CARD_MBIT_S = 1500, 620
TRANSMISSION_US = PACKET_BYTES * 8 / CARD_MBIT_S
"""Transmission time of a packet at the sender's network card; spacing is from its end (fig. 3)."""

CARD = (
    "tc qdisc add dev ontempo0 root handle 1: htb default 1",
    "tc class add dev ontempo0 parent 1: classid 1:1 htb"
    f" rate {CARD_MBIT_S}mbit burst 1600 cburst 1600 quantum 1500",
)
"""The emulated card: without it, only the processor limits the sender's rate."""

URGENT = ("chrt", "--rr", "1")
"""Prefix of both commands: beside other load, sender and receiver would get too little time."""

BETWEEN_S = 1.0
"""Overhead of each spacing beside its seconds, roughly."""


def probe_cell(spacings_us: Sequence[int], seconds: int, seed: int = 0) -> Cell:
    """A run of `ontempo probe` over `LIVE`, at one spacing after the other; its own table."""
    duration_s = 3 + round(len(spacings_us) * (seconds + BETWEEN_S))
    measurement = Measurement(
        "probe",
        partial(probe, spacings_us=tuple(spacings_us), seconds=seconds),
        (("spacings", json.dumps(list(spacings_us))), ("seconds", seconds)),
    )
    return Cell(LIVE, (f'duration="{duration_s} s"',), seed, (), duration_s, measurement)


def probed(cell: Cell) -> Sequence[int]:
    """The spacings of a run of `probe_cell`, in microseconds; empty for another run."""
    parameters = dict(cell.real.parameters) if isinstance(cell.real, Measurement) else {}
    found: list[int] = json.loads(str(parameters.get("spacings", "[]")))
    return found


def probe(cell: Cell, folder: Path, *, spacings_us: Sequence[int], seconds: int) -> None:
    """Run it; write the table `path` to `folder`.

    Raises `UnfitEnvironmentError` if it ended early.
    """
    emulate_probe(cell, folder, ",".join(map(asked, spacings_us)), seconds)
    log = (folder / "probe.0.source.log").read_text("utf-8")
    try:
        report = json.loads(log[log.index("{") :])
    except ValueError as error:
        raise UnfitEnvironmentError(f"{cell}: the probe's log: {log.strip()}") from error
    if len(report["spacings"]) < len(spacings_us):
        raise UnfitEnvironmentError(
            f"{cell}: {len(report['spacings'])} of {len(spacings_us)} spacings were measured"
        )
    path_table(report, spacings_us).write_parquet(folder / "path.parquet")


def steady(spacing: str) -> Measurement:
    """`ontempo probe` at one spacing, as it names it, throughout a cell; the emulator's tables."""
    return Measurement("steady", partial(probe_throughout, spacing=spacing), (("by", spacing),))


def probe_throughout(cell: Cell, folder: Path, *, spacing: str) -> None:
    """Run it until the run is over."""
    emulate_probe(cell, folder, spacing, 3600)


def emulate_probe(cell: Cell, folder: Path, spacings: str, seconds: int) -> None:
    """Emulate a cell of `LIVE` whose sender is `ontempo probe` behind a card."""
    ours = program()
    words = [
        *(*URGENT, ours, "probe", f"{{sink}}:{PORT}", "--json"),
        *("--spacing", spacings, "--beyond-path"),
        *("--seconds", str(seconds), "--packet", str(PACKET_BYTES)),
    ]
    send = " && ".join([*CARD, f"exec {shlex.join(words)}"])
    listen = [*URGENT, ours, "probe", "--listen", f":{PORT}", "--json"]
    more = (
        f'flows.probe.application={{ kind = "command", command = {json.dumps(["sh", "-c", send])},'
        f" peer = {json.dumps(listen)} }}",
        'flows.probe.transport={ kind = "own" }',
        # The card is before it.
        'topology.access.rate="1 Gbit/s"',
    )
    emulate(replace(cell, overrides=(*cell.overrides, *more)), folder)


def asked(spacing_us: int) -> str:
    """`ontempo probe`'s option ``--spacing``; 0 leaves the spacing to the card."""
    return f"{spacing_us + TRANSMISSION_US if spacing_us else 0:.3f} us"


def path_table(report: Mapping[str, Any], spacings_us: Sequence[int]) -> pl.DataFrame:
    """A row a spacing, from the output of `ontempo probe --json`."""
    return pl.DataFrame(
        [
            {
                "spacing_us": float(spacing),
                "sent_bps": float(row["sent_bps"]),
                "received_bps": float(row["received_bps"]),
                "loss_rate": float(row["loss"]),
                "gap_us": row["sent_gap_mean_s"] and row["sent_gap_mean_s"] * 1e6,
            }
            for spacing, row in zip(spacings_us, report["spacings"], strict=True)
        ],
        schema_overrides={"gap_us": pl.Float64},
    )
