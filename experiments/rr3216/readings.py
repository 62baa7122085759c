"""Variations of the primary reading, one at a time, and the experiments behind the causes.

Run from the checkout's root::

    python -m experiments.rr3216.readings compare     # every claim with each variation
    python -m experiments.rr3216.readings totals      # G of an ADU's and of the run's total time
    python -m experiments.rr3216.readings acks        # what rare acknowledgements cost
    python -m experiments.rr3216.readings ratio       # D/Ta with R in proportion to D
    python -m experiments.rr3216.readings window      # D = 500 ms with other windows
    python -m experiments.rr3216.readings loss        # where Ta is short, at high loss rates
    python -m experiments.rr3216.readings runs        # figure 13 as 200 single runs
    python -m experiments.rr3216.readings jitter      # as variance and deviation, of 100 and 1,000
    python -m experiments.rr3216.readings bursts      # losses in bursts, with and without back-off
    python -m experiments.rr3216.readings laws        # delays with and without overtaking
    python -m experiments.rr3216.readings confidence  # intervals by number of ADUs and quantile
    python -m experiments.rr3216.readings steps       # small steps of Ta over forty runs
    python -m experiments.rr3216.readings model       # the model's gain at rtt/Ta = 20

Each prints a table of Markdown, as in docs/experiments-rr3216.md. Cells are stored beside
those of ``ontempo-lab reproduce``, so nothing is run twice.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean

import polars as pl

from ontempo.lab.claims import World
from ontempo.lab.engine import NativeEngine
from ontempo.lab.judging import number
from ontempo.lab.statistics import Interval, mean_interval, quantiles
from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Results, Study

from .claims import PAPER
from .curves import GAINS, ORDER_NAMES
from .figures.fig10 import RATIOS
from .figures.fig13 import LEVELS, SINGLE, peaks
from .figures.laws import BURSTS, LAWS
from .figures.ranges import PUBLISHED_MS
from .grid import ORDERS, PROCESSING_MS, SEEDS, Setting, cells
from .metrics import adus, curve, falls_below, gains, runs
from .model import blocking_gain

STORE = Path("out/reproduce/cells")

CARRIER = "flows.adus.transport"
OVERTAKING = (
    "topology.links.0.reordering=true",
    "topology.links.1.reordering=true",
    f'{CARRIER}.lost-after="3 packets"',
)
NUMBERS = (f'{CARRIER}.window-counts="numbers"',)
AT_ONCE = (f'{CARRIER}.retransmission="at-once"',)
BACK_OFF = (f"{CARRIER}.back-off=true",)
TOLD = (f'{CARRIER}.loss-known-after="100 ms"',)
"""The reading “implicit loss”, with the default D."""

ARRIVALS = (f"{CARRIER}.tells-space=false",)

VARIATIONS: Mapping[str, tuple[str, ...]] = {
    "as run": (),
    "window of numbers": NUMBERS,
    "retransmitted at once": AT_ONCE,
    "timer backs off": BACK_OFF,
    "ADUs overtake": OVERTAKING,
}
"""Overrides: each differs in one thing from the primary reading. The readings are in `declared`."""

SHORT_MS = (1.0, 5.0, 10.0, 15.0, 20.0)
NORMAL = 1.96
"""The quantile of a 95 % interval for many runs."""


def run(wanted: Iterable[Cell], jobs: int = 2) -> Results:
    """Run the cells that are not stored yet."""
    engine = NativeEngine()
    study = Study(engine, Store(STORE, engine.fingerprint()), jobs)
    return study.run(study.plan(wanted))


def run_settings(
    settings: Iterable[Setting], more: Sequence[str] = (), seeds: Iterable[int] = SEEDS["full"]
) -> Results:
    """Settings in both orders, with further overrides."""
    return run(with_more(cells("full", settings, seeds=tuple(seeds)), more))


def with_more(wanted: Iterable[Cell], more: Sequence[str]) -> list[Cell]:
    """More overrides for the cells whose transport knows them."""
    return [
        replace(cell, overrides=(*cell.overrides, *more))
        if dict(cell.labels)["transport"] == "adu"
        else cell
        for cell in wanted
    ]


def row(*parts: object) -> str:
    """A row of a table."""
    return "| " + " | ".join(map(str, parts)) + " |"


def header(*names: str) -> Iterator[str]:
    """The first two rows."""
    yield row(*names)
    yield row(*["---"] * len(names))


def points(curve_: Mapping[float, Interval]) -> list[str]:
    """The values of a curve."""
    return [f"{point.value:.2f}" for point in curve_.values()]


def compare() -> Iterator[str]:
    """Checks held of every claim, with each variation of the primary reading."""
    judged = [claim for claim in PAPER.claims if claim.world is not World.EMULATION]
    needed = {
        name: {claim.id: with_more(claim.cells("quick"), more) for claim in judged}
        for name, more in VARIATIONS.items()
    }
    results = run(c for claims in needed.values() for wanted in claims.values() for c in wanted)
    yield from header("claim", *VARIATIONS)
    totals = {name: [0, 0, 0] for name in VARIATIONS}
    for claim in judged:
        found = []
        for name in VARIATIONS:
            finding = claim.judge(results.of(needed[name][claim.id]))
            found.append(f"{finding.held} of {len(finding.checks)}")
            counted = (finding.holds is True, finding.held, len(finding.checks))
            totals[name] = [a + b for a, b in zip(totals[name], counted, strict=True)]
        yield row(claim.answers, *found)
    summed = (f"{r} claims, {held} of {checks}" for r, held, checks in totals.values())
    yield row("all", *summed)


def totals() -> Iterator[str]:
    """G of both total times, for each R, W and D."""
    yield from header("", "total time", *(f"Ta = {time:g} ms" for time in SHORT_MS))
    varied = {
        "defaults": Setting(),
        "R = 0": Setting(interval_ms=0),
        "R = 20 ms": Setting(interval_ms=20),
        "W = 16": Setting(window=16),
        "W = 64": Setting(window=64),
        "D = 10 ms": Setting(delay_ms=10),
        "D = 500 ms": Setting(delay_ms=500),
        "R = 0, W = 16": Setting(interval_ms=0, window=16),
        "R = 0, W = 64": Setting(interval_ms=0, window=64),
        "R = 0, D = 10 ms": Setting(interval_ms=0, delay_ms=10),
        "R = 0, D = 500 ms": Setting(interval_ms=0, delay_ms=500),
    }
    for name, setting in varied.items():
        results = run_settings(replace(setting, processing_ms=time) for time in SHORT_MS)
        for metric, label in GAINS.items():
            found = curve(results.derive(gains), "processing_ms", metric)
            yield row(name, label, *points(found))


def acks() -> Iterator[str]:
    """How long a loss takes to be repaired, and what that costs in either order."""
    yield from header(
        "A", "a lost ADU arrives after", "mean total time in order", "out of sequence", "G",
        "run in order", "out of sequence", "timeouts in order",
    )  # fmt: skip
    for every, more in product((1, 2, 4, 8, 16), ((), TOLD)):
        results = run_settings([Setting(every=every, processing_ms=1)], more, range(20))
        once = results.derive(adus).filter(retransmissions=1)
        late = 1e3 * _mean(
            once.with_columns(late=pl.col("arrived_s") - pl.col("emitted_s")), "late"
        )
        table = results.derive(runs)
        took = [_mean(table.filter(order=order), "total_s") for order in ORDERS]
        whole = [_mean(table.filter(order=order), "makespan_s") for order in ORDERS]
        timeouts = _mean(results.table("flows").filter(order="in-order"), "timeouts")
        yield row(
            f"{every}, implicit losses" if more else every, f"{late:.0f} ms",
            *(f"{1e3 * time:.0f} ms" for time in took),
            f"{_mean(results.derive(gains), 'gain'):.2f}", *(f"{time:.1f} s" for time in whole),
            number(timeouts),
        )  # fmt: skip


def ratio() -> Iterator[str]:
    """G by D/Ta, and the useful processing times, where R is a tenth of D."""
    yield from header("R a tenth of D", *(f"D/Ta = {value:g}" for value in RATIOS), "G < 0.05 from")
    for delay in sorted({10.0, 100.0, 500.0, *PUBLISHED_MS}):
        scaled = Setting(delay_ms=delay, interval_ms=delay / 10)
        results = run_settings(replace(scaled, processing_ms=delay / value) for value in RATIOS)
        found = curve(results.derive(gains), "processing_ms")
        limit = f"Ta = {number(falls_below(found, 0.05))} ms"
        yield row(f"D = {delay:g} ms", *reversed(points(found)), limit)


def window() -> Iterator[str]:
    """G at D = 500 ms by window: where the application becomes the bottleneck."""
    times = (1.0, 20.0, 40.0, 50.0, 70.0, 100.0)
    yield from header("W", "2D/W", *(f"Ta = {time:g} ms" for time in times))
    for size in (10, 16, 20, 32, 48, 64):
        settings = [Setting(delay_ms=500, window=size, processing_ms=time) for time in times]
        found = curve(run_settings(settings).derive(gains), "processing_ms")
        yield row(size, f"{1000 / size:.0f} ms", *points(found))


def loss() -> Iterator[str]:
    """G by processing time at high loss rates."""
    times = (1.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0)
    yield from header("L", "R/(1 - L)", *(f"Ta = {time:g} ms" for time in times))
    for rate in (0.1, 0.2, 0.4, 0.6):
        settings = [Setting(loss=rate, processing_ms=time) for time in times]
        found = curve(run_settings(settings, seeds=range(20)).derive(gains), "processing_ms")
        yield row(f"{rate:.0%}", f"{10 / (1 - rate):.1f} ms", *points(found))
    results = run_settings(settings, seeds=range(20)).derive(gains)
    for name, column in (("of the run", "makespan_gain"), ("from the last sending", "last_gain")):
        yield row(f"60 %, {name}", "", *points(curve(results, "processing_ms", column)))
    for name, more in (("timer backs off", BACK_OFF), ("implicit losses", TOLD)):
        varied = run_settings(settings, more, range(20)).derive(gains)
        yield row(f"60 %, {name}", "", *points(curve(varied, "processing_ms")))


def single_runs() -> Iterator[str]:
    """Figure 13's numbers over many runs, by processing time."""
    yield from header(
        "Ta", "in order", "5 to 95 %", "out of sequence", "at least 2.25 s in order",
        "below 1.5 s out of sequence", "both", "G of the run, 5 to 95 %", "peaks",
    )  # fmt: skip
    for more, name in (((), ""), (ARRIVALS, ", arrivals alone acknowledged")):
        for time in SHORT_MS:
            setting = Setting(count=100, every=4, processing_ms=time)
            yield _single_runs(run_settings([setting], more, SINGLE), f"{time:g} ms{name}")


def _single_runs(results: Results, name: str) -> str:
    table = results.derive(gains)
    took = [f"{_mean(table, name):.2f} s" for name in ("makespan_s", "makespan_s_out")]
    ordered, out = table["makespan_s"], table["makespan_s_out"]
    slow, quick = ordered >= 2.25, out < 1.5
    tops = " and ".join(number(fmean(peaks(results, order))) for order in ORDERS)
    low, high = quantiles(ordered.to_list(), LEVELS)
    least, most = quantiles(table["makespan_gain"].to_list(), LEVELS)
    return row(
        name, took[0], f"{low:.2f} to {high:.2f} s", took[1],
        *(f"{share.sum() / len(SINGLE):.0%}" for share in (slow, quick, slow & quick)),
        f"{least:.2f} to {most:.2f}", tops,
    )  # fmt: skip


def jitter() -> Iterator[str]:
    """How much less jitter there is, read in several ways."""
    yield from header(
        "ADUs", "A", "Ta", "variance", "the same, window of numbers", "standard deviation",
        "variance, first ADU counted",
    )  # fmt: skip
    for (count, every), time in (
        (kind, time) for kind in ((1000, 2), (100, 8)) for time in (1.0, 10.0)
    ):
        setting = [Setting(count=count, every=every, processing_ms=time)]
        chosen, numbers = (run_settings(setting, more, range(20)) for more in ((), NUMBERS))
        table = chosen.derive(gains)
        deviation = 1 - (table["jitter_s2_out"] / table["jitter_s2"]).sqrt()
        first = chosen.derive(_jitter_with_first)
        values = (
            mean_interval(part).value
            for part in (
                table["jitter_gain"],
                numbers.derive(gains)["jitter_gain"],
                deviation,
                1 - first["out-of-order"] / first["in-order"],
            )
        )
        yield row(count, every, f"{time:g} ms", *(f"{value:.2f}" for value in values))


def _jitter_with_first(results: Results) -> pl.DataFrame:
    """The variance of blocking times by seed, a column an order; the first ADU's counts."""
    waits = results.derive(adus).with_columns(pl.col("idle_s").fill_null(pl.col("delivered_s")))
    by = waits.group_by(["seed", "order"]).agg(pl.col("idle_s").var())
    return by.pivot("order", index="seed", values="idle_s").sort("seed")


def bursts() -> Iterator[str]:
    """Losses in bursts: what they cost in either order."""
    yield from header(
        "L", "mean burst", "G", "95 % interval", "mean total time in order", "out of sequence",
        "timeouts", "G, timer backs off", "mean total time in order", "out of sequence",
    )  # fmt: skip
    for rate in (0.1, 0.3):
        for burst in BURSTS:
            setting = [Setting(loss=rate, burst=burst)]
            parts: list[object] = [f"{rate:.0%}", number(burst or 1 / (1 - rate))]
            for more in ((), BACK_OFF):
                results = run_settings(setting, more, range(20))
                table = results.derive(runs)
                found = mean_interval(results.derive(gains)["gain"])
                took = [_mean(table.filter(order=order), "total_s") for order in ORDERS]
                times = [f"{1e3 * time:,.0f} ms" for time in took]
                if more:
                    parts += [f"{found.value:.2f}", *times]
                    continue
                flows = results.table("flows")
                timeouts = [_mean(flows.filter(order=order), "timeouts") for order in ORDERS]
                parts += [f"{found.value:.2f}", f"{found.low:.2f} to {found.high:.2f}", *times]
                parts.append(" and ".join(map(number, timeouts)))
            yield row(*parts)


def laws() -> Iterator[str]:
    """G by law of delay, where ADUs keep their order and where they may overtake."""
    times = (1.0, 5.0, 10.0, 20.0)
    names = [f"Ta = {time:g} ms" for time in times]
    yield from header("law", "mean way, order kept", *names, *(f"{n}, overtaking" for n in names))
    for law in LAWS:
        settings = [Setting(law=law, processing_ms=time) for time in times]
        kept, free = (run_settings(settings, more) for more in ((), OVERTAKING))
        sent_once = kept.derive(adus).filter(retransmissions=0)
        way = 1e3 * _mean(
            sent_once.with_columns(way=pl.col("arrived_s") - pl.col("emitted_s")), "way"
        )
        found = (points(curve(each.derive(gains), "processing_ms")) for each in (kept, free))
        yield row(law, f"{way:.0f} ms", *(value for values in found for value in values))


def confidence() -> Iterator[str]:
    """Intervals of five runs over their estimates, from end to end, the widest over Ta."""
    yield from header(
        "order", "ADUs", "mean total time", "run's total time",
        "half, with the normal quantile: mean total time", "run's total time",
    )  # fmt: skip
    for order in ORDERS:
        for count in (1000, 4000, 16000):
            times = PROCESSING_MS["full"] if count == 1000 else SHORT_MS
            settings = [Setting(count=count, processing_ms=time) for time in times]
            table = run_settings(settings).derive(runs).filter(order=order)
            widest, halves = [], []
            for metric in ("total_s", "makespan_s"):
                by = table.group_by("processing_ms").agg(
                    mean=pl.col(metric).mean(),
                    error=pl.col(metric).std() / pl.len().cast(pl.Float64).sqrt(),
                )
                found = curve(table, "processing_ms", metric).values()
                widest.append(max((one.high - one.low) / one.value for one in found))
                relative = (by["error"] / by["mean"]).to_list()
                halves.append(NORMAL * max(relative))
            yield row(
                ORDER_NAMES[order], f"{count:,}", *(f"{value:.1%}" for value in (*widest, *halves))
            )


def steps() -> Iterator[str]:
    """The smallest steps of Ta, over forty runs: whether a rise between two is one."""
    times = (0.1, 1.0, 2.0, 4.0, 35.0, 40.0)
    yield from header("R", *(f"Ta = {time:g} ms" for time in times))
    for interval in (0.0, 10.0):
        settings = [Setting(interval_ms=interval, processing_ms=time) for time in times]
        found = curve(run_settings(settings, seeds=range(40)).derive(gains), "processing_ms")
        limits = (f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})" for one in found.values())
        yield row(f"{interval:g} ms", *limits)


def model() -> Iterator[str]:
    """The model's gain at rtt/Ta = 20 and where it passes one half, for n = 10."""
    yield from header("R/Ta", "Gb at rtt/Ta = 20", "one half from rtt/Ta =")
    for share in (0.0, 0.25, 0.5, 0.75):
        at = blocking_gain(10, 10, 200, 10 * share)
        # x / (x + n (1 - R/Ta)) is one half where x = n (1 - R/Ta).
        yield row(f"{share:g}", f"{float(at):.2f}", f"{10 * (1 - share):g}")


def _mean(table: pl.DataFrame, column: str) -> float:
    return float(table[column].to_numpy().mean())


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "compare": compare,
    "totals": totals,
    "acks": acks,
    "ratio": ratio,
    "window": window,
    "loss": loss,
    "runs": single_runs,
    "jitter": jitter,
    "bursts": bursts,
    "laws": laws,
    "confidence": confidence,
    "steps": steps,
    "model": model,
}


def main(arguments: Sequence[str]) -> None:
    """Print the requested table."""
    if len(arguments) != 1 or arguments[0] not in TABLES:
        raise SystemExit(__doc__)
    for line in TABLES[arguments[0]]():
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
