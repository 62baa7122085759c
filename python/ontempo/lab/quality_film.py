"""The pictures of a film's transport stream, and the stream without some of them."""

import csv
import hashlib
import io
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ontempo.lab.errors import BadInputError
from ontempo.lab.programs import program, run_program
from ontempo.media import PACKET_BYTES, MediaUnit, read_transport_stream

MAX_FILM_BYTES = 1 << 30
"""A larger film is refused: all of it is in memory."""

NANOSECOND = 1e-9
"""Times of tables are exact to it."""


@dataclass(frozen=True)
class Picture:
    """A picture of a film.

    Its number among the frames of the table (with sound), from 0, the packets that carry it, and
    when it is shown, in seconds of the media's clock.
    """

    number: int
    packets: Sequence[int]
    shown_s: float


@dataclass(frozen=True)
class Film:
    """A film: its bytes, its pictures in decoding order, the packets of its tables.

    `frames` is how many a round has, with those of sound.
    """

    path: Path
    data: bytes
    pictures: Sequence[Picture]
    tables: Sequence[int]
    frames: int

    @property
    def sha256(self) -> str:
        """The digest of its bytes, in hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()

    def without(self, missing: Collection[int]) -> bytes:
        """The stream of pictures and tables, without the pictures at these places.

        Sound is left out. Continuity counters of the pictures are made anew: a picture is there
        whole or not at all, and a jump would tell the decoder that the one before it is damaged.
        """
        left = [
            packet
            for place, picture in enumerate(self.pictures)
            if place not in missing
            for packet in picture.packets
        ]
        of_pictures = frozenset(left)
        stream = bytearray()
        counter = 0
        for number in sorted([*self.tables, *left]):
            packet = bytearray(self.data[number * PACKET_BYTES : (number + 1) * PACKET_BYTES])
            # It counts the packets with payload of a PID (ISO/IEC 13818-1, section 2.4.3.3).
            if number in of_pictures:
                packet[3] = packet[3] & 0xF0 | counter
                counter = (counter + 1) & 0xF
            stream += packet
        return bytes(stream)


def read_film(path: Path) -> tuple[Film, str]:
    """A film and the table of its frames, as `ontempo media --frames` writes it.

    Raises `BadInputError` if it is missing, no transport stream, or too large.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILM_BYTES:
            raise BadInputError(f"{path}: it has {size} bytes, of at most {MAX_FILM_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: the film cannot be read: {error.strerror}") from error
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "frames.csv"
        run_program([program(), "media", str(path), "--frames", str(table)], "ontempo media")
        text = table.read_text("utf-8")
    rows = frame_rows(text)
    numbers = [number for number, row in enumerate(rows) if row[1] != "sound"]
    sizes = [int(rows[number][2]) for number in numbers]
    try:
        units = read_transport_stream(data).units
    except ValueError as error:
        raise BadInputError(
            f"{path}: no transport stream, which this command needs: {error}"
        ) from (error)
    of_pid: dict[int, list[MediaUnit]] = {}
    for unit in units:
        if unit.kind in ("key", "frame", "disposable") and unit.media_time_s is not None:
            of_pid.setdefault(unit.pid, []).append(unit)
    for found in of_pid.values():
        if [unit.size for unit in found] == sizes:
            pictures = [
                Picture(number, unit.packets, unit.media_time_s or 0.0)
                for number, unit in zip(numbers, found, strict=True)
            ]
            tables = [at for unit in units if unit.kind == "tables" for at in unit.packets]
            return Film(path, data, pictures, tables, len(rows)), text
    raise BadInputError(
        f"{path}: its {len(sizes)} pictures are not found one by one in its packets: each needs a"
        " PES packet of its own with a time"
    )


def frame_rows(text: str) -> list[tuple[str, str, str]]:
    """Time, type and size of each frame of a table; empty if its columns have other names."""
    lines = (line for line in io.StringIO(text) if not line.startswith("#"))
    return [
        (row.get("time_s") or "", row.get("type") or "", row.get("size_bytes") or "0")
        for row in csv.DictReader(lines)
    ]


def difference(ours: str, theirs: str) -> str | None:
    """Where the frames of two tables differ, in words; `None` if they are the same."""
    first, second = frame_rows(ours), frame_rows(theirs)
    for number, (a, b) in enumerate(zip(first, second, strict=False)):
        if a[1:] != b[1:] or abs(float(a[0]) - float(b[0])) > NANOSECOND:
            return f"frame {number} is {_named(a)}, that of the run {_named(b)}"
    if len(first) != len(second):
        return f"it has {len(first)} frames, that of the run {len(second)}"
    return None


def _named(row: tuple[str, str, str]) -> str:
    return f"{row[1]} of {row[2]} bytes at {row[0]} s"
