"""The cells of Table 1: twelve cases of each application, and those of the ACK path."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ontempo.lab.claims import Scale
from ontempo.lab.readings import with_settings
from ontempo.lab.study import Cell

HERE = Path(__file__).parent

Application = Literal["nv", "dirm"]

THERE, BACK = '["r11 -> r10"]', '["r10 -> r11"]'
"""The bottleneck, in the direction of video and images, and in the opposite one."""

NV_RESERVED = (
    '{ flows = "nv", rate = "640 kbit/s", bucket = "13080 B", largest = "1308 B",'
    f" links = {THERE} }}"
)
"""Controlled load for NetVideo: the rate it is set to, ten of its packets at once."""

IMAGES_RESERVED = (
    f'{{ flows = "images", rate = "494 kbit/s", bucket = "61680 B", links = {THERE} }}'
)
"""Controlled load for the images: 480 kbit/s and a message of 60,000 bytes, with headers."""

ACKS_RESERVED = (
    '{ flows = "images", direction = "acks", rate = "64 kbit/s", bucket = "1600 B",'
    f' largest = "40 B", links = {BACK} }}'
)
REQUESTS_RESERVED = (
    '{ flows = "requests", rate = "32 kbit/s", bucket = "3000 B", largest = "340 B",'
    f" links = {BACK} }}"
)


@dataclass(frozen=True)
class Source:
    """A group of flows that send messages over UDP at intervals drawn about their mean."""

    group: str
    payload_bytes: int
    header_bytes: int
    spread: float
    """The largest deviation of an interval, as a part of the mean."""

    @property
    def key(self) -> str:
        """The field of a scenario that sets its rate."""
        return f"flows.{self.group}.application.interval"

    def mean_ms(self, kbps: float) -> float:
        """The mean interval in milliseconds for a payload rate in kbit/s."""
        return 8 * self.payload_bytes / kbps

    def interval(self, kbps: float) -> str:
        """The interval for a payload rate in kbit/s, as a scenario has it."""
        mean = self.mean_ms(kbps)
        low, high = mean * (1 - self.spread), mean * (1 + self.spread)
        return f'{{ low = "{low:.4f} ms", high = "{high:.4f} ms" }}'

    def on_the_line(self, kbps: float) -> float:
        """A payload rate with its headers."""
        return kbps * (1 + self.header_bytes / self.payload_bytes)


VIDEO = Source("nv", 1280, 28, 0.25)
GENERATOR = Source("tg", 1024, 28, 0.1)

VIDEO_SENT = {"A1": 570.0, "A2": 530.0, "B1": 570.0, "B2": 530.0, "C1": 472.0, "C2": 520.0}
"""What the video sent by figure 6 and its text, in kbit/s of payload, by test.

A1, A2, B2, C2: as received, next to nothing being lost. B1: as A1, since both are called a bit
above A2 and B2. C1: 250 were received, and 47 % lost.
"""

GENERATORS_SENT = {"A3": 530.0, "B1": 530.0, "B2": 530.0, "C1": 480.0, "C2": 500.0}
"""What each generator sent beside the video, in kbit/s of payload.

C1 and C2: 120 and 200 were not received, 25 and 40 % lost. A and B: the rate of section III.B.
"""

DURATION_S = {"quick": 110, "full": 310}
SEEDS = {"quick": tuple(range(3)), "full": tuple(range(20))}
COST = 0.05
"""Core-seconds that a second of a hundred takes, roughly."""


@dataclass(frozen=True)
class Case:
    """One test of Table 1."""

    name: str
    scenario: dict[Application, str]
    generators: int
    reserved: bool

    @property
    def with_application(self) -> bool:
        """Whether it has more than traffic generators."""
        return not self.scenario["nv"].startswith("tg")


CASES = (
    Case("A1", {"nv": "nv", "dirm": "dirm"}, 0, reserved=False),
    Case("A2", {"nv": "nv", "dirm": "dirm"}, 0, reserved=True),
    Case("A3", {"nv": "tg-udp", "dirm": "tg-tcp"}, 1, reserved=False),
    Case("B1", {"nv": "nv-tg", "dirm": "dirm-tg"}, 1, reserved=False),
    Case("B2", {"nv": "nv-tg", "dirm": "dirm-tg"}, 1, reserved=True),
    Case("C1", {"nv": "nv-tg", "dirm": "dirm-tg"}, 2, reserved=False),
    Case("C2", {"nv": "nv-tg", "dirm": "dirm-tg"}, 2, reserved=True),
)

FLOWS = ("A1", "A2", "A3", "B1a", "B1b", "B2a", "B2b", "C1a", "C1b", "C1c", "C2a", "C2b", "C2c")
"""The flows of Table 1, in its order: of 7 tests, 3 with one flow, 2 with two, 2 with three."""

PLACES = {name: float(place) for place, name in enumerate(FLOWS)}
"""The place of each flow in a figure."""


def cells(application: Application, scale: Scale) -> list[Cell]:
    """Every test of an application, for each seed; the video's at the rates of figure 6."""
    duration_s = DURATION_S[scale]
    return [
        as_sent(test_cell(application, case, duration_s, seed))
        for case in CASES
        for seed in SEEDS[scale]
    ]


def as_sent(cell: Cell) -> Cell:
    """A test of NetVideo at the rates that figure 6 reports; one of DIRM as it is."""
    labels = dict(cell.labels)
    if labels["application"] != "nv":
        return cell
    rates = ((VIDEO, VIDEO_SENT), (GENERATOR, GENERATORS_SENT))
    test = str(labels["test"])
    settings = (
        f"{source.key}={source.interval(sent[test])}" for source, sent in rates if test in sent
    )
    return with_settings(cell, *settings)


def test_cell(application: Application, case: Case, duration_s: int, seed: int) -> Cell:
    """One test of an application, its sources at the rates of their traffic profiles."""
    reservation = NV_RESERVED if application == "nv" else IMAGES_RESERVED
    return _cell(
        case.scenario[application],
        case.generators,
        [reservation] if case.reserved else [],
        (("application", application), ("test", case.name)),
        duration_s,
        seed,
    )


CONVERSATIONS = (
    '{ kind = "wfq", unreserved = "by-flow", limit = "64 packets", resume = "16 packets" }'
)
"""The chosen queue of the routers."""


def links(queue: str = CONVERSATIONS, rate: str = "1.5 Mbit/s") -> str:
    """The override that sets another queue or rate at the bottleneck."""
    return (
        'topology.links=[{ from = "ws1", to = "r11", rate = "10 Mbit/s", delay = "50 us" },'
        f' {{ from = "r11", to = "r10", rate = "{rate}", delay = "500 us", queue = {queue} }},'
        ' { from = "r10", to = "ws0", rate = "10 Mbit/s", delay = "50 us" }]'
    )


def ack_tests() -> list[tuple[str, str, str, list[str]]]:
    """Scenario, reverse direction, the reserved directions by name and as reservations."""
    both = [IMAGES_RESERVED, ACKS_RESERVED, REQUESTS_RESERVED]
    reserved = {"data only": [IMAGES_RESERVED], "data and ACKs": both, "nothing": []}
    return [
        (scenario, reverse, variant, reservations)
        for scenario, reverse in (("dirm-tg", "empty"), ("dirm-back", "crowded"))
        for variant, reservations in reserved.items()
    ]


def ack_cell(
    scenario: str, reverse: str, variant: str, reserved: Sequence[str], duration_s: int, seed: int
) -> Cell:
    """Test C2 of DIRM, with this reserved."""
    labels = (("application", "dirm"), ("test", "C2"), ("back", reverse), ("reserved", variant))
    return _cell(scenario, 2, reserved, labels, duration_s, seed)


def ack_cells(scale: Scale) -> list[Cell]:
    """Test C2 of DIRM with and without reserved ACKs, on the testbed and with traffic back."""
    return [
        ack_cell(*test, DURATION_S[scale], seed) for test in ack_tests() for seed in SEEDS[scale]
    ]


def _cell(
    scenario: str,
    generators: int,
    reserved: Sequence[str],
    labels: tuple[tuple[str, str], ...],
    duration_s: int,
    seed: int,
) -> Cell:
    overrides = [f'duration="{duration_s} s"']
    if generators:
        overrides.append(f"flows.tg.count={generators}")
    if reserved:
        overrides.append(f"reservations=[{', '.join(reserved)}]")
    cost = COST * duration_s / 100
    return Cell(HERE / f"{scenario}.toml", tuple(overrides), seed, labels, cost)


def scaling(scale: Scale) -> str:
    """A description of what is run."""
    seconds = DURATION_S[scale] - 10
    return (
        f"{len(SEEDS[scale])} seeds of {seconds} s, {2 * seconds} samples of 0.5 s each; the paper"
        " has at least 100 samples of NetVideo and 200 of DIRM."
    )
