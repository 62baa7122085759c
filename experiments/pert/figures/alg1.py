"""Algorithms 1 to 3: the adaptive delayed ACK."""

from ontempo.lab.claims import Check, Claim, Finding, World
from ontempo.lab.judging import all_counted, judged, number
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.study import Results

from ..extensions import acknowledgement_cells, scaling
from ..trains import MAX_TRAIN, AdaptiveReceiver, Answer, answers, arrivals, covered

FLOW = "file.0"
ROUNDING_S = 1e-6
"""Tolerance of times in a table, and of a mean interval in whole nanoseconds, in seconds."""

AROUND_S = 0.15
"""The time around the first loss that is drawn."""


def judge(results: Results) -> Finding:
    """Compare each ACK with the algorithms, recomputed from the packets that arrived."""
    packets = results.table("packets")
    seen, answered = arrivals(packets, FLOW), answers(packets, FLOW)
    meant = AdaptiveReceiver().run(seen)
    times = [answer.time_s for answer in answered]
    at_once = [one for one in meant.at_once if _near(one.time_s, times)]
    counts = covered(seen, answered)
    timed = [one for one in meant.by_timer if _near(one.time_s, times)]
    last = answered[-1] if answered else Answer(0.0, 0)
    packets_in_file = 1 + max((one.number for one in seen), default=-1)
    finished = int(results.table("flows")["transfers"].sum())
    checks = [
        all_counted(
            "A packet that is not in order is acknowledged at once.",
            "every one",
            (len(at_once), len(meant.at_once)),
        ),
        judged(
            "An ACK covers one to four packets.",
            "1 to 4",
            lambda: f"{min(counts)} to {max(counts)}",
            {
                "the least of an ACK": min(counts, default=None),
                "the most": max(counts, default=None),
            },
            lambda: min(counts) >= 1 and max(counts) == MAX_TRAIN,
        ),
        all_counted(
            "An ACK that is held goes out after twice the smoothed time between arrivals.",
            "every one",
            (len(timed), len(meant.by_timer)),
        ),
        Check(
            "Every ACK leaves when algorithms 1 to 3 say, and for the packet that they say.",
            "the same",
            _compared(meant.acks, answered),
            _same(meant.acks, answered) if meant.acks else None,
            values=(float(len(answered)), float(len(meant.acks))),
        ),
        Check(
            "The last packets are acknowledged although none follows: no deadlock.",
            "acknowledged",
            f"packet {packets_in_file:,} of {packets_in_file:,},"
            f" {number((last.time_s - seen[-1].time_s) * 1e3)} ms after it arrived"
            if seen and last.number == packets_in_file
            else f"{last.number:,} of {packets_in_file:,}",
            last.number == packets_in_file and finished == 1 if seen else None,
            values=(float(last.number), float(packets_in_file)),
        ),
    ]
    middle = meant.at_once[0].time_s if meant.at_once else 0.0
    shown = [one for one in seen if abs(one.time_s - middle) <= AROUND_S]
    replies = [one for one in answered if abs(one.time_s - middle) <= AROUND_S]
    series = [
        Series("data received", "step-4", {one.time_s: exact(one.number) for one in shown}),
        Series(
            "ACK sent",
            "step-0",
            {one.time_s: exact(one.number) for one in replies},
            symbol="diamond",
        ),
    ]
    figure = Figure(
        "Packets received and ACKs sent around the first loss: one ACK for four packets before it,"
        " one for each packet after it.",
        Axis("Time (s)"),
        Axis("Packet number"),
        [View("", series)],
    )
    return Finding(
        [figure],
        checks,
        [
            "Read as they must have been meant: the count of held packets, not the threshold, is"
            " compared with the threshold and cleared at a gap; the mean begins with the first"
            " interval seen. The ACKs are held against a second writing of the algorithms."
        ],
    )


def _near(time: float, times: list[float]) -> bool:
    return any(abs(time - other) <= ROUNDING_S for other in times)


def _same(meant: list[Answer], found: list[Answer]) -> bool:
    return len(meant) == len(found) and all(
        a.number == b.number and abs(a.time_s - b.time_s) <= ROUNDING_S
        for a, b in zip(meant, found, strict=True)
    )


def _compared(meant: list[Answer], found: list[Answer]) -> str:
    for place, (a, b) in enumerate(zip(meant, found, strict=False)):
        if a.number != b.number or abs(a.time_s - b.time_s) > ROUNDING_S:
            return (
                f"ACK {place + 1:,} is of {b.number:,} at {b.time_s:.6f} s, not of {a.number:,} at"
                f" {a.time_s:.6f} s"
            )
    return f"{len(found):,} ACKs, {len(meant):,} computed"


CLAIM = Claim(
    id="pert/alg1-3",
    title="Adaptive delayed acknowledgement",
    world=World.SIMULATION,
    published="A receiver acknowledges a packet out of order at once, covers one to four packets"
    " with an ACK as long as they come in order, and waits no longer than twice the smoothed"
    " time between arrivals, so that the end of the data brings no deadlock.",
    expectation="At once on a gap; 1 to 4 packets to an ACK; a timer of twice the smoothed"
    " inter-arrival time; the last packet acknowledged; each ACK as the algorithms say.",
    cells=acknowledgement_cells,
    judge=judge,
    scaling=scaling(acknowledgement_cells),
)
