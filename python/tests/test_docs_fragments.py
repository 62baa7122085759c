"""The pieces of scenarios on the pages of mechanisms: each is TOML, and a part of a scenario."""

import re
import tomllib
from pathlib import Path

import pytest

import ontempo as ot

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```toml[^\n]*\n(.*?)```", re.DOTALL)
PIECES = [
    (page.name, piece)
    for page in sorted((DOCS / "mechanisms").glob("*.md"))
    for piece in BLOCK.findall(page.read_text("utf-8"))
]
MAHIMAHI = "1\n2\n4\n"
FILES = {
    "lte.csv": "time_s,rate_mbps\n0,8\n5,3\n",
    "light.txt": "0 20 0 1\n100 20 0 1\n200 20 0 1\n",
    "heavy.txt": MAHIMAHI,
}


@pytest.mark.parametrize(("page", "piece"), PIECES)
def test_a_piece_laid_over_the_tutorials_scenario_is_one(
    page: str, piece: str, tmp_path: Path
) -> None:
    given = tomllib.loads(piece)
    tutorial = (DOCS / "tutorial.md").read_text("utf-8")
    (whole, *_) = re.findall(r"```toml question.toml\n(.*?)```", tutorial, re.DOTALL)
    for name, text in {"question.toml": whole, **FILES}.items():
        (tmp_path / name).write_text(text)
    scenario = tmp_path / page.replace(".md", ".toml")
    is_whole = "duration" in given
    scenario.write_text(piece if is_whole else f'include = ["question.toml"]\n{piece}')
    ot.load(scenario)
