"""Chapter II, property a, with real packets: one flow on 10 Gbit/s of the kernel's own."""

from dataclasses import replace

from ontempo.lab.cells import Measurement
from ontempo.lab.claims import Cause, Check, Finding, Scale, World
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Cell, Results

from ..emulated import THESIS_PERT
from ..extensions import HIGH_SPEED
from ..veth import transfer
from . import scale

MTU = 9000
"""Bytes, of Ethernet's jumbo frames."""

CONTROLS = ("pert", "cubic")

SET_UP_S = 4
"""Overhead of a transfer beside its measured time, in seconds."""


def cells(scale_: Scale) -> list[Cell]:
    """PERT, and CUBIC for what the machine can do."""
    seconds = 6 if scale_ == "quick" else 60
    found = []
    for control in CONTROLS:
        fixed = (("rate_bps", int(scale.LINK_BPS)), ("mtu", MTU), ("seconds", seconds))
        labels = (("controller", control), *fixed)
        ours = (THESIS_PERT,) if control == "pert" else ()
        real = Measurement("iperf3 over veth and HTB", transfer, labels, ours)
        found.append(Cell(HIGH_SPEED, (), 0, labels, float(seconds + SET_UP_S), real))
    return found


def judge(results: Results) -> Finding:
    """How much of the link PERT's transfer fills, beside CUBIC's."""
    rows = {row["control"]: row for row in results.table("transfer").iter_rows(named=True)}
    sentence = "One transfer over PERT fills 10 Gbit/s."
    published = "scales to 10 Gbit/s (over 90 %)"
    if missing := [control for control in CONTROLS if control not in rows]:
        text = f"nothing over {' and '.join(missing)}"
        return Finding([], [Check(sentence, published, text, None)])
    used = {control: row["received_bps"] / scale.LINK_BPS for control, row in rows.items()}
    text = "; ".join(
        f"{control.upper()} {used[control]:.1%}, {row['retransmitted']:,} sent again,"
        f" {row['sender_cpu']:.0%} and {row['receiver_cpu']:.0%} of a core"
        for control, row in rows.items()
    )
    ok: bool | None = used["pert"] > scale.FILLED
    if not ok and used["cubic"] <= scale.FILLED:
        ok = None
        text += (
            "; cannot tell: this machine does not carry 10 Gbit/s over CUBIC either, here and now"
        )
    cause = Cause(
        "CUBIC fills the same link, so it is not the machine alone: PERT takes delays of the"
        " scheduler beyond 5 ms for queueing.",
        "the transfer over CUBIC beside it",
    )
    check = Check(sentence, published, text, ok, cause, (used["pert"], used["cubic"]))
    notes = [
        circumstances(results.table(MACHINE)),
        "Two namespaces, a veth pair, HTB at 10 Gbit/s, frames of 9,000 bytes, iperf3; no delay but"
        " the machine's, and no emulator: at most 226,000 packets a second go through it.",
    ]
    return Finding([], [check], notes)


def _scaling(scale_: Scale) -> str:
    return f"{cells(scale_)[0].cost - SET_UP_S:.0f} s each, after 2 s that do not count."


SCALE = replace(
    scale.CLAIM,
    id="pert/scale-emulated",
    row="scale",
    world=World.EMULATION,
    cells=cells,
    judge=judge,
    scaling=_scaling,
)
