"""Every published row, with code or without: what the index of the report counts.

The rows are in ``rows.toml`` of the folder of experiments. A row is checked in one world or more;
each of these is an entry with its own verdict. An entry without a claim is "not yet".
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ontempo.lab.claims import Claim, Paper, World
from ontempo.lab.errors import BadInputError


@dataclass(frozen=True)
class Row:
    """A published claim as listed: where it is checked, and what is expected, in one line."""

    id: str
    worlds: tuple[World, ...]
    what: str
    expectation: str


@dataclass(frozen=True)
class Listed:
    """A paper as listed."""

    name: str
    title: str
    source: str
    about: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Entry:
    """A row in one world, and the claim that answers it, if there is one."""

    paper: str
    row: Row
    world: World
    claim: Claim | None

    @property
    def id(self) -> str:
        """The claim's id, or the row's."""
        return self.claim.id if self.claim else f"{self.paper}/{self.row.id}"

    @property
    def title(self) -> str:
        """The claim's title, or the row's line."""
        return self.claim.title if self.claim else self.row.what


@dataclass(frozen=True)
class Listing:
    """A paper with all its entries; `paper` is None if there is no code yet."""

    name: str
    title: str
    source: str
    about: str
    entries: tuple[Entry, ...]
    paper: Paper | None


def load_rows(folder: Path) -> list[Listed]:
    """The rows of a folder of experiments; empty without ``rows.toml``."""
    path = folder / "rows.toml"
    if not path.exists():
        return []
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        return [_listed(name, table) for name, table in content.items()]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{path}: {error}") from error


def _listed(name: str, table: Mapping[str, Any]) -> Listed:
    rows = tuple(
        Row(row["id"], tuple(map(World, row["worlds"])), row["what"], row["expectation"])
        for row in table["rows"]
    )
    return Listed(name, table["title"], table.get("source", ""), table["about"], rows)


def listings(listed: Sequence[Listed], papers: Sequence[Paper]) -> list[Listing]:
    """Rows joined with claims: all papers, in the list's order, then those that it lacks."""
    with_code = {paper.name: paper for paper in papers}
    found = [_joined(one, with_code.pop(one.name, None)) for one in listed]
    return [*found, *(_unlisted(paper) for paper in with_code.values())]


def _joined(listed: Listed, paper: Paper | None) -> Listing:
    claims = list(paper.claims) if paper else []
    entries: list[Entry] = []
    for row in listed.rows:
        for world in row.worlds:
            answering: list[Claim | None] = [
                claim for claim in claims if claim.answers == row.id and claim.world is world
            ]
            entries += [Entry(listed.name, row, world, claim) for claim in answering or [None]]
    placed = {entry.claim.id for entry in entries if entry.claim}
    entries += [_entry_of(claim) for claim in claims if claim.id not in placed]
    return Listing(listed.name, listed.title, listed.source, listed.about, tuple(entries), paper)


def _unlisted(paper: Paper) -> Listing:
    entries = tuple(map(_entry_of, paper.claims))
    return Listing(paper.name, paper.title, "", paper.about, entries, paper)


def _entry_of(claim: Claim) -> Entry:
    """The entry of a claim that answers no row, or a row of another world."""
    row = Row(claim.answers, (claim.world,), claim.title, claim.expectation)
    return Entry(claim.paper, row, claim.world, claim)
