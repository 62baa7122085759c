"""The simulator, of which only the table of films is kept: an arena has thousands of runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from ontempo.lab.engine import Engine, Scenario, Stop

KEPT = ("media",)


class FilmEngine:
    """An engine whose runs have the tables `KEPT` alone."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def fingerprint(self) -> str:
        """That of the engine, and which tables are kept."""
        return f"{self.engine.fingerprint()} {' '.join(KEPT)}"

    def claims_fingerprint(self) -> str:
        """That of the whole engine: an arena has films."""
        return self.fingerprint()

    def load(self, path: Path, overrides: Sequence[str]) -> Scenario:
        """Read a scenario, or raise `BadInputError`."""
        return self.engine.load(path, overrides)

    def revive(self, canonical: str) -> Scenario:
        """A scenario from its canonical form."""
        return self.engine.revive(canonical)

    def stop(self) -> Stop:
        """A fresh token for one run."""
        return self.engine.stop()

    def too_large(self, scenario: Scenario, runs_at_once: int) -> str | None:
        """Why this machine does not bear so many runs at a time."""
        return self.engine.too_large(scenario, runs_at_once)

    def run(self, scenario: Scenario, seed: int, stop: Stop) -> Mapping[str, pl.DataFrame]:
        """Run to the end; return the tables that are kept."""
        tables = self.engine.run(scenario, seed, stop)
        return {name: tables[name] for name in KEPT}
