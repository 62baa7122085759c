"""The measured part of docs/fidelity.md. The text around it stays."""

import tomllib
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ontempo.lab.errors import BadInputError
from ontempo.lab.statistics import Interval

from .agreement import Compared, chosen_default, counts, furthest
from .grid import HERE, PROFILES, Profile

MARKS = ("<!-- measured: written by experiments.fidelity -->", "<!-- /measured -->")
CAUSES = HERE / "causes.toml"
FURTHEST = 5

LEFT_OUT = "What the profile of ns-2 leaves out"

Causes = Mapping[tuple[str, str], str]
"""The heading of a cause in the page, by profile and cell."""


def read_causes(path: Path = CAUSES) -> Causes:
    """Which of the page's causes is whose: tables `cause` with `profile`, `heading`, `cells`."""
    entries = tomllib.loads(path.read_text("utf-8")).get("cause", []) if path.exists() else []
    causes: dict[tuple[str, str], str] = {}
    for entry in entries:
        for cell in entry["cells"]:
            key = (entry["profile"], cell)
            if key in causes:
                raise BadInputError(f"{path}: {cell} ({entry['profile']}) has two causes")
            causes[key] = entry["heading"]
    return causes


def measured(rows: Sequence[Compared], causes: Causes, circumstances: str) -> str:
    """Counts, the furthest cells, and the table."""
    parts = [circumstances, _counts(rows, causes)]
    for profile in PROFILES:
        lines = "\n".join(f"- {_words(row, profile)}" for row in furthest(rows, profile, FURTHEST))
        parts.append(f"Furthest under `{profile}`, of the cells that can be told:\n\n{lines}")
    return "\n\n".join([*parts, _table(rows, causes)])


def _counts(rows: Sequence[Compared], causes: Causes) -> str:
    lines = [
        "| profile | agrees | differs | of these without a cause | cannot be told |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    tcp = [row for row in rows if row.is_of_tcp]
    counted = [(f"`{profile}`", profile, tcp) for profile in PROFILES]
    counted.append(("without TCP", PROFILES[0], [row for row in rows if not row.is_of_tcp]))
    for name, profile, of in counted:
        many = counts(of, profile)
        unknown = sum(
            row.verdict(profile) == "differs" and _cause(row, profile, causes) is None for row in of
        )
        lines.append(
            f"| {name} | {many['agrees']} | {many['differs']} | {unknown}"
            f" | {many['cannot be told']} |"
        )
    return "\n".join([*lines, "", f"By the rule, the default is `{chosen_default(rows)}`."])


def _cause(row: Compared, profile: Profile, causes: Causes) -> str | None:
    """The heading under which the page explains a cell that differs.

    The profile of Linux is itself the experiment on what that of ns-2 leaves out.
    """
    heading = causes.get((profile, row.cell))
    if heading is None and profile == "ns-2" and row.verdict("linux") == "agrees":
        return LEFT_OUT
    return heading


def _words(row: Compared, profile: Profile) -> str:
    values = f"{number(row.simulated[profile])} simulated, {number(row.emulated)} emulated"
    verdict = row.verdict(profile)
    return f"{row.scenario}, {row.subject}, {row.quantity}: {values}; {verdict}"


def number(interval: Interval) -> str:
    """A mean and half of its interval."""
    half = interval.high - interval.value
    return f"{_short(interval.value)} ± {_short(half)}" if half == half else _short(interval.value)  # noqa: PLR0124 - NaN


def _short(value: float) -> str:
    if value == 0:
        return "0"
    return (
        f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.01 else "< 0.01"
    )


def _table(rows: Sequence[Compared], causes: Causes) -> str:
    head = ["scenario", "of", "quantity", "emulated", *(f"`{one}`" for one in PROFILES)]
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- | ---: | ---: | ---: |"]
    for scenario, group in groupby(rows, lambda row: row.scenario):
        for at, row in enumerate(group):
            cells = [
                scenario if at == 0 else "",
                row.subject,
                row.quantity,
                number(row.emulated),
                *(_simulated(row, profile, causes) for profile in PROFILES),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _simulated(row: Compared, profile: Profile, causes: Causes) -> str:
    if profile not in row.simulated:
        return ""
    text = number(row.simulated[profile])
    verdict = row.verdict(profile)
    if verdict == "agrees":
        return text
    if verdict == "cannot be told":
        return f"{text} ?"
    heading = _cause(row, profile, causes)
    if heading is None:
        return f"**{text}**, unexplained"
    anchor = "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")
    return f"[**{text}**](#{anchor})"
