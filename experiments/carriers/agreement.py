"""What is compared, and the rule: docs/validation.md gives it in words."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

import polars as pl

from ontempo.lab.statistics import t_quantile
from ontempo.lab.study import Results

Verdict = Literal["agrees", "differs", "cannot be told"]

QUANTITIES = {"frames lost": 2.0, "bytes": 3.0}
"""What is compared, and how far apart it may be: percentage points of the frames, per cent."""


@dataclass(frozen=True)
class Compared:
    """One quantity of a carrier on a path: of each simulated run, and of each emulated one.

    Frames lost are in per cent of those sent; bytes are those on the wire there for each of the
    film.
    """

    path: str
    carrier: str
    quantity: str
    simulated: Sequence[float]
    emulated: Sequence[float]

    @property
    def cell(self) -> str:
        """How a cause names it."""
        return f"{self.carrier}: {self.path}: {self.quantity}"

    @property
    def distance(self) -> float:
        """Simulated less emulated: in points of frames, in per cent of the emulated bytes."""
        if not self.simulated or not self.emulated:
            return math.nan
        difference = fmean(self.simulated) - fmean(self.emulated)
        return difference if self.quantity == "frames lost" else difference / self._unit

    @property
    def half_width(self) -> float:
        """Half the 95 % interval of the distance.

        Student's t, with the spread of simulated runs for both: two emulated runs show none.
        """
        many, few = len(self.simulated), len(self.emulated)
        if many < 2 or few == 0:
            return math.nan
        spread = stdev(self.simulated) * math.sqrt(1 / many + 1 / few)
        half = t_quantile(0.975, many - 1) * spread
        return half if self.quantity == "frames lost" else half / self._unit

    @property
    def _unit(self) -> float:
        return fmean(self.emulated) / 100

    @property
    def verdict(self) -> Verdict:
        """Agrees where all of the interval is within the bound, differs where none of it is."""
        bound, distance, half = QUANTITIES[self.quantity], abs(self.distance), self.half_width
        if math.isnan(distance) or math.isnan(half):
            return "cannot be told"
        if distance + half <= bound:
            return "agrees"
        return "differs" if distance - half > bound else "cannot be told"


def compared(results: Results) -> list[Compared]:
    """Each quantity of each carrier and path, in the order of the cells."""
    rows = []
    paths = list(dict.fromkeys(str(dict(cell.labels)["path"]) for cell in results.cells))
    values = {
        (path, world, carrier, quantity): numbers
        for (path, world, carrier, quantity), numbers in _values(results)
    }
    for path in paths:
        for carrier in dict.fromkeys(key[2] for key in values):
            for quantity in QUANTITIES:
                of = {w: values.get((path, w, carrier, quantity), []) for w in WORLDS}
                rows.append(Compared(path, carrier, quantity, of[WORLDS[0]], of[WORLDS[1]]))
    return rows


WORLDS = ("simulated", "emulated")


def _values(results: Results) -> Iterator[tuple[tuple[str, str, str, str], list[float]]]:
    run = ["path", "world", "group"]
    lost = (pl.col("latency_s").is_null().mean() * 100).alias("frames lost")
    bytes_ = (pl.col("wire_bytes") / pl.col("media_bytes")).first().alias("bytes")
    for table, of, quantity in (("frames", lost, "frames lost"), ("media", bytes_, "bytes")):
        rows = results.table(table).group_by([*run, "seed"], maintain_order=True).agg(of)
        for key, part in rows.group_by(run, maintain_order=True):
            path, world, carrier = (str(one) for one in key)
            yield (path, world, carrier, quantity), part[quantity].to_list()
