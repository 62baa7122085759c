"""The scenarios that are run in both worlds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

from ontempo.lab.cells import Cell
from ontempo.lab.engine import NativeEngine
from ontempo.lab.real_time import Emulation

HERE = Path(__file__).parent

Profile = Literal["linux", "ns-2"]
PROFILES: Sequence[Profile] = ("linux", "ns-2")

SIMULATED_COST_S = 0.2
"""Core-seconds of a simulated run, roughly."""

QUEUE = "topology.bottleneck.queue"
LONG = "98 ms"


@dataclass(frozen=True)
class Row:
    """A scenario: a file, what is replaced in it, and its groups over TCP."""

    name: str
    file: str
    sets: tuple[str, ...] = ()
    tcp: tuple[str, ...] = ("download",)
    seconds: int = 24
    paired: bool = False
    """Whether runs are compared seed by seed: where the seed decides what the link does."""

    def emulated(self, runs: int) -> list[Cell]:
        """The runs with real packets, over the kernel's TCP as it is."""
        world = Emulation(controls=("pert compete=alpha",) if PERT in " ".join(self.sets) else ())
        cost = float(self.seconds)
        return [self._cell("emulated", "linux", seed, cost, world) for seed in range(runs)]

    def simulated(self, runs: int) -> list[Cell]:
        """The simulated runs, under each profile where there is TCP."""
        profiles = PROFILES if self.tcp else PROFILES[:1]
        return [
            self._cell(profile, profile, seed, SIMULATED_COST_S)
            for profile, seed in product(profiles, range(runs))
        ]

    def controllers(self) -> dict[str, str]:
        """The congestion controller of each group over TCP, by its kind."""
        scenario = NativeEngine().load(HERE / self.file, self._overrides("ns-2"))
        flows = json.loads(scenario.canonical())["flows"]
        return {group: flows[group]["transport"]["congestion"]["kind"] for group in self.tcp}

    def switched(self, name: str, sets: Sequence[str], runs: int) -> list[Cell]:
        """Runs under the profile of ns-2 with some fields set, named as a world of their own."""
        row = replace(self, sets=(*self.sets, *sets))
        return [row._cell(name, "ns-2", seed, SIMULATED_COST_S) for seed in range(runs)]

    def _cell(
        self, world: str, profile: Profile, seed: int, cost: float, real: Emulation | None = None
    ) -> Cell:
        labels = (("scenario", self.name), ("world", world))
        path = HERE / self.file
        return Cell(path, self._overrides(profile), seed, labels, cost, real)

    def _overrides(self, profile: Profile) -> tuple[str, ...]:
        profiles = (f'flows.{group}.transport.profile="{profile}"' for group in self.tcp)
        return (*self.sets, *profiles)


PERT = '{ kind = "pert", compete = "alpha" }'
"""PERT of the thesis: beside loss-based flows it is not Reno."""


def _control(group: str, name: str) -> str:
    written = name if name.startswith("{") else f'"{name}"'
    return f"flows.{group}.transport.congestion={written}"


def _bottleneck(
    rate: str = "10 Mbit/s", delay: str = "18 ms", queue: str = "50 packets"
) -> tuple[str, ...]:
    return (
        f'topology.bottleneck.rate="{rate}"',
        f'topology.bottleneck.delay="{delay}"',
        f'{QUEUE}={{ kind = "drop-tail", limit = "{queue}" }}',
    )


def _managed(kind: str, more: str = "") -> str:
    return f'{QUEUE}={{ kind = "{kind}", limit = "500 packets"{more} }}'


def _count(group: str, count: int) -> str:
    return f"flows.{group}.count={count}"


def _over(profile: str, what: str, file: str, tcp: tuple[str, ...]) -> Row:
    sets = (f'topology.bottleneck.profile="{profile}"',)
    return Row(f"{what} over {profile}", file, sets, tcp, paired=True)


def _loss(text: str) -> str:
    return f"topology.bottleneck.loss={{ {text} }}"


STEPS = 'steps = [{ for = "5 s", rate = "10 Mbit/s" }, { for = "5 s", rate = "3 Mbit/s" }]'
MARKOV = (
    'states = [{ rate = "12 Mbit/s", mean-time = "2 s" }, { rate = "6 Mbit/s", mean-time = "2 s" },'
    ' { rate = "2 Mbit/s", mean-time = "1 s" }]'
)
BOTH = ("live", "download")
FAST = _bottleneck("75 Mbit/s", "1.5 ms", "45 packets")
DEEP = _bottleneck("75 Mbit/s", "1.5 ms", "500 packets")
OVER = (
    "wifi",
    "wifi-lossy",
    "5g",
    "lte-still",
    "lte-driving",
    "cable",
    "dsl",
    "office",
    "satellite-leo",
    "satellite-geo",
)

ROWS: Sequence[Row] = (
    # One download.
    Row("1 Reno", "downloads.toml", (_control("download", "reno"),)),
    Row("1 CUBIC", "downloads.toml"),
    Row("1 PERT", "downloads.toml", (_control("download", PERT),)),
    Row("1 CUBIC, queue of 10", "downloads.toml", _bottleneck(queue="10 packets")),
    Row("1 CUBIC, queue of 500", "downloads.toml", _bottleneck(queue="500 packets")),
    Row("1 CUBIC, 2 Mbit/s, 200 ms", "downloads.toml", _bottleneck("2 Mbit/s", LONG)),
    Row(
        "1 CUBIC, 50 Mbit/s, 20 ms",
        "downloads.toml",
        _bottleneck("50 Mbit/s", "8 ms", "80 packets"),
    ),
    Row(
        "1 CUBIC, 40 Mbit/s, 200 ms",
        "downloads.toml",
        _bottleneck("40 Mbit/s", LONG, "700 packets"),
    ),
    Row(
        "1 CUBIC from its start",
        "downloads.toml",
        ('measure.from="0 s"', 'duration="6 s"'),
        seconds=6,
    ),
    # Several downloads.
    Row("5 Reno", "downloads.toml", (_control("download", "reno"), _count("download", 5))),
    Row("5 CUBIC", "downloads.toml", (_count("download", 5),)),
    Row("5 PERT", "downloads.toml", (_control("download", PERT), _count("download", 5))),
    Row(
        "2 CUBIC, 2 Reno",
        "two-kinds.toml",
        (_count("download", 2), _count("other", 2)),
        ("download", "other"),
    ),
    Row(
        "2 PERT, 2 CUBIC",
        "two-kinds.toml",
        (_control("other", PERT), _count("download", 2), _count("other", 2)),
        ("download", "other"),
    ),
    # Losses on the wire.
    Row(
        "1 Reno, 0.5 % lost",
        "downloads.toml",
        (_control("download", "reno"), _loss('kind = "bernoulli", rate = 0.005')),
    ),
    Row("1 CUBIC, 1 % lost", "downloads.toml", (_loss('kind = "bernoulli", rate = 0.01'),)),
    Row(
        "2 CUBIC, bursts of losses",
        "downloads.toml",
        (_count("download", 2), _loss('kind = "gilbert", p = 0.002, q = 0.3')),
    ),
    # Managed queues.
    Row("2 CUBIC, CoDel", "downloads.toml", (_count("download", 2), _managed("codel"))),
    Row(
        "2 CUBIC, FQ-CoDel",
        "downloads.toml",
        (_count("download", 2), _managed("fq-codel", ", ecn = false")),
    ),
    Row(
        "2 CUBIC, FQ-CoDel with ECN",
        "downloads.toml",
        (_count("download", 2), _managed("fq-codel"), "flows.download.transport.ecn=true"),
    ),
    Row("2 CUBIC, PIE", "downloads.toml", (_count("download", 2), _managed("pie"))),
    Row(
        "2 CUBIC, RED",
        "downloads.toml",
        (_count("download", 2), _managed("red", ', min-th = "10 packets", max-th = "40 packets"')),
    ),
    # Live streams over TCP.
    Row(
        "live alone, 1 % lost", "live.toml", (_loss('kind = "bernoulli", rate = 0.01'),), ("live",)
    ),
    Row(
        "live at 90 % of the link",
        "live.toml",
        ('flows.live.application.rate="9 Mbit/s"',),
        ("live",),
    ),
    Row("live beside 1 CUBIC", "live-beside.toml", (), BOTH),
    Row("live beside 2 CUBIC", "live-beside.toml", (_count("download", 2),), BOTH),
    Row(
        "live beside 1 CUBIC, queue of 500",
        "live-beside.toml",
        _bottleneck(queue="500 packets"),
        BOTH,
    ),
    Row(
        "live beside 1 CUBIC, FQ-CoDel",
        "live-beside.toml",
        (_managed("fq-codel", ", ecn = false"),),
        BOTH,
    ),
    Row(
        "4 live beside 4 CUBIC",
        "live-beside.toml",
        (_count("live", 4), _count("download", 4), 'flows.live.application.rate="800 kbit/s"'),
        BOTH,
    ),
    Row(
        "live over PERT beside 2 CUBIC",
        "live-beside.toml",
        (_control("live", PERT), _count("download", 2)),
        BOTH,
    ),
    Row("live beside 20 web users", "web.toml", (), ("live", "web")),
    Row("the tutorial's, CUBIC", "question.toml", (), ("video", "files"), 40),
    Row(
        "the tutorial's, Reno",
        "question.toml",
        (_control("video", "reno"),),
        ("video", "files"),
        40,
    ),
    Row(
        "the tutorial's, PERT",
        "question.toml",
        (_control("video", PERT),),
        ("video", "files"),
        40,
    ),
    # UDP.
    Row("UDP at 120 % of the link", "udp.toml", ('flows.udp.application.rate="12 Mbit/s"',), ()),
    Row("UDP beside 2 CUBIC", "udp-beside.toml", (_count("download", 2),)),
    Row(
        "UDP, delays of 18 to 38 ms",
        "udp.toml",
        ('topology.bottleneck.delay={ kind = "uniform", low = "18 ms", high = "38 ms" }',),
        (),
    ),
    # Links that change.
    Row(
        "1 CUBIC, 10 and 3 Mbit/s in turn",
        "downloads.toml",
        (f'topology.bottleneck.schedule={{ kind = "periodic", {STEPS} }}',),
    ),
    Row(
        "live over a Markov link",
        "live.toml",
        (f'topology.bottleneck.schedule={{ kind = "markov", {MARKOV} }}',),
        ("live",),
    ),
    Row(
        "live, an outage of 1 s",
        "live.toml",
        ('topology.bottleneck.outages=[{ at = "10 s", for = "1 s" }]',),
        ("live",),
    ),
    Row(
        "1 CUBIC, delays of 18 to 28 ms",
        "downloads.toml",
        ('topology.bottleneck.delay={ kind = "uniform", low = "18 ms", high = "28 ms" }',),
    ),
    # Short round trips.
    Row("1 CUBIC, 75 Mbit/s, 7 ms", "downloads.toml", FAST),
    Row("1 CUBIC, 75 Mbit/s, 7 ms, deep queue", "downloads.toml", DEEP),
    Row(
        "1 CUBIC, 75 Mbit/s, 7 ms, 0.1 % lost",
        "downloads.toml",
        (*DEEP, _loss('kind = "bernoulli", rate = 0.001')),
    ),
    Row(
        "1 CUBIC from its start, 75 Mbit/s, 7 ms",
        "downloads.toml",
        (*DEEP, 'measure.from="0 s"', 'duration="6 s"'),
        seconds=6,
    ),
    Row("live beside 1 CUBIC, 75 Mbit/s, 7 ms", "live-beside.toml", FAST, BOTH),
    # Links of profiles.
    *(_over(profile, "1 CUBIC", "profiled.toml", ("download",)) for profile in OVER),
    *(
        _over(profile, "live beside 1 CUBIC", "profiled-live.toml", BOTH)
        for profile in ("wifi", "5g", "lte-driving")
    ),
)
