"""ADUs and probes as real packets: the programs' options, and how their output is judged."""

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from conftest import EXPERIMENTS
from test_rr3216_claims import failing, gaining, made_of

from ontempo.lab.claims import Finding, World
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.experiments import load_papers

PAPERS = load_papers(EXPERIMENTS)

from ontempo_experiments.psp import probing  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.psp.figures import live  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.rr3216 import transfers  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.rr3216.figures import emulated  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.rr3216.grid import Setting  # type: ignore[import-not-found] # noqa: E402

PUBLISHED_PATH = {
    # Spacing in us: Mbit/s received, loss.
    0: (62.0, 0.9),
    50: (64.0, 0.6),
    100: (62.0, 0.35),
    200: (50.0, 0.1),
    500: (23.0, 0.0),
}


def test_every_figure_of_the_experiment_has_a_row_for_each_protocol() -> None:
    (paper,) = (paper for paper in PAPERS if paper.name == "rr3216")
    real = [claim for claim in paper.claims if claim.world is World.EMULATION]
    assert [claim.id.partition("/")[2] for claim in real] == [
        *("fig5-left", "fig5-right", "fig5-right-modern"),
        *("fig13-emulated", "fig13-modern", "fig14-emulated", "fig14-modern"),
    ]
    cells = {cell for claim in real for cell in claim.cells("quick") if cell.real}
    assert sum(cell.cost for cell in cells) <= 100


def test_a_transfer_by_the_published_protocol_has_its_window_and_its_acknowledgements() -> None:
    setting = Setting(processing_ms=5, interval_ms=0, window=32, every=4, count=100)
    one = transfers.Transfer(setting, "out-of-order", 0)
    command = " ".join(one.sender())
    assert "--count 100 --size 1000 B --interval 0 ms --delivery out-of-order" in command
    assert "--uncontrolled --ack-every 4" in command
    assert " ".join(one.receiver()).endswith("--processing 5 ms --window 32000 B")


def test_a_default_transfer_sets_only_its_congestion_control() -> None:
    one = transfers.Transfer(Setting(count=100), "in-order", 0, "pert")
    assert one.sender()[-2:] == ["--congestion", "pert"]
    assert "--window" not in one.receiver()


def test_times_are_counted_from_the_first_unit_sent() -> None:
    sent = [{"adu": 0, "emitted_ns": 5_000}, {"adu": 1, "emitted_ns": 10_005_000}]
    taken = [
        {
            "adu": 1,
            "arrived_ns": 20_005_000,
            "delivered_ns": 20_005_000,
            "processed_ns": 30_005_000,
        },
        {
            "adu": 0,
            "arrived_ns": 40_005_000,
            "delivered_ns": 40_005_000,
            "processed_ns": 50_005_000,
        },
    ]
    table = transfers.times(sent, taken)
    assert table["unit"].to_list() == [0, 1]
    assert table["emitted_s"].to_list() == [0.0, 0.01]
    assert table["processed_s"].to_list() == pytest.approx([0.05, 0.03])


def test_a_program_that_reports_no_units_is_quoted(tmp_path: Path) -> None:
    cell = transfers.together([transfers.Transfer(Setting(count=3), "in-order", 0)], 0)
    log = tmp_path / "adus0.0.sink.log"
    lines = [{"adu": 0}, {"event": "ended", "complete": False}]
    log.write_text("\n".join(map(json.dumps, lines)))
    assert transfers._read(log, cell) == lines
    for text, words in (("error: no such name", "no such name"), ("", "it logged nothing")):
        log.write_text(text)
        with pytest.raises(UnfitEnvironmentError, match=words):
            transfers._read(log, cell)


def test_figure_5_asks_for_a_third_up_to_r_and_nothing_from_40_ms_on() -> None:
    def judged(gain: Mapping[float, float]) -> Finding:
        make = gaining(lambda at: gain.get(at["processing_ms"], 0.0))
        cells = [cell for cell in emulated.gain_cells("quick") if not cell.real]
        found: Finding = emulated.judge_right(made_of(cells, make))
        return found

    assert judged({1.0: 0.2, 5.0: 0.3, 10.0: 0.3}).holds is True
    assert failing(judged({15.0: 0.3})) == ["The largest gain is where Ta is at most R."]
    assert len(failing(judged({10.0: 0.5, 40.0: 0.1}))) == 2


def rows(path: Mapping[int, tuple[float, float]], late: float = 1.0) -> pl.DataFrame:
    """A path's table, every packet sent `late` times the requested distance from the one before."""
    spacings = [
        {
            "sent_bps": received * 1e6 / (1 - loss),
            "received_bps": received * 1e6,
            "loss": loss,
            "sent_gap_mean_s": (us + probing.TRANSMISSION_US) * late * 1e-6,
        }
        for us, (received, loss) in path.items()
    ]
    table: pl.DataFrame = probing.path_table({"spacings": spacings}, list(path))
    return table


def test_figures_1_and_2_hold_for_what_was_published() -> None:
    finding = live.judge_path(rows(PUBLISHED_PATH), list(PUBLISHED_PATH))
    assert finding.holds is True, failing(finding)
    flat = {**PUBLISHED_PATH, 50: (62.0, 0.6), 200: (54.7, 0.0)}
    assert failing(live.judge_path(rows(flat), list(flat))) == [
        "At 50 μs more arrives than without spacing.",
        "At 200 μs so much is lost.",
    ]


def test_a_probe_that_missed_its_spacing_leaves_checks_undecided() -> None:
    finding = live.judge_path(rows(PUBLISHED_PATH, late=1.1), list(PUBLISHED_PATH))
    assert {check.ok for check in finding.checks} == {None}
    assert finding.holds is None


def test_the_headline_is_of_both_kinds_that_adapt() -> None:
    cells = live.headline_cells("quick")
    assert {dict(cell.labels)["media"] for cell in cells} == {"plain UDP", "PSP", "damped PSP"}
    assert sum(cell.real is not None for cell in cells) == 3


def test_the_places_of_a_real_run_are_those_of_its_transfers() -> None:
    cells = emulated.gain_cells("quick")
    real = made_of([cell for cell in cells if cell.real], lambda _cell: {})
    simulated = made_of([cell for cell in cells if not cell.real], lambda _cell: {})
    for results in (real, simulated):
        assert emulated.asked(results, 10.0) == sorted(emulated.EMULATED_MS["quick"])
        assert emulated.asked(results, 20.0) == []


def test_the_spacings_of_a_probe_are_the_requested_ones() -> None:
    (cell,) = [cell for cell in live.cells("quick") if cell.real]
    assert list(probing.probed(cell)) == list(live.SPACINGS_US["quick"])
    unmeasured = live.judge_path(rows({0: (62.0, 0.9)}), [0.0, 200.0, 500.0])
    falling = next(one for one in unmeasured.checks if "falls as" in one.sentence)
    assert (falling.ok, "200 μs" in falling.measured) == (None, True)
    assert live.judge_path(rows({0: (62.0, 0.9)}).clear(), []).holds is None
