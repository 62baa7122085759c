"""The cells of an arena: a scenario file for each path and film, a cell for each contender.

The same text is simulated and emulated; a cell replaces transport and latencies in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as File

from ontempo.lab.arena.contenders import Contender
from ontempo.lab.arena.films import Film
from ontempo.lab.arena.paths import Path
from ontempo.lab.cells import Cell
from ontempo.lab.folder import write_text
from ontempo.lab.real_time import Emulation

ROUND_TRIPS = (1.2, 2.0, 4.0)
"""Buffers in round trips of the path; four are what SRT's makers advise."""

DEFAULT = "default"
"""The buffer that a program has by default."""

LEAST_BUFFER_MS = 20
"""The least buffer, in ms: half a picture. Round trips of some paths are far shorter."""

MARGIN_MS = 60
"""How much later than path and buffer a frame may arrive, in ms (`experiments.comparison`)."""

AFTER_S = 0.5
"""How long a run lasts after its last frame is due."""

AT_ONCE = 2
"""Emulated runs at a time. One takes a tenth of a core; each says how late its emulator was."""

SIMULATION, EMULATION = "simulation", "emulation"


@dataclass(frozen=True)
class Buffer:
    """A buffer: its label, and its length in ms."""

    label: str
    ms: int


@dataclass(frozen=True)
class Entry:
    """A path with a film and the buffers that are asked about."""

    path: Path
    film: Film
    buffers: tuple[Buffer, ...]
    counted_s: float
    has_default: bool = True

    def of(self, contender: Contender) -> tuple[Buffer, ...]:
        """The buffers of a contender: its program's default among them, if it has one."""
        if not self.has_default or contender.default_ms is None:
            return self.buffers
        return (*self.buffers, Buffer(DEFAULT, contender.default_ms))

    @property
    def stop_s(self) -> float:
        """When the film stops."""
        return self.path.from_s + self.counted_s

    @property
    def stem(self) -> str:
        """The name of its scenario file."""
        return f"{self.path.group}-{self.path.name}-{self.film.name}"


def round_trips(rtt_ms: float) -> tuple[Buffer, ...]:
    """The buffers of a path in its round trips."""
    return tuple(
        Buffer(f"{times:g}", max(LEAST_BUFFER_MS, round(times * rtt_ms))) for times in ROUND_TRIPS
    )


def playout_ms(path: Path, buffer_ms: int) -> float:
    """The latency of the player: half a round trip, the buffer, and a margin.

    The rule of `experiments.comparison`.
    """
    return path.rtt_ms / 2 + buffer_ms + MARGIN_MS


def entry(path: Path, film: Film, counted_s: float) -> Entry:
    """A path with a film, with buffers in its round trips."""
    return Entry(path, film, round_trips(path.rtt_ms), path.lasts_s or counted_s)


def scenario_text(one: Entry, longest_ms: int) -> str:
    """The scenario of an entry, as TOML, with UDP until a cell says otherwise."""
    path = one.path
    end_s = one.stop_s + playout_ms(path, longest_ms) / 1000 + AFTER_S
    films = "".join(
        f"[flows.{name}]\n{more}application = {{ {one.film.application} }}\n"
        f'transport = {{ kind = "udp" }}\nstop = "{one.stop_s * 1000:.0f} ms"\n'
        for name, more in path.films
    )
    return (
        f'title = "{path.id}, a film {one.film.words}"\nduration = "{end_s * 1000:.0f} ms"\n\n'
        f'{path.text}\n{films}\n[measure]\nfrom = "{path.from_s * 1000:.0f} ms"\n'
    )


def write_scenarios(entries: Iterable[Entry], contenders: Sequence[Contender], out: File) -> None:
    """Write the scenario of each entry where its cells look for it."""
    for one in entries:
        longest = max(buffer.ms for each in contenders for buffer in one.of(each))
        write_text(scenario_file(one, out), scenario_text(one, longest))


def scenario_file(one: Entry, out: File) -> File:
    """Where the scenario of an entry is."""
    return out / "scenarios" / f"{one.stem}.toml"


def cells_of(
    one: Entry,
    contenders: Sequence[Contender],
    out: File,
    world: str = SIMULATION,
    seeds: Sequence[int] = (),
) -> Iterator[Cell]:
    """The cells of an entry, each contender with each of its buffers and each seed.

    A contender without a buffer has one cell for all latencies of players. Without `seeds` those
    of the path are taken.
    """
    for contender in contenders:
        buffers = one.of(contender)
        together = [(buffer,) for buffer in buffers] if contender.has_buffer else [buffers]
        for some in together:
            for seed in seeds or one.path.seeds:
                yield _cell(one, contender, some, seed, out, world)


def _cell(
    one: Entry,
    contender: Contender,
    buffers: Sequence[Buffer],
    seed: int,
    out: File,
    world: str,
) -> Cell:
    latencies = ", ".join(f'"{playout_ms(one.path, each.ms) * 1000:.0f} us"' for each in buffers)
    overrides = []
    for name, _ in one.path.films:
        overrides.append(f"flows.{name}.transport={contender.table(buffers[0].ms)}")
        overrides.append(f"flows.{name}.application.latency=[{latencies}]")
    labels = {
        "world": world,
        "class": one.path.group,
        "path": one.path.name,
        "film": one.film.name,
        "contender": contender.name,
        "buffer": buffers[0].label if contender.has_buffer else "",
    }
    real = Emulation(at_once=AT_ONCE) if world == EMULATION else None
    lasts_s = one.stop_s + max(playout_ms(one.path, each.ms) for each in buffers) / 1000
    cost = 2 + lasts_s if real else 0.03 + contender.cost * lasts_s * len(one.path.films)
    return Cell(scenario_file(one, out), tuple(overrides), seed, tuple(labels.items()), cost, real)
