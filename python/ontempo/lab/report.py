"""One HTML file that shows every claim, what was found, and how to run it again.

The file needs nothing else: its style, its script and Plotly are inside, and its content
security policy forbids it to load anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from string import Template
from uuid import uuid4

from plotly.offline import get_plotlyjs

from ontempo.lab.claims import Check, Claim, Finding, Paper, Scale, Verdict
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.figure_html import figure_html

SCALES = {
    "quick": "a scaled grid: shorter videos, fewer seeds; each figure says what it leaves out",
    "full": "the whole published grid",
}

WORDS = {
    Verdict.REPRODUCED: "reproduced",
    Verdict.DIFFERS: "differs",
    Verdict.NOT_YET: "not yet",
}

SHAPES = {
    Verdict.REPRODUCED: '<path d="M2 8.5 6 12.5 14 3.5"/>',
    Verdict.DIFFERS: '<path d="M2 5.5H14M2 10.5H14M11.5 1.5 4.5 14.5"/>',
    Verdict.NOT_YET: '<circle cx="8" cy="8" r="5.5" stroke-dasharray="2.4 2.4"/>',
}

OUTCOMES = {True: Verdict.REPRODUCED, False: Verdict.DIFFERS, None: Verdict.NOT_YET}

CHECK_WORDS = {True: "holds", False: "does not hold", None: "undecided"}


@dataclass(frozen=True)
class Judged:
    """A claim with what was found."""

    claim: Claim
    finding: Finding
    scaling: str
    cells: int


@dataclass(frozen=True)
class Report:
    """All that one page shows. `command` is what runs all of it again."""

    scale: Scale
    command: str
    papers: Sequence[Paper]
    judged: Sequence[Judged]
    engine: str = ""
    cells: int = 0

    def count(self, verdict: Verdict) -> int:
        """How many claims got this verdict."""
        return sum(judged.finding.verdict is verdict for judged in self.judged)


def write_report(report: Report, path: Path) -> None:
    """Write the page, whole or not at all."""
    temporary = path.with_name(f".tmp-{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(render(report), encoding="utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UnfitEnvironmentError(
            f"{path}: cannot write the report: {error.strerror or error}"
        ) from error


def render(report: Report) -> str:
    """The whole page."""
    papers = [p for p in report.papers if any(j.claim.paper == p.name for j in report.judged)]
    title = papers[0].title if len(papers) == 1 else "Published claims, measured again"
    assets = files("ontempo.lab") / "assets"
    return Template((assets / "page.html").read_text("utf-8")).substitute(
        generator=escape(f"ontempo {_version()}"),
        title=escape(f"{title}: what was reproduced"),
        style=(assets / "report.css").read_text("utf-8"),
        body="\n".join([_header(report, title, papers), _claims(report), _footer(report)]),
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        script=(assets / "report.js").read_text("utf-8"),
    )


def _header(report: Report, title: str, papers: Sequence[Paper]) -> str:
    about = " ".join(escape(paper.about) for paper in papers)
    tally = "".join(
        f'<li class="{_slug(verdict)}{"" if report.count(verdict) else " none"}">'
        f"<b>{report.count(verdict)}</b> {WORDS[verdict]}</li>"
        for verdict in Verdict
    )
    rows = "".join(_summary_row(judged) for judged in report.judged)
    return (
        f'<header><p class="kicker">ontempo reproduction, {escape(report.scale)}:'
        f" {escape(SCALES[report.scale])}</p>"
        f'<h1>{escape(title)}</h1><p class="lede">{about}</p>'
        f'<ul class="tally" aria-label="Verdicts">{tally}</ul>'
        '<table class="summary"><caption class="hidden">Every claim and its verdict</caption>'
        f'<tbody>{rows}</tbody></table><p class="run">{_run(report)}</p></header>'
    )


def _run(report: Report) -> str:
    cells = f"{report.cells:,} different cells" if report.cells else "Nothing to run"
    engine = f", simulator <code>{escape(report.engine[:12])}</code>" if report.engine else ""
    return (
        f"{cells}{engine}. Every figure says which videos, round trips and seeds it rests on;"
        f" <code>{escape(report.command)}</code> makes this page."
    )


def _summary_row(judged: Judged) -> str:
    claim, checks = judged.claim, judged.finding.checks
    held = sum(check.ok is True for check in checks)
    return (
        f'<tr><td class="id">{escape(claim.id)}</td>'
        f'<th scope="row"><a href="#{_anchor(claim)}">{escape(claim.title)}</a>{_why(checks)}</th>'
        f'<td class="verdict {_slug(judged.finding.verdict)}">'
        f"{_verdict(judged.finding.verdict)}</td>"
        f'<td class="held">{held} of {len(checks)} checks</td></tr>'
    )


def _why(checks: Sequence[Check]) -> str:
    """The likely causes of a claim's differences, the first sentence of each."""
    causes = [check.cause for check in checks if check.ok is False and check.cause]
    first = dict.fromkeys(cause.split(". ")[0].rstrip(".") for cause in causes)
    if not first:
        return ""
    return f'<span class="why">Likely: {escape("; ".join(first))}.</span>'


def _claims(report: Report) -> str:
    sections = "\n".join(_claim(report, judged) for judged in report.judged)
    return f'<main id="claims">{sections}</main>'


def _claim(report: Report, judged: Judged) -> str:
    claim, finding = judged.claim, judged.finding
    anchor = _anchor(claim)
    figures = "".join(
        figure_html(figure, f"{anchor}-{index}") for index, figure in enumerate(finding.figures)
    )
    return (
        f'<section class="claim" id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<div class="head"><span class="id">{escape(claim.id)}, {escape(claim.world)}</span>'
        f'<h2 id="{anchor}-title">{escape(claim.title)}</h2>'
        f'<span class="verdict {_slug(finding.verdict)}">{_verdict(finding.verdict)}</span></div>'
        f'<dl class="terms">{_term("What was published", claim.published)}'
        f"{_term('What that leads to expect', claim.expectation)}</dl>"
        f"{figures}{_checks(finding.checks)}{_how(report, judged)}</section>"
    )


def _term(name: str, text: str) -> str:
    return f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>"


def _checks(checks: Sequence[Check]) -> str:
    if not checks:
        return "<p>Nothing was judged.</p>"
    rows = "".join(_check(check) for check in checks)
    return (
        '<table class="checks"><thead><tr><th><span class="hidden">Outcome</span></th>'
        "<th>Check</th><th>Published</th><th>Measured</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _check(check: Check) -> str:
    cause = ""
    if check.ok is False and check.cause:
        text = f"Likely cause: {escape(check.cause)}"
        cause = f'<tr class="cause"><td></td><td colspan="3">{text}</td></tr>'
    outcome = OUTCOMES[check.ok]
    return (
        f'<tr><td class="mark {_slug(outcome)}">{_icon(outcome)}'
        f'<span class="hidden">{CHECK_WORDS[check.ok]}</span></td>'
        f'<td class="what">{escape(check.sentence)}</td>'
        f'<td class="asked" data-label="Published:">{escape(check.published)}</td>'
        f'<td class="measured" data-label="Measured:">{escape(check.measured)}</td></tr>{cause}'
    )


def _how(report: Report, judged: Judged) -> str:
    notes = "".join(f"<p>{escape(note)}</p>" for note in judged.finding.notes)
    command = f"{report.command} --only {judged.claim.id}"
    cells = f"{judged.cells:,} cells. " if judged.cells else ""
    return (
        f'<div class="how">{notes}<p>{cells}{escape(judged.scaling)}</p>'
        f'<div><h3>Run just this again</h3><div class="command"><code>{escape(command)}</code>'
        '<button type="button">Copy</button></div></div></div>'
    )


def _footer(report: Report) -> str:
    facts = [
        ("Run again", f"<code>{escape(report.command)}</code>"),
        ("ontempo", escape(_version())),
        ("Simulator's sources", f"<code>{escape(report.engine)}</code>" if report.engine else ""),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts if value)
    return (
        "<footer><section><h2>How this was judged</h2>"
        "<p>Each claim is a set of checks, fixed before anything was run. A claim is"
        " <em>reproduced</em> only if every one of its checks holds; it <em>differs</em> if any"
        " does not, and both values are shown; it is <em>not yet</em> judged where the runs hold"
        " too little to tell. Checks compare the estimates themselves: “above” is strict, and no"
        " interval helps a value over a bound.</p>"
        "<p>The same scenario and seed give the same tables on every machine, so whoever runs"
        " the command gets this page.</p>"
        f"<dl>{listed}</dl></section></footer>"
    )


def _verdict(verdict: Verdict) -> str:
    return f"{_icon(verdict)}{WORDS[verdict]}"


def _icon(verdict: Verdict) -> str:
    return (
        '<svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="2"'
        f' stroke-linecap="round" aria-hidden="true">{SHAPES[verdict]}</svg>'
    )


def _slug(verdict: Verdict) -> str:
    return verdict.value.replace(" ", "-")


def _anchor(claim: Claim) -> str:
    return claim.id.replace("/", "-")


def _version() -> str:
    try:
        return version("ontempo")
    except PackageNotFoundError:
        return "from source"
