"""Which paths, films and contenders an arena runs, and how ``--only`` narrows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path as File

from ontempo.lab.arena.cells import (
    EMULATION,
    SIMULATION,
    Buffer,
    Entry,
    cells_of,
    entry,
    write_scenarios,
)
from ontempo.lab.arena.contenders import CONTENDERS, Contender
from ontempo.lab.arena.films import FILMS, LIVE
from ontempo.lab.arena.groups import COMPARISON_QUICK, GROUPS, TEN_SEEDS, UNDECIDED, profile_path
from ontempo.lab.arena.paths import Path
from ontempo.lab.cells import Cell
from ontempo.lab.claims import Scale
from ontempo.lab.errors import BadInputError

COUNTED_S = {"quick": 18.0, "full": 20.0}
"""Counted seconds of a film."""

EMULATED_S = 10.0
"""Counted seconds of a film that is carried by real programs."""

SHORTER = f"-{EMULATED_S:g}s"
"""What the names of their paths end with."""

EMULATED_SEEDS = (1, 2, 3)
"""The seeds with which profiles are emulated: a seed draws the link. Other paths have seed 1."""

EMULATED_TIMES = 4
"""The buffer of these, in round trips."""

EMULATED = ("tcp-cubic", "tcp-bbr", "srt", "rist", "rist-no-nulls", "ontempo")
"""The contenders that run with real programs, in real time; others of ontempo where named."""


_Part = tuple[Sequence[Entry], Sequence[Contender], str, Sequence[int]]
"""Entries with their contenders, a world, and other seeds than the paths'."""


@dataclass(frozen=True)
class Grid:
    """The entries of each world, and the contenders."""

    entries: tuple[Entry, ...]
    both: tuple[Entry, ...]
    contenders: tuple[Contender, ...]
    asked: frozenset[str] = frozenset()
    """The patterns that name contenders."""

    @property
    def empty(self) -> bool:
        """Whether nothing is left to run."""
        return not (self.contenders and (self.entries or self.both))

    def real(self, lacking: Sequence[Contender]) -> tuple[Contender, ...]:
        """The contenders that are run with real programs, those that are there."""
        ours = {name for name in self.asked if name.startswith("ontempo-")}
        wanted = ours | set(EMULATED)
        return tuple(one for one in self.contenders if one.name in wanted and one not in lacking)

    def cells(
        self, out: File, lacking: Sequence[Contender] = ()
    ) -> dict[Cell, tuple[Entry, Contender]]:
        """All cells, with what they are of.

        What runs with real programs is simulated, too, with ten seeds: so it shows how far chance
        alone goes.
        """
        found: dict[Cell, tuple[Entry, Contender]] = {}
        real = self.real(lacking)
        parts: list[_Part] = [
            (self.entries, self.contenders, SIMULATION, ()),
            (self.both, real, SIMULATION, TEN_SEEDS),
            (self.both, real, EMULATION, ()),
        ]
        for entries, contenders, world, seeds in parts:
            for one, contender in product(entries, contenders):
                for cell in cells_of(one, [contender], out, world, seeds):
                    found[cell] = (one, contender)
        return found

    def write(self, out: File) -> None:
        """Write the scenarios of all entries."""
        write_scenarios((*self.entries, *self.both), CONTENDERS, out)


def grid(scale: Scale, worlds: Sequence[str], only: Sequence[str] = ()) -> Grid:
    """The grid of a scale, narrowed by patterns.

    A pattern is the name of a class, a path (``outage/1s-100ms``), a film or a contender, with
    ``*`` and ``?``. Several of one kind widen, those of different kinds narrow. Raises
    `BadInputError` for one that fits nothing.
    """
    found = [
        entry(path, film, COUNTED_S[scale])
        for group in GROUPS
        for path in (group.paths if scale == "full" else group.quick)
        for film in (group.films if scale == "full" else group.quick_films)
    ]
    both = emulated_entries()
    chosen = _Chosen([*found, *both], only)
    return Grid(
        tuple(one for one in found if chosen.has(one)) if SIMULATION in worlds else (),
        tuple(one for one in both if chosen.has(one)) if EMULATION in worlds else (),
        chosen.contenders,
        frozenset(chosen.patterns[2]),
    )


def emulated_entries() -> list[Entry]:
    """The twelve paths of both worlds, with the film in bursts, at four round trips."""
    paths = [
        *COMPARISON_QUICK,
        *(profile_path(name, EMULATED_SEEDS) for name in _EMULATED_PROFILES),
    ]
    paths += [group.quick[0] for group in GROUPS if group.name in ("beside", "jitter", "outage")]
    return [_emulated(path) for path in paths]


_EMULATED_PROFILES = ("dsl", "wifi-lossy", "lte-driving")


def _emulated(path: Path) -> Entry:
    buffer = Buffer(f"{EMULATED_TIMES}", max(120, round(EMULATED_TIMES * path.rtt_ms)))
    named_anew = Path(
        path.group,
        f"{path.name}{SHORTER}",
        path.rtt_ms,
        path.text,
        path.films,
        path.from_s,
        EMULATED_S,
        path.seeds,
        path.words,
    )
    return Entry(named_anew, LIVE, (buffer,), EMULATED_S, has_default=False)


def plain_path(name: str) -> str:
    """The id of a path of the grid, of which an emulated one is shorter."""
    return name.removesuffix(SHORTER)


class _Chosen:
    """What patterns leave."""

    def __init__(self, entries: Sequence[Entry], only: Sequence[str]) -> None:
        classes = {one.path.group for one in entries}
        paths = {one.path.id for one in entries}
        kinds = (
            paths | classes,
            {film.name for film in FILMS},
            {one.name for one in CONTENDERS},
        )
        self.patterns: list[list[str]] = [[], [], []]
        for pattern in only:
            fits = [any(fnmatchcase(name, pattern) for name in names) for names in kinds]
            if not any(fits):
                raise BadInputError(_unknown(pattern, set().union(*kinds)))
            for kind, fit in enumerate(fits):
                if fit:
                    self.patterns[kind].append(pattern)
        self.contenders = tuple(
            one
            for one in CONTENDERS
            if self._fits(2, one.name) and (self.patterns[2] or not one.on_request)
        )

    def has(self, one: Entry) -> bool:
        """Whether an entry is left."""
        path = one.path
        plain = plain_path(path.id)
        return self._fits(0, path.id, plain, path.group) and self._fits(1, one.film.name)

    def _fits(self, kind: int, *names: str) -> bool:
        patterns = self.patterns[kind]
        return not patterns or any(fnmatchcase(n, p) for n in names for p in patterns)


def _unknown(pattern: str, names: set[str]) -> str:
    if why := UNDECIDED.get(pattern.partition("/")[0]):
        return f"--only {pattern}: {why}"
    near = get_close_matches(pattern, sorted(names), 3) or sorted({group.name for group in GROUPS})
    return (
        f"--only {pattern}: no class, path, film or contender is called so; near: {', '.join(near)}"
    )
