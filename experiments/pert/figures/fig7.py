"""Figure 7: success against start-up delay, by range of T/mu."""

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.judging import monotone, within_everywhere
from ontempo.lab.plots import Figure, Series, View, Zone
from ontempo.lab.study import Results

from ..causes import AT_THE_START
from ..curves import DELAY_AXIS, STREAMS_NOTE, SUCCESS_AXIS, seconds
from ..grid import video_cells, video_scaling
from ..streams import (
    ALL_SUCCEED,
    DELAYS_S,
    STARTUP_S,
    T_BINS,
    bin_name,
    streams,
    success_by_delay,
    within,
)

NEARLY_ALL = 0.95


def judge(results: Results) -> Finding:
    """More succeed with more delay; nearly all from 1.6 on after 11 s."""
    table = results.derive(streams)
    curves = {b: success_by_delay(table.filter(within("t_mu", b, T_BINS))) for b in T_BINS}
    late = [delay for delay in DELAYS_S if delay > STARTUP_S]
    checks = [
        monotone(
            f"At T/μ {bin_name(b)}, success never falls as the delay grows.",
            "increases",
            curve,
            DELAYS_S,
            rising=True,
            strictly=False,
            place=seconds,
            cause=AT_THE_START,
            ends=ALL_SUCCEED,
        )
        for b, curve in curves.items()
    ]
    checks += [
        within_everywhere(
            f"At T/μ {bin_name(b)} and a delay above 11 s, nearly all succeed.",
            "nearly 100 % (at least 0.95)",
            curves[b],
            lambda value: value >= NEARLY_ALL,
            late,
            seconds,
            AT_THE_START,
        )
        for b in T_BINS[3:]
    ]
    series = [
        Series(f"T/μ {bin_name(b)}", f"step-{step}", curve, symbol=_SYMBOLS[step])
        for step, (b, curve) in enumerate(curves.items())
    ]
    figure = Figure(
        "Fraction of successful streams over PERT against the start-up delay, for five ranges of"
        " T/mu.",
        DELAY_AXIS,
        SUCCESS_AXIS,
        [View("", series)],
        zones=[Zone(STARTUP_S, 31, "above 11 s")],
        reference=[(NEARLY_ALL, "")],
    )
    return Finding([figure], checks, [STREAMS_NOTE])


_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down")

CLAIM = Claim(
    id="pert/fig7",
    title="Success against start-up delay by T/μ, PERT",
    world=World.SIMULATION,
    published="More streams over PERT succeed as the start-up delay grows from 1 to 30 s; nearly"
    " all do at T/μ of 1.6 to 2.0 with more than 11 s.",
    expectation="Increases with the delay; at least 0.95 for T/μ of 1.6 to 2.0 and a delay above"
    " 11 s.",
    cells=lambda scale: video_cells(scale, ["pert"]),
    judge=judge,
    scaling=video_scaling,
)
