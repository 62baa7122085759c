"""Cells on a Dask cluster: every one once, even if workers die."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small import TEXT

from ontempo.lab import cluster
from ontempo.lab.cells import Cell, Planned
from ontempo.lab.cluster import DaskRunner
from ontempo.lab.engine import NativeEngine
from ontempo.lab.errors import BadInputError, UnfitEnvironmentError
from ontempo.lab.store import Store
from ontempo.lab.study import Study

distributed: Any = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")  # tornado's and Dask's own are not ours


@pytest.fixture(scope="module")
def runner() -> Iterator[DaskRunner]:
    with DaskRunner("local", 2).connected() as connected:
        yield connected


def small_cells(folder: Path, count: int, duration: str = "30 s") -> list[Cell]:
    scenario = folder / "small.toml"
    scenario.write_text(TEXT)
    override = f'duration="{duration}"'
    return [Cell(scenario, (override,), seed, (("seed_label", seed),)) for seed in range(count)]


def a_study(folder: Path, runner: DaskRunner | int) -> Study:
    engine = NativeEngine()
    return Study(engine, Store(folder, engine.fingerprint()), runner)


def test_a_cluster_and_the_cores_make_the_same_cells(tmp_path: Path, runner: DaskRunner) -> None:
    cells = small_cells(tmp_path, 5)
    here, there = a_study(tmp_path / "here", 2), a_study(tmp_path / "there", runner)
    for study in (here, there):
        study.run(study.plan(cells))
    for planned in here.plan(cells).cells:
        ours, theirs = here.store.path(planned.key), there.store.path(planned.key)
        assert ours.read_bytes() == theirs.read_bytes()


class KillOneWorker:
    """Watches a study, and kills a worker process once some cells are back."""

    def __init__(self, runner: DaskRunner, after: int) -> None:
        self.runner = runner
        self.after = after
        self.seen: Counter[str] = Counter()
        self.killed: int | None = None

    def start(self, _plan: object) -> None:
        pass

    def finished(self, planned: Planned) -> None:
        self.seen[planned.key] += 1
        if len(self.seen) == self.after:
            pids = self.runner.client.run(os.getpid)
            self.killed = next(iter(pids.values()))
            os.kill(self.killed, signal.SIGKILL)


@pytest.mark.timeout(90)
def test_a_killed_workers_cells_run_again_and_each_is_found_once(
    tmp_path: Path, runner: DaskRunner
) -> None:
    cells = small_cells(tmp_path, 40, "200 s")
    study = a_study(tmp_path / "cells", runner)
    plan = study.plan(cells)
    watch = KillOneWorker(runner, after=8)
    results = study.run(plan, watch)
    assert watch.killed is not None
    assert watch.seen == Counter(planned.key for planned in plan.cells)
    assert results.table("links").group_by("seed").len().height == len(cells)
    assert len(list(study.store.folder.rglob("*.zip"))) == len(cells)
    assert not study.plan(cells).missing


def test_ctrl_c_keeps_received_results(tmp_path: Path, runner: DaskRunner) -> None:
    class PressWhenSome(KillOneWorker):
        def finished(self, planned: Planned) -> None:
            self.seen[planned.key] += 1
            if len(self.seen) == self.after:
                raise KeyboardInterrupt

    study = a_study(tmp_path / "cells", runner)
    plan = study.plan(small_cells(tmp_path, 12))
    with pytest.raises(Exception, match="of 12 cells are kept") as raised:
        study.run(plan, PressWhenSome(runner, after=3))
    assert getattr(raised.value, "exit_code", None) == 130
    kept = len(list(study.store.folder.rglob("*.zip")))
    assert 3 <= kept < 12
    assert len(study.plan(small_cells(tmp_path, 12)).missing) == 12 - kept


class OtherEngine(NativeEngine):
    """A simulator whose fingerprint differs on the workers."""

    def __init__(self) -> None:
        self.owner = os.getpid()

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}{'' if os.getpid() == self.owner else '-other'}"


def test_workers_with_another_simulator_are_refused(tmp_path: Path, runner: DaskRunner) -> None:
    engine = OtherEngine()
    study = Study(engine, Store(tmp_path / "cells", engine.fingerprint()), runner)
    with pytest.raises(UnfitEnvironmentError, match="install the same ontempo on both"):
        study.run(study.plan(small_cells(tmp_path, 2)))


def test_an_address_that_does_not_answer_is_an_environment_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_WITHIN_S", 1)
    begin = time.monotonic()
    with (
        pytest.raises(UnfitEnvironmentError, match=r"127.0.0.1:9: no scheduler answers"),
        DaskRunner("tcp://127.0.0.1:9", 2).connected(),
    ):
        pass
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize("address", ["nonsense", "http://x:1", "tcp://host", ""])
def test_an_invalid_address_is_bad_input(address: str) -> None:
    with (
        pytest.raises(BadInputError, match="write one such as tcp://host:8786"),
        DaskRunner(address, 2).connected(),
    ):
        pass


def test_a_scheduler_without_workers_is_reported_and_waited_for(tmp_path: Path) -> None:
    notices: list[str] = []
    with distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tcp://", dashboard_address=None
    ) as empty:
        coming = threading.Timer(0.5, lambda: empty.scale(1))
        coming.start()
        study = a_study(tmp_path / "cells", 1)
        with DaskRunner(empty.scheduler_address, 2, notices.append).connected() as runner:
            study.runner = runner
            study.run(study.plan(small_cells(tmp_path, 3)))
        coming.join()
    assert "has no workers yet" in notices[0]
    assert not study.plan(small_cells(tmp_path, 3)).missing
