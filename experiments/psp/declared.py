"""The paper's readings: sets of choices where its text is open, each applied to all claims.

The numbers in brackets are sections of the paper. What was known when they were written is in
``docs/experiments-psp.md``.
"""

from collections.abc import Callable
from dataclasses import replace

from ontempo.lab.claims import Choice, Reading
from ontempo.lab.readings import simulated, with_settings
from ontempo.lab.study import Cell

from .grid import ADAPTIVE, ADAPTIVE_MEDIA, ADAPTIVE_TCP, AQM, MIXED, PSA

AGENTS = {PSA: ("psa",), MIXED: ("psa",), AQM: ("media",)} | dict.fromkeys(
    (ADAPTIVE, ADAPTIVE_TCP), ("first", "second")
)
"""Each scenario's groups of agents."""

WITH_TCP = (MIXED, ADAPTIVE_TCP, AQM)

NOISE = "73.7 us"
"""A packet's time at the gateway."""

Change = Callable[[Cell], Cell]


def adapts(cell: Cell) -> bool:
    """Whether the agents of a cell adapt their spacing."""
    media = dict(cell.labels).get("media")
    return cell.scenario in (ADAPTIVE, ADAPTIVE_TCP) or media in ADAPTIVE_MEDIA


def of_agents(*settings: str) -> Change:
    """Other settings of every agent's transport."""
    return lambda cell: with_settings(
        cell,
        *(
            f"flows.{group}.transport.{setting}"
            for group in AGENTS[cell.scenario]
            for setting in settings
        ),
    )


def of_tcp(*settings: str) -> Change:
    """Other settings of every TCP's transport."""
    return lambda cell: (
        with_settings(cell, *(f"flows.tcp.transport.{setting}" for setting in settings))
        if cell.scenario in WITH_TCP
        else cell
    )


def both(first: Change, second: Change) -> Change:
    """One after the other."""
    return lambda cell: second(first(cell))


def on_fresh(cell: Cell) -> Cell:
    """Agents that decide on fresh reports."""
    return of_agents('feedback="fresh"')(cell) if adapts(cell) else cell


def by_last_decision(cell: Cell) -> Cell:
    """Damped PSP that looks at its last decision alone."""

    def renamed(text: str) -> str:
        return text.replace('"psp-damped"', '"psp-damped-last"')

    named = replace(cell, overrides=tuple(renamed(text) for text in cell.overrides))
    if cell.scenario not in (ADAPTIVE, ADAPTIVE_TCP) or any(
        "controller" in text for text in cell.overrides
    ):
        return named
    return of_agents('controller="psp-damped-last"')(cell)


def with_noise(cell: Cell) -> Cell:
    """Hosts that send up to a packet's time later."""
    return with_settings(cell, f'hosts.jitter="{NOISE}"')


from_start = both(of_agents('spacing-from="start"', 'packet="1400 B"'), of_tcp('packet="1400 B"'))
"""Spacing from start to start, and the size of packets that follows from it."""


FROM_THE_END = Choice(
    "Spacing is from the end of a packet to the start of the next, and a packet has 1,428 bytes on"
    " the wire.",
    "figure 3 draws the spacing beside the time of transmission; without spacing an agent then"
    " fills its 100 Mbit/s (3.2.2); 1,400 bytes and 28 of headers at 5000 μs are 2.234 Mbit/s"
    " (3.2.3: 2.23), and 1500 + 114.24 - 73.70 are 1540.54 μs at the receiver (3.2.4: 1540.6).",
    "11 Mbit/s at 1000 to 1050 μs (3.2.3): from the end at most 10.3.",
)
EACH_REPORT = Choice(
    "The sender decides at each report, one in a base round trip.",
    "(2.1): a report comes in each round trip, and as it comes the sender compares and adapts; to"
    " find any spacing up to 2000 μs it takes seven round trips, which is a doubling in each.",
    "a report tells of packets sent a round trip ago: a loss doubles the spacing again before the"
    " first doubling can show, and the oscillations are to be small (2.2, 3.3).",
)
AS_SENT = Choice(
    "A loss is due to a decrease if the lost packets were sent under it.",
    "(2.2) asks for the cause of the loss, and packets sent before a decrease are not lost by it.",
    "the last decision is simpler to look at.",
)
NO_NOISE = Choice(
    "Hosts send without delay.",
    "the paper has no processing time, and ns-2's (`overhead_`) is zero by default.",
    "the published deviation of the spacing at the receiver leaves room for one.",
)
FRESH = Choice(
    "The sender waits after a change of the spacing until a report covers only packets sent since.",
    "(2.2): that a loss comes of a decrease can be told only from packets sent after it, and a"
    " report of earlier ones says nothing about the present spacing; doublings that repeat before"
    " the first one shows exclude small oscillations around the ideal rate (figures 5, 16 to 18)"
    " and an unharmed throughput (abstract).",
    "(2.1): seven round trips up to 2000 μs are one decision in a round trip; this takes two or"
    " three for each.",
)
PACKET_OF_NOISE = Choice(
    "Each packet leaves its host up to 73.7 μs late, uniformly: a packet's time at the gateway.",
    "a random time of that length is what keeps senders from meeting a full queue in the same order"
    " for ever (Floyd and Jacobson, 1992), and ns-2 has it (`overhead_`). The published deviation"
    " of 64.75 μs (3.2.4) allows it: two such times differ with a deviation of 73.7/√6 = 30.1 μs,"
    " which leaves 57.3 μs to the wait behind other packets; only 159 μs would use it up. All 16"
    " agents are alike (3.2.2), and two lie on the line of fairness (figure 17), which senders in"
    " step do not.",
    "the paper has no processing time, and ns-2's is zero by default.",
)
FROM_THE_START = Choice(
    "Spacing is from the start of a packet to the start of the next, and a packet has 1,400 bytes"
    " on the wire.",
    "11 Mbit/s at 1000 to 1050 μs (3.2.3) are 1,400 bytes from start to start: 11.2 and 10.7; a"
    " timer in ns-2 runs so; 2.23 Mbit/s at 5000 μs are 1,394 bytes.",
    "figure 3, and 1540.6 μs at the receiver: with this choice it would be less than 1500.",
)
LAST_DECISION = Choice(
    "A loss is due to a decrease if the decision before the report was one.",
    "(2.2): the sender returns to the spacing before; a sender that remembers one spacing can do no"
    " more.",
    "packets reported as lost were sent before that decision.",
)

READINGS = [
    Reading(
        "each report",
        "The definitions as drawn and told. (In brackets: sections.)",
        [FROM_THE_END, EACH_REPORT, AS_SENT, NO_NOISE],
    ),
    Reading(
        "fresh feedback",
        "As each report, but for when the sender decides.",
        [FRESH],
        simulated(on_fresh),
    ),
    Reading(
        "host noise",
        "As each report, but for when hosts send.",
        [PACKET_OF_NOISE],
        simulated(with_noise),
    ),
    Reading(
        "fresh feedback and host noise",
        "Both.",
        [FRESH, PACKET_OF_NOISE],
        simulated(both(on_fresh, with_noise)),
    ),
    Reading(
        "start to start",
        "As each report, but for where the spacing begins.",
        [FROM_THE_START],
        simulated(from_start),
    ),
    Reading(
        "last decision",
        "As each report, but for what a loss is laid to.",
        [LAST_DECISION],
        simulated(by_last_decision),
    ),
]
"""The primary one first.

It follows the words and the drawing where they say something, and ns-2's default where they do not.
"""
