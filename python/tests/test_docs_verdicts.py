"""The verdicts that the pages on the papers show are those of experiments/verdicts.txt."""

import re
from pathlib import Path

import pytest

from ontempo.lab.verdict_file import VERDICT

ROOT = Path(__file__).parents[2]
COLUMNS = {"psp": "quick", "rr3216": "quick", "pert": "verdict"}
"""The column with the verdicts of the quick grid, by paper."""


def verdicts() -> dict[str, str]:
    """Each claim's verdict and count of checks, as the pages write them."""
    lines = (ROOT / "experiments/verdicts.txt").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return {
        claim: f"{verdict}, {held}" for claim, what, verdict, held, *_ in rows if what == VERDICT
    }


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
