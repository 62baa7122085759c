"""The command line: output, errors, exit codes."""

import errno
import html
import json
import os
import re
import shlex
import shutil
import signal
import threading
from functools import partial
from pathlib import Path

import pytest
from conftest import EXPERIMENTS
from fake import FakeEngine
from typer.testing import CliRunner, Result

from ontempo.lab import cluster, main, reproducing
from ontempo.lab.claims import Verdict
from ontempo.lab.errors import BAD_INPUT, ENVIRONMENT, INTERRUPTED

runner = CliRunner()


@pytest.fixture(autouse=True)
def _use_fake(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "make_engine", lambda: engine)


def reproduce(out: Path, *more: str) -> Result:
    return runner.invoke(main.app, ["reproduce", "--no-open", "--out", str(out), *more])


def test_a_reproduction_writes_a_report_and_prints_its_path(tmp_path: Path) -> None:
    result = reproduce(tmp_path, "--only", "pert/fig4", "--only", "pert/fig5")
    assert result.exit_code == 0
    assert "pert/fig4" in result.output
    assert f"report: {tmp_path / 'report' / 'index.html'}" in result.output
    text = (tmp_path / "report" / "pert.html").read_text("utf-8")
    assert f"ontempo-lab reproduce --quick --out {tmp_path} --only pert/fig5" in text
    assert "Left out of this run." in text
    assert 'id="pert-fig9"' not in text


def test_a_second_time_nothing_runs(tmp_path: Path, engine: FakeEngine) -> None:
    reproduce(tmp_path, "--only", "pert/fig4")
    runs = engine.runs
    assert "nothing to run" in reproduce(tmp_path, "--only", "pert/fig4").output
    assert engine.runs == runs


def test_json_holds_every_check_and_nothing_else_is_on_stdout(tmp_path: Path) -> None:
    result = reproduce(tmp_path, "--only", "pert", "--json")
    found = json.loads(result.stdout)
    assert found["scale"] == "quick"
    assert [claim["id"] for claim in found["claims"]][:2] == ["pert/fig1", "pert/fig2"]
    for claim in found["claims"]:
        assert claim["verdict"] in set(Verdict) - {Verdict.NOT_YET}
        assert (claim["reading"], claim["others"]) == ("", {})  # of this paper one is declared
        assert claim["checks"]
        assert set(claim["checks"][0]) == {
            "sentence", "published", "measured", "ok", "values", "cause", "doubt",
        }  # fmt: skip


def test_the_list_runs_nothing(tmp_path: Path, engine: FakeEngine) -> None:
    result = reproduce(tmp_path / "out", "--list", "--full")
    assert result.exit_code == 0
    assert "pert/fig12" in result.output
    assert "different cells" in result.output
    assert engine.runs == 0
    assert not (tmp_path / "out").exists()
    rows = json.loads(reproduce(tmp_path / "out", "--list", "--json").stdout)
    assert rows[0]["id"] == "pert/fig1"


@pytest.mark.parametrize(
    ("name", "near"), [("pert/fig99", "pert/fig9"), ("prt/fig4", "pert/fig4"), ("x/fig9", "fig9")]
)
def test_an_unknown_claim_is_answered_with_near_ones(tmp_path: Path, name: str, near: str) -> None:
    result = reproduce(tmp_path, "--only", name)
    assert result.exit_code == BAD_INPUT
    assert f"no claim is called '{name}'" in result.output
    assert near in result.output


def test_a_published_claim_without_code_is_answered_as_such(tmp_path: Path) -> None:
    experiments = tmp_path / "experiments"
    shutil.copytree(EXPERIMENTS / "pert", experiments / "pert")
    shutil.copy(EXPERIMENTS / "ffmpeg.py", experiments)
    (experiments / "rows.toml").write_text(
        """
        [pert]
        title = "PERT"
        about = "About it."
        rows = [{ id = "fig99", worlds = ["simulation"], what = "W", expectation = "E" }]
        """
    )
    result = reproduce(tmp_path, "--experiments", str(experiments), "--only", "pert/fig99")
    assert result.exit_code == BAD_INPUT
    assert "pert/fig99: published, but not yet written here" in result.output


def test_an_interrupted_sweep_keeps_its_cells_and_goes_on(
    tmp_path: Path, engine: FakeEngine
) -> None:
    tmp_path = tmp_path / "a folder"
    tmp_path.mkdir()
    (tmp_path / "video.toml").touch()
    study = tmp_path / "study.toml"
    study.write_text(
        'scenario = "video.toml"\nseeds = 6\n[columns]\nlate = "SUM(late) FROM playout"'
    )
    arguments = ["sweep", str(study), "--out", str(tmp_path / "out"), "--jobs", "1"]
    engine.stall_after = 2

    def press() -> None:
        engine.stalling.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    result = runner.invoke(main.app, arguments)
    assert result.exit_code == INTERRUPTED
    assert "2 of 6 cells are kept" in result.output
    line = next(one for one in result.output.splitlines() if one.startswith("to go on: "))
    assert shlex.split(line.removeprefix("to go on: ")) == ["ontempo-lab", *arguments]
    engine.stall_after = None
    assert runner.invoke(main.app, [*arguments, "--json"]).exit_code == 0
    assert engine.runs == 6


def test_ctrl_c_while_a_study_is_planned_is_an_interruption(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "load", pressed)
    (tmp_path / "video.toml").touch()
    study = tmp_path / "study.toml"
    study.write_text('scenario = "video.toml"\n[columns]\nlate = "SUM(late) FROM playout"')
    result = runner.invoke(main.app, ["sweep", str(study), "--dask", "tcp://there:1"])
    assert result.exit_code == INTERRUPTED
    assert f"to go on: ontempo-lab sweep {study} --dask tcp://there:1" in result.output


def test_figures_are_written_as_pdf_on_request(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "differences.md"
    result = reproduce(
        tmp_path, "--only", "pert/fig4", "--pdf", "--differences", str(page), "--json"
    )
    assert result.exit_code == 0
    assert json.loads(result.stdout)["claims"]
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["pert-fig4.pdf"]
    assert "## Video over PERT" in page.read_text("utf-8")


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_an_invalid_number_of_jobs_is_refused(tmp_path: Path, jobs: str) -> None:
    assert reproduce(tmp_path, "--jobs", jobs).exit_code == BAD_INPUT


def test_an_output_that_cannot_be_written_is_an_environment_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = reproduce(tmp_path / "file" / "out", "--only", "pert/fig4")
    assert result.exit_code == ENVIRONMENT
    assert "cannot write here" in result.output


def test_a_folder_without_experiments_is_refused(tmp_path: Path) -> None:
    result = reproduce(tmp_path, "--experiments", str(tmp_path))
    assert result.exit_code == BAD_INPUT
    assert "no folder of experiments" in result.output


def test_a_disk_that_fills_up_keeps_what_has_finished_and_the_rest_goes_on(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 3

    def write_while_there_is_room(path: Path, data: bytes) -> int:
        if len(list((tmp_path / "cells").rglob("*.zip"))) >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        with path.open("wb") as file:
            return file.write(data)

    monkeypatch.setattr(Path, "write_bytes", write_while_there_is_room)
    result = reproduce(tmp_path, "--only", "pert/fig4", "--jobs", "1")
    assert result.exit_code == ENVIRONMENT
    assert "the disk is full" in result.output
    assert not (tmp_path / "report").exists()
    monkeypatch.undo()
    monkeypatch.setattr(main, "make_engine", lambda: engine)
    again = reproduce(tmp_path, "--only", "pert/fig4")
    assert again.exit_code == 0
    assert "cells, 3 of them kept from before" in again.output


def test_a_cluster_that_does_not_answer_ends_the_command_before_anything_runs(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "ANSWER_WITHIN_S", 1)
    result = reproduce(tmp_path, "--only", "pert/fig4", "--dask", "tcp://127.0.0.1:9")
    assert result.exit_code == ENVIRONMENT
    assert "--dask tcp://127.0.0.1:9: no scheduler answers within 1 s" in result.output
    assert engine.runs == 0


def test_the_end_counts_each_papers_verdicts(tmp_path: Path) -> None:
    lines = reproduce(tmp_path, "--only", "pert/fig4", "--only", "pert/fig5").output.splitlines()
    heads = next(index for index, line in enumerate(lines) if line.startswith("quick grid"))

    def counted(start: str) -> dict[str, int]:
        line = next(line for line in lines[heads:] if line.startswith(start))
        return {name.strip(): int(n) for n, name in re.findall(r"(\d+) ([a-z ]+)", line)}

    counts, totals = counted("Video over PERT"), counted("all")
    listed = json.loads(reproduce(tmp_path, "--only", "pert", "--list", "--json").stdout)
    assert set(counts) <= {*Verdict, "left out"}
    assert counts["left out"] == len(listed) - 2
    assert sum(totals.values()) > sum(counts.values()) == len(listed)


def test_a_damaged_cell_is_reported_and_run_again(tmp_path: Path, engine: FakeEngine) -> None:
    reproduce(tmp_path, "--only", "pert/fig4")
    runs = engine.runs
    cell = next((tmp_path / "cells").rglob("*.zip"))
    cell.write_bytes(b"no zip at all")
    result = reproduce(tmp_path, "--only", "pert/fig4")
    assert result.exit_code == 0
    assert "run again:" in result.output
    assert cell.name in result.output
    assert engine.runs == runs + 1


def test_ctrl_c_prints_how_many_cells_are_kept_and_how_to_resume(
    tmp_path: Path, engine: FakeEngine
) -> None:
    engine.stall_after = 5

    def press() -> None:
        engine.stalling.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    result = reproduce(tmp_path, "--only", "pert/fig4", "--jobs", "1")
    assert result.exit_code == INTERRUPTED
    assert re.search(r"interrupted: 5 of \d+ cells are kept", result.output)
    again = f"ontempo-lab reproduce --quick --out {tmp_path} --only pert/fig4 --jobs 1"
    assert f"to go on: {again}" in result.output


@pytest.mark.parametrize("arguments", [["--help"], ["reproduce", "--help"], ["sweep", "--help"]])
def test_every_help_has_an_example(arguments: list[str]) -> None:
    result = runner.invoke(main.app, arguments)
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"ontempo-lab {arguments[0] if len(arguments) > 1 else 'reproduce'}" in result.output


def test_verdicts_are_written_compared_and_bound_by_options(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.txt"
    one = ("--only", "pert/fig1", "--json")
    assert reproduce(tmp_path, "--write-verdicts", str(path), *one).exit_code == BAD_INPUT
    assert reproduce(tmp_path, "--full", "--check-verdicts", str(path)).exit_code == BAD_INPUT
    assert reproduce(tmp_path, "--full", "--bind-causes").exit_code == BAD_INPUT
    missing = reproduce(tmp_path, "--check-verdicts", str(path), *one)
    assert missing.exit_code == reproducing.DIFFERENT
    lines = [line[1:] for line in missing.stderr.splitlines() if line.startswith("+pert/fig1")]
    assert len(lines) == 4
    path.write_text("\n".join(lines), "utf-8")
    assert reproduce(tmp_path, "--check-verdicts", str(path), *one).exit_code == 0
    path.write_text("\n".join(lines).replace("held", "failed", 1), "utf-8")
    changed = reproduce(tmp_path, "--check-verdicts", str(path), *one)
    assert changed.exit_code == reproducing.DIFFERENT
    assert "make differences" in changed.stderr


def cells_of_fig10(tmp_path: Path, *more: str) -> int:
    """How many cells that claim needs with these options."""
    listed = reproduce(tmp_path, "--only", "pert/fig10", "--list", "--json", *more).stdout
    (row,) = json.loads(listed)
    return int(row["cells"])


def test_a_reading_on_request_is_run_where_it_is_named(tmp_path: Path) -> None:
    cells = partial(cells_of_fig10, tmp_path)
    # 48 of 144 are over PERT; with jitter all differ.
    assert cells() == 144
    assert cells("--reading", "every ACK") == 144 + 48
    assert cells("--reading", "host jitter") == 144 + 144
    assert cells("--reading", "all") == 144 + 3 * 48 + 144
    result = reproduce(tmp_path, "--only", "pert/fig4", "--reading", "half at a loss")
    page = html.unescape((tmp_path / "report" / "pert.html").read_text("utf-8"))
    assert "--reading 'half at a loss'" in page
    assert result.exit_code == 0


def test_an_unknown_reading_and_one_whose_verdicts_are_kept_are_refused(tmp_path: Path) -> None:
    result = reproduce(tmp_path, "--only", "pert/fig4", "--reading", "each ACK")
    assert result.exit_code == BAD_INPUT
    assert "there are 'every ACK', 'cumulative'" in " ".join(result.output.split())
    kept = ("--check-verdicts", str(tmp_path / "verdicts.txt"))
    result = reproduce(tmp_path, "--only", "pert/fig4", "--reading", "all", *kept)
    assert result.exit_code == BAD_INPUT
    assert "omit --reading" in " ".join(result.output.split())


def test_only_the_first_seeds_are_run_where_so_many_are_asked_for(tmp_path: Path) -> None:
    cells = partial(cells_of_fig10, tmp_path)
    assert cells("--seeds", "1") == cells() // 2
    assert cells("--seeds", "1", "--reading", "host jitter") == 144
    assert cells("--seeds", "7") == cells()
    reproduce(tmp_path, "--only", "pert/fig4", "--seeds", "1")
    page = html.unescape((tmp_path / "report" / "pert.html").read_text("utf-8"))
    assert "--seeds 1" in page
    assert "Of these 2 seeds only the first 1 were run." in page
    kept = ("--check-verdicts", str(tmp_path / "verdicts.txt"))
    result = reproduce(tmp_path, "--only", "pert/fig4", "--seeds", "1", *kept)
    assert result.exit_code == BAD_INPUT
    assert "omit --seeds" in " ".join(result.output.split())
