"""Axes and views that several of the figures share."""

from collections.abc import Callable, Iterable, Mapping

import polars as pl

from ontempo.lab.plots import Axis, Series, View

from .streams import DELAYS_S, T_NAMES, success_by_delay

NAMES = {"pert": "PERT", "cubic": "CUBIC", "reno": "RENO"}
SYMBOLS = {"pert": "circle", "cubic": "diamond", "reno": "square"}

T_AXIS = Axis(
    "T/μ: mean throughput of a file transfer over the video's rate", ticks=T_NAMES, hover="T/μ %{x}"
)
COUNT_AXIS = Axis("Number of videos, and of file transfers", (19.5, 35.5), hover="%{x} videos")
DELAY_AXIS = Axis("Start-up delay (s)", (0, 31), hover="start-up delay %{x} s")
SUCCESS_AXIS = Axis("Successful streams", (-0.03, 1.05), format=".0%")

STREAMS_NOTE = (
    "Bands are 95 % Wilson intervals that take streams as independent; streams of one run share"
    " its fate, so the true uncertainty is larger."
)


def by_controller(table: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The streams of each controller that has any, in a fixed order."""
    parts = {name: table.filter(controller=name) for name in NAMES}
    return {name: part for name, part in parts.items() if not part.is_empty()}


def success_series(tables: Mapping[str, pl.DataFrame]) -> list[Series]:
    """Success against start-up delay, a line for each controller."""
    return [
        Series(NAMES[name], name, success_by_delay(part), symbol=SYMBOLS[name])
        for name, part in tables.items()
    ]


def seconds(delay: float) -> str:
    """The label of a start-up delay."""
    return f"{delay:g} s"


def bin_of(place: float) -> str:
    """The label of a bin of T/mu."""
    return T_NAMES[place]


def views_by_delay(
    make: Callable[[float], Iterable[Series]], shown: float
) -> tuple[list[View], int]:
    """A view for each start-up delay, and which of them is shown first."""
    return [View(seconds(delay), list(make(delay))) for delay in DELAYS_S], DELAYS_S.index(shown)
