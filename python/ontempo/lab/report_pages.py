"""The pages: index, one for each paper, differences."""

from collections.abc import Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs

from ontempo.lab.catalogue import Entry, Listing
from ontempo.lab.claims import Choice, Verdict
from ontempo.lab.folder import replace_folder
from ontempo.lab.report import Judged, Report
from ontempo.lab.report_parts import (
    anchor,
    causes,
    checks_html,
    claim_html,
    held,
    icon,
    kept_html,
    sentence,
    share_html,
    slug,
    tally_html,
    verdict_html,
)
from ontempo.lab.summary import NOT_RUN, concluded, judged_of, table_of_readings

SCALES = {
    "quick": "a scaled grid (shorter runs, fewer seeds; each claim says what it leaves out)",
    "full": "the whole published grid",
}

SITE = "Published claims, measured again"
ABOUT = (
    "<b>ontempo</b> simulates media over networks packet by packet, and measures what arrives on"
    " time."
)
INDEX, DIFFERENCES = "index.html", "differences.html"


def write_report(report: Report, folder: Path) -> Path:
    """Write every page, all or none, and return the index."""
    replace_folder(folder, is_report, lambda new: _fill(report, new))
    return folder / INDEX


def is_report(folder: Path) -> bool:
    """Whether a report was written here before."""
    index = folder / INDEX
    return index.is_file() and SITE in index.read_text("utf-8", errors="replace")


def _fill(report: Report, folder: Path) -> None:
    for name, text in pages(report).items():
        (folder / name).write_text(text, "utf-8")
    assets = folder / "assets"
    assets.mkdir()
    own = files("ontempo.lab") / "assets"
    for name in ("report.css", "report.js"):
        (assets / name).write_text((own / name).read_text("utf-8"), "utf-8")
    (assets / "plotly.js").write_text(get_plotlyjs(), "utf-8")


def pages(report: Report) -> dict[str, str]:
    """Every page by its file's name."""
    found = {INDEX: _page(report, SITE, _index(report), INDEX)}
    for listing in report.listings:
        name = page_of(listing)
        found[name] = _page(report, listing.title, _paper(report, listing), name, plots=True)
    found[DIFFERENCES] = _page(report, "Where we differ", _differences(report), DIFFERENCES)
    return found


def page_of(listing: Listing) -> str:
    """The file of a paper's page."""
    return f"{listing.name}.html"


def _page(report: Report, title: str, body: str, name: str, *, plots: bool = False) -> str:
    template = (files("ontempo.lab") / "assets" / "page.html").read_text("utf-8")
    script = '<script src="assets/plotly.js"></script>\n' if plots else ""
    return Template(template).substitute(
        generator=escape(f"ontempo {_version()}"),
        title=escape(title if name == INDEX else f"{title}: {SITE.lower()}"),
        navigation=_navigation(report, name),
        body=body + _footer(report),
        plotly=script,
    )


def _navigation(report: Report, current: str) -> str:
    links = [(INDEX, "All papers")]
    links += [(page_of(listing), listing.title) for listing in report.listings]
    links.append((DIFFERENCES, "Differences"))
    items = "".join(
        f'<li><a href="{name}"{" aria-current=page" if name == current else ""}>{escape(text)}</a>'
        "</li>"
        for name, text in links
    )
    return f"<ul>{items}</ul>"


def _index(report: Report) -> str:
    counts = report.tally(report.listings)
    cards = "".join(_card(report, listing) for listing in report.listings)
    return (
        f'<header><p class="kicker">{ABOUT}</p><h1>{SITE}</h1>'
        '<p class="lede">Every figure, table and sentence of these papers that can be checked,'
        " run again with the mechanisms written anew, and judged by rules that are written down."
        f' Where ours <a href="{DIFFERENCES}">differs</a>, both values are shown, with the most'
        f" likely cause.</p>{_kept(report)}{tally_html(counts)}{share_html(counts)}"
        f'<p class="run">{_run(report)}</p></header>'
        f'<main id="content">{_conclusions(report)}'
        f'<section class="cards" aria-label="Papers">{cards}</section>'
        f"{_table(report)}</main>"
    )


def _kept(report: Report) -> str:
    """What is kept at full length, and of which papers."""
    kept = [one for one in report.listings if report.kept.get(one.name)]
    if not kept:
        return ""
    listed = "".join(
        f"<li>{escape(one.title)}: {escape(part.words)}</li>"
        for one in kept
        for part in report.kept[one.name]
    )
    counts = report.kept_tally(kept)
    of = "all papers" if kept == list(report.listings) else ", ".join(one.name for one in kept)
    return (
        f"<h2>At full length: {escape(of)}</h2>{tally_html(counts)}{share_html(counts)}"
        f'<ul class="run">{listed}</ul><h2>In this run</h2>'
    )


def _conclusions(report: Report) -> str:
    """What each paper concludes, and what was found."""
    parts = []
    for listing in report.listings:
        rows = "".join(
            f'<tr><th scope="row">{escape(one.conclusion.text)}</th>'
            f"<td>{escape(one.conclusion.found)}</td>"
            f'<td class="counts">{escape(one.verdicts)}</td></tr>'
            for one in concluded(report, listing)
        )
        if rows:
            parts.append(
                f'<h3><a href="{page_of(listing)}">{escape(listing.title)}</a></h3>'
                '<div class="wide"><table class="plain"><thead><tr><th>The paper concludes</th>'
                "<th>Found</th><th>Claims</th></tr></thead>"
                f"<tbody>{rows}</tbody></table></div>"
            )
    if not parts:
        return ""
    return (
        '<section class="conclusions" aria-labelledby="conclusions-title">'
        f'<h2 id="conclusions-title">Does it hold?</h2>{"".join(parts)}</section>'
    )


def _readings(report: Report, listing: Listing) -> str:
    """The readings of a paper that has several, with its claims under each."""
    if not listing.paper or len(listing.paper.readings) + len(listing.paper.on_request) == 1:
        return ""
    readings, others = listing.paper.readings, listing.paper.on_request
    terms = "".join(
        f"<div><dt>{escape(one.name)}{' (primary)' if one is readings[0] else ''}</dt>"
        f"<dd>{escape(one.about)}{''.join(map(_choice, one.choices))}</dd></div>"
        for one in readings
    )
    terms += "".join(
        f"<div><dt>{escape(one.name)}</dt><dd>{escape(f'{one.about} ({NOT_RUN}.)')}"
        f"{''.join(map(_choice, one.choices))}</dd></div>"
        for one in others
    )
    heads, rows = table_of_readings(judged_of(report, listing), readings)
    if len(readings) == 1:
        rows = []
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows
    )
    table = (
        f'<div class="wide"><table class="plain"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
    return (
        '<section class="readings" aria-labelledby="readings-title">'
        f'<h2 id="readings-title">Readings</h2><dl class="terms">{terms}</dl>'
        f"{table if rows else ''}</section>"
    )


def _choice(choice: Choice) -> str:
    against = f" Against: {choice.opposed}" if choice.opposed else ""
    return f"<p>{escape(f'{choice.what} For: {choice.supported}{against}')}</p>"


def _card(report: Report, listing: Listing) -> str:
    counts = report.tally([listing])
    source = f'<p class="source">{escape(listing.source)}</p>' if listing.source else ""
    return (
        f'<article class="card"><h2><a href="{page_of(listing)}">{escape(listing.title)}</a></h2>'
        f"{source}<p>{escape(listing.about)}</p>{share_html(counts)}"
        f"{tally_html(counts, small=True)}</article>"
    )


def _table(report: Report) -> str:
    rows = "".join(
        _row(report, listing, entry) for listing in report.listings for entry in listing.entries
    )
    counts = report.tally(report.listings)
    chips = "".join(
        f'<button type="button" aria-pressed="false" data-verdict="{slug(verdict)}"'
        f' class="{slug(verdict)}">{icon(verdict)}{verdict.value} <b>{counts[verdict]}</b></button>'
        for verdict in Verdict
    )
    papers = "".join(
        f'<option value="{escape(one.name)}">{escape(one.title)}</option>'
        for one in report.listings
    )
    total = sum(counts.values())
    return (
        '<section class="verdicts" aria-labelledby="verdicts-title">'
        '<h2 id="verdicts-title">All verdicts</h2>'
        f'<form class="filter" role="search"><div class="chips">{chips}</div>'
        f'<select aria-label="Paper"><option value="">All papers</option>{papers}</select>'
        '<input type="search" placeholder="Search, as in fig9 or jitter" aria-label="Search">'
        f'<output aria-live="polite">{total} of {total}</output></form>'
        '<table class="summary"><caption class="hidden">Every claim and its verdict</caption>'
        f"<tbody>{rows}</tbody></table></section>"
    )


def _row(report: Report, listing: Listing, entry: Entry) -> str:
    judged, verdict = report.found(entry), report.verdict(entry)
    title, why, last, words = escape(entry.title), "", "", ""
    kept = kept_html(report.at_full_length(entry))
    if judged:
        words = str(judged.judgement)
        title = f'<a href="{page_of(listing)}#{anchor(entry.id)}">{title}</a>'
        last = held(judged.finding)
        if likely := causes(judged.finding.checks):
            why = f'<span class="why">Likely: {escape("; ".join(likely))}.</span>'
    else:
        why = f'<span class="why">{sentence(report.reason(entry))}</span>'
    return (
        f'<tr data-verdict="{slug(verdict)}" data-paper="{escape(listing.name)}">'
        f'<td class="id">{escape(entry.id)}</td><td class="world">{escape(entry.world)}</td>'
        f'<th scope="row">{title}{kept}{why}</th>'
        f'<td class="state">{verdict_html(verdict, words)}</td>'
        f'<td class="held">{last}</td></tr>'
    )


def _paper(report: Report, listing: Listing) -> str:
    counts = report.tally([listing])
    about = listing.paper.about if listing.paper else listing.about
    judged = [(entry, found) for entry in listing.entries if (found := report.found(entry))]
    claims = "".join(claim_html(report, entry, found) for entry, found in judged)
    source = f" {escape(listing.source)}." if listing.source else ""
    return (
        f'<header><p class="kicker">{source}</p><h1>{escape(listing.title)}</h1>'
        f'<p class="lede">{escape(about)}</p>{tally_html(counts)}{share_html(counts)}</header>'
        f'<main id="content" class="paper">{_contents(judged)}<div class="claims">'
        f"{_readings(report, listing)}{claims}{_rest(report, listing)}</div></main>"
    )


def _contents(judged: Sequence[tuple[Entry, Judged]]) -> str:
    if not judged:
        return ""
    items = "".join(
        f'<li><a href="#{anchor(entry.id)}"><span class="{slug(found.verdict)}">'
        f'{icon(found.verdict)}<span class="hidden">{escape(str(found.judgement))}</span>'
        f"</span><b>{escape(entry.id.partition('/')[2])}</b>"
        f'<span class="t">{escape(entry.title)}</span></a></li>'
        for entry, found in judged
    )
    return f'<nav class="contents" aria-label="On this page"><ol>{items}</ol></nav>'


def _rest(report: Report, listing: Listing) -> str:
    """Claims of this paper that were not judged."""
    missing = [entry for entry in listing.entries if not report.found(entry)]
    if not missing:
        return ""
    rows = "".join(
        f'<tr><td class="id">{escape(entry.id)}</td><td class="world">{escape(entry.world)}</td>'
        f'<th scope="row">{escape(entry.title)}<span class="why">{sentence(report.reason(entry))}'
        f" Expected: {escape(entry.row.expectation)}.</span></th></tr>"
        for entry in missing
    )
    return (
        '<section class="rest"><h2>Not judged here</h2><table class="summary">'
        f"<tbody>{rows}</tbody></table></section>"
    )


def _differences(report: Report) -> str:
    homes = {entry.id: page_of(one) for one in report.listings for entry in one.entries}
    found = (report.by_id.get(name) for name in homes)
    differing = [one for one in found if one and one.finding.holds is False]
    sections = "".join(
        f'<section class="difference"><h2><a href="{homes[judged.claim.id]}'
        f'#{anchor(judged.claim.id)}">{escape(judged.claim.title)}</a></h2>'
        f'<p class="id">{escape(judged.claim.id)}, {escape(judged.claim.world)}: '
        f"{escape(str(judged.judgement))}, "
        f"{held(judged.finding)} hold</p>"
        f"{checks_html([check for check in judged.finding.checks if check.ok is False])}</section>"
        for judged in differing
    )
    return (
        '<header><h1>Where we differ</h1><p class="lede">Every check that does not hold under the'
        " primary reading of its paper: what was published, what was measured, and the most likely"
        " cause with the experiment that supports it, where one was made. Nothing was tuned to make"
        " a difference go away.</p></header>"
        f'<main id="content">{sections or "<p>Nothing differs.</p>"}</main>'
    )


def _run(report: Report) -> str:
    cells = f"{report.cells:,} different cells" if report.cells else "Nothing to run"
    engine = f", simulator <code>{escape(report.engine[:12])}</code>" if report.engine else ""
    return (
        f"{cells}{engine}, {escape(SCALES[report.scale])}."
        f" <code>{escape(report.command)}</code> makes these pages."
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
        "<p>Each claim is a set of checks, fixed before anything was run but for what the notes"
        " name. All claims of a paper run under each of its readings, sets of choices where its"
        " text is open; one reading is primary. A claim is <em>reproduced</em> only if every one of"
        " its checks holds under the primary reading, <em>reproduced under</em> another if under"
        " that; <em>partly</em> where the check that says what it is about holds and others fail;"
        " <em>contradicted</em> where that one fails under every reading; <em>inconsistent</em>"
        " where the paper says two things that exclude each other. It is <em>undecided</em> where"
        " evidence is missing, or estimates that are compared cannot be told apart, has"
        " <em>no verdict</em> where the paper supposes something without a number, and is"
        " <em>not yet</em> judged where it is not written, or was left out of this run. No"
        " confidence interval helps a value over a published bound.</p>"
        "<p>Simulated, the same scenario and seed give the same tables on every machine, so whoever"
        " runs the command gets these pages. Emulation is of real packets in real time: no two runs"
        " are equal, and each says under which load it was made.</p>"
        f"<dl>{listed}</dl></section></footer>"
    )


def _version() -> str:
    try:
        return version("ontempo")
    except PackageNotFoundError:
        return "from source"
