"""The settings of the simulations: which are run in full, which in quick."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ontempo.lab.claims import Scale
from ontempo.lab.study import Cell, Label

SCENARIO = Path(__file__).parent / "adus.toml"

ORDERS = ("in-order", "out-of-order")
"""The two kinds of delivery that the paper compares."""

PROCESSING_MS = {
    "quick": (1.0, 5.0, 10.0, 15.0, 20.0, 40.0, 100.0),
    "full": (
        *(0.1, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0),
        *(25.0, 30.0, 35.0, 40.0, 50.0, 60.0, 80.0, 100.0),
    ),
}
"""Processing times (Ta) of the figures' x axis."""

SEEDS = {"quick": (0, 1, 2), "full": (0, 1, 2, 3, 4)}
"""The paper averages five runs."""

TIMER_D = {"min-rto": 2, "initial-rto": 10}
"""The timer's least and first timeout in mean delays D: 200 ms and 1 s with the default.

The paper has no timer; one that did not scale with D would be met in place of what it describes."""

CORE_S = 0.02
"""Core-seconds of one run, roughly."""


@dataclass(frozen=True)
class Setting:
    """One setting of the simulation; the defaults are those of section 3.2.

    Times are in milliseconds. `law` names the law of the delay, `burst` the mean number of ADUs
    that are lost together: None is the paper's q = 1 - p. `lost` names the transmissions
    that are lost instead.
    """

    processing_ms: float = 10.0
    interval_ms: float = 10.0
    window: int = 32
    every: int = 2
    delay_ms: float = 100.0
    loss: float = 0.1
    burst: float | None = None
    law: str = "erlang"
    count: int = 1000
    transport: str = "adu"
    images: int = 0
    lost: tuple[int, ...] = ()

    def cell(self, order: str, seed: int) -> Cell:
        """One run of this setting."""
        carrier = "flows.adus.transport"
        overrides = [
            f'flows.adus.application.processing="{self.processing_ms:g} ms"',
            f"flows.adus.application.count={self.count}",
            *(
                f"topology.links.{link}.delay={delay_law(self.law, self.delay_ms)}"
                for link in (0, 1)
            ),
            f"topology.links.0.loss={self._losses()}",
        ]
        if self.transport == "adu":
            overrides += [
                f'{carrier}.interval="{self.interval_ms:g} ms"',
                *(f'{carrier}.{name}="{n * self.delay_ms:g} ms"' for name, n in TIMER_D.items()),
                f'{carrier}.window="{self.window} packets"',
                f'{carrier}.ack-every="{self.every} packets"',
                f'{carrier}.delivery="{order}"',
            ]
        else:
            overrides.append(
                f'{carrier}={{ kind = "tcp", congestion = "{self.transport}", packet = "552 B",'
                f' receive-window = "{self.window} packets" }}'
            )
        if self.images:
            overrides.append(
                "flows.adus.application.depends="
                f'{{ kind = "images", adus = {self.images}, tables = 2 }}'
            )
        return Cell(SCENARIO, tuple(overrides), seed, self.labels(order), CORE_S)

    def labels(self, order: str) -> tuple[tuple[str, Label], ...]:
        """The labels of a run of this setting."""
        return (
            ("order", order),
            ("processing_ms", float(self.processing_ms)),
            ("interval_ms", float(self.interval_ms)),
            ("window", self.window),
            ("every", self.every),
            ("delay_ms", float(self.delay_ms)),
            ("loss", self.loss),
            ("burst", self.burst or 0.0),
            ("law", self.law),
            ("count", self.count),
            ("transport", self.transport),
            ("images", self.images),
        )

    def _losses(self) -> str:
        if self.lost:
            return f'{{ kind = "trace", lost = {list(self.lost)} }}'
        return loss_law(self.loss, self.burst)


def delay_law(law: str, mean_ms: float) -> str:
    """A delay's law of the given mean, as the scenario file writes it."""
    mean, half = f'"{mean_ms:g} ms"', f'"{mean_ms / 2:g} ms"'
    constant = f'{{ kind = "constant", value = {half} }}'
    # Two branches of equal weight in the mean: a coefficient of variation of 1.46.
    means = f'["{mean_ms * 2.5:g} ms", "{mean_ms * 0.625:g} ms"]'
    return {
        "constant": mean,
        "exponential": f'{{ kind = "exponential", mean = {mean} }}',
        "hyper-exponential": '{ kind = "hyper-exponential", probabilities = [0.2, 0.8],'
        f" means = {means} }}",
        "erlang": '{ kind = "sum", terms = ['
        f'{constant}, {{ kind = "erlang", k = 3, mean = {half} }}] }}',
    }[law]


def loss_law(loss: float, burst: float | None) -> str:
    """A loss rate, memoryless or in bursts of a mean length, as the scenario file writes it."""
    # The chain leaves the state of loss with probability q: bursts of 1/q ADUs.
    q = 1 - loss if burst is None else 1 / burst
    p = loss * q / (1 - loss)
    return f'{{ kind = "gilbert", p = {p:.10g}, q = {q:.10g} }}'


def cells(
    scale: Scale,
    settings: Iterable[Setting],
    orders: Sequence[str] = ORDERS,
    seeds: Sequence[int] | None = None,
) -> list[Cell]:
    """Every setting, delivered in each order, with each seed.

    Both orders share their seeds, and with them which transmissions are lost.
    """
    chosen = SEEDS[scale] if seeds is None else seeds
    return [setting.cell(order, seed) for setting, order, seed in product(settings, orders, chosen)]
