"""The simulator as the papers' claims use it: without films, under a fingerprint of its own.

What only films use changes often and has no part in the claims, so that their verdicts stay valid.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ontempo.lab.engine import Engine, Scenario, Stop
from ontempo.lab.errors import BadInputError

FILM_KINDS = frozenset({"media", "ontempo", "srt", "rist"})
"""The application that is a film, and the transports that carry films alone."""


class CarriesFilmError(BadInputError):
    """A scenario uses sources that the claims' fingerprint leaves out."""


def carries_film(canonical: str) -> bool:
    """Whether a scenario, in its canonical form, has a film or a transport of films anywhere."""
    return _has_film(json.loads(canonical))


def _has_film(value: Any) -> bool:
    if isinstance(value, dict):
        kind = value.get("kind")
        return (isinstance(kind, str) and kind in FILM_KINDS) or any(map(_has_film, value.values()))
    return isinstance(value, list) and any(map(_has_film, value))


class ClaimsEngine:
    """An engine under the claims' fingerprint, which refuses scenarios with films."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def fingerprint(self) -> str:
        """The fingerprint without the sources that only films use."""
        return self.engine.claims_fingerprint()

    def claims_fingerprint(self) -> str:
        """The same."""
        return self.fingerprint()

    def load(self, path: Path, overrides: Sequence[str]) -> Scenario:
        """Read a scenario; raises `CarriesFilmError` for one with a film."""
        scenario = self.engine.load(path, overrides)
        return self._without_film(scenario, str(path))

    def revive(self, canonical: str) -> Scenario:
        """A scenario from its canonical form; raises `CarriesFilmError` for one with a film."""
        return self._without_film(self.engine.revive(canonical), "<canonical form>")

    def stop(self) -> Stop:
        """A fresh token for one run."""
        return self.engine.stop()

    def too_large(self, scenario: Scenario, runs_at_once: int) -> str | None:
        """Why this machine does not bear so many runs at a time."""
        return self.engine.too_large(scenario, runs_at_once)

    def run(self, scenario: Scenario, seed: int, stop: Stop) -> Mapping[str, pl.DataFrame]:
        """Run to the end, and return every table by name."""
        return self.engine.run(scenario, seed, stop)

    @staticmethod
    def _without_film(scenario: Scenario, where: str) -> Scenario:
        if carries_film(scenario.canonical()):
            raise CarriesFilmError(
                f"{where}: has a film, or a transport of films, whose sources the claims'"
                " fingerprint leaves out (crates/python/engine-sources.txt)"
            )
        return scenario
