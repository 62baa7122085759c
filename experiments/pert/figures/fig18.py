"""Figure 18: the effect of coalesced ACKs on the round trip that a sender measures."""

import math
from itertools import pairwise

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import Interval, mean_interval
from ontempo.lab.study import Cell, Results

from ..causes import NEARLY_ALWAYS
from ..extensions import ALONE, LONE, coalescing_cells, lone_cells, scaling
from ..roundtrips import SETTING, smoothed, time_figure
from ..trains import STEADY_S, arrivals, sent

FLOW = "ftp.0"
TRAIN = 4
RETURN_MS = 20.0
PUBLISHED_MS = (4.0, 6.0)
"""About 5 ms: give or take one step of its last digit."""

EQUAL = 0.1
"""How far a step may be from the mean step and still be "the same"."""


def judge(results: Results) -> Finding:
    """The difference of the smoothed round trips, and the round trips within a train."""
    pairs = results.of(cell for cell in results.cells if cell.scenario != LONE)
    return Finding(
        [time_figure(pairs, ["none"]), _groups_figure(groups(results))],
        [*_higher(pairs), _steps(groups(results))],
        [
            "Two transfers over PERT in one queue; the smoothed round trip is PERT's own."
            " A packet's round trip in the second plot is that to its receiver and back at once,"
            " of one transfer alone. The paper groups packets by their number modulo four, which is"
            " their place in the train until the window changes by a packet; here it is the place.",
        ],
    )


def _higher(pairs: Results) -> list[Check]:
    table = pairs.derive(smoothed).sort("time_s")
    by_time = table.group_by(*SETTING, "time_s", maintain_order=True).agg(
        pl.col("srtt_ms").filter(receiver="coalescing").first().alias("coalescing")
        - pl.col("srtt_ms").filter(receiver="immediate").first()
    )
    gap = by_time["coalescing"].drop_nulls()
    above = float((gap > 0).to_numpy().mean()) if len(gap) else math.nan
    by_seed = by_time.group_by("seed", maintain_order=True).agg(pl.col("coalescing").mean())
    mean = mean_interval(by_seed["coalescing"])
    low, high = PUBLISHED_MS
    return [
        judged(
            "The smoothed round trip with coalescing is always the higher one.",
            "always",
            lambda: f"{above:.0%} of the time",
            {"round trips of both": above},
            lambda: above == 1.0,
            NEARLY_ALWAYS,
        ),
        judged(
            "It is higher by about one train.",
            "about 5 ms (4 to 6 ms)",
            lambda: (
                f"{number(mean.value)} ms"
                f" (seeds {', '.join(map(number, by_seed['coalescing']))} ms)"
            ),
            {"round trips of both": mean},
            lambda: low <= mean.value <= high,
            NEARLY_ALWAYS,
        ),
    ]


def groups(results: Results) -> dict[float, Interval]:
    """The mean round trip of the packets of a train of four, by their place in it."""
    rows = []
    packets = results.of(cell for cell in results.cells if cell.scenario == LONE).table("packets")
    for _, own in packets.group_by(["seed"], maintain_order=True):
        received = {one.number: one.time_s for one in arrivals(own, FLOW)}
        together = sent(own, FLOW).group_by("time_s", maintain_order=True).agg("number")
        for time, train in together.iter_rows():
            if len(train) == TRAIN and all(one in received for one in train):
                rows += [
                    (place, (received[one] - time) * 1e3 + RETURN_MS)
                    for place, one in enumerate(train)
                ]
    table = pl.DataFrame(rows, schema=["place", "rtt_ms"], orient="row")
    return {
        float(place): mean_interval(table.filter(place=place)["rtt_ms"]) for place in range(TRAIN)
    }


def _steps(found: dict[float, Interval]) -> Check:
    sentence = "The four packets of a train differ by equal steps."
    values = sorted(one.value for one in found.values() if one.known)
    if len(values) < TRAIN:
        return Check(sentence, "the same difference", "no packets", None)
    steps = [b - a for a, b in pairwise(values)]
    mean = sum(steps) / len(steps)
    return Check(
        sentence,
        "the same difference (each within 10 % of their mean)",
        f"steps of {', '.join(map(number, steps))} ms",
        all(abs(step - mean) <= EQUAL * mean for step in steps) and steps[0] > 0,
        values=tuple(steps),
    )


def _groups_figure(found: dict[float, Interval]) -> Figure:
    values = ", ".join(number(one.value) for one in found.values())
    return Figure(
        f"Mean round trip of the packets of a train by their place in it: {values} ms.",
        Axis("Place in the train", ticks={place: f"{place + 1:g}" for place in found}),
        Axis("Round trip (ms)"),
        [View("", [Series(f"after {STEADY_S:g} s", "pert", found)])],
    )


def cells(scale: Scale) -> list[Cell]:
    """The two transfers, and one alone whose packets are watched."""
    return [*coalescing_cells(scale, ALONE, ["none"]), *lone_cells(scale, ["adaptive"])]


CLAIM = Claim(
    id="pert/fig18",
    headline="It is higher by about one train.",
    title="Round trip with coalesced ACKs",
    world=World.SIMULATION,
    published="With coalesced ACKs the smoothed round trip is always about 5 ms higher than"
    " without. The packets of a train, grouped by their number modulo four, have round trips that"
    " differ by the same amount.",
    expectation="Higher throughout, by about 5 ms; four groups in equal steps.",
    cells=cells,
    judge=judge,
    scaling=scaling(cells),
)
