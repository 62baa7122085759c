"""A server of images over HTTP/1.1, as the slide show of qosockets, III.C has one.

python examples/slideshow/server.py --listen 127.0.0.1:8000
python examples/slideshow/server.py --listen 127.0.0.1:8000 --smallest 18000 --largest 58000

Image N is at ``/N``: a picture of stripes in PGM, of a size drawn for N between the smallest and
the largest, which any viewer shows. ``X-Sent-Ns`` is the time of sending, in nanoseconds of this
machine's wall clock. Ctrl-C ends it. No encryption, no access control: for measurements.
"""

import argparse
import json
import random
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MIN_BYTES, MAX_BYTES = 18_000, 58_000
"""Bytes of an image (qosockets, III.C)."""

WIDTH = 200
"""Pixels in a row of an image."""


def image(number: int, seed: int, smallest: int, largest: int) -> bytes:
    """Image `number` as PGM, of `smallest` to `largest` bytes, equally likely; always the same."""
    size = random.Random(f"{seed} {number}").randint(smallest, largest)
    head = f"P5\n# image {number}\n{WIDTH} {size // WIDTH}\n255\n".encode()
    row = bytes((place + number) % 256 for place in range(WIDTH))
    # Viewers ignore bytes beyond the last whole row.
    return (head + row * (size // WIDTH + 1))[:size]


class Slides(BaseHTTPRequestHandler):
    """Answers ``GET /N`` with image N; a connection carries any number of requests."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        """One image, head and body in one piece."""
        number = self.path.removeprefix("/")
        if not (number.isascii() and number.isdigit()):
            self.send_error(404, "write the number of an image: /0")
            return
        body = image(int(number), *self.server.profile)
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: image/x-portable-graymap\r\n"
            f"Content-Length: {len(body)}\r\nX-Sent-Ns: {time.time_ns()}\r\n\r\n"
        )
        self.wfile.write(head.encode() + body)

    def log_message(self, *_: object) -> None:
        """Nothing: the client measures."""


class Server(ThreadingHTTPServer):
    """Serves images of one profile: seed, smallest and largest size."""

    daemon_threads = True

    def __init__(self, at: tuple[str, int], profile: tuple[int, int, int]) -> None:
        self.profile = profile
        if ":" in at[0]:
            self.address_family = socket.AF_INET6
        super().__init__(at, Slides)


def address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, or ``[V6]:PORT``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is no address; write 127.0.0.1:8000")
    return host.removeprefix("[").removesuffix("]"), int(port)


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--listen", type=address, default=("127.0.0.1", 8000), metavar="HOST:PORT")
    parser.add_argument("--smallest", type=int, default=MIN_BYTES, metavar="BYTES")
    parser.add_argument("--largest", type=int, default=MAX_BYTES, metavar="BYTES")
    parser.add_argument("--seed", type=int, default=0, help="other sizes for the same numbers")
    arguments = parser.parse_args()
    if not 100 <= arguments.smallest <= arguments.largest:  # noqa: PLR2004
        parser.error("--smallest: from 100 bytes to --largest")
    try:
        server = Server(arguments.listen, (arguments.seed, arguments.smallest, arguments.largest))
    except OSError as error:
        parser.exit(3, f"--listen: {error}\n")
    host, port = server.server_address[:2]
    print(json.dumps({"event": "listening", "local": f"{host!s}:{port}"}), flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
