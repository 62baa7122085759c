"""From scenario to verdict with the real engine, as the command does it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import polars as pl
import pytest
from conftest import EXPERIMENTS
from small import LONG, TEXT

from ontempo.lab.engine import NativeEngine
from ontempo.lab.experiments import load_papers
from ontempo.lab.keep import table_of
from ontempo.lab.kept import read_kept
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


def test_a_paper_at_full_length_is_kept_and_shown_before_a_quick_run(folder: Path) -> None:
    done = reproduce(folder, "--full", "--only", "small", "--keep")
    assert done.returncode == 0, done.stderr
    kept = read_kept(folder)["small"]
    assert [(part.cells, part.ran, part.jobs) for part in kept] == [(6, 6, 2)]
    claims = {claim.id: claim for part in kept for claim in part.claims}
    assert {name: claim.words for name, claim in claims.items()} == {
        "small/link": "reproduced",
        "small/faster": "contradicted",
    }
    assert claims["small/link"].held() == "1 of 1 checks"

    cells = pl.read_parquet(folder / "full" / "small.parquet")
    assert cells.height == 6
    alone = cells.filter(cells["set"].str.contains("ftp.count=1"))
    assert alone["ftp.goodput_bps"].is_between(1.5e6, 3e6).all()
    assert set(cells["busiest_link"]) == {"bottleneck"}

    page = folder.parent / "differences.md"
    done = reproduce(folder, "--differences", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text("utf-8")
    full, quick = text.index("| at full length |"), text.index("| quick grid |")
    assert full < quick
    assert "| faster | 0 of 1 | contradicted |" in text
    report = folder.parent / "out" / "report"
    assert "At full length: reproduced, 1 of 1 checks." in (report / "small.html").read_text()
    index = (report / "index.html").read_text("utf-8")
    assert kept[0].words in index
    assert "<h2>At full length: all papers</h2>" in index


def test_some_claims_of_a_paper_are_kept_beside_others(folder: Path) -> None:
    for claim in ("small/link", "small/faster"):
        done = reproduce(folder, "--full", "--only", claim, "--keep")
        assert done.returncode == 0, done.stderr
    kept = read_kept(folder)["small"]
    assert [claim.id for part in kept for claim in part.claims] == ["small/faster", "small/link"]
    assert (folder / "full" / "small@link.parquet").exists()


def test_a_quantity_that_only_the_last_of_many_cells_has_is_kept() -> None:
    rows = [{"seed": seed} for seed in range(1000)]
    kept = table_of([*rows, {"seed": 1000, "cbr.goodput_bps": 351391.0}])
    assert kept["cbr.goodput_bps"].drop_nulls().to_list() == [351391.0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--quick", "--keep", "--only", "small"], "only results at full length are kept"),
        (["--full", "--keep"], "one paper at a time"),
        (["--full", "--keep", "--only", "small", "--only", "other"], "one paper at a time"),
    ],
)
def test_what_is_no_whole_paper_at_full_length_is_not_kept(
    folder: Path, options: list[str], why: str
) -> None:
    done = reproduce(folder, *options)
    assert done.returncode == 2
    assert why in done.stderr
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"claims": [{"readings": {}}]}', '{"claims": 3}', "\xff"]
)
def test_a_kept_file_that_is_none_of_ours_is_bad_input_that_names_it(
    folder: Path, text: str
) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "small.json").write_text(text, "latin-1")
    done = reproduce(folder)
    assert done.returncode == 2
    assert "full/small.json" in done.stderr
    assert "reproduce --full --keep" in done.stderr
