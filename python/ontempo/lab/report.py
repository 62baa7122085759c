"""A folder of HTML pages: an index, a page a paper, the differences.

The pages need only their folder: style, script and Plotly are in ``assets`` beside them, and their
content security policy lets them load nothing else, so that they work without a network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ontempo.lab.catalogue import Entry, Listing
from ontempo.lab.claims import Claim, Finding, Scale, Verdict, World
from ontempo.lab.kept import Kept, KeptClaim
from ontempo.lab.readings import Judgement, judgement

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
    """A claim with its finding under the primary reading, and those under the others by name."""

    claim: Claim
    finding: Finding
    scaling: str
    cells: int
    others: Mapping[str, Finding] = field(default_factory=dict)

    @cached_property
    def judgement(self) -> Judgement:
        """The verdict from all findings, and the reading that it owes it to."""
        return judgement(self.claim, {"": self.finding, **self.others})

    @property
    def verdict(self) -> Verdict:
        """The verdict alone."""
        return self.judgement.verdict


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
    kept: Mapping[str, Sequence[Kept]] = field(default_factory=dict)
    """What is kept of earlier runs at full length, by paper."""

    @cached_property
    def by_id(self) -> dict[str, Judged]:
        """Judged claims by id."""
        return {judged.claim.id: judged for judged in self.judged}

    def count(self, verdict: Verdict) -> int:
        """How many of the claims judged got this verdict."""
        return sum(judged.verdict is verdict for judged in self.judged)

    def verdict(self, entry: Entry) -> Verdict:
        """An entry's verdict; "not yet" where it was not judged."""
        judged = self.found(entry)
        return judged.verdict if judged else Verdict.NOT_YET

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

    def at_full_length(self, entry: Entry) -> KeptClaim | None:
        """What is kept of an entry's claim at full length."""
        parts = self.kept.get(entry.paper, ()) if entry.claim else ()
        found = (part.claim(entry.id) for part in parts)
        return next((claim for claim in found if claim), None)

    def kept_tally(self, listings: Sequence[Listing]) -> dict[Verdict, int]:
        """How many of the claims kept at full length have each verdict."""
        every = (self.at_full_length(entry) for one in listings for entry in one.entries)
        verdicts = [claim.verdict for claim in every if claim]
        return {verdict: verdicts.count(verdict.value) for verdict in Verdict}

    def tally(self, listings: Sequence[Listing]) -> dict[Verdict, int]:
        """How many entries have each verdict."""
        verdicts = [self.verdict(entry) for listing in listings for entry in listing.entries]
        return {verdict: verdicts.count(verdict) for verdict in Verdict}
