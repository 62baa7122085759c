"""Figure 14: the congestion window while a film is fetched."""

import math
from collections.abc import Mapping
from statistics import fmean

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Results

from ..causes import TOO_SHORT_TO_SWING
from ..curves import NAMES
from ..extensions import movie_cells, scaling
from ..play import LINK_MBIT_S, play_cells
from ..trains import variation
from . import table2

FROM_S = 120.0
"""The last 90 s of the film."""

LAST_S = 90.0
"""Seconds at the end of a real connection; of a shorter film, its second half."""

DRAWN_EVERY = 10
"""Every n-th sample is drawn."""


def judge(results: Results) -> Finding:
    """Compare how much the windows vary."""
    table = results.table("samples").filter(quantity="cwnd_packets")
    table = table.filter(table["time_s"] >= FROM_S)
    spread, series = {}, []
    for name, shown in NAMES.items():
        own = table.filter(controller=name).sort("time_s")
        spread[name] = variation(own["value"]) if own.height else math.nan
        series.append(_drawn(shown, name, own, "value"))
    note = (
        "Simulated; the paper measured Linux. The film is taken as a transfer that TCP alone"
        " limits. The window is sampled every 10 ms, as in the paper; one sample in ten is"
        " drawn."
    )
    return _finding(spread, series, NAMES, [note])


def judge_emulated(results: Results) -> Finding:
    """The same of the kernel's windows in the plays of table 2: their mean over the plays."""
    table = results.table("tcp").filter(rate_mbit_s=LINK_MBIT_S)
    spread, series = {}, []
    for name, shown in table2.TCP.items():
        plays = [
            _last(play)
            for _, play in table.filter(controller=name).group_by("seed", maintain_order=True)
        ]
        spread[name] = fmean(variation(play["cwnd"]) for play in plays) if plays else math.nan
        colour = "step-3" if name == "bbr" else name
        if plays:
            series.append(_drawn(shown, colour, plays[0], "cwnd"))
    note = (
        "Linux's TCP, as the server asks for it every 10 ms, at the end of each play; of the first"
        " play with each controller, one sample in ten is drawn. A window that the film does not"
        " fill, since the player has enough, does not grow: the film itself holds windows still."
    )
    notes = [note, circumstances(results.table(MACHINE))]
    is_short = table.filter(pl.col("time_s") >= LAST_S).is_empty()
    cause = TOO_SHORT_TO_SWING if is_short else ""
    return _finding(spread, series, table2.TCP, notes, cause)


def _last(play: pl.DataFrame) -> pl.DataFrame:
    """The end of one connection."""
    end = play["time_s"].to_list()[-1]
    return play.filter(pl.col("time_s") >= max(end - LAST_S, end / 2)).sort("time_s")


def _drawn(shown: str, colour: str, rows: pl.DataFrame, column: str) -> Series:
    some = rows.gather_every(DRAWN_EVERY).select("time_s", column).iter_rows()
    return Series(shown, colour, {time: exact(value) for time, value in some}, markers=False)


def _finding(
    spread: Mapping[str, float],
    series: list[Series],
    names: Mapping[str, str],
    notes: list[str],
    cause: str = "",
) -> Finding:
    text = ", ".join(f"{shown} {number(spread[name])}" for name, shown in names.items())
    checks = [_steadier(spread, other, names[other], text, cause) for other in ("reno", "cubic")]
    figure = Figure(
        f"Congestion windows at the end of a film; their coefficients of variation: {text}.",
        Axis("Time (s)"),
        Axis("Congestion window (packets)"),
        [View("", series)],
    )
    return Finding([figure], checks, notes)


def _steadier(spread: Mapping[str, float], other: str, shown: str, text: str, cause: str) -> Check:
    return judged(
        f"PERT's window varies less than {shown}'s.",
        "fewer fluctuations (smaller coefficient of variation)",
        lambda: text,
        {"PERT's window": spread["pert"], f"{shown}'s window": spread[other]},
        lambda: spread["pert"] < spread[other],
        cause,
    )


CLAIM = Claim(
    id="pert/fig14",
    title="Congestion window while a film is fetched",
    world=World.SIMULATION,
    published="Over 90 s at the end of a film, PERT's congestion window fluctuates less than"
    " RENO's or CUBIC's.",
    expectation="PERT's coefficient of variation is the smallest.",
    cells=movie_cells,
    judge=judge,
    scaling=scaling(movie_cells),
)

EMULATED = Claim(
    id="pert/fig14-emulated",
    row="fig14",
    title="Congestion window while a film is played",
    world=World.EMULATION,
    published=CLAIM.published,
    expectation=CLAIM.expectation,
    cells=play_cells,
    judge=judge_emulated,
    scaling=table2.scaling,
)
