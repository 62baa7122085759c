"""The spacing paper's claims, judged on tables that satisfy them and on tables that do not."""

from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
from conftest import EXPERIMENTS
from synthetic import Given

from ontempo.lab.claims import Claim, Finding, Verdict, World
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
    """What agents of 1,400-byte packets fare on a link that loses what does not fit.

    `overload` is the part of the link that is lost where nothing of what is offered fits.
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
    assert CLAIMS["fig7"].judge(over_spacings([1])).verdict is Verdict.REPRODUCED
    assert CLAIMS["fig7"].judge(over_spacings([1], 50.0)).verdict is Verdict.DIFFERS


def test_fig8_9_holds_for_a_link_that_loses_what_does_not_fit() -> None:
    finding = CLAIMS["fig8-9"].judge(over_spacings([2, 4, 8, 16], overload=0.02))
    assert finding.verdict is Verdict.REPRODUCED, failing(finding)


def test_fig8_9_fails_where_what_arrives_is_the_same_however_much_is_lost() -> None:
    finding = CLAIMS["fig8-9"].judge(over_spacings([2, 4, 8, 16]))
    assert failing(finding) == ["The receiver's throughput is largest near 1000 μs."]


def test_fig8_9_fails_on_a_link_of_half_the_rate() -> None:
    finding = CLAIMS["fig8-9"].judge(over_spacings([2, 4, 8, 16], 77.5))
    assert finding.verdict is Verdict.DIFFERS
    assert any("a tenth" in sentence for sentence in failing(finding))


def tcp(rate: Callable[[int], float], window: int) -> Given:
    rows = [
        {
            "group": "tcp",
            "window": window,
            "spacing_us": us,
            "goodput_bps": rate(us) * 1e6,
            "loss_rate": 0.01,
        }
        for us in SPACINGS
        for _ in range(2)
    ]
    return Given(asked("window", [window]), flows=pl.DataFrame(rows))


def test_fig12_13_holds_where_the_window_binds_and_fails_where_it_does_not() -> None:
    def bound(us: int) -> float:
        return 2.67 if us > 1500 else 0.0

    assert CLAIMS["fig12-13"].judge(tcp(bound, 20)).verdict is Verdict.REPRODUCED
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
    assert judge(rates(small, small)).verdict is Verdict.REPRODUCED
    assert failing(judge(rates(large, large))) == ["Each makes small oscillations around its rate."]
    assert failing(judge(rates(small, lambda time: small(time) / 2))) == [
        "Both send at the same rate."
    ]


def test_the_cells_name_what_the_scenarios_have() -> None:
    cells: list[Cell] = [cell for claim in CLAIMS.values() for cell in claim.cells("full")]
    assert all(cell.scenario.exists() for cell in cells)
