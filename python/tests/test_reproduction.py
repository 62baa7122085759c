"""From scenario to verdict with the real engine, as the command does it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
from conftest import EXPERIMENTS
from small import LONG, TEXT

from ontempo.lab.engine import NativeEngine
from ontempo.lab.experiments import load_papers
from ontempo.lab.store import Store
from ontempo.lab.study import Study

CLAIMS = dedent(
    '''\
    """Two claims about a small network: one that holds, one that cannot."""

    from pathlib import Path

    import polars as pl

    from ontempo.lab.claims import Check, Claim, Finding, Paper, World
    from ontempo.lab.plots import Axis, Figure, Series, View
    from ontempo.lab.statistics import mean_interval
    from ontempo.lab.study import Cell

    SCENARIO = Path(__file__).with_name("small.toml")
    COUNTS = (1, 2, 4)

    def cells(scale):
        return [
            Cell(SCENARIO, (f"flows.ftp.count={n}", *MORE), seed, (("ftp", n),))
            for n in COUNTS
            for seed in range(2)
        ]

    def judge(results, most_bps):
        flows = results.table("flows").filter(group="ftp")
        share = {
            float(n): mean_interval(flows.filter(pl.col("ftp") == n)["goodput_bps"])
            for n in COUNTS
        }
        largest = max(point.value for point in share.values())
        check = Check("No transfer is faster.", str(most_bps), f"{largest:.0f}", largest < most_bps)
        views = [View("", [Series("", "pert", share)])]
        return Finding([Figure("", Axis("transfers"), Axis("bit/s"), views)], [check])

    def claim(name, most_bps):
        return Claim(
            name, name, World.SIMULATION, "", "", cells, lambda r: judge(r, most_bps), lambda s: ""
        )

    PAPER = Paper(
        "small", "Small", "", [claim("small/link", 3e6), claim("small/faster", 1e6)]
    )
    '''
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "experiments")


def write(folder: Path, *overrides: str) -> Path:
    paper = folder / "small"
    paper.mkdir(parents=True, exist_ok=True)
    (paper / "__init__.py").touch()
    (paper / "small.toml").write_text(TEXT)
    (paper / "claims.py").write_text(CLAIMS.replace("*MORE", repr(overrides)[1:-1].rstrip(",")))
    return folder


def arguments(folder: Path, *more: str) -> list[str]:
    out = folder.parent / "out"
    fixed = ["--experiments", str(folder), "--out", str(out), "--no-open", "--jobs", "2"]
    return [sys.executable, "-m", "ontempo.lab.main", "reproduce", *fixed, *more]


def reproduce(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments(folder, *more), capture_output=True, text=True, check=False)


def test_a_small_study_is_run_judged_and_reported(folder: Path) -> None:
    done = reproduce(folder, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    verdicts = {claim["id"]: claim["verdict"] for claim in found["claims"]}
    assert verdicts == {"small/link": "reproduced", "small/faster": "contradicted"}
    alone = float(found["claims"][0]["checks"][0]["measured"])
    assert 1.5e6 < alone < 3e6  # what three videos of 300 kbit/s leave to one transfer
    assert Path(found["report"]).name == "index.html"
    assert "running 6 on 2 cores" in done.stderr

    again = reproduce(folder, "--json")
    assert "nothing to run" in again.stderr
    assert json.loads(again.stdout) == found


def test_ctrl_c_keeps_finished_cells_of_the_real_engine(tmp_path: Path) -> None:
    folder = write(tmp_path / "experiments")
    out = tmp_path / "out" / "cells"
    assert reproduce(folder).returncode == 0
    kept = len(list(out.rglob("*.zip")))
    write(folder, LONG)
    command = arguments(folder)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        try:
            while "running" not in running.stderr.readline():
                assert running.poll() is None
            time.sleep(0.3)
            running.send_signal(signal.SIGINT)
            _, output = running.communicate(timeout=20)
        finally:
            running.kill()
    assert running.returncode == 130
    assert "0 of 6 cells are kept" in output
    assert "to go on: ontempo-lab reproduce" in output
    assert len(list(out.rglob("*.zip"))) == kept
    assert not list(out.rglob(".tmp-*"))


def test_a_mistake_in_a_scenario_ends_with_its_place_and_exit_code_2(tmp_path: Path) -> None:
    done = reproduce(write(tmp_path / "experiments", "flows.ftp.cuont=1"))
    assert done.returncode == 2
    assert "flows.ftp.cuont: unknown field" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_published_cell_is_a_scenario_that_the_engine_takes(
    tmp_path: Path, scale: str
) -> None:
    papers = load_papers(EXPERIMENTS)
    engine = NativeEngine()
    study = Study(engine, Store(tmp_path, engine.fingerprint()), 1)
    cells = [cell for paper in papers for claim in paper.claims for cell in claim.cells(scale)]  # type: ignore[arg-type]
    plan = study.plan(cells)
    # A setting that two sweeps share is one run.
    assert len(plan.missing) == len({one.key for one in plan.cells})
    assert len(plan.cells) == len(set(cells))
