"""The spacing paper's claims, judged on tables that satisfy them and on tables that do not."""

from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest
from conftest import EXPERIMENTS
from made import Made, Tables
from synthetic import Given

from ontempo.lab.claims import Claim, Finding, Reading, World
from ontempo.lab.engine import NativeEngine
from ontempo.lab.experiments import load_papers
from ontempo.lab.study import Cell, Results

CLAIMS: dict[str, Claim] = {
    claim.id.partition("/")[2]: claim
    for paper in load_papers(EXPERIMENTS)
    if paper.name == "psp"
    for claim in paper.claims
    if claim.world is not World.EMULATION
}

PAPER = next(paper for paper in load_papers(EXPERIMENTS) if paper.name == "psp")
READINGS = PAPER.readings

SPACINGS = (0, 150, 200, 300, 500, 800, 950, 1000, 1050, 1150, 1200, 1500, 2000, 3000, 5000)
SECONDS = 10


def failing(finding: Finding) -> list[str]:
    return [check.sentence for check in finding.checks if check.ok is False]


def agents(
    count: int, us: int, link_mbit: float = 155.0, overload: float = 0.0
) -> list[dict[str, object]]:
    """Made-up results of agents with packets of 1,428 bytes on a link that drops the excess.

    `overload` is the share of the link that is lost under full overload.
    """
    offered = 1428 * 8 / (us + 114.24)
    fits = min(offered, link_mbit / count)
    received = fits * (1 - overload * (1 - fits / offered))
    sent = int(offered * 1e6 * SECONDS / 11_424)
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


def test_a_quick_study_under_all_readings_takes_four_minutes_on_two_cores() -> None:
    cells = {
        cell
        for claim in CLAIMS.values()
        for reading in READINGS
        for cell in reading.of(claim).cells("quick")
    }
    assert sum(cell.cost for cell in cells) / 2 <= 240


def test_fig7_holds_for_one_agent_and_fails_where_the_link_is_too_slow() -> None:
    assert CLAIMS["fig7"].judge(over_spacings([1])).holds is True
    assert CLAIMS["fig7"].judge(over_spacings([1], 50.0)).holds is False


def test_fig8_9_holds_for_a_link_that_loses_what_does_not_fit() -> None:
    finding = CLAIMS["fig8-9"].judge(over_spacings([2, 4, 8, 16], overload=0.02))
    assert finding.holds is True, failing(finding)


def test_fig8_9_fails_where_what_arrives_is_the_same_however_much_is_lost() -> None:
    finding = CLAIMS["fig8-9"].judge(over_spacings([2, 4, 8, 16]))
    assert failing(finding) == ["It rises from 0 to 1000 μs."]


def test_fig8_9_asks_where_the_plateau_ends() -> None:
    late = over_spacings([2, 4, 8, 16], 120.0)
    assert any("falls from there" in one for one in failing(CLAIMS["fig8-9"].judge(late)))


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
        if is_single(cell):
            return flows(("psa", 2.23, 0.0), ("tcp", 5.57, 0.01), ("tcp", 7.57, 0.01))
        return flows(("psa", 2.23, 0.0), ("tcp", 6.57 * spacing(cell) / 5000, 0.01))

    def reverse(cell: Cell) -> Tables:
        if is_single(cell):
            return flows(("psa", 2.23, 0.0), ("tcp", 5.57, 0.01), ("tcp", 6.5, 0.01))
        return flows(("psa", 3.0, 0.0), ("tcp", 5.0 - spacing(cell) / 5000, 0.01))

    assert outcomes(judged_by("fig14-15", published)) == {True}
    assert outcomes(judged_by("fig14-15", reverse)) == {False}


NO_SAMPLES = pl.DataFrame(
    schema={"time_s": pl.Float64, "subject": pl.String, "quantity": pl.String, "value": pl.Float64}
)


def is_single(cell: Cell) -> bool:
    return "single" in dict(cell.labels)


def arriving(gaps_us: list[float]) -> Callable[[Cell], Tables]:
    """Packets that begin to arrive so long after the end of the one before."""
    own = 1428 * 8 / 155
    times = [(sum(gaps_us[:place]) + place * own) * 1e-6 for place in range(len(gaps_us) + 1)]
    return lambda _cell: {"packets": pl.DataFrame({"time_s": times, "size_bytes": 1428})}


def test_spacing_is_from_the_end_of_a_packet_to_the_start_of_the_next() -> None:
    # Sent every 1500 + 114.24 us, and a packet takes 73.70 us behind the gateway.
    mean = judged_by("spacing", arriving([1500 + 114.24 - 73.70] * 200)).checks[0]
    assert mean.ok
    assert list(mean.values) == pytest.approx([1540.54])


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
        found = flows(("psa", 10.0, plain) if is_plain else ("psa", mbit, spaced))
        return {**found, "samples": NO_SAMPLES}

    assert outcomes(judged_by("headline", make)) == ok


def test_an_agent_that_sends_nothing_leaves_loss_undecided() -> None:
    def silent(_cell: Cell) -> Tables:
        table = flows(("psa", 0.0, 0.0), ("media", 0.0, 0.0), ("tcp", 1.0, 0.0))["flows"]
        table = table.with_columns(sent_packets=0, dropped_packets=0)
        return {"flows": table, "samples": NO_SAMPLES}

    for name in ("fig7", "aqm", "headline", "fig10-11"):
        found = {c.sentence: c.ok for c in judged_by(name, silent).checks if "los" in c.sentence}
        assert set(found.values()) <= {None}
    assert outcomes(judged_by("fig7", silent)) == {None}


# The readings.


def overridden(claim: str, reading: str, key: str) -> set[str]:
    """The last value of a key in each cell of a claim under a reading; empty if it has none."""
    of = next(one.of for one in READINGS if one.name == reading)
    return {
        next((text for text in reversed(cell.overrides) if text.startswith(f"{key}=")), "")
        for cell in of(CLAIMS[claim]).cells("full")
    }


def test_a_reading_applies_to_every_claim_that_has_what_it_changes() -> None:
    changed = {
        reading.name: [name for name, claim in CLAIMS.items() if reading.of(claim) is not claim]
        for reading in READINGS
    }
    adaptive = ["fig5", "fig16-17", "fig18", "fig19", "aqm", "headline"]
    assert changed == {
        "each report": [],
        "fresh feedback": adaptive,
        "host noise": list(CLAIMS),
        "fresh feedback and host noise": list(CLAIMS),
        "start to start": list(CLAIMS),
        "last decision": adaptive,
    }
    real = [claim for claim in PAPER.claims if claim.world is World.EMULATION]
    assert all(reading.of(claim) is claim for reading in READINGS for claim in real)


def test_readings_set_what_they_name() -> None:
    fresh = "flows.psa.transport.feedback"
    assert overridden("headline", "fresh feedback", fresh) == {"", f'{fresh}="fresh"'}
    assert overridden("headline", "each report", fresh) == {""}
    for reading in ("host noise", "fresh feedback and host noise"):
        assert overridden("fig7", reading, "hosts.jitter") == {'hosts.jitter="73.7 us"'}
    packet = "flows.tcp.transport.packet"
    assert overridden("fig14-15", "start to start", packet) == {f'{packet}="1400 B"'}
    for claim in ("fig18", "fig16-17", "fig19"):
        key = "flows.second.transport.controller"
        assert overridden(claim, "last decision", key) == {f'{key}="psp-damped-last"'}
    key = "flows.first.transport.controller"
    assert overridden("fig5", "last decision", key) == {
        f'{key}="psp"',
        f'{key}="psp-damped-last"',
    }


@pytest.mark.parametrize("reading", READINGS, ids=lambda one: one.name)
def test_every_cell_of_every_reading_is_a_valid_scenario(reading: Reading) -> None:
    cells = {cell for claim in CLAIMS.values() for cell in reading.of(claim).cells("quick")}
    engine = NativeEngine()
    for cell in cells:
        engine.load(cell.scenario, cell.overrides)


def test_claims_of_several_checks_name_their_headline() -> None:
    assert [name for name, claim in CLAIMS.items() if not claim.headline] == ["fig7"]


def test_the_headline_runs_as_long_as_published_with_ten_seeds_in_quick_too() -> None:
    for scale in ("quick", "full"):
        cells = [c for c in CLAIMS["headline"].cells(scale) if ("media", "damped PSP") in c.labels]
        assert len({cell.seed for cell in cells}) == 10
        assert all('duration="500 s"' in cell.overrides for cell in cells)


def test_the_headline_tells_how_what_is_sent_grows() -> None:
    def make(cell: Cell) -> Tables:
        media = dict(cell.labels)["media"]
        # Half of the link until 100 s, then all of it.
        sent = {at: 155e6 / 8 * (at - min(at, 100) / 2) for at in range(0, 501, 10)}
        samples = pl.DataFrame({"time_s": list(map(float, sent)), "value": list(sent.values())})
        named = samples.with_columns(subject=pl.lit("psa.0"), quantity=pl.lit("sent_bytes"))
        return {**flows(("psa", 9.0, 0.5 if media == "plain UDP" else 0.0)), "samples": named}

    claim = CLAIMS["headline"]
    notes = claim.judge(Made(tuple(claim.cells("quick")), make)).notes
    assert [note for note in notes if "50% to 50% from 10 to 30 s" in note]
    assert [note for note in notes if "100% to 100% from 300 to 500 s" in note]
