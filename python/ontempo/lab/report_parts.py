"""Parts that several pages share: verdicts, checks, a claim with its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape

from ontempo.lab.catalogue import Entry
from ontempo.lab.claims import Check, Finding, Verdict
from ontempo.lab.figure_html import figure_html
from ontempo.lab.kept import KeptClaim
from ontempo.lab.readings import PRIMARY
from ontempo.lab.report import Judged, Report

SHAPES = {
    Verdict.REPRODUCED: '<path d="M2 8.5 6 12.5 14 3.5"/>',
    Verdict.REPRODUCED_UNDER: '<path d="M2 6.5 5.5 10 12 2.5M2 14H14"/>',
    Verdict.PARTLY: '<path d="M8 2A6 6 0 0 0 8 14V2M8 2A6 6 0 0 1 8 14"/>',
    Verdict.CONTRADICTED: '<path d="M2 5.5H14M2 10.5H14M11.5 1.5 4.5 14.5"/>',
    Verdict.INCONSISTENT: '<path d="M2 8H14M5 4.5 1.5 8 5 11.5M11 4.5 14.5 8 11 11.5"/>',
    Verdict.UNDECIDED: '<path d="M5 5.5A3 3 0 1 1 8 9V10.5M8 13.2V14"/>',
    Verdict.NO_VERDICT: '<path d="M3 8H13"/>',
    Verdict.NOT_YET: '<circle cx="8" cy="8" r="5.5" stroke-dasharray="2.4 2.4"/>',
}

OUTCOMES = {True: Verdict.REPRODUCED, False: Verdict.CONTRADICTED, None: Verdict.UNDECIDED}

CHECK_WORDS = {True: "holds", False: "does not hold", None: "undecided"}

NO_CAUSE = "not found yet"


def anchor(claim_id: str) -> str:
    """A claim's place on its page."""
    return claim_id.replace("/", "-")


def slug(verdict: Verdict) -> str:
    """A verdict as a class of the style sheet."""
    return verdict.value.replace(" ", "-")


def icon(verdict: Verdict) -> str:
    """A verdict as an icon, readable without colour."""
    return (
        '<svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="2"'
        f' stroke-linecap="round" aria-hidden="true">{SHAPES[verdict]}</svg>'
    )


def sentence(text: str) -> str:
    """Text as a sentence of HTML: capitalised, with a full stop."""
    return f"{escape(text[:1].upper() + text[1:])}."


def verdict_html(verdict: Verdict, words: str = "") -> str:
    """A verdict as icon and words, by default its name."""
    text = escape(words or verdict.value)
    return f'<span class="verdict {slug(verdict)}">{icon(verdict)}{text}</span>'


def tally_html(counts: Mapping[Verdict, int], *, small: bool = False) -> str:
    """How many of each."""
    items = "".join(
        f'<li class="{slug(verdict)}{"" if count else " none"}"><b>{count}</b> {verdict.value}</li>'
        for verdict, count in counts.items()
    )
    return f'<ul class="tally{" small" if small else ""}" aria-label="Verdicts">{items}</ul>'


def share_html(counts: Mapping[Verdict, int]) -> str:
    """The same as a bar."""
    total = sum(counts.values()) or 1
    parts = "".join(
        f'<i class="{slug(verdict)}" style="width:{100 * count / total:.2f}%"></i>'
        for verdict, count in counts.items()
        if count
    )
    return f'<div class="share" aria-hidden="true">{parts}</div>'


def held(finding: Finding) -> str:
    """How many checks hold."""
    return f"{finding.held} of {len(finding.checks)} checks"


def causes(checks: Sequence[Check]) -> list[str]:
    """The likely causes of a claim's differences, the first sentence of each."""
    found = [check.cause for check in checks if check.ok is False and check.cause]
    return list(dict.fromkeys(cause.split(". ")[0].rstrip(".") for cause in found))


def claim_html(report: Report, entry: Entry, judged: Judged) -> str:
    """A claim: its text beside its figures, its checks below."""
    claim, finding = judged.claim, judged.finding
    place = anchor(claim.id)
    figures = "".join(
        figure_html(figure, f"{place}-{index}") for index, figure in enumerate(finding.figures)
    )
    return (
        f'<section class="claim" id="{place}" aria-labelledby="{place}-title">'
        f'<div class="head"><span class="id">{escape(claim.id)}, {escape(entry.world)}</span>'
        f'<h2 id="{place}-title"><a href="#{place}">{escape(claim.title)}</a></h2>'
        f"{verdict_html(judged.verdict, str(judged.judgement))}</div>"
        f'<div class="{"beside" if figures else "alone-text"}"><dl class="terms">'
        f"{_term('What was published', claim.published)}"
        f"{_term('What that leads to expect', claim.expectation)}</dl>"
        f'<div class="figures">{figures}</div></div>'
        f"{_kept(report, entry)}{_under(judged)}{checks_html(finding.checks)}"
        f"{_how(report, judged)}</section>"
    )


def kept_html(kept: KeptClaim | None) -> str:
    """The verdict at full length, in words."""
    if kept is None:
        return ""
    held = "" if kept.conjecture else f", {kept.held()}"
    return f'<span class="kept">At full length: {escape(kept.words)}{held}.</span>'


def _kept(report: Report, entry: Entry) -> str:
    """Verdict and checks at full length, which were kept; before those of this run."""
    kept = report.at_full_length(entry)
    if kept is None:
        return ""
    checks = [Check(*asdict(check).values()) for check in kept.readings[PRIMARY]]
    others = "; ".join(f"{name} {kept.held(name)}" for name in kept.readings if name != PRIMARY)
    under = f'<p class="under">Under the other readings: {escape(others)}.</p>' if others else ""
    return (
        f"<h3>{kept_html(kept)}</h3>{under}{checks_html(checks, causes=False)}"
        "<h3>In this run, of a scaled grid</h3>"
    )


def _under(judged: Judged) -> str:
    """How many checks each of the other readings holds; empty where all readings are alike."""
    if not judged.others:
        return ""
    listed = "; ".join(f"{name} {held(finding)}" for name, finding in judged.others.items())
    return f'<p class="under">Under the other readings: {escape(listed)}.</p>'


def checks_html(checks: Sequence[Check], *, causes: bool = True) -> str:
    """Each check, published and measured beside each other, and why one does not hold."""
    if not checks:
        return "<p>Nothing was judged.</p>"
    shown: set[str] | None = set() if causes else None
    rows = "".join(_check(check, shown) for check in checks)
    return (
        '<table class="checks"><thead><tr><th><span class="hidden">Outcome</span></th>'
        "<th>Check</th><th>Published</th><th>Measured</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _check(check: Check, shown: set[str] | None) -> str:
    outcome = OUTCOMES[check.ok]
    return (
        f'<tr><td class="mark {slug(outcome)}">{icon(outcome)}'
        f'<span class="hidden">{CHECK_WORDS[check.ok]}</span></td>'
        f'<td class="what">{escape(check.sentence)}</td>'
        f'<td class="asked" data-label="Published:">{escape(check.published)}</td>'
        f'<td class="measured" data-label="Measured:">{escape(check.measured)}</td></tr>'
        f"{'' if shown is None else _cause(check, shown)}"
    )


def _cause(check: Check, shown: set[str]) -> str:
    """Why a check does not hold; a cause in `shown` is not repeated."""
    if check.ok is not False:
        return ""
    if check.doubt:
        text = escape(f"{check.doubt[:1].upper()}{check.doubt[1:]}.")
        return f'<tr class="cause"><td></td><td colspan="3">{text}</td></tr>'
    if check.cause in shown:
        return '<tr class="cause"><td></td><td colspan="3">Likely cause: as above.</td></tr>'
    if check.cause:
        shown.add(check.cause)
    text = f"Likely cause: {escape(check.cause or NO_CAUSE)}"
    if check.experiment:
        text += f'<span class="support">Evidence: <code>{escape(check.experiment)}</code></span>'
    return f'<tr class="cause"><td></td><td colspan="3">{text}</td></tr>'


def _term(name: str, text: str) -> str:
    return f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>"


def _how(report: Report, judged: Judged) -> str:
    notes = "".join(f"<p>{escape(note)}</p>" for note in judged.finding.notes)
    command = f"{report.command} --only {judged.claim.id}"
    cells = f"{judged.cells:,} cells. " if judged.cells else ""
    return (
        f'<details class="how"><summary>How it was measured, and how to run it again</summary>'
        f"{notes}<p>{cells}{escape(judged.scaling)}</p>"
        f'<div class="command"><code>{escape(command)}</code>'
        '<button type="button">Copy</button></div></details>'
    )
