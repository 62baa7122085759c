"""The cells of Table 1: twelve cases of each application, and those of the ACK path."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ontempo.lab.claims import Scale
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
    """Every test of an application, for each seed."""
    duration_s = DURATION_S[scale]
    return [
        test_cell(application, case, duration_s, seed) for case in CASES for seed in SEEDS[scale]
    ]


def test_cell(application: Application, case: Case, duration_s: int, seed: int) -> Cell:
    """One test of an application."""
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
