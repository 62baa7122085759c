"""The compiled core: scenarios in, Arrow tables out; connections, asked without waiting."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, final

from ontempo.live.options import Options
from ontempo.qos.specification import QosOptions, Specification

__all__ = [
    "Answer",
    "CancelToken",
    "Cancelled",
    "Identity",
    "LiveConnection",
    "LiveListener",
    "LivePending",
    "LiveReceiveFlow",
    "LiveSendFlow",
    "QosDoor",
    "QosEvents",
    "QosLink",
    "Result",
    "Scenario",
    "ScenarioError",
    "Table",
    "Trust",
    "Waker",
    "begin",
    "bind",
    "check_options",
    "default_options",
    "engine_fingerprint",
    "load",
    "parse",
    "pert_response_probability",
    "qos_bind",
    "qos_check",
    "qos_connect",
    "qos_read",
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

@final
class Identity:
    """A certificate and its private key: who an endpoint is."""

    @staticmethod
    def self_made(names: Sequence[str] | None = None) -> Identity:
        """A certificate of our own making for these names (localhost), with an Ed25519 key.

        Raises `IdentityError` where a name is not one.
        """
    @staticmethod
    def from_pem(chain: bytes, key: bytes | None = None) -> Identity:
        """The certificate chain and private key of two texts in PEM, or of one that has both.

        Raises `IdentityError` where one of them is not PEM, or has no certificate or key in it.
        """
    @staticmethod
    def kept(path: str | PathLike[str]) -> Identity:
        """The certificate and key of a PEM file, made where the file is missing.

        Raises `IdentityError` where the file cannot be read or written, or is not PEM.
        """
    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate, as 64 hexadecimal digits."""

@final
class Trust:
    """By what a client knows its server."""

    @staticmethod
    def fingerprint(text: str) -> Trust:
        """By its certificate's fingerprint: 64 hexadecimal digits, with or without colons.

        Name and date of the certificate do not count. Raises `ValueError` for what is none.
        """
    @staticmethod
    def roots(pem: bytes) -> Trust:
        """By one of these certificates, in PEM, having signed its own; name and date count.

        Raises `IdentityError` where it is not PEM, or has no certificate in it.
        """
    @staticmethod
    def anybody() -> Trust:
        """By nothing: whoever answers is believed, and is told the token. For tests."""

# What `ontempo.live` makes coroutines of: each asks without waiting. An object that has a key is
# worth to be asked again when `Waker.take` names it.

@final
class Waker:
    """Tells one event loop which objects have changed."""

    def __init__(self) -> None: ...
    def fileno(self) -> int:
        """What the loop watches for reading."""
    def take(self) -> list[int]:
        """The keys of what has changed since this was last asked."""

@final
class Answer:
    """What a thread works out."""

    @property
    def key(self) -> int:
        """Under which a waker tells that it is there."""
    def take(self) -> tuple[Any] | None:
        """The answer, once; ``None`` while it is not there. Raises what went wrong."""

@final
class LivePending:
    """A connection that has been begun."""

    @property
    def key(self) -> int:
        """Under which a waker tells of changes."""
    def take(self, waker: Waker) -> LiveConnection | None:
        """The connection, once; ``None`` while it is not known whether it can be used."""

@final
class LiveConnection:
    """A connection."""

    @property
    def key(self) -> int:
        """Under which a waker tells of changes."""
    @property
    def remote(self) -> tuple[str, int]:
        """The peer's address and port."""
    @property
    def local(self) -> tuple[str, int]:
        """The address and port of this side."""
    def now_s(self) -> float:
        """The time of its clock, in seconds."""
    def open_flow(self, order: str, reliability: str, label: str, waker: Waker) -> Answer:
        """A `LiveSendFlow`."""
    def try_accept(self, waker: Waker) -> LiveReceiveFlow | None:
        """The next flow that the peer has opened."""
    def closed_because(self) -> str | None:
        """Why it is over; ``None`` while it is not."""
    def close_reason(self) -> str | None:
        """The same as the name of a `CloseReason`."""
    def statistics(self, waker: Waker) -> Answer:
        """The fields of `ConnectionStatistics`, or ``None``."""
    def close(self, reason: str, waker: Waker) -> Answer | None:
        """Close it; ``None`` where that has been done."""

@final
class LiveSendFlow:
    """A flow that this side sends."""

    @property
    def key(self) -> int:
        """Under which a waker tells of changes."""
    def try_send(
        self, data: bytes, lifetime_s: float | None, priority: int, depends_on: Sequence[int]
    ) -> int | None:
        """Send a unit and answer its number; ``None`` where as much waits as may."""
    def dropped(self) -> list[int]:
        """Numbers of units that were dropped since this was last asked."""
    def finish(self) -> None:
        """Say that nothing more will be sent."""
    def settled(self) -> dict[str, Any] | None:
        """The fields of `SendStatistics`; ``None`` while the flow is not settled."""
    def statistics(self, waker: Waker) -> Answer:
        """The fields of `SendStatistics`, or ``None``."""

@final
class LiveReceiveFlow:
    """A flow that the peer sends."""

    @property
    def key(self) -> int:
        """Under which a waker tells of changes."""
    def config(self) -> tuple[str, str, str]:
        """Its order, its reliability and its label."""
    def try_receive(
        self,
    ) -> tuple[int, bytes, float | None, float, float | None, int, list[int]] | int | None:
        """The next unit, or the number of one that will not come; ``None`` while there is neither.

        Raises `StopAsyncIteration` where the flow is over.
        """
    def statistics(self, waker: Waker) -> Answer:
        """The fields of `ReceiveStatistics`, or ``None``."""

@final
class LiveListener:
    """Takes connections."""

    @property
    def key(self) -> int:
        """Under which a waker tells of changes."""
    @property
    def local(self) -> tuple[str, int]:
        """Where it listens."""
    def try_accept(
        self, waker: Waker
    ) -> LiveConnection | tuple[tuple[str, int] | None, str, str | None] | None:
        """Who came next: one to talk to, or the address of one refused, with the reason."""
    def close(self, waker: Waker) -> Answer | None:
        """Take no more; ``None`` where it is closed."""

def begin(
    remote: tuple[str, int],
    name: str,
    trust: Trust,
    token: bytes,
    options: Options,
    waker: Waker,
) -> Answer:
    """A `LivePending` to an address."""

def bind(
    at: tuple[str | None, int], identity: Identity, token: bytes, options: Options, waker: Waker
) -> Answer:
    """A `LiveListener` at an address, or at every one."""

def check_options(options: Options) -> None:
    """Raise `ValueError` where a name among the options is not known."""

def default_options() -> dict[str, Any]:
    """The options that the endpoint has by itself, field by field of `Options`."""

# What `ontempo.qos` makes coroutines of, likewise.

@final
class QosLink:
    """A connection of messages."""

    @property
    def key(self) -> int:
        """Under which a waker tells of changes."""
    @property
    def local(self) -> tuple[str, int]:
        """The address and port here."""
    @property
    def remote(self) -> tuple[str, int]:
        """The address and port there."""
    @property
    def dscp(self) -> int:
        """The code point of the packets."""
    @property
    def most_sent(self) -> int:
        """Bytes of the longest message that may be sent."""
    @property
    def most_received(self) -> int:
        """Bytes of the longest message that may come."""
    def try_send(self, data: bytes) -> bool:
        """Begin to send a message; false while another one is being sent."""
    def has_sent(self) -> bool:
        """True once the system has taken all that was sent."""
    def try_receive(self) -> tuple[bytes, int, float] | None:
        """The next message; ``None`` while there is none.

        Raises `StopAsyncIteration` where the other end sends no more.
        """
    def agreed(self, direction: str) -> dict[str, Any]:
        """The fields of the `Specification` that was agreed."""
    def change(self, asked: Specification) -> dict[str, Any]:
        """Ask for something else; the fields of what is agreed now."""
    def delivery(self, direction: str) -> dict[str, Any]:
        """The fields of `Delivery`."""
    def reports(self) -> str:
        """All figures, as JSON."""
    def reservation(self, direction: str) -> tuple[Any, str]:
        """How it stands, and why."""
    def events(self, waker: Waker) -> QosEvents:
        """What changes from now on."""
    def close(self, patience_s: float, waker: Waker) -> Answer | None:
        """Close it; ``None`` where that has been done."""

@final
class QosEvents:
    """The events of a connection."""

    @property
    def key(self) -> int:
        """Under which a waker tells of changes."""
    def try_next(self) -> tuple[Any, ...] | None:
        """The next one's kind and parts; ``None`` while there is none.

        Raises `StopAsyncIteration` at the end.
        """

@final
class QosDoor:
    """Takes connections of messages."""

    @property
    def key(self) -> int:
        """Under which a waker tells of changes."""
    @property
    def local(self) -> tuple[str, int]:
        """Where it listens."""
    def try_accept(self, waker: Waker) -> QosLink | tuple[tuple[str, int], str, str | None] | None:
        """Who came next: one to talk to, or the address of one refused, with the reason."""
    def close(self, waker: Waker) -> Answer:
        """Take no more."""

def qos_connect(
    carrier: str,
    remote: tuple[str, int],
    options: QosOptions,
    known: tuple[str, Trust, bytes] | None,
    waker: Waker,
) -> Answer:
    """A `QosLink` to an address; over QUIC to somebody of this name, with a token."""

def qos_bind(
    carrier: str,
    at: tuple[str | None, int],
    options: QosOptions,
    known: tuple[Identity, bytes] | None,
    waker: Waker,
) -> Answer:
    """A `QosDoor` at an address, or at every one of IPv4; over QUIC with a token."""

def qos_check(specification: Specification) -> None:
    """Raise `SpecificationError` where a specification contradicts itself."""

def qos_read(path: str | PathLike[str]) -> dict[str, Any]:
    """The fields of the `Specification` in a TOML file."""
