"""Figure 8: success against start-up delay, by the video's own loss rate."""

from ontempo.lab.claims import Cause, Claim, Finding, World
from ontempo.lab.judging import about, within_everywhere
from ontempo.lab.plots import Figure, Series, View, Zone
from ontempo.lab.study import Results

from ..causes import READINGS
from ..curves import DELAY_AXIS, STREAMS_NOTE, SUCCESS_AXIS, seconds
from ..grid import video_cells, video_scaling
from ..streams import DELAYS_S, LOSS_BINS, STARTUP_S, bin_name, streams, success_by_delay, within

CAUSE = Cause(
    "short videos succeed more often: with 22 and 26 of them at 50 ms over the published 7,000 s,"
    " 0.49 do at 13 s and 0.59 at 15 s. Loss rates follow from the load, besides, and that of the"
    " web users is not in the paper.",
    f"{READINGS} length",
)


def judge(results: Results) -> Finding:
    """Little loss: nearly all succeed after 11 s; much loss: about six in ten."""
    table = results.derive(streams)
    curves = {
        b: success_by_delay(table.filter(within("loss_rate", b, LOSS_BINS))) for b in LOSS_BINS
    }
    late = [delay for delay in DELAYS_S if delay > STARTUP_S]
    checks = [
        within_everywhere(
            "With a loss rate below 0.02 and a delay above 11 s, at least nine in ten succeed.",
            "above 90 % (at least 0.9)",
            curves[LOSS_BINS[0]],
            lambda value: value >= 0.9,
            late,
            seconds,
            CAUSE,
        ),
        within_everywhere(
            "With a loss rate of 0.04 to 0.06 and a delay above 11 s, about six in ten do.",
            "60 % (0.5 to 0.7)",
            curves[LOSS_BINS[2]],
            lambda value: about(value, 0.6),
            late,
            seconds,
            CAUSE,
        ),
    ]
    counts = {
        b: table.filter(within("loss_rate", b, LOSS_BINS))["startup_delay_s"] for b in LOSS_BINS
    }
    streams_in = {b: int((values == STARTUP_S).sum()) for b, values in counts.items()}
    series = [
        Series(f"loss {bin_name(b)}", f"step-{2 * step}", curve, symbol=symbol)
        for step, (symbol, (b, curve)) in enumerate(
            zip(("circle", "square", "diamond"), curves.items(), strict=True)
        )
    ]
    figure = Figure(
        "Fraction of successful streams over PERT against the start-up delay, for three ranges of"
        " the stream's own loss rate.",
        DELAY_AXIS,
        SUCCESS_AXIS,
        [View("", series)],
        zones=[Zone(STARTUP_S, 31, "above 11 s")],
    )
    sizes = ", ".join(f"{count:,} in {bin_name(b)}" for b, count in streams_in.items())
    return Finding([figure], checks, [f"Streams by loss rate: {sizes}.", STREAMS_NOTE])


CLAIM = Claim(
    id="pert/fig8",
    title="Success against start-up delay by loss rate, PERT",
    world=World.SIMULATION,
    published="Fewer streams over PERT succeed at higher loss rates: above 90 % below a loss"
    " rate of 0.02 with more than 11 s of delay, 60 % even at 0.04 to 0.06.",
    expectation="At least 0.9 for a loss rate below 0.02 and a delay above 11 s; about 0.6 for"
    " 0.04 to 0.06.",
    cells=lambda scale: video_cells(scale, ["pert"]),
    judge=judge,
    scaling=video_scaling,
)
