"""What the figures over the spacing share: curves, axes, and where they are best."""

import math
from collections.abc import Sequence

import polars as pl

from ontempo.lab.judging import Curve, at
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import Interval, mean_of_runs

SPACING = "spacing_us"
SPACING_AXIS = Axis("Packet spacing (μs)", (-50, 5050), hover="spacing %{x} μs")
RATE_AXIS = Axis("Throughput (Mbit/s)", format=".3~f")
LOSS_AXIS = Axis("Packet loss", (-0.02, 1.02), format=".1%")
SAME = 0.01
"""Within this part of each other two throughputs count as the same."""
EACH_NOTE = "The mean over the flows of a kind, with the 95 % interval of their spread."


def loss_of_sent() -> pl.Expr:
    """The loss rate of a flow; NaN if it sent nothing, for which the table has 0."""
    sent_any = pl.col("sent_packets") > 0
    return pl.when(sent_any).then(pl.col("loss_rate")).otherwise(math.nan).alias("loss_rate")


def over_spacing(table: pl.DataFrame, value: pl.Expr) -> dict[float, Interval]:
    """A value averaged over flows, for each spacing."""
    named = table.select(SPACING, value.alias("value"))
    return {
        float(us): mean_of_runs(part, "value")
        for (us,), part in named.sort(SPACING).group_by([SPACING], maintain_order=True)
    }


def received(table: pl.DataFrame) -> dict[float, Interval]:
    """Throughput at the receiver, in Mbit/s."""
    return over_spacing(table, pl.col("goodput_bps") / 1e6)


def sent(table: pl.DataFrame) -> dict[float, Interval]:
    """Throughput at the sender, in Mbit/s: what it received, and what was lost with it."""
    ratio = pl.col("sent_packets") / pl.col("delivered_packets")
    return over_spacing(
        table.filter(pl.col("delivered_packets") > 0), pl.col("goodput_bps") * ratio / 1e6
    )


def lost(table: pl.DataFrame) -> dict[float, Interval]:
    """The fraction of packets lost."""
    return over_spacing(table, loss_of_sent())


def best(curve: Curve) -> float:
    """The spacing of the largest value."""
    known = (us for us, value in curve.items() if value.known)
    return max(known, key=lambda us: curve[us].value, default=math.nan)


def plateau_end(curve: Curve) -> float:
    """The largest spacing at which the value still is the same as the largest."""
    known = {us: value.value for us, value in curve.items() if value.known}
    top = max(known.values(), default=math.nan)
    return max((us for us, value in known.items() if value >= (1 - SAME) * top), default=math.nan)


def least_without_loss(curve: Curve) -> float:
    """The least spacing from which on nothing is lost."""
    known = [us for us, value in curve.items() if value.known]
    free = max((us for us in known if curve[us].value > 0), default=-1.0)
    return min((us for us in known if us > free), default=math.nan)


def by_spacing(curve: Curve, spacings: Sequence[float]) -> dict[str, Interval]:
    """The values at some spacings by name; one that is not there is missing."""
    return {microseconds(us): at(curve, us) for us in spacings}


def microseconds(us: float) -> str:
    """The label of a spacing."""
    return f"{us:g} μs"


def both(of: str, rates: list[Series], losses: list[Series]) -> list[Figure]:
    """Throughput and loss over spacing, as the paper draws them."""
    return [
        Figure(
            f"Throughput of {of} against packet spacing.",
            SPACING_AXIS,
            RATE_AXIS,
            [View("", rates)],
        ),
        Figure(
            f"Packet loss of {of} against packet spacing.",
            SPACING_AXIS,
            LOSS_AXIS,
            [View("", losses)],
        ),
    ]
