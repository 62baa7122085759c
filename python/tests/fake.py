"""A simulator that takes no time: made-up tables that depend on scenario and seed alone."""

import hashlib
import json
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import made
import polars as pl
from rows import flow

from ontempo.lab.engine import Scenario, Stop, StoppedError
from ontempo.lab.errors import BadInputError

STARTUP_S = (1.0, 2.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 20.0, 25.0, 30.0)

STRENGTH = {"pert": 1.0, "cubic": 0.6, "reno": 0.25}


@dataclass(frozen=True)
class FakeScenario:
    """A path and what replaces its values."""

    path: Path
    overrides: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.path.stem

    def canonical(self) -> str:
        return json.dumps([self.path.name, *self.overrides])

    def value(self, name: str) -> str:
        found = [o.partition("=")[2] for o in self.overrides if o.partition("=")[0] == name]
        return found[0] if found else ""


class FakeStop:
    """A flag."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def cancel(self) -> None:
        self.stopped.set()


class FakeEngine:
    """Answers at once; counts its runs; can stall or fail at a given run."""

    def __init__(self, version: str = "engine-1") -> None:
        self.version = version
        self.runs = 0
        self.stall_after: int | None = None
        self.fail: Exception | None = None
        self.stalling = threading.Event()
        self.cancelled = 0
        self._lock = threading.Lock()

    def fingerprint(self) -> str:
        return self.version

    def claims_fingerprint(self) -> str:
        return f"{self.version}, claims"

    def load(self, path: Path, overrides: Sequence[str]) -> Scenario:
        if "nonsense=1" in overrides:
            raise BadInputError(f"{path}: line 1: unknown field nonsense")
        return FakeScenario(path, tuple(overrides))

    def revive(self, canonical: str) -> Scenario:
        name, *overrides = json.loads(canonical)
        return FakeScenario(Path(name), tuple(overrides))

    def stop(self) -> Stop:
        return FakeStop()

    def too_large(self, scenario: Scenario, runs_at_once: int) -> str | None:
        assert isinstance(scenario, FakeScenario)
        if "huge=1" in scenario.overrides and runs_at_once > 0:
            return f"{runs_at_once} runs take all memory"
        return None

    def run(self, scenario: Scenario, seed: int, stop: Stop) -> Mapping[str, pl.DataFrame]:
        assert isinstance(scenario, FakeScenario)
        assert isinstance(stop, FakeStop)
        with self._lock:
            stall = self.stall_after is not None and self.runs >= self.stall_after
            self.runs += not stall
        if self.fail is not None:
            raise self.fail
        if stall:
            self.stalling.set()
            stop.stopped.wait(10)
            self.cancelled += 1
            raise StoppedError
        return tables(scenario, seed)


def tables(scenario: FakeScenario, seed: int) -> dict[str, pl.DataFrame]:
    """Made-up tables for either of the scenarios of the pert experiments."""
    digest = hashlib.sha256(f"{scenario.canonical()}{seed}".encode()).digest()
    chance = random.Random(digest)
    if scenario.path.stem == "queue-share":
        return queue_share(chance)
    if scenario.path.stem in made.ANY:
        return dict(made.ANY[scenario.path.stem]())
    return video(scenario, chance)


def video(scenario: FakeScenario, chance: random.Random) -> dict[str, pl.DataFrame]:
    """A run whose shape follows the thesis: harder with more flows and longer round trips."""
    count = int(scenario.value("flows.video.count") or 25)
    named = scenario.value("flows.video.transport.congestion")
    controller = next((name for name in STRENGTH if name in named), "pert")
    packet = int(
        scenario.value("flows.video.transport.packet").strip('"').removesuffix(" B") or 1000
    )
    rtt = 2 * int(scenario.value("topology.bottleneck.delay").strip('"').removesuffix(" ms") or 30)
    t_mu = 2.0 - (count - 20) / 15 + chance.uniform(-0.04, 0.04)
    hardship = max(0.0, 1.45 - t_mu) ** 2 * rtt / 60 * (0.4 if packet == 200 else 1.0)
    flows: list[dict[str, object]] = []
    playout: list[tuple[object, ...]] = []
    for index in range(count):
        loss = max(0.0, chance.gauss(0.012 + 0.05 * (2 - t_mu), 0.01))
        flows.append(flow(len(flows), "video", index, controller, 0.3e6, loss, packet))
        strain = hardship * chance.expovariate(1.0) / STRENGTH[controller]
        units = 26_000
        playout += [
            (
                index,
                "video",
                index,
                delay,
                units,
                int(units * (0.01 + 0.3 * strain) * chance.random() ** 6 / delay**1.6),
            )
            for delay in STARTUP_S
        ]
    for index in range(count):
        rate = 0.3e6 * t_mu * chance.uniform(0.9, 1.1)
        flows.append(flow(len(flows), "ftp", index, "reno", rate, 0.02, packet))
    rest = (24.5e6 - count * 0.3e6 * (1 + t_mu)) / 300
    flows += [flow(len(flows) + i, "http", i, "reno", rest, 0.02, packet) for i in range(300)]
    return {
        "flows": pl.DataFrame(flows),
        "playout": pl.DataFrame(
            playout,
            schema=["flow", "group", "index", "startup_delay_s", "units", "late"],
            orient="row",
        ),
        "queues": pl.DataFrame(schema=QUEUES),
    }


QUEUES = {
    "link": pl.String,
    "group": pl.String,
    "length": pl.UInt32,
    "arrivals": pl.UInt64,
    "drops": pl.UInt64,
}


def queue_share(chance: random.Random) -> dict[str, pl.DataFrame]:
    """PERT early in the queue, RENO late."""
    rows = []
    for length in range(1126):
        place = length / 1125
        for group, tilt in (("pert", 0.5 - place), ("reno", place - 0.5)):
            level = 400 * (0.3 + place) * (1 + 0.5 * tilt) * chance.uniform(0.97, 1.03)
            drops = int(level * 0.2) if length == 1125 else 0
            rows.append(("bottleneck", group, length, int(level), drops))
    flows = [flow(i, "pert", i, "pert", 1.5e6, 0.004, 1000) for i in range(50)]
    flows += [flow(50 + i, "reno", i, "reno", 1.45e6, 0.007, 1000) for i in range(50)]
    return {
        "flows": pl.DataFrame(flows),
        "queues": pl.DataFrame(rows, schema=QUEUES, orient="row"),
    }
