"""Claims under several readings of their paper: the verdict, the tables, the pages."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import EXPERIMENTS
from made import Made
from test_report import Page, make, page

from ontempo.lab.cells import Cell
from ontempo.lab.claims import (
    Check,
    Choice,
    Claim,
    Conclusion,
    Finding,
    Paper,
    Reading,
    Verdict,
    World,
    no_cells,
)
from ontempo.lab.differences import differences
from ontempo.lab.errors import BadInputError
from ontempo.lab.experiments import load_papers
from ontempo.lab.readings import (
    judgement,
    requested,
    under,
    with_cells,
    with_results,
    with_settings,
)
from ontempo.lab.report import Judged, Report
from ontempo.lab.study import Results
from ontempo.lab.summary import held_under, holding, table_of_readings
from ontempo.lab.verdict_file import verdict_lines

PAPERS = load_papers(EXPERIMENTS)

HEAD, MORE = "It rises.", "By a half."


def finding(*outcomes: bool | None) -> Finding:
    return Finding([], [Check(f"{place}", "", "", ok) for place, ok in enumerate(outcomes)])


def claim(
    headline: str = "", exclusive: tuple[str, str] | tuple[()] = (), *, conjecture: bool = False
) -> Claim:
    return Claim(
        id="pert/fig0",
        title="A title",
        world=World.SIMULATION,
        published="something",
        expectation="it rises",
        cells=no_cells,
        judge=lambda _results: finding(True),
        scaling=lambda _scale: "",
        headline=headline,
        exclusive=exclusive,
        conjecture=conjecture,
    )


def verdict(*readings: Sequence[bool | None], headline: str = "") -> str:
    names = ["primary", "run", "late"]
    found = {name: finding(*outcomes) for name, outcomes in zip(names, readings, strict=False)}
    return str(judgement(claim(headline), found))


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ([(True, True)], "reproduced"),
        ([(True, True), (False, False)], "reproduced"),
        ([(True, False), (True, True)], "reproduced under run"),
        ([(None, True), (False, False), (True, True)], "reproduced under late"),
        ([(True, False)], "partly"),
        ([(True, False), (True, False)], "partly"),
        ([(True, None, False), (False, False)], "partly"),
        ([(False, False), (True, False)], "partly under run"),
        ([(False, False, False), (True, False, False), (True, True, False)], "partly under late"),
        ([(False, True), (False, True)], "contradicted"),
        ([(False, True), (None, True)], "undecided"),
        ([(True, None)], "undecided"),
        ([(None, False)], "undecided"),
        ([(None, False), (True, False)], "undecided"),
        ([()], "undecided"),
    ],
)
def test_the_verdict_follows_from_all_readings(
    readings: list[tuple[bool | None, ...]], words: str
) -> None:
    assert verdict(*readings) == words


def test_a_claim_can_name_another_headline_than_its_first_check() -> None:
    assert verdict((True, False), headline="1") == "contradicted"
    assert verdict((False, True), headline="1") == "partly"


def test_two_sentences_that_exclude_each_other_are_inconsistent_once_both_are_measured() -> None:
    def of(*values: tuple[float, ...]) -> Verdict:
        checks = [Check(f"{place}", "", "", None, "", one) for place, one in enumerate(values)]
        return judgement(claim(exclusive=("0", "1")), {"": Finding([], checks)}).verdict

    assert of((1.0, 2.0), (1.0, 2.0)) is of((0.0,), (3.0,), ()) is Verdict.INCONSISTENT
    for missing in ([(1.0,), (math.nan,)], [(1.0,), ()], [(1.0,)]):
        assert of(*missing) is Verdict.UNDECIDED


def test_a_conjecture_has_no_verdict_whatever_was_measured() -> None:
    for outcomes in ((True,), (False, True), (None,), ()):
        found = judgement(claim(conjecture=True), {"": finding(*outcomes), "run": finding(True)})
        assert str(found) == "no verdict"


def three(others: dict[str, Finding]) -> tuple[Report, list[Reading]]:
    """A paper with three readings, of which one changes nothing for its only claim."""
    readings = [
        Reading("as defined", "As section 3 has it.", [Choice("G of an ADU.", "3.3", "fig. 13")]),
        Reading("run", "Of the run.", [Choice("G of the run.", "section 1")]),
        Reading("late", "Nothing more."),
    ]
    report = make(Check(HEAD, "", "", True), Check(MORE, "", "", False, "chance"))
    (listing,) = report.listings
    assert listing.paper
    conclusion = Conclusion("It doubles.", ["pert/fig0", "pert/fig99"], "Only for some.")
    paper = replace(listing.paper, readings=readings, conclusions=[conclusion])
    listing = replace(listing, paper=paper, source="X, 2011")
    (judged,) = report.judged
    return replace(report, listings=[listing], judged=[replace(judged, others=others)]), readings


def both_hold() -> Finding:
    return Finding([], [Check(HEAD, "", "", True), Check(MORE, "", "", True)])


def test_the_table_of_readings_has_counts_and_marks_what_holds() -> None:
    report, readings = three({"run": both_hold(), "late": finding(False, False)})
    heads, rows = table_of_readings(report.judged, readings)
    assert heads == ["claim", "as defined", "run", "late", "verdict"]
    assert rows[0] == ["fig0", "1 of 2", "✓ 2 of 2", "0 of 2", "reproduced under run"]
    assert rows[1][1:4] == [
        "0 of 1 claims, 1 of 2 checks",
        "1 of 1 claims, 2 of 2 checks",
        "0 of 1 claims, 0 of 2 checks",
    ]
    assert holding(report.judged[0], readings) == ["run"]
    assert held_under(report.judged, readings, readings[1]).checks == 2


def test_a_conjecture_counts_for_nothing() -> None:
    report, readings = three({"run": both_hold(), "late": finding(False, False)})
    (judged,) = report.judged
    guess = replace(judged, claim=replace(claim(conjecture=True), id="pert/guess"))
    _, rows = table_of_readings([judged, guess], readings)
    assert rows[1][1:] == ["–", "–", "–", "no verdict"]
    assert rows[2] == table_of_readings([judged], readings)[1][1]
    assert verdict_lines([guess])[0] == "pert/guess\tverdict\tno verdict\t-"


def test_a_claim_that_is_alike_under_all_readings_is_shown_so() -> None:
    report, readings = three({})
    _, rows = table_of_readings(report.judged, readings)
    assert rows[0][1:] == ["1 of 2", "1 of 2", "1 of 2", "partly"]


def test_pages_begin_with_the_conclusions_and_show_the_readings(tmp_path: Path) -> None:
    report, _ = three({"run": both_hold(), "late": finding(False, False)})
    index = Page(page(report, "index.html")).words
    assert index.index("It doubles.") < index.index("All verdicts")
    assert "Only for some. 1 reproduced under run" in index
    paper = Page(page(report)).words
    for expected in (
        "as defined (primary) As section 3 has it. G of an ADU. For: 3.3 Against: fig. 13",
        "Under the other readings: run 2 of 2 checks; late 0 of 2 checks.",
        "fig0 1 of 2 ✓ 2 of 2 0 of 2 reproduced under run",
    ):
        assert expected in paper
    (tmp_path / "pert").mkdir()
    text = differences(report, tmp_path)
    assert text.index("It doubles.") < text.index("## Of PERT") < text.index("### pert/fig0")
    assert "| fig0 | 1 of 2 | ✓ 2 of 2 | 0 of 2 | reproduced under run |" in text
    assert "**Reproduced under run.** something" in text


def test_the_file_of_verdicts_has_each_reading() -> None:
    report, _ = three({"run": both_hold()})
    assert [line.split("\t")[:4] for line in verdict_lines(report.judged)] == [
        ["pert/fig0", "verdict", "reproduced under run", "1 of 2"],
        ["pert/fig0", "primary", HEAD, "held"],
        ["pert/fig0", "primary", MORE, "failed"],
        ["pert/fig0", "run", HEAD, "held"],
        ["pert/fig0", "run", MORE, "held"],
    ]


def test_a_reading_changes_cells_and_results_of_a_claim() -> None:
    cell = Cell(Path("a.toml"), ("x=1", "y=2"), 0)
    assert with_settings(cell, "y=3", "z=4").overrides == ("x=1", "y=3", "z=4")
    base = replace(claim(), cells=lambda _scale: [cell])
    changed = with_cells(base, lambda one: with_settings(one, "x=5"))
    assert [one.overrides for one in changed.cells("quick")] == [("y=2", "x=5")]

    def judge(results: Results) -> Finding:
        return finding(*(True for _ in results.cells))

    other = replace(cell, seed=1)
    viewed = with_results(replace(base, judge=judge), lambda results: results.of([cell, other]))
    assert viewed.judge(Made((cell,), lambda _cell: {})).held == 2
    readings = [Reading("a", ""), Reading("b", "", of=lambda _claim: changed), Reading("c", "")]
    assert list(under(base, readings)) == ["a", "b", "c"]
    assert under(base, readings)["b"] is changed
    assert list(under(base, [readings[0], readings[2]])) == ["a"]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)
def test_papers_declare_readings_that_are_argued_and_conclusions_of_their_claims(
    paper: object,
) -> None:
    found = next(one for one in PAPERS if one is paper)
    declared = [*found.readings, *found.on_request]
    names = [reading.name for reading in declared]
    assert len(set(names)) == len(names)
    for reading in declared[len(declared) == 1 :]:
        assert reading.choices, reading.name
        assert all(choice.what and choice.supported for choice in reading.choices)
    claims = {one.id for one in found.claims}
    assert found.conclusions
    for conclusion in found.conclusions:
        assert set(conclusion.claims) <= claims, conclusion.text
        assert conclusion.found


def with_requests() -> list[Paper]:
    one, two, three = (Reading(name, f"About {name}.") for name in ("one", "two", "three"))
    return [
        Paper("a", "", "", [], [one], on_request=[two, three]),
        Paper("b", "", "", [], [one]),
    ]


def test_a_reading_that_runs_on_request_is_run_only_if_it_is_named() -> None:
    def run(*names: str) -> tuple[list[str], list[str]]:
        paper, other = requested(with_requests(), names)
        assert ([one.name for one in other.readings], other.on_request) == (["one"], [])
        return [one.name for one in paper.readings], [one.name for one in paper.on_request]

    assert run() == (["one"], ["two", "three"])
    assert run("three") == (["one", "three"], ["two"])
    assert run("all") == (["one", "two", "three"], [])
    with pytest.raises(BadInputError, match=r"--reading four: .* there are 'two', 'three', 'all'"):
        run("two", "four")
    with pytest.raises(BadInputError, match="no paper here has any"):
        requested(with_requests()[1:], ["two"])


def test_pages_say_which_readings_were_not_run(tmp_path: Path) -> None:
    report, readings = three({"run": both_hold()})
    (listing,) = report.listings
    (tmp_path / "pert").mkdir()

    def pages(run: int) -> tuple[str, str]:
        assert listing.paper
        paper = replace(listing.paper, readings=readings[:run], on_request=readings[run:])
        one = replace(report, listings=[replace(listing, paper=paper)])
        return Page(page(one)).words, differences(one, tmp_path)

    some, text = pages(2)
    words = "declared, not run here: it runs on request (--reading)"
    assert f"late Nothing more. ({words}.)" in some
    assert "as defined run verdict" in some
    assert f"- **late**: {words}. Nothing more." in text
    assert "| claim | as defined | run | verdict |" in text
    none, text = pages(1)
    assert some.count(words) == 1
    assert none.count(words) == 2
    assert "as defined verdict" not in none
    assert "| claim |" not in text


def test_judged_has_the_verdict_of_its_claim() -> None:
    judged = Judged(claim(), finding(False), "", 0, {"run": finding(True)})
    assert (judged.verdict, judged.judgement.reading) == (Verdict.REPRODUCED_UNDER, "run")
