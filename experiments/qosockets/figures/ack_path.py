"""The paper's explanation tested: the effect of reserving the path of the ACKs."""

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import is_above, judged, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import Interval, mean_of_runs
from ontempo.lab.study import Results

from ..causes import EMPTY_WAY_BACK, OWN_CONVERSATION
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
    """Throughput rises further where the ACKs are reserved too."""
    found = {back: throughput(results, back) for back in WAYS}

    def rises(back: str, sentence: str, published: str, cause: str) -> Check:
        values = found[back]
        data, both = (values[name] for name in ("data only", "data and ACKs"))
        return judged(
            sentence,
            published,
            lambda: f"data {number(data.value)}, data and ACKs {number(both.value)} kbit/s",
            {"images where data is reserved": data, "where data and ACKs are": both},
            lambda: is_above(both, data),
            cause,
        )

    checks = [
        rises(
            "empty",
            "On the testbed, images get more in C2 where the ACKs are reserved too.",
            "would rise",
            EMPTY_WAY_BACK + OWN_CONVERSATION,
        ),
        rises(
            "crowded",
            "With traffic against them, they get more where the ACKs are reserved too.",
            "would rise",
            OWN_CONVERSATION,
        ),
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
        "The paper explains the lower throughput of reserved TCP flows by their unreserved ACKs and"
        " does not test it. Traffic on the way back: three more traffic generators, against the"
        " images."
    ]
    return Finding([figure], checks, notes)


CLAIM = Claim(
    id="qosockets/ack-path",
    title="DIRM: ACKs reserved too",
    world=World.SIMULATION,
    published="Reserved TCP flows lose throughput under load because their ACKs are not reserved.",
    expectation="If so, the throughput of C2a rises further where the way of the ACKs is reserved"
    " too.",
    cells=ack_cells,
    judge=judge,
    scaling=scaling,
)
