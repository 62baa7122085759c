"""How `make test` counts what it ran and skipped."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "count-tests"
OUTPUT = """
test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
........s                                                                [100%]
8 passed, 1 skipped in 52.10s
"""
STEPS = """first\tbuild\t1000000
first\t\t1000090
tests\ttests\t1000090
beside\tlint\t1000090
tests\t\t1000140
"""
TSHARK = "the program tshark is missing"
VEGAS = "this kernel has the congestion control vegas"


def count(
    folder: Path, output: str, skips: list[str], code: int = 0, *, ci: bool = False
) -> tuple[int, list[str]]:
    """The exit code and the lines printed, without the first: how long the steps took."""
    (folder / "output").write_text(output)
    (folder / "skips").write_text("".join(f"{line}\n" for line in skips))
    (folder / "steps").write_text(STEPS)
    environment = {**os.environ, "CI": str(ci).lower()}
    command = [sys.executable, str(SCRIPT), str(folder), str(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    took, *lines = done.stdout.splitlines()
    assert took.startswith("took: build 90 s, tests 50 s, lint ")
    return done.returncode, lines


def test_a_rust_test_that_skipped_itself_is_not_counted_as_passed(tmp_path: Path) -> None:
    skips = [
        f"rust\tvideo-1 a\t{TSHARK}",
        f"rust\tvideo-1 a\t{TSHARK}",  # it asked twice
        f"rust\tvideo-2 a\t{TSHARK}",
        "python\ttests/x.py::y\tno ffmpeg",
    ]
    code, lines = count(tmp_path, OUTPUT, skips)
    assert code == 0
    assert lines == ["20 passed, 0 failed, 3 skipped", f"    2: {TSHARK}", "    1: no ffmpeg"]


def test_ci_skips_for_listed_reasons_only(tmp_path: Path) -> None:
    output = OUTPUT.replace(", 1 skipped", "")
    allowed = [f"rust\tkernel a\t{VEGAS}"]
    assert count(tmp_path, output, allowed, ci=True)[0] == 0
    code, lines = count(tmp_path, output, [*allowed, f"rust\tvideo a\t{TSHARK}"], ci=True)
    assert code == 1
    assert lines[:2] == [f"CI may not skip: {TSHARK}", "20 passed, 1 failed, 2 skipped"]


def test_a_step_that_fails_is_named_and_counted(tmp_path: Path) -> None:
    code, lines = count(tmp_path, OUTPUT.replace(", 1 skipped", ""), [], code=2)
    assert code == 2
    assert lines == ["the step lint failed", "22 passed, 1 failed, 0 skipped"]


def test_failures_are_counted_and_no_result_is_one(tmp_path: Path) -> None:
    failing = OUTPUT.replace("8 passed, 1 skipped", "2 failed, 6 passed, 1 error")
    failed = ["the step lint failed", "20 passed, 3 failed, 0 skipped"]
    assert count(tmp_path, failing, [], code=2) == (2, failed)
    code, lines = count(tmp_path, "", [])
    assert code == 1
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


def test_what_ran_again_is_named(tmp_path: Path) -> None:
    again = "ran again after pauses of this machine: cli/relay"
    code, lines = count(tmp_path, f"{OUTPUT}{again}\n", ["python\ttests/x.py::y\tno ffmpeg"])
    assert code == 0
    assert lines == [again, "22 passed, 0 failed, 1 skipped", "    1: no ffmpeg"]


def test_the_slowest_are_named(tmp_path: Path) -> None:
    programs = "".join(f"crate/p{n} ({n} of 7, {n}0 s, {8 - n} s CPU)\n" for n in range(1, 8))
    calls = "6.18s call     python/tests/a.py::b[1]\n0.02s setup    python/tests/a.py::c\n"
    code, lines = count(tmp_path, programs + calls + OUTPUT.replace(", 1 skipped", ""), [])
    assert code == 0
    slowest = [f"crate/p{n} {n}0 s" for n in range(7, 2, -1)]
    assert lines[0] == f"slowest: {', '.join([*slowest, 'python/tests/a.py::b[1] 6 s'])}"
    computing = [f"crate/p{n} {8 - n} s" for n in range(1, 6)]
    assert lines[1] == f"most CPU time: {', '.join(computing)}"
