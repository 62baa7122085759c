"""Figure 12: success against start-up delay where losses are many."""

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import above_everywhere
from ontempo.lab.plots import Figure, View
from ontempo.lab.study import Results

from ..causes import SMALL_WINDOWS
from ..curves import (
    DELAY_AXIS,
    STREAMS_NOTE,
    SUCCESS_AXIS,
    by_controller,
    seconds,
    success_series,
)
from ..grid import CONTROLLERS, video_cells, video_scaling
from ..streams import ALL_SUCCEED, DELAYS_S, STARTUP_S, bin_name, streams, success_by_delay

CAPTION = (0.02, 0.06)
PROSE = (0.04, 0.06)


def judge(results: Results) -> Finding:
    """PERT against the other two, over the caption's range of loss rates."""
    table = results.derive(streams)
    views = [
        View(
            f"loss {bin_name(bounds)} ({source})", success_series(by_controller(_in(table, bounds)))
        )
        for bounds, source in ((CAPTION, "caption"), (PROSE, "prose"))
    ]
    figure = Figure(
        "Fraction of successful streams against the start-up delay for PERT, CUBIC and RENO,"
        " among streams with a loss rate of 0.02 to 0.06, or of 0.04 to 0.06.",
        DELAY_AXIS,
        SUCCESS_AXIS,
        views,
        "Loss rate",
    )
    notes = [
        "The caption says a loss rate of 0.02 to 0.06, the prose 0.04 to 0.06. Both are shown;"
        f" the caption's is judged. {_by_prose(table)}",
        STREAMS_NOTE,
    ]
    return Finding([figure], _checks(table, CAPTION, SMALL_WINDOWS), notes)


def _in(table: pl.DataFrame, bounds: tuple[float, float]) -> pl.DataFrame:
    return table.filter(pl.col("loss_rate").is_between(*bounds))


def _checks(table: pl.DataFrame, bounds: tuple[float, float], cause: str = "") -> list[Check]:
    part = _in(table, bounds)
    found = {name: success_by_delay(part.filter(controller=name)) for name in CONTROLLERS}
    return [
        above_everywhere(
            f"PERT is above {other.upper()} at every start-up delay.",
            "highest",
            ("PERT", found["pert"]),
            (other.upper(), found[other]),
            DELAYS_S,
            seconds,
            cause,
            ends=ALL_SUCCEED,
        )
        for other in ("cubic", "reno")
    ]


def _by_prose(table: pl.DataFrame) -> str:
    part = _in(table, PROSE).filter(startup_delay_s=STARTUP_S)
    sizes = {name: part.filter(controller=name).height for name in CONTROLLERS}
    counted = ", ".join(f"{size:,} over {name.upper()}" for name, size in sizes.items())
    outcomes = {check.ok for check in _checks(table, PROSE)}
    if False in outcomes:
        word = "PERT is not the highest at every delay"
    elif None in outcomes:
        word = "too few streams to tell apart"
    else:
        word = "PERT is the highest at every delay"
    return f"By the prose's range ({counted}): {word}."


CLAIM = Claim(
    id="pert/fig12",
    title="Success against start-up delay, loss rate 0.02 to 0.06",
    world=World.SIMULATION,
    published="Among streams that lose 2 to 6 % (prose: 4 to 6 %) of their packets, those over"
    " PERT generally succeed more often than those over RENO and CUBIC.",
    expectation="PERT highest.",
    cells=lambda scale: video_cells(scale, list(CONTROLLERS)),
    judge=judge,
    scaling=video_scaling,
)
