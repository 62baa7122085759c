"""Figures 5, 13 and 14, the paper's experiment, with real packets and the endpoint's transport.

Twice: set as the paper's protocol was, as far as it can be (``docs/experiments-rr3216.md`` says how
far), and as it is by default, with congestion control.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product

from ontempo.lab.beside import beside_twins
from ontempo.lab.claims import Cause, Claim, Finding, Scale, World
from ontempo.lab.judging import judged
from ontempo.lab.plots import Figure
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.statistics import mean_interval
from ontempo.lab.study import Cell, Results

from ..causes import LEVEL
from ..curves import (
    RUNS_NOTE,
    gain_figure,
    maximum_between,
    ms,
    never_negative,
    useless_for_large,
)
from ..grid import ORDERS, PROCESSING_MS, SEEDS, Setting
from ..grid import cells as simulated
from ..metrics import gain_curve, highest
from ..transfers import PUBLISHED, Transfer, runs_of, transfers_in
from . import fig13, fig14

COUNT = {"quick": 100, "full": 1000}
"""ADUs of a transfer of figure 5."""

EMULATED_MS = {"quick": (1.0, 5.0, 10.0, 15.0, 20.0, 40.0), "full": PROCESSING_MS["full"]}
"""Its processing times: a hundred ADUs of 100 ms would take as long as all others."""

MODERN = "pert"
"""The endpoint's default congestion control."""

MODERN_MS = {"quick": (1.0, 10.0, 40.0), "full": (1.0, 5.0, 10.0, 15.0, 20.0, 40.0)}
OPERATING_MS = 10.0

PAGE = "docs/experiments-rr3216.md, The experiment"

SHORT_RUNS = Cause("three runs of 100 ADUs; of 1,000 in five runs it is 0.01.", PAGE)

CONGESTION = Cause(
    "PERT takes one loss in ten for congestion. Where it shrinks its window, ADUs wait before the"
    " sender, the more the longer the run, and runs of one setting differ by factors: 1,000 ADUs at"
    " Ta = 10 ms take 18 s in order on average, and 43 s at the worst.",
    PAGE,
)

WIDE_WINDOW = Cause(
    "the window is 4,096 units, not 32 buffers: while a lost ADU is repaired all others come, fifty"
    " and more in order, and the sender never stops for them, so that the run takes little longer"
    " than 100 ADUs at 10 ms and the last repair.",
    PAGE,
)


def transfers(
    settings: Iterable[Setting], seeds: Iterable[int], protocol: str = PUBLISHED
) -> list[Transfer]:
    """Every setting in both orders."""
    return [
        Transfer(setting, order, seed, protocol)
        for setting, order, seed in product(settings, ORDERS, seeds)
    ]


def gain_settings(scale: Scale) -> list[Setting]:
    """Figure 5, both halves."""
    return [
        Setting(processing_ms=processing, interval_ms=interval, count=COUNT[scale])
        for interval, processing in product((0.0, 10.0), EMULATED_MS[scale])
    ]


def gain_cells(scale: Scale) -> list[Cell]:
    """Figure 5 with real packets, a run or more for each seed, and simulated."""
    settings = gain_settings(scale)
    real = [cell for seed in SEEDS[scale] for cell in runs_of(transfers(settings, [seed]), seed)]
    return [*real, *simulated(scale, settings)]


def short_cells(setting: Setting) -> Callable[[Scale], list[Cell]]:
    """Figure 13's or 14's runs, all at a time, and simulated."""

    def cells(_scale: Scale) -> list[Cell]:
        real = runs_of(transfers([setting], fig13.RUNS), 0)
        return [*real, *simulated("quick", [setting], seeds=fig13.RUNS)]

    return cells


def modern_cells(scale: Scale) -> list[Cell]:
    """Figure 5 by the endpoint's defaults, the operating point in a separate run."""
    settings = [
        Setting(processing_ms=processing, count=COUNT[scale]) for processing in MODERN_MS[scale]
    ]
    parts = (
        [one for one in settings if (one.processing_ms == OPERATING_MS) is here]
        for here in (True, False)
    )
    return [cell for part in parts for cell in runs_of(transfers(part, fig13.RUNS, MODERN), 0)]


def modern_short_cells(_scale: Scale) -> list[Cell]:
    """Figures 13 and 14 by them."""
    setting = Setting(processing_ms=OPERATING_MS, count=fig13.SETTING.count)
    return runs_of(transfers([setting], fig13.RUNS, MODERN), 0)


def judge_left(results: Results) -> Finding:
    """Window control only."""
    found = gain_curve(results, interval_ms=0.0)
    places = asked(results, 0.0)
    checks = [never_negative(found, places), useless_for_large(found, places, SHORT_RUNS)]
    return Finding([figure(results)], checks, [RUNS_NOTE])


def judge_right(results: Results) -> Finding:
    """With rate control."""
    found = gain_curve(results, interval_ms=10.0)
    places = asked(results, 10.0)
    place, _ = highest(found, places)
    checks = [
        maximum_between(found, places, 0.2, 0.4, LEVEL),
        judged(
            "The largest gain is where Ta is at most R.",
            "Ta at most 10 ms",
            lambda: f"at {ms(place)}",
            {"the place of the largest gain": place},
            lambda: place <= OPERATING_MS,
        ),
        useless_for_large(found, places, SHORT_RUNS),
    ]
    return Finding([figure(results)], checks, [RUNS_NOTE])


def asked(results: Results, interval_ms: float) -> list[float]:
    """The requested processing times with this R, of real and of simulated runs."""
    real = (transfer.setting for cell in results.cells for transfer in transfers_in(cell))
    times = {one.processing_ms for one in real if one.interval_ms == interval_ms}
    return sorted({*times, *results.asked("processing_ms", interval_ms=interval_ms)})


def because(judge: Callable[[Results], Finding], cause: str) -> Callable[[Results], Finding]:
    """The same judgement, with the other protocol as the cause of differences."""

    def judged(results: Results) -> Finding:
        finding = judge(results)
        checks = [replace(check, cause=cause) for check in finding.checks]
        return Finding(finding.figures, checks, finding.notes)

    return judged


def figure(results: Results) -> Figure:
    """The gain against the processing time, for each R that was run."""
    intervals = sorted({float(value) for value in results.table("adus")["interval_ms"].unique()})
    return gain_figure(
        "The gain of out-of-sequence processing with real packets, against the processing time.",
        lambda metric: {
            f"R = {interval:g} ms": gain_curve(results, metric, interval_ms=interval)
            for interval in intervals
        },
    )


def with_transport(judge: Callable[[Results], Finding]) -> Callable[[Results], Finding]:
    """Add notes on the transport's losses and on the machine."""

    def judged(results: Results) -> Finding:
        finding = judge(results)
        real = results.of(cell for cell in results.cells if cell.real)
        # `beside_twins` adds that note already.
        how = [circumstances(real.table(MACHINE))] if real.cells == results.cells else []
        return Finding(finding.figures, finding.checks, [*how, met(real), *finding.notes])

    return judged


def met(results: Results) -> str:
    """A sentence on the packets that the connections retransmitted."""
    table = results.table("connections")
    lost, sent = (float(table[name].sum()) for name in ("packets_lost", "packets_sent"))
    round_trip = mean_interval(table["round_trip_s"]).value
    return (
        f"{lost / sent:.1%} of the packets were lost; the round trip was {round_trip * 1e3:.0f} ms."
    )


def gain_scaling(scale: Scale) -> str:
    """How much of figure 5 is run."""
    return (
        f"{len(SEEDS[scale])} of {len(SEEDS['full'])} runs a point, of {COUNT[scale]:,} of"
        f" {COUNT['full']:,} ADUs; {len(EMULATED_MS[scale])} of {len(EMULATED_MS['full'])}"
        " processing times."
    )


def modern_scaling(scale: Scale) -> str:
    """How much of it by default."""
    return (
        f"Five runs a point, of {COUNT[scale]:,} of {COUNT['full']:,} ADUs; {len(MODERN_MS[scale])}"
        f" of {len(PROCESSING_MS['full'])} processing times."
    )


def emulated(claim: Claim, cells: Callable[[Scale], Sequence[Cell]]) -> Claim:
    """A claim of the simulation, by the paper's protocol with real packets."""
    return replace(
        claim,
        id=f"{claim.id}-emulated",
        row=claim.answers,
        world=World.EMULATION,
        cells=cells,
        judge=with_transport(beside_twins(claim.judge)),
    )


def modern(
    claim: Claim, cells: Callable[[Scale], Sequence[Cell]], judge: Callable[[Results], Finding]
) -> Claim:
    """A claim of the paper's protocol, by the endpoint's defaults."""
    return replace(
        claim,
        id=f"rr3216/{claim.answers}-modern",
        title=f"{claim.title}, by today's defaults",
        row=claim.answers,
        world=World.EMULATION,
        cells=cells,
        judge=with_transport(judge),
    )


LEFT = Claim(
    id="rr3216/fig5-left",
    title="Gain against processing time in the experiment, window control only",
    world=World.EMULATION,
    published="In the experiment, too, G is never negative, and nothing from about 40 ms on.",
    expectation="G at least 0, below 0.05 for Ta of 40 ms or more.",
    cells=gain_cells,
    judge=with_transport(beside_twins(judge_left)),
    scaling=gain_scaling,
)

RIGHT = Claim(
    id="rr3216/fig5-right",
    title="Gain against processing time in the experiment, with rate control",
    world=World.EMULATION,
    published="With R = 10 ms the largest gain is around 30 %, where Ta is at most R, and nothing"
    " from about 40 ms on.",
    expectation="Largest G from 0.2 to 0.4 at Ta up to R; below 0.05 for Ta of 40 ms or more.",
    cells=gain_cells,
    judge=with_transport(beside_twins(judge_right)),
    scaling=gain_scaling,
)

FIG13 = emulated(fig13.CLAIM, short_cells(fig13.SETTING))
FIG14 = emulated(fig14.CLAIM, short_cells(fig14.SETTING))

RIGHT_MODERN = replace(
    modern(RIGHT, modern_cells, because(judge_right, CONGESTION)), scaling=modern_scaling
)
FIG13_MODERN = modern(fig13.CLAIM, modern_short_cells, because(fig13.judge, WIDE_WINDOW))
FIG14_MODERN = modern(fig14.CLAIM, modern_short_cells, fig14.judge)
