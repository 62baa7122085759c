"""The claims of the paper on reservations, judged on tables that satisfy them and do not."""

import polars as pl
import pytest
from conftest import EXPERIMENTS
from synthetic import Given

from ontempo.lab.claims import Claim, Finding, World
from ontempo.lab.experiments import load_papers

CLAIMS: dict[str, Claim] = {
    claim.id.partition("/")[2]: claim
    for paper in load_papers(EXPERIMENTS)
    if paper.name == "qosockets"
    for claim in paper.claims
    if claim.world is World.SIMULATION
}

FLOWS = ("A1", "A2", "A3", "B1a", "B1b", "B2a", "B2b", "C1a", "C1b", "C1c", "C2a", "C2b", "C2c")

Values = dict[str, float]

RATES: Values = dict(
    zip(FLOWS, (570, 530, 520, 560, 500, 530, 480, 250, 410, 410, 520, 330, 330), strict=True)
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
    sent = {flow: rate / (1 - LOSSES[flow] / 100) for flow, rate in RATES.items()}
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
    assert failing(finding) == ["Unreserved: about 250 kbit/s in C1a, received."]


def test_up_to_720_ms_is_asked_of_the_slower_generator_only() -> None:
    quicker = published(delay={"C2b": 640.0, "C2c": 720.0})
    assert CLAIMS["fig8"].judge(quicker).holds is True
    finding = CLAIMS["fig8"].judge(published(delay={"C2b": 640.0, "C2c": 640.0}))
    assert failing(finding) == ["The generators beside a reserved video: up to 720 ms."]


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


def test_reserved_acks_have_to_raise_the_throughput() -> None:
    assert CLAIMS["ack-path"].judge(acks(450.0)).holds is True
    assert len(failing(CLAIMS["ack-path"].judge(acks(400.0)))) == 2


# Each check at once: data that fail all that a figure asks for.


def spread(main: float, **others: float) -> Values:
    return dict.fromkeys(FLOWS, main) | others


@pytest.mark.parametrize(
    ("figure", "column", "values"),
    [
        ("fig6", "received", spread(300.0, A2=400, B2a=400, C1a=400, C2b=400, C2c=400)),
        ("fig7", "lost", spread(1.0, A1=0, C1a=10, C1b=50, C1c=50, C2b=10, C2c=10)),
        ("fig8", "delay", spread(40.0, C2a=100, C1a=3500, C1b=800, C1c=800, C2b=640, C2c=640)),
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
    seeds = [published(received={"C1b": 410.0 + more, "C2b": 410.0 - more}) for more in (-9, 0, 10)]
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
