"""The interface of a simulator, and the one that the lab uses.

Studies use this protocol rather than the compiled module, so that their bookkeeping can be tested
against a simulator that takes no time.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import polars as pl
from polars import selectors

import ontempo
from ontempo.lab.errors import BadInputError
from ontempo.lab.toml_text import toml, toml_key

REPLACED = r"(?s).*: replaces the whole table, without the file's "
"""How the warning begins that an override replaces a table."""


class Scenario(Protocol):
    """A scenario that is ready to run."""

    @property
    def title(self) -> str:
        """Its title, one line."""
        ...

    def canonical(self) -> str:
        """Its content with every default written out."""
        ...


class Stop(Protocol):
    """Stops a run from another thread."""

    def cancel(self) -> None:
        """Make the run raise `StoppedError` soon."""
        ...


class StoppedError(Exception):
    """A run was stopped before its end."""


class Engine(Protocol):
    """A simulator."""

    def fingerprint(self) -> str:
        """Identifies its code: equal fingerprints give equal results."""
        ...

    def claims_fingerprint(self) -> str:
        """The same for scenarios without films: what only films use does not count."""
        ...

    def load(self, path: Path, overrides: Sequence[str]) -> Scenario:
        """Read a scenario, or raise `BadInputError`."""
        ...

    def revive(self, canonical: str) -> Scenario:
        """A scenario from its canonical form, without its file."""
        ...

    def stop(self) -> Stop:
        """A fresh token for one run."""
        ...

    def too_large(self, scenario: Scenario, runs_at_once: int) -> str | None:
        """Why this machine does not bear so many runs at a time; 0 if they run elsewhere."""
        ...

    def run(self, scenario: Scenario, seed: int, stop: Stop) -> Mapping[str, pl.DataFrame]:
        """Run to the end, whatever it takes, and return every table by name."""
        ...


class NativeEngine:
    """The simulator of this package."""

    def fingerprint(self) -> str:
        """Hash of the simulator's sources."""
        return ontempo.engine_fingerprint()

    def claims_fingerprint(self) -> str:
        """Hash of the sources that a run without a film passes through."""
        return ontempo.claims_fingerprint()

    def load(self, path: Path, overrides: Sequence[str]) -> Scenario:
        """Read a scenario file."""
        try:
            with warnings.catch_warnings():
                # A study's axes replace whole tables, such as a queue, on purpose.
                warnings.filterwarnings("ignore", REPLACED, UserWarning)
                return ontempo.load(str(path), list(overrides))
        except (ontempo.ScenarioError, OSError) as error:
            raise BadInputError(str(error)) from error

    def revive(self, canonical: str) -> Scenario:
        """The canonical form is JSON; written as TOML it is a scenario file like any other."""
        table = json.loads(canonical)
        text = "".join(f"{toml_key(key)} = {toml(value)}\n" for key, value in table.items())
        try:
            return ontempo.parse(text, "<canonical form>")
        except ontempo.ScenarioError as error:
            raise BadInputError(str(error)) from error

    def stop(self) -> Stop:
        """A fresh token for one run."""
        return ontempo.CancelToken()

    def too_large(self, scenario: Scenario, runs_at_once: int) -> str | None:
        """By the estimate that `ontempo simulate` has."""
        assert isinstance(scenario, ontempo.Scenario)
        return scenario.too_large(runs_at_once)

    def run(self, scenario: Scenario, seed: int, stop: Stop) -> Mapping[str, pl.DataFrame]:
        """Simulate; other threads run meanwhile."""
        assert isinstance(scenario, ontempo.Scenario)
        assert isinstance(stop, ontempo.CancelToken)
        try:
            result = ontempo.run(scenario, seed, stop, any_size=True)
        except ontempo.Cancelled as error:
            raise StoppedError from error
        return {
            name: pl.DataFrame(table).with_columns(selectors.categorical().cast(pl.String))
            for name, table in result.tables.items()
        }
