"""How paced and unpaced transfers share a queue: the four measures of figures 26 to 28."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ontempo.lab.claims import Check
from ontempo.lab.judging import Curve, Outcome, at, enough, is_above, monotone, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import mean_of_runs
from ontempo.lab.study import Results

from .flavours import RATE_MBPS, SWEEPS

KINDS = {"paced": "Delay Pacing", "unpaced": "Delay ACK"}
COLOURS = {"paced": "step-4", "unpaced": "step-0"}
SYMBOLS = {"paced": "circle", "unpaced": "square"}

ALMOST_ALL = 0.9
"""The share of the settings that counts as "almost all"."""

POINT = ("sweep", "at", "seed")


@dataclass(frozen=True)
class Measure:
    """A measure of fairness: its column, and whether larger values are fairer."""

    name: str
    column: str
    title: str
    more_is_fairer: bool


MEASURES = (
    Measure("bandwidth share", "share", "Share of the link, mean of a flow", True),
    Measure("drop ratio", "drop_ratio", "Packets dropped, of those sent", False),
    Measure("Jain index", "jain", "Jain's index among flows of a kind", True),
    Measure("normalised queue", "queue", "Queue found on arrival, of the buffer", False),
)


def measured(results: Results) -> pl.DataFrame:
    """All four measures of each kind of flows in each run."""
    rate = pl.col("goodput_bps")
    flows = (
        results.table("flows")
        .filter(pl.col("group").is_in(list(KINDS)))
        .group_by(*POINT, "group", maintain_order=True)
        .agg(
            (rate.mean() / (RATE_MBPS * 1e6)).alias("share"),
            (pl.col("dropped_packets").sum() / pl.col("sent_packets").sum()).alias("drop_ratio"),
            (rate.sum() ** 2 / (rate.len() * (rate**2).sum())).alias("jain"),
        )
    )
    met = pl.col("length") * pl.col("arrivals")
    queues = (
        results.table("queues")
        .group_by(*POINT, "buffer", "group")
        .agg((met.sum() / pl.col("arrivals").sum()).alias("packets"))
        .with_columns((pl.col("packets") / pl.col("buffer")).alias("queue"))
    )
    return flows.join(queues, on=[*POINT, "group"])


def curves(table: pl.DataFrame, sweep: str, measure: Measure) -> dict[str, Curve]:
    """One measure of both kinds against what the sweep varies."""
    own = table.filter(sweep=sweep).sort("at")
    return {
        kind: {
            float(at): mean_of_runs(part, measure.column)
            for (at,), part in own.filter(group=kind).group_by(["at"], maintain_order=True)
        }
        for kind in KINDS
    }


def figures(table: pl.DataFrame, sweep: str) -> list[Figure]:
    """A plot of each measure."""
    drawn = []
    for measure in MEASURES:
        found = curves(table, sweep, measure)
        spoken = "; ".join(
            f"{KINDS[kind]} {', '.join(number(one.value) for one in curve.values())}"
            for kind, curve in found.items()
        )
        series = [
            Series(KINDS[kind], COLOURS[kind], curve, symbol=SYMBOLS[kind])
            for kind, curve in found.items()
        ]
        drawn.append(
            Figure(
                f"{measure.title}: {spoken}.",
                Axis(SWEEPS[sweep].name),
                Axis(measure.title),
                [View("", series)],
            )
        )
    return drawn


def less_fair(
    table: pl.DataFrame, sweep: str, settings: Sequence[float], cause: str
) -> list[Check]:
    """Each measure gets worse from each setting to the next, for both kinds."""
    return [
        monotone(
            f"{KINDS[kind]}: the {measure.name} {'falls' if measure.more_is_fairer else 'rises'}.",
            "fairness decreases",
            curve,
            settings,
            rising=not measure.more_is_fairer,
            cause=cause,
        )
        for measure in MEASURES
        for kind, curve in curves(table, sweep, measure).items()
    ]


def paced_fairer(
    table: pl.DataFrame,
    sweep: str,
    settings: Sequence[float],
    least: float,
    published: str,
    cause: str,
) -> list[Check]:
    """Paced flows are the fairer in at least this part of the settings, by each measure."""
    return [
        _fairer(measure, curves(table, sweep, measure), sweep, settings, least, published, cause)
        for measure in MEASURES
    ]


def _fairer(
    measure: Measure,
    found: Mapping[str, Curve],
    sweep: str,
    settings: Sequence[float],
    least: float,
    published: str,
    cause: str,
) -> Check:
    paced, unpaced = found["paced"], found["unpaced"]
    sign = 1 if measure.more_is_fairer else -1
    outcomes: dict[float, Outcome] = {}
    for x in settings:
        one, other = at(paced, x), at(unpaced, x)
        outcomes[x] = is_above(one, other) if measure.more_is_fairer else is_above(other, one)
    side = "larger" if measure.more_is_fairer else "smaller"
    ahead, behind, open_ = (
        [x for x in settings if outcomes[x] is outcome] for outcome in (True, False, None)
    )
    text = f"in {len(ahead)} of {len(settings)} settings"
    if behind:
        worst = max(behind, key=lambda x: sign * (unpaced[x].value - paced[x].value))
        text += (
            f"; most against it {number(paced[worst].value)} beside"
            f" {number(unpaced[worst].value)} at {number(worst)}"
        )
    missing = [x for x in open_ if not (at(paced, x).known and at(unpaced, x).known)]
    near = [x for x in open_ if x not in missing]
    for words, found_at in (("cannot be told apart", near), ("nothing", missing)):
        if found_at:
            text += f"; {words} at {', '.join(map(number, found_at))}"
    return Check(
        f"{SWEEPS[sweep].name}: paced flows have the {side} {measure.name}.",
        published,
        text,
        enough(outcomes.values(), least * len(settings)),
        cause,
        (float(len(ahead)), float(len(behind)), float(len(open_))),
    )
