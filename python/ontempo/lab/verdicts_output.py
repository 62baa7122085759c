"""Output of ``ontempo-lab reproduce``: verdicts by paper, checks that do not hold, counts."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from ontempo.lab.catalogue import Entry, Listing
from ontempo.lab.claims import Finding, Verdict
from ontempo.lab.report import Judged, Report
from ontempo.lab.report_parts import OUTCOMES

MARKS = {
    Verdict.REPRODUCED: "[green]✓[/]",
    Verdict.REPRODUCED_UNDER: "[green]∗[/]",
    Verdict.PARTLY: "[yellow]◐[/]",
    Verdict.CONTRADICTED: "[red]≠[/]",
    Verdict.INCONSISTENT: "[yellow]↔[/]",
    Verdict.UNDECIDED: "[yellow]?[/]",
    Verdict.NO_VERDICT: "–",
    Verdict.NOT_YET: "…",
}

CHECKS_INDENT = 4

PAPER_WIDTH = 30
"""Columns of a paper's title beside its counts."""


def print_verdicts(report: Report, path: Path, *, as_json: bool) -> None:
    """Print the verdicts as text, or as JSON."""
    if as_json:
        print(json.dumps(as_dict(report, path), indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for listing in report.listings:
        found = [one for entry in listing.entries if (one := report.found(entry))]
        hindered = [entry for entry in listing.entries if entry.id in report.hindered]
        if found or hindered:
            console.print(listing.title, style="bold", markup=False)
            width = max(
                len(name)
                for name in [*(one.claim.id for one in found), *(one.id for one in hindered)]
            )
            for judged in found:
                _claim(console, judged, width)
            for entry in hindered:
                _hindered(console, entry, report.hindered[entry.id], width)
            console.print()
    console.print(_counts(report))
    console.print(f"\nreport: {path}", soft_wrap=True, markup=False)


def _claim(console: Console, judged: Judged, width: int) -> None:
    checks = judged.finding.checks
    held = judged.finding.held
    row = Table.grid(padding=(0, 2, 0, 0))
    for column in (1, width, len(f"{len(checks):2} of {len(checks):2}")):
        row.add_column(width=column, no_wrap=True)
    row.add_column(style="none")
    row.add_row(
        MARKS[judged.verdict],
        judged.claim.id,
        "[dim] –[/]" if judged.claim.conjecture else f"[dim]{held:2} of {len(checks)}[/]",
        _escaped(judged.claim.title),
    )
    console.print(row)
    if judged.judgement.reading:
        console.print(Padding(_escaped(str(judged.judgement)), (0, 0, 0, CHECKS_INDENT)))
    for check in checks:
        if check.ok is not True:
            words = f"{MARKS[OUTCOMES[check.ok]]} [dim]{_escaped(check.sentence)}[/]"
            console.print(Padding(words, (0, 0, 0, CHECKS_INDENT)))


def _hindered(console: Console, entry: Entry, reason: str, width: int) -> None:
    mark = MARKS[Verdict.NOT_YET]
    console.print(f"{mark}  {entry.id:{width}}  [dim]{_escaped(f'not yet: {reason}')}[/]")


def _counts(report: Report) -> Table:
    """How many claims of each paper have each verdict, none left out."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(f"{report.scale} grid", max_width=PAPER_WIDTH)
    table.add_column("claims")
    total: Counter[str] = Counter()
    for listing in report.listings:
        counts = Counter({verdict.value: n for verdict, n in report.tally([listing]).items()})
        left_out = _left_out(report, listing)
        counts[Verdict.NOT_YET.value] -= left_out
        counts["left out"] = left_out
        total += counts
        table.add_row(_escaped(listing.title), _listed(counts))
    if len(report.listings) > 1:
        table.add_row("all", _listed(total), style="bold")
    return table


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _left_out(report: Report, listing: Listing) -> int:
    """How many claims this run did not include."""
    return sum(
        entry.claim is not None and not report.found(entry) and entry.id not in report.hindered
        for entry in listing.entries
    )


def as_dict(report: Report, path: Path) -> dict[str, Any]:
    """Verdicts and checks, to be written as JSON."""
    return {
        "scale": report.scale,
        "report": str(path),
        "claims": [
            {
                "id": judged.claim.id,
                "world": judged.claim.world,
                "verdict": judged.verdict,
                "reading": judged.judgement.reading,
                "cells": judged.cells,
                "scaling": judged.scaling,
                "checks": checks_as_dicts(judged.finding),
                "others": {
                    name: {"held": found.held, "checks": checks_as_dicts(found)}
                    for name, found in judged.others.items()
                },
            }
            for judged in report.judged
        ],
        "hindered": [
            {"id": name, "verdict": Verdict.NOT_YET, "reason": reason}
            for name, reason in report.hindered.items()
        ],
    }


def checks_as_dicts(found: Finding) -> list[dict[str, Any]]:
    """The checks, to be written as JSON; null for a value that is missing or infinite."""
    return [
        {
            "sentence": check.sentence,
            "published": check.published,
            "measured": check.measured,
            "ok": check.ok,
            "values": [value if math.isfinite(value) else None for value in check.values],
            "cause": check.cause if check.ok is False else "",
            "doubt": check.doubt,
        }
        for check in found.checks
    ]


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
