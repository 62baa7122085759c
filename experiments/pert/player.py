"""Plays a film from HTTP or a pipe with VLC, without display or loudspeaker; stamps VLC's own log.

A separate program, run in a host of the emulated network; it needs the standard library only.

    python player.py HOST PORT CACHING_MS
    python player.py pipe CACHING_MS COMMAND...     # a program's output, instead of HTTP

Its output: VLC's lines, each after the time of CLOCK_MONOTONIC in seconds, and at the end
``TIME player: ended with CODE after SECONDS of processor time``. VLC refuses to run as root, so it
is run as `nobody`.
"""

import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

NOBODY = 65_534

PRIORITY = 1
"""The lowest real-time priority, as the emulator's: the player precedes the machine's other work,
which must not affect the measurement. A nice value does not suffice: it counts within a
session only (sched(7), autogroups)."""

WAIT_S = 10.0
"""How long to wait for the server to listen."""

INTERFACE = "ontempo0"
"""The interface of each host of the emulator."""

RECEIVE_BUFFER = Path("/proc/sys/net/ipv4/tcp_rmem")

RECEIVE_BUFFER_BYTES = (4096, 87_380, 4_194_304)
"""Minimum, default and maximum of a socket's receive buffer in Linux of the thesis' time (2.6.17 to
2.6.39). Much of the data that arrives early waits there."""

OPTIONS = (
    "--intf=dummy",
    "--vout=dummy",
    "--aout=dummy",
    "--no-color",
    "--verbose=2",
    "--no-media-library",
    "--no-osd",
    "--no-spu",
    # VLC 1.1.4, which the thesis used, did not fetch ahead; today's fetches 16 MiB.
    "--prefetch-buffer-size=64",
    "--prefetch-read-size=16384",
    "--play-and-exit",
)


CACHES = ("network", "file")
"""VLC's buffers for HTTP, and for a pipe."""


def limit_receive_buffer() -> None:
    """Give this network namespace the buffer of the thesis' time; never the machine's own."""
    if INTERFACE not in (name for _, name in socket.if_nameindex()):
        sys.exit("the player runs in a host of an emulated network only")
    RECEIVE_BUFFER.write_text(" ".join(map(str, RECEIVE_BUFFER_BYTES)))


def wait_for(host: str, port: int) -> None:
    """Wait until the server listens; exit with a message after `WAIT_S`."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"no server at {host}, port {port}: {error}")
            time.sleep(0.1)
        else:
            return


def play(url: str, caching_ms: str, source: IO[bytes] | int = subprocess.DEVNULL) -> int:
    """Play to the end, from a URL or a pipe; returns the player's exit code."""
    with tempfile.TemporaryDirectory(prefix="ontempo-player-") as home:
        os.chown(home, NOBODY, NOBODY)
        with subprocess.Popen(
            ["vlc", *OPTIONS, *(f"--{of}-caching={caching_ms}" for of in CACHES), url],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=home,
            env={"HOME": home, "PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            errors="replace",
            text=True,
        ) as player:
            for line in player.stdout or ():
                log(line.rstrip())
    return player.returncode


def log(line: str) -> None:
    """Write a line with the time."""
    print(f"{time.monotonic():.4f} {line}", flush=True)


def play_http(host: str, port: str, caching_ms: str) -> int:
    """Play a server's film."""
    limit_receive_buffer()
    wait_for(host, int(port))
    return play(f"http://{host}:{port}/film.mp4", caching_ms)


def play_pipe(caching_ms: str, *command: str) -> int:
    """Play a program's output."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as source:
        code = play("fd://0", caching_ms, source.stdout or subprocess.DEVNULL)
        source.terminate()
    return code


def main() -> None:
    """Play, and log how it ended."""
    arguments = sys.argv[1:]
    if shutil.which("vlc") is None:
        sys.exit("the program vlc is missing")
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except PermissionError as error:
        log(f"player: runs as an ordinary process: {error}")
    is_pipe = arguments[0] == "pipe"
    code = play_pipe(*arguments[1:]) if is_pipe else play_http(*arguments)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    log(f"player: ended with {code} after {used.ru_utime + used.ru_stime:.2f} s of processor time")


if __name__ == "__main__":
    main()
