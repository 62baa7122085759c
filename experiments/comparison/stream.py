"""The stream that is carried: its packets, when each is sent, and its frames.

`ontempo.media`, the packetizer of ``ontempo send``, finds the frames.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ontempo import media
from ontempo.lab.errors import BadInputError

PACKET = media.PACKET_BYTES

PER_DATAGRAM = 7
"""Transport packets in a datagram, as encoders send them: 1,316 bytes."""

KINDS = ("key", "frame", "disposable", "sound")
"""Units that are counted: the packetizer's kinds."""


@dataclass(frozen=True)
class Unit:
    """A frame of video, or a PES packet of sound: its kind, the places of its transport packets."""

    kind: str
    packets: tuple[int, ...]


@dataclass(frozen=True)
class Stream:
    """A transport stream: its packets, when each is due (ns from the first), its units."""

    packets: tuple[bytes, ...]
    due_ns: tuple[int, ...]
    units: tuple[Unit, ...]

    def datagrams(self) -> Iterator[tuple[int, bytes]]:
        """The datagrams with their times of sending: when the last packet of each is due, in ns."""
        for first in range(0, len(self.packets), PER_DATAGRAM):
            last = min(first + PER_DATAGRAM, len(self.packets)) - 1
            yield self.due_ns[last], b"".join(self.packets[first : last + 1])


def read_stream(path: Path, *, bursts: bool = False) -> Stream:
    """Read a transport stream with video.

    Its packets are due by its clock as of a constant rate, or with `bursts` each together with the
    last clock reference before it: ffmpeg writes one before each picture.

    Raises `BadInputError` with the file's name if it is invalid: it is not made of transport
    packets, packets are missing, it has no clock to send it by, or no video.
    """
    content = path.read_bytes()
    try:
        found = media.read_transport_stream(content)
    except ValueError as error:
        raise BadInputError(f"{path}: {error}") from error
    units = tuple(
        Unit(unit.kind, tuple(unit.packets)) for unit in found.units if unit.kind in KINDS
    )
    if found.continuity_errors:
        place = found.continuity_errors[0]
        raise BadInputError(f"{path}: packets are missing before packet {place}")
    if not found.due_ns:
        raise BadInputError(f"{path}: fewer than 2 clock references (PCR) to send it by")
    if all(unit.kind == "sound" for unit in units):
        raise BadInputError(f"{path}: no video in its program map (PMT)")
    packets = split(content)
    due_ns = with_reference(packets, found.due_ns) if bursts else found.due_ns
    return Stream(packets, tuple(due_ns), units)


def with_reference(packets: Sequence[bytes], due_ns: Sequence[int]) -> list[int]:
    """When each packet is due that is sent with the last packet with a clock reference."""
    moved, at = [], due_ns[0]
    for packet, due in zip(packets, due_ns, strict=True):
        if has_reference(packet):
            at = due
        moved.append(at)
    return moved


def has_reference(packet: bytes) -> bool:
    """Whether a transport packet has a program clock reference (ISO/IEC 13818-1, 2.4.3.4)."""
    has_field, field_bytes = packet[3] & 0x20, packet[4]
    return bool(has_field and field_bytes and packet[5] & 0x10)


def split(content: bytes) -> tuple[bytes, ...]:
    """The packets of a stream."""
    return tuple(content[at : at + PACKET] for at in range(0, len(content), PACKET))
