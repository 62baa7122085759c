"""Results at the papers' own length, kept in the repository.

A full run takes hours, so it is made once: ``full/PAPER.json`` of the folder of experiments has the
verdicts and checks of a paper's computed claims, what computed them and for how long,
``full/PAPER-real.json`` those of the claims that were run with real packets, and
``full/PAPER.parquet`` a row for each simulated cell. Where only some claims of a paper were run,
``PAPER@CLAIM+CLAIM`` stands in place of its name. The report shows them before those of its own
run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ontempo.lab.errors import BadInputError
from ontempo.lab.readings import PRIMARY

FOLDER = "full"

REAL = "-real"
"""Ends the name of a file about real packets."""

PART = "@"
"""Stands between the name of a paper and those of its claims."""


@dataclass(frozen=True)
class KeptCheck:
    """A check as it was judged."""

    sentence: str
    published: str
    measured: str
    ok: bool | None


@dataclass(frozen=True)
class KeptClaim:
    """A claim's verdict, alone and in words; its checks by reading, the primary first."""

    id: str
    verdict: str
    words: str
    conjecture: bool
    readings: Mapping[str, Sequence[KeptCheck]]

    def held(self, reading: str = PRIMARY) -> str:
        """How many checks hold under a reading."""
        checks = self.readings[reading]
        return f"{sum(check.ok is True for check in checks)} of {len(checks)} checks"


@dataclass(frozen=True)
class Kept:
    """A paper at full length.

    `seconds` is how long the command took that ran `ran` of the `cells`, `jobs` at a time; the
    others were finished before. Of each claim's seeds only the first `seeds` were run; None: all.
    """

    engine: str
    made: str
    cells: int
    ran: int
    seconds: float
    jobs: int
    claims: Sequence[KeptClaim] = field(default_factory=tuple)
    seeds: int | None = None

    def claim(self, name: str) -> KeptClaim | None:
        """A claim by its id."""
        return next((one for one in self.claims if one.id == name), None)

    @property
    def words(self) -> str:
        """What made it."""
        hours, rest = divmod(round(self.seconds), 3600)
        took = f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
        return (
            f"{self.cells:,} cells by simulator {self.engine[:12]}, {self.made};"
            f" {self.ran:,} of them took {took}, {self.jobs} at a time"
            + (f"; only the first {self.seeds} of the seeds" if self.seeds else "")
        )


def read_kept(experiments: Path) -> dict[str, list[Kept]]:
    """What is kept, by paper; raises `BadInputError` for a file that is not one of ours."""
    found: dict[str, list[Kept]] = {}
    for path in sorted((experiments / FOLDER).glob("*.json")):
        paper = path.stem.removesuffix(REAL).partition(PART)[0]
        found.setdefault(paper, []).append(_read(path))
    return found


def _read(path: Path) -> Kept:
    try:
        content = json.loads(path.read_text("utf-8"))
        claims = tuple(
            KeptClaim(
                **{
                    **one,
                    "readings": {
                        name: tuple(KeptCheck(**check) for check in checks)
                        for name, checks in one["readings"].items()
                    },
                }
            )
            for one in content.pop("claims")
        )
        kept = Kept(claims=claims, **content)
        if any(PRIMARY not in one.readings for one in claims):
            raise ValueError(f"a claim has no checks under the {PRIMARY} reading")
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise BadInputError(
            f"{path}: {why}: write it with ontempo-lab reproduce --full --keep"
        ) from error
    return kept
