"""Beyond the paper: partial order, and the same ADUs over one TCP stream."""

from ontempo.lab.claims import Claim, Finding, Scale, World
from ontempo.lab.judging import above_everywhere, number
from ontempo.lab.plots import Axis
from ontempo.lab.statistics import Interval, mean_interval
from ontempo.lab.study import Cell, Results

from ..curves import RUNS_NOTE, lines_figure, ms
from ..grid import SEEDS, Setting, cells
from ..metrics import curve, runs

IMAGE = 20
TIMES_MS = (1.0, 5.0, 10.0, 20.0, 40.0)
PARTIAL_NAMES = {"in-order": "in order", "partial-order": "partial order", "out-of-order": "none"}

LOSSES = (0.001, 0.01, 0.02, 0.05, 0.1)
CARRIERS = {"adu": "ADUs out of sequence", "newreno": "TCP NewReno", "cubic": "TCP CUBIC"}
NOT_PUBLISHED = "beyond the paper"


def partial_cells(scale: Scale) -> list[Cell]:
    """Images in each order."""
    settings = [Setting(processing_ms=time, images=IMAGE) for time in TIMES_MS]
    return cells(scale, settings, tuple(PARTIAL_NAMES))


def judge_partial(results: Results) -> Finding:
    """Partial order lies between all and none."""
    table = results.derive(runs)
    found = {
        name: milliseconds(curve(table.filter(order=order), "processing_ms", "total_s"))
        for order, name in PARTIAL_NAMES.items()
    }
    checks = [
        above_everywhere(
            f"The mean total time {'in order' if upper == 'in order' else 'in partial order'} is"
            f" above that {'in partial order' if upper == 'in order' else 'out of sequence'}.",
            NOT_PUBLISHED,
            (upper, found[upper]),
            (lower, found[lower]),
            [time for time in TIMES_MS if time <= Setting().interval_ms],
            ms,
        )
        for upper, lower in (("in order", "partial order"), ("partial order", "none"))
    ]
    figure = lines_figure(
        "Mean total time of ADUs of images in order, in partial order and out of sequence.",
        found,
        Axis("Processing time Ta (ms)"),
        Axis("Mean total time (ms)"),
    )
    note = f"50 images of {IMAGE} ADUs, of which the first two hold an image's tables."
    return Finding([figure], checks, [note, RUNS_NOTE])


def stream_cells(scale: Scale) -> list[Cell]:
    """Each loss rate over each transport."""
    found = []
    for carrier in CARRIERS:
        settings = [Setting(loss=loss, transport=carrier) for loss in LOSSES]
        found += cells(scale, settings, ("out-of-order",) if carrier == "adu" else ("in-order",))
    return found


def judge_stream(results: Results) -> Finding:
    """One TCP stream beside ADUs out of sequence."""
    table = results.derive(runs)
    found = {
        name: curve(table.filter(transport=carrier), "loss", "makespan_s")
        for carrier, name in CARRIERS.items()
    }
    blocked = {
        carrier: mean_interval(table.filter(transport=carrier, loss=0.01)["blocked_s"]).value
        for carrier in CARRIERS
    }
    checks = [
        above_everywhere(
            f"{CARRIERS[carrier]} takes longer for all ADUs at every loss rate.",
            NOT_PUBLISHED,
            (CARRIERS[carrier], found[CARRIERS[carrier]]),
            (CARRIERS["adu"], found[CARRIERS["adu"]]),
            [loss for loss in LOSSES if loss >= 0.01],
            lambda loss: f"L = {loss:.1%}",
        )
        for carrier in ("newreno", "cubic")
    ]
    figure = lines_figure(
        "Time until all ADUs are processed against the loss rate, over ADUs and over TCP.",
        found,
        Axis("Loss rate L", format=".0%"),
        Axis("Time until the last ADU is processed (s)"),
    )
    waits = ", ".join(f"{CARRIERS[c]} {number(1e3 * value)} ms" for c, value in blocked.items())
    return Finding(
        [figure],
        checks,
        [
            f"Mean wait of an ADU at the receiver with 1 % loss: {waits}.",
            "Ta = 10 ms; TCP with selective acknowledgements and a receive window of 32 packets."
            " The ADUs' rate is fixed: they do not answer losses as congestion, TCP does.",
            RUNS_NOTE,
        ],
    )


def milliseconds(points: dict[float, Interval]) -> dict[float, Interval]:
    """A curve of seconds in milliseconds."""
    return {place: point.scaled(1e3) for place, point in points.items()}


PARTIAL = Claim(
    id="rr3216/partial-order",
    title="Images in partial order",
    world=World.SIMULATION,
    published="Not in the paper: section 2.2 names JPEG's tables, which precede image data, and"
    " leaves partial order unmeasured.",
    expectation="Partial order lies between order and none.",
    cells=partial_cells,
    judge=judge_partial,
    scaling=lambda scale: f"{len(SEEDS[scale])} of {len(SEEDS['full'])} runs a point.",
)

STREAM = Claim(
    id="rr3216/one-tcp-stream",
    title="The same ADUs over one TCP stream",
    world=World.SIMULATION,
    published="Not in the paper: the point of comparison of today's transports.",
    expectation="One TCP stream takes longer than ADUs out of sequence.",
    cells=stream_cells,
    judge=judge_stream,
    scaling=lambda scale: f"{len(SEEDS[scale])} of {len(SEEDS['full'])} runs a point.",
)
