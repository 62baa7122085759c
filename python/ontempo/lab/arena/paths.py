"""The paths, by class: each is the text of a scenario without its films."""

from dataclasses import dataclass

from ontempo.lab.arena.films import FEW, Film

FROM_S = 2
"""What the first seconds carry is sent and not counted, as in `experiments.comparison`."""

QUEUE = '{ kind = "drop-tail", limit = "100 packets" }'
"""The queue of `experiments.comparison`."""


@dataclass(frozen=True)
class Path:
    """A path for films.

    `rtt_ms` is its round trip without queues and without what varies, in ms: the unit of buffers.
    `text` is the scenario without duration and films, as TOML. `films` are its film flows: the
    name of the group and what the group says besides application, transport and stop. Frames are
    counted from `from_s` on, for `lasts_s` seconds, by default those of the scale. `seeds` are
    run one by one.
    """

    group: str
    name: str
    rtt_ms: float
    text: str
    films: tuple[tuple[str, str], ...] = (("film", ""),)
    from_s: float = FROM_S
    lasts_s: float | None = None
    seeds: tuple[int, ...] = (1,)
    words: str = ""

    @property
    def id(self) -> str:
        """Class and name."""
        return f"{self.group}/{self.name}"


@dataclass(frozen=True)
class Group:
    """A class of paths: what it asks, its paths at full and at quick scale, and the films."""

    name: str
    words: str
    paths: tuple[Path, ...]
    quick: tuple[Path, ...]
    films: tuple[Film, ...] = FEW
    quick_films: tuple[Film, ...] = FEW[1:]


def dumbbell(bottleneck: str, more: str = "") -> str:
    """A scenario's network with this bottleneck, both ways unless `more` says otherwise."""
    return (
        '[topology]\nkind = "dumbbell"\naccess = { rate = "1 Gbit/s", delay = "0 ms" }\n'
        f"bottleneck = {{ {bottleneck} }}\n{more}"
    )


def plain(rtt_ms: float, rate_kbit_s: float, more: str = "", queue: str = QUEUE) -> str:
    """A link of constant rate and delay."""
    delay = f'delay = "{rtt_ms * 500:.0f} us"'
    return f'rate = "{rate_kbit_s:.0f} kbit/s", {delay}, queue = {queue}{more}'
