"""Splits a JPEG at its restart markers into pieces that can be decoded without each other.

The bits between two restart markers depend on no others (ITU-T T.81, section E.1.4): predictions
are reset. The tables and the frame's header, which all intervals need, come first.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["JpegError", "Layout", "Pieces", "alone", "join", "layout", "split"]

# Markers (T.81, table B.1).
SOI, EOI, SOS, DRI, TEM, DNL = 0xD8, 0xD9, 0xDA, 0xDD, 0x01, 0xDC
RST = range(0xD0, 0xD8)
BASELINE, EXTENDED, PROGRESSIVE = 0xC0, 0xC1, 0xC2
OTHER_FRAMES = {*range(0xC3, 0xD0)} - {0xC4, 0xC8, 0xCC}

_MAX_PIXELS = 1 << 26
_MAX_SIDE = 65_500  # what libjpeg decodes
_BITS = 8
_ALL_FREQUENCIES = bytes([0, 63, 0])


class JpegError(ValueError):
    """A file or a piece cannot be split or drawn; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a picture: its units (MCUs) and intervals."""

    width: int
    """Of the picture, in pixels."""
    height: int
    """Of the picture, in pixels."""
    unit_width: int
    """Of a unit, in pixels."""
    unit_height: int
    """Of a unit, in pixels."""
    interval: int
    """Units between two restart markers; the last interval may have fewer."""
    size_at: int
    """Offset of the frame's height in the tables; the width follows it: two bytes each."""

    @property
    def across(self) -> int:
        """Units in a row."""
        return -(-self.width // self.unit_width)

    @property
    def units(self) -> int:
        """Units of the picture."""
        return self.across * -(-self.height // self.unit_height)

    @property
    def intervals(self) -> int:
        """Intervals of the picture."""
        return -(-self.units // self.interval)

    def span(self, number: int) -> range:
        """The units of an interval, counted by rows."""
        return range(number * self.interval, min((number + 1) * self.interval, self.units))


@dataclass(frozen=True, slots=True)
class Pieces:
    """A picture in pieces."""

    tables: bytes
    """All bytes before the first interval; needed to decode each interval."""
    intervals: tuple[bytes, ...]
    """The bytes between the restart markers."""


def split(data: bytes, name: str = "the picture") -> Pieces:
    """Split a JPEG; `name` names the file in messages.

    Raises `JpegError` if it is no JPEG, is progressive, has no restart markers or is truncated.
    """
    try:
        head, begin = _head(data)
        intervals = _intervals(data, begin)
        if len(intervals) != head.intervals:
            raise JpegError(
                f"it has {len(intervals)} of {head.intervals} restart intervals: it is truncated"
                " or damaged"
            )
    except JpegError as error:
        raise JpegError(f"{name}: {error}") from None
    return Pieces(data[:begin], tuple(intervals))


def join(tables: bytes, intervals: Sequence[bytes]) -> bytes:
    """The file, reassembled from all its pieces."""
    parts = [tables]
    for number, interval in enumerate(intervals):
        if number > 0:
            parts.append(bytes([0xFF, RST[(number - 1) % len(RST)]]))
        parts.append(interval)
    return b"".join([*parts, bytes([0xFF, EOI])])


def layout(tables: bytes) -> Layout:
    """The layout of the picture with these tables.

    Raises `JpegError` if they are not of the form that `split` makes.
    """
    head, begin = _head(tables)
    if begin != len(tables):
        raise JpegError("there is more than tables")
    return head


def alone(tables: bytes, head: Layout, number: int, interval: bytes) -> bytes:
    """A JPEG of one interval, with its units in one row."""
    width = len(head.span(number)) * head.unit_width
    size = struct.pack(">HH", head.unit_height, width)
    at = head.size_at
    return b"".join([tables[:at], size, tables[at + len(size) :], interval, bytes([0xFF, EOI])])


def _head(data: bytes) -> tuple[Layout, int]:
    """The layout, and the offset of the first interval."""
    if data[:2] != bytes([0xFF, SOI]):
        raise JpegError("it is no JPEG: the first two bytes are not FF D8")
    at, interval = 2, 0
    frame: tuple[int, bytes] | None = None
    while True:
        marker, at, body = _segment(data, at)
        begin, at = at, at + len(body)
        if marker in (BASELINE, EXTENDED):
            if frame is not None:
                raise JpegError("it has several frames")
            frame = begin, body
        elif marker == PROGRESSIVE:
            raise JpegError("it is progressive, and its rows cannot be drawn one by one: save it"
                            " as a baseline JPEG")  # fmt: skip
        elif marker in OTHER_FRAMES:
            raise JpegError(f"it is of a kind (SOF{marker - BASELINE}) that is not drawn here: save"
                            " it as a baseline JPEG")  # fmt: skip
        elif marker == DRI:
            if len(body) != 2:
                raise JpegError("its restart interval is damaged")
            (interval,) = struct.unpack(">H", body)
        elif marker == SOS:
            if frame is None:
                raise JpegError("its scan begins before its frame")
            return _layout(*frame, body, interval), at


def _segment(data: bytes, at: int) -> tuple[int, int, bytes]:
    """Each marker, the offset of its segment's content, and that content."""
    if data[at : at + 1] not in (b"\xff", b""):
        raise JpegError(f"it is damaged: no marker at byte {at}")
    while data[at : at + 1] == b"\xff":  # any number of them may fill the space before a marker
        at += 1
    if len(data) < at + 3:
        raise JpegError("it is truncated: it ends before its picture begins")
    marker, length = struct.unpack_from(">BH", data, at)
    if marker in (SOI, EOI, TEM, *RST) or length < 2:
        raise JpegError(f"it is damaged: marker FF {marker:02X} at byte {at}")
    body = data[at + 3 : at + 1 + length]
    if len(body) != length - 2:
        raise JpegError("it is truncated: it ends before its picture begins")
    return marker, at + 3, body


def _layout(begin: int, frame: bytes, scan: bytes, interval: int) -> Layout:
    if len(frame) < 6 or len(frame) != 6 + 3 * frame[5]:
        raise JpegError("its frame is damaged")
    bits, height, width, components = struct.unpack_from(">BHHB", frame)
    if bits != _BITS:
        raise JpegError(f"it has {bits} bits a sample: 8 are drawn here")
    if height == 0 or width == 0 or components not in (1, 3, 4):
        raise JpegError(f"its frame is damaged: {width} by {height}, {components} components")
    if width * height > _MAX_PIXELS:
        raise JpegError(f"it has {width} by {height} pixels: at most {_MAX_PIXELS} are drawn here")
    if len(scan) != 4 + 2 * components or scan[0] != components or scan[-3:] != _ALL_FREQUENCIES:
        raise JpegError("it has several scans: save it as a baseline JPEG with one")
    if interval == 0:
        raise JpegError("it has no restart markers, at which it could be split: save it with them"
                        " (Pillow: restart_marker_rows=1; jpegtran -restart 1)")  # fmt: skip
    factors = [(frame[at] >> 4, frame[at] & 15) for at in range(7, len(frame), 3)]
    if not all(1 <= across <= 4 and 1 <= down <= 4 for across, down in factors):
        raise JpegError("its frame is damaged: sampling factors are 1 to 4")
    # One component alone is not interleaved: its units are single blocks (T.81, section A.2.2).
    across = 1 if components == 1 else max(across for across, _ in factors)
    down = 1 if components == 1 else max(down for _, down in factors)
    head = Layout(width, height, 8 * across, 8 * down, interval, begin + 1)
    if len(head.span(0)) * head.unit_width > _MAX_SIDE:
        raise JpegError(f"its restart intervals are too long: at most {_MAX_SIDE} pixels in a row")
    return head


def _intervals(data: bytes, begin: int) -> list[bytes]:
    """The bytes between the restart markers, up to the end of the picture."""
    intervals: list[bytes] = []
    at = begin
    while (at := data.find(b"\xff", at)) >= 0:
        follows = data[at + 1] if at + 1 < len(data) else EOI + 1
        if follows == 0:  # a byte FF of the data
            at += 2
        elif follows == 0xFF:  # fills the space before a marker; part of what stands before it
            at += 1
        elif follows == EOI:
            return [*intervals, data[begin:at]]
        elif follows == RST[len(intervals) % len(RST)]:
            intervals.append(data[begin:at])
            at = begin = at + 2
        elif at + 2 > len(data):
            break
        elif follows in RST:
            raise JpegError(f"it is damaged: restart marker {follows - RST[0]} at byte {at} stands"
                            f" where {len(intervals) % len(RST)} should")  # fmt: skip
        else:
            raise JpegError(f"it is damaged: marker FF {follows:02X} at byte {at}")
    raise JpegError("it is truncated: it has no end")
