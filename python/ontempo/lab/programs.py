"""The program ``ontempo`` and others, run so that Ctrl-C lets them take down what they set up."""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ontempo.lab.errors import BAD_INPUT, BadInputError, UnfitEnvironmentError

LOOK_EVERY_S = 0.1
"""How long Ctrl-C may go unseen. polars' signal handler restarts a system call that the signal
interrupts, so a wait without a limit would never see it."""

URGENT = ("nice", "-n", "-15")
"""Before what runs by the real clock, so that it goes before other programs of this machine."""

END_WITHIN_S = 20
"""How long a program may take to take down what it set up."""


def program() -> str:
    """The program ``ontempo``: the one beside this Python, or the one on the path."""
    beside = Path(sys.executable).parent / "ontempo"
    found = str(beside) if beside.exists() else shutil.which("ontempo")
    if not found:
        raise UnfitEnvironmentError("the program ontempo is missing; build it with: make build")
    return found


def run_program(command: Sequence[str], what: str) -> str:
    """Run a program to its end and return what it prints.

    Where it fails, what it complained of is raised in the name of `what`: bad input by the exit
    code for that, anything else as this machine's. On Ctrl-C it is asked to end, and waited for.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as complaints:
        running = subprocess.Popen(command, stdout=out, stderr=complaints)
        try:
            code = _wait(running)
        except BaseException:
            end(running)
            raise
        complaints.seek(0)
        told = complaints.read().strip().removeprefix("error: ")
        if code:
            kind = BadInputError if code == BAD_INPUT else UnfitEnvironmentError
            raise kind(f"{what}: {told or f'{command[0]} ended with exit code {code}'}")
        if told:
            print(f"{what}: {told}", file=sys.stderr)
        out.seek(0)
        return out.read()


def _wait(running: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return running.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            continue


def end(running: subprocess.Popen[bytes]) -> None:
    """Ask a program to end as Ctrl-C does; end it where it does not."""
    running.send_signal(signal.SIGINT)
    try:
        running.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
