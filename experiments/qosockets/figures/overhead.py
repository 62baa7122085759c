"""Section V: the cost of these sockets beside plain ones, in the applications themselves."""

import math
from collections.abc import Callable

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import judged, number
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Results

from ..causes import HEADERS
from ..emulated import SOCKETS, overhead_cells, played_scaling

MAX_PERCENT = 1.0
"""Per cent."""

Measure = Callable[[pl.DataFrame], float]


def messages(results: Results, application: str, sockets: str) -> pl.DataFrame:
    """The messages of an application over one kind of sockets."""
    labels = {"application": application, "sockets": sockets}
    cells = [cell for cell in results.cells if labels.items() <= dict(cell.labels).items()]
    group = "nv" if application == "nv" else "images"
    table = results.of(cells).table("messages").filter(group=group)
    return table.select("seed", "message", "payload_bytes", "received_s", "delay_s")


def both(results: Results, application: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Messages over plain sockets and these; of images those that both have shown."""
    plain, ours = (messages(results, application, sockets) for sockets in SOCKETS)
    if application == "nv":
        return plain, ours
    keys = ["seed", "message"]
    return plain.join(ours, keys, "semi"), ours.join(plain, keys, "semi")


def delay_ms(table: pl.DataFrame) -> float:
    """Mean delay in milliseconds; NaN if none arrived."""
    if table.is_empty():
        return math.nan
    return float(table["delay_s"].to_numpy().mean()) * 1e3


def throughput(table: pl.DataFrame) -> float:
    """Payload in kbit/s from the first arrival to the last, over all runs.

    NaN if there is no time between them.
    """
    ordered = table.sort("seed", "received_s")
    runs = [part for _, part in ordered.group_by("seed", maintain_order=True)]
    payload = sum(int(part["payload_bytes"][1:].sum()) for part in runs)
    seconds = sum(float(part["received_s"][-1] - part["received_s"][0]) for part in runs)
    return payload * 8e-3 / seconds if seconds else math.nan


def judge(results: Results) -> Finding:
    """Under one per cent, each."""
    checks = []
    for sentence, application, measure, unit in (
        ("Images: throughput within 1 %.", "dirm", throughput, "kbit/s"),
        ("Images: delay within 1 %.", "dirm", delay_ms, "ms"),
        ("Video: delay within 1 %.", "nv", delay_ms, "ms"),
    ):
        plain, ours = (measure(table) for table in both(results, application))
        checks.append(_within(sentence, plain, ours, unit, more_is_worse=measure is delay_ms))
    notes = [
        circumstances(results.table(MACHINE)),
        "Test A1 over the kernel's own sockets and over these: the slide show with and without"
        " gateways, NetVideo beside the emulator's own video. Of images those that were shown in"
        " both runs. The video's throughput is its source's, over either.",
    ]
    return Finding([], checks, notes)


def _within(sentence: str, plain: float, ours: float, unit: str, *, more_is_worse: bool) -> Check:
    off = 100 * (ours / plain - 1) if plain else math.nan
    worse = off if more_is_worse else -off
    return judged(
        sentence,
        "under 1 %",
        lambda: f"plain {number(plain)} {unit}, with quality {number(ours)} {unit}: {off:+.1f} %",
        {"messages over plain sockets": plain, "over these": ours, "their difference": off},
        lambda: worse < MAX_PERCENT,
        HEADERS,
    )


CLAIM = Claim(
    id="qosockets/overhead",
    title="These sockets against plain ones",
    world=World.EMULATION,
    published="The sockets keep what they cost to less than 1 %.",
    expectation="Less than 1 % in throughput and delay.",
    cells=overhead_cells,
    judge=judge,
    scaling=played_scaling,
)
