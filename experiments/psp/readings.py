"""Open points of the paper, tried both ways: which readings change which verdicts.

Run from the checkout's root::

    python -m experiments.psp.readings compare   # every claim under each reading
    python -m experiments.psp.readings damping   # figures 5 and 16 to 18: from where, how damped
    python -m experiments.psp.readings agents    # figures 8 to 11: one agent of 16, not the mean
    python -m experiments.psp.readings tcp       # figures 14 and 15: which TCP
    python -m experiments.psp.readings arrivals  # the spacing at the receiver
    python -m experiments.psp.readings queues    # what FQ-CoDel leaves a TCP, and why
    python -m experiments.psp.readings path      # figures 1 and 2 with others on the path
    python -m experiments.psp.readings live FILE # judge the output of ontempo probe --json

Each prints a table of Markdown, as in docs/experiments-psp.md. Cells are stored beside
those of ``ontempo-lab reproduce``, so nothing is run twice.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import polars as pl

from ontempo.lab.claims import Claim, Verdict, World
from ontempo.lab.engine import NativeEngine
from ontempo.lab.judging import number
from ontempo.lab.readings import judgement
from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Results, Study

from . import probing
from .claims import PAPER
from .figures import live
from .figures.adaptive import sending, unlikeness, variation
from .grid import (
    ADAPTIVE,
    ADAPTIVE_TCP,
    AQM,
    MIXED,
    PLAIN_UDP,
    PSA,
    adaptive_cells,
    arrival_cells,
    mixed_cells,
    psa_cells,
)

STORE = Path("out/reproduce/cells")

AGENTS = {PSA: ("psa",), MIXED: ("psa",), AQM: ("media",)} | dict.fromkeys(
    (ADAPTIVE, ADAPTIVE_TCP), ("first", "second")
)
"""Each scenario's groups of agents."""

WITH_TCP = (MIXED, ADAPTIVE_TCP, AQM)
SEEDS = range(6)

Reading = Callable[[Cell], Cell]


def with_more(cell: Cell, *overrides: str) -> Cell:
    """A cell with more overrides, which come last."""
    return replace(cell, overrides=(*cell.overrides, *overrides))


def of_agents(*settings: str) -> Reading:
    """Other settings of every agent's transport."""
    return lambda cell: with_more(
        cell,
        *(
            f"flows.{group}.transport.{setting}"
            for group in AGENTS[cell.scenario]
            for setting in settings
        ),
    )


def of_tcp(*settings: str) -> Reading:
    """Other settings of every TCP's transport."""
    return lambda cell: (
        with_more(cell, *(f"flows.tcp.transport.{setting}" for setting in settings))
        if cell.scenario in WITH_TCP
        else cell
    )


def of_gateway(packets: int) -> Reading:
    """Another buffer at the gateway, where it is the paper's."""
    limit = f'topology.bottleneck.queue.limit="{packets} packets"'
    return lambda cell: cell if cell.scenario == AQM else with_more(cell, limit)


def both(first: Reading, second: Reading) -> Reading:
    """One after the other."""
    return lambda cell: second(first(cell))


def by_last_decision(cell: Cell) -> Cell:
    """Damped PSP that looks at its last decision alone."""

    def renamed(text: str) -> str:
        return text.replace('"psp-damped"', '"psp-damped-last"')

    named = replace(cell, overrides=tuple(renamed(text) for text in cell.overrides))
    if cell.scenario not in (ADAPTIVE, ADAPTIVE_TCP) or named != cell:
        return named
    return of_agents('controller="psp-damped-last"')(cell)


FROM_START = of_agents('spacing-from="start"')

READINGS: Mapping[str, Reading] = {
    "as run": lambda cell: cell,
    "spacing from start to start": FROM_START,
    "packets of 1,425 bytes": both(of_agents('packet="1425 B"'), of_tcp('packet="1425 B"')),
    "10 packets wait beside one": of_gateway(10),
    "damped by the last decision": by_last_decision,
    "NewReno without SACK": of_tcp('recovery="newreno"'),
}
"""Each differs in one thing from what ``ontempo-lab reproduce`` runs (or in nothing)."""


def run(cells: Iterable[Cell], jobs: int) -> Results:
    """Run the cells that are not stored yet."""
    engine = NativeEngine()
    study = Study(engine, Store(STORE, engine.fingerprint()), jobs)
    return study.run(study.plan(cells))


def _judged(claim: Claim, results: Results) -> tuple[Verdict, int, int]:
    finding = claim.judge(results)
    return judgement(claim, {"": finding}).verdict, finding.held, len(finding.checks)


def comparison(jobs: int) -> Iterator[str]:
    """Verdict and checks held of every claim, under each reading."""
    claims = [claim for claim in PAPER.claims if claim.world is World.SIMULATION]
    needed = {
        name: {claim.id: [reading(cell) for cell in claim.cells("quick")] for claim in claims}
        for name, reading in READINGS.items()
    }
    every = (cell for named in needed.values() for cells in named.values() for cell in cells)
    results = run(every, jobs)
    yield "| claim | " + " | ".join(READINGS) + " |"
    yield "| --- |" + " --- |" * len(READINGS)
    totals = {name: [0, 0, 0] for name in READINGS}
    for claim in claims:
        columns = []
        for name, cells in needed.items():
            verdict, held, checks = _judged(claim, results.of(cells[claim.id]))
            columns.append(f"{verdict}, {held} of {checks}")
            for place, more in enumerate((verdict is Verdict.REPRODUCED, held, checks)):
                totals[name][place] += more
        yield f"| {claim.id} | " + " | ".join(columns) + " |"
    summed = (f"{r} reproduced, {held} of {checks}" for r, held, checks in totals.values())
    yield "| all | " + " | ".join(summed) + " |"


def damping_table(jobs: int) -> Iterator[str]:
    """Two agents: oscillation, gain and likeness by where spacing begins and how it is damped."""
    from_where: Mapping[str, Reading] = {
        "end to start": READINGS["as run"],
        "start to start": FROM_START,
    }
    damped: Mapping[str, Reading] = {
        "as the packets were sent": READINGS["as run"],
        "last decision": by_last_decision,
    }
    plain = adaptive_cells("full", ("psp",))
    cells = {
        (place, how): [
            damped[how](from_where[place](cell)) for cell in adaptive_cells("full", ("psp-damped",))
        ]
        for place, how in product(from_where, damped)
    }
    plains = {place: [reading(cell) for cell in plain] for place, reading in from_where.items()}
    results = run((cell for each in (*cells.values(), *plains.values()) for cell in each), jobs)
    yield (
        "| spacing | damped by | deviation over mean: PSP | damped | both agents: PSP | damped |"
        " gain | apart, worst of 20 |"
    )
    yield "| --- | --- |" + " --- |" * 6
    for (place, how), each in cells.items():
        before, after = results.of(plains[place]), results.of(each)
        rates = [_together(part) for part in (before, after)]
        table = sending(after)
        yield (
            f"| {place} | {how} | {number(variation(sending(before)).value)} |"
            f" {number(variation(table).value)} | {rates[0]:.1f} Mbit/s | {rates[1]:.1f} Mbit/s |"
            f" {rates[1] / rates[0] - 1:.1%} | {unlikeness(table, 20)[-1]:.1%} |"
        )


def _together(results: Results) -> float:
    """What both agents receive, in Mbit/s, mean over the seeds."""
    flows = results.table("flows")
    return float(flows["goodput_bps"].sum()) / flows["seed"].n_unique() / 1e6


def agents_table(jobs: int) -> Iterator[str]:
    """Agents one by one: how many of 16 lose nothing, and what the median receives."""
    places = (0, 500, 800, 950, 1000, 1050, 1150)
    from_where: Mapping[str, Reading] = {"end": READINGS["as run"], "start": FROM_START}
    kinds = {"alone": psa_cells("quick", (16,)), "beside 16 TCPs": mixed_cells("quick", 20)}
    cells = {
        (where, kind): [reading(replace(cell, seed=seed)) for cell in each for seed in SEEDS
                        if dict(cell.labels)["spacing_us"] in places]
        for (where, reading), (kind, each) in product(from_where.items(), kinds.items())
    }  # fmt: skip
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield (
        "| agents | spacing from | spacing | loss, mean | lossless, of 16 | received: mean |"
        " least | median | most |"
    )
    yield "| --- | --- |" + " --- |" * 7
    for (where, kind), each in cells.items():
        table = results.of(each).table("flows").filter(group="psa")
        for us in places:
            part = table.filter(spacing_us=us)
            rate = part["goodput_bps"].to_numpy() / 1e6
            free = int((part["loss_rate"] < 0.005).sum()) / len(SEEDS)
            median = sorted(rate)[len(rate) // 2]
            yield (
                f"| {kind} | its {where} | {us} μs | {part['loss_rate'].to_numpy().mean():.1%} |"
                f" {free:.1f} | {rate.mean():.2f} | {rate.min():.2f} | {median:.2f} |"
                f" {rate.max():.2f} |"
            )


TCPS: Mapping[str, Reading] = {
    "Reno with SACK, as run": READINGS["as run"],
    "Reno without SACK": of_tcp('recovery="reno"'),
    "NewReno without SACK": of_tcp('recovery="newreno"'),
    "delayed ACKs": of_tcp('ack={ kind = "delayed" }'),
    "packets of 1,000 bytes": of_tcp('packet="1000 B"'),
    "10 packets wait beside one": of_gateway(10),
    "20 packets": of_gateway(20),
    "40 packets": of_gateway(40),
}


def tcp_table(jobs: int) -> Iterator[str]:
    """Figure 14 at 5000 us: what a TCP of window 800 receives, by its open points."""
    base = [
        replace(cell, seed=seed)
        for cell in mixed_cells("quick", 800)
        for seed in SEEDS
        if dict(cell.labels)["spacing_us"] == 5000
    ]
    base = [with_more(cell, 'duration="100 s"') for cell in base]
    cells = {name: [reading(cell) for cell in base] for name, reading in TCPS.items()}
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield "| TCP | an agent | a TCP: mean | least | most | its losses |"
    yield "| --- |" + " --- |" * 5
    for name, each in cells.items():
        table = results.of(each).table("flows")
        tcp, psa = table.filter(group="tcp"), table.filter(group="psa")
        rates = tcp["goodput_bps"].to_numpy() / 1e6
        yield (
            f"| {name} | {psa['goodput_bps'].to_numpy().mean() / 1e6:.2f} | {rates.mean():.2f} |"
            f" {rates.min():.2f} | {rates.max():.2f} |"
            f" {tcp['loss_rate'].to_numpy().mean():.3%} |"
        )


ARRIVALS: Mapping[str, Reading] = {
    "1,400 bytes, from end to start, as run": READINGS["as run"],
    "1,400 bytes, from start to start": FROM_START,
    "508 bytes, from end to start": of_agents('packet="508 B"'),
    "508 bytes, and TCP too": both(of_agents('packet="508 B"'), of_tcp('packet="508 B"')),
    "1,400 bytes, sent every 1540.6 μs": lambda cell: with_more(
        FROM_START(cell), 'flows.psa.transport.spacing="1540600 ns"'
    ),
}


def arrivals_table(jobs: int) -> Iterator[str]:
    """The distance between packets at one receiver, over six draws of the starts."""
    cells = {
        name: [
            reading(replace(cell, seed=seed)) for cell in arrival_cells("quick") for seed in SEEDS
        ]
        for name, reading in ARRIVALS.items()
    }
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield "| packets | mean, over six starts | deviation: least | most | without gaps of losses |"
    yield "| --- |" + " --- |" * 4
    for name, each in cells.items():
        table = results.of(each).table("packets").sort("seed", "time_s")
        gaps = table.select("seed", gap=pl.col("time_s").diff().over("seed") * 1e6).drop_nulls()
        by_seed = gaps.group_by("seed").agg(
            pl.col("gap").mean().alias("mean"),
            pl.col("gap").std().alias("deviation"),
            pl.col("gap").filter(pl.col("gap") < 2500).std().alias("whole"),
        )
        least, most = (f"{by_seed['mean'].sort()[place]:.1f}" for place in (0, -1))
        spread = by_seed["deviation"].sort()
        whole = by_seed["whole"].sort()
        yield (
            f"| {name} | {least} to {most} μs | {spread[0]:.1f} | {spread[-1]:.1f} μs |"
            f" {whole[0]:.1f} to {whole[-1]:.1f} μs |"
        )


FQ = 'topology.bottleneck.queue={ kind = "fq-codel", limit = "300 packets" }'
QUEUES: Mapping[str, Sequence[str]] = {
    "as run": (FQ,),
    "10,240 packets": (FQ.replace("300", "10240"),),
    "target of 84 ms, 10,240 packets": (
        FQ.replace("300", "10240").replace(" }", ', target = "84 ms", interval = "200 ms" }'),
    ),
    "CUBIC": (FQ, 'flows.tcp.transport.congestion="cubic"'),
    "round trip of 14 ms": (
        FQ,
        'topology.bottleneck.delay="5 ms"',
        'topology.reverse.delay="5 ms"',
    ),
    "no media at all: TCP alone": (FQ, "flows.media.count=1", 'flows.media.start="59 s"'),
}


def queues_table(jobs: int) -> Iterator[str]:
    """FQ-CoDel, 8 plain UDP and 8 TCPs: which of them leaves a share unused."""
    base = ('duration="60 s"', f"flows.media.transport={PLAIN_UDP}")
    cells = {
        name: [Cell(AQM, (*base, *more), seed, (), 1.0) for seed in range(3)]
        for name, more in QUEUES.items()
    }
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield "| FQ-CoDel | TCP's share | a TCP: least | most | a UDP: least | most | TCP's losses |"
    yield "| --- |" + " --- |" * 6
    for name, each in cells.items():
        table = results.of(each).table("flows")
        tcp, udp = (table.filter(group=group)["goodput_bps"] / 1e6 for group in ("tcp", "media"))
        share = tcp.to_numpy().sum() / (tcp.to_numpy().sum() + udp.to_numpy().sum())
        loss = table.filter(group="tcp")["loss_rate"].to_numpy().mean()
        yield (
            f"| {name} | {share:.1%} | {number(tcp.sort()[0])} | {number(tcp.sort()[-1])} |"
            f" {number(udp.sort()[0])} | {number(udp.sort()[-1])} | {loss:.3%} |"
        )


PATH_US = (0, 50, 100, 200, 500)
OTHERS: Mapping[str, tuple[str, ...]] = {
    "62 Mbit/s, alone": (),
    **{
        f"{rate} Mbit/s, others 20 in bursts": (
            f'topology.bottleneck.rate="{rate} Mbit/s"',
            'flows.others={ count = 5, application = { kind = "on-off", rate = "20 Mbit/s",'
            ' on = "50 ms", off = "200 ms" }, transport = { kind = "udp", packet = "1500 B" } }',
        )
        for rate in (72, 80)
    },
}
"""Flows on the path of figures 1 and 2."""


def path_table(jobs: int) -> Iterator[str]:
    """One sender with and without others: what arrives, what is lost."""
    cells = {
        name: [with_more(live.simulated(us, 30), *more) for us in PATH_US]
        for name, more in OTHERS.items()
    }
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield "| path | " + " | ".join(f"{us} μs" for us in PATH_US) + " |"
    yield "| --- |" + " --- |" * len(PATH_US)
    for name, each in cells.items():
        flows = results.of(each).table("flows").filter(group="probe")
        both = zip(flows["goodput_bps"], flows["loss_rate"], strict=True)
        yield f"| {name} | " + " | ".join(f"{r / 1e6:.1f}, {lost:.1%}" for r, lost in both) + " |"


def judge_live(path: Path) -> Iterator[str]:
    """Figures 1 and 2 of a live path, as `ontempo probe --json` measured it."""
    report = json.loads(path.read_text("utf-8"))
    report["spacings"] = [row for row in report["spacings"] if row["spacing_s"] is not None]
    spacings = [round(row["spacing_s"] * 1e6) for row in report["spacings"]]
    finding = live.judge_path(
        probing.path_table(report, spacings), [float(us) for us in spacings], from_start=True
    )
    yield f"{finding.held} of {len(finding.checks)} checks hold"
    for check in finding.checks:
        mark = {True: "✓", False: "≠", None: "?"}[check.ok]
        yield f"{mark} {check.sentence} {check.published}: {check.measured}"


def main(arguments: Sequence[str]) -> None:
    """Print the requested table."""
    tables: Mapping[str, Callable[[int], Iterator[str]]] = {
        "compare": comparison,
        "damping": damping_table,
        "agents": agents_table,
        "tcp": tcp_table,
        "arrivals": arrivals_table,
        "queues": queues_table,
        "path": path_table,
    }
    if arguments[:1] == ["live"] and len(arguments) == 2:
        print(*judge_live(Path(arguments[1])), sep="\n")
        return
    if not arguments or arguments[0] not in tables:
        raise SystemExit(__doc__)
    jobs = int(arguments[1]) if len(arguments) > 1 else 2
    for line in tables[arguments[0]](jobs):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
