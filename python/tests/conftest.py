"""Shared by all tests."""

import os
import signal
from pathlib import Path

import pytest
from fake import FakeEngine

from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Study

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


def record_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Adds a skipped test and its reason to the file that `make test` counts, if there is one."""
    file = os.environ.get("ONTEMPO_SKIPS")
    if file is None or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = " ".join(reason.removeprefix("Skipped: ").split())
    with Path(file).open("a", encoding="utf-8") as skips:
        skips.write(f"python\t{report.nodeid}\t{reason}\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    record_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    record_skip(report)


def pytest_configure() -> None:
    """Handle SIGINT even if the parent process ignores it, as a shell's background job does.

    Programs started by the tests then handle it, too: an ignored signal is inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def store(tmp_path: Path, engine: FakeEngine) -> Store:
    return Store(tmp_path / "cells", engine.fingerprint())


@pytest.fixture
def study(engine: FakeEngine, store: Store) -> Study:
    return Study(engine, store, jobs=2)


@pytest.fixture
def cells() -> list[Cell]:
    return [Cell(Path("video.toml"), (), seed, (("kind", "a"),)) for seed in range(6)]
