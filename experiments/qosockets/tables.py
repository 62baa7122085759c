"""The flows of Table 1 with real packets, beside the published values and the same cells simulated.

``sudo python -m experiments.qosockets.tables nv`` (or ``dirm``, or ``bursts``, C2 of DIRM by the
depth of the reservation's bucket; ``full`` after it for the paper's lengths) prints a table of
Markdown, as in docs/experiments-qosockets.md. Cells are stored beside those of
``ontempo-lab reproduce``, so nothing is run twice.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence

from ontempo.lab.claims import Scale
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Results

from ..pert.readings import run
from .emulated import APPLICATIONS, BURSTS, burst_cells, played_cells
from .grid import FLOWS, Application
from .measures import Values, delay, jitter, loss, received, sent

Row = tuple[str, str, str, str]
"""Received kbit/s, loss in per cent, delay and jitter in milliseconds."""

NOTHING: Row = ("-", "-", "-", "-")

PUBLISHED: Mapping[Application, Mapping[str, Row]] = {
    "nv": {
        "A1": ("570", "some", "-", "-"),
        "A2": ("530", "0", "< 30", "< 10"),
        "A3": ("-", "0", "-", "-"),
        "B1a": ("-", "0", "-", "-"),
        "B1b": ("-", "0", "-", "-"),
        "B2a": ("530", "0", "< 30", "< 10"),
        "B2b": ("-", "0", "-", "-"),
        "C1a": ("250", "47", "250 to 750", "115"),
        "C1b": ("120 less than sent", "25", "600", "above C2b"),
        "C1c": ("120 less than sent", "25", "600", "above C2c"),
        "C2a": ("520", "0", "25", "5"),
        "C2b": ("200 less than sent", "40", "720 at most", "below C1b"),
        "C2c": ("200 less than sent", "40", "720 at most", "below C1c"),
    },
    "dirm": {
        "A1": ("as A2", "0", "-", "-"),
        "A2": ("as A1", "0", "-", "-"),
        "A3": ("-", "0", "below A1", "below A1"),
        "B1a": ("-", "0", "above A1", "above A1"),
        "B1b": ("-", "0", "as B2b", "-"),
        "B2a": ("B1a + 20 %", "0", "above A2", "above A2"),
        "B2b": ("-", "0", "as B1b", "-"),
        "C1a": ("below B1a", "0", "above B1a", "above B1a"),
        "C1b": ("below B1b", "0", "as C2b", "-"),
        "C1c": ("below B1b", "0", "as C2c", "-"),
        "C2a": ("C1a + 20 %", "0", "below C1a, C2b", "below C1a"),
        "C2b": ("below B2b", "0", "as C1b", "-"),
        "C2c": ("below B2b", "0", "as C1c", "-"),
    },
}
"""Values from the text; it has no table."""


def measured(results: Results) -> Iterator[Mapping[str, str]]:
    """Columns of a world: sent and received, loss, delay, jitter, by flow."""
    out, there = sent(results), received(results)
    yield {flow: f"{out[flow].value:.0f}, {value.value:.0f}" for flow, value in there.items()}
    for values in (loss(results), delay(results), jitter(results)):
        yield {flow: text(values, flow) for flow in values}


def text(values: Values, flow: str) -> str:
    """Three digits."""
    value = values[flow].value
    return f"{value + 0:.3g}" if value < 999.5 else f"{value:.0f}"


def table(application: Application, scale: Scale, jobs: int) -> Iterator[str]:
    """Three lines a flow would be too many: three groups of columns."""
    results = run(played_cells(application, scale), jobs)
    real = results.of(cell for cell in results.cells if cell.real)
    worlds = (real, results.of(cell for cell in results.cells if not cell.real))
    heads = ("kbit/s", "loss, %", "delay, ms", "jitter, ms")
    groups = ("published", "real packets", "simulated alike")
    columns = [list(measured(world)) for world in worlds]
    yield "| flow | " + " | ".join(f"{head}: {' / '.join(groups)}" for head in heads) + " |"
    yield "| --- |" + " --- |" * len(heads)
    for flow in FLOWS:
        published = PUBLISHED[application].get(flow, NOTHING)
        cells = [
            " / ".join((published[place], *(world[place].get(flow, "none") for world in columns)))
            for place in range(len(heads))
        ]
        yield f"| {flow} | " + " | ".join(cells) + " |"
    yield ""
    yield circumstances(real.table(MACHINE))


def bursts(scale: Scale, jobs: int) -> Iterator[str]:
    """Figures 10 to 12 of C2 by the burst of the reservation."""
    cells = burst_cells(scale)
    results = run(cells, jobs)
    yield "| bytes at once | C2a: kbit/s | delay, ms | jitter, ms | C2b: kbit/s | delay, ms |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for burst, cell in zip(BURSTS, cells, strict=True):
        one = results.of([cell])
        there, late = received(one), delay(one)
        values = (
            f"{there['C2a'].value:.0f}",
            text(late, "C2a"),
            text(jitter(one), "C2a"),
            f"{there['C2b'].value:.0f}",
            text(late, "C2b"),
        )
        yield f"| {burst or '125,712, as RSVP says'} | " + " | ".join(values) + " |"
    yield ""
    yield circumstances(results.table(MACHINE))


def main(arguments: Sequence[str]) -> None:
    """Print the requested table."""
    if not arguments or arguments[0] not in (*APPLICATIONS, "bursts"):
        raise SystemExit(__doc__)
    scale: Scale = "full" if "full" in arguments[1:] else "quick"
    name = arguments[0]
    lines = bursts(scale, 2) if name == "bursts" else table(APPLICATIONS[name], scale, 2)
    for line in lines:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
