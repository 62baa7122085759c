"""The paper's readings: sets of choices where its text is open, each applied to all claims.

The numbers in brackets are sections of the paper.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import polars as pl

from ontempo.lab.claims import Choice, Claim, Reading, World
from ontempo.lab.readings import with_cells, with_results, with_settings
from ontempo.lab.study import Cell, Results

from .figures import fig11
from .metrics import gains, runs

T = TypeVar("T")

CARRIER = "flows.adus.transport"

SECTION_4_2 = frozenset(
    f"rr3216/{name}"
    for name in ("fig8", "fig9-left", "fig10-left", "fig10-right", "fig12", "ranges")
)
"""The claims of section 4.2 in which R is a parameter held fixed; figure 11 is computed."""

Change = Callable[[Claim], Claim]


class ReadAs(Results):
    """Results whose total time is another one: the columns that a gain and a time are read from."""

    def __init__(self, results: Results, gain: str, total: str) -> None:
        self._results = results
        self._columns = {gains: ("gain", gain), runs: ("judged_s", total)}
        self.cells = results.cells

    def table(self, name: str) -> pl.DataFrame:
        """As it is."""
        return self._results.table(name)

    def of(self, cells: object) -> "ReadAs":
        """The same view of some cells."""
        (_, gain), (_, total) = self._columns.values()
        return ReadAs(self._results.of(cells), gain, total)  # type: ignore[arg-type]

    def derive(self, builder: Callable[[Results], T]) -> T:
        """As it is, but for the gain and the total time."""
        found = self._results.derive(builder)
        for source, (name, column) in self._columns.items():
            if builder is source and isinstance(found, pl.DataFrame):
                return found.with_columns(pl.col(column).alias(name))  # type: ignore[return-value]
        return found


def of_total(gain: str, total: str) -> Change:
    """G and the total time are these columns'."""
    return lambda claim: with_results(claim, lambda results: ReadAs(results, gain, total))


def where_simulated(change: Change) -> Change:
    """Claims with real packets stay as they are."""
    return lambda claim: claim if claim.world is World.EMULATION else change(claim)


def simulated(change: Callable[[Cell], Cell]) -> Change:
    """Cells of the paper's transport are changed, where they are simulated."""

    def changed(cell: Cell) -> Cell:
        return change(cell) if dict(cell.labels).get("transport") == "adu" else cell

    return where_simulated(lambda claim: with_cells(claim, changed))


def every(*changes: Change) -> Change:
    """One after the other."""

    def of(claim: Claim) -> Claim:
        for change in changes:
            claim = change(claim)
        return claim

    return of


def without_interval(cell: Cell) -> Cell:
    """R = 0."""
    labels = tuple((name, 0.0 if name == "interval_ms" else value) for name, value in cell.labels)
    return replace(with_settings(cell, f'{CARRIER}.interval="0 ms"'), labels=labels)


def window_alone(claim: Claim) -> Claim:
    """R = 0 where section 4.2 holds R fixed."""
    if claim.id == fig11.CLAIM.id:
        return replace(claim, judge=fig11.judge_with(0.0))
    return simulated(without_interval)(claim) if claim.id in SECTION_4_2 else claim


def told(cell: Cell) -> Cell:
    """A loss is known D after the ADU would have arrived."""
    delay = dict(cell.labels)["delay_ms"]
    return with_settings(cell, f'{CARRIER}.loss-known-after="{delay:g} ms"')


def arrivals_alone(cell: Cell) -> Cell:
    """Acknowledgements of arrivals, none of space."""
    return with_settings(cell, f"{CARRIER}.tells-space=false")


OF_AN_ADU = Choice(
    "The total time is an ADU's, from its first sending, the mean over all ADUs.",
    "(3.3) defines T and with it G by the times of one ADU; (5) speaks of T where it sums up. An"
    " ADU's first sending: T is to show what recovery costs (4.1).",
    "the passages for the run's total time, below.",
)
CAPTIONS = Choice(
    "R is 10 ms in section 4.2.",
    "the captions of figures 8, 9 left, 10 and 12 give R = 10; (3.2) has it as the default.",
    "D/Ta alone decides only where R is 0 or grows with D (4.2.4).",
)
REVEALED = Choice(
    "A loss is known when an acknowledgement, one after every A ADUs, reports a later arrival.",
    "(3.1.3): the time before an ADU is sent again is that in which the receiver finds the loss and"
    " an acknowledgement comes back; the appendix acknowledges after A ADUs.",
    "(3.1.3) models no acknowledgements with retransmissions.",
)
OF_THE_RUN = Choice(
    "The total time is the run's: from the start until the last ADU is processed.",
    "(1) names the overall processing time, from the start of the transmission to the end of the"
    " delivery; figure 3's epsilon is at the end of the last ADU; (4.3) computes 40 % from the"
    " 2,500 and 1,500 ms of 100 ADUs; (3.2) leaves infinite flows out, since latency cannot be told"
    " of them: an ADU's could; 30 % at a loss rate of 10 % (4.1) cannot be an ADU's, nearly every"
    " one of which waits for another's recovery.",
    "(3.3) defines T and G by one ADU.",
)
NO_RATE = Choice(
    "R is 0 in section 4.2 where it is no parameter: figures 8, 9 left, 10, 11, 12 and the ranges.",
    "(4.2.4) has one curve over D/Ta for all D, which is so exactly if R is 0 or in proportion to"
    " D; the formula of figure 11 depends on rtt/Ta and n alone only if R is 0; (4.2.3) speaks of"
    " rate control as an addition.",
    "the captions of these figures give R = 10.",
)
REDIRECTED = Choice(
    "A lost ADU goes its way, is redirected and is sent again D later, without acknowledgement or"
    " timer.",
    "(3.1.3): no acknowledgement scheme with retransmissions is modelled; lost data are redirected"
    " and inserted again, after the time in which the receiver finds the loss and that of an"
    " acknowledgement's way.",
    "(4.2.2) explains an effect of the frequency of acknowledgements, and the appendix has them.",
)
BOTH = Choice("The choices of “run” and of “implicit loss” together.", "as there.", "as there.")
LAST_SENDING = Choice(
    "S is an ADU's last sending.",
    "(3.3): T is the sum of transmission, blocking and processing time, in which no recovery is"
    " named; in figure 1 an ADU that is sent again is emitted like a new one.",
    "recovery is what out-of-sequence processing is to hide (4.1).",
)
ARRIVALS = Choice(
    "Only arrivals are acknowledged, and a window that was shut opens with the next of them.",
    "the appendix: a selective acknowledgement after the reception of A ADUs.",
    "the window is the receiver's free buffers (appendix), and free buffers would not be told.",
)

READINGS = [
    Reading(
        "ADU",
        "The definitions as printed, the settings of the captions. (In brackets: sections.)",
        [OF_AN_ADU, CAPTIONS, REVEALED],
    ),
    Reading(
        "run",
        "The total time of the worked example, R as the figures' invariances require it.",
        [OF_THE_RUN, NO_RATE],
        every(of_total("makespan_gain", "makespan_s"), window_alone),
    ),
    Reading(
        "implicit loss",
        "As ADU, but for losses.",
        [REDIRECTED],
        simulated(told),
    ),
    Reading(
        "run and implicit loss",
        "As run, but for losses.",
        [BOTH],
        every(of_total("makespan_gain", "makespan_s"), window_alone, simulated(told)),
    ),
    Reading(
        "last sending",
        "As ADU, but for the time at which an ADU is sent.",
        [LAST_SENDING],
        where_simulated(of_total("last_gain", "last_total_s")),
    ),
    Reading(
        "arrivals",
        "As ADU, but for what is acknowledged.",
        [ARRIVALS],
        simulated(arrivals_alone),
    ),
]
"""The primary one first.

It is the one that the paper's definition (3.3) and captions state; the arguments for the run's
total time are inferences from an example and from the shapes of figures.
"""
