"""The compiled core: simulation, connections polled without waiting, transport streams."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, final

from ontempo.congestion import CongestionController
from ontempo.live.options import Options
from ontempo.qos.specification import QosOptions, Specification

__all__ = [
    "CancelToken",
    "Cancelled",
    "ControllerError",
    "Identity",
    "LiveConnecting",
    "LiveConnection",
    "LiveListener",
    "LiveReceiveFlow",
    "LiveSendFlow",
    "MediaUnit",
    "PendingResult",
    "QosAcceptor",
    "QosChannel",
    "QosEvents",
    "Result",
    "Scenario",
    "ScenarioError",
    "Table",
    "TransportStream",
    "Trust",
    "Waker",
    "begin",
    "bind",
    "check_options",
    "claims_fingerprint",
    "default_options",
    "engine_fingerprint",
    "load",
    "parse",
    "pert_response_probability",
    "qos_bind",
    "qos_check",
    "qos_connect",
    "qos_read",
    "read_transport_stream",
    "run",
]

class ScenarioError(ValueError):
    """A scenario that cannot be run as written.

    The message names file, line and field.
    """

class Cancelled(Exception):  # noqa: N818 - an event, like CancelledError's cause, not a fault
    """A run was stopped by its `CancelToken`; it has no result."""

class ControllerError(Exception):
    """A congestion controller of one's own failed; the run has no result.

    The message names flow, controller, method, file and line; an exception of the controller's is
    the ``__cause__``.
    """

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
    def too_large(self, runs_at_once: int = 1) -> str | None:
        """Why this machine does not bear so many runs of it at a time; None if it does.

        They are estimated to take more memory than is free, or one to take more than a day. With
        ``runs_at_once=0`` (they run elsewhere) only the time counts.
        """

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
    @property
    def columns(self) -> dict[str, str]:
        """What each of its columns means, in order (docs/reference/tables.md)."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[dict[str, str | int | float | None]]:
        """Its rows by column name, an empty value as None; `pandas.DataFrame(table)` reads it."""
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
        """One row a flow: totals over the measured span."""
    @property
    def links(self) -> Table:
        """One row a link (one direction): totals over the measured span."""
    @property
    def queues(self) -> Table:
        """One row a watched link, flow group and queue length found by arriving packets."""
    @property
    def samples(self) -> Table:
        """One row a sampled quantity and time."""
    @property
    def playout(self) -> Table:
        """One row a flow and start-up delay: how many units came too late to be played."""
    @property
    def adus(self) -> Table:
        """One row a unit of a stream, delivered or not, where the scenario asks for them."""
    @property
    def packets(self) -> Table:
        """One row a packet that reached a watched link."""
    @property
    def events(self) -> Table:
        """One row a change of a link, by the scenario's events or while it ran (schedules and
        outages are in `capacity`), and then, where the scenario asks for them, one row a reaction
        of a congestion controller.
        """  # noqa: D205 - the summary is the reference's sentence
    @property
    def messages(self) -> Table:
        """One row a message received, where the scenario asks for them."""
    @property
    def intervals(self) -> Table:
        """One row a flow with messages and interval, where the scenario asks for them."""
    @property
    def capacity(self) -> Table:
        """One row a link that changes and change of it, from the start of the run; at equal
        distances instead where a trace of opportunities or very many changes make it up.
        """  # noqa: D205 - the summary is the reference's sentence
    @property
    def frames(self) -> Table:
        """One row a frame of a film that was sent in the measured span."""
    @property
    def media(self) -> Table:
        """One row a flow with a film and latency of a player; of frames that such a player has
        shown by the end of the run.
        """  # noqa: D205 - the summary is the reference's sentence
    def save(self, directory: str | PathLike[str]) -> None:
        """Write every table as Parquet, and `run.json`, into a directory, all or nothing.

        `ontempo show` and `ontempo summary` read it as they read a run of `ontempo simulate`.
        """

@final
class CancelToken:
    """Stops a run from another thread."""

    def __init__(self) -> None: ...
    def cancel(self) -> None:
        """Make the run that holds this token raise `Cancelled` soon."""

def load(
    path: str | PathLike[str], overrides: Sequence[str] = ..., controllers: Iterable[str] = ...
) -> Scenario:
    """Read a scenario file, replacing some of its values.

    Raises `ScenarioError` where it cannot be run as written. Warns where an override replaces a
    whole table, and fields of the file are gone with it.

    `controllers` are the names of congestion controllers that `run` will be given; the dictionary
    of them will do. Raises `ValueError` where one is no name, or that of another controller.
    """

def parse(
    text: str,
    name: str = "<text>",
    overrides: Sequence[str] = ...,
    controllers: Iterable[str] = ...,
) -> Scenario:
    """Read a scenario from a string; `name` stands for the file in messages.

    Raises and warns as `load` does.
    """

def run(
    scenario: Scenario,
    seed: int | None = None,
    cancel: CancelToken | None = None,
    *,
    any_size: bool = False,
    controllers: Mapping[str, type[CongestionController]] | None = None,
) -> Result:
    """Simulate a scenario.

    `seed` is a whole number from 0 to 2^64 - 1, that of the scenario where not given; any other
    raises `ValueError`.

    Other Python threads run meanwhile. Ctrl-C in the main thread raises `KeyboardInterrupt`;
    `cancel` stops the run from any other. Raises `ScenarioError` where the run is estimated to
    take more memory than is free, or more than a day; ``any_size=True`` runs it nevertheless.

    `controllers` are classes of congestion controllers by the names that the scenario was read
    with (docs/controllers.md). Raises `TypeError` where one is no class of a controller,
    `ValueError` where no flow has it, and `ControllerError` where it fails during the run.
    """

def engine_fingerprint() -> str:
    """A hash of the simulator's sources: results of equal fingerprints are comparable."""

def claims_fingerprint() -> str:
    """The same without the sources that only films use.

    Of results without a film, those of equal fingerprints are comparable.
    """

def pert_response_probability(queueing_delay_s: float, largest_queueing_delay_s: float) -> float:
    """PERT's probability of an early response to a smoothed queueing delay."""

@final
class Identity:
    """A certificate and its private key."""

    @staticmethod
    def self_signed(names: Sequence[str] | None = None) -> Identity:
        """A new self-signed certificate for these names (localhost), with an Ed25519 key.

        Raises `IdentityError` where a name is not valid in a certificate.
        """
    @staticmethod
    def from_pem(chain: bytes, key: bytes | None = None) -> Identity:
        """The certificate chain and private key in two PEM texts, or in one that has both.

        Raises `IdentityError` where one of them is not PEM, or has no certificate or key in it.
        """
    @staticmethod
    def load_or_create(path: str | PathLike[str]) -> Identity:
        """The certificate and key in a PEM file, which is created where it is missing.

        Raises `IdentityError` where the file cannot be read or written, or is not PEM.
        """
    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate, as 64 hexadecimal digits."""

@final
class Trust:
    """How a client verifies its server."""

    @staticmethod
    def fingerprint(text: str) -> Trust:
        """By its certificate's SHA-256: 64 hexadecimal digits, with or without colons.

        Name and dates of the certificate are not checked. Raises `ValueError` where the text is no
        fingerprint.
        """
    @staticmethod
    def roots(pem: bytes) -> Trust:
        """By a chain to one of these certificates, in PEM; name and dates are checked.

        Raises `IdentityError` where it is not PEM, or has no certificate in it.
        """
    @staticmethod
    def insecure() -> Trust:
        """No verification: any server is accepted, and receives the token. For tests only."""

# What `ontempo.live` makes coroutines of: no call waits. An object with a key should be polled
# again when `Waker.take` returns its key.

@final
class Waker:
    """Wakes one event loop and lists the objects that have changed."""

    def __init__(self) -> None: ...
    def fileno(self) -> int:
        """The file descriptor that the loop watches for reading."""
    def take(self) -> list[int]:
        """The keys of the objects that have changed since the last call."""

@final
class PendingResult:
    """The result of work on another thread."""

    @property
    def key(self) -> int:
        """Its key in `Waker.take`."""
    def take(self) -> tuple[Any] | None:
        """The result, once; ``None`` until it is there. Raises the exception of a failure."""

@final
class LiveConnecting:
    """A connection whose handshake is under way."""

    @property
    def key(self) -> int:
        """Its key in `Waker.take`."""
    def take(self, waker: Waker) -> LiveConnection | None:
        """The connection, once; ``None`` until the handshake is complete."""

@final
class LiveConnection:
    """A connection."""

    @property
    def key(self) -> int:
        """Its key in `Waker.take`."""
    @property
    def remote(self) -> tuple[str, int]:
        """The peer's address and port."""
    @property
    def local(self) -> tuple[str, int]:
        """The address and port of this side."""
    def now_s(self) -> float:
        """The time of its clock, in seconds."""
    def open_flow(self, order: str, reliability: str, label: str, waker: Waker) -> PendingResult:
        """A `LiveSendFlow`."""
    def try_accept(self, waker: Waker) -> LiveReceiveFlow | None:
        """The next flow that the peer has opened."""
    def closed_because(self) -> str | None:
        """Why it was closed or lost, in a sentence; ``None`` while it is open."""
    def close_reason(self) -> str | None:
        """The same as the name of a `CloseReason`."""
    def close_code(self) -> int | None:
        """Its application error code; ``None`` while it is open, or where none was sent."""
    def said(self) -> str:
        """The peer's own words."""
    def remote_now(self, waker: Waker) -> PendingResult:
        """The peer's address and port now; ``None`` once it is closed."""
    def statistics(self, waker: Waker) -> PendingResult:
        """The fields of `ConnectionStatistics`, or ``None``."""
    def close(self, reason: str, code: int, waker: Waker) -> PendingResult | None:
        """Close it; ``None`` where it is closed already."""

@final
class LiveSendFlow:
    """A flow that this side sends."""

    @property
    def key(self) -> int:
        """Its key in `Waker.take`."""
    def try_send(
        self, data: bytes, lifetime_s: float | None, priority: int, depends_on: Sequence[int]
    ) -> int | None:
        """Send a unit and return its number; ``None`` while the send queue is full."""
    def dropped(self) -> list[int]:
        """Numbers of units that were dropped since the last call."""
    def finish(self) -> None:
        """End the flow."""
    def settled(self) -> dict[str, Any] | None:
        """The fields of `SendStatistics`; ``None`` while the flow is not settled."""
    def statistics(self, waker: Waker) -> PendingResult:
        """The fields of `SendStatistics`, or ``None``."""

@final
class LiveReceiveFlow:
    """A flow that the peer sends."""

    @property
    def key(self) -> int:
        """Its key in `Waker.take`."""
    def config(self) -> tuple[str, str, str]:
        """Its order, its reliability and its label."""
    def try_receive(
        self,
    ) -> tuple[int, bytes, float | None, float, float | None, int, list[int]] | None:
        """The fields of the next `Unit`, times by the connection's clock; ``None``: none yet.

        Raises `StopAsyncIteration` at the end of the flow.
        """
    def dropped(self) -> list[int]:
        """Numbers of units dropped by the sender, as far as received, since the last call."""
    def statistics(self, waker: Waker) -> PendingResult:
        """The fields of `ReceiveStatistics`, or ``None``."""

@final
class LiveListener:
    """Accepts connections."""

    @property
    def key(self) -> int:
        """Its key in `Waker.take`."""
    @property
    def local(self) -> tuple[str, int]:
        """The address and port at which it listens."""
    def try_accept(
        self, waker: Waker
    ) -> LiveConnection | tuple[tuple[str, int] | None, str, str | None] | None:
        """The next connection, or the address of a refused client with the reason."""
    def close(self, waker: Waker) -> PendingResult | None:
        """Stop accepting; ``None`` where it is closed already."""

def begin(
    remote: tuple[str, int],
    name: str,
    trust: Trust,
    token: bytes,
    options: Options,
    waker: Waker,
) -> PendingResult:
    """A `LiveConnecting` to an address."""

def bind(
    at: tuple[str | None, int], identity: Identity, token: bytes, options: Options, waker: Waker
) -> PendingResult:
    """A `LiveListener` at an address, or at every one."""

def check_options(options: Options) -> None:
    """Raise `ValueError` where an option has an unknown value."""

def default_options() -> dict[str, Any]:
    """The endpoint's default options: the fields of `Options`."""

# What `ontempo.qos` makes coroutines of, likewise.

@final
class QosChannel:
    """A QoS connection."""

    @property
    def key(self) -> int:
        """Its key in `Waker.take`."""
    @property
    def local(self) -> tuple[str, int]:
        """The address and port here."""
    @property
    def remote(self) -> tuple[str, int]:
        """The address and port there."""
    @property
    def dscp(self) -> int:
        """The DSCP of the packets, 0 to 63."""
    @property
    def max_send_size(self) -> int:
        """The longest message that may be sent, in bytes."""
    @property
    def max_receive_size(self) -> int:
        """The longest message that may be received, in bytes."""
    def try_send(self, data: bytes) -> bool:
        """Start sending a message; false while another one is being sent."""
    def has_sent(self) -> bool:
        """True once the last message is in the system's send buffer."""
    def try_receive(self) -> tuple[bytes, int, float] | None:
        """The next message; ``None`` while there is none.

        Raises `StopAsyncIteration` where the other end has finished sending.
        """
    def agreed(self, direction: str) -> dict[str, Any]:
        """The fields of the agreed `Specification`."""
    def change(self, asked: Specification) -> dict[str, Any]:
        """Renegotiate; the fields of the agreed `Specification`."""
    def delivery(self, direction: str) -> dict[str, Any]:
        """The fields of `Delivery`."""
    def reports(self) -> str:
        """All reports, as JSON."""
    def reservation(self, direction: str) -> tuple[Any, str]:
        """Its state, and the reason."""
    def events(self, waker: Waker) -> QosEvents:
        """The events from now on."""
    def close(self, timeout_s: float, waker: Waker) -> PendingResult | None:
        """Close it; ``None`` where it is closed already."""

@final
class QosEvents:
    """The events of a connection."""

    @property
    def key(self) -> int:
        """Its key in `Waker.take`."""
    def try_next(self) -> tuple[Any, ...] | None:
        """The next one's kind and parts; ``None`` while there is none.

        Raises `StopAsyncIteration` at the end.
        """

@final
class QosAcceptor:
    """Accepts QoS connections."""

    @property
    def key(self) -> int:
        """Its key in `Waker.take`."""
    @property
    def local(self) -> tuple[str, int]:
        """The address and port at which it listens."""
    def try_accept(
        self, waker: Waker
    ) -> QosChannel | tuple[tuple[str, int], str, str | None] | None:
        """The next connection, or the address of a refused client with the reason."""
    def close(self, waker: Waker) -> PendingResult:
        """Stop accepting."""

def qos_connect(
    carrier: str,
    remote: tuple[str, int],
    options: QosOptions,
    known: tuple[str, Trust, bytes] | None,
    waker: Waker,
) -> PendingResult:
    """A `QosChannel` to an address; over QUIC with the certificate's name, trust and token."""

def qos_bind(
    carrier: str,
    at: tuple[str | None, int],
    options: QosOptions,
    known: tuple[Identity, bytes] | None,
    waker: Waker,
) -> PendingResult:
    """A `QosAcceptor` at an address, or at every one of IPv4; over QUIC with identity and token."""

def qos_check(specification: Specification) -> None:
    """Raise `SpecificationError` where a specification contradicts itself."""

def qos_read(path: str | PathLike[str]) -> dict[str, Any]:
    """The fields of the `Specification` in a TOML file."""

# What `ontempo.media` exports.

@final
class MediaUnit:
    """A unit of a transport stream: a frame, a PES packet of sound, tables or stuffing."""

    @property
    def kind(
        self,
    ) -> Literal["key", "frame", "disposable", "sound", "tables", "filler", "other"]:
        """What it holds.

        A keyframe, another frame, one that no other needs, sound, tables, stuffing, or else.
        """
    @property
    def pid(self) -> int:
        """The PID of its first packet, 0 to 8191."""
    @property
    def media_time_s(self) -> float | None:
        """When it is shown (PTS), in seconds of the media's clock; ``None`` where it has no PTS."""
    @property
    def size(self) -> int:
        """Bytes of its elementary stream, without the headers of transport packets and PES."""
    @property
    def packets(self) -> list[int]:
        """The packets that carry its payload, counted from 0 in the stream, in rising order."""

@final
class TransportStream:
    """The units of a transport stream, the times of its packets and its continuity errors."""

    @property
    def packets(self) -> int:
        """How many packets of 188 bytes the stream has."""
    @property
    def units(self) -> list[MediaUnit]:
        """Its units in the order in which they begin.

        Packets before the first start of their PID belong to no unit.
        """
    @property
    def due_ns(self) -> list[int]:
        """When each packet is due, in nanoseconds after the first clock reference (PCR).

        Empty where the stream has fewer than two of them. Between two references the rate of the
        last two holds.
        """
    @property
    def continuity_errors(self) -> list[int]:
        """Packets at which the continuity counter of their PID jumps (ISO/IEC 13818-1, 2.4.3.3)."""
    @property
    def damaged(self) -> list[int]:
        """Packets without the sync byte, at most an eighth: they count as stuffing.

        What they carried belongs to no unit, and is missing where it was.
        """
    @property
    def cut(self) -> int:
        """Bytes of a packet that is cut at the end, 0 to 187: it is left out."""

def read_transport_stream(data: bytes) -> TransportStream:
    """Read a whole MPEG transport stream of packets of 188 bytes, of at most 64 PIDs.

    Raises `ValueError` where the bytes are not made of such packets.
    """
