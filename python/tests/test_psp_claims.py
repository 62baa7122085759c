"""The spacing paper's claims, judged on tables that satisfy them and on tables that do not."""

from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest
from conftest import EXPERIMENTS
from made import Made, Tables
from synthetic import Given

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.experiments import load_papers
from ontempo.lab.study import Cell, Results

CLAIMS: dict[str, Claim] = {
    claim.id.partition("/")[2]: claim
    for paper in load_papers(EXPERIMENTS)
    if paper.name == "psp"
    for claim in paper.claims
    if claim.world is not World.EMULATION
}

SPACINGS = (0, 150, 200, 300, 500, 800, 950, 1000, 1050, 1150, 1200, 1500, 2000, 3000, 5000)
SECONDS = 10


def failing(finding: Finding) -> list[str]:
    return [check.sentence for check in finding.checks if check.ok is False]


def agents(
    count: int, us: int, link_mbit: float = 155.0, overload: float = 0.0
) -> list[dict[str, object]]:
    """Made-up results of agents with 1,400-byte packets on a link that drops the excess.

    `overload` is the share of the link that is lost under full overload.
    """
    offered = 1400 * 8 / (us + 112)
    fits = min(offered, link_mbit / count)
    received = fits * (1 - overload * (1 - fits / offered))
    sent = int(offered * 1e6 * SECONDS / 11_200)
    delivered = round(sent * received / offered)
    flow = {
        "group": "psa",
        "agents": count,
        "spacing_us": us,
        "seed": 0,
        "sent_packets": sent,
        "delivered_packets": delivered,
        "dropped_packets": sent - delivered,
        "loss_rate": 1 - received / offered if received < offered else 0.0,
        "goodput_bps": received * 1e6,
    }
    return [dict(flow) for _ in range(2)]


def over_spacings(counts: Iterable[int], link_mbit: float = 155.0, overload: float = 0.0) -> Given:
    rows = [
        row for count in counts for us in SPACINGS for row in agents(count, us, link_mbit, overload)
    ]
    return Given(asked("agents", counts), flows=pl.DataFrame(rows))


def asked(label: str, values: Iterable[int]) -> list[Cell]:
    """The cells of every spacing, for each value of a label."""
    return [
        Cell(Path("made.toml"), (), 0, ((label, value), ("spacing_us", us)))
        for value in values
        for us in SPACINGS
    ]


def test_every_figure_of_section_3_is_there() -> None:
    assert list(CLAIMS) == [
        "fig5", "fig7", "fig8-9", "fig10-11", "fig12-13", "fig14-15", "spacing", "fig16-17",
        "fig18", "fig19", "aqm", "headline",
    ]  # fmt: skip


def test_a_quick_study_takes_half_a_minute() -> None:
    cells = {cell for claim in CLAIMS.values() for cell in claim.cells("quick")}
    assert sum(cell.cost for cell in cells) <= 30


def test_fig7_holds_for_one_agent_and_fails_where_the_link_is_too_slow() -> None:
    assert CLAIMS["fig7"].judge(over_spacings([1])).holds is True
    assert CLAIMS["fig7"].judge(over_spacings([1], 50.0)).holds is False


def test_fig8_9_holds_for_a_link_that_loses_what_does_not_fit() -> None:
    finding = CLAIMS["fig8-9"].judge(over_spacings([2, 4, 8, 16], overload=0.02))
    assert finding.holds is True, failing(finding)


def test_fig8_9_fails_where_what_arrives_is_the_same_however_much_is_lost() -> None:
    finding = CLAIMS["fig8-9"].judge(over_spacings([2, 4, 8, 16]))
    assert failing(finding) == ["The receiver's throughput is largest near 1000 μs."]


def test_fig8_9_fails_on_a_link_of_half_the_rate() -> None:
    finding = CLAIMS["fig8-9"].judge(over_spacings([2, 4, 8, 16], 77.5))
    assert finding.holds is False
    assert any("a tenth" in sentence for sentence in failing(finding))


def tcp(rate: Callable[[int], float], window: int) -> Given:
    rows = [
        {
            "group": "tcp",
            "window": window,
            "spacing_us": us,
            "goodput_bps": rate(us) * 1e6,
            "loss_rate": 0.01,
            "sent_packets": 1000,
        }
        for us in SPACINGS
        for _ in range(2)
    ]
    return Given(asked("window", [window]), flows=pl.DataFrame(rows))


def test_fig12_13_holds_where_the_window_binds_and_fails_where_it_does_not() -> None:
    def bound(us: int) -> float:
        return 2.67 if us > 1500 else 0.0

    assert CLAIMS["fig12-13"].judge(tcp(bound, 20)).holds is True
    faster = CLAIMS["fig12-13"].judge(tcp(lambda us: 2 * bound(us), 20))
    assert len(failing(faster)) == 2
    fed = CLAIMS["fig12-13"].judge(tcp(lambda _us: 2.67, 20))
    assert failing(fed) == ["At very small spacings TCP starves."]


def rates(first: Callable[[float], float], second: Callable[[float], float]) -> Results:
    """Samples of two agents that send at these rates, in Mbit/s."""
    rows = []
    for seed in range(2):
        for name, rate in (("first.0", first), ("second.0", second)):
            total = 0.0
            for step in range(400):
                time = step / 4
                rows.append((name, seed, time, total))
                total += rate(time) * 1e6 / 8 / 4
    samples = pl.DataFrame(rows, schema=["subject", "seed", "time_s", "value"], orient="row")
    labels = [pl.lit("sent_bytes").alias("quantity"), pl.lit("psp-damped").alias("controller")]
    return Given(samples=samples.with_columns(*labels))


def test_fig16_17_holds_for_steady_and_equal_rates_only() -> None:
    def small(time: float) -> float:
        return 70.0 + 2 * (int(time * 4) % 2)

    def large(time: float) -> float:
        return 50.0 + 40 * (int(time * 4) % 2)

    judge = CLAIMS["fig16-17"].judge
    assert judge(rates(small, small)).holds is True
    assert failing(judge(rates(large, large))) == ["Each makes small oscillations around its rate."]
    assert failing(judge(rates(small, lambda time: small(time) / 2))) == [
        "Both send at the same rate."
    ]


def test_the_cells_name_what_the_scenarios_have() -> None:
    cells: list[Cell] = [cell for claim in CLAIMS.values() for cell in claim.cells("full")]
    assert all(cell.scenario.exists() for cell in cells)


# The claims of section 3 that are not over agents alone, each with data that fail all it asks for.


def judged_by(name: str, make: Callable[[Cell], Tables]) -> Finding:
    claim = CLAIMS[name]
    return claim.judge(Made(tuple(claim.cells("quick")), make))


def flows(*rows: tuple[str, float, float]) -> Tables:
    """Two flows of each kind: group, Mbit/s, and the part that is lost."""
    found = [
        {
            "group": group,
            "goodput_bps": mbit * 1e6,
            "loss_rate": loss,
            "sent_packets": 1000,
            "delivered_packets": round(1000 * (1 - loss)),
        }
        for group, mbit, loss in rows
        for _ in range(2)
    ]
    return {"flows": pl.DataFrame(found)}


def spacing(cell: Cell) -> float:
    return float(dict(cell.labels)["spacing_us"])


def outcomes(finding: Finding) -> set[bool | None]:
    return {check.ok for check in finding.checks}


def test_fig10_11_asks_for_more_than_the_link_capacity() -> None:
    def published(cell: Cell) -> Tables:
        best = 1000 <= spacing(cell) <= 1050
        return flows(("psa", 11.0 if best else 5.0, 0.0 if best else 0.2))

    assert outcomes(judged_by("fig10-11", published)) == {True}
    assert outcomes(judged_by("fig10-11", lambda _cell: flows(("psa", 5.0, 0.2)))) == {False}


def test_fig14_15_asks_for_both_shares_and_a_rise() -> None:
    def published(cell: Cell) -> Tables:
        return flows(("psa", 2.23, 0.0), ("tcp", 6.57 * spacing(cell) / 5000, 0.01))

    def reverse(cell: Cell) -> Tables:
        return flows(("psa", 3.0, 0.0), ("tcp", 5.0 - spacing(cell) / 5000, 0.01))

    assert outcomes(judged_by("fig14-15", published)) == {True}
    assert outcomes(judged_by("fig14-15", reverse)) == {False}


def arriving(gaps_us: list[float]) -> Callable[[Cell], Tables]:
    times = [sum(gaps_us[:place]) * 1e-6 for place in range(len(gaps_us) + 1)]
    return lambda _cell: {"packets": pl.DataFrame({"time_s": times})}


def test_spacing_asks_for_the_mean_the_deviation_and_no_clumps() -> None:
    even = arriving([1540.6 + sign * 64.75 for sign in (-1, 1)] * 100)
    assert outcomes(judged_by("spacing", even)) == {True}
    assert outcomes(judged_by("spacing", arriving([100.0, 2000.0] * 100))) == {False}
    assert outcomes(judged_by("spacing", arriving([]))) == {None}
    assert outcomes(judged_by("spacing", arriving([1540.6]))) >= {None}


def small(time: float) -> float:
    return 70.0 + 2 * (int(time * 4) % 2)


def large(time: float) -> float:
    return 80.0 + 70 * (int(time * 4) % 2)


def test_fig18_and_fig19_ask_for_steady_equal_and_modest_rates() -> None:
    uneven = rates(large, lambda time: large(time) / 2)
    assert outcomes(CLAIMS["fig18"].judge(rates(small, small))) == {True}
    assert outcomes(CLAIMS["fig18"].judge(uneven)) == {False}
    for samples, loss, ok in ((rates(small, small), 0.04, True), (uneven, 0.06, False)):
        table = flows(("first", 1.0, loss), ("tcp", 1.0, 0.5))["flows"]
        found = CLAIMS["fig19"].judge(Given(samples=samples.table("samples"), flows=table))
        assert outcomes(found) == {ok}


@pytest.mark.parametrize(("calm", "more", "ok"), [("psp-damped", 1.1, True), ("psp", 1.2, False)])
def test_fig5_asks_for_less_swing_and_a_tenth_more(calm: str, more: float, ok: bool) -> None:
    of = {
        name: rates(*[small if name == calm else large] * 2).table("samples")
        for name in ("psp", "psp-damped")
    }
    samples = pl.concat(
        table.with_columns(pl.lit(name).alias("controller")) for name, table in of.items()
    )
    goodput = pl.DataFrame({"controller": list(of), "goodput_bps": [1e6, more * 1e6]})
    assert outcomes(CLAIMS["fig5"].judge(Given(samples=samples, flows=goodput))) == {ok}


@pytest.mark.parametrize(
    ("plain", "spaced", "tcp", "ok"),
    [(0.5, 0.05, 0.9, {True}), (0.5, 0.06, 0.7, {False}), (0.0, 0.0, 0.9, {None, True})],
)
def test_aqm_asks_for_a_tenth_of_the_loss_and_for_tcps_share(
    plain: float, spaced: float, tcp: float, ok: set[bool | None]
) -> None:
    def make(cell: Cell) -> Tables:
        loss = plain if dict(cell.labels)["media"] == "plain UDP" else spaced
        return flows(("media", 1.0, loss), ("tcp", tcp, 0.01))

    assert outcomes(judged_by("aqm", make)) == ok


@pytest.mark.parametrize(
    ("plain", "spaced", "mbit", "ok"),
    [(0.9, 0.09, 9.5, {True}), (0.9, 0.1, 9.4, {False}), (0.0, 0.0, 9.5, {None, True})],
)
def test_the_headline_asks_for_little_loss_at_the_same_rate(
    plain: float, spaced: float, mbit: float, ok: set[bool | None]
) -> None:
    def make(cell: Cell) -> Tables:
        is_plain = dict(cell.labels)["media"] == "plain UDP"
        return flows(("psa", 10.0, plain) if is_plain else ("psa", mbit, spaced))

    assert outcomes(judged_by("headline", make)) == ok


def test_an_agent_that_sends_nothing_leaves_loss_undecided() -> None:
    def silent(_cell: Cell) -> Tables:
        table = flows(("psa", 0.0, 0.0), ("media", 0.0, 0.0), ("tcp", 1.0, 0.0))["flows"]
        return {"flows": table.with_columns(sent_packets=0, dropped_packets=0)}

    for name in ("fig7", "aqm", "headline", "fig10-11"):
        found = {c.sentence: c.ok for c in judged_by(name, silent).checks if "los" in c.sentence}
        assert set(found.values()) <= {None}
    assert outcomes(judged_by("fig7", silent)) == {None}
