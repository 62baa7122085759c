"""The measures of equations (2) to (5), by flow of Table 1."""

import math
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from ontempo.lab.claims import Check
from ontempo.lab.judging import MISSING, Outcome, every, is_above, number
from ontempo.lab.plots import Axis, Series
from ontempo.lab.statistics import Interval, mean_of_runs
from ontempo.lab.study import Results

from .grid import FLOWS, PLACES

SEED = "seed"

OTHERS = ("requests", "tg-back", "background")
"""Groups of flows that are not in Table 1."""

FLOW_AXIS = Axis(
    "Flow of Table 1", ticks={place: name for name, place in PLACES.items()}, hover="%{x}"
)

Values = dict[str, Interval]
"""Estimates by flow of Table 1, over seeds."""


def letters(table: pl.DataFrame) -> pl.DataFrame:
    """Name each row's flow as Table 1 does; requests and others' traffic are not among them."""
    table = table.filter(~pl.col("group").is_in(OTHERS))
    alone = pl.col("test").str.starts_with("A")
    place = pl.when(pl.col("group") == "tg").then(pl.col("index") + 1).otherwise(0)
    letter = place.replace_strict({0: "a", 1: "b", 2: "c"}, return_dtype=pl.String)
    name = pl.when(alone).then(pl.col("test")).otherwise(pl.col("test") + letter)
    return table.with_columns(name.alias("flow_name"))


def intervals(results: Results) -> pl.DataFrame:
    """The samples of 0.5 s, each flow named."""
    return letters(results.table("intervals"))


def totals(results: Results) -> pl.DataFrame:
    """The messages of each flow in all intervals of a run, each flow named."""
    table = intervals(results)
    by_run = table.group_by("flow_name", SEED, maintain_order=True)
    if "lost_messages" in table.columns:
        # With real packets, each message is known to have arrived or not.
        sums = by_run.agg(pl.col("sent_messages").sum(), pl.col("lost_messages").sum())
        lost = 100 * pl.col("lost_messages") / pl.col("sent_messages")
        return sums.with_columns(lost.alias("loss_percent"))
    sums = by_run.agg(pl.col("sent_messages").sum(), pl.col("received_messages").sum())
    lost = 100 * (1 - pl.col("received_messages") / pl.col("sent_messages"))
    # Hundredths: a message or two are under way when a run begins or ends.
    return sums.with_columns(lost.round(2).alias("loss_percent"))


def messages(results: Results) -> pl.DataFrame:
    """The messages received, each flow named."""
    return letters(results.table("messages"))


def means(table: pl.DataFrame, column: str, scale: float = 1.0) -> Values:
    """The mean of a column by flow: of each seed's samples, then over seeds."""
    by_seed = table.group_by("flow_name", SEED).agg(pl.col(column).mean() * scale)
    found = {
        str(name): mean_of_runs(part, column) for (name,), part in by_seed.group_by(["flow_name"])
    }
    return {name: found[name] for name in FLOWS if name in found}


def sent(results: Results) -> Values:
    """Mean sending rate in kbit/s (2)."""
    return means(results.derive(intervals), "sent_bps", 1e-3)


def received(results: Results) -> Values:
    """Mean receiving rate in kbit/s (2)."""
    return means(results.derive(intervals), "received_bps", 1e-3)


def share(results: Results) -> Values:
    """What is received of what is sent, 1 for all: of each seed's samples, then over seeds."""
    return means(results.derive(_shares), "share")


def _shares(results: Results) -> pl.DataFrame:
    """Received over sent by flow and seed; nothing where nothing is sent."""
    table = intervals(results).group_by("flow_name", SEED, maintain_order=True)
    sums = table.agg(pl.col("sent_bps").sum(), pl.col("received_bps").sum())
    some = sums.filter(pl.col("sent_bps") > 0)
    return some.with_columns((pl.col("received_bps") / pl.col("sent_bps")).alias("share"))


def loss(results: Results) -> Values:
    """Loss in per cent (3), of all messages of a run.

    The mean of equation (3) over intervals is within 0.1 points of it. It is not used, since
    it is below zero without losses: a message that arrives in the interval after its sending weighs
    more in a short interval than its absence does in a long one.
    """
    return means(results.derive(totals), "loss_percent")


def delay(results: Results) -> Values:
    """Mean delay in milliseconds (4)."""
    return means(results.derive(messages), "delay_s", 1e3)


def jitter(results: Results) -> Values:
    """Mean jitter in milliseconds (5)."""
    return means(results.derive(messages), "jitter_s", 1e3)


def series(name: str, colour: str, values: Values, symbol: str = "circle") -> Series:
    """Values over the flows of Table 1."""
    points = {PLACES[flow]: value for flow, value in values.items()}
    return Series(name, colour, points, style="none", symbol=symbol)


def published(values: Mapping[str, float], name: str = "published") -> Series:
    """What the text says of some flows."""
    points = {
        PLACES[flow]: Interval(value, math.nan, math.nan, 1) for flow, value in values.items()
    }
    return Series(name, "step-0", points, style="none", symbol="diamond-open")


def check(
    sentence: str,
    published: str,
    values: Values,
    flows: tuple[str, ...],
    holds: Callable[[float], bool],
    unit: str = "",
    cause: str = "",
) -> Check:
    """Each of some flows satisfies a condition."""
    found = {flow: values.get(flow, MISSING) for flow in flows}
    outcomes = {flow: holds(one.value) if one.known else None for flow, one in found.items()}
    parts = [f"{flow} {number(one.value)}{unit}" for flow, one in found.items() if one.known]
    text = _with_missing(", ".join(parts), [flow for flow, one in found.items() if not one.known])
    numbers = tuple(one.value for one in found.values())
    return Check(sentence, published, text, every(outcomes.values()), cause, numbers)


Pairs = tuple[tuple[str, str], ...]


def compare(
    sentence: str,
    published: str,
    values: Values,
    pairs: Pairs,
    holds: Callable[[float, float], bool],
    unit: str = "",
    cause: str = "",
) -> Check:
    """Two flows of each pair have a published ratio, by their estimates."""

    def outcome(one: Interval, other: Interval) -> Outcome:
        known = one.known and other.known and other.value != 0
        return holds(one.value, other.value) if known else None

    return _pairs(sentence, published, values, pairs, outcome, unit, cause)


def above(
    sentence: str, published: str, values: Values, pairs: Pairs, unit: str = "", cause: str = ""
) -> Check:
    """The first flow of each pair has more than the second."""
    return _pairs(sentence, published, values, pairs, is_above, unit, cause)


def below(
    sentence: str, published: str, values: Values, pairs: Pairs, unit: str = "", cause: str = ""
) -> Check:
    """The first flow of each pair has less than the second."""

    def outcome(lower: Interval, upper: Interval) -> Outcome:
        return is_above(upper, lower)

    return _pairs(sentence, published, values, pairs, outcome, unit, cause)


def _pairs(
    sentence: str,
    published: str,
    values: Values,
    pairs: Pairs,
    outcome: Callable[[Interval, Interval], Outcome],
    unit: str,
    cause: str,
) -> Check:
    found = {(a, b): (values.get(a, MISSING), values.get(b, MISSING)) for a, b in pairs}
    outcomes = {pair: outcome(*both) for pair, both in found.items()}
    texts = []
    for (a, b), (one, other) in found.items():
        text = f"{a} {number(one.value)}{unit}, {b} {number(other.value)}{unit}"
        near = outcomes[a, b] is None and one.known and other.known
        texts.append(f"{text} (cannot be told apart)" if near else text)
    missing = [
        flow
        for pair, both in found.items()
        for flow, one in zip(pair, both, strict=True)
        if not one.known
    ]
    text = _with_missing("; ".join(texts), list(dict.fromkeys(missing)))
    numbers = tuple(one.value for both in found.values() for one in both)
    return Check(sentence, published, text, every(outcomes.values()), cause, numbers)


def _with_missing(text: str, missing: Sequence[str]) -> str:
    if not missing:
        return text
    return ". ".join(filter(None, [text, f"Nothing of {', '.join(missing)}"]))
