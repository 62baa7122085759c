"""The compiled core: scenarios in, Arrow tables out."""

from collections.abc import Sequence
from os import PathLike
from typing import final

__all__ = [
    "CancelToken",
    "Cancelled",
    "Result",
    "Scenario",
    "ScenarioError",
    "Table",
    "engine_fingerprint",
    "load",
    "parse",
    "pert_response_probability",
    "run",
]

class ScenarioError(ValueError):
    """A scenario that cannot be run as written.

    The message names file, line and field.
    """

class Cancelled(Exception):  # noqa: N818 - an event, like CancelledError's cause, not a fault
    """A run was stopped by its `CancelToken`; it has no result."""

@final
class Scenario:
    """A scenario that has been read and found valid."""

    @property
    def title(self) -> str:
        """One line that says what it shows."""
    @property
    def duration_s(self) -> float:
        """How long it runs, in virtual seconds."""
    @property
    def seed(self) -> int:
        """The seed used when `run` is given none."""
    def canonical(self) -> str:
        """The scenario as JSON with every default written out.

        Two scenarios with equal canonical forms give equal tables for equal seeds.
        """
    def explain(self) -> str:
        """The scenario in words, with its topology drawn as text."""
    def with_overrides(self, overrides: Sequence[str]) -> Scenario:
        """A copy with some values replaced, as in ``["flows.video.count=30"]``."""

@final
class Table:
    """One table of results, by Arrow's PyCapsule protocol: who reads it shares its memory."""

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def num_rows(self) -> int:
        """How many rows it has."""
    @property
    def column_names(self) -> list[str]:
        """The names of its columns, in order."""
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object:
        """Its schema, as a capsule."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Its rows, as a capsule; a requested schema is left aside."""

@final
class Result:
    """The tables of one run."""

    @property
    def seed(self) -> int:
        """The seed that the run was drawn from."""
    @property
    def tables(self) -> dict[str, Table]:
        """Every table by name."""
    @property
    def flows(self) -> Table:
        """One row a flow: packets, bytes, losses, goodput, round-trip times."""
    @property
    def links(self) -> Table:
        """One row a link: arrivals, drops by cause, mean queue, share of time busy."""
    @property
    def queues(self) -> Table:
        """For each measured queue: arrivals and drops by flow group and by packets waiting."""
    @property
    def samples(self) -> Table:
        """Quantities over time, one row a value."""
    @property
    def playout(self) -> Table:
        """For each flow with a playout: late units by start-up delay."""
    @property
    def adus(self) -> Table:
        """One row a media unit or ADU: when it was due, emitted, arrived, delivered, processed."""
    @property
    def packets(self) -> Table:
        """One row a packet on each recorded link."""
    @property
    def events(self) -> Table:
        """Window reductions, timeouts and early responses."""
    @property
    def messages(self) -> Table:
        """One row a message of an application: its delay and jitter."""
    @property
    def intervals(self) -> Table:
        """Throughput and loss of each flow's messages, interval by interval."""
    def save(self, directory: str | PathLike[str]) -> None:
        """Write every table as Parquet into a directory, all or none."""

@final
class CancelToken:
    """Stops a run from another thread."""

    def __init__(self) -> None: ...
    def cancel(self) -> None:
        """Make the run that holds this token raise `Cancelled` soon."""

def load(path: str | PathLike[str], overrides: Sequence[str] = ...) -> Scenario:
    """Read a scenario file, replacing some of its values.

    Raises `ScenarioError` where it cannot be run as written.
    """

def parse(text: str, name: str = "<text>", overrides: Sequence[str] = ...) -> Scenario:
    """Read a scenario from a string; `name` stands for the file in messages."""

def run(scenario: Scenario, seed: int | None = None, cancel: CancelToken | None = None) -> Result:
    """Simulate a scenario.

    Other Python threads run meanwhile. Ctrl-C in the main thread raises `KeyboardInterrupt`;
    `cancel` stops the run from any other.
    """

def engine_fingerprint() -> str:
    """A hash of the simulator's sources: results of equal fingerprints are comparable."""

def pert_response_probability(queueing_delay_s: float, largest_queueing_delay_s: float) -> float:
    """PERT's probability of an early response to a smoothed queueing delay."""
