"""All differences as a page of Markdown, from the claims' texts.

The page carries a digest of each paper's folder of experiments and the fingerprint of the engine,
so that a test can detect that a claim or the engine was changed and the page was not rewritten.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from ontempo.lab.claims import Check, Verdict
from ontempo.lab.report import Judged, Report
from ontempo.lab.report_parts import NO_CAUSE

ENGINE_MARK = re.compile(r"<!-- engine: ([0-9a-f]+) -->")

MARK = re.compile(r"<!-- experiments/(\S+): ([0-9a-f]+) -->")

HEAD = """\
# Where we differ

Every check of a published claim that does not hold: what was published, what was measured, and the
most likely cause, with the experiment that supports it where one was made. A cause is shown only
while what is measured is what it was found for. Nothing was tuned to make a difference go away.
Below them, what could not be decided, by the [rule](verdicts.md). The published figures beside
ours: `make demo`.

This page is generated: `make differences` writes it anew.
"""


def differences(report: Report, experiments: Path) -> str:
    """The page."""
    parts = [HEAD, f"<!-- engine: {report.engine or '0'} -->\n", _counts(report)]
    for listing in report.listings:
        claims = [judged for judged in report.judged if judged.claim.paper == listing.name]
        if not claims:
            continue
        parts.append(f"## {listing.title}\n")
        parts.append(f"<!-- experiments/{listing.name}: {digest(experiments / listing.name)} -->\n")
        differing = [one for one in claims if one.finding.verdict is Verdict.DIFFERS]
        parts += [_claim(judged) for judged in differing] or ["Nothing differs.\n"]
        parts += _undecided(claims)
    return "\n".join(parts)


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
    rows = [
        f"| {listing.title} | "
        + " | ".join(str(count) for count in report.tally([listing]).values())
        + " |"
        for listing in report.listings
    ]
    heads = " | ".join(verdict.value for verdict in Verdict)
    return "\n".join(
        [f"| {report.scale} grid | {heads} |", "| --- |" + " --- |" * len(Verdict), *rows, ""]
    )


def _claim(judged: Judged) -> str:
    claim, checks = judged.claim, judged.finding.checks
    held = sum(check.ok is True for check in checks)
    failing = [check for check in checks if check.ok is False]
    lines = [
        f"### {claim.id}: {claim.title}\n",
        f"{claim.published} In {claim.world}, {held} of {len(checks)} checks hold.\n",
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
        for check in judged.finding.checks
        if check.ok is None
    ]
    if not rows:
        return []
    heads = ["### Undecided\n", "| claim | check | measured |", "| --- | --- | --- |"]
    return ["\n".join([*heads, *rows, ""])]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
