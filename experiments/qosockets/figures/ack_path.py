"""The paper's explanation, which it does not test: the effect of reserving the path of the ACKs."""

import math
from dataclasses import replace

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import judged, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import Interval, difference, mean_of_runs
from ontempo.lab.study import Results

from ..grid import ack_cells, scaling

VARIANTS = ("nothing", "data only", "data and ACKs")
WAYS = {"empty": "the testbed's way back", "crowded": "traffic on the way back"}


def throughput(results: Results, back: str) -> dict[str, Interval]:
    """Received rate of the images in kbit/s by what is reserved."""
    table = results.table("intervals").filter(pl.col("group") == "images", pl.col("back") == back)
    by_seed = table.group_by("reserved", "seed").agg(pl.col("received_bps").mean() / 1e3)
    return {
        variant: mean_of_runs(by_seed.filter(reserved=variant), "received_bps")
        for variant in VARIANTS
    }


def judge(results: Results) -> Finding:
    """What reserving the ACKs changes; nothing that could fail, as the paper has no number."""
    found = {back: throughput(results, back) for back in WAYS}

    def shown(back: str, sentence: str) -> Check:
        values = found[back]
        data, both = (values[name] for name in ("data only", "data and ACKs"))
        check = judged(
            sentence,
            "no number",
            lambda: _gain(data, both),
            {"images where data is reserved": data, "where data and ACKs are": both},
            lambda: True,
        )
        return replace(check, ok=None)

    checks = [
        shown("empty", "Images in C2 on the testbed, where the ACKs are reserved too."),
        shown("crowded", "The same with traffic against them."),
    ]
    lines = [
        Series(label, f"step-{2 * place}", dict(enumerate(found[back].values())))
        for place, (back, label) in enumerate(WAYS.items())
    ]
    figure = Figure(
        "Throughput of images in test C2 by what is reserved.",
        Axis("Reserved", ticks=dict(enumerate(VARIANTS))),
        Axis("Throughput (kbit/s)"),
        [View("", lines)],
    )
    notes = [
        "The paper explains the lower throughput of reserved TCP flows by their unreserved ACKs. It"
        " neither tests this nor gives a number: a conjecture, which is not judged. Traffic on the"
        " way back: three more traffic generators, against the images."
    ]
    return Finding([figure], checks, notes)


def _gain(data: Interval, both: Interval) -> str:
    """Both rates, and their difference with its interval where there is one."""
    text = f"data {number(data.value)}, data and ACKs {number(both.value)} kbit/s"
    more = difference(both, data)
    if math.isnan(more.low):
        return text
    return f"{text}: {more.value:+.1f} ({more.low:+.1f} to {more.high:+.1f})"


CLAIM = Claim(
    id="qosockets/ack-path",
    title="DIRM: ACKs reserved too",
    world=World.SIMULATION,
    published="Reserved TCP flows lose throughput under load because their ACKs are not reserved.",
    expectation="If so, the throughput of C2a rises further where the way of the ACKs is reserved"
    " too; by how much is not said.",
    conjecture=True,
    cells=ack_cells,
    judge=judge,
    scaling=scaling,
)
