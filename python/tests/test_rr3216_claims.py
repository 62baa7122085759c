"""The claims on out-of-sequence processing, judged on tables that satisfy them and on others."""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from types import FunctionType

import polars as pl
import pytest
from conftest import EXPERIMENTS
from made import Made, Tables

from ontempo.lab.claims import Cause, Claim, Finding, Verdict, World
from ontempo.lab.engine import NativeEngine
from ontempo.lab.experiments import load_papers
from ontempo.lab.readings import judgement
from ontempo.lab.study import Cell

CLAIMS: dict[str, Claim] = {
    claim.id.partition("/")[2]: claim
    for paper in load_papers(EXPERIMENTS)
    if paper.name == "rr3216"
    for claim in paper.claims
    if claim.world is not World.EMULATION
}

PAPER = next(paper for paper in load_papers(EXPERIMENTS) if paper.name == "rr3216")
READINGS = PAPER.readings
EMULATED = [claim for claim in PAPER.claims if claim.world is World.EMULATION]

COUNT = 40
WAY_S = 0.05
"""What a made-up ADU is under way."""

Gain = Callable[[dict[str, float]], float]


def adus(
    total_s: float, makespan_s: float, processing_ms: float, swing_s: float = 0.0, held: int = 0
) -> Tables:
    """ADUs that each take `total_s`, the last of them until `makespan_s`.

    Every other one is late by `swing_s`, which is what makes jitter; the first `held` wait for
    the application together.
    """
    step = (makespan_s - total_s) / (COUNT - 1)
    rows = []
    for unit in range(COUNT):
        emitted = step * unit + swing_s * (unit % 2)
        delivered = emitted + total_s - processing_ms / 1e3
        arrived = 0.0 if unit < held else min(emitted + WAY_S, delivered)
        rows.append((unit, emitted, arrived, delivered, delivered + processing_ms / 1e3, 0))
    columns = ("unit", "emitted_s", "arrived_s", "delivered_s", "processed_s", "retransmissions")
    return {"adus": pl.DataFrame(rows, schema=list(columns), orient="row")}


def gaining(gain: Gain, whole: Gain | None = None) -> Callable[[Cell], Tables]:
    """In order an ADU takes 1 s and the run 50 s; out of sequence less by the gains of each."""

    def make(cell: Cell) -> Tables:
        labels = dict(cell.labels)
        out = labels["order"] == "out-of-order"
        setting = {name: float(value) for name, value in labels.items() if _is_number(value)}
        less = gain(setting) if out else 0.0
        less_whole = (whole or gain)(setting) if out else 0.0
        return adus(1 - less, 50 * (1 - less_whole), setting["processing_ms"])

    return make


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def made_of(cells: Iterable[Cell], make: Callable[[Cell], Tables]) -> Made:
    return Made(tuple(cells), make)


def judge(name: str, make: Callable[[Cell], Tables]) -> Finding:
    claim = CLAIMS[name]
    return claim.judge(made_of(claim.cells("quick"), make))


def failing(finding: Finding) -> list[str]:
    return [check.sentence for check in finding.checks if check.ok is False]


def holds(name: str, make: Callable[[Cell], Tables]) -> None:
    finding = judge(name, make)
    assert finding.holds is True, failing(finding)


def fails(name: str, make: Callable[[Cell], Tables], *sentences: str) -> None:
    found = failing(judge(name, make))
    assert len(found) == len(sentences), found
    for sentence in sentences:
        assert any(sentence in one for one in found), found


def falling(most: float, upto: float, until: float) -> Callable[[float], float]:
    """Constant up to a place, then falling to nothing."""
    return lambda at: most * min(1.0, max(0.0, (until - at) / (until - upto)))


def test_every_simulated_and_analysed_row_is_there() -> None:
    assert list(CLAIMS) == [
        "fig3-4", "fig6-left", "fig6-right", "fig7-left", "fig7-right", "fig8", "fig9-left",
        "fig9-right", "fig10-left", "fig10-right", "fig11", "fig12", "fig13", "fig14", "buffers",
        "jitter", "gilbert", "delay-law", "confidence", "ranges", "partial-order",
        "one-tcp-stream",
    ]  # fmt: skip


def test_a_quick_study_takes_less_than_half_a_minute_on_two_cores() -> None:
    cells = {cell for claim in CLAIMS.values() for cell in claim.cells("quick")}
    assert sum(cell.cost for cell in cells) / 2 <= 30


def test_fig3_4_asks_for_nothing_to_gain_at_both_ends() -> None:
    holds("fig3-4", gaining(lambda _: 0.049))
    fails("fig3-4", gaining(lambda _: 0.051, lambda _: 0.0), "0.1 ms", "200 ms")


def test_fig6_left_asks_for_a_fall_and_nothing_from_40_ms_on() -> None:
    fall = falling(0.5, 0, 40)
    holds("fig6-left", gaining(lambda at: fall(at["processing_ms"])))
    fails("fig6-left", gaining(lambda at: 0.06 + fall(at["processing_ms"])), "useless")
    fails("fig6-left", gaining(lambda at: fall(at["processing_ms"]) - 0.01), "never worse")
    bump = {5.0: 0.9}
    fails(
        "fig6-left",
        gaining(lambda at: bump.get(at["processing_ms"], fall(at["processing_ms"]))),
        "falls, or stays",
    )


def test_fig6_right_asks_for_about_a_third_at_most_r_and_more_than_without() -> None:
    def both(rate: Callable[[float], float]) -> Callable[[Cell], Tables]:
        without = falling(0.19, 0, 40)
        return gaining(lambda at: (rate if at["interval_ms"] else without)(at["processing_ms"]))

    holds("fig6-right", both(falling(0.3, 10, 40)))
    fails("fig6-right", both(falling(0.41, 10, 40)), "around 30 %")
    fails("fig6-right", both(falling(0.18, 10, 40)), "around 30 %", "larger than without")
    late = falling(0.3, 15, 40)
    fails("fig6-right", both(lambda at: late(at) - 0.05 * (at < 15)), "at most R")


def test_fig7_left_holds_exactly_and_rounding_would_not_do() -> None:
    assert CLAIMS["fig7-left"].judge(Made((), lambda _: {})).holds is True
    judge_left = CLAIMS["fig7-left"].judge
    assert isinstance(judge_left, FunctionType)
    gain = judge_left.__globals__["blocking_gain"]
    on_the_line = Fraction(10) - Fraction(200, 30)
    assert gain(on_the_line, 30, 200, 10) == 0
    assert gain(on_the_line + Fraction(1, 10**30), 30, 200, 10) == 1
    assert gain(Fraction(30), 10, 200, 10) == Fraction(1, 2)


def test_fig7_right_asks_for_the_models_shape() -> None:
    fall = falling(0.3, 10, 100)
    holds("fig7-right", gaining(lambda at: fall(at["processing_ms"])))
    fails(
        "fig7-right",
        gaining(lambda at: fall(at["processing_ms"]) * (0.8 if at["processing_ms"] < 5 else 1)),
        "maximal",
    )


def test_fig8_asks_for_higher_and_narrower_gains_with_larger_windows() -> None:
    def by(most: Callable[[float], float], width: Callable[[float], float]) -> Gain:
        return lambda at: falling(most(at["window"]), width(at["window"]), 200)(at["processing_ms"])

    holds("fig8", gaining(by(lambda w: w / 200, lambda w: 320 / w)))
    fails(
        "fig8", gaining(by(lambda w: 0.5 - w / 200, lambda w: 320 / w)), "grows", "a window of 32"
    )
    fails("fig8", gaining(by(lambda w: w / 200, lambda w: w)), "shrinks")


def test_fig9_left_asks_for_no_rise_and_a_stall() -> None:
    def make(rise: float, stall: float) -> Callable[[Cell], Tables]:
        def tables(cell: Cell) -> Tables:
            labels = dict(cell.labels)
            every, time = float(labels["every"]), float(labels["processing_ms"])
            less = (0.4 + rise * every) * (labels["order"] == "out-of-order")
            return adus(1 - less, 50 * (stall if every == 32 else 1.0), time)

        return tables

    holds("fig9-left", make(-0.01, 2.1))
    fails("fig9-left", make(0.01, 2.1), "does not grow")
    fails("fig9-left", make(-0.01, 1.9), "stall")


def test_fig9_right_has_two_sentences_of_which_one_must_fail() -> None:
    # Idle for half of the time: a step of 20 ms, of which 10 are processing.
    def make(slower: float) -> Callable[[Cell], Tables]:
        def tables(cell: Cell) -> Tables:
            labels = dict(cell.labels)
            time = float(labels["processing_ms"])
            gain = 0.5 + slower * float(labels["interval_ms"]) / 100
            less = gain * (labels["order"] == "out-of-order")
            return adus(1 - less, 1 - less + 0.02 * (COUNT - 1), time)

        return tables

    fails("fig9-right", make(-1), "raises the largest")
    fails("fig9-right", make(1), "reduces the largest", "spacing ADUs by 20 ms")


def test_fig10_left_asks_for_a_range_that_grows_and_a_maximum_that_does_not() -> None:
    def by(most: float) -> Gain:
        return lambda at: falling(most, at["delay_ms"] / 10, at["delay_ms"] / 5)(
            at["processing_ms"]
        )

    holds("fig10-left", gaining(by(0.3)))
    wide = gaining(lambda at: falling(0.3, at["delay_ms"], 600)(at["processing_ms"]))
    fails("fig10-left", wide, "equivalent")


def test_fig10_right_asks_for_one_curve() -> None:
    def rule(at: dict[str, float]) -> float:
        value = at["delay_ms"] / at["processing_ms"]
        return 0.3 if value > 10 else 0.1 if value >= 5 else 0.0

    holds("fig10-right", gaining(rule))
    apart = gaining(lambda at: rule(at) + 0.06 * (at["delay_ms"] == 10))
    fails("fig10-right", apart, "fall together", "useless")


def test_fig11_differs_whatever_is_measured() -> None:
    finding = CLAIMS["fig11"].judge(Made((), lambda _: {}))
    assert len(failing(finding)) == 2


def test_fig12_asks_for_a_rise_and_contradicts_itself() -> None:
    def by(most: float) -> Gain:
        return lambda at: most * at["loss"] / 0.6 * (1 - at["processing_ms"] / 1000)

    fails("fig12", gaining(by(0.9)), "Conclusions")
    fails("fig12", gaining(by(0.5)), "Text")
    late = gaining(lambda at: 0.9 * at["loss"] / 0.6 * (0.5 + at["processing_ms"] / 100))
    assert any("less than R" in sentence for sentence in failing(judge("fig12", late)))
    flat = gaining(lambda at: 0.9 * (1 - at["processing_ms"] / 1000))
    assert sum("grows with the loss rate" in one for one in failing(judge("fig12", flat))) == 5


def among_runs(ordered_s: float, out_s: float, held: int = 28, few: int = 10) -> Finding:
    """Figure 13 from single runs that lie up to a fifth around these values."""

    def tables(cell: Cell) -> Tables:
        factor = 0.8 + 0.4 * ((cell.seed * 7) % 200) / 199
        if dict(cell.labels)["order"] == "in-order":
            return adus(0.06, ordered_s * factor, 10.0, held=round(held * factor))
        return adus(0.06, out_s * (2 - factor), 10.0, held=round(few * factor))

    return judge("fig13", tables)


def test_fig13_asks_whether_the_published_run_is_one_of_single_runs() -> None:
    finding = among_runs(2.4, 1.5)
    assert finding.holds is True, failing(finding)
    assert "nine of ten single runs 1.97 to 2.83 s, mean 2.4 s" in finding.checks[2].measured
    for off, sentence in (
        (among_runs(2.4, 1.5, held=20), "up to 28"),
        (among_runs(2.4, 1.5, held=36), "up to 28"),
        (among_runs(2.4, 1.5, few=6), "up to 10"),
        (among_runs(2.4, 1.5, few=14), "up to 10"),
        (among_runs(1.9, 1.2), "close to 2.5 s"),
        (among_runs(2.4, 1.9), "less than 1.5 s"),
        (among_runs(2.4, 0.7), "40 %"),
    ):
        assert any(sentence in one for one in failing(off)), sentence


@pytest.mark.parametrize(
    ("name", "enough", "short"), [("fig14", 0.31, 0.29), ("jitter", 0.94, 0.19)]
)
def test_jitter_is_the_variance_of_the_applications_waits(
    name: str, enough: float, short: float
) -> None:
    def make(saved: float) -> Callable[[Cell], Tables]:
        def tables(cell: Cell) -> Tables:
            out = dict(cell.labels)["order"] == "out-of-order"
            swing = 0.1 * math.sqrt(1 - saved if out else 1.0)
            return adus(1.0, 50.0, float(dict(cell.labels)["processing_ms"]), swing)

        return tables

    holds(name, make(enough))
    fails(name, make(short), "itter")


def test_buffers_asks_for_about_70_percent_less() -> None:
    def waiting(saved: float) -> Callable[[Cell], Tables]:
        def tables(cell: Cell) -> Tables:
            labels = dict(cell.labels)
            time = float(labels["processing_ms"])
            out = labels["order"] == "out-of-order"
            return adus(WAY_S + time / 1e3 + (1 - saved if out else 1.0), 50.0, time)

        return tables

    holds("buffers", waiting(0.7))
    holds("buffers", waiting(0.61))
    fails("buffers", waiting(0.58), "buffer occupancy")


def test_gilbert_and_delay_law_ask_for_one_gain() -> None:
    holds("gilbert", gaining(lambda at: 0.3 + at["loss"]))
    fails("gilbert", gaining(lambda at: 0.5 - at["burst"] / 100), "10%", "30%")

    def lawless(off: float) -> Callable[[Cell], Tables]:
        return lambda cell: gaining(
            lambda _: 0.3 + off * (dict(cell.labels)["law"] == "exponential")
        )(cell)

    holds("delay-law", lawless(0.049))
    fails("delay-law", lawless(0.051), "exponential")


def test_confidence_is_judged_by_half_of_the_interval() -> None:
    def make(spread: float) -> Callable[[Cell], Tables]:
        # Five runs a tenth of their spread apart: half the t-interval is 2.776 * 0.158 / sqrt(5).
        return lambda cell: adus(1 + spread * (cell.seed - 2) / 10, 50.0, 1.0)

    holds("confidence", make(0.25))
    fails("confidence", make(0.26), "in order", "out of sequence")


def test_ranges_asks_for_limits_within_a_factor_of_two() -> None:
    limits = {10.0: 1.0, 50.0: 10.0, 250.0: 50.0}

    def by(factor: float) -> Gain:
        return lambda at: falling(0.3, 0, 1.2 * factor * limits[at["delay_ms"]])(
            at["processing_ms"]
        )

    holds("ranges", gaining(by(1.0)))
    fails("ranges", gaining(by(0.3)), "50 ms", "250 ms")


def test_beyond_the_paper_one_curve_lies_above_the_other() -> None:
    def partial(cell: Cell) -> Tables:
        place = ["out-of-order", "partial-order", "in-order"].index(str(dict(cell.labels)["order"]))
        return adus(1.0 + place, 50.0, 10.0)

    holds("partial-order", partial)
    fails("partial-order", lambda _: adus(1.0, 50.0, 10.0), "in order", "in partial order")

    def stream(cell: Cell) -> Tables:
        return adus(1.0, 50.0 if dict(cell.labels)["transport"] == "adu" else 60.0, 10.0)

    holds("one-tcp-stream", stream)
    fails("one-tcp-stream", lambda _: adus(1.0, 50.0, 10.0), "NewReno", "CUBIC")


def test_every_cause_names_its_experiment() -> None:
    bad = gaining(lambda at: -1.0 if at["processing_ms"] == 5 else 0.8)
    named = [
        check
        for name in ("fig6-right", "fig9-left", "fig10-right", "fig12", "fig13")
        for check in judge(name, bad).checks
        if check.ok is False and check.cause
    ]
    assert named
    for check in named:
        assert isinstance(check.cause, Cause)
        assert check.experiment.startswith("python -m experiments.rr3216.readings ")


# Checks that none of the above sees fail.


def every_failing(name: str, make: Callable[[Cell], Tables]) -> set[str]:
    return set(failing(judge(name, make)))


def test_fig3_4_looks_at_the_gain_of_the_reading_alone() -> None:
    only_the_run = gaining(lambda _: 0.0, lambda _: 0.06)
    holds("fig3-4", only_the_run)
    (run,) = (reading for reading in READINGS if reading.name == "run")
    claim = run.of(CLAIMS["fig3-4"])
    assert len(failing(claim.judge(made_of(claim.cells("quick"), only_the_run)))) == 2


def names_of(name: str) -> dict[str, object]:
    """What a claim's judge sees of its module."""
    judging = CLAIMS[name].judge
    assert isinstance(judging, FunctionType)
    return judging.__globals__


def test_fig7_left_fails_for_another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(names_of("fig7-left"), "blocking_gain", lambda *_: Fraction(1, 2))
    outcomes = [check.ok for check in CLAIMS["fig7-left"].judge(Made((), lambda _: {})).checks]
    assert outcomes == [False, False]


def test_fig11_fails_for_a_model_that_knows_the_processing_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def other(time: float, _burst: float, rtt: float, share: float) -> float:
        return rtt / time - time / 100 - share

    claim = under("run", "fig11")
    assert [check.ok for check in claim.judge(Made((), lambda _: {})).checks] == [True, False]
    monkeypatch.setitem(names_of("fig11"), "blocking_gain", other)
    outcomes = [check.ok for check in claim.judge(Made((), lambda _: {})).checks]
    assert outcomes == [False, False]


def test_fig7_right_fails_where_nothing_is_gained() -> None:
    assert len(every_failing("fig7-right", gaining(lambda _: -0.1))) == 3


def test_fig9_right_fails_where_the_receiver_is_never_idle() -> None:
    assert any("idle" in one for one in every_failing("fig9-right", gaining(lambda _: 0.3)))


def test_fig10_left_fails_where_the_delay_decides_the_gain_and_not_the_range() -> None:
    def shrinking(at: dict[str, float]) -> float:
        delay = at["delay_ms"]
        return falling(delay / 1000, 1000 / delay, 15000 / delay)(at["processing_ms"])

    fails("fig10-left", gaining(shrinking), "range", "much less", "stable")
    fails("fig10-left", gaining(lambda _: 0.3), "much less", "equivalent")


def test_fig10_right_fails_where_the_gain_is_largest_at_one_ratio() -> None:
    def peaked(at: dict[str, float]) -> float:
        return 0.5 if round(at["delay_ms"] / at["processing_ms"]) == 8 else 0.3

    assert len(every_failing("fig10-right", gaining(peaked))) == 6


def test_delay_law_and_ranges_fail_for_each_law_and_delay() -> None:
    other = ("constant", "exponential", "hyper-exponential")

    def by_law(cell: Cell) -> Tables:
        labels = dict(cell.labels)
        less = 0.4 * (labels["order"] != "in-order") * (labels["law"] in other)
        return adus(1 - less, 50 * (1 - less), float(labels["processing_ms"]))

    assert len(every_failing("delay-law", by_law)) == 3
    assert len(every_failing("ranges", gaining(lambda _: 0.4))) == 3
    assert "not up to 100 ms" in judge("ranges", gaining(lambda _: 0.4)).checks[0].measured


@pytest.mark.parametrize(
    "name", ["fig6-left", "fig6-right", "fig7-right", "fig8", "fig10-left", "confidence", "buffers"]
)
def test_a_processing_time_without_results_is_missed(name: str) -> None:
    """The places are those of the cells: what one of them lacks cannot go unseen."""
    whole = gaining(lambda at: falling(0.3, 10, 40)(at["processing_ms"]))

    def without_one(cell: Cell) -> Tables:
        tables = whole(cell)
        one = dict(cell.labels)["processing_ms"] == 10.0
        return {table: rows.clear() for table, rows in tables.items()} if one else tables

    missing = [check.measured for check in judge(name, without_one).checks if check.ok is None]
    assert missing
    assert all("Nothing at" in text or "No data" in text for text in missing)


# Readings.


def under(reading: str, name: str) -> Claim:
    (found,) = (one for one in READINGS if one.name == reading)
    return found.of(CLAIMS[name])


def settings(claim: Claim) -> set[str]:
    return {override for cell in claim.cells("quick") for override in cell.overrides}


INTERVAL = "flows.adus.transport.interval="


@pytest.mark.parametrize("name", CLAIMS)
def test_the_primary_reading_changes_nothing_and_the_others_what_they_name(name: str) -> None:
    claim = CLAIMS[name]
    assert under("ADU", name) is claim
    fixed = name in ("fig8", "fig9-left", "fig10-left", "fig10-right", "fig12", "ranges")
    intervals = {one for one in settings(claim) if one.startswith(INTERVAL)}
    of_run = {one for one in settings(under("run", name)) if one.startswith(INTERVAL)}
    assert of_run == ({f'{INTERVAL}"0 ms"'} if fixed else intervals)
    told = [
        one for one in settings(under("run and implicit loss", name)) if "loss-known-after" in one
    ]
    assert bool(told) is bool(intervals)
    asked = settings(under("arrivals", name))
    assert any("tells-space=false" in one for one in asked) is bool(intervals)


def test_a_loss_is_known_one_mean_delay_after_its_way_and_the_timer_scales_with_it() -> None:
    for cell in under("implicit loss", "ranges").cells("quick"):
        delay = dict(cell.labels)["delay_ms"]
        carrier = "flows.adus.transport"
        assert f'{carrier}.loss-known-after="{delay:g} ms"' in cell.overrides
        assert f'{carrier}.min-rto="{2 * float(delay):g} ms"' in cell.overrides
        assert f'{carrier}.initial-rto="{10 * float(delay):g} ms"' in cell.overrides


def test_readings_judge_by_their_total_time() -> None:
    fall, more = falling(0.3, 10, 40), falling(0.6, 10, 40)

    def make(cell: Cell) -> Tables:
        return gaining(lambda at: more(at["processing_ms"]), lambda at: fall(at["processing_ms"]))(
            cell
        )

    def largest(reading: str) -> float:
        claim = under(reading, "fig6-right")
        return claim.judge(made_of(claim.cells("quick"), make)).checks[0].values[0]

    assert largest("ADU") == pytest.approx(0.6)
    assert largest("run") == pytest.approx(0.3)

    def late(cell: Cell) -> Tables:
        """Sent again half of its time later."""
        (table,) = make(cell).values()
        half = (pl.col("processed_s") + pl.col("emitted_s")) / 2
        in_order = dict(cell.labels)["order"] == "in-order"
        return {"adus": table.with_columns(last_emitted_s=half if in_order else "emitted_s")}

    claim = under("last sending", "fig6-right")
    found = claim.judge(made_of(claim.cells("quick"), late)).checks[0].values[0]
    assert found == pytest.approx(0.2)


@pytest.mark.parametrize("reading", [reading.name for reading in READINGS])
def test_every_setting_of_a_reading_is_a_scenario(reading: str) -> None:
    engine = NativeEngine()
    for name in CLAIMS:
        for cell in list(under(reading, name).cells("quick"))[:: 40 if name != "fig13" else 399]:
            engine.load(cell.scenario, cell.overrides)


def test_real_packets_are_judged_under_each_reading_from_the_same_runs() -> None:
    for claim in EMULATED:
        for reading in READINGS:
            read = reading.of(claim)
            assert read.cells is claim.cells
            assert (read.judge is claim.judge) is not reading.name.startswith("run")


def test_claims_in_which_the_paper_contradicts_itself_are_inconsistent() -> None:
    fall = falling(0.3, 10, 40)
    for name in ("fig9-right", "fig12"):
        finding = judge(name, gaining(lambda at: fall(at["processing_ms"])))
        assert judgement(CLAIMS[name], {"": finding}).verdict is Verdict.INCONSISTENT
