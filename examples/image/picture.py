"""A picture to send: drawn here, so that nobody holds rights to it."""

import io
import math
from pathlib import Path
from random import Random

from PIL import Image, ImageDraw, ImageFilter

__all__ = ["chosen", "make_jpeg", "paint"]

_Colour = tuple[int, int, int]

SKY: tuple[_Colour, _Colour] = ((38, 70, 130), (250, 196, 140))
RIDGES: tuple[_Colour, ...] = ((132, 126, 158), (94, 104, 132), (58, 84, 88), (40, 66, 48))
SUN: _Colour = (255, 238, 190)
CLOUD: _Colour = (255, 222, 206)
GRAIN = 0.05
FLOWERS: tuple[_Colour, ...] = ((226, 78, 66), (244, 196, 62), (236, 236, 226), (150, 96, 190))


def paint(width: int = 1280, height: int = 960) -> Image.Image:
    """An evening over hills and a meadow; the same at each call."""
    random = Random(3216)
    image = Image.new("RGB", (width, height))
    draw = ImageDraw.Draw(image)
    for y in range(height):
        draw.line([(0, y), (width, y)], _between(*SKY, min(1, y / (0.62 * height))))
    _sun(image, width, height)
    _clouds(image, random, width, height)
    for number, colour in enumerate(RIDGES):
        _ridge(draw, random, width, height, number, colour)
    _meadow(draw, random, width, height)
    return _grain(image, random)


def make_jpeg(image: Image.Image, units: int = 10, quality: int = 90) -> bytes:
    """The image as a JPEG with a restart marker every `units` units of 16 by 16 pixels."""
    file = io.BytesIO()
    image.convert("RGB").save(
        file, "JPEG", quality=quality, subsampling="4:2:0", restart_marker_blocks=units
    )
    return file.getvalue()


def chosen(file: Path | None) -> tuple[bytes, str]:
    """The bytes of a JPEG and its name in messages: of a file, or of the picture drawn here."""
    return (file.read_bytes(), str(file)) if file else (make_jpeg(paint()), "the picture")


def _between(one: _Colour, other: _Colour, share: float) -> _Colour:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return red, green, blue


def _sun(image: Image.Image, width: int, height: int) -> None:
    glow = Image.new("L", image.size)
    x, y, radius = 0.68 * width, 0.4 * height, 0.07 * height
    for step in range(12, 0, -1):
        around = radius * (1 + 0.3 * step)
        ImageDraw.Draw(glow).ellipse(
            (x - around, y - around, x + around, y + around), fill=130 // step
        )
    ImageDraw.Draw(glow).ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    image.paste(SUN, mask=glow.filter(ImageFilter.GaussianBlur(height / 160)))


def _clouds(image: Image.Image, random: Random, width: int, height: int) -> None:
    veil = Image.new("L", image.size)
    draw = ImageDraw.Draw(veil)
    for _ in range(14):
        x, y = random.uniform(0, width), random.uniform(0.03, 0.34) * height
        long = random.uniform(0.06, 0.16) * width
        for _ in range(60):
            across, up = random.gauss(0, long / 2), random.gauss(0, long / 16)
            radius = random.uniform(0.2, 1) * long / 9
            box = (
                x + across - radius,
                y + up - radius / 2,
                x + across + radius,
                y + up + radius / 2,
            )
            draw.ellipse(box, fill=random.randrange(40, 130))
    image.paste(CLOUD, mask=veil.filter(ImageFilter.GaussianBlur(height / 200)))


def _grain(image: Image.Image, random: Random) -> Image.Image:
    """Camera noise, so that every part of the picture costs bits."""
    noise = Image.frombytes("L", image.size, random.randbytes(image.width * image.height))
    return Image.blend(image, noise.convert("RGB"), GRAIN)


def _ridge(
    draw: ImageDraw.ImageDraw,
    random: Random,
    width: int,
    height: int,
    number: int,
    colour: _Colour,
) -> None:
    """A line of hills, higher than the ones before it; the nearer ones have trees."""
    waves = [(random.uniform(0.5, 1) / (k + 1), random.uniform(0, 7), k + 1) for k in range(7)]
    foot, rise = (0.48 + 0.09 * number) * height, 0.05 * height

    def top(x: float) -> float:
        turn = math.tau * x / width
        return foot - rise * sum(a * math.sin(k * turn + phase) for a, phase, k in waves)

    line = [(x, top(x)) for x in range(width + 1)]
    draw.polygon([(0, height), *line, (width, height)], fill=colour)
    for _ in range(90 * number if number > 1 else 0):
        x, size = random.uniform(0, width), random.uniform(0.012, 0.03) * height
        y = top(x) + random.uniform(0, 0.05) * height
        shade = _between(colour, (16, 30, 26), random.uniform(0.2, 0.8))
        draw.polygon([(x - size / 3, y), (x, y - 1.6 * size), (x + size / 3, y)], fill=shade)


def _meadow(draw: ImageDraw.ImageDraw, random: Random, width: int, height: int) -> None:
    """Blades of grass and flowers, larger in front."""
    for step in range(2600):
        near = step / 2600
        x, y = random.uniform(0, width), (0.82 + 0.2 * near) * height
        size = (0.01 + 0.035 * near) * height
        shade = _between((52, 88, 50), (126, 148, 70), random.random())
        tip = (x + random.uniform(-0.4, 0.4) * size, y - size)
        draw.line([(x, y), tip], fill=shade, width=1 + round(near))
        if random.random() < 0.07:
            dot = 0.2 * size
            draw.ellipse(
                (tip[0] - dot, tip[1] - dot, tip[0] + dot, tip[1] + dot),
                fill=random.choice(FLOWERS),
            )
