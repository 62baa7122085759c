"""Figure 11: success against start-up delay where bandwidth is ample."""

from statistics import fmean

import polars as pl

from ontempo.lab.claims import Cause, Check, Claim, Finding, World
from ontempo.lab.judging import (
    Curve,
    about,
    above_everywhere,
    at,
    judged,
    number,
    within_everywhere,
)
from ontempo.lab.plots import Figure, View, Zone
from ontempo.lab.study import Results

from ..causes import AT_THE_START, READINGS
from ..curves import (
    DELAY_AXIS,
    NAMES,
    STREAMS_NOTE,
    SUCCESS_AXIS,
    by_controller,
    seconds,
    success_series,
)
from ..grid import CONTROLLERS, video_cells, video_scaling
from ..streams import ALL_SUCCEED, DELAYS_S, STARTUP_S, streams, success_by_delay

TIE_CAUSE = Cause(
    "once every stream of both succeeds, neither can be above the other; the published “almost"
    " 100 %” for PERT and CUBIC leaves no room above RENO either.",
    f"{READINGS} length",
)


def judge(results: Results) -> Finding:
    """PERT's and CUBIC's lead over RENO: everywhere, most while the delay is tight."""
    table = results.derive(streams).filter(pl.col("t_mu").is_between(1.4, 1.8, closed="left"))
    found = {name: success_by_delay(table.filter(controller=name)) for name in CONTROLLERS}
    tight = [delay for delay in DELAYS_S if delay <= STARTUP_S]
    loose = [delay for delay in DELAYS_S if delay > STARTUP_S]
    checks = []
    for name in ("pert", "cubic"):
        cause = AT_THE_START if name == "pert" else TIE_CAUSE
        checks += [
            above_everywhere(
                f"{NAMES[name]} is above RENO at every start-up delay.",
                "above",
                (NAMES[name], found[name]),
                ("RENO", found["reno"]),
                DELAYS_S,
                seconds,
                cause,
                ends=ALL_SUCCEED,
            ),
            _larger_lead(name, found[name], found["reno"], (tight, loose), cause),
            within_everywhere(
                f"Above 11 s nearly all streams over {NAMES[name]} succeed.",
                "almost 100 % (about 1)",
                found[name],
                lambda value: about(value, 1.0),
                loose,
                seconds,
                cause,
            ),
        ]
    figure = Figure(
        "Fraction of successful streams against the start-up delay for PERT, CUBIC and RENO at"
        " T/mu from 1.4 to 1.8.",
        DELAY_AXIS,
        SUCCESS_AXIS,
        [View("", success_series(by_controller(table)))],
        zones=[Zone(0, STARTUP_S, "1 to 11 s")],
    )
    return Finding([figure], checks, [STREAMS_NOTE])


def _larger_lead(
    name: str, curve: Curve, reno: Curve, places: tuple[list[float], list[float]], cause: str
) -> Check:
    early, late = (fmean(at(curve, x).value - at(reno, x).value for x in part) for part in places)
    return judged(
        f"{NAMES[name]}'s lead over RENO is largest at 1 to 11 s.",
        "largest there",
        lambda: f"a mean lead of {number(early)} up to 11 s, of {number(late)} beyond",
        {"streams at each delay up to 11 s": early, "streams at each delay beyond": late},
        lambda: early > 0 and early > late,
        cause,
    )


CLAIM = Claim(
    id="pert/fig11",
    title="Success against start-up delay, T/μ 1.4 to 1.8",
    world=World.SIMULATION,
    published="With ample bandwidth both PERT and CUBIC do better than RENO, most so at start-up"
    " delays of 1 to 11 s; beyond that nearly all of their streams succeed.",
    expectation="PERT and CUBIC above RENO, most at 1 to 11 s, both about 1 beyond.",
    cells=lambda scale: video_cells(scale, list(CONTROLLERS)),
    judge=judge,
    scaling=video_scaling,
)
