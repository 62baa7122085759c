"""The claims of the paper on reservations, judged on tables that satisfy them and do not."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from conftest import EXPERIMENTS
from synthetic import Given

from ontempo.lab.cells import Cell
from ontempo.lab.claims import Claim, Finding, Verdict, World
from ontempo.lab.engine import NativeEngine
from ontempo.lab.experiments import load_papers
from ontempo.lab.readings import judgement

PAPER = next(paper for paper in load_papers(EXPERIMENTS) if paper.name == "qosockets")
READINGS = {reading.name: reading for reading in PAPER.readings}

CLAIMS: dict[str, Claim] = {
    claim.id.partition("/")[2]: claim for claim in PAPER.claims if claim.world is World.SIMULATION
}

from ontempo_experiments.qosockets import declared, recorded  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.qosockets.figures.fig9 import (  # type: ignore[import-not-found] # noqa: E402
    largest_mean_jitter_ms as BOUND,  # noqa: N812
)
from ontempo_experiments.qosockets.grid import GENERATORS_SENT, VIDEO_SENT  # type: ignore[import-not-found] # noqa: E402

FLOWS = ("A1", "A2", "A3", "B1a", "B1b", "B2a", "B2b", "C1a", "C1b", "C1c", "C2a", "C2b", "C2c")

Values = dict[str, float]

RATES: Values = dict(
    zip(FLOWS, (570, 530, 520, 560, 500, 530, 480, 250, 360, 360, 520, 300, 300), strict=True)
)
LOSSES: Values = dict(zip(FLOWS, (2, 0, 0, 0, 0, 0, 0, 47, 25, 25, 0, 40, 40), strict=True))
DELAYS: Values = dict(
    zip(FLOWS, (20, 20, 20, 30, 30, 22, 40, 600, 600, 600, 25, 720, 720), strict=True)
)
JITTERS: Values = dict(zip(FLOWS, (5, 4, 5, 8, 9, 5, 9, 115, 60, 60, 5, 30, 30), strict=True))


def place(flow: str, main: str) -> dict[str, object]:
    letter = flow[2:] or ("b" if flow == "A3" else "a")
    index = {"a": 0, "b": 0, "c": 1}[letter]
    return {"test": flow[:2], "group": main if letter == "a" else "tg", "index": index, "seed": 0}


def intervals(main: str, received: Values, sent: Values, lost: Values) -> pl.DataFrame:
    return pl.DataFrame(
        [
            place(flow, main)
            | {
                "received_bps": received[flow] * 1e3,
                "sent_bps": sent[flow] * 1e3,
                "sent_messages": 100_000,
                "received_messages": round(100_000 - 1_000 * lost[flow]),
            }
            for flow in FLOWS
        ]
    )


def messages(main: str, delay: Values, jitter: Values) -> pl.DataFrame:
    return pl.DataFrame(
        [
            place(flow, main) | {"delay_s": delay[flow] / 1e3, "jitter_s": jitter[flow] / 1e3}
            for flow in FLOWS
        ]
    )


def published(**changed: Values) -> Given:
    received = RATES | changed.get("received", {})
    lost = LOSSES | changed.get("lost", {})
    sending = RATES | changed.get("sent", {})
    sent = {flow: rate / (1 - LOSSES[flow] / 100) for flow, rate in sending.items()}
    delay, jitter = DELAYS | changed.get("delay", {}), JITTERS | changed.get("jitter", {})
    return Given(
        intervals=intervals("nv", received, sent, lost), messages=messages("nv", delay, jitter)
    )


def failing(finding: Finding) -> list[str]:
    return [check.sentence for check in finding.checks if check.ok is False]


def test_every_figure_of_section_4_is_there() -> None:
    assert list(CLAIMS) == [
        "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12", "ack-path",
    ]  # fmt: skip


def test_a_quick_study_takes_less_than_half_a_minute() -> None:
    cells = {cell for claim in CLAIMS.values() for cell in claim.cells("quick")}
    assert sum(cell.cost for cell in cells) <= 20


def test_what_was_published_of_the_video_is_reproduced_by_itself() -> None:
    for name in ("fig6", "fig7", "fig9"):
        finding = CLAIMS[name].judge(published())
        assert finding.holds is True, (name, failing(finding))
    finding = CLAIMS["fig8"].judge(published())
    assert finding.holds is True, failing(finding)


def test_a_reserved_video_that_loses_messages_is_reported() -> None:
    finding = CLAIMS["fig7"].judge(published(lost={"C2a": 3.0}))
    assert failing(finding) == ["Reserved: no loss."]


def test_an_unreserved_video_that_receives_more_than_published_is_reported() -> None:
    finding = CLAIMS["fig6"].judge(published(received={"C1a": 262.0}))
    assert failing(finding) == [
        "Overload: the unreserved video receives 250 of 472 kbit/s (received over sent)."
    ]


def test_what_was_sent_is_an_input_and_what_is_received_of_it_is_judged() -> None:
    # All flows 15 % faster, and as much of each received.
    faster = {flow: 1.15 * rate for flow, rate in RATES.items()}
    assert CLAIMS["fig6"].judge(published(received=faster, sent=faster)).holds is True
    slower = CLAIMS["fig6"].judge(published(received={"C2b": 280.0}))
    assert failing(slower) == [
        "Those beside a reserved video receive 200 kbit/s less than the 500 that they send"
        " (received over sent)."
    ]
    idle = CLAIMS["fig6"].judge(published(received={"A2": 0.0}, sent={"A2": 0.0}))
    assert idle.checks[0].ok is None
    assert "Nothing of A2" in idle.checks[0].measured


def test_up_to_720_ms_is_asked_of_the_slower_generator_only() -> None:
    quicker = published(delay={"C2b": 640.0, "C2c": 720.0})
    assert CLAIMS["fig8"].judge(quicker).holds is True
    finding = CLAIMS["fig8"].judge(published(delay={"C2b": 640.0, "C2c": 640.0}))
    assert failing(finding) == ["The generators beside a reserved video: up to 720 ms."]


def test_a_reserved_video_faster_than_published_is_no_difference() -> None:
    assert CLAIMS["fig8"].judge(published(delay={"C2a": 12.0})).holds is True


def test_600_ms_is_asked_of_generators_and_250_to_750_of_the_unreserved_video() -> None:
    for delay in (250.0, 750.0):
        assert CLAIMS["fig8"].judge(published(delay={"C1a": delay})).holds is True
    for delay in (249.0, 751.0):
        (failed,) = failing(CLAIMS["fig8"].judge(published(delay={"C1a": delay, "C2a": 12.0})))
        assert failed.startswith("The unreserved video's is 250 to 750 ms")
    finding = CLAIMS["fig8"].judge(published(delay={"C1c": 661.0}))
    assert failing(finding) == ["The generators beside it: around 600 ms."]


def test_115_ms_of_jitter_are_contradicted_by_arithmetic() -> None:
    (claim,) = (one for one in PAPER.claims if one.world is World.ANALYSIS)
    assert claim.id == "qosockets/fig9-unreserved"
    assert not claim.cells("full")
    finding = claim.judge(Given())
    assert judgement(claim, {"": finding}).verdict is Verdict.CONTRADICTED
    (most,) = finding.checks[0].values
    assert most == pytest.approx(81.92)


def test_no_sequence_of_delays_in_order_has_more_jitter_than_the_bound() -> None:
    # Sent in pairs at once, received one by one, and the other way round: the worst there is.
    sent = [0.0, 0.0, 80.0, 80.0, 160.0, 160.0, 240.0, 240.0]
    received = [300.0, 380.0, 380.0, 460.0, 460.0, 540.0, 540.0, 620.0]
    delays = [there - out for out, there in zip(sent, received, strict=True)]
    mean = sum(abs(b - a) for a, b in pairwise(delays)) / (len(delays) - 1)
    rate_kbps = 8 * 1280 * (len(delays) - 1) / (received[-1] - received[0])
    assert mean == pytest.approx(80.0)
    assert mean <= BOUND(1280, rate_kbps)


def test_a_reserved_video_without_jitter_has_not_the_published_one() -> None:
    finding = CLAIMS["fig9"].judge(published(jitter={"C2a": 1.0}))
    assert failing(finding) == ["The reserved video's is about 5 ms under overload."]


def test_a_reserved_video_that_waits_is_reported() -> None:
    finding = CLAIMS["fig8"].judge(published(delay={"B2a": 31.0}))
    assert failing(finding) == ["Reserved: under 30 ms under any load."]


def images(**changed: Values) -> Given:
    rates: Values = dict(
        zip(FLOWS, (480, 475, 530, 400, 500, 470, 480, 330, 400, 400, 396, 380, 380), strict=True)
    )
    delay: Values = dict(
        zip(
            FLOWS,
            (210, 210, 10, 300, 40, 250, 42, 900, 500, 500, 400, 520, 520),
            strict=True,
        )
    )
    jitter = {flow: value / 4 for flow, value in delay.items()} | changed.get("jitter", {})
    rates["B2a"] = rates["B1a"] * 1.18
    rates["A2"] = rates["B2a"] + 5
    received = rates | changed.get("received", {})
    return Given(
        intervals=intervals("images", received, received, dict.fromkeys(FLOWS, 0.0)),
        messages=messages("images", delay | changed.get("delay", {}), jitter),
    )


def test_what_was_published_of_images_is_reproduced_by_itself() -> None:
    for name in ("fig10", "fig11", "fig12"):
        finding = CLAIMS[name].judge(images())
        assert finding.holds is True, (name, failing(finding))


def test_a_gain_of_two_fifths_is_not_a_fifth() -> None:
    finding = CLAIMS["fig10"].judge(images(received={"C2a": 330 * 1.4}))
    assert failing(finding) == ["Under overload, reserved images get 20 % more."]


def acks(both: float) -> Given:
    rates = {"nothing": 300.0, "data only": 400.0, "data and ACKs": both}
    rows = [
        {"group": "images", "back": back, "reserved": what, "seed": 0, "received_bps": rate * 1e3}
        for back in ("empty", "crowded")
        for what, rate in rates.items()
    ]
    return Given(intervals=pl.DataFrame(rows))


def test_the_explanation_by_acks_is_measured_and_has_no_verdict() -> None:
    claim = CLAIMS["ack-path"]
    for both in (350.0, 400.0, 450.0):
        finding = claim.judge(acks(both))
        assert [check.ok for check in finding.checks] == [None, None]
        assert [check.values for check in finding.checks] == [(400.0, both)] * 2
        assert judgement(claim, {"": finding}).verdict is Verdict.NO_VERDICT
    nothing = claim.judge(Given(intervals=acks(1.0).table("intervals").clear()))
    assert all("No data" in check.measured for check in nothing.checks)


# Each check at once: data that fail all that a figure asks for.


def spread(main: float, **others: float) -> Values:
    return dict.fromkeys(FLOWS, main) | others


@pytest.mark.parametrize(
    ("figure", "column", "values"),
    [
        ("fig6", "received", spread(300.0, C1a=400, C1b=200, C1c=200, C2b=450, C2c=450)),
        ("fig7", "lost", spread(1.0, A1=0, C1a=10, C1b=50, C1c=50, C2b=10, C2c=10)),
        ("fig8", "delay", spread(40.0, C2a=100, C1a=800, C1b=800, C1c=800, C2b=640, C2c=640)),
        ("fig9", "jitter", spread(20.0, C2a=200, C1a=10, C1b=5, C1c=5, C2b=60, C2c=60)),
        ("fig10", "received", spread(300.0, A1=200, C1a=400, C2a=400, C1b=400)),
        ("fig11", "delay", spread(100.0, A3=200, C2a=300, C1a=90, B2b=200, C2b=50, C2c=50)),
        ("fig12", "jitter", spread(100.0, A3=200, C2a=300, C1a=90)),
    ],
)
def test_every_check_of_a_figure_can_fail(figure: str, column: str, values: Values) -> None:
    of = published if figure in ("fig6", "fig7", "fig8", "fig9") else images
    outcomes = {one.sentence: one.ok for one in CLAIMS[figure].judge(of(**{column: values})).checks}
    assert set(outcomes.values()) == {False}, outcomes


def test_a_flow_that_is_missing_is_named_and_leaves_its_checks_undecided() -> None:
    whole = published()
    without = Given(
        intervals=whole.table("intervals").filter(pl.col("test") != "C2"),
        messages=whole.table("messages").filter(pl.col("test") != "C2"),
    )
    for figure in ("fig6", "fig7", "fig8", "fig9"):
        for check in CLAIMS[figure].judge(without).checks:
            assert (check.ok is None) == ("Nothing of C2" in check.measured)
            assert check.ok is not False


def test_indistinguishable_flows_are_neither_more_nor_less() -> None:
    # Of 480 and 500 sent, three quarters of each.
    seeds = [published(received={"C1b": 360.0 + more, "C2b": 375.0 - more}) for more in (-9, 0, 10)]
    given = Given(
        **{
            name: pl.concat(
                one.table(name).with_columns(pl.lit(seed).alias("seed"))
                for seed, one in enumerate(seeds)
            )
            for name in ("intervals", "messages")
        }
    )
    check = CLAIMS["fig6"].judge(given).checks[-1]
    assert check.ok is None
    assert "cannot be told apart" in check.measured


# The readings.


def cells_of(reading: str, name: str = "fig6") -> Mapping[str, Cell]:
    """The quick cells of a claim under a reading, by test, of one seed."""
    cells = READINGS[reading].of(CLAIMS[name]).cells("quick")
    return {str(dict(cell.labels)["test"]): cell for cell in cells if cell.seed == 0}


def flows_of(cell: Cell) -> dict[str, Any]:
    """The groups of flows of a cell's scenario, with every default."""
    canonical = NativeEngine().load(cell.scenario, cell.overrides).canonical()
    return dict(json.loads(canonical)["flows"])


def queue_of(cell: Cell) -> dict[str, Any]:
    canonical = NativeEngine().load(cell.scenario, cell.overrides).canonical()
    return dict(json.loads(canonical)["topology"]["links"][1]["queue"])


def sent_kbps(cell: Cell) -> dict[str, float]:
    """The mean rate of payload of each group that sends messages."""
    found = {}
    for group, flow in flows_of(cell).items():
        interval = flow["application"]["interval"]
        mean_ms = sum(float(interval[end].removesuffix(" ms")) for end in ("low", "high")) / 2
        headers = 0 if group == "background" else 28
        payload = int(flow["transport"]["packet"].removesuffix(" bytes")) - headers
        found[group] = 8 * payload / mean_ms
    return found


@pytest.mark.parametrize("reading", ["measured", "background", "one queue", "camera"])
def test_flows_send_what_figure_6_says_that_they_sent(reading: str) -> None:
    for test, cell in cells_of(reading).items():
        found = sent_kbps(cell)
        found.pop("background", None)
        sent = {"nv": VIDEO_SENT.get(test), "tg": GENERATORS_SENT.get(test)}
        assert found == {
            group: pytest.approx(rate, abs=0.05) for group, rate in sent.items() if rate
        }, test


def test_the_profile_sends_614_and_540_in_every_test() -> None:
    for cell in cells_of("profile").values():
        for group, rate in sent_kbps(cell).items():
            assert rate == pytest.approx({"nv": 614.4, "tg": 540.0}[group], abs=0.5)


def test_the_background_is_what_c2_leaves_of_a_full_line() -> None:
    assert pytest.approx(1500 - 520 * 1308 / 1280 - 600 * 1052 / 1024) == declared.BACKGROUND_KBPS
    for name in ("fig6", "fig10", "ack-path"):
        for cell in cells_of("background", name).values():
            flows = flows_of(cell)["background"]
            queue = queue_of(cell)
            assert flows["count"] == 8
            assert (queue["limit"], queue["resume"]) == ("40 packets", "10 packets")
    found = sent_kbps(cells_of("background")["C2"])
    assert 8 * found["background"] == pytest.approx(352.2, abs=0.1)


def test_one_queue_has_no_conversations() -> None:
    for name in ("fig6", "fig10", "ack-path"):
        for cell in cells_of("one queue", name).values():
            assert queue_of(cell)["unreserved"] == "together"
            assert queue_of(cells_of("measured", name)["C2"])["unreserved"] == "by-flow"


def test_the_camera_changes_the_rhythm_of_the_video_alone() -> None:
    for test, cell in cells_of("camera").items():
        flows, usual = flows_of(cell), flows_of(cells_of("measured")[test])
        assert flows.get("tg") == usual.get("tg")
        if "nv" in flows:
            assert flows["nv"]["application"]["interval"]["low"] == "1 ms"
    for name in ("fig10", "fig11", "fig12", "ack-path"):
        assert READINGS["camera"].of(CLAIMS[name]) is CLAIMS[name]
        assert READINGS["profile"].of(CLAIMS[name]) is CLAIMS[name]


@pytest.mark.parametrize("reading", READINGS)
def test_every_setting_of_a_reading_is_a_scenario(reading: str) -> None:
    for claim in CLAIMS.values():
        for cell in READINGS[reading].of(claim).cells("full")[::20]:
            NativeEngine().load(cell.scenario, cell.overrides)


def test_real_packets_are_as_they_were_run_under_every_reading() -> None:
    for claim in PAPER.claims:
        if claim.world is World.EMULATION:
            assert all(reading.of(claim) is claim for reading in PAPER.readings)


def test_each_claim_names_its_headline() -> None:
    for name, claim in CLAIMS.items():
        images_ = name in ("fig10", "fig11", "fig12")
        given = acks(1.0) if name == "ack-path" else images() if images_ else published()
        finding = claim.judge(given)
        assert claim.conjecture or finding.check(claim.headline) is not None
        assert bool(claim.headline) is not claim.conjecture


def test_traffic_of_others_is_in_no_flow_of_table_1() -> None:
    whole = published()
    more = (
        whole.table("intervals")
        .head(1)
        .with_columns(pl.lit("background").alias("group"), pl.lit(9e9).alias("received_bps"))
    )
    given = Given(
        intervals=pl.concat([whole.table("intervals"), more]), messages=whole.table("messages")
    )
    assert CLAIMS["fig6"].judge(given).holds is True


# What was recorded with real packets.


def test_recorded_real_packets_are_judged_by_the_claims_own_checks() -> None:
    found = {claim.id.partition("/")[2]: finding for claim, finding in recorded.judged()}
    emulated = {
        claim.id.partition("/")[2] for claim in PAPER.claims if claim.world is World.EMULATION
    }
    # A conjecture has no verdict, recorded or not.
    assert set(found) == emulated - {"ack-path-emulated"}
    for name, finding in found.items():
        assert None not in {check.ok for check in finding.checks}, name
    assert found["fig7-emulated"].checks[2].measured == "A1 2.16 %"
    assert found["fig6-emulated"].checks[1].values == (pytest.approx(478 / 617),)


def test_recorded_values_and_verdicts_are_those_of_the_page() -> None:
    page = (EXPERIMENTS.parent / "docs" / "experiments-qosockets.md").read_text("utf-8")
    assert "\n".join(recorded.table()) in page
    content = recorded.recorded()
    for application, head in (("nv", "### NetVideo"), ("dirm", "### DIRM")):
        part = page[page.index(head) :]
        for flow, one in content[application].items():
            (line, *_) = (row for row in part.splitlines() if row.startswith(f"| {flow} |"))
            real = [cell.split(" / ")[1] for cell in line.strip("| ").split(" | ")[1:]]
            assert real == [
                f"{one['sent']}, {one['received']}",
                *(f"{one[name]}" for name in ("loss", "delay", "jitter")),
            ]
