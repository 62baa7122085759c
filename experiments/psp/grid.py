"""The cells of the paper's section 3: which are run in full, which in quick."""

from pathlib import Path

from ontempo.lab.claims import Scale
from ontempo.lab.study import Cell

HERE = Path(__file__).parent
PSA = HERE / "psa.toml"
MIXED = HERE / "mixed.toml"
ADAPTIVE = HERE / "adaptive.toml"
ADAPTIVE_TCP = HERE / "adaptive-tcp.toml"
AQM = HERE / "aqm.toml"

PACKET = "1428 B"
"""On the wire: 1,400 bytes, and 28 of IP and UDP headers."""
PACKET_BITS = 1428 * 8
LINK_MBIT_S = 155
TRANSMISSION_US = PACKET_BITS / 100
"""Transmission time of a packet at a sender's 100 Mbit/s. Spacing is from its end (fig. 3)."""
ARRIVED_US = PACKET_BITS / LINK_MBIT_S
"""Transmission time of a packet at the gateway, which the spacing at the receiver excludes."""

QUICK_SPACINGS = (0, 150, 200, 300, 500, 800, 950, 1000, 1050, 1150, 1200, 1500, 2000, 3000, 5000)
FULL_SPACINGS = tuple(range(0, 5001, 50))


def spaced(by: str) -> str:
    """An agent's transport, as an override's value."""
    return f'{{ kind = "spaced", packet = "{PACKET}", {by}, spacing-from = "end" }}'


PLAIN_UDP = spaced('spacing = "0 us"')
CONSTANT = spaced('spacing = "1500 us"')
AS_PUBLISHED = 'feedback = "each-report", increase = "fixed-step"'
"""When a sender decides, and how fast it grows, in the primary reading."""

ADAPTIVE_MEDIA = {
    "PSP": spaced(f'controller = "psp", {AS_PUBLISHED}'),
    "damped PSP": spaced(f'controller = "psp-damped", {AS_PUBLISHED}'),
}

QUEUES = {
    "drop-tail": '{ kind = "drop-tail", limit = "300 packets" }',
    "RED": '{ kind = "red", limit = "300 packets", mean-packet = "1428 B" }',
    "CoDel": '{ kind = "codel", limit = "300 packets" }',
    "PIE": '{ kind = "pie", limit = "300 packets" }',
    "FQ-CoDel": '{ kind = "fq-codel", limit = "300 packets" }',
}
MEDIA = {"plain UDP": PLAIN_UDP, "PSA, 1500 μs": CONSTANT, **ADAPTIVE_MEDIA}


def spacings(scale: Scale) -> tuple[int, ...]:
    """The spacings of figures 7 to 15, in microseconds."""
    return QUICK_SPACINGS if scale == "quick" else FULL_SPACINGS


def spacing_of(us: int) -> float:
    """From the start of a packet to that of the next at this spacing, in microseconds."""
    return us + TRANSMISSION_US


def psa_cells(scale: Scale, counts: tuple[int, ...]) -> list[Cell]:
    """Agents alone, over the spacings."""
    duration = 8 if scale == "quick" else 500
    return [
        Cell(
            PSA,
            (
                f'duration="{duration} s"',
                f"flows.psa.count={count}",
                f'flows.psa.transport.spacing="{us} us"',
            ),
            0,
            (("agents", count), ("spacing_us", us)),
            count * duration * 0.3 / spacing_of(us),
        )
        for count in counts
        for us in spacings(scale)
    ]


def mixed_cells(scale: Scale, window: int) -> list[Cell]:
    """16 agents and 16 transfers, over the spacings."""
    duration, since = (20, 5) if scale == "quick" else (500, 1)
    return [
        Cell(
            MIXED,
            (
                f'duration="{duration} s"',
                f'flows.psa.transport.spacing="{us} us"',
                f'measure.from="{since} s"',
                f'flows.tcp.transport.receive-window="{window} packets"',
            ),
            0,
            (("window", window), ("spacing_us", us)),
            duration * (8 / spacing_of(us) + 0.005),
        )
        for us in spacings(scale)
    ]


SINGLE: dict[Scale, range] = {"quick": range(4), "full": range(10)}
"""Draws of the starts where the paper shows a single flow of a single run."""


def single_cells(scale: Scale) -> list[Cell]:
    """16 agents at 5000 us and 16 transfers of window 800, as long as published, with other starts.

    Over less than the published time single transfers would differ by more.
    """
    overrides = (
        'flows.psa.transport.spacing="5000 us"',
        'flows.tcp.transport.receive-window="800 packets"',
    )
    return [Cell(MIXED, overrides, seed, (("single", 1),), 3.0) for seed in SINGLE[scale]]


ARRIVAL_SEEDS = range(10)


def arrival_cells(scale: Scale) -> list[Cell]:
    """The mixed run at 1500 us whose arrivals at one sink are recorded, with other starts."""
    duration = 20 if scale == "quick" else 500
    overrides = (
        f'duration="{duration} s"',
        'flows.psa.transport.spacing="1500 us"',
        'measure.packets=["right -> psa.0.sink"]',
    )
    return [
        Cell(MIXED, overrides, seed, (("spacing_us", 1500),), duration * 0.02)
        for seed in ARRIVAL_SEEDS
    ]


SEEDS: dict[Scale, range] = {"quick": range(3), "full": range(20)}


def adaptive_cells(scale: Scale, controllers: tuple[str, ...] = ("psp-damped",)) -> list[Cell]:
    """Two adaptive agents for 100 s, as published, with other starts."""
    return [
        Cell(
            ADAPTIVE,
            tuple(
                f'flows.{flow}.transport.controller="{controller}"' for flow in ("first", "second")
            ),
            seed,
            (("controller", controller),),
            0.5,
        )
        for controller in controllers
        for seed in SEEDS[scale]
    ]


def delayed_cells(scale: Scale) -> list[Cell]:
    """The second agent starts 10 s after the first."""
    overrides = ('flows.second.start="10 s"', 'measure.from="80 s"')
    return [Cell(ADAPTIVE, overrides, seed, (("delayed", 1),), 0.5) for seed in SEEDS[scale]]


def background_cells(scale: Scale) -> list[Cell]:
    """Two adaptive agents and ten transfers."""
    return [Cell(ADAPTIVE_TCP, (), seed, (), 0.6) for seed in SEEDS[scale]]


def aqm_cells(scale: Scale) -> list[Cell]:
    """Every kind of media under every discipline."""
    duration, seeds = (20, range(1)) if scale == "quick" else (300, range(5))
    return [
        Cell(
            AQM,
            (
                f'duration="{duration} s"',
                f"topology.bottleneck.queue={queue}",
                f"flows.media.transport={transport}",
            ),
            seed,
            (("queue", name), ("media", media)),
            duration * (0.03 if media == "plain UDP" else 0.01),
        )
        for name, queue in QUEUES.items()
        for media, transport in MEDIA.items()
        for seed in seeds
    ]


HEADLINE_S = 500
"""As long as the paper's runs of many agents (section 3.2)."""
HEADLINE_FROM_S = 10
PLAIN_S = 20
"""16 agents without spacing fill the link from the first packet on: the rest would be the same."""
HEADLINE_SEEDS = range(10)


def headline_cells(scale: Scale) -> list[Cell]:
    """16 agents without spacing and 16 that adapt it; in quick only those of the two checks."""
    adaptive = {
        name: transport
        for name, transport in ADAPTIVE_MEDIA.items()
        if scale == "full" or name == "damped PSP"
    }
    return [
        Cell(
            PSA,
            (
                f'duration="{duration} s"',
                f'measure.from="{HEADLINE_FROM_S} s"',
                'measure.sample-every="10 s"',
                f"flows.psa.transport={transport}",
            ),
            seed,
            (("media", media),),
            duration * cost,
        )
        for media, transport, duration, cost in (
            ("plain UDP", PLAIN_UDP, PLAIN_S, 0.03),
            *((name, transport, HEADLINE_S, 0.006) for name, transport in adaptive.items()),
        )
        for seed in HEADLINE_SEEDS
    ]


class Scaling:
    """A description of how much of a figure over the spacings is run."""

    def __init__(self, quick_s: int) -> None:
        self.quick_s = quick_s

    def __call__(self, scale: Scale) -> str:
        """The description of a scale."""
        if scale == "quick":
            return (
                f"{self.quick_s} of 500 s a point; {len(QUICK_SPACINGS)} spacings from 0 to"
                " 5000 μs."
            )
        return "500 s a point, as published; every 50 μs from 0 to 5000 μs."
