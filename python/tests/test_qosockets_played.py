"""The testbed with real packets: tables from programs' reports, and how they are judged."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from conftest import EXPERIMENTS
from made import Made
from synthetic import Given

from ontempo.lab.cells import Cell
from ontempo.lab.claims import Check, World
from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.experiments import load_papers

CLAIMS = {
    claim.id.partition("/")[2]: claim
    for paper in load_papers(EXPERIMENTS)
    if paper.name == "qosockets"
    for claim in paper.claims
    if claim.world is World.EMULATION
}

from ontempo_experiments.qosockets import played  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.qosockets.disturbed import VIOLATED_COLUMN  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.qosockets.emulated import SOCKETS  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.qosockets.testbed import classes_of, rate_of  # type: ignore[import-not-found] # noqa: E402

MACHINE = pl.DataFrame(
    {"kernel": ["6.18"], "load_before": [0.5], "load_after": [1.0], "lateness_p99_s": [None]},
    schema_overrides={"lateness_p99_s": pl.Float64},
)

QUICK_REAL_S = 330
"""What all of them may take together; measured on a busy machine it was less."""

MS = 1_000_000


def flow(group: str = "nv") -> Any:
    return SimpleNamespace(group=group, index=0)


def test_every_row_of_the_paper_is_checked_with_real_packets_in_the_time_that_there_is() -> None:
    rows = ("fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12", "ack-path")
    others = {"coercion", "no-loss", "overhead", "violation"}
    assert set(CLAIMS) == {f"{row}-emulated" for row in rows} | others
    cells = {cell for claim in CLAIMS.values() for cell in claim.cells("quick") if cell.real}
    runs = {(cell.scenario, cell.overrides, cell.seed, cell.real): cell.cost for cell in cells}
    assert sum(runs.values()) <= QUICK_REAL_S


def test_reports_of_both_ends_are_paired_and_missing_messages_are_lost() -> None:
    sent = [{"event": "sent", "number": n, "bytes": 100, "time_ns": n * 250 * MS} for n in range(8)]
    received = [
        {"event": "received", "number": n, "time_ns": n * 250 * MS + 20 * MS + n, "delay_ns": 7 + n}
        for n in range(8)
        if n != 2
    ]
    pairs = played._pairs(flow(), [*sent, {"event": "summary"}], received)
    intervals = played.interval_rows(flow(), pairs, 0, 1500 * MS)
    assert intervals["sent_messages"].to_list() == [2, 2, 2]
    assert intervals["received_messages"].to_list() == [2, 1, 2]
    assert intervals["lost_messages"].to_list() == [0, 1, 0]
    assert intervals["sent_bps"].to_list() == [3200.0, 3200.0, 3200.0]
    messages = played.message_rows(flow(), pairs, 0, 1500 * MS)
    assert messages["message"].to_list() == [0, 1, 3, 4, 5]
    assert messages["jitter_s"].to_list()[0] is None
    assert messages["jitter_s"].to_list()[2] == pytest.approx(2e-9)


def test_an_image_is_delayed_from_its_sending_to_its_last_byte() -> None:
    reports = [
        {"event": "image", "number": 0, "bytes": 9, "asked_ns": 1, "sent_ns": 5, "received_ns": 25},
        {"event": "summary"},
    ]
    assert played._pairs(flow("images"), reports, reports) == [played.Message(0, 9, 5, 25, 20)]


def test_tc_is_read_as_it_prints() -> None:
    text = (
        "class htb 1:1001 parent 1:1 leaf c92e: prio 7 rate 852480bit ceil 1500Kbit burst 2664b\n"
        " Sent 641592 bytes 510 pkt (dropped 3, overlimits 0 requeues 0) \n"
        " backlog 0b 0p requeues 0\n"
    )
    assert list(classes_of(text)) == [("1:1001", 641592, 510, 3)]
    assert rate_of(text, "1:1001") == "852480bit"


@pytest.mark.parametrize("bad", ["Sent many bytes", "Sent -1 bytes", "Sent 641592"])
def test_a_number_of_tc_that_cannot_be_read_is_an_error_with_its_text(bad: str) -> None:
    text = (
        "class htb 1:1001 parent 1:1 leaf c92e: prio 7 rate 852480bit ceil 1500Kbit burst 2664b\n"
        f" {bad} 510 pkt (dropped 3, overlimits 0 requeues 0) \n"
    )
    with pytest.raises(UnfitEnvironmentError, match=r"tc class show: (bytes|Sent): "):
        list(classes_of(text))


def agreements(peak: str) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "coerced": [True, True, False, False],
            "end": ["sender", "receiver"] * 2,
            "agreed": [peak, peak, None, None],
            "told": ["reservation: controlled load"] * 2 + ["they differ: peak_rate"] * 2,
            "reserved": [True, True, False, False],
        }
    )


def test_both_ends_must_agree_on_the_smaller_rate() -> None:
    judge = CLAIMS["coercion"].judge
    good = Given(agreements=agreements("60 messages/s"), machine=MACHINE)
    assert judge(good).holds is True
    bad = Given(agreements=agreements("64 messages/s"), machine=MACHINE)
    assert [check.ok for check in judge(bad).checks] == [False, True, True]


def back_at(silent_s: float, *, back: bool) -> list[float]:
    """When messages arrive again, from then on once a second until the run ends."""
    first = 1.0 + silent_s
    return [first + step for step in range(round(16 - first) + 1)] if back else []


def disturbed(*, silent_s: float, notified: bool, back: bool = True, before: bool = True) -> Given:
    """Three disturbances; the flow comes `back` after the long cut, or never does."""
    second = 1_000_000_000
    parts = ("restart", "short cut", "long cut")
    rows = [
        ("over", end, "violation", name, "begins", "5 %", "35 %")
        for end in ("sender", "receiver")
        for name in ("loss", "max_delay")
    ]
    if notified:
        rows += [
            ("long cut", end, "violation", "rec_time", "begins", "5 s", "5.2 s")
            for end in ("sender", "receiver")
        ]
    names = ("part", "end", "event", "parameter", "turn", "asked", "delivered")
    phases = [
        (part, phase, at * second)
        for part in parts
        for phase, at in (("disturbed", 0), ("cut", 1), ("reserved again", 12), ("ended", 16))
    ]
    phases += [("over", "disturbed", 0), ("over", "ended", second)]
    arrivals = [(part, -second // 2) for part in parts if before] + [
        (part, round(at * second))
        for part in parts
        for at in (0.5, 1.0, *back_at(silent_s if part == "long cut" else 2.0, back=back))
    ]
    return Given(
        told=pl.DataFrame(rows, schema=names, orient="row"),
        phases=pl.DataFrame(phases, schema=("part", "phase", "time_ns"), orient="row"),
        arrivals=pl.DataFrame(arrivals, schema=("part", "time_ns"), orient="row"),
        snmp=pl.DataFrame({"line": [f".1.3.6{VIOLATED_COLUMN}2.9 = 1"]}),
        machine=MACHINE,
    )


def test_a_flow_recovers_in_time_or_its_application_is_notified() -> None:
    judge = CLAIMS["violation"].judge
    assert judge(disturbed(silent_s=8.0, notified=True)).holds is True
    assert judge(disturbed(silent_s=3.0, notified=False)).holds is True
    silent = judge(disturbed(silent_s=8.0, notified=False))
    assert [check.ok for check in silent.checks] == [True] * 5 + [False]


def test_a_flow_that_never_returns_does_not_recover() -> None:
    judge = CLAIMS["violation"].judge
    gone = judge(disturbed(silent_s=3.0, notified=False, back=False))
    assert [check.ok for check in gone.checks] == [True] * 3 + [False] * 3
    assert "longest silence 15 s" in gone.checks[3].measured


def test_a_flow_that_never_arrived_is_undecided() -> None:
    judge = CLAIMS["violation"].judge
    unseen = judge(disturbed(silent_s=3.0, notified=False, before=False))
    assert [check.ok for check in unseen.checks] == [True] * 3 + [None] * 3
    whole = disturbed(silent_s=3.0, notified=False)
    empty = Given(**{n: t.clear() for n, t in whole._given.items()} | {"machine": MACHINE})
    assert {check.ok for check in judge(empty).checks} == {None}


def test_an_agreement_without_reports_is_undecided() -> None:
    none = Given(agreements=agreements("60 messages/s").clear(), machine=MACHINE)
    assert {check.ok for check in CLAIMS["coercion"].judge(none).checks} == {None}


def test_a_program_that_ends_too_soon_is_reported_with_its_last_message(tmp_path: Path) -> None:
    from ontempo_experiments.qosockets.testbed import Program  # noqa: PLC0415

    words = ["sh", "-c", 'echo \'{"event": "listening"}\'; echo no port >&2; exit 3']
    one = Program("nv.0.sink", words, tmp_path, {})
    assert one.wait_for("listening") == {"event": "listening"}
    with pytest.raises(Exception, match=r"nv\.0\.sink reported no received: no port"):
        one.wait_for("received")


def test_none_of_nothing_is_no_proof_of_no_loss() -> None:
    def judge(sent: int, lost: int, without: str = "") -> Check:
        rows = [(test, "images", 0) for test in ("A1", "A2", "B1", "B2", "C1", "C2")]
        rows.append(("A3", "tg", 0))
        rows += [(f"B{n}", "tg", 0) for n in (1, 2)]
        rows += [(f"C{n}", "tg", index) for n in (1, 2) for index in (0, 1)]
        table = pl.DataFrame(
            [
                {"test": test, "group": group, "index": index}
                | {"sent_messages": 0 if test == without else sent, "lost_messages": lost}
                for test, group, index in rows
            ]
        )

        def of_test(cell: Cell) -> dict[str, pl.DataFrame]:
            own = table.filter(test=str(dict(cell.labels)["test"])).drop("test")
            return {"intervals": own, "machine": MACHINE}

        claim = CLAIMS["no-loss"]
        (check,) = claim.judge(Made(tuple(claim.cells("quick")), of_test)).checks
        return check

    assert judge(10, 0).ok is True
    assert judge(10, 1).ok is False
    assert judge(0, 0).ok is None
    silent = judge(10, 0, without="A3")
    assert (silent.ok, "nothing was sent in A3" in silent.measured) == (None, True)


def test_overhead_is_undecided_without_messages_and_fails_beyond_one_per_cent() -> None:
    def judge(later: float, rows: int = 9) -> list[bool | None]:
        def make(cell: Cell) -> dict[str, pl.DataFrame]:
            labels = dict(cell.labels)
            slower = 1 + (later if labels["sockets"] == SOCKETS[1] else 0.0)
            group = "nv" if labels["application"] == "nv" else "images"
            messages = pl.DataFrame(
                {
                    "group": [group] * 9,
                    "message": range(9),
                    "payload_bytes": [1000] * 9,
                    "received_s": [0.1 * slower * number for number in range(9)],
                    "delay_s": [0.01 * slower] * 9,
                }
            )
            return {"messages": messages.head(rows), "machine": MACHINE}

        claim = CLAIMS["overhead"]
        finding = claim.judge(Made(tuple(claim.cells("quick")), make))
        return [check.ok for check in finding.checks]

    assert judge(0.005) == [True, True, True]
    assert judge(0.02) == [False, False, False]
    assert judge(0.0, rows=0) == [None, None, None]
