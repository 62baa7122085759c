"""The verdicts that the pages on the papers show are those of experiments/verdicts.txt."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLUMNS = {"psp": "verdict", "rr3216": "quick", "pert": "verdict"}
"""The column with the verdicts of the quick grid, by paper."""


def verdicts() -> dict[str, str]:
    """Each claim's verdict and count of checks, as the pages write them."""
    results: dict[str, list[str]] = {}
    for line in (ROOT / "experiments/verdicts.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            claim, _check, result, *_values = line.split("\t")
            results.setdefault(claim, []).append(result)

    def verdict(checks: list[str]) -> str:
        held = f"{checks.count('held')} of {len(checks)}"
        if "failed" in checks:
            return f"differs, {held}"
        return f"{'reproduced' if set(checks) == {'held'} else 'undecided'}, {held}"

    return {claim: verdict(checks) for claim, checks in results.items()}


@pytest.mark.parametrize("paper", COLUMNS)
def test_a_page_shows_the_current_verdicts(paper: str) -> None:
    current, shown = verdicts(), dict[str, str]()
    head: list[str] = []
    for line in (ROOT / f"docs/experiments-{paper}.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        head = (head or cells) if cells else []
        claim = f"{paper}/{cells[0]}" if cells else ""
        if claim in current and COLUMNS[paper] in head:
            shown[claim] = cells[head.index(COLUMNS[paper])]
    assert len(shown) > 8
    wrong = {
        claim: (text, current[claim])
        for claim, text in shown.items()
        if not re.match(re.escape(current[claim]), text)
    }
    assert not wrong
