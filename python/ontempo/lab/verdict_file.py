"""The verdicts as a committed file: a line a claim and a check, so that any change shows in a diff.

It holds only the computed worlds, analysis and simulation: equal sources give equal lines on every
machine. ``make differences`` writes the file; ``make test`` runs the claims and compares.
"""

from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

from ontempo.lab.claims import Check, World
from ontempo.lab.judging import number
from ontempo.lab.readings import PRIMARY
from ontempo.lab.report import Judged

COMPUTED = (World.ANALYSIS, World.SIMULATION)

WORDS = {True: "held", False: "failed", None: "undecided"}

VERDICT = "verdict"
"""What the second column has of a claim; of its checks, the reading."""

HEAD = """\
# What the quick grid says, separated by tabs. Of each claim: its verdict, and how many checks hold
# under the primary reading. Of each check under each reading: claim, reading, check, whether it
# holds, and the values that decide. Written by `make differences`, which runs every reading.
# `make test` compares all but readings that run on request, and verdicts that need one.
"""


def verdict_lines(judged: Sequence[Judged]) -> list[str]:
    """A line for each computed claim, and one for each of its checks under each reading."""
    return [line for one in judged if one.claim.world in COMPUTED for line in _lines(one)]


def _lines(one: Judged) -> Iterator[str]:
    held = f"{one.finding.held} of {len(one.finding.checks)}"
    if one.claim.conjecture:
        held = "-"
    yield "\t".join([one.claim.id, VERDICT, str(one.judgement), held])
    for reading, finding in {PRIMARY: one.finding, **one.others}.items():
        for check in finding.checks:
            yield "\t".join(
                [one.claim.id, reading, check.sentence, WORDS[check.ok], _values(check)]
            )


def verdict_text(judged: Sequence[Judged]) -> str:
    """The content of the file."""
    return HEAD + "".join(f"{line}\n" for line in verdict_lines(judged))


def changed_verdicts(path: Path, judged: Sequence[Judged]) -> list[str]:
    """The lines that differ between a file and these verdicts; empty if they are equal.

    Of claims that were not judged, and of readings under which one was not, lines are not
    compared, nor is a verdict that needs such a reading.
    """
    written = path.read_text("utf-8").splitlines() if path.exists() else []
    lines = [line for line in written if not line.startswith("#")]
    before, after = [], []
    for one in judged:
        run = (VERDICT, PRIMARY, *one.others)
        of_claim = [line for line in lines if line.partition("\t")[0] == one.claim.id]
        compared = [line for line in of_claim if line.split("\t")[1:2][0] in run]
        measured = verdict_lines([one])
        if len(compared) < len(of_claim):
            compared, measured = compared[1:], measured[1:]
        before += compared
        after += measured
    found = unified_diff(before, after, str(path), "what is measured now", lineterm="", n=0)
    return [line for line in found if not line.startswith("@@")]


def _values(check: Check) -> str:
    return " ".join(map(number, check.values)) or "-"
