"""What is read out of an MPEG transport stream: when its packets are due, and where its frames are.

ISO/IEC 13818-1: packets (2.4.3.2), adaptation field with PCR (2.4.3.4), PAT (2.4.4.3),
PMT (2.4.4.8).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ontempo.lab.errors import BadInputError

PACKET = 188
"""Bytes of a transport packet."""

SYNC = 0x47

PER_DATAGRAM = 7
"""Transport packets in a datagram, as everybody sends them: 1,316 bytes."""

PCR_HZ = 27_000_000
_PCR_WRAPS_AT = (1 << 33) * 300

KINDS = {0x1B: "video", 0x0F: "audio"}
"""Stream types of the PMT that are counted: H.264, and AAC in ADTS."""


@dataclass(frozen=True)
class Unit:
    """A frame of video, or a PES packet of audio: the places of its transport packets."""

    kind: str
    packets: tuple[int, ...]


@dataclass(frozen=True)
class Stream:
    """A transport stream, whole: its packets, when each is due (ns from the first), its units."""

    packets: tuple[bytes, ...]
    due_ns: tuple[int, ...]
    units: tuple[Unit, ...]

    def datagrams(self) -> Iterator[tuple[int, bytes]]:
        """What is sent, and when: the moment at which the datagram's last packet is due."""
        for first in range(0, len(self.packets), PER_DATAGRAM):
            last = min(first + PER_DATAGRAM, len(self.packets)) - 1
            yield self.due_ns[last], b"".join(self.packets[first : last + 1])


def read_stream(path: Path) -> Stream:
    """Read a transport stream; raises `BadInputError` with the file's name where it is none."""
    content = path.read_bytes()
    try:
        packets = tuple(split(content))
        pids = programme(packets)
        return Stream(packets, tuple(due(packets)), tuple(units(packets, pids)))
    except ValueError as error:
        raise BadInputError(f"{path}: {error}") from error


def split(content: bytes) -> Iterator[bytes]:
    """The packets of a piece of a stream; raises `ValueError` where it is not made of packets."""
    if not content or len(content) % PACKET:
        raise ValueError(f"{len(content)} bytes, which is no whole number of transport packets")
    for start in range(0, len(content), PACKET):
        if content[start] != SYNC:
            raise ValueError(f"no transport packet at byte {start}: it does not begin with 0x47")
        yield content[start : start + PACKET]


def pid(packet: bytes) -> int:
    """Which elementary stream or table a packet belongs to."""
    return int.from_bytes(packet[1:3], "big") & 0x1FFF


def starts_unit(packet: bytes) -> bool:
    """Whether a PES packet or a table begins in it."""
    return bool(packet[1] & 0x40)


def payload(packet: bytes) -> bytes:
    """What it carries, without header and adaptation field."""
    if not packet[3] & 0x10:
        return b""
    return packet[5 + packet[4] :] if packet[3] & 0x20 else packet[4:]


def pcr(packet: bytes) -> int | None:
    """The programme's clock in units of 27 MHz, where the packet carries it."""
    if not packet[3] & 0x20 or packet[4] < 7 or not packet[5] & 0x10:
        return None
    field = int.from_bytes(packet[6:12], "big")
    return (field >> 15) * 300 + (field & 0x1FF)


def due(packets: Sequence[bytes]) -> Iterator[int]:
    """When each packet is due, in ns: between two PCRs by its place, beyond them at their rate."""
    clocked = [
        (place, clock) for place, one in enumerate(packets) if (clock := pcr(one)) is not None
    ]
    if len(clocked) < 2:
        raise ValueError(f"{len(clocked)} PCR, where at least 2 are needed to pace it")
    ticks = [(clocked[0][0], 0)]
    for (_, before), (place, after) in pairwise(clocked):
        step = (after - before) % _PCR_WRAPS_AT
        if not 0 < step < 10 * PCR_HZ:
            raise ValueError(f"the PCR jumps at packet {place}")
        ticks.append((place, ticks[-1][1] + step))
    spans = list(pairwise(ticks))
    at = 0
    begin = -ticks[0][0] * (ticks[1][1] - ticks[0][1]) / (ticks[1][0] - ticks[0][0])
    for place in range(len(packets)):
        while at + 1 < len(spans) and place >= spans[at][1][0]:
            at += 1
        (first, low), (last, high) = spans[at]
        tick = low + (high - low) * (place - first) / (last - first)
        yield round((tick - begin) * 1e9 / PCR_HZ)


def programme(packets: Sequence[bytes]) -> dict[int, str]:
    """The PIDs of the first programme that are counted, by kind."""
    tables = {pid(one): one for one in reversed(packets) if starts_unit(one)}
    if 0 not in tables:
        raise ValueError("no PAT")
    entries = _section(tables[0])[5:]
    found = [
        int.from_bytes(entries[at + 2 : at + 4], "big") & 0x1FFF
        for at in range(0, len(entries) - 3, 4)
        if entries[at : at + 2] != b"\0\0"
    ]
    if not found or found[0] not in tables:
        raise ValueError("no PMT")
    pmt = _section(tables[found[0]])
    pids = {}
    at = 9 + (int.from_bytes(pmt[7:9], "big") & 0xFFF)
    while at + 5 <= len(pmt):
        if kind := KINDS.get(pmt[at]):
            pids[int.from_bytes(pmt[at + 1 : at + 3], "big") & 0x1FFF] = kind
        at += 5 + (int.from_bytes(pmt[at + 3 : at + 5], "big") & 0xFFF)
    if "video" not in pids.values():
        raise ValueError("no H.264 in its PMT")
    return pids


def _section(packet: bytes) -> bytes:
    """A table's section after its length, without the CRC; it must fit in one packet."""
    content = payload(packet)
    begin = 1 + content[0]
    length = int.from_bytes(content[begin + 1 : begin + 3], "big") & 0xFFF
    section = content[begin + 3 : begin + 3 + length - 4]
    if len(section) != length - 4:
        raise ValueError(f"the table of PID {pid(packet)} does not fit in one packet")
    return section


def units(packets: Sequence[bytes], pids: dict[int, str]) -> Iterator[Unit]:
    """The units in the order in which they begin; what comes before a PID's first start is none."""
    begun: list[tuple[str, list[int]]] = []
    current: dict[int, list[int]] = {}
    for place, packet in enumerate(packets):
        number = pid(packet)
        if number not in pids or not payload(packet):
            continue
        if starts_unit(packet):
            current[number] = []
            begun.append((pids[number], current[number]))
        if number in current:
            current[number].append(place)
    for kind, places in begun:
        yield Unit(kind, tuple(places))
