"""All differences as a page of Markdown, from the claims' texts.

The page carries a digest of each paper's folder of experiments and the claims' fingerprint of the
engine (`ClaimsEngine`), so that a test can detect that a claim or the engine was changed and the
page was not rewritten.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from ontempo.lab.catalogue import Listing
from ontempo.lab.claims import Check, Paper, Verdict
from ontempo.lab.readings import PRIMARY
from ontempo.lab.report import Judged, Report
from ontempo.lab.report_parts import NO_CAUSE
from ontempo.lab.summary import NOT_RUN, UNCOUNTED, concluded, judged_of, table_of_readings

ENGINE_MARK = re.compile(r"<!-- engine: ([0-9a-f]+) -->")

MARK = re.compile(r"<!-- experiments/(\S+): ([0-9a-f]+) -->")

HEAD = """\
# Does it hold?

First what the papers conclude, and what was found. Then, for each paper, its claims under each
[reading](verdicts.md#readings) of its text, and every check that does not hold under the primary
reading: what was published, what was measured, and the most likely cause, with the experiment that
supports it where one was made. A cause is shown only while what is measured is what it was found
for. Nothing was tuned to make a difference go away. Last, what could not be decided. The rules of
the verdicts: [verdicts.md](verdicts.md). The published figures beside ours:
`ontempo-lab reproduce --quick`.

This page is generated: `make differences` writes it anew.
"""

NOT_HELD = (
    Verdict.REPRODUCED_UNDER,
    Verdict.PARTLY,
    Verdict.CONTRADICTED,
    Verdict.INCONSISTENT,
    Verdict.UNDECIDED,
)
"""The verdicts of claims of which a check may fail under the primary reading."""


def differences(report: Report, experiments: Path) -> str:
    """The page."""
    parts = [HEAD, f"<!-- engine: {report.engine or '0'} -->\n"]
    for listing in report.listings:
        parts += _conclusions(report, listing)
    parts.append(_counts(report))
    for listing in report.listings:
        claims = judged_of(report, listing)
        if not claims:
            continue
        parts.append(f"## {listing.title}\n")
        parts.append(f"<!-- experiments/{listing.name}: {digest(experiments / listing.name)} -->\n")
        parts += _kept(report, listing)
        if listing.paper:
            parts += _readings(claims, listing.paper)
        failing = [one for one in claims if one.verdict in NOT_HELD and one.finding.holds is False]
        parts += [_claim(judged) for judged in failing] or ["No check fails.\n"]
        parts += _undecided(claims)
    return "\n".join(parts)


def _conclusions(report: Report, listing: Listing) -> list[str]:
    """A paper's conclusions, each with what was found and the verdicts of its claims."""
    found = concluded(report, listing)
    if not found:
        return []
    lines = [f"**{listing.title}** ({listing.source})\n"] if listing.source else []
    lines += ["| the paper concludes | found | claims |", "| --- | --- | --- |"]
    lines += [
        f"| {_cell(one.conclusion.text)} | {_cell(one.conclusion.found)} | {_cell(one.verdicts)} |"
        for one in found
    ]
    return ["\n".join([*lines, ""])]


def _readings(claims: Sequence[Judged], paper: Paper) -> list[str]:
    """The readings of a paper that has several, and its claims under each that was run."""
    readings, declared = paper.readings, [*paper.readings, *paper.on_request]
    if len(declared) == 1:
        return []
    lines = ["### Readings\n"]
    for place, reading in enumerate(declared):
        rank = "the primary reading. " if place == 0 else ""
        if place >= len(readings):
            rank = f"{NOT_RUN}. "
        lines.append(f"- **{reading.name}**: {rank}{reading.about}")
        for choice in reading.choices:
            against = f" Against: {choice.opposed}" if choice.opposed else ""
            lines.append(f"  - {choice.what} For: {choice.supported}{against}")
    if len(readings) == 1:
        return ["\n".join([*lines, ""])]
    heads, rows = table_of_readings(claims, readings)
    lines += ["", "Checks that hold; ✓: all of them.\n", _row(heads), _row(["---"] * len(heads))]
    lines += map(_row, rows)
    return ["\n".join([*lines, ""])]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def digest(folder: Path) -> str:
    """Digest of a paper's claims: names and content of its files."""
    found = hashlib.blake2b(digest_size=8)
    paths = [path for path in folder.rglob("*") if path.suffix in (".py", ".toml")]
    for path in sorted(paths):
        found.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def engine_digest(page: str) -> str:
    """The engine's fingerprint in a page; empty if it has none."""
    found = ENGINE_MARK.search(page)
    return found[1] if found else ""


def digests(page: str) -> dict[str, str]:
    """The digests that a page carries, by paper."""
    return dict(MARK.findall(page))


def _counts(report: Report) -> str:
    tables = [(f"{report.scale} grid", report.tally, report.listings)]
    kept = [one for one in report.listings if one.name in report.kept]
    if kept:
        tables.insert(0, ("at full length", report.kept_tally, kept))
    lines = []
    for name, tally, listings in tables:
        heads = [name, *(verdict.value for verdict in Verdict)]
        lines += [_row(heads), _row(["---"] * len(heads))]
        lines += [_row([one.title, *map(str, tally([one]).values())]) for one in listings]
        lines.append("")
    return "\n".join(lines)


def _kept(report: Report, listing: Listing) -> list[str]:
    """A paper's claims at full length, which were kept: checks that hold, by reading."""
    parts = report.kept.get(listing.name, ())
    if not parts:
        return []
    names = list(dict.fromkeys(n for part in parts for one in part.claims for n in one.readings))
    heads = ["claim", *names, "verdict"]
    lines = ["### At full length\n", *(f"{part.words}.\n" for part in parts)]
    lines += ["Checks that hold.\n", _row(heads), _row(["---"] * len(heads))]
    for one in (claim for part in parts for claim in part.claims):
        # A claim that is alike under all readings has but the primary one.
        held = [one.held(n if n in one.readings else PRIMARY) for n in names]
        if one.conjecture:
            held = [UNCOUNTED] * len(names)
        held = [text.removesuffix(" checks") for text in held]
        lines.append(_row([one.id.partition("/")[2], *held, one.words]))
    return ["\n".join([*lines, ""])]


def _claim(judged: Judged) -> str:
    claim, checks = judged.claim, judged.finding.checks
    failing = [check for check in checks if check.ok is False]
    lines = [
        f"### {claim.id}: {claim.title}\n",
        f"**{_capital(str(judged.judgement))}.** {claim.published} In {claim.world},"
        f" {judged.finding.held} of {len(checks)} checks hold.\n",
        "| check | published | measured |",
        "| --- | --- | --- |",
        *(f"| {_cell(c.sentence)} | {_cell(c.published)} | {_cell(c.measured)} |" for c in failing),
        "",
        *_causes(failing),
    ]
    return "\n".join(lines)


def _causes(failing: Sequence[Check]) -> list[str]:
    """Each cause once, with its experiment."""
    found: dict[str, str] = {}
    doubts: dict[str, None] = {}
    for check in failing:
        if check.doubt:
            doubts[f"{check.sentence} {check.doubt[:1].upper()}{check.doubt[1:]}.\n"] = None
        else:
            found.setdefault(check.cause or NO_CAUSE, check.experiment)
    causes = [
        f"Likely cause: {cause}{'' if cause.endswith('.') else '.'}"
        + (f" Evidence: `{experiment}`." if experiment else "")
        + "\n"
        for cause, experiment in found.items()
    ]
    return [*causes, *doubts]


def _undecided(claims: Sequence[Judged]) -> list[str]:
    """The checks of a paper that could not be decided, as a table."""
    rows = [
        f"| {judged.claim.id} | {_cell(check.sentence)} | {_cell(check.measured)} |"
        for judged in claims
        if not judged.claim.conjecture
        for check in judged.finding.checks
        if check.ok is None
    ]
    if not rows:
        return []
    heads = ["### Undecided\n", "| claim | check | measured |", "| --- | --- | --- |"]
    return ["\n".join([*heads, *rows, ""])]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
