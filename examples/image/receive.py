"""Draw a picture while it arrives: python -m examples.image.receive --out picture.png."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import ontempo as ot

from .canvas import Canvas
from .jpeg import JpegError
from .send import DRAWN, LABEL

__all__ = ["receive"]

PATIENCE_S = 3.0
"""How long the answer to a picture may take to arrive."""

FRAME_S = 0.1
"""At most so often is a frame written, or the window drawn anew."""


async def receive(
    connection: ot.Connection, canvas: Canvas, look: Callable[[], None] = lambda: None
) -> None:
    """Draw the picture that a connection carries; `look` is called at each piece.

    Raises `JpegError` where it is none, and `ClosedError` where the connection ended before it.
    """
    flow = await connection.accept_flow()
    if flow.config.label != LABEL:
        raise JpegError(f"the peer sends {flow.config.label!r}, not {LABEL!r}")
    async for delivery in flow:
        if isinstance(delivery, ot.Unit):
            canvas.add(delivery.number, delivery.data)
            look()
    if canvas.share < 1:
        raise JpegError(f"the peer has sent {canvas.share:.0%} of its picture")
    answer = await connection.open_flow(ot.FlowConfig(label=DRAWN))
    answer.finish()
    # The sender closes when it has the answer; the word of that can be lost.
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await connection.closed()


class Frames:
    """The canvas as a numbered PNG now and then."""

    def __init__(self, canvas: Canvas, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._canvas, self._folder = canvas, folder
        self._next_s, self._number = 0.0, 0

    def __call__(self) -> None:
        if (now := time.monotonic()) >= self._next_s or self._canvas.share == 1:
            self._canvas.image.save(self._folder / f"{self._number:04}.png")
            self._next_s, self._number = now + FRAME_S, self._number + 1


async def show(canvas: Canvas) -> None:
    """Show the canvas in a window until that is closed."""
    import tkinter  # noqa: PLC0415 - not every Python has it, nor every machine a screen

    from PIL import ImageTk  # noqa: PLC0415

    root = tkinter.Tk()
    root.title("ontempo")
    label = tkinter.Label(root)
    label.pack()
    is_open = [True]
    root.protocol("WM_DELETE_WINDOW", is_open.clear)
    while is_open:
        photo = ImageTk.PhotoImage(canvas.image)
        label.configure(image=photo)
        root.update()
        await asyncio.sleep(FRAME_S)
    root.destroy()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("examples.image.receive", description=__doc__)
    parser.add_argument("--listen", default=":4433", metavar="[HOST]:PORT")
    parser.add_argument("--identity", type=Path, help="certificate and key, made where missing")
    parser.add_argument("--token", default="", help="what a sender must know")
    parser.add_argument("--out", type=Path, help="where the picture is kept, such as picture.png")
    parser.add_argument("--frames", type=Path, metavar="FOLDER", help="what was drawn, as PNGs")
    parser.add_argument("--times", type=Path, help="when how much was drawn, as JSON")
    parser.add_argument("--window", action="store_true", help="show it; needs tkinter")
    return parser.parse_args()


async def _main(arguments: argparse.Namespace) -> None:
    identity = ot.Identity.kept(arguments.identity) if arguments.identity else None
    canvas = Canvas()
    look = Frames(canvas, arguments.frames) if arguments.frames else lambda: None
    async with ot.listen(arguments.listen, identity=identity, token=arguments.token) as listener:
        host, port = listener.local
        print(f"listening at port {port} of {host}, fingerprint {listener.fingerprint}", flush=True)
        showing = asyncio.create_task(show(canvas)) if arguments.window else None
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
    except (JpegError, OSError, ValueError, ot.EndpointError) as error:
        sys.exit(str(error))
