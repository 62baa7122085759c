"""Table 2: late pictures and silences while a film is played."""

import math

import polars as pl

from ontempo.lab.claims import Check, Claim, Finding, Scale, World
from ontempo.lab.judging import is_above, judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.statistics import Interval, mean_interval
from ontempo.lab.study import Results

from ..causes import FILM_OUTRUNS_LINK
from ..film import seconds
from ..play import FREE_MBIT_S, LINK_MBIT_S, OURS, PLAYS, play_cells

TCP = {"pert": "PERT", "reno": "RENO", "cubic": "CUBIC", "bbr": "BBR"}
SHOWN = {**TCP, OURS: "ontempo"}
"""The kernel's controls, and our transport: PERT over QUIC."""

PUBLISHED = {
    "late_pictures": {"pert": 5.5, "reno": 33.5, "cubic": 30.5},
    "silences": {"pert": 3.0, "reno": 11.0, "cubic": 7.5},
}
"""Of one play of the whole film."""

WORDS = {"late_pictures": "late pictures", "silences": "silences"}

PLACES = {float(place): name for place, name in enumerate(SHOWN.values())}


def judge(results: Results) -> Finding:
    """Compare late pictures and silences of a play, by controller."""
    plays = results.table("plays")
    counted = {quantity: by_controller(plays, quantity) for quantity in PUBLISHED}
    checks = [
        _fewer(quantity, counted[quantity], other)
        for quantity in PUBLISHED
        for other in ("reno", "cubic")
    ]
    series = [
        series
        for quantity, colour in (("late_pictures", "step-0"), ("silences", "step-4"))
        for series in _series(quantity, counted[quantity], colour)
    ]
    text = "; ".join(_formatted(quantity, counted[quantity]) for quantity in PUBLISHED)
    figure = Figure(
        f"In a play, on average: {text}.",
        Axis("", ticks=PLACES, hover="%{x}"),
        Axis("In one play"),
        [View("", series)],
    )
    machine = circumstances(results.table(MACHINE))
    return Finding([figure], [*checks, _idle(plays)], [*_notes(plays), machine])


def by_controller(plays: pl.DataFrame, quantity: str) -> dict[str, Interval]:
    """The mean of a quantity over the plays with each controller on the testbed's link."""
    crowded = plays.filter(rate_mbit_s=LINK_MBIT_S)
    return {
        name: mean_interval(crowded.filter(controller=name)[quantity].cast(pl.Float64))
        for name in SHOWN
    }


def _fewer(quantity: str, counted: dict[str, Interval], other: str) -> Check:
    published = PUBLISHED[quantity]
    pert, theirs = counted["pert"], counted[other]
    return judged(
        f"Fewer {WORDS[quantity]} in a play over PERT than over {SHOWN[other]}.",
        f"{published['pert']:g} and {published[other]:g}",
        lambda: f"{_mean(pert)} and {_mean(theirs)}",
        {"plays over PERT": pert, f"plays over {SHOWN[other]}": theirs},
        lambda: is_above(theirs, pert),
        FILM_OUTRUNS_LINK,
    )


def _idle(plays: pl.DataFrame) -> Check:
    """The player itself keeps up: nothing is late if the link never delays the film."""
    free = plays.filter(rate_mbit_s=FREE_MBIT_S)
    late, silent = (int(free[quantity].sum()) for quantity in PUBLISHED)
    return Check(
        f"Nothing is late over {FREE_MBIT_S} Mbit/s, so that what is late over {LINK_MBIT_S} is the"
        " network's doing.",
        "not said",
        f"{late} late pictures, {silent} silences",
        late == silent == 0 if free.height else None,
        values=(float(late), float(silent)),
    )


def _series(quantity: str, counted: dict[str, Interval], colour: str) -> list[Series]:
    places = list(enumerate(SHOWN))
    measured = {float(place): counted[name] for place, name in places}
    printed = {
        float(place): exact(PUBLISHED[quantity][name])
        for place, name in places
        if name in PUBLISHED[quantity]
    }
    words = WORDS[quantity]
    return [
        Series(words, colour, measured, style="none"),
        Series(f"{words}, published", colour, printed, style="none", symbol="diamond-open"),
    ]


def _notes(plays: pl.DataFrame) -> list[str]:
    crowded = plays.filter(rate_mbit_s=LINK_MBIT_S)
    lengths, cut = crowded["film_s"].to_list(), int((~crowded["finished"]).sum())
    film_s = lengths[0] if lengths else math.nan
    stalled = by_controller(plays, "stalled_s")
    busiest = max(plays["processor_s"].drop_nulls().to_list(), default=math.nan)
    notes = [
        f"Counted in plays of {film_s:g} s; the thesis' are of 210 s.",
        "A silence: VLC has run dry and buffers anew, or sound came too late to be played.",
        "Seconds that a play stood still: "
        + ", ".join(f"{SHOWN[name]} {_mean(value)}" for name, value in stalled.items())
        + ".",
        f"VLC took at most {number(busiest)} s of processor time for a play.",
    ]
    if cut:
        notes.append(f"{cut} plays had not reached the film's end when the run was over.")
    return notes


def _formatted(quantity: str, counted: dict[str, Interval]) -> str:
    values = ", ".join(f"{SHOWN[name]} {_mean(value)}" for name, value in counted.items())
    return f"{WORDS[quantity]}: {values}"


def _mean(value: Interval) -> str:
    return number(value.value) if value.known else "none"


def scaling(scale: Scale) -> str:
    """A description of the plays."""
    (plays, film), (all_plays, whole) = PLAYS[scale], PLAYS["full"]
    if scale == "full":
        return f"In full: {plays} plays of {seconds(film)} s with each controller, and a free one."
    return (
        f"{plays} plays of {seconds(film)} s with each controller, and a free one; in full"
        f" {all_plays} of the whole film, {seconds(whole)} s."
    )


CLAIM = Claim(
    id="pert/table2",
    title="Late pictures and silences while a film is played",
    world=World.EMULATION,
    published="A play of a film of 210 s over HTTP had 5.5 late pictures and 3.0 silences with"
    " PERT, 33.5 and 11.0 with RENO, 30.5 and 7.5 with CUBIC.",
    expectation="Fewest late pictures and silences with PERT.",
    cells=play_cells,
    judge=judge,
    scaling=scaling,
)
