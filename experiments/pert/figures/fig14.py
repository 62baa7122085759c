"""Figure 14: the congestion window while a film is fetched."""

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.study import Results

from ..curves import NAMES
from ..extensions import movie_cells, scaling
from ..trains import variation

FROM_S = 120.0
"""The last 90 s of the film."""

DRAWN_EVERY = 10
"""Of the samples, one in so many is drawn."""


def judge(results: Results) -> Finding:
    """Compare how much the windows vary."""
    table = results.table("samples").filter(quantity="cwnd_packets")
    table = table.filter(table["time_s"] >= FROM_S)
    spread, series = {}, []
    for name, shown in NAMES.items():
        own = table.filter(controller=name).sort("time_s")
        spread[name] = variation(own["value"])
        rows = own.gather_every(DRAWN_EVERY).select("time_s", "value").iter_rows()
        points = {time: exact(value) for time, value in rows}
        series.append(Series(shown, name, points, markers=False))
    text = ", ".join(f"{shown} {number(spread[name])}" for name, shown in NAMES.items())
    checks = [
        Check(
            f"PERT's window varies less than {NAMES[other]}'s.",
            "fewer fluctuations (smaller coefficient of variation)",
            text,
            spread["pert"] < spread[other],
        )
        for other in ("reno", "cubic")
    ]
    figure = Figure(
        f"Congestion windows over 90 s; their coefficients of variation: {text}.",
        Axis("Time (s)"),
        Axis("Congestion window (packets)"),
        [View("", series)],
    )
    return Finding(
        [figure],
        checks,
        [
            "Simulated; the paper measured Linux. The film is taken as a transfer that TCP alone"
            " limits. The window is sampled every 10 ms, as in the paper; one sample in ten is"
            " drawn."
        ],
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
