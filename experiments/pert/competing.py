"""PERT that competes with loss-based flows: what it has beside them, and what it costs alone.

Run from the checkout's root::

    python -m experiments.pert.competing

It prints three tables of Markdown, for both values of ``compete``: goodput beside one loss-based
flow; the runs in which the queue is short again after a download; the queue of PERT flows alone.
"""

import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

import ontempo

SCENARIO = Path(__file__).with_name("competing.toml")

COMPETE = ("alpha", "as-reno")

BUFFERS = (33, 66, 133, 266)
"""A half to four bandwidth-delay products."""

SEEDS = range(1, 11)

SHORT = 0.25
"""A queue that holds less than this of its limit on average is short; a Reno flow's holds more."""


def run(seed: int, compete: str, *overrides: str) -> ontempo.Result:
    """One run with PERT so."""
    pert = f'flows.pert.transport.congestion={{ kind = "pert", compete = "{compete}" }}'
    return ontempo.run(ontempo.load(SCENARIO, [pert, *overrides, f"seed={seed}"]))


def queue(result: ontempo.Result) -> float:
    """Mean packets in the bottleneck's queue."""
    links = pl.DataFrame(result.links).with_columns(pl.col("link").cast(pl.String))
    return float(links.filter(link="bottleneck")["mean_packets"].item())


def goodput_mbps(result: ontempo.Result, group: str) -> float:
    """Of all flows of a group."""
    flows = pl.DataFrame(result.flows).with_columns(pl.col("group").cast(pl.String))
    return float(flows.filter(group=group)["goodput_bps"].sum()) / 1e6


def limit(packets: int) -> str:
    """The buffer."""
    return f'topology.bottleneck.queue.limit="{packets} packets"'


def beside_table() -> Iterator[str]:
    """PERT's share beside one endless flow."""
    yield "| buffer, packets | beside | `alpha` | `as-reno` | single seeds of `as-reno` |"
    yield "| ---: | --- | ---: | ---: | --- |"
    for packets in BUFFERS:
        for other in ("cubic", "reno"):
            fields = (
                limit(packets),
                'flows.download.application={ kind = "ftp" }',
                f'flows.download.transport.congestion="{other}"',
                'duration="120 s"',
                'measure.from="20 s"',
            )
            shares = {
                compete: [goodput_mbps(run(seed, compete, *fields), "pert") for seed in SEEDS]
                for compete in COMPETE
            }
            means = " | ".join(f"{statistics.mean(shares[one]):.2f}" for one in COMPETE)
            last = shares["as-reno"]
            yield f"| {packets} | {other} | {means} | {min(last):.1f} to {max(last):.1f} |"


def after_table() -> Iterator[str]:
    """In how many runs the queue is short again after the download."""
    yield "| buffer, packets | PERT flows | `alpha` | `as-reno` |"
    yield "| ---: | ---: | ---: | ---: |"
    for packets in (66, 266):
        for count in (1, 2, 3, 4):
            fields = (limit(packets), f"flows.pert.count={count}")
            short = [
                sum(queue(run(seed, compete, *fields)) < SHORT * packets for seed in SEEDS)
                for compete in COMPETE
            ]
            yield (
                f"| {packets} | {count} | "
                + " | ".join(f"{n} of {len(SEEDS)}" for n in short)
                + " |"
            )


def alone_table() -> Iterator[str]:
    """The queue of PERT flows among themselves."""
    yield "| rate, buffer | PERT flows | `alpha` | `as-reno` |"
    yield "| --- | ---: | --- | --- |"
    for rate, packets, count in (
        (10, 50, 5),
        (20, 66, 4),
        (20, 66, 16),
        (20, 266, 16),
        (100, 330, 40),
    ):
        fields = (
            limit(packets),
            f'topology.bottleneck.rate="{rate} Mbit/s"',
            f"flows.pert.count={count}",
            'flows.download.application={ kind = "file", size = "1 kB" }',
        )
        cells = []
        for compete in COMPETE:
            found = [queue(run(seed, compete, *fields)) for seed in SEEDS]
            cells.append(f"{statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f})")
        yield f"| {rate} Mbit/s, {packets} | {count} | " + " | ".join(cells) + " |"


TABLES = {"beside": beside_table, "after": after_table, "alone": alone_table}


def main(arguments: Sequence[str]) -> None:
    """Prints the tables named, or all."""
    for name in arguments or TABLES:
        print(f"\n**{name}**\n")
        for line in TABLES[name]():
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
