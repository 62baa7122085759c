r"""The measure by which ontempo's default controller is chosen (docs/comparison.md), from an arena.

ontempo-lab arena --full --only ontempo --only ontempo-pert --only ontempo-media \
    --only ontempo-cubic --only ontempo-newreno --only ontempo-bbr-v3 --out out/measure
python -m experiments.controllers out/measure
"""

import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, stdev

import polars as pl

import ontempo as ot
from ontempo.lab.arena import summary
from ontempo.lab.arena.contenders import CONTENDERS, Contender
from ontempo.lab.arena.groups import GROUPS

CLASSES = ("comparison", "profiles", "rfc8867", "beside", "jitter", "outage")
BUFFERS = ("1.2", "2", "4")
LATENCY_MS = 400
"""Of the two conditions' films: four round trips of 100 ms."""
CAPACITY_BPS = 20e6
SHARED_MBPS = (6, 9)
SEEDS = range(1, 11)
LEAST_SHARE, LEAST_JAIN = 0.8, 0.95

_FILM = (
    'application = { kind = "media", generate = { rate = "3.7 Mbit/s", constant = false, '
    'key-distance = 50, duration = "30 s" }, sending = "bursts" }'
)
_TWO_FILMS = """duration = "35 s"
[topology]
kind = "dumbbell"
access = {{ rate = "1 Gbit/s", delay = "0 ms" }}
bottleneck = {{ rate = "{mbps} Mbit/s", delay = "50 ms", queue = {queue} }}
[flows.film]
count = 2
{film}
transport = {transport}
stop = "29 s"
[measure]
from = "5 s"
"""


def by_path(rows: pl.DataFrame) -> pl.DataFrame:
    """The share of pictures on time and the bytes of each path and contender."""
    rows = rows.filter(pl.col("buffer").is_in(BUFFERS), pl.col("class").is_in(CLASSES))
    over_films = summary.by_path(rows)
    return over_films.group_by("class", "path", "contender").agg(pl.col("on_time", "bytes").mean())


def by_class(paths: pl.DataFrame, contender: str) -> dict[str, float]:
    """The mean over the paths of each class."""
    of_one = paths.filter(contender=contender).group_by("class").agg(pl.col("on_time").mean())
    return dict(of_one.iter_rows())


def weighted(paths: pl.DataFrame, contender: str, column: str) -> float:
    """The mean over the classes of a column, each of the same weight."""
    of_one = paths.filter(contender=contender).group_by("class").agg(pl.col(column).mean())
    return fmean(of_one[column].to_list())


def difference(paths: pl.DataFrame, one: str, other: str) -> tuple[float, float]:
    """How far one is ahead, paired by path, each class of the same weight; half of its interval."""
    both = paths.filter(contender=one).join(
        paths.filter(contender=other), on=["class", "path"], suffix="_other"
    )
    ahead = both.with_columns(ahead=pl.col("on_time") - pl.col("on_time_other"))
    means, variance = [], 0.0
    for of_class in ahead.partition_by("class"):
        values = of_class["ahead"].to_list()
        means.append(fmean(values))
        variance += (stdev(values) ** 2 / len(values)) if len(values) > 1 else 0.0
    return fmean(means), 1.96 * math.sqrt(variance) / len(means)


def share_of_download(contender: Contender) -> float:
    """Its goodput over the capacity that the film leaves, mean of the paths beside one CUBIC."""
    paths = next(group.paths for group in GROUPS if group.name == "beside")
    shares = []
    for path in (path for path in paths if path.name.startswith("cubic-")):
        text = path.text + f"\n[flows.film]\n{_FILM}\ntransport = {contender.table(LATENCY_MS)}\n"
        text = f'duration = "36 s"\n{text}stop = "29 s"\n[measure]\nfrom = "5 s"\n'
        flows = pl.DataFrame(ot.run(ot.parse(text), 1).flows)
        of = dict(flows.select(pl.col("group").cast(pl.String), "goodput_bps").iter_rows())
        shares.append(of["downloads"] / (CAPACITY_BPS - of["film"]))
    return fmean(shares)


def jain_of_two(contender: Contender) -> float:
    """Jain's index of two films over one path, mean over capacities and seeds."""
    found = []
    for mbps in SHARED_MBPS:
        text = _TWO_FILMS.format(
            mbps=mbps,
            queue=f'{{ kind = "drop-tail", limit = "{mbps * 12_500} bytes" }}',
            film=_FILM,
            transport=contender.table(LATENCY_MS),
        )
        scenario = ot.parse(text)
        for seed in SEEDS:
            sent = pl.DataFrame(ot.run(scenario, seed).media)["wire_bytes"].to_list()
            found.append(sum(sent) ** 2 / (len(sent) * sum(one * one for one in sent)))
    return fmean(found)


def report(rows: pl.DataFrame) -> Iterable[str]:
    """The lines of a table: the candidates by the measure, with the two conditions."""
    paths = by_path(rows)
    present = set(paths["contender"].unique())
    candidates = [one for one in CONTENDERS if one.name in present]
    totals: Mapping[str, float] = {
        one.name: weighted(paths, one.name, "on_time") for one in candidates
    }
    best = max(totals, key=lambda name: totals[name])
    yield f"| carried by | {' | '.join(CLASSES)} | mean | ahead of it | bytes | download | Jain |"
    yield "| --- |" + " ---: |" * (len(CLASSES) + 5)
    for one in sorted(candidates, key=lambda one: -totals[one.name]):
        classes = by_class(paths, one.name)
        shares = " | ".join(f"{classes[name] * 100:.1f}" for name in CLASSES)
        ahead, half = difference(paths, best, one.name)
        lead = "" if one.name == best else f"{ahead * 100:.1f} ± {half * 100:.1f}"
        size = weighted(paths, one.name, "bytes")
        download, jain = share_of_download(one), jain_of_two(one)
        yield (
            f"| {one.shown} | {shares} | {totals[one.name] * 100:.1f} | {lead} | {size:.2f} "
            f"| {download:.2f} | {jain:.3f} |"
        )


def main() -> None:
    """Prints the table of an arena."""
    if len(sys.argv) != 2 or not (table := Path(sys.argv[1]) / "arena.parquet").is_file():
        sys.exit("usage: python -m experiments.controllers FOLDER, with the folder of an arena")
    for line in report(pl.read_parquet(table)):
        print(line)


if __name__ == "__main__":
    main()
