"""What is compared, and the rule: docs/fidelity.md gives it in words."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import polars as pl

from ontempo.lab.statistics import Interval, difference_half_width, mean_interval
from ontempo.lab.study import Results

from .grid import PROFILES, ROWS, Profile

Verdict = Literal["agrees", "differs", "cannot be told"]

TOLERANCE = 0.1
"""Of the emulated mean."""

FLOORS: Mapping[str, float] = {
    "goodput, Mbit/s": 0.0,
    "lost, %": 0.05,
    "queueing delay, ms": 0.5,
    "late, %": 0.5,
}
"""Differences that are none, in the quantity's own unit: where a share of nearly nothing is no
measure. The emulator's own lateness is a fraction of a millisecond."""


@dataclass(frozen=True)
class Compared:
    """One quantity of one subject of a scenario: emulated, and simulated under each profile."""

    scenario: str
    subject: str
    quantity: str
    emulated: Interval
    simulated: Mapping[Profile, Interval]
    halves: Mapping[Profile, float]
    """Half the 95 % interval of the difference, by profile."""

    @property
    def cell(self) -> str:
        """How a cause names it."""
        return f"{self.scenario}: {self.subject}: {self.quantity}"

    @property
    def is_of_tcp(self) -> bool:
        """Whether a profile matters: it was simulated under each."""
        return len(self.simulated) == len(PROFILES)

    @property
    def tolerance(self) -> float:
        """The difference that is accepted beyond the interval."""
        return max(TOLERANCE * abs(self.emulated.value), FLOORS[self.quantity])

    def distance(self, profile: Profile) -> float:
        """Simulated less emulated, as a share of emulated or, for small values, of the floor."""
        difference = self.simulated[profile].value - self.emulated.value
        base = max(abs(self.emulated.value), FLOORS[self.quantity] / TOLERANCE)
        return difference / base if base else 0.0

    def verdict(self, profile: Profile) -> Verdict:
        """By the rule."""
        difference = abs(self.simulated[profile].value - self.emulated.value)
        half = self.halves[profile]
        if math.isnan(half):
            return "cannot be told"
        if difference > half + self.tolerance:
            return "differs"
        return "agrees" if half <= 2 * self.tolerance else "cannot be told"


Values = Mapping[tuple[str, str, str], Sequence[float]]
"""The values of each run, by scenario, subject and quantity."""


PAIRED = frozenset(row.name for row in ROWS if row.paired)


def compared(
    emulated: Values, simulated: Mapping[Profile, Values], paired: Collection[str] = PAIRED
) -> list[Compared]:
    """Every cell that was emulated and simulated; these scenarios seed by seed."""
    rows = []
    for cell, values in emulated.items():
        of = {profile: runs[cell] for profile, runs in simulated.items() if cell in runs}
        if of and cell[0] in paired:
            of = {profile: runs[: len(values)] for profile, runs in of.items()}
            halves = {profile: _paired_half_width(runs, values) for profile, runs in of.items()}
        else:
            halves = {profile: difference_half_width(runs, values) for profile, runs in of.items()}
        if of:
            means = {profile: mean_interval(runs) for profile, runs in of.items()}
            rows.append(Compared(*cell, mean_interval(values), means, halves))
    return rows


def _paired_half_width(one: Sequence[float], other: Sequence[float]) -> float:
    """Half the interval of the mean difference of runs with the same seed, from 0 on."""
    differences = [a - b for a, b in zip(one, other, strict=False)]
    interval = mean_interval(differences)
    return interval.high - interval.value


def values_of(results: Results, world: str) -> Values:
    """What is compared, of the runs in a world, in the order of the scenarios."""
    by_cell: dict[tuple[str, str, str], list[float]] = {}
    cells = [cell for cell in results.cells if dict(cell.labels)["world"] == world]
    for *cell, value in _values(results.of(cells)) if cells else ():
        by_cell.setdefault((cell[0], cell[1], cell[2]), []).append(value)
    return by_cell


def _values(results: Results) -> Iterator[tuple[str, str, str, float]]:
    """Scenario, subject, quantity, and one run's value."""
    run = ["scenario", "seed"]
    sent = pl.col("sent_packets").sum().clip(lower_bound=1)
    lost = (pl.col("dropped_packets").sum() / sent * 100).alias("lost, %")
    goodput = (pl.col("goodput_bps").sum() / 1e6).alias("goodput, Mbit/s")
    # Little's law: the mean wait of the packets that left.
    left = pl.col("departures").clip(lower_bound=1)
    wait = pl.col("mean_packets") * pl.col("span_s") / left * 1e3
    late = pl.col("late").sum() / pl.col("units").sum().clip(lower_bound=1) * 100
    groups = [*run, "group"]
    flows = results.table("flows").group_by(groups, maintain_order=True).agg(goodput, lost)
    link = pl.col("link") == "bottleneck"
    links = results.table("links").filter(link)
    tables = [
        flows,
        links.select(*run, pl.col("link").alias("group"), wait.alias("queueing delay, ms")),
        results.table("playout").group_by(groups, maintain_order=True).agg(late.alias("late, %")),
    ]
    long = [
        table.unpivot(index=groups, variable_name="quantity", value_name="value").cast(
            {"value": pl.Float64}
        )
        for table in tables
    ]
    order = {
        name: at
        for at, name in enumerate(results.table("flows")["scenario"].unique(maintain_order=True))
    }
    rows = pl.concat(long).select("scenario", "group", "quantity", "value").rows()
    yield from sorted(rows, key=lambda row: order[row[0]])


def counts(rows: Sequence[Compared], profile: Profile) -> Counter[Verdict]:
    """How many cells have each verdict under a profile."""
    return Counter(row.verdict(profile) for row in rows if profile in row.simulated)


def chosen_default(rows: Sequence[Compared]) -> Profile:
    """The profile that differs in fewer cells of flows over TCP; at a tie, the nearer one."""
    tcp = [row for row in rows if row.is_of_tcp]

    def rank(profile: Profile) -> tuple[int, float]:
        distances = [abs(row.distance(profile)) for row in tcp]
        return counts(tcp, profile)["differs"], median(distances) if distances else 0.0

    return min(PROFILES, key=rank)


def furthest(rows: Sequence[Compared], profile: Profile, many: int) -> list[Compared]:
    """The cells in which a profile is furthest from the emulation, of those that can be told."""
    decided = [
        row for row in rows if profile in row.simulated and row.verdict(profile) != "cannot be told"
    ]
    return sorted(decided, key=lambda row: -abs(row.distance(profile)))[:many]
