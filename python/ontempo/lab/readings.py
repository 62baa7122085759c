"""Claims under each of their paper's readings, and the verdict that follows.

The rule is in ``docs/verdicts.md``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ontempo.lab.cells import Cell
from ontempo.lab.claims import Claim, Finding, Paper, Reading, Scale, Verdict, World
from ontempo.lab.errors import BadInputError
from ontempo.lab.study import Results

PRIMARY = "primary"
"""The primary reading in files, whatever its name."""


@dataclass(frozen=True)
class Judgement:
    """A claim's verdict, and the name of the reading that it owes it to, if not the primary."""

    verdict: Verdict
    reading: str = ""

    def __str__(self) -> str:
        """The verdict in words."""
        if self.verdict is Verdict.REPRODUCED_UNDER:
            return f"reproduced under {self.reading}"
        return f"{self.verdict} under {self.reading}" if self.reading else str(self.verdict)


def judgement(claim: Claim, findings: Mapping[str, Finding]) -> Judgement:
    """The verdict on a claim from its findings by reading, the primary one first."""
    (primary, first), *others = findings.items()
    if claim.conjecture:
        return Judgement(Verdict.NO_VERDICT)
    if claim.exclusive:
        both = [first.check(sentence) for sentence in claim.exclusive]
        measured = all(check is not None and check.measures for check in both)
        return Judgement(Verdict.INCONSISTENT if measured else Verdict.UNDECIDED)
    if first.holds:
        return Judgement(Verdict.REPRODUCED)
    full = next((name for name, finding in others if finding.holds), "")
    if full:
        return Judgement(Verdict.REPRODUCED_UNDER, full)
    return _by_headline(claim, findings, primary)


def _by_headline(claim: Claim, findings: Mapping[str, Finding], primary: str) -> Judgement:
    """The verdict on a claim of which no reading holds every check."""
    headlines = {name: headline_holds(claim, finding) for name, finding in findings.items()}
    if headlines[primary]:
        partly = findings[primary].holds is False
        return Judgement(Verdict.PARTLY if partly else Verdict.UNDECIDED)
    if headlines[primary] is None:
        return Judgement(Verdict.UNDECIDED)
    holding = [name for name, outcome in headlines.items() if outcome]
    if holding:
        # Of several, the one that holds most checks; of equals the first.
        return Judgement(Verdict.PARTLY, max(holding, key=lambda name: findings[name].held))
    undecided = None in headlines.values()
    return Judgement(Verdict.UNDECIDED if undecided else Verdict.CONTRADICTED)


def headline_holds(claim: Claim, finding: Finding) -> bool | None:
    """Whether the claim's headline check holds."""
    check = finding.check(claim.headline)
    return check.ok if check else None


def with_cells(claim: Claim, change: Callable[[Cell], Cell]) -> Claim:
    """The claim with each of its cells changed."""

    def cells(scale: Scale) -> Sequence[Cell]:
        return [change(cell) for cell in claim.cells(scale)]

    return replace(claim, cells=cells)


def with_seeds(claim: Claim, count: int) -> Claim:
    """The claim with the first `count` of its seeds, where it has more."""

    def cells(scale: Scale) -> Sequence[Cell]:
        every = claim.cells(scale)
        first = sorted({cell.seed for cell in every})[:count]
        return [cell for cell in every if cell.seed in first]

    def scaling(scale: Scale) -> str:
        run, every = (len({one.seed for one in made(scale)}) for made in (cells, claim.cells))
        fewer = f" Of these {every} seeds only the first {run} were run."
        return claim.scaling(scale) + (fewer if run < every else "")

    return replace(claim, cells=cells, scaling=scaling)


def simulated(change: Callable[[Cell], Cell]) -> Callable[[Claim], Claim]:
    """Change the cells of claims, but not those with real packets or without such cells."""

    def of(claim: Claim) -> Claim:
        cells = claim.cells("full")
        if claim.world is not World.SIMULATION or all(change(one) == one for one in cells):
            return claim
        return with_cells(claim, change)

    return of


def with_results(claim: Claim, view: Callable[[Results], Results]) -> Claim:
    """The claim, judged by a view of its results."""
    return replace(claim, judge=lambda results: claim.judge(view(results)))


def with_settings(cell: Cell, *settings: str) -> Cell:
    """The cell with these `KEY=VALUE`, which replace those that it has of the same keys."""
    keys = {setting.partition("=")[0] for setting in settings}
    kept = (one for one in cell.overrides if one.partition("=")[0] not in keys)
    return replace(cell, overrides=(*kept, *settings))


EVERY = "all"
"""In place of a reading's name: each that runs on request."""


def requested(papers: Sequence[Paper], names: Sequence[str]) -> list[Paper]:
    """The papers, with these readings among those that are run.

    Those not named stay in `on_request`: declared, not run.
    """
    known = [reading.name for paper in papers for reading in paper.on_request]
    unknown = [name for name in names if name not in (EVERY, *known)]
    if unknown:
        listed = ", ".join(map(repr, [*known, EVERY] if known else []))
        there = f"there are {listed}" if listed else "no paper here has any"
        raise BadInputError(f"--reading {unknown[0]}: no reading that runs on request; {there}")
    found = []
    for paper in papers:
        run = [one for one in paper.on_request if EVERY in names or one.name in names]
        rest = [one for one in paper.on_request if one not in run]
        found.append(replace(paper, readings=[*paper.readings, *run], on_request=rest))
    return found


def under(claim: Claim, readings: Sequence[Reading]) -> dict[str, Claim]:
    """The claim under each reading; only the primary one's where it is the same under all."""
    found = {reading.name: reading.of(claim) for reading in readings}
    first, *others = found.values()
    return found if any(one is not first for one in others) else {readings[0].name: first}
