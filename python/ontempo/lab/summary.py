"""What a reader asks first: which conclusions hold, and under which reading of a paper."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ontempo.lab.catalogue import Listing
from ontempo.lab.claims import Conclusion, Finding, Reading
from ontempo.lab.report import Judged, Report

NOT_RUN = "declared, not run here: it runs on request (--reading)"
"""Of a reading, where its findings would be."""

UNCOUNTED = "–"
"""In place of how many checks hold, of a conjecture."""


@dataclass(frozen=True)
class Concluded:
    """A paper's conclusion with those of its claims that were judged."""

    conclusion: Conclusion
    judged: Sequence[Judged]

    @property
    def verdicts(self) -> str:
        """How many of its claims have each verdict."""
        counts = Counter(str(one.judgement) for one in self.judged)
        words = [f"{count} {verdict}" for verdict, count in counts.items()]
        return ", ".join(words) or "not judged in this run"


@dataclass(frozen=True)
class Held:
    """How much holds under one reading: claims with all checks, and checks."""

    claims: int
    of_claims: int
    checks: int
    of_checks: int

    def __str__(self) -> str:
        """In words."""
        return f"{self.claims} of {self.of_claims} claims, {self.checks} of {self.of_checks} checks"


def concluded(report: Report, listing: Listing) -> list[Concluded]:
    """A paper's conclusions, each with its judged claims."""
    every = listing.paper.conclusions if listing.paper else ()
    return [
        Concluded(one, [report.by_id[name] for name in one.claims if name in report.by_id])
        for one in every
    ]


def judged_of(report: Report, listing: Listing) -> list[Judged]:
    """The judged claims of a paper, in the order of its entries."""
    return [found for entry in listing.entries if (found := report.found(entry))]


def finding_under(judged: Judged, readings: Sequence[Reading], reading: Reading) -> Finding:
    """The finding under a reading; a claim that is alike under all has but the primary one."""
    if reading is readings[0]:
        return judged.finding
    return judged.others.get(reading.name, judged.finding)


def holding(judged: Judged, readings: Sequence[Reading]) -> list[str]:
    """The names of the readings under which every check holds."""
    return [one.name for one in readings if finding_under(judged, readings, one).holds]


def held_under(judged: Sequence[Judged], readings: Sequence[Reading], reading: Reading) -> Held:
    """How much of some claims holds under a reading; a conjecture counts for nothing."""
    counted = [one for one in judged if not one.claim.conjecture]
    found = [finding_under(one, readings, reading) for one in counted]
    return Held(
        sum(one.holds is True for one in found),
        len(found),
        sum(one.held for one in found),
        sum(len(one.checks) for one in found),
    )


def table_of_readings(
    judged: Sequence[Judged], readings: Sequence[Reading]
) -> tuple[list[str], list[list[str]]]:
    """Claims by readings: heads, and rows of which the last is of all claims."""
    heads = ["claim", *(one.name for one in readings), "verdict"]
    rows = []
    for one in judged:
        found = [finding_under(one, readings, reading) for reading in readings]
        counts = [
            UNCOUNTED
            if one.claim.conjecture
            else f"{'✓ ' if each.holds else ''}{each.held} of {len(each.checks)}"
            for each in found
        ]
        rows.append([one.claim.id.partition("/")[2], *counts, str(one.judgement)])
    rows.append(["all", *(str(held_under(judged, readings, one)) for one in readings), ""])
    return heads, rows
