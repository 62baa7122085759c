"""The program ``ontempo`` and others, run so that they can clean up on Ctrl-C."""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ontempo.lab.errors import BAD_INPUT, BadInputError, UnfitEnvironmentError

LOOK_EVERY_S = 0.1
"""How often Ctrl-C is checked for. polars' signal handler restarts a system call that the signal
interrupts, so a wait without a limit would never see it."""

URGENT = ("nice", "-n", "-15")
"""Prefix of commands that run in real time, to precede other programs of this machine."""

END_WITHIN_S = 20
"""How long a program may take to clean up after SIGINT."""


_running: set[subprocess.Popen[bytes]] = set()


def program() -> str:
    """The program ``ontempo``: the one beside this Python, or the one on the path."""
    beside = Path(sys.executable).parent / "ontempo"
    found = str(beside) if beside.exists() else shutil.which("ontempo")
    if not found:
        raise UnfitEnvironmentError("the program ontempo is missing; build it with: make build")
    return found


def run_program(
    command: Sequence[str], what: str, cwd: Path | None = None, meant: str | None = None
) -> str:
    """Run a program to its end, in the folder `cwd`, and return what it prints.

    What it says on stderr is printed with `what` before it, without the lines that match `meant`.
    If it fails, its stderr is raised instead: `BadInputError` for the exit code of
    bad input, else `UnfitEnvironmentError`. On Ctrl-C it gets SIGINT, and is waited for.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as complaints:
        running = subprocess.Popen(command, stdout=out, stderr=complaints, cwd=cwd)
        _running.add(running)
        try:
            code = _wait(running)
        except BaseException:
            end(running)
            raise
        finally:
            _running.discard(running)
        complaints.seek(0)
        said = complaints.read().strip().removeprefix("error: ").splitlines()
        message = "\n".join(line for line in said if meant is None or not re.match(meant, line))
        if code:
            kind = BadInputError if code == BAD_INPUT else UnfitEnvironmentError
            raise kind(f"{what}: {message or f'{command[0]} ended with exit code {code}'}")
        if message:
            print(f"{what}: {message}", file=sys.stderr)
        out.seek(0)
        return out.read()


def _wait(running: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return running.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            continue


def end_running() -> None:
    """End what other threads run: Ctrl-C reaches the main thread alone."""
    for running in list(_running):
        end(running)


def end(running: subprocess.Popen[bytes]) -> None:
    """Send SIGINT to a program; kill it if it does not end within `END_WITHIN_S`."""
    running.send_signal(signal.SIGINT)
    try:
        running.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
