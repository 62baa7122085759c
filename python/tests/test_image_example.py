"""The example of a picture: split, reassembled, drawn in any order, delivered, compared."""

import asyncio
import io
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from examples.image.animation import animate
from examples.image.canvas import PAPER, Canvas
from examples.image.compare import NetworkPath, emulate, reached, scenario, table
from examples.image.jpeg import JpegError, Pieces, join, layout, split
from examples.image.picture import make_jpeg, paint
from examples.image.receive import receive
from examples.image.send import DELIVERIES, send
from PIL import Image, ImageChops

import ontempo as ot
from ontempo import live
from ontempo.lab.real_time import hindrance

ROOT = Path(__file__).resolve().parents[2]
LACKING = hindrance()
SEEDS = range(60)


def noise(random: Random, mode: str) -> Image.Image:
    """An image that costs bits everywhere, of any small size."""
    size = random.randint(1, 90), random.randint(1, 90)
    rough = Image.frombytes(mode, size, random.randbytes(size[0] * size[1] * len(mode)))
    return rough.resize(size, box=(0, 0, max(1, size[0] // 4), max(1, size[1] // 4)))


def encode(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def some_jpeg(random: Random) -> bytes:
    """With restart markers after a few units, or a few rows of them."""
    image = noise(random, random.choice(["RGB", "L"]))
    where = random.choice(["restart_marker_blocks", "restart_marker_rows"])
    subsampling = {"subsampling": random.choice(["4:4:4", "4:2:2", "4:2:0"])}
    return encode(
        image,
        quality=random.randint(30, 95),
        optimize=random.random() < 0.5,
        **{where: random.randint(1, 5)},
        **(subsampling if image.mode == "RGB" else {}),
    )


def decoded(jpeg: bytes) -> Image.Image:
    with Image.open(io.BytesIO(jpeg)) as image:
        return image.convert("RGB")


def drawn(pieces: Pieces, numbers: list[int]) -> Canvas:
    canvas = Canvas()
    all_pieces = (pieces.tables, *pieces.intervals)
    for number in numbers:
        canvas.add(number, all_pieces[number])
    return canvas


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reassembled_picture_equals_the_file(seed: int) -> None:
    jpeg = some_jpeg(Random(seed))
    pieces = split(jpeg)
    assert len(pieces.intervals) == layout(pieces.tables).intervals
    assert join(pieces.tables, pieces.intervals) == jpeg


@pytest.mark.parametrize("seed", SEEDS)
def test_any_pieces_in_any_order_draw_only_their_part(seed: int) -> None:
    random = Random(seed)
    jpeg = some_jpeg(random)
    pieces = split(jpeg)
    head = layout(pieces.tables)
    numbers = random.sample(range(1, head.intervals + 1), random.randint(0, head.intervals))
    order = [0, *numbers, *numbers[:2]]  # some come twice
    random.shuffle(order)
    canvas = drawn(pieces, order)
    units = [unit for number in numbers for unit in head.span(number - 1)]
    assert canvas.share == len(units) / head.units
    whole = decoded(jpeg)
    assert canvas.image.size == whole.size
    expected = Image.new("RGB", whole.size, PAPER)
    for unit in units:
        down, across = divmod(unit, head.across)
        x, y = across * head.unit_width, down * head.unit_height
        box = (x, y, min(x + head.unit_width, whole.width), min(y + head.unit_height, whole.height))
        expected.paste(whole.crop(box), box)
    blank = ImageChops.difference(canvas.image, Image.new("RGB", whole.size, PAPER))
    wrong = ImageChops.difference(canvas.image, expected)
    if head.unit_width == head.unit_height == 8:
        assert wrong.getbbox() is None
    else:
        # Colours are coarser than pixels: a decoder blends those of neighbours, and ours has none.
        near = drawn(pieces, list(range(head.intervals + 1)))
        same = ImageChops.difference(near.image, canvas.image)
        mask = Image.new("1", whole.size)
        for unit in units:
            down, across = divmod(unit, head.across)
            x, y = across * head.unit_width, down * head.unit_height
            mask.paste(1, (x, y, x + head.unit_width, y + head.unit_height))
        same.paste((0, 0, 0), mask=ImageChops.invert(mask.convert("L")).convert("1"))
        assert same.getbbox() is None
        blank.paste((0, 0, 0), mask=mask)
        assert blank.getbbox() is None


def test_a_complete_picture_looks_like_its_file() -> None:
    jpeg = make_jpeg(paint(320, 240), units=7)
    pieces = split(jpeg)
    canvas = drawn(pieces, [*range(len(pieces.intervals), -1, -1)])
    difference = ImageChops.difference(canvas.image, decoded(jpeg)).convert("L")
    levels = difference.histogram()
    assert sum(level * count for level, count in enumerate(levels)) / sum(levels) < 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"progressive": True}, "picture.jpg: it is progressive, and its rows cannot be drawn"),
        ({}, "picture.jpg: it has no restart markers, at which it could be split: save it with"),
    ],
)
def test_a_jpeg_that_cannot_be_split_is_refused_with_a_reason(
    options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(JpegError, match=sentence):
        split(encode(paint(64, 48), **options), "picture.jpg")


def test_a_truncated_or_foreign_file_is_refused_with_a_reason() -> None:
    jpeg = make_jpeg(paint(64, 48), units=1)
    for data in (b"", b"GIF89a", jpeg[1:], bytes(100)):
        with pytest.raises(JpegError, match="the picture: it is no JPEG: the first two bytes"):
            split(data)
    for end in (2, 3, 20, 200, 500):
        with pytest.raises(JpegError, match="it is truncated: it ends before its picture begins"):
            split(jpeg[:end])
    for end in range(len(split(jpeg).tables) + 1, len(jpeg)):
        with pytest.raises(JpegError, match="it is truncated"):
            split(jpeg[:end])


def test_an_interval_that_is_missing_from_the_file_is_noticed() -> None:
    pieces = split(make_jpeg(paint(64, 48), units=1))
    short = join(pieces.tables, pieces.intervals[:-1])
    with pytest.raises(JpegError, match="it has 11 of 12 restart intervals"):
        split(short)
    swapped = join(pieces.tables, pieces.intervals).replace(b"\xff\xd1", b"\xff\xd5", 1)
    with pytest.raises(JpegError, match=r"restart marker 5 at byte \d+ stands where 1 should"):
        split(swapped)


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_refused_with_a_sentence_or_drawn(seed: int) -> None:
    random = Random(seed)
    damaged = bytearray(some_jpeg(random))
    for _ in range(random.randint(1, 20)):
        damaged[random.randrange(len(damaged))] = random.randrange(256)
    with suppress(JpegError):
        pieces = split(bytes(damaged))
        canvas = Canvas()
        for number, piece in enumerate([pieces.tables, *pieces.intervals]):
            canvas.add(number, piece)
        assert canvas.share == 1


def test_an_invalid_piece_leaves_the_picture_unchanged() -> None:
    pieces = split(make_jpeg(paint(64, 48), units=4))
    canvas = drawn(pieces, [0, 1])
    before = canvas.image.copy()
    with pytest.raises(JpegError, match="piece 2 is damaged"):
        canvas.add(2, b"")
    with pytest.raises(JpegError, match="piece 9 is beyond the picture, which has 3"):
        canvas.add(9, b"")
    assert ImageChops.difference(before, canvas.image).getbbox() is None
    with pytest.raises(JpegError, match="it is no JPEG"):
        Canvas().add(0, b"tables")


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_picture_is_delivered_and_drawn(delivery: str) -> None:
    pieces = split(make_jpeg(paint(320, 240)))

    async def main() -> Canvas:
        canvas = Canvas()
        async with asyncio.timeout(20), live.listen("127.0.0.1:0", token="t") as listener:

            async def draw() -> None:
                async with await listener.accept() as connection:
                    await receive(connection, canvas)

            drawing = asyncio.create_task(draw())
            at = f"127.0.0.1:{listener.local[1]}"
            async with live.connect(at, trust=listener.fingerprint, token="t") as connection:
                await send(connection, pieces, DELIVERIES[delivery])
            await drawing
        return canvas

    canvas = asyncio.run(main())
    whole = drawn(pieces, [*range(len(pieces.intervals) + 1)])
    assert canvas.share == 1
    assert ImageChops.difference(canvas.image, whole.image).getbbox() is None
    numbers = [number for _, number in canvas.times]
    assert sorted(numbers) == list(range(len(pieces.intervals) + 1))
    assert delivery != "in-order" or numbers == sorted(numbers)


def test_the_programs_send_and_draw(tmp_path: Path) -> None:
    """As the README says: two programs, a file, frames and the picture."""
    (tmp_path / "meadow.jpg").write_bytes(make_jpeg(paint(160, 120)))
    command = [sys.executable, "-m", "examples.image.receive", "--listen", "127.0.0.1:0"]
    command += ["--frames", str(tmp_path / "frames"), "--out", str(tmp_path / "out.png")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        words = receiver.stdout.readline().split()
        address, fingerprint = f"127.0.0.1:{words[3]}", words[7].rstrip(",")
        sender = [sys.executable, "-m", "examples.image.send", address]
        sender += ["--token", words[-1], "--fingerprint", fingerprint]
        sender += ["--picture", str(tmp_path / "meadow.jpg")]
        done = subprocess.run(sender, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["begun_s"] > 0
        assert receiver.wait(20) == 0
    frames = sorted((tmp_path / "frames").glob("*.png"))
    with Image.open(frames[-1]) as last, Image.open(tmp_path / "out.png") as whole:
        assert last.size == (160, 120)
        assert ImageChops.difference(last, whole).getbbox() is None


def test_a_receiver_makes_a_token_unless_it_is_told_to_admit_anyone() -> None:
    command = [sys.executable, "-m", "examples.image.receive", "--listen", ":0"]
    for wrong in (["--token", ""], ["--token", "secret", "--anyone"]):
        done = subprocess.run(
            [*command, *wrong], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "leave it out for a random one, or say --anyone" in done.stderr
    for admitted, is_made in (([], True), (["--token", "secret"], False), (["--anyone"], False)):
        with subprocess.Popen(
            [*command, *admitted], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as receiver:
            assert receiver.stdout is not None
            line = receiver.stdout.readline()
            assert line.startswith("listening at ")
            assert (", token " in line) == is_made
            receiver.kill()


def test_a_sender_names_the_file_that_cannot_be_sent(tmp_path: Path) -> None:
    (tmp_path / "flat.jpg").write_bytes(encode(paint(64, 48), progressive=True))
    sender = [sys.executable, "-m", "examples.image.send", "127.0.0.1:9", "--fingerprint", "0" * 64]
    done = subprocess.run(
        [*sender, "--picture", str(tmp_path / "flat.jpg")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"{tmp_path / 'flat.jpg'}: it is progressive")


def test_a_window_without_a_screen_is_refused_before_anyone_connects() -> None:
    command = [sys.executable, "-m", "examples.image.receive", "--listen", "127.0.0.1:0"]
    blind = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    done = subprocess.run(
        [*command, "--window"],
        cwd=ROOT, env=blind, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("--window: ")


def test_times_are_summarised_by_area_and_quartiles(tmp_path: Path) -> None:
    pieces = split(make_jpeg(paint(160, 64), units=10))  # four rows of ten units
    in_order = [(0.1 * number, number) for number in range(5)]
    late = [(0.0, 0), (0.2, 4), (0.3, 3), (0.5, 1), (1.0, 2)]
    assert reached(pieces, in_order, 0.5) == 0.2
    assert reached(pieces, late, 1.0) == 1.0
    runs = [{"in-order": late, "partial-order": in_order}] * 3
    assert "| 100% | 1.00 (1.00 to 1.00) | 0.40 (0.40 to 0.40) | 0.60 (" in table(pieces, runs)
    animate(pieces, runs[0], tmp_path / "drawn.png")
    with Image.open(tmp_path / "drawn.png") as animation:
        assert getattr(animation, "n_frames", 1) > 5


def test_the_scenario_of_a_run_is_valid(tmp_path: Path) -> None:
    text = scenario(NetworkPath(), tmp_path, "0" * 64)
    assert ot.parse(text).duration_s == 12


@pytest.mark.skipif(bool(LACKING), reason=f"a real emulation {LACKING}")
def test_both_deliveries_draw_the_whole_picture_over_a_lossy_path(tmp_path: Path) -> None:
    assert os.geteuid() == 0
    jpeg = make_jpeg(paint(320, 240))
    run = emulate(NetworkPath(lasts_s=6), 1, jpeg, tmp_path / "run")
    pieces = split(jpeg)
    for times in run.values():
        assert reached(pieces, times, 1.0) < 6
    numbers = [number for _, number in run["in-order"]]
    assert numbers == sorted(numbers)
    numbers = [number for _, number in run["partial-order"]]
    assert numbers != sorted(numbers)
