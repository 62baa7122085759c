"""Figures 1 and 2, and the headline, by the endpoint's own UDP over an emulated path.

``python -m experiments.psp.readings live FILE`` judges a live path likewise; FILE is the output of
``ontempo probe HOST:PORT --json``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import polars as pl

from ontempo.lab.beside import beside_twins, with_twins
from ontempo.lab.claims import Cause, Check, Claim, Finding, Scale, World
from ontempo.lab.judging import Curve, at, every, is_above, judged, monotone, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import mean_interval
from ontempo.lab.study import Cell, Results

from ..grid import PACKET, spaced
from ..probing import LIVE, PACKET_BYTES, TRANSMISSION_US, probe_cell, probed, steady
from .curves import LOSS_AXIS, RATE_AXIS, both, by_spacing, loss_of_sent, microseconds, over_spacing
from .motive import ratio

SPACINGS_US: Mapping[Scale, tuple[int, ...]] = {
    "quick": (0, 50, 100, 200, 500, 1000, 2000, 5000),
    "full": (*range(0, 1000, 50), *range(1000, 5001, 500)),
}
SECONDS: Mapping[Scale, int] = {"quick": 2, "full": 10}
ADAPTIVE_S: Mapping[Scale, tuple[int, int]] = {"quick": (30, 10), "full": (500, 30)}
"""Duration of an adaptive sender's run, and the start of its measurement: its first bursts, without
spacing, lose a third of the packets of 12 s."""

RUNS: Mapping[Scale, int] = {"quick": 1, "full": 5}

PLAIN, PSP, DAMPED = "plain UDP", "PSP", "damped PSP"
NEAR, NEAR_LOSS = 0.1, 0.05
"""Within this part of a published throughput, and these points of a published loss, ours is the
same."""

KEPT_UP = 0.95
"""Share of the packets due at the requested spacing that must be sent for a check to count."""

FIFO = Cause(
    "one sender cannot get more through a first-in first-out link by sending less: it is full up to"
    " 174 μs. Beside others it gets more the more it sends: 70.8 Mbit/s at 0, 67.9 at 50 μs. What"
    " on the live path answered bursts with less throughput (a receiver or a router short of"
    " processor) is not said.",
    "python -m experiments.psp.readings path",
)

CROSS_TRAFFIC = Cause(
    "the live path had other users, this one has none: at 200 μs 55 Mbit/s are sent into 62."
    " Simulated beside others of 20 Mbit/s in bursts, on a link of 72 Mbit/s, 6.9 % is lost there"
    " and 51 Mbit/s arrive, and 35.3 % is lost at 100 μs.",
    "python -m experiments.psp.readings path",
)

SAWTOOTH = Cause(
    "plain UDP keeps the link full all the time. PSP doubles its spacing at each report of a loss,"
    " twice or thrice before the first doubling shows, and shortens it by 2 μs in each round trip"
    " of 84 ms: from 800 μs back to 194, where the link is full, takes 25 s. The simulation of one"
    " sender does alike. 16 of them share the link and each other's idle times (psp/headline)."
)


def cells(scale: Scale) -> list[Cell]:
    """Constant spacings, probed and simulated."""
    spacings, seconds = SPACINGS_US[scale], SECONDS[scale]
    real = [probe_cell(spacings, seconds, seed) for seed in range(RUNS[scale])]
    return [*real, *(simulated(us, 5) for us in spacings)]


def simulated(us: int, seconds: int) -> Cell:
    """The scenario's agent at a constant spacing."""
    return Cell(LIVE, overrides(f'spacing = "{us} us"', seconds, 1), 0, (("spacing_us", us),), 2.0)


def overrides(by: str, seconds: int, from_s: int) -> tuple[str, ...]:
    """The agent with some spacing, the run's duration, and the start of the measurement."""
    return (
        f'duration="{seconds} s"',
        f'measure.from="{from_s} s"',
        f"flows.probe.transport={spaced(by).replace(PACKET, f'{PACKET_BYTES} B')}",
    )


def headline_cells(scale: Scale) -> list[Cell]:
    """Without spacing and with both kinds that adapt, probed and simulated."""
    ways = {
        PLAIN: ('spacing = "0 us"', "0 us", 6, 2),
        PSP: ('controller = "psp"', "psp", *ADAPTIVE_S[scale]),
        DAMPED: ('controller = "psp-damped"', "psp-damped", *ADAPTIVE_S[scale]),
    }
    return with_twins(
        [
            Cell(
                LIVE,
                overrides(by, seconds, from_s),
                seed,
                (("media", media),),
                float(seconds),
                steady(spacing),
            )
            for media, (by, spacing, seconds, from_s) in ways.items()
            for seed in range(RUNS[scale])
        ]
    )


def path(results: Results) -> pl.DataFrame:
    """A row a spacing and run, in the columns of `probing.path_table`."""
    if any(cell.real for cell in results.cells):
        return results.table("path")
    ratio = pl.col("sent_packets") / pl.col("delivered_packets")
    return results.table("flows").select(
        pl.col("spacing_us").cast(pl.Float64),
        (pl.col("goodput_bps") * ratio).alias("sent_bps"),
        pl.col("goodput_bps").alias("received_bps"),
        "loss_rate",
        pl.lit(None, pl.Float64).alias("gap_us"),
    )


def judge(results: Results) -> Finding:
    """Throughput and loss over the spacings of a path."""
    asked = {float(us) for cell in results.cells for us in probed(cell)}
    return judge_path(path(results), sorted({*asked, *results.asked("spacing_us")}))


def judge_path(
    table: pl.DataFrame, spacings: Sequence[float], *, from_start: bool = False
) -> Finding:
    """The paper's figures 1 and 2 of rows such as `path` has them, at the requested spacings.

    `from_start`: spacings are from the start of a packet, over a card whose speed is not known.
    """
    curves = {
        name: over_spacing(table, pl.col(column) / scale)
        for name, column, scale in (
            ("sent", "sent_bps", 1e6),
            ("received", "received_bps", 1e6),
            ("lost", "loss_rate", 1),
        )
    }
    rates, losses = curves["received"], curves["lost"]
    kept = {us: share.value for us, share in over_spacing(table, kept_up(from_start)).items()}
    checks = [
        _if_kept_up(check, {us: kept[us] for us in needed if us in kept})
        for check, needed in (*_published(rates, losses), *_shape(rates, losses, spacings))
    ]
    figures = both(
        "one sender",
        [Series("Sent", "reno", curves["sent"]), Series("Received", "pert", rates, "dash")],
        [Series("", "pert", losses)],
    )
    shares = "; ".join(f"{share:.1%} at {microseconds(us)}" for us, share in kept.items())
    return Finding(figures, checks, [f"Sent of what the spacing asks for: {shares}."])


def kept_up(from_start: bool) -> pl.Expr:
    """Share of the packets due at the spacing that were sent; 1 if the clock did not space them."""
    asked = pl.col("spacing_us") + (0 if from_start else TRANSMISSION_US)
    share = pl.when(asked > 0).then(asked / pl.col("gap_us"))
    return share.otherwise(1.0).fill_null(1.0)


def _published(rates: Curve, losses: Curve) -> list[tuple[Check, tuple[float, ...]]]:
    """The figures' numbers, each with the spacings that it needs."""

    def rate(us: int, mbit_s: float, cause: str = "") -> Check:
        found = at(rates, us)
        return judged(
            f"At {microseconds(us)} so much arrives.",
            f"{mbit_s:g} Mbit/s",
            lambda: f"{number(found.value)} Mbit/s",
            {f"throughput at {microseconds(us)}": found},
            lambda: abs(found.value / mbit_s - 1) <= NEAR,
            cause,
        )

    def loss(us: int, share: float, cause: str = "") -> Check:
        found = at(losses, us)
        return judged(
            f"At {microseconds(us)} so much is lost.",
            f"{share:.0%}",
            lambda: f"{found.value:.1%}",
            {f"loss at {microseconds(us)}": found},
            lambda: abs(found.value - share) <= NEAR_LOSS,
            cause,
        )

    spaced_out, without = at(rates, 50), at(rates, 0)
    more = judged(
        "At 50 μs more arrives than without spacing.",
        "more",
        lambda: f"{number(spaced_out.value)} Mbit/s against {number(without.value)} Mbit/s",
        {"throughput at 50 μs": spaced_out, "without spacing": without},
        lambda: is_above(spaced_out, without),
        FIFO,
    )
    return [
        (rate(0, 62), (0,)),
        (loss(0, 0.9), (0,)),
        (more, (0, 50)),
        (rate(100, 62), (100,)),
        (loss(100, 0.35), (100,)),
        (rate(200, 50), (200,)),
        (loss(200, 0.1, CROSS_TRAFFIC), (200,)),
    ]


def _shape(
    rates: Curve, losses: Curve, spacings: Sequence[float]
) -> list[tuple[Check, tuple[float, ...]]]:
    """Checks of what all of the paper's live paths had in common."""
    after = tuple(us for us in spacings if us >= 200)
    falling = monotone(
        "Throughput falls as the spacing grows further.",
        "falling from 200 μs on",
        rates,
        after,
        rising=False,
        place=microseconds,
    )
    at_once = by_spacing(losses, (0, 50, 100, 200))
    sharply = judged(
        "The loss falls at once.",
        "with every step of spacing",
        lambda: (
            "; ".join(f"{loss.value:.1%}" for loss in at_once.values()) + " at 0, 50, 100, 200 μs"
        ),
        at_once,
        lambda: every(is_above(*step) for step in pairwise(at_once.values())),
    )
    return [(falling, after), (sharply, (0, 50, 100, 200))]


def _if_kept_up(check: Check, kept: Mapping[float, float]) -> Check:
    """The check, undecided if this machine did not send at the requested spacing."""
    if not kept:
        return check
    worst = min(kept, key=lambda us: kept[us])
    if kept[worst] >= KEPT_UP:
        return check
    text = (
        f"{check.measured}; cannot tell: this machine was too busy, {kept[worst]:.0%} of what the"
        f" spacing asks for was sent at {microseconds(worst)}"
    )
    return replace(check, measured=text, ok=None)


def judge_headline(results: Results) -> Finding:
    """Loss and throughput of one that adapts against one that sends as fast as it can."""
    table = results.table("flows").with_columns(loss_of_sent())
    parts = {name: table.filter(media=name) for name in (PLAIN, PSP, DAMPED)}
    loss = {name: mean_interval(part["loss_rate"]) for name, part in parts.items()}
    rate = {name: mean_interval(part["goodput_bps"] / 1e6) for name, part in parts.items()}
    less = 1 - ratio(loss[DAMPED], loss[PLAIN])
    kept = ratio(rate[DAMPED], rate[PLAIN])
    checks = [
        judged(
            "Packet spacing with feedback loses less.",
            "90 % less",
            lambda: (
                f"{less:.1%} less: {loss[DAMPED].value:.2%} against {loss[PLAIN].value:.1%}"
                f" (undamped {loss[PSP].value:.2%})"
            ),
            {"losses of both": less},
            lambda: less >= 0.9,
        ),
        judged(
            "Throughput does not suffer.",
            "the same",
            lambda: (
                f"{number(rate[DAMPED].value)} Mbit/s against {number(rate[PLAIN].value)} Mbit/s"
                f" ({kept:.1%}; undamped {ratio(rate[PSP], rate[PLAIN]):.1%})"
            ),
            {"throughputs of both": kept},
            lambda: kept >= 0.95,
            SAWTOOTH,
        ),
    ]
    places = {float(place): name for place, name in enumerate(parts)}
    axis = Axis("", ticks=places, hover="%{x}")
    figures = [
        Figure(
            f"{what} by kind of sender.",
            axis,
            y,
            [View("", [Series("", "pert", {at: of[name] for at, name in places.items()})])],
        )
        for what, y, of in (("Packet loss", LOSS_AXIS, loss), ("Throughput", RATE_AXIS, rate))
    ]
    return Finding(figures, checks)


def _scaling(scale: Scale) -> str:
    return f"{len(SPACINGS_US[scale])} spacings, {SECONDS[scale]} s each, {RUNS[scale]} run(s)."


def _headline_scaling(scale: Scale) -> str:
    seconds, from_s = ADAPTIVE_S[scale]
    return f"{seconds} s of one that adapts, measured from {from_s} s on; {RUNS[scale]} run(s)."


FIG1_2 = Claim(
    id="psp/fig1-2-emulated",
    title="One sender over a path like the live one",
    world=World.EMULATION,
    published="Without spacing 62 Mbit/s arrive and almost 90 % is lost; at 100 μs as much arrives"
    " and 35 % is lost, at 200 μs 50 Mbit/s and 10 %. At 50 μs more arrives than without spacing."
    " Throughput rises and then falls as the spacing grows; loss falls at once.",
    expectation="Throughputs within a tenth, losses within 5 points.",
    cells=cells,
    judge=beside_twins(judge),
    scaling=_scaling,
    row="fig1-2",
)

HEADLINE = Claim(
    id="psp/headline-emulated",
    title="PSP against plain UDP, by the endpoint",
    world=World.EMULATION,
    published="Spacing with feedback reduces packet loss by 90 % without adversely affecting the"
    " delivered throughput.",
    expectation="One sender: at least 90 % less loss, at least 95 % of the throughput.",
    cells=headline_cells,
    judge=beside_twins(judge_headline),
    scaling=_headline_scaling,
    row="headline",
)
