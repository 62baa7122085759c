"""The page: complete, self-contained, and true to the findings."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import EXPERIMENTS

from ontempo.lab import report_pages
from ontempo.lab.catalogue import Listing, listings, load_rows
from ontempo.lab.claims import Cause, Check, Claim, Finding, Paper, Verdict, World, no_cells
from ontempo.lab.errors import BadInputError, UnfitEnvironmentError
from ontempo.lab.experiments import load_papers
from ontempo.lab.figure_html import figure_html
from ontempo.lab.plots import Axis, Figure, Series, View, plotly_layout
from ontempo.lab.report import Judged, Report
from ontempo.lab.report_pages import pages, write_report
from ontempo.lab.statistics import Interval
from ontempo.lab.study import Study

VOID = {"meta", "link", "br", "img", "input", "path", "circle", "rect", "hr"}

ASSETS = {"assets/report.css", "assets/report.js", "assets/plotly.js"}


class Page(HTMLParser):
    """Collects the parts of a page that tests check; fails on mismatched tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.data: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script" and given.get("type") == "application/json":
            self.data.append("")
        self.loads += [given[name] or "" for name in ("src", "srcset", "action") if name in given]
        if tag == "link":
            self.loads.append(given.get("href") or "")
        elif given.get("href"):
            self.links.append(given["href"] or "")
        if given.get("id"):
            self.ids.append(given["id"] or "")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            if self.data and not self.data[-1] and data.startswith("{"):
                self.data[-1] = data
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def make(*checks: Check, published: str = "something") -> Report:
    points = {1.0: Interval(0.5, 0.4, 0.6, 9), 2.0: Interval(0.75, 0.7, 0.8, 9)}
    figure = Figure(
        "a line that rises",
        Axis("place", ticks={1.0: "here", 2.0: "there"}),
        Axis("value", format=".0%"),
        [View("1 s", [Series("PERT", "pert", points)]), View("2 s", [Series("RENO", "reno", {})])],
        "Delay",
        1,
    )
    claim = Claim(
        id="pert/fig0",
        title="A title",
        world=World.SIMULATION,
        published=published,
        expectation="it rises",
        cells=no_cells,
        judge=lambda _results: finding,
        scaling=lambda _scale: "Half of it.",
    )
    finding = Finding([figure], checks, ["A note."])
    paper = Paper("pert", "Of PERT", "About it.", [claim])
    judged = [Judged(claim, finding, "Half of it.", 1234)]
    every = listings([], [paper])
    return Report("quick", "ontempo-lab reproduce --quick", every, judged, "3f2a")


def page(report: Report, name: str = "pert.html") -> str:
    return pages(report)[name]


def pert() -> Paper:
    """The paper, without its real-time claims."""
    paper = next(paper for paper in load_papers(EXPERIMENTS) if paper.name == "pert")
    simulated = [claim for claim in paper.claims if claim.world is not World.EMULATION]
    return replace(paper, claims=simulated)


HOLDS = Check("It rises.", "rises", "from 0.5 to 0.75", True, "never shown")
FAILS = Check("It doubles.", "2.0", "1.5 times", False, "a short run")
UNDECIDED = Check("It stays.", "stays", "no data", None)


def test_the_page_shows_published_and_measured_values_and_the_command() -> None:
    words = Page(page(make(HOLDS, FAILS, UNDECIDED))).words
    for expected in (
        "something",
        "it rises",
        "Likely cause: a short run",
        "1.5 times",
        "2.0",
        "A note.",
        "1,234 cells. Half of it.",
        "ontempo-lab reproduce --quick --only pert/fig0",
        "0.75 (0.7 to 0.8)",
        "3f2a",
    ):
        assert expected in words
    assert "never shown" not in words


@pytest.mark.parametrize(
    ("checks", "counts"),
    [
        ((HOLDS,), (1, 0, 0, 0, 0, 0, 0, 0)),
        ((HOLDS, FAILS), (0, 0, 1, 0, 0, 0, 0, 0)),
        ((FAILS, HOLDS), (0, 0, 0, 1, 0, 0, 0, 0)),
        ((HOLDS, UNDECIDED), (0, 0, 0, 0, 0, 1, 0, 0)),
    ],
)
def test_verdicts_are_counted(checks: tuple[Check, ...], counts: tuple[int, ...]) -> None:
    report = make(*checks)
    assert tuple(report.count(verdict) for verdict in Verdict) == counts


def test_a_difference_shows_its_cause_and_experiment_or_that_there_is_none() -> None:
    unknown = Check("It doubles.", "2.0", "1.5 times", False)
    assert "Likely cause: not found yet" in Page(page(make(unknown))).words
    tried = Check("It doubles.", "2.0", "1.5 times", False, Cause("a short run", "make longer"))
    for name in ("pert.html", "differences.html"):
        words = Page(page(make(tried, HOLDS), name)).words
        assert "Likely cause: a short run Evidence: make longer" in words
    assert "It rises." not in Page(page(make(tried, HOLDS), "differences.html")).words


def test_a_cause_that_checks_share_is_shown_once() -> None:
    other = Check("It triples.", "3.0", "1.5 times", False, "a short run")
    words = Page(page(make(FAILS, HOLDS, other))).words
    assert words.count("Likely cause: a short run") == 1
    assert "Likely cause: as above." in words


def test_causes_keep_their_experiments_when_they_are_joined() -> None:
    both = Cause("one", "first") + Cause(" and two", "second")
    assert both == "one and two"
    assert both.experiment == "first; second"
    assert (Cause("one", "first") + " more").experiment == "first"


def test_pages_load_their_assets_alone_and_forbid_the_rest(tmp_path: Path) -> None:
    index = write_report(make(HOLDS, FAILS), tmp_path / "report")
    names = {path.name for path in index.parent.glob("*.html")}
    assert names == {"index.html", "pert.html", "differences.html"}
    for name in names:
        text = (index.parent / name).read_text("utf-8")
        found = Page(text)
        assert set(found.loads) <= ASSETS
        assert "default-src 'none'" in text
        for link in found.links:
            file, _, place = link.partition("#")
            there = Page((index.parent / (file or name)).read_text("utf-8"))
            assert not place or place in there.ids
    for asset in ASSETS:
        assert (index.parent / asset).stat().st_size > 1000
    style = (index.parent / "assets" / "report.css").read_text("utf-8")
    assert "url(" not in style
    assert "@import" not in style


def test_the_index_counts_judged_omitted_and_unwritten_claims() -> None:
    rows, papers = load_rows(EXPERIMENTS), [pert()]
    every = listings(rows, papers)
    claim = papers[0].claims[0]
    judged = [Judged(claim, Finding([], [HOLDS]), "", 0)]
    report = Report("quick", "ontempo-lab reproduce --quick", every, judged)
    total = sum(len(listing.entries) for listing in every)
    assert sum(report.tally(every).values()) == total
    assert report.tally(every)[Verdict.REPRODUCED] == 1
    words = Page(page(report, "index.html")).words
    assert "1 reproduced 0 reproduced under a reading 0 partly 0 contradicted" in words
    assert f"0 inconsistent 0 undecided 0 no verdict {total - 1} not yet" in words
    assert "Left out of this run." in words
    assert "Needs real packets, on real or emulated links." in words
    assert "ontempo simulates media over networks" in words
    for listing in every:
        for entry in listing.entries:
            assert entry.id in words
    assert [listing.name for listing in every][:4] == ["pert", "rr3216", "psp", "qosockets"]
    assert "Two applications, a video over UDP" in Page(page(report, "qosockets.html")).words


def test_words_from_a_paper_cannot_break_the_page() -> None:
    text = page(make(HOLDS, published="a < b & </script><b>"))
    assert "a &lt; b &amp; &lt;/script&gt;" in text
    assert "a < b & </script><b>" in Page(text).words


def test_figure_data_is_json_with_a_band_and_named_places() -> None:
    (data,) = Page(page(make(HOLDS))).data
    views = json.loads(data)["views"]
    band, line = views[0]
    assert band["fill"] == "toself"
    assert line["x"] == ["here", "there"]
    assert line["customdata"] == [[0.4, 0.6], [0.7, 0.8]]
    assert line["hovertemplate"][0] == "%{y:.0%} (%{customdata[0]:.0%} to %{customdata[1]:.0%})"
    assert views[1] == []


def test_a_single_line_without_a_name_has_no_legend_and_ticks_no_needless_digits() -> None:
    line = Series("", "pert", {1.0: Interval(0.5, 0.4, 0.6, 9)})
    figure = Figure("one", Axis("place"), Axis("share", format=".1%"), [View("", [line])])
    assert "<button" not in figure_html(figure, "one")
    assert plotly_layout(figure)["yaxis"]["tickformat"] == ".1~%"


def test_the_palette_has_every_colour_that_figures_name_in_both_schemes(study: Study) -> None:
    text = page(judge_all(pert(), study))
    style = (Path(report_pages.__file__).parent / "assets" / "report.css").read_text("utf-8")
    light, dark = style.split('data-theme="dark"]', 1)
    for name in set(re.findall(r"@([a-z0-9-]+)", "".join(Page(text).data))):
        assert f"--{name}:" in light
        assert f"--{name}:" in dark


def judge_all(paper: Paper, study: Study) -> Report:
    cells = {claim.id: list(claim.cells("quick")) for claim in paper.claims}
    results = study.run(study.plan(cell for each in cells.values() for cell in each))
    judged = [
        Judged(claim, claim.judge(results.of(cells[claim.id])), claim.scaling("quick"), 1)
        for claim in paper.claims
    ]
    every: list[Listing] = listings([], [paper])
    return Report("quick", "ontempo-lab reproduce --quick", every, judged)


def test_every_figure_of_a_whole_reproduction_is_on_the_page(study: Study) -> None:
    paper = pert()
    report = judge_all(paper, study)
    found = Page(page(report))
    assert len(found.data) == sum(len(judged.finding.figures) for judged in report.judged)
    for claim in paper.claims:
        assert claim.id.replace("/", "-") in found.ids
        assert f"ontempo-lab reproduce --quick --only {claim.id}" in found.words
        assert " ".join(claim.published.split()) in found.words
    assert pages(report) == pages(report)


def test_a_report_that_cannot_be_written_is_an_environment_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnfitEnvironmentError, match="cannot write here"):
        write_report(make(HOLDS), tmp_path / "file" / "report")


def test_a_folder_that_is_no_report_is_not_replaced(tmp_path: Path) -> None:
    theirs = tmp_path / "report" / "thesis.html"
    theirs.parent.mkdir()
    theirs.write_text("ten years")
    with pytest.raises(BadInputError, match="not written here"):
        write_report(make(HOLDS), tmp_path / "report")
    assert theirs.read_text() == "ten years"


def test_an_interruption_while_a_report_is_replaced_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = write_report(make(HOLDS), tmp_path / "report")
    before, rename = index.read_text(), Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if path.name.startswith(".tmp-"):
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_report(make(FAILS), tmp_path / "report")
    assert index.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_report_replaces_the_one_before_and_leaves_nothing_temporary(tmp_path: Path) -> None:
    write_report(make(HOLDS), tmp_path / "report")
    (tmp_path / "report" / "of-old.html").write_text("stale")
    write_report(make(HOLDS), tmp_path / "report")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert not (tmp_path / "report" / "of-old.html").exists()
