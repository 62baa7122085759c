"""The simulator, of which only the table of films is kept: an arena has thousands of runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ontempo.lab.arena.bound import VERSION, at_most
from ontempo.lab.engine import Engine, Scenario, Stop

KEPT = ("media",)

BOUND_OF = "udp"
"""The transport in whose runs the bound of a path is computed: it has one run for all buffers."""


class FilmEngine:
    """An engine whose runs have the tables `KEPT` alone."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def fingerprint(self) -> str:
        """That of the engine, and what is kept."""
        return f"{self.engine.fingerprint()} {' '.join(KEPT)} {VERSION}"

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
        """Run to the end; return the tables that are kept, over UDP with the path's bound."""
        tables = self.engine.run(scenario, seed, stop)
        kept = {name: tables[name] for name in KEPT}
        canonical = json.loads(scenario.canonical())
        if not _has_bound(canonical):
            return kept
        # A picture of the measured span may need one that was sent before it.
        early = canonical | {"measure": canonical["measure"] | {"from": "0 s"}}
        frames = self.engine.run(self.revive(json.dumps(early)), seed, stop)["frames"]
        return kept | {"media": at_most(canonical, {**tables, "frames": frames})}


def _has_bound(canonical: Mapping[str, Any]) -> bool:
    flows = canonical["flows"].values()
    kinds = {flow["transport"]["kind"] for flow in flows if flow["application"]["kind"] == "media"}
    return kinds == {BOUND_OF}
