"""Which rule of adaptive spacing is the better one, over several networks: no claim of the paper.

Run from the checkout's root::

    python -m experiments.psp.rules

The measure was fixed before the first run. A setting is a network and who shares it. In each, for
the agents of a rule, from 40 s on of 160 s:

- use: what all flows receive, of the bottleneck's rate;
- loss: the agents' lost packets, of those sent;
- swing: the standard deviation of an agent's sending rate over its mean, in steps of 2 s;
- alike: Jain's index of the agents' throughputs;
- share: beside TCP, the agents' part of the throughput, as the smaller of part/half and half/part.

The score of a setting is ``use * (1 - loss) * alike * share / (1 + swing)``, the mean over its
seeds; that of a rule is the mean over all settings. PSP's default is the way whose rules, plain and
damped together, score most. The third way was added, and committed, after the first two had been
run: agents on fresh reports had unequal rates, since by a fixed step the faster one gets ahead.
"""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import polars as pl

from ontempo.lab.engine import NativeEngine
from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Results, Study

SCENARIO = Path(__file__).parent / "rules.toml"
STORE = Path("out/reproduce/cells")

FROM_S, UNTIL_S = 40, 160
SEEDS = range(3)
RATES_MBIT_S = (10, 100)
RTTS_MS = (20, 84, 200)
BUFFERS = (0.1, 1.0)
"""Of the bandwidth-delay product; at least 10 packets."""

AGENTS = {"one agent": (1, 0), "four agents": (4, 0), "four agents, four TCPs": (4, 4)}
WAYS = (
    ("each-report", "fixed-step"),
    ("fresh", "fixed-step"),
    ("fresh", "packet-per-round-trip"),
)
"""On which reports a rule decides, and how fast its rate grows: the first as in the paper."""

RULES = tuple((controller, *way) for controller, way in product(("psp", "psp-damped"), WAYS))
PACKET_BITS = 1428 * 8
FAIR = 0.5
MEASURES = ("use", "loss", "swing", "alike", "share", "score")


class Setting(NamedTuple):
    """A network and who shares it."""

    rate_mbit_s: int
    rtt_ms: int
    buffer: float
    who: str

    @property
    def queue(self) -> int:
        """Packets that wait at the bottleneck at most."""
        product_ = self.rate_mbit_s * 1e3 * self.rtt_ms / PACKET_BITS
        return max(10, round(self.buffer * product_))


SETTINGS = tuple(Setting(*one) for one in product(RATES_MBIT_S, RTTS_MS, BUFFERS, AGENTS))


def cell(setting: Setting, controller: str, feedback: str, increase: str, seed: int) -> Cell:
    """A run of a rule."""
    agents, tcps = AGENTS[setting.who]
    limit = f'limit = "{setting.queue} packets"'
    tcp = (f"flows.tcp.count={tcps}",) if tcps else ('flows.tcp.start="159 s"',)
    rule = (("controller", controller), ("feedback", feedback), ("increase", increase))
    labels = (*setting._asdict().items(), *rule)
    return Cell(
        SCENARIO,
        (
            f'topology.bottleneck.rate="{setting.rate_mbit_s} Mbit/s"',
            f'topology.bottleneck.delay="{setting.rtt_ms / 2 - 1:g} ms"',
            f'topology.reverse.delay="{setting.rtt_ms / 2 - 1:g} ms"',
            f'topology.bottleneck.queue={{ kind = "drop-tail", {limit} }}',
            f"flows.agent.count={agents}",
            f'flows.agent.transport.controller="{controller}"',
            f'flows.agent.transport.feedback="{feedback}"',
            f'flows.agent.transport.increase="{increase}"',
            *tcp,
        ),
        seed,
        labels,
        setting.rate_mbit_s * 0.02,
    )


def measures(results: Results) -> dict[str, float]:
    """The measures of one run."""
    (one,) = results.cells
    labels = dict(one.labels)
    flows = results.table("flows")
    tcps = AGENTS[str(labels["who"])][1]
    flows = flows if tcps else flows.filter(group="agent")
    agents = flows.filter(group="agent")
    rates = agents["goodput_bps"].to_list()
    everything = float(flows["goodput_bps"].sum())
    use = everything / (float(labels["rate_mbit_s"]) * 1e6)
    loss = float(agents["dropped_packets"].sum()) / max(1, int(agents["sent_packets"].sum()))
    squares = len(rates) * sum(rate**2 for rate in rates)
    alike = sum(rates) ** 2 / squares if squares else 0.0
    part = sum(rates) / everything if everything else 0.0
    share = min(part / FAIR, FAIR / part) if tcps and part else float(not tcps)
    swing = fmean(_swings(results.table("samples")))
    score = use * (1 - loss) * alike * share / (1 + swing)
    return dict(zip(MEASURES, (use, loss, swing, alike, share, score), strict=True))


def _swings(samples: pl.DataFrame) -> Iterator[float]:
    sent = samples.filter(
        (pl.col("quantity") == "sent_bytes") & pl.col("subject").str.starts_with("agent.")
    )
    for part in sent.sort("time_s").partition_by("subject"):
        sizes = part.filter(pl.col("time_s") >= FROM_S)["value"].diff().drop_nulls()
        mean = float(sizes.to_numpy().mean())
        yield float(sizes.to_numpy().std()) / mean if mean else 0.0


def main(arguments: list[str]) -> None:
    """Print the measures by rule and who shares the network, and the scores."""
    if len(arguments) > 1:
        raise SystemExit(__doc__)
    wanted = [cell(setting, *rule, seed) for setting, rule, seed in product(SETTINGS, RULES, SEEDS)]
    engine = NativeEngine()
    study = Study(engine, Store(STORE, engine.fingerprint()), int(arguments[0]) if arguments else 2)
    results = study.run(study.plan(wanted))
    rows = pl.DataFrame(
        [{**dict(one.labels), **measures(results.of([one]))} for one in results.cells]
    )
    print(f"| rule | reports | rate grows by | who | {' | '.join(MEASURES)} |")
    print("| --- |" + " --- |" * (len(MEASURES) + 3))
    for (controller, feedback, increase), who in product(RULES, (*AGENTS, "all")):
        part = rows.filter(controller=controller, feedback=feedback, increase=increase)
        part = part if who == "all" else part.filter(who=who)
        values = (f"{float(part[name].to_numpy().mean()):.3f}" for name in MEASURES)
        print(f"| {controller} | {feedback} | {increase} | {who} | {' | '.join(values)} |")
    for feedback, increase in WAYS:
        part = rows.filter(feedback=feedback, increase=increase)
        print(f"{feedback}, {increase}: {float(part['score'].to_numpy().mean()):.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
