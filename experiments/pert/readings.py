"""Open points of the paper, tried both ways: which readings change which verdicts.

Run from the checkout's root::

    python -m experiments.pert.readings load        # the web users' load, for figures 4 and 5
    python -m experiments.pert.readings compare     # PERT's two readings, CUBIC's two, the queues
    python -m experiments.pert.readings length      # videos of 700 s and of the published 7,000 s
    python -m experiments.pert.readings trips       # each round trip by itself
    python -m experiments.pert.readings buffers     # figure 2's buffer, and PERT's two readings
    python -m experiments.pert.readings extensions  # chapters IV and V: timers, buffers, PERT's two
    python -m experiments.pert.readings sampling    # the declared readings: success, and figure 2

Each prints a table of Markdown, as in docs/experiments-pert.md. Cells are stored beside
those of ``ontempo-lab reproduce``, so nothing is run twice.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import polars as pl

from ontempo.lab.claims import Claim, Verdict
from ontempo.lab.engine import NativeEngine
from ontempo.lab.judging import number
from ontempo.lab.readings import judgement, with_settings
from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Results, Study

from .claims import CHAPTER_II, CHAPTER_III, CHAPTER_IV, CHAPTER_V
from .declared import sampled, with_jitter, with_parameters
from .extension_readings import EXTENSION_READINGS
from .figures.fig2 import enqueued, longest_seen, shares
from .grid import (
    CONTROLLERS,
    CUBIC,
    FULL,
    PERT,
    PUBLISHED_RTTS,
    QUICK,
    Block,
    queue_cells,
    video_cell,
)
from .streams import runs, streams, success_by_delay

STORE = Path("out/reproduce/cells")

THINK_S = (4, 5, 5.5, 6, 6.5, 7, 8)
"""Mean think times tried."""

ENDS = {20: 2.0, 35: 1.0}
"""T/mu that the paper states for the fewest and the most videos."""

CALIBRATED_WITH = "reno"
"""The videos' controller while the load is chosen: the paper's baseline, so that no behaviour of
the controllers that are compared enters the setup."""

OVERLOAD = 33
"""A number of videos that carries T/mu below 1.0, for the table of round trips."""

LENGTH_COUNTS = (22, 26, 31)
"""Numbers of videos for which short and long runs are compared: much, middling, little T/mu."""

BUFFERS = (281, 562, 1125, 2250)
"""Packets of figure 2's buffer: a quarter, half, one and two bandwidth-delay products."""

Reading = Callable[[Cell], Cell]


def replaced(old: str, new: str) -> Reading:
    """One override's value in place of another."""
    return lambda cell: replace(
        cell, overrides=tuple(one.replace(f"={old}", f"={new}") for one in cell.overrides)
    )


def with_more(*overrides: str, over: str = "") -> Reading:
    """More overrides, for the scenarios of chapter III, or some controller's alone."""

    def meant(cell: Cell) -> bool:
        controller = dict(cell.labels).get("controller")
        return cell.scenario.name == "video.toml" and over in ("", controller)

    return lambda cell: (
        replace(cell, overrides=(*cell.overrides, *overrides)) if meant(cell) else cell
    )


READINGS: Mapping[str, Reading] = {
    "PERT thesis": replaced(PERT["reference"], PERT["thesis"]),
    "PERT reference": replaced(PERT["thesis"], PERT["reference"]),
    "CUBIC RFC 9438": replaced(CUBIC["linux-2.6"], CUBIC["rfc9438"]),
    "CUBIC without timestamps": with_more("flows.video.transport.timestamps=false", over="cubic"),
    "150 packets on access links too": with_more(
        'topology.access.queue={ kind = "drop-tail", limit = "150 packets" }'
    ),
}
"""Each differs in one thing from what ``ontempo-lab reproduce`` runs (or in nothing)."""


def run(cells: Iterable[Cell], jobs: int) -> Results:
    """Run the cells that are not stored yet."""
    engine = NativeEngine()
    study = Study(engine, Store(STORE, engine.fingerprint()), jobs)
    return study.run(study.plan(cells))


def load_table(jobs: int) -> Iterator[str]:
    """T/mu at both ends of the range, for each think time."""
    block = replace(QUICK[1000], counts=tuple(ENDS))
    cells = {think: _load_cells(block, think) for think in THINK_S}
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield "| think time | web users, Mbit/s | T/μ at 20 | T/μ at 35 | squared distance |"
    yield "| --- | --- | --- | --- | --- |"
    for think, each in cells.items():
        table = results.of(each).derive(runs)
        ends = {n: _mean(table.filter(flows=n), "t_mu") for n in ENDS}
        off = sum((ends[n] - asked) ** 2 for n, asked in ENDS.items())
        web = " to ".join(number(_mean(table.filter(flows=n), "http_bps") / 1e6) for n in ENDS)
        yield f"| {think:g} s | {web} | {ends[20]:.2f} | {ends[35]:.2f} | {off:.4f} |"


def _load_cells(block: Block, think: float) -> list[Cell]:
    thinking = with_more(f'flows.http.application.think="{think:g} s"')
    grid = product(block.rtts, block.counts, block.seeds)
    return [thinking(video_cell(block, CALIBRATED_WITH, *values)) for values in grid]


def _mean(table: pl.DataFrame, column: str) -> float:
    return float(table[column].to_numpy().mean())


VIDEO_CLAIMS = [figure.CLAIM for figure in (*CHAPTER_II[:2], *CHAPTER_III[:-1])]
"""Figures 1 to 12."""

EXTENSION_CLAIMS = [
    figure.CLAIM for figure in (*CHAPTER_II[2:], CHAPTER_III[-1], *CHAPTER_IV, *CHAPTER_V)
]
"""The other claims."""


def comparison(
    jobs: int,
    claims: Sequence[Claim] = VIDEO_CLAIMS,
    readings: Mapping[str, Reading] = READINGS,
) -> Iterator[str]:
    """Verdict and checks held of some claims, under each reading."""
    needed = {
        name: {claim.id: [reading(cell) for cell in claim.cells("quick")] for claim in claims}
        for name, reading in readings.items()
    }
    every = (cell for claims in needed.values() for cells in claims.values() for cell in cells)
    results = run(every, jobs)
    yield "| claim | " + " | ".join(readings) + " |"
    yield "| --- |" + " --- |" * len(readings)
    totals = dict.fromkeys(readings, (0, 0, 0))
    for claim in claims:
        cells = []
        for name in readings:
            verdict, held, checks = _judged(claim, results.of(needed[name][claim.id]))
            cells.append(f"{verdict}, {held} of {checks}")
            before = totals[name]
            reproduced = before[0] + (verdict is Verdict.REPRODUCED)
            totals[name] = (reproduced, before[1] + held, before[2] + checks)
        yield f"| {claim.id} | " + " | ".join(cells) + " |"
    summed = (f"{r} reproduced, {held} of {checks}" for r, held, checks in totals.values())
    yield "| all | " + " | ".join(summed) + " |"


def length_table(jobs: int) -> Iterator[str]:
    """Success in short and in long videos: how much of a tie is owed to the length."""
    lengths = {block.duration_s: block for block in (QUICK[1000], FULL[1000])}
    cells = {
        (name, seconds): [
            video_cell(replace(block, seeds=(0,)), name, rtt, count, 0)
            for rtt, count in product(block.rtts, LENGTH_COUNTS)
        ]
        for name, (seconds, block) in product(CONTROLLERS, lengths.items())
    }
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield "| videos | length | T/μ | 1 s | 3 s | 5 s | 11 s | 30 s |"
    yield "| --- | --- |" + " --- |" * 6
    for count, ((name, seconds), each) in product(LENGTH_COUNTS, cells.items()):
        table = results.of(each).derive(streams).filter(flows=count)
        found = success_by_delay(table)
        values = " | ".join(f"{found[delay].value:.3f}" for delay in (1, 3, 5, 11, 30))
        what = f"{count} over {name.upper()} | {seconds:,} s | {_mean(table, 't_mu'):.2f}"
        yield f"| {what} | {values} |"


def trips_table(jobs: int) -> Iterator[str]:
    """How the controllers do at each round trip alone: in one range of T/mu, and under one load."""
    block = QUICK[1000]
    loads = product(CONTROLLERS, block.rtts, (*block.counts, OVERLOAD), block.seeds)
    results = run((video_cell(block, *values) for values in loads), jobs)
    table = results.derive(streams)
    flows = results.table("flows").filter(group="video", flows=26)
    yield "| round trip | videos over | 3 s | 11 s | 30 s | 33 videos, 11 s | timeouts, 26 videos |"
    yield "| --- |" + " --- |" * 6
    for rtt, name in product(PUBLISHED_RTTS, CONTROLLERS):
        own = table.filter(rtt_ms=rtt, controller=name)
        short = success_by_delay(own.filter(pl.col("t_mu").is_between(1.0, 1.4, closed="left")))
        loaded = success_by_delay(own.filter(flows=OVERLOAD))[11].value
        timeouts = _mean(flows.filter(rtt_ms=rtt, controller=name), "timeouts")
        values = " | ".join(f"{short[delay].value:.2f}" for delay in (3, 11, 30))
        yield f"| {rtt} ms | {name.upper()} | {values} | {loaded:.2f} | {number(timeouts)} |"


def buffers_table(jobs: int) -> Iterator[str]:
    """Figure 2 with other buffers than the one chosen."""
    cells = {
        (name, limit): [
            replaced(CONTROLLERS["pert"], PERT[name])(
                replace(
                    cell,
                    overrides=(
                        *cell.overrides,
                        f'topology.bottleneck.queue.limit="{limit} packets"',
                    ),
                )
            )
            for cell in queue_cells("quick")
        ]
        for name, limit in product(PERT, BUFFERS)
    }
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield "| PERT | buffer | bandwidth over RENO's | lower half | upper quarter | losses |"
    yield "| --- |" + " --- |" * 5
    for (name, limit), each in cells.items():
        found = results.of(each)
        flows, queue = found.table("flows"), enqueued(found)
        pert, reno = (flows.filter(group=group) for group in ("pert", "reno"))
        ratio = float(pert["goodput_bps"].sum()) / float(reno["goodput_bps"].sum())
        longest = longest_seen(queue)
        lower = shares(queue, pl.col("length") < longest / 2)
        upper = shares(queue, pl.col("length") >= longest * 3 / 4)
        losses = ", ".join(f"{_mean(part, 'loss_rate'):.2%}" for part in (pert, reno))
        places = f"{lower.value:.0%} | {upper.value:.0%}"
        yield f"| {name} | {limit:,} packets | {ratio:.2f} | {places} | {losses} |"


SAMPLED_SETTINGS = tuple(product(PUBLISHED_RTTS, (26, 33)))
"""Round trips in ms and numbers of videos for which rules of sampling are compared."""

SAMPLED_S = 400
"""The length of their runs."""

SAMPLED_SEEDS = (0, 1)

SAMPLED_BUFFERS = (2250, 1125, 844, 562, 281)
"""Packets of figure 2's buffer there."""

HALF = with_parameters('loss-decrease = "half"')


def both(first: Reading, second: Reading) -> Reading:
    """One after the other."""
    return lambda cell: second(first(cell))


RULES: Mapping[str, Reading] = {
    "own packet": lambda cell: cell,
    "every ACK": sampled("every-ack"),
    "cumulative": sampled("cumulative"),
    "half at a loss": HALF,
    "host jitter": with_jitter,
    "every ACK, host jitter": both(sampled("every-ack"), with_jitter),
    "cumulative, host jitter": both(sampled("cumulative"), with_jitter),
    "half at a loss, host jitter": both(HALF, with_jitter),
}
"""The declared readings, and with jitter."""

MAXQ = "largest_queueing_delay_s"


def with_samples(cell: Cell) -> Cell:
    """PERT's largest queueing delay is recorded."""
    return with_settings(cell, 'measure.sample-every="25 s"')


def longest_waits(results: Results) -> str:
    """PERT's largest queueing delay at the end of a run: least, median and most of its flows."""
    table = results.table("samples").filter(pl.col("quantity") == MAXQ)
    last = table.filter(pl.col("time_s") == pl.col("time_s").max())["value"] * 1e3
    if last.is_empty():
        return ""
    values = (last.quantile(share) or 0.0 for share in (0, 0.5, 1))
    return "/".join(f"{value:.0f}" for value in values)


def sampling_table(jobs: int) -> Iterator[str]:
    """Each rule: streams that succeed, the largest queueing delay, and figure 2's bandwidths."""
    block = replace(QUICK[1000], duration_s=SAMPLED_S)
    rows = {
        **{f"PERT, {name}": ("pert", rule) for name, rule in RULES.items()},
        **{name.upper(): (name, RULES["own packet"]) for name in ("cubic", "reno")},
        **{f"{name.upper()}, host jitter": (name, with_jitter) for name in ("cubic", "reno")},
    }
    cells = {
        (row, setting): [
            rule(with_samples(video_cell(block, name, *setting, seed))) for seed in SAMPLED_SEEDS
        ]
        for (row, (name, rule)), setting in product(rows.items(), SAMPLED_SETTINGS)
    }
    shared = {
        (name, packets): [
            rule(
                with_settings(
                    with_samples(cell), f'topology.bottleneck.queue.limit="{packets} packets"'
                )
            )
            for cell in queue_cells("full")
            if cell.seed in SAMPLED_SEEDS
        ]
        for (name, rule), packets in product(RULES.items(), SAMPLED_BUFFERS)
    }
    results = run((one for each in (*cells.values(), *shared.values()) for one in each), jobs)
    heads = [f"{rtt} ms, {count}" for rtt, count in SAMPLED_SETTINGS]
    yield "| videos over | " + " | ".join(heads) + " |"
    yield "| --- |" + " --- |" * len(heads)
    for row in rows:
        texts = []
        for setting in SAMPLED_SETTINGS:
            part = results.of(cells[row, setting])
            found = success_by_delay(part.derive(streams))
            texts.append(" ".join(f"{found[delay].value:.2f}" for delay in (3, 5, 11)))
            if waits := longest_waits(part):
                texts[-1] += f"; {waits}"
        yield f"| {row} | " + " | ".join(texts) + " |"
    yield ""
    yield "| figure 2, buffer of | " + " | ".join(f"{n:,} packets" for n in SAMPLED_BUFFERS) + " |"
    yield "| --- |" + " --- |" * len(SAMPLED_BUFFERS)
    for name in RULES:
        texts = []
        for packets in SAMPLED_BUFFERS:
            part = results.of(shared[name, packets])
            flows, queue = part.table("flows"), enqueued(part)
            rates = (flows.filter(group=one)["goodput_bps"].sum() for one in ("pert", "reno"))
            ratio = float(next(rates)) / float(next(rates))
            longest = longest_seen(queue)
            lower = shares(queue, pl.col("length") < longest / 2).value
            upper = shares(queue, pl.col("length") >= longest * 3 / 4).value
            # No packet may have found the queue that short.
            found_by = (f"{one:.0%}" if math.isfinite(one) else "–" for one in (lower, upper))
            texts.append(f"{ratio:.2f}; {', '.join(found_by)}; {longest_waits(part)}")
        yield f"| {name} | " + " | ".join(texts) + " |"


def _judged(claim: Claim, results: Results) -> tuple[Verdict, int, int]:
    finding = claim.judge(results)
    return judgement(claim, {"": finding}).verdict, finding.held, len(finding.checks)


def main(arguments: Sequence[str]) -> None:
    """Print the requested table."""
    tables: Mapping[str, Callable[[int], Iterator[str]]] = {
        "load": load_table,
        "compare": comparison,
        "length": length_table,
        "trips": trips_table,
        "buffers": buffers_table,
        "sampling": sampling_table,
        "extensions": lambda jobs: comparison(jobs, EXTENSION_CLAIMS, EXTENSION_READINGS),
    }
    if not arguments or arguments[0] not in tables:
        raise SystemExit(__doc__)
    jobs = int(arguments[1]) if len(arguments) > 1 else 2
    for line in tables[arguments[0]](jobs):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
