"""Studies: every cell runs once, is stored at once, and an interrupted study resumes."""

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from fake import FakeEngine

from ontempo.lab.errors import BadInputError, InterruptedStudyError, UnfitEnvironmentError
from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Plan, Planned, Study


def test_results_come_in_the_order_asked_for_with_their_labels(
    study: Study, cells: list[Cell]
) -> None:
    results = study.run(study.plan(reversed(cells)))
    table = results.table("flows")
    assert table["seed"].unique(maintain_order=True).to_list() == [5, 4, 3, 2, 1, 0]
    assert set(table["kind"]) == {"a"}
    one = results.of(cells[:1]).table("flows")
    assert set(one["seed"]) == {0}


def test_results_do_not_depend_on_the_number_of_jobs(
    tmp_path: Path, engine: FakeEngine, cells: list[Cell]
) -> None:
    tables = []
    for jobs in (1, 4):
        study = Study(engine, Store(tmp_path / str(jobs), "engine-1"), jobs)
        tables.append(study.run(study.plan(cells)).table("playout"))
    assert tables[0].equals(tables[1])


def test_an_unchanged_study_is_not_run_again(
    study: Study, engine: FakeEngine, cells: list[Cell]
) -> None:
    study.run(study.plan(cells))
    assert engine.runs == len(cells)
    study.run(study.plan(cells))
    assert engine.runs == len(cells)


def test_only_new_cells_of_a_grown_study_run(
    study: Study, engine: FakeEngine, cells: list[Cell]
) -> None:
    study.run(study.plan(cells[:4]))
    plan = study.plan(cells)
    assert [planned.cell for planned in plan.missing] == cells[4:]
    study.run(plan)
    assert engine.runs == len(cells)


def test_a_table_that_no_run_has_is_named_and_its_cell_is_whole(
    study: Study, cells: list[Cell]
) -> None:
    results = study.run(study.plan(cells))
    with pytest.raises(BadInputError, match=r"video\.toml .*: the run has no table adus"):
        results.table("adus")
    assert not study.store.take_rejected()
    assert not study.plan(cells).missing


def test_another_engine_runs_everything_again(tmp_path: Path, cells: list[Cell]) -> None:
    for version in ("engine-1", "engine-2"):
        engine = FakeEngine(version)
        study = Study(engine, Store(tmp_path, version), 2)
        study.run(study.plan(cells))
        assert engine.runs == len(cells)


def test_cells_that_differ_in_labels_only_run_once(study: Study, engine: FakeEngine) -> None:
    pair = [Cell(Path("video.toml"), labels=(("kind", kind),)) for kind in ("a", "b")]
    table = study.run(study.plan(pair)).table("flows")
    assert engine.runs == 1
    assert set(table["kind"]) == {"a", "b"}


def test_a_damaged_cell_is_run_again(study: Study, engine: FakeEngine, cells: list[Cell]) -> None:
    before = study.run(study.plan(cells)).table("flows")
    broken = study.store.path(study.plan(cells).cells[2].key)
    broken.write_bytes(broken.read_bytes()[:-40])
    plan = study.plan(cells)
    assert [planned.cell.seed for planned in plan.missing] == [2]
    assert study.store.rejected[0].path == broken
    assert study.run(plan).table("flows").equals(before)
    assert engine.runs == len(cells) + 1


class InterruptWhenStalling(threading.Thread):
    """Presses Ctrl-C once every thread of the study is busy."""

    def __init__(self, engine: FakeEngine) -> None:
        super().__init__(daemon=True)
        self.engine = engine

    def run(self) -> None:
        self.engine.stalling.wait(10)
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_keeps_what_has_finished_and_the_rest_resumes(
    study: Study, engine: FakeEngine, cells: list[Cell]
) -> None:
    engine.stall_after = 3
    InterruptWhenStalling(engine).start()
    with pytest.raises(InterruptedStudyError, match="3 of 6 cells are kept"):
        study.run(study.plan(cells))
    assert engine.cancelled >= 1
    engine.stall_after = None
    plan = study.plan(cells)
    assert len(plan.missing) == 3
    study.run(plan)
    assert engine.runs == len(cells)


def test_a_cell_that_was_being_written_as_ctrl_c_came_is_kept(
    study: Study, engine: FakeEngine, cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, broken = study.store.keep, threading.Event()

    def broken_off_once(
        key: str, tables: Mapping[str, pl.DataFrame], about: Mapping[str, object]
    ) -> None:
        if not broken.is_set():
            broken.set()
            raise KeyboardInterrupt
        keep(key, tables, about)

    monkeypatch.setattr(study.store, "keep", broken_off_once)
    one = Study(engine, study.store, jobs=1)
    with pytest.raises(InterruptedStudyError, match="of 6 cells are kept") as raised:
        one.run(one.plan(cells))
    monkeypatch.undo()
    assert raised.value.kept == engine.runs >= 1
    assert len(one.plan(cells).missing) == 6 - engine.runs


def test_a_failing_run_names_its_cell_and_stops_the_study(
    study: Study, engine: FakeEngine, cells: list[Cell]
) -> None:
    engine.fail = MemoryError("out of memory")
    with pytest.raises(UnfitEnvironmentError, match=r"video.toml \(kind a\): the run failed: out"):
        study.run(study.plan(cells))


def test_a_mistake_in_any_scenario_is_found_before_any_runs(
    study: Study, engine: FakeEngine, cells: list[Cell]
) -> None:
    with pytest.raises(BadInputError, match="unknown field nonsense"):
        study.plan([*cells, Cell(Path("video.toml"), ("nonsense=1",))])
    assert engine.runs == 0


def test_expensive_cells_start_first_and_progress_counts_all(
    engine: FakeEngine, store: Store
) -> None:
    seen: list[float] = []

    class Watch:
        def start(self, plan: Plan) -> None:
            assert plan.cost == 6

        def finished(self, planned: Planned) -> None:
            seen.append(planned.cell.cost)

    study = Study(engine, store, jobs=1)
    cells = [Cell(Path("video.toml"), seed=s, cost=float(s)) for s in (1, 3, 2)]
    study.run(study.plan(cells), Watch())
    assert sorted(seen) == [1, 2, 3]
