"""Two worlds' tables against each other, and the page that shows them."""

import json
import math
import os
import re
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from ontempo.lab.compare import Comparison, compare
from ontempo.lab.compare_page import figures, page
from ontempo.lab.main import app

SCENARIO = """
title = "Film and <voice>"
duration = "2 s"
[topology]
kind = "dumbbell"
bottleneck = { rate = "10 Mbit/s", delay = "10 ms" }
access = { rate = "100 Mbit/s", delay = "1 ms" }
[flows.film]
application = { kind = "cbr", rate = "2 Mbit/s" }
transport = { kind = "tcp", congestion = "reno" }
[flows.voice]
application = { kind = "cbr", interval = "20 ms" }
transport = { kind = "udp", packet = "200 B" }
playout = ["200 ms"]
[measure]
sample-every = "100 ms"
queues = ["bottleneck"]
"""


def tables(goodput: float, dropped: int) -> dict[str, pl.DataFrame]:
    """Tables of one flow over one link."""
    flow = {"group": ["bulk"], "goodput_bps": [goodput], "sent_packets": [100]}
    counts = {"dropped_packets": [dropped], "retransmitted": [dropped]}
    times: dict[str, list[float | None]] = {"srtt_s": [0.05], "min_rtt_s": [None]}
    link = {"link": ["bottleneck"], "busy": [0.5], "mean_packets": [3.0], "arrivals": [100]}
    drops = {"dropped_full": [dropped], "dropped_early": [0], "dropped_loss": [0]}
    samples = {
        "time_s": [0.0, 0.0, 0.5001, 0.5001],
        "subject": ["bulk.0", "bottleneck", "bulk.0", "bottleneck"],
        "quantity": ["delivered_bytes", "queue_packets"] * 2,
        "value": [0.0, 1.0, 62_500.0, 2.0],
    }
    playout = {"group": ["voice"], "startup_delay_s": [0.2], "units": [50], "late": [1]}
    return {
        "flows": pl.DataFrame(
            {**flow, **counts, **times}, schema_overrides={"min_rtt_s": pl.Float64}
        ),
        "links": pl.DataFrame({**link, **drops}),
        "samples": pl.DataFrame(samples),
        "playout": pl.DataFrame(playout),
    }


@pytest.fixture
def comparison() -> Comparison:
    return compare("Bulk & more", tables(8e6, 0), tables(9e6, 2))


def test_each_quantity_of_both_worlds_is_compared(
    comparison: Comparison,
) -> None:
    found = {(one.subject, one.quantity): one for one in comparison.differences}
    goodput = found["bulk", "goodput, Mbit/s"]
    assert (goodput.simulated, goodput.emulated) == (8, 9)
    assert goodput.relative == pytest.approx(0.125)
    assert math.isnan(found["bulk", "lost, %"].relative)
    assert found["bottleneck", "dropped, %"].emulated == 2
    assert found["voice, start-up delay 0.2 s", "late, %"].simulated == 2
    assert ("bulk", "least RTT, ms") not in found


def test_both_worlds_are_drawn_on_the_same_axes(comparison: Comparison) -> None:
    goodput, queue = figures(comparison)
    assert (goodput.y.title, queue.y.title) == ("goodput, Mbit/s", "packets waiting")
    assert [series.name for series in goodput.views[0].series] == ["simulated", "emulated"]
    assert goodput.views[0].series[0].points[0.5].value == pytest.approx(1)
    text = page(comparison)
    assert "Bulk &amp; more" in text
    assert "+12.5 %" in text
    assert not re.search(r'(src|href)="assets/', text), "the page needs other files"


def test_a_missing_scenario_is_bad_input(tmp_path: Path) -> None:
    words = ["compare", str(tmp_path / "none.toml"), "--out", str(tmp_path / "out"), "--no-open"]
    assert CliRunner().invoke(app, words).exit_code == 2


def test_a_scenario_of_the_same_name_does_not_replace_the_comparison_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "same.toml").write_text("no scenario")

    def output_of(*words: str) -> str:
        done = CliRunner().invoke(app, ["compare", "--no-open", *words])
        assert done.exit_code == 2
        return " ".join(done.output.split())

    # Where none was made none is there.
    first, folder = str(tmp_path / "a" / "same.toml"), tmp_path / "out" / "compare" / "same"
    assert [output_of(f"{place}/same.toml").count("holds") for place in ("a", "b")] == [0, 0]
    (folder / "scenario.json").write_text(json.dumps(first))
    assert f"holds the comparison of {first}" in output_of("b/same.toml")
    assert "holds" not in output_of("a/same.toml")
    assert "holds" not in output_of("b/same.toml", "--out", str(folder))


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/net/tun").exists(),
    reason="emulating needs the rights of root, and /dev/net/tun",
)
def test_a_scenario_runs_in_both_worlds(tmp_path: Path) -> None:
    scenario = tmp_path / "both.toml"
    scenario.write_text(SCENARIO)
    words = ["compare", str(scenario), "--out", str(tmp_path / "out"), "--json", "--no-open"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "scenario.json").read_text()) == str(scenario)
    found = json.loads(done.stdout)
    by_name = {(one["of"], one["quantity"]): one for one in found["differences"]}
    assert abs(by_name["voice", "goodput, Mbit/s"]["relative"]) < 0.05
    assert abs(by_name["film", "goodput, Mbit/s"]["relative"]) < 0.05
    assert "Film and &lt;voice&gt;" in Path(found["page"]).read_text()
