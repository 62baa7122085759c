"""One scenario in two worlds: simulated and emulated, read from the same tables."""

import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import polars as pl

from ontempo.lab.errors import BAD_INPUT, INTERRUPTED, BadInputError, UnfitEnvironmentError
from ontempo.lab.programs import program

WORLDS = ("simulated", "emulated")

COMMANDS = {"simulated": "simulate", "emulated": "emulate"}

Tables = Mapping[str, pl.DataFrame]

#: The tables that are compared.
TABLES = ("flows", "links", "samples", "playout")


@dataclass(frozen=True)
class Difference:
    """One quantity of one subject in both worlds."""

    subject: str
    quantity: str
    simulated: float
    emulated: float

    @property
    def relative(self) -> float:
        """Emulated minus simulated, as a share of simulated; not a number where that is zero."""
        if self.simulated == 0:
            return math.nan
        return (self.emulated - self.simulated) / abs(self.simulated)


@dataclass(frozen=True)
class Course:
    """A quantity over time in one world: its mean over a group's flows, by second."""

    subject: str
    quantity: str
    world: str
    points: Mapping[float, float]


@dataclass(frozen=True)
class Comparison:
    """A scenario's two runs, and how they differ."""

    title: str
    differences: Sequence[Difference]
    courses: Sequence[Course]


def run_worlds(path: Path, out: Path, options: Sequence[str], only_emulated: Sequence[str]) -> None:
    """Run a scenario in both worlds, each into its own folder below `out`."""
    for world in WORLDS:
        extra = only_emulated if world == "emulated" else ()
        command = [program(), COMMANDS[world], str(path), "--out", str(out / world)]
        done = subprocess.run([*command, *options, *extra], stdout=subprocess.PIPE, check=False)
        if done.returncode == 0:
            continue
        kind = BadInputError if done.returncode == BAD_INPUT else UnfitEnvironmentError
        why = "was interrupted" if done.returncode == INTERRUPTED else "could not be run, see above"
        raise kind(f"{path}: the scenario {why} ({world})")


def read_tables(folder: Path) -> Tables:
    """The tables of one run."""
    return {
        name: pl.read_parquet(folder / f"{name}.parquet").with_columns(
            pl.selectors.categorical().cast(pl.String)
        )
        for name in TABLES
    }


def title_of(folder: Path) -> str:
    """The title of the scenario that was run into a folder."""
    title = json.loads((folder / "run.json").read_text("utf-8")).get("title", "")
    return str(title)


def compare(title: str, simulated: Tables, emulated: Tables) -> Comparison:
    """Compare the tables of two runs of one scenario."""
    both = {"simulated": simulated, "emulated": emulated}
    return Comparison(
        title,
        [*_of_flows(both), *_of_playout(both), *_of_links(both)],
        [course for world, tables in both.items() for course in _courses(world, tables)],
    )


def _pairs(
    frames: Mapping[str, pl.DataFrame], subject: str, quantities: Sequence[str]
) -> Iterator[Difference]:
    """The quantities of the subjects that both worlds have."""
    joined = frames["simulated"].join(frames["emulated"], on=subject, suffix=" emulated")
    for row in joined.sort(subject).iter_rows(named=True):
        for quantity in quantities:
            values = (row[quantity], row[f"{quantity} emulated"])
            if all(value is not None and math.isfinite(value) for value in values):
                yield Difference(row[subject], quantity, *values)


def _of_flows(both: Mapping[str, Tables]) -> Iterator[Difference]:
    sent = pl.col("sent_packets").sum().clip(lower_bound=1)
    # A transport that cannot tell what it sends again has none, which is not 0.
    again = pl.when(pl.col("retransmitted").is_not_null().all()).then(pl.col("retransmitted").sum())
    groups = {
        world: tables["flows"]
        .group_by("group")
        .agg(
            pl.col("goodput_bps").sum().alias("goodput, Mbit/s") / 1e6,
            (pl.col("dropped_packets").sum() / sent * 100).alias("lost, %"),
            (again / sent * 100).alias("sent again, %"),
            (pl.col("srtt_s").mean() * 1e3).alias("smoothed RTT at the end, ms"),
            (pl.col("min_rtt_s").min() * 1e3).alias("least RTT, ms"),
        )
        for world, tables in both.items()
    }
    yield from _pairs(groups, "group", groups["simulated"].columns[1:])


def _of_playout(both: Mapping[str, Tables]) -> Iterator[Difference]:
    name = pl.format("{}, start-up delay {} s", "group", "startup_delay_s").alias("stream")
    late = (pl.col("late").sum() / pl.col("units").sum().clip(lower_bound=1) * 100).alias("late, %")
    streams = {world: tables["playout"].group_by(name).agg(late) for world, tables in both.items()}
    yield from _pairs(streams, "stream", ["late, %"])


def _of_links(both: Mapping[str, Tables]) -> Iterator[Difference]:
    """Links that drop packets in the simulation, or are busy for more than a tenth of the time."""
    dropped = pl.sum_horizontal(pl.col(r"^(dropped_.*|corrupted)$"))
    rate = (dropped / pl.col("arrivals").clip(lower_bound=1) * 100).alias("dropped, %")
    links = {
        world: tables["links"].select(
            "link",
            (pl.col("busy") * 100).alias("busy, %"),
            pl.col("mean_packets").alias("mean queue, packets"),
            rate,
        )
        for world, tables in both.items()
    }
    simulated = links["simulated"]
    notable = simulated.filter((pl.col("busy, %") > 10) | (pl.col("dropped, %") > 0))  # noqa: PLR2004
    links["simulated"] = notable
    yield from _pairs(links, "link", simulated.columns[1:])


def _courses(world: str, tables: Tables) -> Iterator[Course]:
    """The sampled quantities; of flows, the mean over those of a group."""
    samples = tables["samples"]
    groups = set(tables["flows"]["group"])
    group = pl.col("subject").str.replace(r"\.\d+$", "")
    subject = pl.when(group.is_in(sorted(groups))).then(group).otherwise(pl.col("subject"))
    means = (
        samples.with_columns(subject.alias("subject"), pl.col("time_s").round(3))
        .group_by("quantity", "subject", "time_s")
        .agg(pl.col("value").mean())
        .sort("quantity", "subject", "time_s")
    )
    for (quantity, name), points in means.group_by("quantity", "subject", maintain_order=True):
        values = dict(zip(points["time_s"], points["value"], strict=True))
        if quantity == "delivered_bytes":
            yield Course(str(name), "goodput_mbps", world, _rates(values))
        else:
            yield Course(str(name), str(quantity), world, values)


def _rates(bytes_by_time: Mapping[float, float]) -> dict[float, float]:
    """Mbit/s between one sample and the next."""
    places = sorted(bytes_by_time)
    return {
        now: (bytes_by_time[now] - bytes_by_time[before]) * 8e-6 / (now - before)
        for before, now in pairwise(places)
        if now > before
    }
