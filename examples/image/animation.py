"""Animates what both receivers had drawn over time, as PNG, at a quarter of the speed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from .canvas import Canvas
from .jpeg import Pieces

__all__ = ["animate", "redraw"]

FRAME_MS = 50
"""Time of the run between two frames, in seconds."""
SLOWER = 4
LAST_MS = 3000
"""How long the last frame is shown."""
COLOURS = 64
WIDTH, LINE, GAP = 320, 24, 8
INK, GROUND = (30, 30, 30), (255, 255, 255)


def animate(pieces: Pieces, drawn: Mapping[str, Sequence[tuple[float, int]]], file: Path) -> None:
    """Draw a run again, from the pieces of each delivery and their times in seconds."""
    end_s = max(times[-1][0] for times in drawn.values())
    canvases = {name: (Canvas(), list(times)) for name, times in drawn.items()}
    frames = []
    for number in range(int(end_s * 1000 / FRAME_MS) + 2):
        at_s = number * FRAME_MS / 1000
        for canvas, times in canvases.values():
            redraw(canvas, pieces, times, at_s)
        frames.append(_frame({name: canvas for name, (canvas, _) in canvases.items()}, at_s))
    # One palette for all, so that only newly drawn parts differ from frame to frame.
    both_ends = Image.new("RGB", (frames[0].width, 2 * frames[0].height))
    both_ends.paste(frames[0])
    both_ends.paste(frames[-1], (0, frames[0].height))
    palette = both_ends.quantize(COLOURS, Image.Quantize.MEDIANCUT)
    flat = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times_ms = [FRAME_MS * SLOWER] * (len(flat) - 1) + [LAST_MS]
    flat[0].save(
        file, save_all=True, append_images=flat[1:], duration=times_ms, loop=0, optimize=True
    )


def redraw(canvas: Canvas, pieces: Pieces, times: list[tuple[float, int]], until_s: float) -> None:
    """Draw the pieces that had arrived by then, and remove them from the list."""
    all_pieces = (pieces.tables, *pieces.intervals)
    while times and times[0][0] <= until_s:
        _, number = times.pop(0)
        canvas.add(number, all_pieces[number])


def _frame(canvases: Mapping[str, Canvas], at_s: float) -> Image.Image:
    font = ImageFont.load_default(14)
    last = list(canvases.values())[-1].image
    height = max(1, round(WIDTH * last.height / last.width)) if last.width > 1 else WIDTH * 3 // 4
    frame = Image.new("RGB", (len(canvases) * (WIDTH + GAP) - GAP, height + LINE), GROUND)
    pen = ImageDraw.Draw(frame)
    for number, (name, canvas) in enumerate(canvases.items()):
        left = number * (WIDTH + GAP)
        frame.paste(canvas.image.resize((WIDTH, height), Image.Resampling.LANCZOS), (left, LINE))
        caption = f"{name.replace('-', ' ')}: {canvas.share:.0%} after {at_s:.2f} s"
        pen.text((left + 2, 3), caption, INK, font)
    return frame
