"""Figure 10: success against start-up delay where bandwidth is short."""

import polars as pl

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.judging import above_everywhere
from ontempo.lab.plots import Figure, View
from ontempo.lab.study import Results

from ..causes import SAME_T_OTHER_LOAD, SMALL_WINDOWS
from ..curves import (
    DELAY_AXIS,
    STREAMS_NOTE,
    SUCCESS_AXIS,
    by_controller,
    seconds,
    success_series,
)
from ..grid import CONTROLLERS, video_cells, video_scaling
from ..streams import ALL_SUCCEED, DELAYS_S, streams, success_by_delay

TIE_CAUSE = "at the smallest delays few streams of any controller may succeed, so that they tie."


def judge(results: Results) -> Finding:
    """The order of the three at every delay."""
    table = results.derive(streams).filter(pl.col("t_mu").is_between(1.0, 1.4, closed="left"))
    found = {name: success_by_delay(table.filter(controller=name)) for name in CONTROLLERS}
    checks = [
        above_everywhere(
            f"{better.upper()} is above {worse.upper()} at every start-up delay.",
            "above",
            (better.upper(), found[better]),
            (worse.upper(), found[worse]),
            DELAYS_S,
            seconds,
            cause,
            ends=ALL_SUCCEED,
        )
        for better, worse, cause in (
            ("pert", "cubic", SMALL_WINDOWS + SAME_T_OTHER_LOAD),
            ("cubic", "reno", TIE_CAUSE),
        )
    ]
    figure = Figure(
        "Fraction of successful streams against the start-up delay for PERT, CUBIC and RENO at"
        " T/mu from 1.0 to 1.4.",
        DELAY_AXIS,
        SUCCESS_AXIS,
        [View("", success_series(by_controller(table)))],
    )
    return Finding([figure], checks, [STREAMS_NOTE])


CLAIM = Claim(
    id="pert/fig10",
    title="Success against start-up delay, T/μ 1.0 to 1.4",
    world=World.SIMULATION,
    published="Where T/μ is low and losses are many, PERT does best, CUBIC next, RENO worst.",
    expectation="PERT above CUBIC above RENO.",
    cells=lambda scale: video_cells(scale, list(CONTROLLERS)),
    judge=judge,
    scaling=video_scaling,
)
