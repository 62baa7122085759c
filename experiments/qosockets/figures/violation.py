"""Section II.C: whether an application is notified of violations of its specification."""

from collections.abc import Mapping
from itertools import pairwise

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import number
from ontempo.lab.real_time import MACHINE, circumstances
from ontempo.lab.study import Results

from ..causes import UNHEARD
from ..disturbed import REC_TIME_S, VIOLATED_COLUMN, disturbed_cells

ENDS = ("sender", "receiver")
NAMES = {"6": "max_delay", "9": "loss", "2": "max_rate"}
"""Parameters by their place in the MIB."""


def begun(results: Results, part: str, parameter: str) -> dict[str, str]:
    """By end, the values requested and delivered when a violation began."""
    table = results.table("told").filter(
        part=part, event="violation", parameter=parameter, turn="begins"
    )
    rows = table.group_by("end", maintain_order=True).first()
    return {
        row["end"]: f"asked {row['asked']}, delivered {row['delivered']}"
        for row in rows.iter_rows(named=True)
    }


def notified(results: Results, part: str, parameter: str, sentence: str) -> Check:
    """Both ends are notified of a violation, with the values requested and delivered."""
    found = begun(results, part, parameter)
    text = "; ".join(f"{end}: {words}" for end, words in found.items())
    if results.table("phases").filter(part=part).is_empty():
        return Check(sentence, "told", f"{parameter}: it was not run", None)
    both = all(end in found for end in ENDS)
    return Check(sentence, "told", f"{parameter}: {text or 'not told'}", both)


def shown(results: Results) -> Check:
    """The check of SNMP's values while the video sends more than is reserved."""
    lines = results.table("snmp")["line"].to_list()
    violated = {line.partition(" ")[0] for line in lines if line.endswith("= 1")}
    names = sorted(
        {
            NAMES[oid.rpartition(".")[2]]
            for oid in violated
            if VIOLATED_COLUMN in oid and oid.rpartition(".")[2] in NAMES
        }
    )
    text = f"violated: {', '.join(names) or 'nothing'}" if lines else "net-snmp is missing"
    return Check("The MIB shows it.", "shown", text, bool(names) if lines else None)


PHASES = ("disturbed", "cut", "reserved again", "ended")


def spans(results: Results, part: str) -> tuple[float, float] | None:
    """Seconds from the disturbance to the reservation's return, and the longest silence in it.

    The silence from the last arrival to the end of the run counts: a flow that never comes back
    is silent until then. None if a phase is missing, or nothing had arrived before.
    """
    phases = dict(results.table("phases").filter(part=part).select("phase", "time_ns").iter_rows())
    if not all(phase in phases for phase in PHASES):
        return None
    times = sorted(results.table("arrivals").filter(part=part)["time_ns"].to_list())
    before = [time for time in times if time <= phases["disturbed"]]
    if not before:
        return None
    during = [time for time in times if phases["disturbed"] < time < phases["ended"]]
    silences = (b - a for a, b in pairwise([before[-1], *during, phases["ended"]]))
    return (phases["reserved again"] - phases["cut"]) / 1e9, max(silences) / 1e9


def _words(found: Mapping[str, str]) -> str:
    return "; ".join(f"violated, told to the {end}: {words}" for end, words in found.items())


def recovered(results: Results, part: str, sentence: str) -> Check:
    """The flow resumes within the recovery time, or the application is notified."""
    found = spans(results, part)
    if found is None:
        text = "nothing arrived before it, or it was not run to its end"
        return Check(sentence, "recovers, or is told", text, None, UNHEARD)
    away_s, silent_s = found
    disrupted = begun(results, part, "rec_time")
    text = f"reserved again after {number(away_s)} s, longest silence {number(silent_s)} s"
    text += f", rec_time {_words(disrupted) or 'kept'}"
    within = silent_s <= REC_TIME_S and not disrupted
    beyond = silent_s > REC_TIME_S and all(end in disrupted for end in ENDS)
    ok = within or beyond
    return Check(sentence, "recovers, or is told", text, ok, UNHEARD, (away_s, silent_s))


def lost(results: Results, part: str) -> str:
    """The events at the sender of a reservation that was lost and restored, for the notes."""
    rows = results.table("told").filter(part=part, event="reservation", end="sender")
    return ", ".join(rows["turn"])


def judge(results: Results) -> Finding:
    """Notification of each violation; recovery in time, or a notification that it was not."""
    parts = ("restart", "short cut", "long cut")
    checks = [
        notified(
            results,
            "over",
            "loss",
            "A video that sends three times what is reserved: both ends are told what was asked"
            " and delivered.",
        ),
        notified(results, "over", "max_delay", "So are they of its delay."),
        shown(results),
        recovered(results, "restart", "A router's daemon restarts, its state and classes gone."),
        recovered(results, "short cut", "The line is cut for 2 s, less than rec_time."),
        recovered(results, "long cut", "The line is cut for 8 s, longer than rec_time."),
    ]
    heard = "; ".join(f"{part}: {lost(results, part)}" for part in parts)
    notes = [
        circumstances(results.table(MACHINE)),
        "A reserved video beside two generators, test C2; rec_time is 5 s, RSVP's refresh period"
        f" 1 s. Of its reservation the sender hears: {heard}.",
    ]
    return Finding([], checks, notes)


CLAIM = Claim(
    id="qosockets/violation",
    title="A flow over its reservation, a router restarted, a link cut",
    world=World.EMULATION,
    published="What is delivered may drift from what was agreed: applications send more than they"
    " reserved, equipment fails. The sockets notice, and managers see it in the MIB.",
    expectation="The application is told, with what was asked and what was delivered; the MIB"
    " shows it; recovery within rec_time, or a violation.",
    cells=lambda _scale: disturbed_cells(),
    judge=judge,
    scaling=lambda _scale: "Each once; the paper has no numbers.",
)
