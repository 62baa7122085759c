"""Draw a picture while it arrives: python -m examples.image.receive --out picture.png."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ontempo import live

from .canvas import Canvas
from .jpeg import JpegError
from .send import DRAWN, LABEL

__all__ = ["receive"]

TIMEOUT_S = 3.0
"""How long the answer to a picture may take to arrive, in seconds."""

FRAME_S = 0.1
"""Minimum time between two frames written, or two drawings of the window, in seconds."""


async def receive(
    connection: live.Connection, canvas: Canvas, look: Callable[[], None] = lambda: None
) -> None:
    """Draw the picture received on a connection; `look` is called after each piece.

    Raises `JpegError` if it is invalid, and `ClosedError` if the connection ends early.
    """
    flow = await connection.accept_flow()
    if flow.config.label != LABEL:
        raise JpegError(f"the peer sends {flow.config.label!r}, not {LABEL!r}")
    async for unit in flow:
        canvas.add(unit.number, unit.data)
        look()
    if canvas.share < 1:
        raise JpegError(f"the peer has sent {canvas.share:.0%} of its picture")
    answer = await connection.open_flow(live.FlowConfig(label=DRAWN))
    answer.finish()
    # The sender closes when it has the answer; its CONNECTION_CLOSE can be lost.
    with suppress(TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            await connection.closed()


class Frames:
    """Writes the canvas as numbered PNG files at intervals."""

    def __init__(self, canvas: Canvas, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._canvas, self._folder = canvas, folder
        self._next_s, self._number = 0.0, 0

    def __call__(self) -> None:
        if (now := time.monotonic()) >= self._next_s or self._canvas.share == 1:
            self._canvas.image.save(self._folder / f"{self._number:04}.png")
            self._next_s, self._number = now + FRAME_S, self._number + 1


class Window:
    """Shows the canvas in a window, until that is closed.

    Raises `OSError` without a screen, `ImportError` without tkinter.
    """

    def __init__(self, canvas: Canvas) -> None:
        import tkinter  # noqa: PLC0415 - not every Python has it

        try:
            self._root = tkinter.Tk()
        except tkinter.TclError as error:
            raise OSError(f"--window: {error}") from None
        self._canvas, self._is_open = canvas, True
        self._label = tkinter.Label(self._root)
        self._label.pack()
        self._root.title("ontempo")
        self._root.protocol("WM_DELETE_WINDOW", self._close)

    def _close(self) -> None:
        self._is_open = False

    async def show(self) -> None:
        """Redraw it at intervals."""
        from PIL import ImageTk  # noqa: PLC0415

        while self._is_open:
            photo = ImageTk.PhotoImage(self._canvas.image)
            self._label.configure(image=photo)
            self._root.update()
            await asyncio.sleep(FRAME_S)
        self._root.destroy()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("examples.image.receive", description=__doc__)
    parser.add_argument("--listen", default=":4433", metavar="[HOST]:PORT")
    parser.add_argument("--identity", type=Path, help="certificate and key; created where missing")
    parser.add_argument("--token", help="the secret that senders must send; else a random one")
    parser.add_argument("--anyone", action="store_true", help="admit any sender, without a token")
    parser.add_argument("--out", type=Path, help="file of the picture, such as picture.png")
    parser.add_argument("--frames", type=Path, metavar="FOLDER", help="what was drawn, as PNGs")
    parser.add_argument("--times", type=Path, help="when how much was drawn, as JSON")
    parser.add_argument("--window", action="store_true", help="show it; needs tkinter")
    arguments = parser.parse_args()
    if arguments.token == "" or (arguments.token and arguments.anyone):
        parser.error("--token: leave it out for a random one, or say --anyone alone")
    return arguments


async def _main(arguments: argparse.Namespace) -> None:
    identity = live.Identity.load_or_create(arguments.identity) if arguments.identity else None
    canvas = Canvas()
    look = Frames(canvas, arguments.frames) if arguments.frames else lambda: None
    window = Window(canvas) if arguments.window else None
    listening = live.listen(
        arguments.listen, identity=identity, token=arguments.token, anyone=arguments.anyone
    )
    async with listening as listener:
        host, port = listener.local
        made = not (arguments.token or arguments.anyone)
        token = f", token {listener.token.decode()}" if made else ""
        fingerprint = listener.fingerprint
        print(f"listening at port {port} of {host}, fingerprint {fingerprint}{token}", flush=True)
        showing = asyncio.create_task(window.show()) if window else None
        async with await listener.accept() as connection:
            await receive(connection, canvas, look)
        if showing is not None:
            await showing
    if arguments.times:
        arguments.times.write_text(json.dumps(canvas.times))
    if arguments.out:
        canvas.image.save(arguments.out)


if __name__ == "__main__":
    try:
        asyncio.run(_main(_arguments()))
    except ImportError as error:
        sys.exit(f"--window: {error}")
    except (JpegError, OSError, ValueError, live.EndpointError) as error:
        sys.exit(str(error))
