"""A picture on which pieces are drawn in the order of arrival."""

import io
import time

from PIL import Image

from .jpeg import JpegError, Layout, alone, layout

__all__ = ["Canvas"]

PAPER = (236, 236, 236)
"""Colour of areas not drawn yet."""


class Canvas:
    """Draws pieces by their numbers: 0 is the tables, and *n* the interval *n* - 1.

    Pieces that arrive before the tables wait for them; duplicates are drawn once.
    """

    def __init__(self) -> None:
        self.layout: Layout | None = None
        self.image = Image.new("RGB", (1, 1), PAPER)
        self.times: list[tuple[float, int]] = []
        """Arrival times (in seconds of `time.monotonic`) and the pieces that arrived."""
        self._tables = b""
        self._early: dict[int, bytes] = {}
        self._drawn: set[int] = set()
        self._units = 0

    @property
    def share(self) -> float:
        """How much of the picture has been drawn, from 0 to 1."""
        return 0.0 if self.layout is None else self._units / self.layout.units

    def add(self, number: int, data: bytes) -> None:
        """Draw a piece.

        Raises `JpegError` for an invalid piece; the picture is then unchanged.
        """
        if number == 0 and self.layout is None:
            self.layout = layout(data)
            self._tables = data
            self.image = Image.new("RGB", (self.layout.width, self.layout.height), PAPER)
            early, self._early = self._early, {}
            for waiting in early.items():
                self._draw(self.layout, *waiting)
        elif self.layout is None:
            self._early[number] = data
        elif number > 0:
            self._draw(self.layout, number, data)
        self.times.append((time.monotonic(), number))

    def _draw(self, head: Layout, number: int, data: bytes) -> None:
        if number > head.intervals:
            raise JpegError(f"piece {number} is beyond the picture, which has {head.intervals}")
        if number in self._drawn:
            return
        if not data:
            raise JpegError(f"piece {number} is damaged: it is empty")
        row = _decode(alone(self._tables, head, number - 1, data), number)
        span = head.span(number - 1)
        unit, x = span.start, 0
        while unit < span.stop:
            # The interval's units up to the end of a row of the picture.
            down, across = divmod(unit, head.across)
            count = min(span.stop - unit, head.across - across)
            part = row.crop((x, 0, x + count * head.unit_width, head.unit_height))
            self.image.paste(part, (across * head.unit_width, down * head.unit_height))
            unit, x = unit + count, x + part.width
        self._drawn.add(number)
        self._units += len(span)


def _decode(jpeg: bytes, number: int) -> Image.Image:
    try:
        with Image.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise JpegError(f"piece {number} is damaged: {error}") from None
