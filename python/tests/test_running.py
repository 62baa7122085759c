"""How `make test` runs the test programs of Rust."""

import json
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "run-tests"


def run(folder: Path, program: str) -> tuple[int, str]:
    """The exit code, and what was printed, of a run of one program: a shell's."""
    file = folder / "program"
    file.write_text(f"#!/bin/sh\necho 'test a::b ... FAILED'\n{program}\n")
    file.chmod(0o755)
    (folder / "list").write_text(json.dumps(["crate/name", str(file), str(folder)]) + "\n")
    command = [sys.executable, str(SCRIPT), "run", str(folder / "list")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


# The runner stands still for three tenths of a second, as it does where its machine is paused.
PAUSE = "kill -STOP $PPID; sleep 0.3; kill -CONT $PPID; sleep 0.2; "


def test_what_fails_has_failed(tmp_path: Path) -> None:
    code, text = run(tmp_path, "exit 7")
    assert code == 1
    assert text.endswith("crate/name failed: exit code 7\n\nfailed: crate/name\n")


def test_cpu_time_is_counted_with_that_of_children(tmp_path: Path) -> None:
    busy = "import time; [0 for _ in iter(lambda: time.process_time() < 1.6, False)]"
    code, text = run(tmp_path, f'"{sys.executable}" -c "{busy}"')
    assert code == 0
    assert re.match(r"crate/name \(1 of 1, \d+ s, 2 s CPU\)\n", text), text


def test_what_fails_while_the_machine_stood_still_runs_again(tmp_path: Path) -> None:
    code, text = run(tmp_path, f"[ -e done ] && exit; touch done; {PAUSE} exit 7")
    assert code == 0
    # No result counts but the last.
    lines = text.splitlines()
    assert lines.count("| test a::b ... FAILED") == lines.count("test a::b ... FAILED") == 1
    assert lines[-1] == "ran again after pauses of this machine: crate/name a::b"


def test_what_fails_again_and_again_has_failed(tmp_path: Path) -> None:
    code, text = run(tmp_path, f"echo once >> runs; {PAUSE} exit 7")
    assert code == 1
    assert (tmp_path / "runs").read_text() == "once\n" * 3
    assert text.endswith("failed: crate/name\n")


def test_what_a_signal_ends_has_failed(tmp_path: Path) -> None:
    code, text = run(tmp_path, f"echo once >> runs; {PAUSE} kill -SEGV $$")
    assert code == 1
    assert (tmp_path / "runs").read_text() == "once\n"
    assert text.endswith("crate/name failed: exit code -11\n\nfailed: crate/name\n")
