"""The study of SRT and RIST: its rule, its paths, and what its page shows."""

import json
from pathlib import Path

import pytest
from experiments.carriers import page
from experiments.carriers.agreement import Compared
from experiments.carriers.grid import CARRIERS, ROWS

from ontempo.lab.engine import NativeEngine
from ontempo.lab.errors import BadInputError

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"


def row(
    simulated: list[float],
    emulated: list[float],
    quantity: str = "frames lost",
    path: str = ROWS[0].name,
) -> Compared:
    return Compared(path, "srt", quantity, simulated, emulated)


@pytest.mark.parametrize(
    ("simulated", "emulated", "quantity", "verdict"),
    [
        ([1.0, 1.1, 0.9], [2.0, 2.2], "frames lost", "agrees"),
        ([1.0, 1.1, 0.9], [4.0, 4.2], "frames lost", "differs"),
        ([1.0, 5.0, 9.0], [4.0, 4.2], "frames lost", "cannot be told"),
        ([1.05, 1.05, 1.05], [1.06, 1.07], "bytes", "agrees"),
        ([1.05, 1.05, 1.05], [1.09, 1.10], "bytes", "differs"),
        ([1.05], [1.05], "bytes", "cannot be told"),
        ([1.05, 1.05], [], "bytes", "cannot be told"),
    ],
)
def test_a_row_is_judged_by_its_whole_interval(
    simulated: list[float], emulated: list[float], quantity: str, verdict: str
) -> None:
    assert row(simulated, emulated, quantity).verdict == verdict


def test_each_path_is_a_scenario_with_both_carriers_on_links_of_their_own() -> None:
    engine = NativeEngine()
    assert len(ROWS) == 12
    for path in ROWS:
        cell = path.simulated(1)[0]
        scenario = json.loads(engine.load(cell.scenario, cell.overrides).canonical())
        ends = {(link["from"], link["to"]) for link in scenario["topology"]["links"]}
        assert ends == {
            pair
            for one in CARRIERS
            for pair in ((f"{one}-source", f"{one}-sink"), (f"{one}-sink", f"{one}-source"))
        }


def test_a_difference_shows_its_cause_or_that_it_has_none() -> None:
    rows = [row([1.0, 1.0], [9.0, 9.0]), row([1.0, 1.0], [9.0, 9.0], path=ROWS[1].name)]
    shown = page.measured(rows, "Here.", {rows[0].cell: "Its cause."})
    assert f"- {rows[0].cell}: Its cause." in shown
    assert f"- {rows[1].cell}: **without a cause**." in shown
    assert "2 rows: 0 agrees, 2 differs, 0 cannot be told. Here." in shown


def test_causes_that_cannot_be_read_are_an_error_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"causes\.toml"):
        page.read_causes(tmp_path / "causes.toml")
    assert isinstance(page.read_causes(), dict)


def test_the_page_has_the_table_of_each_carrier() -> None:
    shown = PAGE.read_text("utf-8").partition(page.MARKS[0])[2].partition(page.MARKS[1])[0]
    for path in ROWS:
        assert shown.count(f"| {path.name} |") == len(CARRIERS)
