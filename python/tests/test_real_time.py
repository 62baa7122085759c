"""Cells with real packets: after the simulated ones, in the same store."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from fake import FakeEngine
from small import TEXT
from typer.testing import CliRunner

from ontempo.lab import main, real_time, worlds
from ontempo.lab.cells import Measurement
from ontempo.lab.claims import World
from ontempo.lab.engine import NativeEngine
from ontempo.lab.errors import (
    BadInputError,
    InterruptedStudyError,
    LabError,
    UnfitEnvironmentError,
)
from ontempo.lab.programs import run_program
from ontempo.lab.real_time import (
    MACHINE,
    Emulation,
    circumstances,
    emulate,
    hindrance,
    load_control,
)
from ontempo.lab.store import Store
from ontempo.lab.study import Cell, Study
from ontempo.lab.worlds import hindrances, read_worlds

LACKING = hindrance()


def written(cell: Cell, folder: Path) -> None:
    """A measurement that takes no time."""
    pl.DataFrame({"value": [cell.seed]}).write_parquet(folder / "measured.parquet")


def measured(seed: int, write: Callable[[Cell, Path], None] = written, name: str = "made") -> Cell:
    real = Measurement(name, write, (("what", 1),))
    return Cell(Path("video.toml"), (), seed, (("kind", "a"),), 30.0, real)


def test_a_measurement_is_stored_beside_simulated_cells_and_not_run_again(
    study: Study, engine: FakeEngine, cells: list[Cell]
) -> None:
    real = [measured(seed) for seed in range(3)]
    plan = study.plan([*real, *cells])
    assert plan.seconds(slots=2) == 3 * 30 + len(cells) / 2
    results = study.run(plan)
    table = results.of(real).table("measured")
    assert table["value"].to_list() == [0, 1, 2]
    assert set(table["kind"]) == {"a"}
    assert results.of(cells).table("flows").height > 0
    assert engine.runs == len(cells)
    assert not study.plan([*real, *cells]).missing
    assert circumstances(results.of(real).table(MACHINE)).startswith("Linux")


def test_the_same_scenario_is_another_cell_in_each_world_and_by_each_measurement(
    study: Study,
) -> None:
    simulated = replace(measured(0), real=None)
    emulated = replace(simulated, real=Emulation())
    every = [simulated, emulated, measured(0), measured(0, name="other")]
    assert len({planned.key for planned in study.plan(every).cells}) == len(every)


def test_another_kernel_or_program_measures_again(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.run(study.plan([measured(0)]))
    monkeypatch.setattr("ontempo.lab.study.machine", lambda: "Linux 7.0, another program")
    assert len(study.plan([measured(0)]).missing) == 1


def test_another_program_of_a_flow_or_setting_of_the_kernel_measures_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {}
    for name in ("srt-live-transmit", "ristsender", "ristreceiver", "player", "beside"):
        files[name] = tmp_path / "bin" / name
        files[name].parent.mkdir(exist_ok=True)
        files[name].write_text("#!/bin/sh\n")
        files[name].chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    scenario = tmp_path / "small.toml"
    scenario.write_text(TEXT)
    application = 'application={ kind = "media", generate = { duration = "1 s" } }'
    flows = {
        "srt": 'transport={ kind = "srt", latency = "120 ms" }',
        "rist": 'transport={ kind = "rist", buffer = "1000 ms" }',
        "tcp": 'transport={ kind = "tcp" }',
    }
    cells = {
        kind: Cell(scenario, (f"flows={{ film = {{ {application}, {flow} }} }}",), real=Emulation())
        for kind, flow in flows.items()
    }
    command = '{ kind = "command", command = ["nice", "player"], peer = ["true"] }'
    own = f'flows={{ film = {{ application = {command}, transport = {{ kind = "own" }} }} }}'
    cells["own"] = Cell(scenario, (own,), real=Emulation())
    engine = NativeEngine()
    study = Study(engine, Store(tmp_path / "cells", engine.fingerprint()), jobs=1)

    def keys() -> dict[str, str]:
        real_time._digest.cache_clear()
        return {kind: study.plan([cell]).cells[0].key for kind, cell in cells.items()}

    before = keys()
    for changed, kinds in {
        "beside": set[str](),
        "srt-live-transmit": {"srt"},
        "ristsender": {"rist"},
        "ristreceiver": {"rist"},
        "player": {"own"},
    }.items():
        files[changed].write_text("#!/bin/sh\n# another version\n")
        after = keys()
        assert {kind for kind in cells if after[kind] != before[kind]} == kinds, changed
        before = after
    with_pert = [
        replace(cells["tcp"], real=Emulation(controls=controls))
        for controls in ((), ("pert",), ("pert compete=alpha",))
    ]
    assert len({planned.key for planned in study.plan(with_pert).cells}) == 3


def test_the_emulators_programs_are_those_whose_digests_are_taken() -> None:
    source = Path(__file__).parents[2] / "crates" / "emulator" / "src" / "carriers.rs"
    asked = set(re.findall(r'require\("([^"]+)"', source.read_text("utf-8")))
    assert asked == {name for names in real_time.CARRIERS.values() for name in names}


def test_ctrl_c_during_a_measurement_keeps_what_has_finished(study: Study) -> None:
    def pressed(_cell: Cell, _folder: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(InterruptedStudyError, match="1 of 2 cells are kept"):
        study.run(study.plan([measured(0), measured(1, pressed)]))


def in_pairs(write: Callable[[Cell, Path], None], count: int) -> list[Cell]:
    real = Measurement("in pairs", write, at_once=2)
    return [replace(measured(seed), real=real) for seed in range(count)]


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.mark.usefixtures("two_cores")
def test_cells_that_allow_it_run_two_at_a_time(study: Study) -> None:
    together = threading.Barrier(2, timeout=20)

    def meets_another(cell: Cell, folder: Path) -> None:
        together.wait()
        written(cell, folder)

    cells = in_pairs(meets_another, 4)
    plan = study.plan([*cells, measured(9)])
    assert plan.seconds(slots=1) == 4 / 2 * 30 + 30
    results = study.run(plan)
    assert results.of(cells).table("measured")["value"].to_list() == [0, 1, 2, 3]


def test_one_core_runs_one_at_a_time(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    at_work: list[int] = []

    def alone(cell: Cell, folder: Path) -> None:
        at_work.append(cell.seed)
        time.sleep(0.02)
        assert at_work == [cell.seed]
        at_work.clear()
        written(cell, folder)

    study.run(study.plan(in_pairs(alone, 3)))


@pytest.mark.usefixtures("two_cores")
def test_ctrl_c_ends_both_of_a_pair_and_begins_no_third(study: Study, tmp_path: Path) -> None:
    def until_ctrl_c(cell: Cell, _folder: Path) -> None:
        up, down = tmp_path / f"up{cell.seed}", tmp_path / f"down{cell.seed}"
        script = f"trap 'touch {down}; exit 130' INT; touch {up}; while :; do sleep 0.05; done"
        run_program(["sh", "-c", script], "it")

    def press() -> None:
        while len(list(tmp_path.glob("up*"))) < 2:
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(InterruptedStudyError, match="0 of 4 cells are kept"):
        study.run(study.plan(in_pairs(until_ctrl_c, 4)))
    assert sorted(path.name for path in tmp_path.glob("[ud]*[0-9]")) == [
        "down0",
        "down1",
        "up0",
        "up1",
    ]


def test_a_measurement_that_fails_names_its_cell(study: Study) -> None:
    def fails(_cell: Cell, _folder: Path) -> None:
        raise ValueError("no such player")

    with pytest.raises(UnfitEnvironmentError, match=r"video.toml \(kind a\): .* no such player"):
        study.run(study.plan([measured(0, fails)]))


def test_a_programs_error_message_is_raised_by_its_exit_code() -> None:
    assert run_program(["sh", "-c", "echo fine"], "it") == "fine\n"
    with pytest.raises(UnfitEnvironmentError, match="it: no tun"):
        run_program(["sh", "-c", "echo no tun >&2; exit 3"], "it")
    with pytest.raises(BadInputError, match="it: a mistake"):
        run_program(["sh", "-c", "echo error: a mistake >&2; exit 2"], "it")


def test_ctrl_c_lets_a_program_clean_up(tmp_path: Path) -> None:
    up, down = tmp_path / "up", tmp_path / "down"
    script = f"trap 'touch {down}; exit 130' INT; touch {up}; while :; do sleep 0.05; done"

    def press() -> None:
        while not up.exists():
            pass
        # The program runs before `Popen` has returned; a Ctrl-C in between finds nothing to end.
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_program(["sh", "-c", script], "it")
    assert down.exists()


def test_a_congestion_control_with_other_settings_is_loaded_anew_unless_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[list[str]] = []

    def answers(changed: list[str], is_used: bool = False) -> Callable[[list[str], str], str]:
        def run(command: list[str], what: str) -> str:
            commands.append(command[1:])
            if is_used and "unload" in command:
                raise LabError(f"{what}: in use by 2 sockets")
            return json.dumps({"loaded": [{"name": "pert", "changed": changed}]})

        return run

    monkeypatch.setattr(real_time, "program", lambda: "ontempo")
    monkeypatch.setattr(real_time, "run_program", answers([]))
    assert not load_control("pert")
    assert load_control("other")
    assert commands[-1] == ["kernel", "load", "other"]
    assert load_control("pert compete=alpha")
    assert commands[-2:] == [
        ["kernel", "unload", "pert"],
        ["kernel", "load", "pert", "--set", "compete=alpha"],
    ]
    monkeypatch.setattr(real_time, "run_program", answers(["compete=alpha"]))
    assert not load_control("pert compete=alpha")
    monkeypatch.setattr(real_time, "run_program", answers(["t-min=20 ms"], is_used=True))
    message = (
        "was loaded with t-min=20 ms, not with its defaults, and cannot be unloaded: .* in use"
    )
    with pytest.raises(UnfitEnvironmentError, match=message):
        load_control("pert")


def test_worlds_are_named_with_commas() -> None:
    assert read_worlds(None) == (World.ANALYSIS, World.SIMULATION)
    assert read_worlds("emulation, simulation") == (World.SIMULATION, World.EMULATION)
    with pytest.raises(BadInputError, match="--worlds: 'emulated' is none of analysis, simulation"):
        read_worlds("simulation,emulated")


def test_what_the_machine_lacks_hinders_real_cells_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "hindrance", lambda: "needs the rights of root: run with sudo")
    needed = {"real": [measured(0)], "not": [replace(measured(0), real=None)]}
    assert hindrances(needed) == {"real": "needs the rights of root: run with sudo"}


def test_claims_that_need_other_settings_of_one_control_are_not_run_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(worlds, "hindrance", lambda: "")
    monkeypatch.setattr(worlds, "load_control", loaded.append)
    needed = {
        name: [replace(measured(0), real=Emulation(controls=(control,)))]
        for name, control in (
            ("a", "pert compete=alpha"),
            ("b", "pert"),
            ("c", "pert compete=alpha"),
        )
    }
    found = hindrances(needed)
    assert list(found) == ["b"]
    assert "run it with --only" in found["b"]
    assert loaded == ["pert compete=alpha"]


def test_a_claim_that_the_machine_cannot_check_is_not_yet_with_a_reason(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "make_engine", lambda: engine)
    monkeypatch.setattr(worlds, "hindrance", lambda: "needs the rights of root: run with sudo")
    only = ["--only", "pert/homogeneous-emulated", "--out", str(tmp_path), "--no-open"]
    command = ["reproduce", "--worlds", "emulation", *only]
    result = CliRunner().invoke(main.app, command)
    assert result.exit_code == 0
    assert "not yet: needs the rights of root: run with sudo" in result.output
    page = (tmp_path / "report" / "pert.html").read_text("utf-8")
    assert "Needs the rights of root: run with sudo." in page
    output = json.loads(CliRunner().invoke(main.app, [*command, "--json"]).stdout)
    assert [one["id"] for one in output["hindered"]] == ["pert/homogeneous-emulated"]

    without = CliRunner().invoke(main.app, ["reproduce", *only])
    assert without.exit_code == BadInputError.exit_code
    assert "is checked by emulation: add --worlds analysis,simulation,emulation" in without.output


@pytest.mark.skipif(bool(LACKING), reason=f"a real emulation {LACKING}")
def test_a_short_scenario_is_emulated_for_real(tmp_path: Path) -> None:
    scenario = tmp_path / "small.toml"
    scenario.write_text(TEXT)
    overrides = (
        'duration="2 s"',
        'measure.from="1 s"',
        'flows.video.transport.congestion="cubic"',
    )
    emulated = Cell(scenario, overrides, 0, (), 2.0, Emulation())
    engine = NativeEngine()
    study = Study(engine, Store(tmp_path / "cells", engine.fingerprint()), 1)
    results = study.run(study.plan([emulated, replace(emulated, real=None)]))
    real, simulated = (
        results.of(cell for cell in results.cells if bool(cell.real) is world)
        for world in (True, False)
    )
    assert real.table("flows").schema == simulated.table("flows").schema
    assert real.table("flows")["delivered_bytes"].sum() > 0
    assert real.table(MACHINE)["lateness_p99_s"].is_not_null().all()
    assert not study.plan([emulated]).missing


@pytest.mark.skipif(bool(LACKING), reason=f"a real emulation {LACKING}")
def test_a_table_that_a_cell_replaces_is_not_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "small.toml"
    scenario.write_text(TEXT)
    queue = 'topology.bottleneck.queue={ kind = "drop-tail", limit = "9 packets" }'
    cubic = 'flows.video.transport.congestion="cubic"'
    overrides = ('duration="1 s"', "measure={}", queue, cubic)
    emulate(Cell(scenario, overrides, 0, (), 1.0, Emulation()), tmp_path / "out")
    assert "replaces the whole table" not in capfd.readouterr().err


def test_of_what_a_program_says_only_what_was_meant_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = "printf 'a slow disk\n--set x=1: meant\nanother\n' >&2"
    run_program(["sh", "-c", script], "it", meant=".*: meant$")
    assert capsys.readouterr().err == "it: a slow disk\nanother\n"
    with pytest.raises(UnfitEnvironmentError, match=r"^it: a slow disk\nanother$"):
        run_program(["sh", "-c", f"{script}; exit 3"], "it", meant=".*: meant$")
