"""Serves one file by HTTP over a chosen congestion control, and logs its window every 10 ms.

A separate program, run in a host of the emulated network; it needs the standard library only.

    python serve.py FILE PORT CONTROL

Its output, one line each: ``control TIME NAME`` for a connection, and ``tcp TIME`` with the
numbers of `FIELDS` for a sample of it. TIME is of CLOCK_MONOTONIC, in seconds.
"""

import fcntl
import os
import socket
import struct
import sys
import termios
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

EVERY_S = 0.01
"""Between samples, as in the paper."""

FIELDS = {
    "cwnd": (80, "I"),
    "ssthresh": (76, "I"),
    "unacked": (24, "I"),
    "srtt_us": (68, "I"),
    "retransmitted": (100, "I"),
    "acked_bytes": (120, "Q"),
}
"""Logged fields of TCP_INFO: offset and type in `struct tcp_info` (linux/tcp.h)."""

_INFO_BYTES = 128

PRIORITY = 1
"""The lowest real-time priority, the same as the emulator's."""


def sample(info: bytes) -> list[int]:
    """The numbers of `FIELDS`, from the kernel's answer."""
    return [struct.unpack_from(kind, info, place)[0] for place, kind in FIELDS.values()]


def log(word: str, *numbers: object) -> None:
    """Write one line, with the time."""
    # Flushed: the run ends this program by a signal.
    print(word, f"{time.monotonic():.4f}", *numbers, flush=True)


def watch(connection: socket.socket, ended: threading.Event) -> None:
    """Log the connection's TCP_INFO until it ends."""
    due = time.monotonic()
    while not ended.wait(max(0.0, due - time.monotonic())):
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        log("tcp", *sample(info))
        due = max(due + EVERY_S, time.monotonic())


def unacknowledged(connection: socket.socket) -> int:
    """Bytes that the connection's TCP still holds (tcp(7), SIOCOUTQ)."""
    answer = fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


class Server(ThreadingHTTPServer):
    """Listens with the congestion control, which its connections inherit."""

    daemon_threads = True

    def __init__(self, film: Path, port: int, control: str) -> None:
        super().__init__(("", port), Handler, bind_and_activate=False)
        self.film = film
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        self.server_bind()
        self.server_activate()


class Handler(BaseHTTPRequestHandler):
    """Answers every GET with the whole film: it has no ranges, so that a play is one connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Send the film, and log the connection meanwhile."""
        name = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        log("control", name.rstrip(b"\0").decode())
        ended = threading.Event()
        watcher = threading.Thread(target=watch, args=(self.connection, ended))
        watcher.start()
        try:
            with self.server.film.open("rb") as film:
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", "video/mp4")
                self.send_header("Content-Length", str(os.fstat(film.fileno()).st_size))
                self.end_headers()
                self.connection.sendfile(film)
            while unacknowledged(self.connection):
                time.sleep(EVERY_S)
        except ConnectionError:
            pass  # The player has closed the connection.
        finally:
            ended.set()
            watcher.join()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing else."""


def main() -> None:
    """Serve until ended."""
    film, port, control = sys.argv[1:]
    try:
        # To precede the machine's other work, which must not affect the measurement.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except PermissionError as error:
        log("note", f"runs as an ordinary process: {error}")
    try:
        server = Server(Path(film), int(port), control)
    except FileNotFoundError:
        sys.exit(f"the kernel has no congestion control {control}")
    except OSError as error:
        sys.exit(f"cannot serve at port {port}: {error.strerror}")
    server.serve_forever()


if __name__ == "__main__":
    main()
