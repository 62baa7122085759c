"""Tables without rows leave every claim undecided."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from conftest import EXPERIMENTS
from made import Made

from ontempo.lab.claims import Claim
from ontempo.lab.engine import NativeEngine
from ontempo.lab.experiments import load_papers
from ontempo.lab.study import Cell
from ontempo.lab.verdict_file import COMPUTED

SIMULATED: list[Claim] = [
    claim
    for paper in load_papers(EXPERIMENTS)
    for claim in paper.claims
    if claim.world in COMPUTED and claim.cells("quick")
]

SHORT = ('duration="1 s"', 'measure.from="0 s"')
"""Overrides for short runs: only the columns of their tables are needed."""


@cache
def columns(scenario: Path, overrides: tuple[str, ...]) -> Mapping[str, pl.DataFrame]:
    """The tables of a short run, without their rows."""
    engine = NativeEngine()
    tables = engine.run(engine.load(scenario, [*overrides, *SHORT]), 0, engine.stop())
    return {name: table.clear() for name, table in tables.items()}


def without_rows(cell: Cell) -> Mapping[str, pl.DataFrame]:
    measured = tuple(one for one in cell.overrides if one.startswith("measure."))
    kept = tuple(one for one in measured if not one.startswith("measure.from"))
    return columns(cell.scenario, kept)


@pytest.mark.parametrize("claim", SIMULATED, ids=lambda claim: claim.id)
def test_a_claim_is_undecided_by_tables_without_rows_and_says_what_is_missing(
    claim: Claim,
) -> None:
    finding = claim.judge(Made(tuple(claim.cells("quick")), without_rows))
    assert finding.holds is None
    for sentence in (claim.headline, *claim.exclusive):
        assert finding.check(sentence), sentence
    decided = [check.sentence for check in finding.checks if check.ok is not None]
    assert not decided
    words = ("no", "missing", "0 of 0", "Too few", "0 ACKs")
    silent = [
        check.measured
        for check in finding.checks
        if not any(word in check.measured or word in check.measured.lower() for word in words)
    ]
    assert not silent
