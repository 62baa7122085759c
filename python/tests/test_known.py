"""Causes bound to measured values, and verdicts as a file."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import EXPERIMENTS
from test_report import make

from ontempo.lab.claims import Check, Finding, World
from ontempo.lab.errors import BadInputError
from ontempo.lab.experiments import load_papers
from ontempo.lab.known import (
    FILE,
    Bounds,
    bound_anew,
    bounds_around,
    known_text,
    read_known,
    with_known_causes,
)
from ontempo.lab.report import Judged
from ontempo.lab.verdict_file import VERDICT, changed_verdicts, verdict_lines, verdict_text

CLAIM, SENTENCE = "pert/fig0", "It doubles."


def fails(*values: float, cause: str = "a short run") -> Finding:
    return Finding([], [Check(SENTENCE, "2.0", "1.5 times", False, cause, values)])


def shown(finding: Finding, bounds: Bounds | None) -> Check:
    known = {} if bounds is None else {(CLAIM, SENTENCE): bounds}
    (check,) = with_known_causes(CLAIM, finding, known).checks
    return check


def test_a_cause_is_shown_between_its_bounds_only() -> None:
    bounds = bounds_around([1.5, -20.0])
    assert (bounds.least, bounds.most) == ((1.35, -22.0), (1.65, -18.0))
    inside = [(1.5, -20.0), (1.35, -22.0), (1.65, -18.0)]
    assert {shown(fails(*values), bounds).cause for values in inside} == {"a short run"}
    outside: list[tuple[float, ...]] = [(1.34, -20.0), (1.66, -20.0), (1.5, -17.9), (1.5,)]
    for beyond in [*outside, (1.5, math.nan)]:
        check = shown(fails(*beyond), bounds)
        assert check.cause == ""
        assert "the cause is no longer known: it was found at 1.5, -20, now" in check.doubt


def test_a_cause_that_is_bound_to_nothing_is_not_shown() -> None:
    check = shown(fails(1.5), None)
    assert (check.cause, check.doubt) == ("", "no cause is bound to what is measured: 1.5")


def test_without_a_difference_or_a_cause_there_is_nothing_to_doubt() -> None:
    held = Finding([], [replace(fails(1.5).checks[0], ok=True)])
    assert shown(held, None).doubt == ""
    assert shown(fails(1.5, cause=""), None).doubt == ""


def test_a_value_that_was_missing_when_the_cause_was_found_must_be_missing() -> None:
    bounds = bounds_around([math.nan, 2.0])
    assert shown(fails(math.nan, 2.0), bounds).cause
    assert not shown(fails(1.0, 2.0), bounds).cause


def test_binding_keeps_what_holds_and_what_was_not_judged_and_drops_what_no_longer_differs() -> (
    None
):
    narrow = Bounds((1.5,), (1.49,), (1.51,))
    other = ("pert/fig9", "It stays.")
    known = {(CLAIM, SENTENCE): narrow, other: narrow}
    assert bound_anew(known, {CLAIM: fails(1.5)}) == known
    again = bound_anew(known, {CLAIM: fails(3.0)})
    assert again[CLAIM, SENTENCE] == bounds_around([3.0])
    assert list(bound_anew(known, {CLAIM: Finding([], [])})) == [other]
    assert list(bound_anew({}, {CLAIM: fails(1.5, cause="")})) == []


def test_real_packets_are_given_wider_bounds() -> None:
    (bounds,) = bound_anew({}, {CLAIM: fails(2.0)}, real=[CLAIM]).values()
    assert (bounds.least, bounds.most) == ((1.0,), (3.0,))


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    known = {
        (CLAIM, 'It "doubles".'): bounds_around([1.23456789, math.nan, 0.0]),
        (CLAIM, "It ends."): bounds_around([math.inf, 2e-9]),
    }
    (tmp_path / FILE).write_text(known_text(known), "utf-8")
    found = read_known(tmp_path)
    assert known_text(found) == known_text(known)
    assert found[CLAIM, "It ends."].hold([math.inf, 2e-9])
    assert read_known(tmp_path / "none") == {}
    (tmp_path / FILE).write_text("[[cause]]\nclaim = 'a'")
    with pytest.raises(BadInputError, match=r"known\.toml: 'check'"):
        read_known(tmp_path)


def test_every_bound_is_of_a_claim_that_there_is() -> None:
    for paper in load_papers(EXPERIMENTS):
        known = read_known(EXPERIMENTS / paper.name)
        assert {claim for claim, _ in known} <= {claim.id for claim in paper.claims}
        assert known


def judged(*checks: Check) -> Sequence[Judged]:
    return make(*checks).judged


HELD = Check("It rises.", "rises", "to 0.75", True, values=(0.5, 0.75))
OPEN = Check("It stays.", "stays", "no data", None, values=(math.nan,))


def test_a_verdict_is_a_line() -> None:
    assert verdict_lines(judged(HELD, OPEN, *fails(1.5).checks)) == [
        "pert/fig0\tverdict\tpartly\t1 of 3",
        "pert/fig0\tprimary\tIt rises.\theld\t0.5 0.75",
        "pert/fig0\tprimary\tIt stays.\tundecided\tnone",
        "pert/fig0\tprimary\tIt doubles.\tfailed\t1.5",
    ]


def test_real_packets_are_not_in_the_file() -> None:
    (one,) = judged(HELD)
    assert not verdict_lines([replace(one, claim=replace(one.claim, world=World.EMULATION))])


def test_a_changed_verdict_or_value_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.txt"
    path.write_text(verdict_text(judged(HELD, OPEN)), "utf-8")
    assert changed_verdicts(path, judged(HELD, OPEN)) == []
    _, _, *lines = changed_verdicts(path, judged(replace(HELD, values=(0.5, 0.8)), OPEN))
    assert lines == [
        "-pert/fig0\tprimary\tIt rises.\theld\t0.5 0.75",
        "+pert/fig0\tprimary\tIt rises.\theld\t0.5 0.8",
    ]
    assert any(line.startswith("-") for line in changed_verdicts(path, judged(HELD)))
    assert changed_verdicts(tmp_path / "none", judged(HELD))


def test_lines_of_claims_that_were_not_judged_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.txt"
    path.write_text(verdict_text(judged(HELD)) + "pert/fig9\tprimary\tIt ends.\theld\t1\n", "utf-8")
    assert changed_verdicts(path, judged(HELD)) == []


def test_what_a_reading_that_was_not_run_decides_is_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.txt"
    (one,) = judged(OPEN)
    held = Finding([], [replace(OPEN, ok=True, values=(1.0,))])
    both = replace(one, others={"jitter": held})
    path.write_text(verdict_text([both]), "utf-8")
    assert changed_verdicts(path, [both]) == []
    assert changed_verdicts(path, [one]) == []
    assert changed_verdicts(path, judged(replace(OPEN, ok=True, values=(1.0,))))
    failed = replace(both, others={"jitter": fails(1.0)})
    assert any("jitter" in line for line in changed_verdicts(path, [failed]))


def test_the_committed_verdicts_are_of_all_computed_claims_each_check_once() -> None:
    lines = (EXPERIMENTS / "verdicts.txt").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    assert all(len(row) == (4 if row[1] == VERDICT else 5) for row in rows)
    assert len({tuple(row[:3]) for row in rows}) == len(rows)
    assert sum(row[1] == VERDICT for row in rows) == len({row[0] for row in rows})
    computed = {
        claim.id
        for paper in load_papers(EXPERIMENTS)
        for claim in paper.claims
        if claim.world in (World.ANALYSIS, World.SIMULATION)
    }
    assert {row[0] for row in rows} == computed
