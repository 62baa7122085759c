"""A folder of HTML pages: an index, a page a paper, the differences.

The pages need only their folder: style, script and Plotly are in ``assets`` beside them, and their
content security policy lets them load nothing else, so that they work without a network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ontempo.lab.catalogue import Entry, Listing
from ontempo.lab.claims import Claim, Finding, Scale, Verdict, World

__all__ = ["Judged", "Report"]

UNWRITTEN = {
    World.ANALYSIS: "nobody has written it",
    World.SIMULATION: "nobody has written it",
    World.EMULATION: "needs real packets, on real or emulated links",
    World.LIVE: "needs a network in use",
}
"""Why a row without a claim has no verdict."""


LEFT_OUT = {World.EMULATION: "left out of this run; --worlds emulation asks for it"}


@dataclass(frozen=True)
class Judged:
    """A claim with its finding."""

    claim: Claim
    finding: Finding
    scaling: str
    cells: int


@dataclass(frozen=True)
class Report:
    """Content of the pages. `command` reproduces all of it."""

    scale: Scale
    command: str
    listings: Sequence[Listing]
    judged: Sequence[Judged]
    engine: str = ""
    cells: int = 0
    hindered: Mapping[str, str] = field(default_factory=dict)
    """Reasons why this machine cannot check a claim, by its id."""

    @cached_property
    def by_id(self) -> dict[str, Judged]:
        """Judged claims by id."""
        return {judged.claim.id: judged for judged in self.judged}

    def count(self, verdict: Verdict) -> int:
        """How many of the claims judged got this verdict."""
        return sum(judged.finding.verdict is verdict for judged in self.judged)

    def verdict(self, entry: Entry) -> Verdict:
        """An entry's verdict; "not yet" where it was not judged."""
        judged = self.found(entry)
        return judged.finding.verdict if judged else Verdict.NOT_YET

    def reason(self, entry: Entry) -> str:
        """Why an entry was not judged; empty where it was."""
        if self.found(entry):
            return ""
        if entry.claim is None:
            return UNWRITTEN[entry.world]
        return self.hindered.get(entry.claim.id) or LEFT_OUT.get(
            entry.world, "left out of this run"
        )

    def found(self, entry: Entry) -> Judged | None:
        """The judged claim of an entry; None if it was not judged."""
        return self.by_id.get(entry.claim.id) if entry.claim else None

    def tally(self, listings: Sequence[Listing]) -> dict[Verdict, int]:
        """How many entries have each verdict."""
        verdicts = [self.verdict(entry) for listing in listings for entry in listing.entries]
        return {verdict: verdicts.count(verdict) for verdict in Verdict}
