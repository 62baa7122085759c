"""Real packets as they were measured, by the rule of docs/verdicts.md.

``python -m experiments.qosockets.recorded`` prints a table of Markdown: the claims' verdicts on the
values in ``recorded.toml``, as in docs/experiments-qosockets.md. Each test was run once, so that
two values are compared without an interval.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding
from ontempo.lab.readings import judgement
from ontempo.lab.study import Results

from .figures import (
    coercion,
    emulated,
    fig6,
    fig7,
    fig8,
    fig9,
    fig10,
    fig11,
    fig12,
    overhead,
    violation,
)
from .grid import HERE, Application

T = TypeVar("T")

RECORDED = HERE / "recorded.toml"

MESSAGES = 100_000
"""Sent in each row, so that a loss in hundredths of a per cent is a whole number of messages."""

FIGURES: Mapping[Application, tuple[Claim, ...]] = {
    "nv": (fig6.CLAIM, fig7.CLAIM, fig8.CLAIM, fig9.CLAIM),
    "dirm": (fig10.CLAIM, fig11.CLAIM, fig12.CLAIM),
}

OTHERS: Mapping[str, Claim] = {
    claim.answers: claim
    for claim in (coercion.CLAIM, emulated.NO_LOSS, overhead.CLAIM, violation.CLAIM)
}


class Recorded(Results):
    """The tables that the recorded values of an application would come from."""

    def __init__(self, rows: Iterable[Mapping[str, object]]) -> None:
        self._table = pl.DataFrame(list(rows))
        self.cells = ()

    def table(self, name: str) -> pl.DataFrame:  # noqa: ARG002 - one table has them all
        """The same rows for each table: every measure is a mean of one row."""
        return self._table

    def derive(self, builder: Callable[[Results], T]) -> T:
        """What `builder` makes of it."""
        return builder(self)


def recorded() -> dict[str, Any]:
    """The file."""
    return tomllib.loads(RECORDED.read_text("utf-8"))


def results(application: Application, values: Mapping[str, Mapping[str, float]]) -> Recorded:
    """Tables of an application's flows."""
    main = "nv" if application == "nv" else "images"
    return Recorded(_row(flow, main, one) for flow, one in values.items())


def _row(flow: str, main: str, one: Mapping[str, float]) -> dict[str, object]:
    """A flow of Table 1: a letter after the test's name, or none where it is alone."""
    letter = flow[2:] or ("b" if flow == "A3" else "a")
    return {
        "test": flow[:2],
        "group": main if letter == "a" else "tg",
        "index": {"a": 0, "b": 0, "c": 1}[letter],
        "seed": 0,
        "sent_bps": one["sent"] * 1e3,
        "received_bps": one["received"] * 1e3,
        "sent_messages": MESSAGES,
        "lost_messages": round(one["loss"] * MESSAGES / 100),
        "delay_s": one["delay"] / 1e3,
        "jitter_s": one["jitter"] / 1e3,
    }


def judged() -> Iterator[tuple[Claim, Finding]]:
    """Each claim with the finding on what was recorded of it."""
    content = recorded()
    for application, claims in FIGURES.items():
        found = results(application, content[application])
        for claim in claims:
            # The figures of real packets have the id of their simulation, and more.
            yield replace(claim, id=f"{claim.id}-emulated"), claim.judge(found)
    for name, claim in OTHERS.items():
        outcomes = content["checks"][name]
        yield claim, Finding([], [Check(f"{n}", "", "", ok) for n, ok in enumerate(outcomes)])


def table() -> Iterator[str]:
    """Verdicts, checks that hold, and those that do not."""
    yield "| claim | verdict | checks | does not hold |"
    yield "| --- | --- | --- | --- |"
    for claim, finding in judged():
        verdict = judgement(claim, {"": finding})
        failing = [check for check in finding.checks if check.ok is False and check.measured]
        texts = "; ".join(f"{check.sentence.rstrip('.')}: {check.measured}" for check in failing)
        held = f"{finding.held} of {len(finding.checks)}"
        yield f"| {claim.id.partition('/')[2]} | {verdict} | {held} | {texts} |"


if __name__ == "__main__":
    for line in table():
        print(line)
