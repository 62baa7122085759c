"""The program ``ontempo`` and others, run so that they can clean up on Ctrl-C."""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from ontempo.lab.errors import BAD_INPUT, BadInputError, UnfitEnvironmentError

LOOK_EVERY_S = 0.1
"""How often Ctrl-C is checked for. polars' signal handler restarts a system call that the signal
interrupts, so a wait without a limit would never see it."""

URGENT = ("nice", "-n", "-15")
"""Prefix of commands that run in real time, to precede other programs of this machine."""

END_WITHIN_S = 20
"""How long a program may take to clean up after SIGINT."""


def program() -> str:
    """The program ``ontempo``: the one beside this Python, or the one on the path."""
    beside = Path(sys.executable).parent / "ontempo"
    found = str(beside) if beside.exists() else shutil.which("ontempo")
    if not found:
        raise UnfitEnvironmentError("the program ontempo is missing; build it with: make build")
    return found


def run_program(command: Sequence[str], what: str, cwd: Path | None = None) -> str:
    """Run a program to its end, in the folder `cwd`, and return what it prints.

    If it fails, its stderr is raised with `what` before it: `BadInputError` for the exit code of
    bad input, else `UnfitEnvironmentError`. On Ctrl-C it gets SIGINT, and is waited for.
    """
    return run_programs([(command, what)], cwd)[0]


def run_programs(
    commands: Sequence[tuple[Sequence[str], str]], cwd: Path | None = None
) -> list[str]:
    """Run programs beside each other, each as `run_program` does, until all have ended.

    Of those that fail, the first one's error is raised.
    """
    with ExitStack() as files:
        running: list[subprocess.Popen[bytes]] = []
        texts = []
        try:
            for command, _ in commands:
                out = files.enter_context(tempfile.TemporaryFile("w+"))
                complaints = files.enter_context(tempfile.TemporaryFile("w+"))
                texts.append((out, complaints))
                running.append(subprocess.Popen(command, stdout=out, stderr=complaints, cwd=cwd))
            codes = [_wait(one) for one in running]
        except BaseException:
            for one in running:
                end(one)
            raise
        return [
            _printed(command, what, code, *of_one)
            for (command, what), code, of_one in zip(commands, codes, texts, strict=True)
        ]


def _printed(
    command: Sequence[str], what: str, code: int, out: IO[str], complaints: IO[str]
) -> str:
    complaints.seek(0)
    message = complaints.read().strip().removeprefix("error: ")
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


def end(running: subprocess.Popen[bytes]) -> None:
    """Send SIGINT to a program; kill it if it does not end within `END_WITHIN_S`."""
    running.send_signal(signal.SIGINT)
    try:
        running.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
