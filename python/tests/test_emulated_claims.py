"""Claims with real packets, judged on made-up tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from conftest import EXPERIMENTS
from synthetic import Given

from ontempo.lab.beside import beside_twins, with_twins
from ontempo.lab.cells import Cell, Measurement
from ontempo.lab.claims import Check, Finding, World
from ontempo.lab.experiments import load_papers
from ontempo.lab.real_time import MACHINE
from ontempo.lab.study import Results, Study

load_papers(EXPERIMENTS)

from ontempo_experiments.pert.figures import emulated, ten_gigabits  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.pert.figures.alg1 import FLOW  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.pert.trains import Arrival  # type: ignore[import-not-found] # noqa: E402
from ontempo_experiments.psp.figures import emulated as spacing  # type: ignore[import-not-found] # noqa: E402

PAPERS = ("pert", "psp", "rr3216")

QUICK_REAL_S = 720
"""What all rows with real packets of these papers may take together; a film alone takes about half
of it."""


def machine(late_s: float = 200e-6) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "kernel": ["6.18"],
            "load_before": [0.5],
            "load_after": [1.0],
            "lateness_p99_s": [late_s],
        }
    )


def test_the_quick_rows_take_twelve_minutes_at_most_and_every_one_names_its_row() -> None:
    claims = [claim for paper in load_papers(EXPERIMENTS) for claim in paper.claims]
    ours = [claim for claim in claims if claim.id.endswith("-emulated")]
    assert {claim.id for claim in ours} >= {"pert/fig2-emulated", "psp/spacing-emulated"}
    assert all(claim.world is World.EMULATION for claim in ours)
    assert all(claim.answers == claim.id.partition("/")[2][: -len("-emulated")] for claim in ours)
    cells = {cell for claim in ours if claim.paper in PAPERS for cell in claim.cells("quick")}
    assert sum(cell.cost for cell in cells if cell.real) <= QUICK_REAL_S


def test_a_real_cell_is_judged_beside_its_twin(study: Study) -> None:
    def write(_cell: Cell, folder: Path) -> None:
        pl.DataFrame({"value": [7]}).write_parquet(folder / "flows.parquet")

    def judge(results: Results) -> Finding:
        rows = results.table("flows").height
        return Finding([], [Check("One row.", "1", str(rows), rows == 1, "the model")])

    cells = with_twins([Cell(Path("video.toml"), (), 0, (), 5.0, Measurement("made", write))])
    finding = beside_twins(judge, "the kernel")(study.run(study.plan(cells)))
    (check,) = finding.checks
    assert check.measured.startswith("1. Simulated alike: ")
    assert check.cause == "the kernel"
    assert "load" in finding.notes[0]


def received(numbers: Sequence[int], answers: Mapping[float, int], late_s: float = 200e-6) -> Given:
    """A file's packets as they came, 3 ms apart, and ACKs so many ms after the beginning."""
    base = {"flow": 0, "retransmission": 0}
    rows = [
        {
            **base,
            "link": f"right -> {FLOW}.sink",
            "kind": "data",
            "number": number,
            "size_bytes": 1000,
            "started_s": place * 3e-3,
            "time_s": place * 3e-3,
        }
        for place, number in enumerate(numbers)
    ]
    rows += [
        {
            **base,
            "link": f"{FLOW}.sink -> right",
            "kind": "ack",
            "number": number,
            "size_bytes": 52,
            "started_s": ms * 1e-3,
            "time_s": ms * 1e-3,
        }
        for ms, number in answers.items()
    ]
    flows = pl.DataFrame({"transfers": [1]})
    return Given(packets=pl.DataFrame(rows), flows=flows, **{MACHINE: machine(late_s)})


def test_linux_receiver_is_judged_by_gaps_and_by_the_end_alone() -> None:
    # Packets 1 and 2 are overtaken: 3 and 4 arrive 4.8 ms after they started at 3 and 6 ms.
    prompt = {4.9: 1, 7.9: 1, 10.9: 1, 13.9: 2, 17.0: 5}
    finding = emulated.judge_receiver(received([0, 3, 4, 1, 2], prompt))
    assert [check.ok for check in finding.checks] == [True, True, None, None]
    assert finding.holds is None
    late = {4.9: 1, 10.2: 1, 17.0: 5}
    finding = emulated.judge_receiver(received([0, 3, 4, 1, 2], late))
    assert finding.checks[0].ok is False
    busy = emulated.judge_receiver(received([0, 3, 4, 1, 2], late, late_s=2e-3))
    assert busy.checks[0].ok is None
    silent = emulated.judge_receiver(received([0, 1, 2], {4.9: 1, 8.0: 2}))
    assert silent.checks[1].ok is False


def test_what_lies_beyond_a_gap_ends_with_the_packet_that_fills_it() -> None:
    seen = [Arrival(float(place), number) for place, number in enumerate([0, 2, 3, 1, 4])]
    assert [one.number for one in emulated.out_of_order(seen)] == [2, 3]


@pytest.mark.parametrize(
    ("pert", "cubic", "ok"),
    [(9.4e9, 9.4e9, True), (7e9, 6.8e9, None), (5e9, 9.5e9, False)],
)
def test_a_link_that_cubic_does_not_fill_either_leaves_pert_undecided(
    pert: float, cubic: float, *, ok: bool | None
) -> None:
    rows = [
        {
            "control": control,
            "received_bps": bps,
            "retransmitted": 3,
            "sender_cpu": 0.9,
            "receiver_cpu": 0.8,
        }
        for control, bps in (("pert", pert), ("cubic", cubic))
    ]
    tables = {"transfer": pl.DataFrame(rows), MACHINE: machine()}
    (check,) = ten_gigabits.judge(Given(**tables)).checks
    assert check.ok is ok
    assert ("cannot tell" in check.measured) is (ok is None)
    tables["transfer"] = tables["transfer"].filter(control="pert")
    (alone,) = ten_gigabits.judge(Given(**tables)).checks
    assert (alone.ok, alone.measured) == (None, "nothing over cubic")


def agents(study: Study, share: float, gap_us: float) -> Finding:
    """The spacing's verdict where agents send a share of what they should, at some distance."""

    def write(cell: Cell, folder: Path) -> None:
        us = dict(cell.labels)["spacing_us"]
        planned = 3.0 / ((int(us) + 114.24) * 1e-6)
        flow = {"group": "psa", "sent_packets": int(planned * share)}
        pl.DataFrame([flow] * spacing.AGENTS).write_parquet(folder / "flows.parquet")
        apart = (int(us) + gap_us) * 1e-6
        times = [place * apart for place in range(200)]
        pl.DataFrame({"time_s": times, "size_bytes": 1428}).write_parquet(
            folder / "packets.parquet"
        )

    made = Measurement(f"made {share} {gap_us}", write)
    cells = [
        replace(cell, scenario=Path("video.toml"), overrides=cell.overrides, real=made)
        for cell in spacing.cells("quick")
        if cell.real
    ]
    finding: Finding = spacing.judge(study.run(study.plan(cells)))
    return finding


def test_agents_that_do_not_keep_up_leave_checks_undecided(study: Study) -> None:
    assert all(check.ok for check in agents(study, 1.0, 114.24).checks[3:])
    busy = agents(study, 0.6, 900)
    assert busy.holds is None
    assert all("agents sent 60% of what" in check.measured for check in busy.checks)
    assert [check.ok for check in agents(study, 1.0, 900).checks[3:]] == [False] * 3
    assert "60.0% at 1500 μs" in busy.notes[-1]
