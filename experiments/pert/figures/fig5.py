"""Figure 5: how videos, file transfers and web users share the bandwidth."""

import math

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import at, judged, monotone, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import Interval
from ontempo.lab.study import Results

from ..causes import SMALL_WINDOWS
from ..curves import COUNT_AXIS
from ..grid import video_cells, video_scaling
from ..streams import MU_BPS, by_count, runs
from .fig4 import BY_CONSTRUCTION

PROPORTION = 0.05
"""How far from proportional is still "in proportion"."""


def judge(results: Results) -> Finding:
    """Videos in proportion to their number; the others less as they become more."""
    table = results.derive(runs)
    video, ftp, http = (by_count(table, f"{group}_bps") for group in ("video", "ftp", "http"))
    each = {f"{count:g} videos": at(video, count).value / count for count in results.asked("flows")}
    smallest, largest = (end(each.values(), default=math.nan) for end in (min, max))

    def falls(curve: dict[float, Interval], who: str) -> Check:
        return monotone(
            f"{who} together get less with 35 videos than with 20.",
            "less",
            {count: _mbit(point) for count, point in curve.items()},
            (20.0, 35.0),
            rising=False,
            place=lambda count: f"{count:g} videos (Mbit/s)",
        )

    checks = [
        judged(
            "The videos' bandwidth grows in proportion to their number.",
            "in proportion",
            lambda: (
                f"{number(smallest / 1e3)} to {number(largest / 1e3)} kbit/s a video,"
                f" sent at {MU_BPS / 1e3:g}"
            ),
            each,
            lambda: largest <= (1 + PROPORTION) * smallest,
            SMALL_WINDOWS,
        ),
        falls(ftp, "The file transfers"),
        falls(http, "The web users"),
    ]
    series = [
        Series(name, colour, {x: _mbit(point) for x, point in curve.items()}, symbol=symbol)
        for name, colour, symbol, curve in (
            ("videos", "pert", "circle", video),
            ("file transfers", "reno", "square", ftp),
            ("web users", "cubic", "diamond", http),
        )
    ]
    figure = Figure(
        "Bandwidth of all videos, all file transfers and all web users against the number of"
        " videos.",
        COUNT_AXIS,
        Axis("Bandwidth (Mbit/s)", (0, 16)),
        [View("", series)],
    )
    return Finding(
        [figure],
        checks,
        [
            BY_CONSTRUCTION,
            "Videos over PERT, 1,000-byte packets, headers counted, all round trips together. Bands"
            " are 95 % t-intervals over runs. “In proportion” is read as within 5 %.",
        ],
    )


def _mbit(point: Interval) -> Interval:
    return point.scaled(1e-6)


CLAIM = Claim(
    id="pert/fig5",
    title="Bandwidth of videos, file transfers and web users",
    world=World.SIMULATION,
    published="As videos are added, their bandwidth grows in proportion; file transfers and web"
    " users have the rest.",
    expectation="The videos' bandwidth grows in proportion to their number; the others give way."
    " How much the web takes was chosen with figure 4.",
    cells=lambda scale: video_cells(scale, ["pert"]),
    judge=judge,
    scaling=video_scaling,
)
