"""Smoothed round trips of two transfers side by side, one of which coalesces its ACKs."""

import math
from collections.abc import Sequence
from statistics import fmean

import polars as pl

from ontempo.lab.claims import Check
from ontempo.lab.judging import Curve, Outcome, at, enough, every, number
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import mean_interval, mean_of_runs
from ontempo.lab.study import Results

from .trains import STEADY_S

WITHIN = 0.02
"""Maximum difference of two mean round trips that count as the same."""

SETTING = ("sweep", "at", "cure", "seed")
"""The labels of a run."""

SHOWN = {"none": "coalescing", "pacing": "coalescing, paced", "correction": "coalescing, corrected"}
COLOURS = {"none": "step-0", "pacing": "step-4", "correction": "step-3"}


def smoothed(results: Results) -> pl.DataFrame:
    """PERT's own smoothed round trip of both transfers against time, in milliseconds."""
    return (
        results.table("samples")
        .filter(pl.col("time_s") >= STEADY_S, quantity="controller_srtt_s")
        .select(
            *SETTING,
            "time_s",
            pl.col("subject").str.strip_suffix(".0").alias("receiver"),
            (pl.col("value") * 1e3).alias("srtt_ms"),
        )
    )


def means(results: Results) -> pl.DataFrame:
    """Both mean round trips of each run, and by which part the coalescing one is off."""
    srtt = pl.col("srtt_ms")
    return (
        results.derive(smoothed)
        .group_by(SETTING, maintain_order=True)
        .agg(srtt.filter(receiver=name).mean().alias(name) for name in ("immediate", "coalescing"))
        .with_columns((pl.col("coalescing") / pl.col("immediate") - 1).alias("off"))
    )


def off_by(table: pl.DataFrame, sweep: str, cure: str) -> Curve:
    """By which part the mean round trip is off, against what the sweep varies."""
    own = table.filter(sweep=sweep, cure=cure).sort("at")
    return {
        float(at): mean_of_runs(part, "off")
        for (at,), part in own.group_by(["at"], maintain_order=True)
    }


def same_mean(
    sentence: str, published: str, curve: Curve, settings: Sequence[float], sweep: str, cause: str
) -> Check:
    """The two means are the same in most settings; those where they are not are listed."""
    ok = enough(_near(curve, settings).values(), len(settings) // 2 + 1)
    return _of_settings(sentence, published, curve, settings, sweep, ok, cause)


def every_mean(
    sentence: str, curve: Curve, settings: Sequence[float], sweep: str, cause: str
) -> Check:
    """The two means are the same in every setting."""
    ok = every(_near(curve, settings).values())
    return _of_settings(sentence, "the same mean (within 2 %)", curve, settings, sweep, ok, cause)


def _near(curve: Curve, settings: Sequence[float]) -> dict[float, Outcome]:
    found = {x: at(curve, x) for x in settings}
    return {x: abs(one.value) <= WITHIN if one.known else None for x, one in found.items()}


def _of_settings(
    sentence: str,
    published: str,
    curve: Curve,
    settings: Sequence[float],
    sweep: str,
    ok: Outcome,
    cause: str,
) -> Check:
    outcomes = _near(curve, settings)
    near, others, missing = (
        [x for x in settings if outcomes[x] is outcome] for outcome in (True, False, None)
    )
    text = f"within 2 % in {len(near)} of {len(settings)} settings"
    if others:
        listed = ", ".join(f"{curve[x].value:+.1%} at {number(x)}" for x in others)
        text += f"; {sweep}: {listed}"
    if missing:
        text += f"; nothing at {', '.join(map(number, missing))}"
    worst = max((curve[x].value for x in (*near, *others)), key=abs, default=math.nan)
    return Check(sentence, published, text, ok, cause, (float(len(near)), worst))


def error_figure(table: pl.DataFrame, sweep: str, cures: Sequence[str]) -> Figure:
    """The error of the mean round trip against what the sweep varies."""
    curves = {cure: off_by(table, sweep, cure) for cure in cures}
    spoken = "; ".join(
        f"{SHOWN[cure]} {fmean(value.value for value in curve.values()):+.1%} on average"
        for cure, curve in curves.items()
        if curve
    )
    return Figure(
        f"Mean smoothed round trip against that without coalescing: {spoken}.",
        Axis(sweep.capitalize()),
        Axis("Mean round trip over that of no coalescing", format="+.0%"),
        [
            View(
                "",
                [Series(SHOWN[cure], COLOURS[cure], curve) for cure, curve in curves.items()],
            )
        ],
        reference=[(0.0, ""), (WITHIN, "+2 %"), (-WITHIN, "-2 %")],
    )


def time_figure(results: Results, cures: Sequence[str]) -> Figure:
    """Both smoothed round trips against time, of the two transfers alone, first seed."""
    table = results.derive(smoothed).filter(pl.col("seed") == 0, sweep="alone")
    second = pl.col("time_s").floor()
    views = []
    for cure in cures:
        own = (
            table.filter(cure=cure)
            .group_by("receiver", second.alias("second"))
            .agg(pl.col("srtt_ms").mean())
        )
        series = [
            Series(
                "no coalescing" if name == "immediate" else SHOWN[cure],
                "ink" if name == "immediate" else COLOURS[cure],
                {
                    float(time): mean_interval([value])
                    for time, value in own.filter(receiver=name)
                    .sort("second")
                    .select("second", "srtt_ms")
                    .iter_rows()
                },
                "dash" if name == "immediate" else "solid",
                markers=False,
            )
            for name in ("immediate", "coalescing")
        ]
        views.append(View(SHOWN[cure], series))
    return Figure(
        "Smoothed round trips with and without coalesced ACKs against time.",
        Axis("Time (s)"),
        Axis("Smoothed round trip (ms)"),
        views,
        "Sender" if len(views) > 1 else "",
    )
