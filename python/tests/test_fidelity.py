"""The comparison of simulation and emulation: its rule, its page, and what it says today."""

import json
import math
from pathlib import Path

import pytest
from experiments.fidelity import agreement, emulated, grid, page
from experiments.fidelity.agreement import Compared, compared

from ontempo.lab.cores import CoreRunner
from ontempo.lab.engine import NativeEngine
from ontempo.lab.errors import BadInputError
from ontempo.lab.statistics import difference_half_width
from ontempo.lab.store import Store
from ontempo.lab.study import Study

PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"


def cell(emulated: list[float], linux: list[float], quantity: str = "goodput, Mbit/s") -> Compared:
    key = ("one", "download", quantity)
    (row,) = compared({key: emulated}, {"linux": {key: linux}})
    return row


def test_a_difference_beyond_the_interval_and_a_tenth_differs() -> None:
    row = cell([10.0, 10.1, 9.9], [11.5, 11.4, 11.6])
    half = difference_half_width([10.0, 10.1, 9.9], [11.5, 11.4, 11.6])
    assert half + 1.0 < 1.5
    assert row.verdict("linux") == "differs"
    assert row.distance("linux") == pytest.approx(0.15)


def test_a_tenth_is_no_difference() -> None:
    assert cell([10.0, 10.1, 9.9], [10.9, 10.8, 11.0]).verdict("linux") == "agrees"


def test_a_wide_interval_is_no_evidence() -> None:
    assert cell([5.0, 15.0], [10.0, 10.0]).verdict("linux") == "cannot be told"
    assert cell([10.0], [10.0, 10.0]).verdict("linux") == "cannot be told"


def test_where_the_seed_decides_what_the_link_does_runs_of_the_same_seed_are_compared() -> None:
    key = ("one", "download", "goodput, Mbit/s")
    real, simulated = [5.0, 15.0, 50.0], [5.1, 15.0, 49.9, 900.0]
    (row,) = compared({key: real}, {"linux": {key: simulated}}, ["one"])
    assert row.simulated["linux"].value == pytest.approx(70 / 3)
    # Differences of 0.1, 0 and -0.1: a standard deviation of 0.1, and t of 2 degrees of freedom.
    assert row.halves["linux"] == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-5)
    assert row.verdict("linux") == "agrees"
    (row,) = compared({key: real}, {"linux": {key: simulated}})
    assert row.verdict("linux") == "cannot be told"


def test_hundredths_of_a_percent_are_no_difference() -> None:
    assert cell([0.01, 0.01], [0.05, 0.05], "lost, %").verdict("linux") == "agrees"
    assert cell([0.01, 0.01], [0.07, 0.07], "lost, %").verdict("linux") == "differs"


def test_the_interval_of_a_difference_is_welchs() -> None:
    # Variances 1 and 4 with 4 observations each: 4.41 degrees of freedom, taken as 4.
    one, other = [1.0, 1.0, 3.0, 3.0], [2.0, 2.0, 6.0, 6.0]
    spread = math.sqrt(4 / 3 / 4 + 16 / 3 / 4)
    assert difference_half_width(one, other) == pytest.approx(2.776445 * spread, rel=1e-5)
    assert math.isnan(difference_half_width([1.0], other))
    assert difference_half_width([1.0, 1.0], [1.0, 1.0]) == 0.0


def test_emulated_values_are_kept_by_scenario(tmp_path: Path) -> None:
    path = tmp_path / "emulated.json"
    first, second = grid.ROWS[0].name, grid.ROWS[1].name
    emulated.keep_emulated({(second, "download", "lost, %"): [1.0, 2.0]}, "slow", path)
    emulated.keep_emulated({(first, "download", "lost, %"): [3.0]}, "fast", path)
    emulated.keep_emulated({(second, "download", "lost, %"): [4.0]}, "fast", path)
    values, circumstances = emulated.read_emulated([first, second], path)
    assert list(values.values()) == [[3.0], [4.0]]
    assert circumstances == "fast"


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "emulated.json"
    with pytest.raises(BadInputError, match="no values of '1 CUBIC'"):
        emulated.read_emulated(["1 CUBIC"], path)
    path.write_text("[]")
    with pytest.raises(BadInputError, match="is not what this program writes"):
        emulated.read_emulated(["1 CUBIC"], path)


def test_each_cause_is_of_a_cell_that_was_measured_and_has_its_heading() -> None:
    cells = json.loads(emulated.EMULATED.read_text("utf-8"))["cells"]
    known = {f"{one['scenario']}: {one['of']}: {one['quantity']}" for one in cells}
    text = PAGE.read_text("utf-8")
    for (profile, name), heading in page.read_causes().items():
        assert profile in grid.PROFILES
        assert name in known
        assert f"### {heading}\n" in text
    assert f"### {page.LEFT_OUT}\n" in text


def test_the_page_shows_every_scenario() -> None:
    text = PAGE.read_text("utf-8")
    assert len(grid.ROWS) >= 30
    assert all(f"| {row.name} |" in text for row in grid.ROWS)


def test_by_the_rule_the_default_is_the_profile_of_linux(tmp_path: Path) -> None:
    """Four simulated runs of each scenario beside the emulated ones that are kept."""
    cells = [one for row in grid.ROWS for one in row.simulated(4)]
    engine = NativeEngine()
    study = Study(engine, Store(tmp_path, engine.fingerprint()), CoreRunner(2))
    results = study.run(study.plan(cells))
    real, _ = emulated.read_emulated([row.name for row in grid.ROWS])
    simulated = {profile: agreement.values_of(results, profile) for profile in grid.PROFILES}
    rows = compared(real, simulated)
    assert agreement.chosen_default(rows) == "linux"
    assert agreement.counts(rows, "linux")["differs"] < 5
    assert len(rows) > 220


def test_a_default_flow_is_one_of_linux() -> None:
    path = grid.HERE / "downloads.toml"
    engine = NativeEngine()
    written = ('flows.download.transport.profile="linux"',)
    assert engine.load(path, ()).canonical() == engine.load(path, written).canonical()
