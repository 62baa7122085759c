"""Batch means: one long run cut into equal spans of its measured time.

Values of one run depend on each other; means over spans much longer than that dependence
nearly do not, so an interval over them is valid where one over single values would be far too
narrow. `lag_one` shows whether the spans are long enough.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from statistics import fmean
from typing import Literal

import polars as pl

from ontempo.lab.errors import BadInputError

TIMES = {"samples": "time_s", "packets": "time_s", "events": "time_s", "adus": "due_s"}
"""Tables with a time, and its column."""

UNITS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
"""In ns."""

QUANTITY = re.compile(r"([0-9.eE+-]+)\s*([a-zµ]+)")


def cut(
    tables: Mapping[str, pl.DataFrame], canonical: str, batches: int
) -> Iterator[dict[str, pl.DataFrame]]:
    """The tables of each batch; those without a time are left out.

    Each measured row is in one batch: at an edge in the later one, at the run's end in the last.
    """
    scenario = json.loads(canonical)
    start = nanoseconds(scenario.get("measure", {}).get("from", "0 s"))
    lasts = nanoseconds(scenario["duration"]) - start
    # Rounded once, as the simulator rounds its times.
    edges = [(start + lasts * batch // batches) / 1e9 for batch in range(batches + 1)]
    timed = {name: column for name, column in TIMES.items() if name in tables}
    for batch, (low, high) in enumerate(pairwise(edges)):
        closed: Literal["both", "left"] = "both" if batch == batches - 1 else "left"
        yield {
            name: tables[name].filter(pl.col(column).is_between(low, high, closed=closed))
            for name, column in timed.items()
        }


def nanoseconds(text: str) -> int:
    """A duration of a canonical scenario."""
    found = QUANTITY.fullmatch(text.strip())
    if not found or found[2] not in UNITS:
        raise BadInputError(f"{text!r} is no duration")
    return round(Fraction(found[1]) * UNITS[found[2]])


def lag_one(values: Sequence[float]) -> float:
    """The correlation of each value with the next; near 0 where batches are long enough."""
    mean = fmean(values)
    spread = sum((value - mean) ** 2 for value in values)
    if spread == 0:
        return 0.0
    return sum((a - mean) * (b - mean) for a, b in pairwise(values)) / spread
