"""Makes the pictures of the page, from the meadow of `examples/image`.

Three have restart markers, one is progressive. From the root of the repository:
`python -m examples.page.make_pictures`.
"""

from pathlib import Path

from PIL import Image

from examples.image.picture import make_jpeg, paint

PICTURES = Path(__file__).parent / "pictures"


def main() -> None:
    """Write them."""
    meadow = paint()
    small = (480, 360)
    whole = meadow.resize(small, Image.Resampling.LANCZOS)
    parts = {
        "meadow": whole,
        "sun": meadow.crop((640, 200, 1120, 560)),
        "flowers": meadow.crop((0, 600, 480, 960)),
    }
    for name, picture in parts.items():
        (PICTURES / f"{name}.jpg").write_bytes(make_jpeg(picture, units=10, quality=88))
    hills = meadow.crop((160, 360, 640, 720))
    hills.save(PICTURES / "hills.jpg", quality=88, subsampling="4:2:0", progressive=True)


if __name__ == "__main__":
    main()
