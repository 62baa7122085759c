"""The contenders that are no program of their own: plain RTP, and HTTP over the kernel's TCP.

    python relay.py rtp-send INPUT PEER PORT          UDP in, RTP out (RFC 3550, payload type 33)
    python relay.py rtp-receive PORT OUTPUT           and back
    python relay.py http-serve INPUT PORT CONTROL     UDP in, a chunked response without end
    python relay.py http-read PEER PORT OUTPUT        its reader, UDP out

Standard library only: it runs in the emulator's hosts.
"""

import contextlib
import http.client
import itertools
import queue
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_RTP = struct.Struct("!BBHII")
_VERSION, _MP2T, _SSRC, _CLOCK_HZ = 0x80, 33, 0x6F6E7465, 90_000
_MAX_DATAGRAM = 65_536
_PACKET, _PER_DATAGRAM = 188, 7
_LOCAL = "127.0.0.1"


def udp() -> socket.socket:
    """A socket for datagrams."""
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def rtp_send(inlet: str, peer: str, port: str) -> None:
    """Put a header before each datagram (RFC 2250, section 2)."""
    with udp() as taken, udp() as out:
        taken.bind((_LOCAL, int(inlet)))
        for number in itertools.count():
            datagram = taken.recv(_MAX_DATAGRAM)
            stamp = int(time.monotonic() * _CLOCK_HZ) & 0xFFFF_FFFF
            header = _RTP.pack(_VERSION, _MP2T, number & 0xFFFF, stamp, _SSRC)
            out.sendto(header + datagram, (peer, int(port)))


def rtp_receive(port: str, outlet: str) -> None:
    """Take the header off, in the order of arrival."""
    with udp() as taken, udp() as out:
        taken.bind(("", int(port)))
        while True:
            out.sendto(taken.recv(_MAX_DATAGRAM)[_RTP.size :], (_LOCAL, int(outlet)))


class Server(ThreadingHTTPServer):
    """Serves what comes in to its readers; what TCP does not take yet waits, without a limit."""

    daemon_threads = True

    def __init__(self, port: int, control: str) -> None:
        super().__init__(("", port), Handler, bind_and_activate=False)
        self.readers: list[queue.SimpleQueue[bytes]] = []
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        self.server_bind()
        self.server_activate()

    def take(self, inlet: int) -> None:
        """Hand each datagram to every reader."""
        with udp() as taken:
            taken.bind((_LOCAL, inlet))
            while True:
                datagram = taken.recv(_MAX_DATAGRAM)
                for reader in self.readers:
                    reader.put(datagram)


class Handler(BaseHTTPRequestHandler):
    """Answers every GET with the stream from now on, a chunk for each datagram."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Send until the reader leaves."""
        mine: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send_response(http.HTTPStatus.OK)
        self.send_header("Content-Type", "video/mp2t")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.readers.append(mine)
        try:
            while datagram := mine.get():
                self.connection.sendall(b"%x\r\n%b\r\n" % (len(datagram), datagram))
        except ConnectionError:
            pass  # The reader has seen enough.
        finally:
            self.server.readers.remove(mine)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Tell nothing."""


def http_serve(inlet: str, port: str, control: str) -> None:
    """Serve until ended."""
    server = Server(int(port), control)
    threading.Thread(target=server.take, args=(int(inlet),), daemon=True).start()
    server.serve_forever()


def http_read(peer: str, port: str, outlet: str) -> None:
    """Pull the stream as soon as somebody serves it, and send it on in datagrams."""
    while True:
        reader = http.client.HTTPConnection(peer, int(port), timeout=10)
        try:
            reader.request("GET", "/")
            response = reader.getresponse()
        except OSError:
            reader.close()
            time.sleep(0.1)
            continue
        break
    waiting = b""
    with udp() as out, contextlib.suppress(OSError, http.client.HTTPException):
        while data := response.read1(_MAX_DATAGRAM):
            waiting += data
            while len(waiting) >= _PACKET:
                size = min(len(waiting) // _PACKET, _PER_DATAGRAM) * _PACKET
                out.sendto(waiting[:size], (_LOCAL, int(outlet)))
                waiting = waiting[size:]
    signal.pause()  # The server has ended; who started this ends it.


ROLES: dict[str, Callable[..., None]] = {
    "rtp-send": rtp_send,
    "rtp-receive": rtp_receive,
    "http-serve": http_serve,
    "http-read": http_read,
}


def main() -> None:
    """Play a role until ended."""
    ROLES[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
