"""Plays a film from HTTP or a pipe with VLC, without display or loudspeaker; stamps VLC's own log.

A program of its own, run in a host of the emulated network; it needs the standard library only.

    python player.py HOST PORT CACHING_MS
    python player.py pipe CACHING_MS COMMAND...     # what a program writes, instead of HTTP

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
"""The least of the real-time priorities, which the emulator has, too: the player goes before the
machine's other work, which is not to be measured. A nice value does not do it: it counts within a
session only (sched(7), autogroups)."""

WAIT_S = 10.0
"""How long a server may take to be there."""

INTERFACE = "ontempo0"
"""What the emulator calls the interface of each of its hosts."""

RECEIVE_BUFFER = Path("/proc/sys/net/ipv4/tcp_rmem")

RECEIVE_BUFFER_BYTES = (4096, 87_380, 4_194_304)
"""Least, first and largest: what Linux of the thesis' time gave a socket (2.6.17 to 2.6.39). Much
of what arrives before its time waits there."""

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
"""What VLC buffers of HTTP, and of a pipe."""


def limit_receive_buffer() -> None:
    """Give this network namespace the buffer of the thesis' time; never the machine's own."""
    if INTERFACE not in (name for _, name in socket.if_nameindex()):
        sys.exit("the player runs in a host of an emulated network only")
    RECEIVE_BUFFER.write_text(" ".join(map(str, RECEIVE_BUFFER_BYTES)))


def wait_for(host: str, port: int) -> None:
    """Return when somebody listens."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"nobody serves at {host}, port {port}: {error}")
            time.sleep(0.1)
        else:
            return


def play(url: str, caching_ms: str, source: IO[bytes] | int = subprocess.DEVNULL) -> int:
    """Play to the end, perhaps from a pipe; the player's exit code."""
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
                tell(line.rstrip())
    return player.returncode


def tell(line: str) -> None:
    """Write a line with the time."""
    print(f"{time.monotonic():.4f} {line}", flush=True)


def play_http(host: str, port: str, caching_ms: str) -> int:
    """Play what a server has."""
    limit_receive_buffer()
    wait_for(host, int(port))
    return play(f"http://{host}:{port}/film.mp4", caching_ms)


def play_pipe(caching_ms: str, *command: str) -> int:
    """Play what a program writes."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as source:
        code = play("fd://0", caching_ms, source.stdout or subprocess.DEVNULL)
        source.terminate()
    return code


def main() -> None:
    """Play, and tell how it ended."""
    arguments = sys.argv[1:]
    if shutil.which("vlc") is None:
        sys.exit("the program vlc is missing")
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except PermissionError as error:
        tell(f"player: runs as an ordinary process: {error}")
    is_pipe = arguments[0] == "pipe"
    code = play_pipe(*arguments[1:]) if is_pipe else play_http(*arguments)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    tell(f"player: ended with {code} after {used.ru_utime + used.ru_stime:.2f} s of processor time")


if __name__ == "__main__":
    main()
