"""Sender and receiver of a video ask for different rates: coerced, and not (section II.B.4)."""

import subprocess
from pathlib import Path

import polars as pl

from ontempo.lab.cells import Cell, Measurement
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import program

from .grid import HERE
from .played import PORT, ends
from .testbed import TIMEOUT_S, Program, Testbed

PEAK_RATES = {"sender": 64, "receiver": 60}
"""Peak rates in messages of 1,000 bytes a second: kilobytes a second."""

SCHEMA = {
    "coerced": pl.Boolean,
    "end": pl.String,
    "agreed": pl.String,
    "told": pl.String,
    "reserved": pl.Boolean,
    "code": pl.Int64,
}


def agreement_cells() -> list[Cell]:
    """One run of both."""
    measurement = Measurement("agreement", write_agreement, (("apart", "yes"),))
    return [Cell(HERE / "nv.toml", ('duration="20 s"',), 0, (), 12.0, measurement)]


def write_agreement(cell: Cell, folder: Path) -> None:
    """Write the table `agreements`: the outcome at each end, and whether there is a reservation."""
    with Testbed(cell, folder) as testbed:
        rows = [*_coerced(testbed), *_firm(testbed)]
    pl.DataFrame(rows, schema=SCHEMA).write_parquet(folder / "agreements.parquet")


def _specification(testbed: Testbed, end: str, *, coerced: bool) -> str:
    path = testbed.folder / f"{end}-{coerced}.toml"
    path.write_text(
        f'max_rate = "50 messages/s"\npeak_rate = "{PEAK_RATES[end]} messages/s"\n'
        f'size = "1000 bytes"\n{"coerced = true" if coerced else ""}\n',
        "utf-8",
    )
    return str(path)


def _start(testbed: Testbed, *, coerced: bool) -> tuple[Program, Program]:
    at = f"{ends(0)[1]}:{PORT + coerced}"
    options = ["--reserve", "controlled-load", "--json", "--spec"]
    words = [program(), "netvideo", "receive", "--listen", at, *options]
    specification = _specification(testbed, "receiver", coerced=coerced)
    receiver = testbed.serve(f"receiver-{coerced}", "ws0", *words, specification)
    words = [program(), "netvideo", "send", at, "--size", "1000", "--rate", "50 messages/s"]
    specification = _specification(testbed, "sender", coerced=coerced)
    sender = testbed.run(
        f"sender-{coerced}", "ws1", *words, "--seconds", "3", *options, specification
    )
    return sender, receiver


def _coerced(testbed: Testbed) -> list[dict[str, object]]:
    sender, receiver = _start(testbed, coerced=True)
    rows: list[dict[str, object]] = []
    for end, one in (("sender", sender), ("receiver", receiver)):
        agreed = one.wait_for("agreed")["specification"]["peak_rate"]
        state = one.wait_for("reservation")["state"]
        outcome = f"reservation: {state}"
        reserved = testbed.is_reserved()
        rows.append(_row(True, end, agreed, outcome, reserved, None))
    sender.finish(TIMEOUT_S)
    receiver.interrupt()
    # So that the next part does not find this reservation.
    testbed.wait_for_reservation(False, "the reservation did not end with its application")
    return rows


def _firm(testbed: Testbed) -> list[dict[str, object]]:
    sender, receiver = _start(testbed, coerced=False)
    try:
        code = sender.process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise UnfitEnvironmentError("the sender did not end") from error
    outcomes = {"sender": sender.complaint(), "receiver": receiver.wait_for("refused")["what"]}
    reserved = testbed.is_reserved()
    return [
        _row(False, end, None, outcomes[end], reserved, code if end == "sender" else None)
        for end in ("sender", "receiver")
    ]


def _row(
    coerced: bool, end: str, agreed: str | None, outcome: str, reserved: bool, code: int | None
) -> dict[str, object]:
    values = (coerced, end, agreed, outcome, reserved, code)
    return dict(zip(SCHEMA, values, strict=True))
