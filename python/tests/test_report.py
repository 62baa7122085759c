"""The page: complete, self-contained, and true to the findings."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import EXPERIMENTS

from ontempo.lab.claims import Check, Claim, Finding, Paper, Verdict, World, no_cells
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.experiments import load_papers
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.report import Judged, Report, render, write_report
from ontempo.lab.statistics import Interval
from ontempo.lab.study import Study

VOID = {"meta", "link", "br", "img", "input", "path", "circle", "rect", "hr"}


class Page(HTMLParser):
    """Collects what a test asks about; fails on tags that do not match."""

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


@pytest.fixture(autouse=True)
def _small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing five megabytes for every test would take most of their time."""
    monkeypatch.setattr("ontempo.lab.report.get_plotlyjs", lambda: "/* plotly.js v0 */")


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
    return Report("quick", "ontempo-lab reproduce --quick", [paper], judged, "3f2a")


HOLDS = Check("It rises.", "rises", "from 0.5 to 0.75", True, "never shown")
FAILS = Check("It doubles.", "2.0", "1.5 times", False, "a short run")
UNDECIDED = Check("It stays.", "stays", "no data", None)


def test_the_page_says_what_was_published_what_was_found_and_how_to_rerun_it() -> None:
    words = Page(render(make(HOLDS, FAILS, UNDECIDED))).words
    for expected in (
        "something",
        "it rises",
        "Likely cause: a short run",
        "1.5 times",
        "2.0",
        "A note.",
        "1,234 cells. Half of it.",
        "ontempo-lab reproduce --quick --only pert/fig0",
        "1 of 3 checks",
        "0.75 (0.7 to 0.8)",
        "3f2a",
    ):
        assert expected in words
    assert "never shown" not in words


@pytest.mark.parametrize(
    ("checks", "counts"),
    [((HOLDS,), (1, 0, 0)), ((HOLDS, FAILS), (0, 1, 0)), ((HOLDS, UNDECIDED), (0, 0, 1))],
)
def test_verdicts_are_counted(checks: tuple[Check, ...], counts: tuple[int, ...]) -> None:
    report = make(*checks)
    assert tuple(report.count(verdict) for verdict in Verdict) == counts


def test_the_page_loads_nothing_and_forbids_loading() -> None:
    text = render(make(HOLDS))
    page = Page(text)
    assert not page.loads
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert "default-src 'none'" in text
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_plotly_is_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    text = render(make(HOLDS))
    assert len(re.findall(r"plotly\.js v\d", text)) == 1
    assert text.count("</script") == 3


def test_words_from_a_paper_cannot_break_the_page() -> None:
    text = render(make(HOLDS, published="a < b & </script><b>"))
    assert "a &lt; b &amp; &lt;/script&gt;" in text
    assert "a < b & </script><b>" in Page(text).words


def test_figure_data_is_json_with_a_band_and_named_places() -> None:
    page = Page(render(make(HOLDS)))
    (data,) = page.data
    views = json.loads(data)["views"]
    band, line = views[0]
    assert band["fill"] == "toself"
    assert line["x"] == ["here", "there"]
    assert line["customdata"] == [[0.4, 0.6], [0.7, 0.8]]
    assert line["hovertemplate"][0] == "%{y:.0%} (%{customdata[0]:.0%} to %{customdata[1]:.0%})"
    assert views[1] == []


def test_the_palette_has_every_colour_that_figures_name_in_both_schemes(study: Study) -> None:
    (paper,) = load_papers(EXPERIMENTS)
    text = render(judge_all(paper, study))
    style = text[text.index("<style>") : text.index("</style>")]
    light, dark = style.split("prefers-color-scheme: dark")
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
    return Report("quick", "ontempo-lab reproduce --quick", [paper], judged)


def test_every_figure_of_a_whole_reproduction_is_on_the_page(study: Study) -> None:
    (paper,) = load_papers(EXPERIMENTS)
    report = judge_all(paper, study)
    page = Page(render(report))
    assert len(page.data) == sum(len(judged.finding.figures) for judged in report.judged)
    for claim in paper.claims:
        assert claim.id.replace("/", "-") in page.ids
        assert f"ontempo-lab reproduce --quick --only {claim.id}" in page.words
        assert " ".join(claim.published.split()) in page.words
    assert render(report) == render(report)


def test_a_page_that_cannot_be_written_is_an_environment_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnfitEnvironmentError, match="cannot write the report"):
        write_report(make(HOLDS), tmp_path / "file" / "report.html")


def test_a_written_page_leaves_no_temporary_file(tmp_path: Path) -> None:
    write_report(make(HOLDS), tmp_path / "new" / "report.html")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]
