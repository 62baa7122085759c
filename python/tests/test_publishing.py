"""Figures as PDF, differences as Markdown: from the same findings as the report."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import EXPERIMENTS
from test_report import FAILS, HOLDS, make

import ontempo
from ontempo.lab.claims import Cause, Check
from ontempo.lab.differences import differences, digest, digests, engine_digest
from ontempo.lab.engine_sources import LIST, sources_fingerprint
from ontempo.lab.experiments import load_papers
from ontempo.lab.figure_pdf import by_rows, palette, wrapped, write_figures

DOCS = EXPERIMENTS.parent / "docs"


def test_a_figure_is_a_pdf_with_a_page_for_each_view_and_always_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = {one.claim.id: one.finding.figures for one in make(HOLDS).judged}
    first, second = (write_figures(figures, tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == ["pert-fig0.pdf"]
    content = first[0].read_bytes()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page ") == 2
    assert content == second[0].read_bytes()


def test_the_palette_on_paper_is_the_reports_light_one() -> None:
    found = palette()
    assert found["surface"] == "#ffffff"
    assert {"pert", "cubic", "reno", "ink", "step-4"} <= set(found)


def test_a_legend_is_read_row_by_row_and_titles_break_evenly() -> None:
    order, columns = by_rows(["W = 8", "W = 16", "W = 32", "W = 64"])
    assert (order, columns) == ([0, 1, 2, 3], 4)
    order, columns = by_rows([f"a controller, {size} bytes" for size in range(5)])
    assert columns == 2
    assert order == [0, 2, 4, 1, 3]
    long = "T/μ: mean throughput of a file transfer over the video's rate"
    first, second = wrapped(long, 60).split("\n")
    assert abs(len(first) - len(second)) < 10
    assert wrapped("Time (s)", 60) == "Time (s)"


def test_differences_show_both_values_the_cause_and_its_experiment(tmp_path: Path) -> None:
    tried = Check("It | doubles.", "2.0", "1.5 times", False, Cause("a short run", "make longer"))
    unknown = Check("It stays.", "stays", "moves", False)
    page = differences(make(HOLDS, tried, unknown), tmp_path)
    assert r"| It \| doubles. | 2.0 | 1.5 times |" in page
    assert "Likely cause: a short run. Evidence: `make longer`." in page
    assert "Likely cause: not found yet." in page
    assert "It rises." not in page
    assert "1 of 3 checks hold" in page


def test_a_cause_that_is_doubted_is_not_shown_and_the_undecided_are_listed(
    tmp_path: Path,
) -> None:
    doubted = replace(FAILS, cause="", doubt="the cause is no longer known: it was found at 1")
    open_ = Check("It | waits.", "waits", "nothing of it", None)
    page = differences(make(doubted, open_), tmp_path)
    assert "It doubles. The cause is no longer known: it was found at 1.\n" in page
    assert "Likely cause" not in page
    assert r"| pert/fig0 | It \| waits. | nothing of it |" in page


def test_a_changed_claim_has_another_digest(tmp_path: Path) -> None:
    (tmp_path / "pert").mkdir()
    claims = tmp_path / "pert" / "claims.py"
    claims.write_text("one")
    before = digests(differences(make(FAILS), tmp_path))
    assert before == {"pert": digest(tmp_path / "pert")}
    claims.write_text("two")
    assert digests(differences(make(FAILS), tmp_path)) != before


def test_the_page_of_differences_is_of_the_claims_as_they_are() -> None:
    written = digests((DOCS / "differences.md").read_text("utf-8"))
    now = {paper.name: digest(EXPERIMENTS / paper.name) for paper in load_papers(EXPERIMENTS)}
    assert written == now, "claims have changed: run `make differences`"


def test_the_page_of_differences_is_of_the_engine_as_it_is() -> None:
    written = engine_digest((DOCS / "differences.md").read_text("utf-8"))
    now = sources_fingerprint(EXPERIMENTS.parent, films=False)
    assert written == now, (
        "docs/differences.md is of another engine (claims_fingerprint): run `make differences`,"
        " 12 to 19 minutes of two cores"
    )


def test_the_engine_that_was_built_is_of_the_sources_as_they_are() -> None:
    checkout = EXPERIMENTS.parent
    assert ontempo.engine_fingerprint() == sources_fingerprint(checkout), "make build"
    assert ontempo.claims_fingerprint() == sources_fingerprint(checkout, films=False), "make build"


def test_another_source_or_locked_dependency_is_another_engine(tmp_path: Path) -> None:
    (tmp_path / LIST).parent.mkdir(parents=True)
    (tmp_path / LIST).write_text("crate network\ncrate media\nfilm media/src\n")
    link, film = (tmp_path / "crates" / name / "src" / "a.rs" for name in ("network", "media"))
    for source in (link, film):
        source.parent.mkdir(parents=True)
    whole, claims = [], []
    for texts in (
        ("1", "1", lock()),
        ("2", "1", lock()),
        ("2", "2", lock()),
        ("2", "2", lock(leaf="2.0.0")),
        ("2", "2", lock(leaf="2.0.0", of_others="9.0.0")),
    ):
        for path, text in zip((link, film, tmp_path / "Cargo.lock"), texts, strict=True):
            path.write_text(text)
        whole.append(sources_fingerprint(tmp_path))
        claims.append(sources_fingerprint(tmp_path, films=False))
    assert len(set(whole[:4])) == 4
    assert claims[1] == claims[2]
    assert len(set(claims[:4])) == 3
    assert (whole[3], claims[3]) == (whole[4], claims[4]), "no crate of the engine depends on it"


def lock(leaf: str = "1.0.0", of_others: str = "1.0.0") -> str:
    """A lock file: the engine depends on a leaf through a library; a program on others."""
    packages: tuple[tuple[str, str, list[str]], ...] = (
        ("ontempo-network", "0.1.0", ["library"]),
        ("ontempo-media", "0.1.0", []),
        ("ontempo-cli", "0.1.0", ["others", "ontempo-network"]),
        ("library", "1.0.0", [f"leaf {leaf}"]),
        ("leaf", leaf, []),
        ("leaf", "0.5.0", []),
        ("others", of_others, ["leaf 0.5.0"]),
    )
    return "version = 4\n" + "".join(
        f'\n[[package]]\nname = "{name}"\nversion = "{version}"\ndependencies = {needed}\n'
        for name, version, needed in packages
    )
