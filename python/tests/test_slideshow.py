"""The slide show of examples/, over loopback."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SLIDESHOW = Path(__file__).parents[2] / "examples" / "slideshow"


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server with images of 18 to 58 kB."""
    words = [sys.executable, str(SLIDESHOW / "server.py"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        yield json.loads(running.stdout.readline())["local"]
        running.terminate()


def show(server: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(SLIDESHOW / "client.py"), server, *options]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def reports(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_image_is_measured_and_the_same_again(server: str) -> None:
    options = ("--seconds", "1", "--pause", "5", "--json")
    first, again = reports(show(server, *options).stdout), reports(show(server, *options).stdout)
    images = [row for row in first if row["event"] == "image"]
    assert len(images) > 10
    assert all(18_000 <= row["bytes"] <= 58_000 for row in images)
    assert all(row["asked_ns"] <= row["sent_ns"] <= row["received_ns"] for row in images)
    alike = zip(images, again[:-1], strict=False)
    assert all(one["bytes"] == other["bytes"] for one, other in alike)
    summary = first[-1]
    assert (summary["event"], summary["images"]) == ("summary", len(images))
    assert summary["bytes"] == sum(row["bytes"] for row in images)


def test_an_image_is_a_picture_that_viewers_know(server: str) -> None:
    sys.path.insert(0, str(SLIDESHOW))
    try:
        from server import image  # noqa: PLC0415
    finally:
        sys.path.remove(str(SLIDESHOW))
    data = image(3, 0, 18_000, 58_000)
    kind, _comment, shape, depth, pixels = data.split(b"\n", 4)
    width, height = map(int, shape.split())
    assert (kind, depth) == (b"P5", b"255")
    assert len(pixels) >= width * height > 15_000
    assert server


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["127.0.0.1"], 2, "is no address; write 127.0.0.1:8000"),
        (["127.0.0.1:1"], 1, "error: 127.0.0.1:1: "),
        (["127.0.0.1:1", "--seconds", "0"], 2, "--seconds: above 0"),
    ],
)
def test_errors_are_one_sentence(words: list[str], code: int, message: str) -> None:
    ran = show(*words)
    assert (ran.returncode, message in ran.stderr) == (code, True), ran.stderr
    assert "Traceback" not in ran.stderr
