"""The claims of chapters II, IV and V, judged on tables that satisfy them and on others."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import made
import polars as pl
import pytest
from conftest import EXPERIMENTS
from made import Made, Tables
from test_pert_claims import CLAIMS, failing

from ontempo.lab.claims import Finding, World
from ontempo.lab.engine import NativeEngine
from ontempo.lab.experiments import load_papers
from ontempo.lab.study import Cell

Make = Callable[[Cell], Tables]


def judge(name: str, make: Make) -> Finding:
    claim = CLAIMS[name]
    return claim.judge(Made(tuple(claim.cells("quick")), make))


def label(cell: Cell, name: str) -> object:
    return dict(cell.labels)[name]


def holds(name: str, make: Make) -> None:
    finding = judge(name, make)
    assert finding.holds is True, failing(finding)


def fails(name: str, make: Make, *sentences: str) -> None:
    found = failing(judge(name, make))
    assert len(found) == len(sentences), found
    for sentence in sentences:
        assert any(sentence in one for one in found), found


# Chapter II, and figure 14.


def test_scale_asks_for_more_than_nine_tenths_of_the_link() -> None:
    holds("scale", lambda _cell: made.high_speed(9.1e9))
    fails("scale", lambda _cell: made.high_speed(9.0e9), "10 Gbit/s")


def test_homogeneous_asks_for_few_losses_and_a_short_queue() -> None:
    def ours(loss: float, queue: float) -> Make:
        return lambda cell: (
            made.homogeneous(loss, queue)
            if label(cell, "controller") == "pert"
            else made.homogeneous(0.01, 100.0)
        )

    holds("homogeneous", ours(0.00009, 24.9))
    fails("homogeneous", ours(0.0001, 24.9), "next to nothing")
    fails("homogeneous", ours(0.0, 25.0), "short")


def test_fig14_asks_for_the_steadiest_window() -> None:
    spread = {"pert": 0.1, "cubic": 0.2, "reno": 0.4}
    holds("fig14", lambda cell: made.windows(spread[str(label(cell, "controller"))]))
    spread["cubic"] = 0.05
    fails("fig14", lambda cell: made.windows(spread[str(label(cell, "controller"))]), "CUBIC")


# Chapter IV: acknowledgement and round trips.


def test_fig16_asks_that_every_ack_covers_four() -> None:
    holds("fig16", lambda _cell: made.lone(4))
    fails("fig16", lambda _cell: made.lone(2), "four packets")


def receivers(cell: Cell) -> Tables:
    return made.lone(made.PER_ACK[str(label(cell, "ack"))])


def test_fig17_allows_equal_throughput_but_no_loss_of_it() -> None:
    holds("fig17", receivers)

    def slower(cell: Cell) -> Tables:
        adaptive = label(cell, "ack") == "adaptive"
        return made.lone(4, bps=2.9e6) if adaptive else receivers(cell)

    fails("fig17", slower, "carries as much data as by two")


def test_fig17_fails_where_acks_are_not_coalesced() -> None:
    fails("fig17", lambda _cell: made.lone(1), "fewest ACKs", "by two", "adaptive")


def trains(cell: Cell, gap_ms: float = 5.0, uneven: float = 0.0) -> Tables:
    if cell.scenario.stem == "lone":
        return made.lone(4, train=4, uneven=uneven)
    return made.side_by_side(gap_ms=gap_ms)


def test_fig18_holds_for_five_milliseconds_and_equal_steps() -> None:
    holds("fig18", trains)


def test_fig18_fails_for_another_gap_or_uneven_steps() -> None:
    fails("fig18", lambda cell: trains(cell, gap_ms=6.5), "about one train")
    fails("fig18", lambda cell: trains(cell, gap_ms=-1), "about one train", "always the higher")
    fails("fig18", lambda cell: trains(cell, uneven=0.3), "equal steps")


def test_fig20_asks_for_a_fifth_of_the_variation() -> None:
    def spacing(jitter: float) -> Make:
        def make(cell: Cell) -> Tables:
            bursty = label(cell, "ack") == "adaptive" and label(cell, "pacing") == "off"
            return made.lone(4, train=4) if bursty else made.lone(4, jitter=jitter)

        return make

    holds("fig20", spacing(0.2))
    fails("fig20", spacing(0.9), "Pacing spreads")


def error(cure: str, size: float, at: Callable[[Cell], bool]) -> Make:
    return lambda cell: made.side_by_side(size if label(cell, "cure") == cure and at(cell) else 0.0)


def test_fig21_allows_other_means_in_the_lesser_part_of_each_sweep() -> None:
    holds("fig21-24", error("none", 0.3, lambda _cell: True))
    few = error("pacing", 0.3, lambda cell: label(cell, "at") in (1.0, 2.0, 45.0, 750.0))
    holds("fig21-24", few)
    many = error("pacing", -0.03, lambda cell: label(cell, "sweep") == "delay (ms)")
    fails("fig21-24", many, "5 to 50 ms")
    listed = [check.measured for check in judge("fig21-24", few).checks]
    assert any("+30.0% at 45" in text for text in listed), listed


def test_fig31_and_fig32_ask_for_the_same_mean_everywhere() -> None:
    for figure in ("fig31", "fig32-34"):
        holds(figure, error("none", 0.3, lambda _cell: True))
        holds(figure, error("correction", 0.0199, lambda _cell: True))
    fails("fig31", error("correction", -0.021, lambda _cell: True), "no coalescing")
    fails(
        "fig32-34",
        error("correction", 0.021, lambda c: label(c, "at") == 9.0),
        "10 cross",
        "10 Mbit",
    )


# Chapter IV: fairness.


def better(at: float = 0.0) -> Tables:
    """Fairness that falls with `at`, and is better for paced flows."""
    return made.flavours(
        {"paced": 1.1e6 / (1 + at), "unpaced": 1e6 / (1 + at)},
        {"paced": 0.001 + at / 1e4, "unpaced": 0.002 + at / 1e4},
        {"paced": 10 + round(at), "unpaced": 20 + round(at)},
        {"paced": 0.1 + at / 500, "unpaced": 0.2 + at / 500},
    )


def swapped(tables: Tables) -> Tables:
    other = {"paced": "unpaced", "unpaced": "paced"}
    return {
        name: table.with_columns(pl.col("group").replace(other)) for name, table in tables.items()
    }


def at(cell: Cell) -> float:
    return float(str(label(cell, "at")))


def test_fig26_holds_where_fairness_falls_and_pacing_helps_throughout() -> None:
    holds("fig26", lambda cell: better(at(cell)))


def test_fig26_fails_where_fairness_does_not_fall_or_pacing_fails_once() -> None:
    assert len(failing(judge("fig26", lambda cell: better(100 - at(cell))))) == 8
    found = failing(
        judge("fig26", lambda cell: swapped(better(40)) if at(cell) == 40 else better(at(cell)))
    )
    assert len([one for one in found if "paced flows have" in one]) == 4


@pytest.mark.parametrize(("figure", "sweeps"), [("fig27", 1), ("fig28", 3)])
def test_pacing_has_to_help_in_almost_all_settings(figure: str, sweeps: int) -> None:
    holds(figure, lambda _cell: better())
    assert len(failing(judge(figure, lambda _cell: swapped(better())))) == 4 * sweeps


def test_fig25_asks_for_equal_bandwidth_and_the_least_loss() -> None:
    rates = {"paced": 1e6, "unpaced": 1.05e6, "immediate": 0.95e6}
    losses = {"paced": 0.001, "unpaced": 0.002, "immediate": 0.003}
    holds("fig25", lambda _cell: made.flavours(rates, losses))
    fails("fig25", lambda _cell: made.flavours({**rates, "paced": 0.8e6}, losses), "same bandwidth")
    fails("fig25", lambda _cell: made.flavours(rates, {**losses, "paced": 0.002}), "the lowest")


def test_fig29_asks_for_more_throughput_below_one_product_and_fewer_late_packets() -> None:
    def make(late: float, small: float, large: float) -> Make:
        def tables(cell: Cell) -> Tables:
            paced = label(cell, "flavour") == "paced"
            less = float(str(label(cell, "bdp"))) < 1
            return made.streams(
                late if paced else 0.2, (small if less else large) if paced else 1e6
            )

        return tables

    holds("fig29", make(0.1, 1.1e6, 0.9e6))
    fails("fig29", make(0.1, 1e6, 2e6), "aggregate")
    fails("fig29", make(0.2, 1.1e6, 0.9e6), "worst stream")


# Checks that none of the above sees fail.


def acknowledged(change: Callable[[pl.DataFrame], pl.DataFrame], transfers: int = 1) -> Make:
    """The real receiver's packets of algorithms 1 to 3, changed."""
    (cell,) = CLAIMS["alg1-3"].cells("quick")
    tables = _run(cell)
    flows = tables["flows"].with_columns(pl.lit(transfers).alias("transfers"))
    return lambda _cell: {"packets": change(tables["packets"]), "flows": flows}


@cache
def _run(cell: Cell) -> Tables:
    engine = NativeEngine()
    return engine.run(engine.load(cell.scenario, cell.overrides), cell.seed, engine.stop())


def test_alg1_3_holds_for_the_engine_and_fails_for_acks_that_come_late_or_not_at_all() -> None:
    ack = pl.col("kind") == "ack"

    def late(packets: pl.DataFrame) -> pl.DataFrame:
        later = pl.when(ack).then(pl.col("time_s") + 0.1).otherwise(pl.col("time_s"))
        return packets.with_columns(later.alias("time_s"))

    holds("alg1-3", acknowledged(lambda packets: packets))
    outcomes = [check.ok for check in judge("alg1-3", acknowledged(late, 0)).checks]
    assert outcomes == [False, False, False, False, False]
    silent = [c.ok for c in judge("alg1-3", acknowledged(lambda one: one.filter(~ack))).checks]
    assert silent == [False, None, False, False, False]


def test_fig17_fails_for_each_receiver() -> None:
    ratios = [
        check.ok
        for check in judge("fig17", lambda _cell: made.lone(3, bps=3e6)).checks
        if "to an ACK" in check.sentence
    ]
    assert ratios == [False, False, False]


def test_fig14_fails_where_reno_is_steadier() -> None:
    swings = {"pert": 0.3, "cubic": 0.4, "reno": 0.1}
    fails("fig14", lambda cell: made.windows(swings[str(label(cell, "controller"))]), "RENO")


def test_fig21_and_fig32_fail_in_each_sweep() -> None:
    far = made.side_by_side(0.5)
    for name in ("fig21-24", "fig32-34"):
        assert {check.ok for check in judge(name, lambda _cell: far).checks} == {False}


# The readings.

PAPER = next(paper for paper in load_papers(EXPERIMENTS) if paper.name == "pert")

ON_REQUEST = {reading.name: reading for reading in PAPER.on_request}

SIMULATED = [name for name, claim in CLAIMS.items() if claim.world is World.SIMULATION]


def groups_over_pert(cell: Cell) -> dict[str, dict[str, Any]]:
    """The transports of a cell's groups over PERT, as the engine reads them."""
    scenario = NativeEngine().load(cell.scenario, cell.overrides)
    flows = json.loads(scenario.canonical())["flows"]
    transports = {name: group["transport"] for name, group in flows.items()}
    return {
        name: one
        for name, one in transports.items()
        if isinstance(one.get("congestion"), dict) and one["congestion"]["kind"] == "pert"
    }


def pairs(reading: str) -> Iterator[tuple[str, Cell, Cell]]:
    """Each claim's cells over PERT, as run and under a reading."""
    for name in SIMULATED:
        claim = CLAIMS[name]
        under = ON_REQUEST[reading].of(claim)
        for before, after in zip(claim.cells("quick"), under.cells("quick"), strict=True):
            yield name, before, after


@pytest.mark.parametrize(
    ("reading", "parameter", "value"),
    [
        ("every ACK", "samples", "every-ack"),
        ("cumulative", "samples", "cumulative"),
        ("half at a loss", "loss-decrease", "half"),
    ],
)
def test_a_reading_of_pert_applies_to_every_flow_over_it(
    reading: str, parameter: str, value: str
) -> None:
    seen, corrected = set(), 0
    for claim, before, after in pairs(reading):
        plain, read = groups_over_pert(before), groups_over_pert(after)
        assert plain.keys() == read.keys(), claim
        for group, transport in read.items():
            seen.add(claim)
            found = transport["congestion"].get(parameter)
            if transport["correct-self-induced-delay"] and parameter == "samples":
                corrected += 1
                assert found == "all", claim
            else:
                assert found == value, (claim, group)
            assert {**transport, "congestion": 0} == {**plain[group], "congestion": 0}
        if not plain:
            assert after == before, claim
    assert seen == set(SIMULATED) - {"alg1-3"}
    assert (corrected > 0) == (parameter == "samples")


def test_jitter_is_a_packets_time_at_the_bottleneck() -> None:
    found: dict[str, set[str]] = {}
    for claim, before, after in pairs("host jitter"):
        more = set(after.overrides) - set(before.overrides)
        found.setdefault(claim, set()).update(more)
    assert found["fig10"] == {'hosts.jitter="320 us"'}
    # 200-byte packets, too; 150 Mbit/s; 10 Gbit/s of 1,500 bytes; 1 to 10 Mbit/s.
    assert found["fig9"] == {'hosts.jitter="320 us"', 'hosts.jitter="64 us"'}
    assert found["fig2"] == {'hosts.jitter="53.33 us"'}
    assert found["scale"] == {'hosts.jitter="1.2 us"'}
    assert 'hosts.jitter="8000 us"' in found["fig32-34"]
    assert found["alg1-3"] == set()


def test_real_packets_are_alike_under_all_readings() -> None:
    for claim in PAPER.claims:
        if claim.world is World.EMULATION:
            assert all(reading.of(claim) is claim for reading in PAPER.on_request)


def test_the_quick_grid_runs_the_primary_reading_alone() -> None:
    assert [reading.name for reading in PAPER.readings] == ["own packet"]
