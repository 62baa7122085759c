"""Sender and receiver of a video ask for different rates: coerced, and not (section II.B.4)."""

import subprocess
import time
from pathlib import Path

import polars as pl

from ontempo.lab.cells import Cell, Measurement
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import program

from .grid import HERE
from .played import PORT, ends
from .testbed import LOOK_EVERY_S, PATIENCE_S, Program, Testbed

ASKED = {"sender": 64, "receiver": 60}
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
    way = Measurement("agreement", write_agreement, (("apart", "yes"),))
    return [Cell(HERE / "nv.toml", ('duration="20 s"',), 0, (), 12.0, way)]


def write_agreement(cell: Cell, folder: Path) -> None:
    """Leave `agreements`: what each end learns, and whether the network has a reservation."""
    with Testbed(cell, folder) as testbed:
        rows = [*_coerced(testbed), *_firm(testbed)]
    pl.DataFrame(rows, schema=SCHEMA).write_parquet(folder / "agreements.parquet")


def _specification(testbed: Testbed, end: str, *, coerced: bool) -> str:
    path = testbed.folder / f"{end}-{coerced}.toml"
    path.write_text(
        f'max_rate = "50 messages/s"\npeak_rate = "{ASKED[end]} messages/s"\n'
        f'size = "1000 bytes"\n{"coerced = true" if coerced else ""}\n',
        "utf-8",
    )
    return str(path)


def _start(testbed: Testbed, *, coerced: bool) -> tuple[Program, Program]:
    at = f"{ends(0)[1]}:{PORT + coerced}"
    asked = ["--reserve", "controlled-load", "--json", "--spec"]
    words = [program(), "netvideo", "receive", "--listen", at, *asked]
    receiver = testbed.run(
        f"receiver-{coerced}", "ws0", *words, _specification(testbed, "receiver", coerced=coerced)
    )
    receiver.wait_for("listening")
    words = [program(), "netvideo", "send", at, "--size", "1000", "--rate", "50 messages/s"]
    specification = _specification(testbed, "sender", coerced=coerced)
    sender = testbed.run(
        f"sender-{coerced}", "ws1", *words, "--seconds", "3", *asked, specification
    )
    return sender, receiver


def _coerced(testbed: Testbed) -> list[dict[str, object]]:
    sender, receiver = _start(testbed, coerced=True)
    rows: list[dict[str, object]] = []
    for end, one in (("sender", sender), ("receiver", receiver)):
        agreed = one.wait_for("agreed")["specification"]["peak_rate"]
        state = one.wait_for("reservation")["state"]
        told = f"reservation: {state}"
        reserved = "1:1001" in testbed.classes()
        rows.append(_row(True, end, agreed, told, reserved, None))
    sender.finish(PATIENCE_S)
    receiver.interrupt()
    # What is seen next must not be of this.
    until = time.monotonic() + PATIENCE_S
    while "1:1001" in testbed.classes():
        if time.monotonic() > until:
            raise UnfitEnvironmentError("the reservation did not end with its application")
        time.sleep(LOOK_EVERY_S)
    return rows


def _firm(testbed: Testbed) -> list[dict[str, object]]:
    sender, receiver = _start(testbed, coerced=False)
    try:
        code = sender.process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise UnfitEnvironmentError("the sender did not end") from error
    told = {"sender": sender.complaint(), "receiver": receiver.wait_for("refused")["what"]}
    reserved = "1:1001" in testbed.classes()
    return [
        _row(False, end, None, told[end], reserved, code if end == "sender" else None)
        for end in ("sender", "receiver")
    ]


def _row(
    coerced: bool, end: str, agreed: str | None, told: str, reserved: bool, code: int | None
) -> dict[str, object]:
    values = (coerced, end, agreed, told, reserved, code)
    return dict(zip(SCHEMA, values, strict=True))
