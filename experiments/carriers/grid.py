"""The paths: chosen, and written down here, before any of them was run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ontempo.lab.cells import Cell
from ontempo.lab.real_time import Emulation

SCENARIO = Path(__file__).parent / "carriers.toml"

CARRIERS = {"srt": "SRT", "rist": "RIST"}
"""As flows are named, and as the page names them."""

SECONDS = 24
"""How long a run takes, as the scenario has it."""

SIMULATED_COST_S = 1.0
"""Core-seconds of a simulated run, roughly."""

WIRE_BPS = {"srt": 4.8e6 * (1316 + 44) / 1316, "rist": 4.8e6 * (1316 + 48) / 1316}
"""What a carrier sends of the film, of 4.8 Mbit/s, without retransmissions, headers counted."""


@dataclass(frozen=True)
class Row:
    """A path, and the latency (SRT) and buffer (RIST) on it.

    `delay` is one way, as a scenario writes it, and `back_ms` that of the other way; `load` the
    link's rate as a multiple of what the carrier sends, 10 Mbit/s if None; `queue` in packets.
    """

    name: str
    latency_ms: int
    back_ms: int
    loss: str = ""
    delay: str = ""
    load: float | None = None
    queue: int = 100

    def simulated(self, runs: int) -> list[Cell]:
        """Runs of the models."""
        return [self._cell("simulated", seed, SIMULATED_COST_S, None) for seed in range(runs)]

    def emulated(self, runs: int) -> list[Cell]:
        """Runs of the programs: both carriers at a time, each on its own path."""
        return [self._cell("emulated", seed, SECONDS, Emulation()) for seed in range(runs)]

    def _cell(self, world: str, seed: int, cost: float, real: Emulation | None) -> Cell:
        links = ", ".join(self._links(carrier) for carrier in CARRIERS)
        sets = (
            f'topology={{ kind = "graph", links = [{links}] }}',
            f'flows.srt.transport.latency="{self.latency_ms} ms"',
            f'flows.rist.transport.buffer="{self.latency_ms} ms"',
        )
        labels = (("path", self.name), ("world", world))
        return Cell(SCENARIO, sets, seed, labels, cost, real)

    def _links(self, carrier: str) -> str:
        rate = 10e6 if self.load is None else self.load * WIRE_BPS[carrier]
        ends = (f"{carrier}-source", f"{carrier}-sink")
        queue = f'{{ kind = "drop-tail", limit = "{self.queue} packets" }}'
        delay = self.delay or f'"{self.back_ms} ms"'
        loss = f", loss = {{ {self.loss} }}" if self.loss else ""
        one_way = "duplex = false, rate ="
        there = f'{{ from = "{ends[0]}", to = "{ends[1]}", {one_way} '
        there += f'"{round(rate)} bit/s", delay = {delay}, queue = {queue}{loss} }}'
        back = f'{{ from = "{ends[1]}", to = "{ends[0]}", {one_way} '
        return there + ", " + back + f'"10 Mbit/s", delay = "{self.back_ms} ms" }}'


def _random(percent: int) -> str:
    return f'kind = "bernoulli", rate = {percent / 100}'


BURSTS = f'kind = "gilbert", p = {0.25 * 0.02 / 0.98:.6f}, q = 0.25'
"""2 % of the packets, 4 at a time in the mean."""

JITTER = '{ kind = "uniform", low = "45 ms", high = "55 ms" }'

ROWS: Sequence[Row] = (
    Row("nothing lost, 20 ms", 120, 10),
    Row("1 % lost, 20 ms", 120, 10, _random(1)),
    Row("5 % lost, 20 ms", 120, 10, _random(5)),
    Row("1 % lost, 100 ms", 300, 50, _random(1)),
    Row("2 % lost, 100 ms", 300, 50, _random(2)),
    Row("5 % lost, 100 ms", 300, 50, _random(5)),
    Row("10 % lost, 100 ms", 300, 50, _random(10)),
    Row("2 % lost, 300 ms", 900, 150, _random(2)),
    Row("2 % lost in bursts of 4, 100 ms", 300, 50, BURSTS),
    Row("1 % lost, 100 ms, jitter of 10 ms", 300, 50, _random(1), JITTER),
    Row("1 % lost, 100 ms, 1.1 times the rate, queue of 30", 300, 50, _random(1), "", 1.1, 30),
    Row("100 ms, 0.8 times the rate, queue of 30", 300, 50, "", "", 0.8, 30),
)
"""12 paths, by their round trips."""
