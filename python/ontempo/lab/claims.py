"""Published claims, and their verdicts when they are measured again.

A claim is one figure, table or sentence of a paper: what was published (in our words), the
expectation that follows, the cells that test it, and a function that judges their tables.
Judging never runs anything, so a claim can be judged again from stored cells.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from ontempo.lab.plots import Figure
from ontempo.lab.study import Cell, Results

Scale = Literal["quick", "full"]
"""How much of the published grid is run."""


class World(StrEnum):
    """Where a claim is checked."""

    ANALYSIS = "analysis"
    SIMULATION = "simulation"
    EMULATION = "emulation"
    LIVE = "live network"


class Verdict(StrEnum):
    """The verdict on a claim; the rule is in ``docs/verdicts.md``.

    "Not yet" is a row for which nothing was run or written; what was run without enough
    evidence is undecided. "No verdict" is a conjecture: no measurement could contradict it.
    """

    REPRODUCED = "reproduced"
    REPRODUCED_UNDER = "reproduced under a reading"
    PARTLY = "partly"
    CONTRADICTED = "contradicted"
    INCONSISTENT = "inconsistent"
    UNDECIDED = "undecided"
    NO_VERDICT = "no verdict"
    NOT_YET = "not yet"


class Cause(str):
    """A likely cause, and the `experiment` that supports it: a command, or a page.

    It can be used wherever a plain text is; added to another text it keeps its experiment.
    """

    experiment: str

    def __new__(cls, text: str, experiment: str = "") -> "Cause":
        """Text and experiment."""
        cause = super().__new__(cls, text)
        cause.experiment = experiment
        return cause

    def __add__(self, more: str) -> "Cause":
        """Both texts, and the experiments of both."""
        parts = [self.experiment, getattr(more, "experiment", "")]
        return Cause(str(self) + str(more), "; ".join(dict.fromkeys(filter(None, parts))))


@dataclass(frozen=True)
class Check:
    """One check of a claim: what was published, and what was measured.

    `ok` is None if the tables do not suffice to decide. `cause` is the likely cause of a
    difference; it is shown only if there is one. As a `Cause` it names the experiment, too.
    `values` are the numbers that decide, in a fixed order; one that is missing is not a number.
    `doubt` is the reason why a known cause is not shown (`ontempo.lab.known`).
    """

    sentence: str
    published: str
    measured: str
    ok: bool | None
    cause: str = ""
    values: tuple[float, ...] = ()
    doubt: str = ""

    @property
    def measures(self) -> bool:
        """Whether it has values, and misses none."""
        return bool(self.values) and not any(map(math.isnan, self.values))

    @property
    def experiment(self) -> str:
        """What supports the cause; empty where nothing was tried."""
        return self.cause.experiment if isinstance(self.cause, Cause) else ""


@dataclass(frozen=True)
class Finding:
    """The result of judging a claim: plots, checks, and remarks on how it was measured."""

    figures: Sequence[Figure]
    checks: Sequence[Check]
    notes: Sequence[str] = ()

    @property
    def holds(self) -> bool | None:
        """Whether every check holds; None if there is none, or one is undecided and none fails."""
        outcomes = [check.ok for check in self.checks]
        if False in outcomes:
            return False
        return None if None in outcomes or not outcomes else True

    @property
    def held(self) -> int:
        """How many checks hold."""
        return sum(check.ok is True for check in self.checks)

    def check(self, sentence: str) -> Check | None:
        """The check with this sentence; the first one if it is empty; None if there is none."""
        named = (one for one in self.checks if not sentence or one.sentence == sentence)
        return next(named, None)


@dataclass(frozen=True)
class Claim:
    """One named entry of the reproduction.

    `row` names the row of ``rows.toml`` that it answers, where that is not the id's own part.
    `headline` is the sentence of the check that says what the claim is about; empty: the first.
    `exclusive` are the sentences of two checks that the paper both states and that exclude each
    other. `conjecture`: the paper supposes it without a measurement or a number; what was measured
    here is shown, and none of its checks is judged.
    """

    id: str
    title: str
    world: World
    published: str
    expectation: str
    cells: Callable[[Scale], Sequence[Cell]]
    judge: Callable[[Results], Finding]
    scaling: Callable[[Scale], str]
    row: str = ""
    headline: str = ""
    exclusive: tuple[str, str] | tuple[()] = ()
    conjecture: bool = False

    @property
    def answers(self) -> str:
        """The row that it answers."""
        return self.row or self.id.partition("/")[2]

    @property
    def paper(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition("/")[0]


@dataclass(frozen=True)
class Choice:
    """Where a paper's text is open: what is chosen, and the passages for and against it."""

    what: str
    supported: str
    opposed: str = ""


def unchanged(claim: Claim) -> Claim:
    """The claim as it is written."""
    return claim


@dataclass(frozen=True)
class Reading:
    """A set of choices where a paper's text is open, applied to all of its claims at once.

    `of` makes the claim as it is run and judged under this reading; it returns the same object if
    the reading changes nothing for this claim.
    """

    name: str
    about: str
    choices: Sequence[Choice] = ()
    of: Callable[[Claim], Claim] = unchanged


AS_RUN = Reading("as run", "The choices that the page on the paper's figures lists.")
"""The only reading of a paper that declares none."""


@dataclass(frozen=True)
class Conclusion:
    """What a paper concludes, the ids of the claims that test it, and in words what was found."""

    text: str
    claims: Sequence[str]
    found: str


@dataclass(frozen=True)
class Paper:
    """A folder of experiments: a paper and its claims, in the order of its figures.

    The first of its `readings` is the primary one, the one that its text supports best. Those
    `on_request` are run only where they are asked for by name (`ontempo.lab.readings.requested`).
    """

    name: str
    title: str
    about: str
    claims: Sequence[Claim]
    readings: Sequence[Reading] = (AS_RUN,)
    on_request: Sequence[Reading] = ()
    conclusions: Sequence[Conclusion] = ()


def no_cells(_scale: Scale) -> Sequence[Cell]:
    """For a claim that needs no run."""
    return ()
