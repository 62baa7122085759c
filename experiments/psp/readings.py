"""Variations of the primary reading, one at a time, and the experiments behind the causes.

Run from the checkout's root::

    python -m experiments.psp.readings compare     # every claim with each variation
    python -m experiments.psp.readings damping     # figures 5 and 16 to 18 under each reading
    python -m experiments.psp.readings convergence # the headline over time, under each reading
    python -m experiments.psp.readings agents      # figures 8 to 11: one agent of 16, not the mean
    python -m experiments.psp.readings tcp         # figures 14 and 15: which TCP
    python -m experiments.psp.readings arrivals    # the spacing at the receiver
    python -m experiments.psp.readings queues      # what FQ-CoDel leaves a TCP, and why
    python -m experiments.psp.readings path        # figures 1 and 2 with others on the path
    python -m experiments.psp.readings live FILE   # judge the output of ontempo probe --json

Each prints a table of Markdown, as in docs/experiments-psp.md. Cells are stored beside
those of ``ontempo-lab reproduce``, so nothing is run twice.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

import polars as pl

from ontempo.lab.claims import Claim, Verdict, World
from ontempo.lab.engine import NativeEngine
from ontempo.lab.judging import number
from ontempo.lab.readings import judgement, under, with_settings
from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Results, Study

from . import probing
from .claims import PAPER
from .declared import READINGS, Change, from_start, of_tcp, with_noise
from .figures import adaptive, live, motive
from .figures.adaptive import sending, unlikeness, variation
from .figures.with_tcp import gaps_us, spread
from .grid import AQM, PLAIN_UDP, arrival_cells, mixed_cells, psa_cells

STORE = Path("out/reproduce/cells")

SEEDS = range(6)
GAP_OF_A_LOSS_US = 2500
"""Of packets 1500 us apart: from here on one is missing."""


def as_run(cell: Cell) -> Cell:
    """Nothing changed."""
    return cell


def of_gateway(packets: int) -> Change:
    """Another buffer at the gateway, where it is the paper's."""
    limit = f'topology.bottleneck.queue.limit="{packets} packets"'
    return lambda cell: cell if cell.scenario == AQM else with_settings(cell, limit)


VARIATIONS: Mapping[str, Change] = {
    "as run": as_run,
    "10 packets wait beside one": of_gateway(10),
    "NewReno without SACK": of_tcp('recovery="newreno"'),
}
"""Each differs in one thing from the primary reading. The readings are in `declared`."""


def run(cells: Iterable[Cell], jobs: int) -> Results:
    """Run the cells that are not stored yet."""
    engine = NativeEngine()
    study = Study(engine, Store(STORE, engine.fingerprint()), jobs)
    return study.run(study.plan(cells))


def _judged(claim: Claim, results: Results) -> tuple[Verdict, int, int]:
    finding = claim.judge(results)
    return judgement(claim, {"": finding}).verdict, finding.held, len(finding.checks)


def comparison(jobs: int) -> Iterator[str]:
    """Verdict and checks held of every claim, with each variation."""
    claims = [claim for claim in PAPER.claims if claim.world is World.SIMULATION]
    needed = {
        name: {claim.id: [change(cell) for cell in claim.cells("quick")] for claim in claims}
        for name, change in VARIATIONS.items()
    }
    every = (cell for named in needed.values() for cells in named.values() for cell in cells)
    results = run(every, jobs)
    yield "| claim | " + " | ".join(VARIATIONS) + " |"
    yield "| --- |" + " --- |" * len(VARIATIONS)
    totals = {name: [0, 0, 0] for name in VARIATIONS}
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
    """Two agents: oscillation, gain, likeness and the faster one's rate under each reading."""
    claims = under(adaptive.FIG5, READINGS)
    needed = {name: claim.cells("full") for name, claim in claims.items()}
    results = run((cell for each in needed.values() for cell in each), jobs)
    yield (
        "| reading | deviation over mean: PSP | damped | both agents: PSP | damped | gain |"
        " apart: PSP, median | worst | damped, median | worst | the faster: PSP | damped |"
    )
    yield "| --- |" + " --- |" * 11
    for name, cells in needed.items():
        parts = [
            results.of(cell for cell in cells if dict(cell.labels)["controller"] == controller)
            for controller in ("psp", "psp-damped")
        ]
        swings = [number(variation(sending(part)).value) for part in parts]
        rates = [_together(part) for part in parts]
        apart = [unlikeness(sending(part), 20) for part in parts]
        texts = [f"{median(one):.1%} | {one[-1]:.1%}" for one in apart]
        texts += [f"{_faster(sending(part)):.1f} Mbit/s" for part in parts]
        yield (
            f"| {name} | {swings[0]} | {swings[1]} | {rates[0]:.1f} Mbit/s |"
            f" {rates[1]:.1f} Mbit/s | {rates[1] / rates[0] - 1:.1%} | {' | '.join(texts)} |"
        )


def convergence_table(jobs: int) -> Iterator[str]:
    """16 agents that adapt: what they send of the link's rate, over time, under each reading."""
    claims = under(motive.HEADLINE, READINGS)
    needed = {name: claim.cells("quick") for name, claim in claims.items()}
    results = run((cell for each in needed.values() for cell in each), jobs)
    first = None
    for name, cells in needed.items():
        shares = motive.sent_over_time(results.of(cells), "damped PSP")
        if first is None:
            first = shares
            yield "| reading | " + " | ".join(shares) + " |"
            yield "| --- |" + " --- |" * len(shares)
        texts = (f"{min(part):.0%} to {max(part):.0%}" for part in shares.values())
        yield f"| {name} | " + " | ".join(texts) + " |"


def _faster(table: pl.DataFrame) -> float:
    """What the faster of two agents sends once settled, in Mbit/s, median over the seeds."""
    settled = table.filter(pl.col("time_s") > adaptive.SETTLED_S)
    means = settled.group_by(adaptive.SEED, "subject").agg(pl.col("mbit").mean())
    return float(median(means.group_by(adaptive.SEED).agg(pl.col("mbit").max())["mbit"].to_list()))


def _together(results: Results) -> float:
    """What both agents receive, in Mbit/s, mean over the seeds."""
    flows = results.table("flows")
    return float(flows["goodput_bps"].sum()) / flows["seed"].n_unique() / 1e6


def agents_table(jobs: int) -> Iterator[str]:
    """Agents one by one: how many of 16 lose nothing, and what the median receives."""
    places = (0, 500, 800, 950, 1000, 1050, 1150)
    from_where: Mapping[str, Change] = {"end": as_run, "start": from_start}
    kinds = {"alone": psa_cells("quick", (16,)), "beside 16 TCPs": mixed_cells("quick", 20)}
    cells = {
        (where, kind): [reading(replace(cell, seed=seed)) for cell in each for seed in SEEDS
                        if dict(cell.labels)["spacing_us"] in places]
        for (where, reading), (kind, each) in product(from_where.items(), kinds.items())
    }  # fmt: skip
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield (
        "| agents | spacing from | spacing | loss, mean | lossless, of 16 | received: mean |"
        " least | median | most | receive most here, of 96 |"
    )
    yield "| --- | --- |" + " --- |" * 8
    for (where, kind), each in cells.items():
        table = results.of(each).table("flows").filter(group="psa")
        most = table.sort("goodput_bps", "spacing_us", descending=True)
        best = most.group_by("seed", "index", maintain_order=True).first()["spacing_us"].to_list()
        for us in places:
            part = table.filter(spacing_us=us)
            rate = part["goodput_bps"].to_numpy() / 1e6
            free = int((part["loss_rate"] < 0.005).sum()) / len(SEEDS)
            median = sorted(rate)[len(rate) // 2]
            yield (
                f"| {kind} | its {where} | {us} μs | {part['loss_rate'].to_numpy().mean():.1%} |"
                f" {free:.1f} | {rate.mean():.2f} | {rate.min():.2f} | {median:.2f} |"
                f" {rate.max():.2f} | {best.count(us)} |"
            )


TCPS: Mapping[str, Change] = {
    "Reno with SACK, as run": as_run,
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
    base = [with_settings(cell, 'duration="100 s"') for cell in base]
    cells = {name: [change(cell) for cell in base] for name, change in TCPS.items()}
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


ARRIVALS: Mapping[str, Change] = {
    "from end to start, as run": as_run,
    "the same, hosts that send up to 73.7 μs late": with_noise,
    "from start to start, 1,400 bytes": from_start,
    "without TCP": lambda cell: with_settings(cell, "flows.tcp.count=1", 'flows.tcp.start="19 s"'),
}


def arrivals_table(jobs: int) -> Iterator[str]:
    """The spacing of packets at one receiver, over ten draws of the starts."""
    cells = {name: list(map(change, arrival_cells("quick"))) for name, change in ARRIVALS.items()}
    results = run((cell for each in cells.values() for cell in each), jobs)
    yield "| spacing | mean: least | median | most | deviation: least | median | most | no loss |"
    yield "| --- |" + " --- |" * 7
    for name, each in cells.items():
        gaps = gaps_us(results.of(each))
        whole = [gap.filter(gap < GAP_OF_A_LOSS_US) for gap in gaps]
        spreads = [spread(gap.to_list()) for gap in gaps]
        means, deviations = (sorted(one[place] for one in spreads) for place in (0, 1))
        without = sorted(spread(gap.to_list())[1] for gap in whole)
        yield (
            f"| {name} | {means[0]:.1f} | {median(means):.1f} | {means[-1]:.1f} μs |"
            f" {deviations[0]:.1f} | {median(deviations):.1f} | {deviations[-1]:.1f} μs |"
            f" {without[0]:.1f} to {without[-1]:.1f} μs |"
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
        name: [with_settings(live.simulated(us, 30), *more) for us in PATH_US]
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
        "convergence": convergence_table,
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
