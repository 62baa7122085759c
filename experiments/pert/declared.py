"""The paper's readings: sets of choices where its text is open, each applied to all claims.

They differ in how PERT's round trips are sampled, in what a loss takes, and in when hosts send. In
brackets: chapters of the thesis. What was known when they were written is in
``docs/experiments-pert.md``.
"""

import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from ontempo.lab.claims import Choice, Reading
from ontempo.lab.readings import simulated, with_settings
from ontempo.lab.study import Cell

from .grid import PERT

Change = Callable[[Cell], Cell]

OVER_PERT = {
    "coalescing.toml": ("immediate", "coalescing"),
    "flavours.toml": ("paced", "unpaced"),
    "high-speed.toml": ("ftp",),
    "homogeneous.toml": ("ftp",),
    "lone.toml": ("ftp",),
    "movie.toml": ("film",),
    "queue-share.toml": ("pert",),
    "video.toml": ("video",),
}
"""The groups over PERT by scenario, unless a cell sets another controller."""

AS_READ = PERT["reference"]
"""PERT of the primary reading, in scenarios and cells."""


def with_parameters(*parameters: str) -> Change:
    """More parameters for every group over PERT."""
    other = AS_READ.removesuffix(" }") + "".join(f", {one}" for one in parameters) + " }"

    def changed(cell: Cell) -> Cell:
        given = {one.partition("=")[0] for one in cell.overrides}
        left = [
            group
            for group in OVER_PERT.get(cell.scenario.name, ())
            if f"flows.{group}.transport.congestion" not in given
        ]
        texts = tuple(one.replace(AS_READ, other) for one in cell.overrides)
        settings = (f"flows.{group}.transport.congestion={other}" for group in left)
        return with_settings(replace(cell, overrides=texts), *settings)

    return changed


def sampled(samples: str) -> Change:
    """PERT samples round trips so.

    A flow whose samples are corrected keeps its own: equation 5.1 says from which packet they run.
    """
    change = with_parameters(f'samples = "{samples}"')

    def changed(cell: Cell) -> Cell:
        other = change(cell)
        corrected = (
            key.removesuffix(".correct-self-induced-delay")
            for key, _, value in (one.partition("=") for one in cell.overrides)
            if key.endswith(".correct-self-induced-delay") and value == "true"
        )
        return with_settings(other, *(f"{group}.congestion={AS_READ}" for group in corrected))

    return changed


@cache
def _written(scenario: Path) -> dict[str, object]:
    return tomllib.loads(scenario.read_text("utf-8"))


def _of_scenario(scenario: Path, *keys: str) -> str:
    found: object = _written(scenario)
    for key in keys:
        found = found.get(key, "") if isinstance(found, dict) else ""
    return str(found)


RATES = {"kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}

BOTTLENECK = ("topology", "bottleneck", "rate")


def packet_time_us(cell: Cell) -> float:
    """How long the bottleneck sends a packet of the flows over PERT."""
    settings = dict(one.split("=", 1) for one in cell.overrides)
    rate = settings.get(".".join(BOTTLENECK)) or _of_scenario(cell.scenario, *BOTTLENECK)
    group = OVER_PERT[cell.scenario.name][0]
    place = ("flows", group, "transport", "packet")
    size = settings.get(".".join(place)) or _of_scenario(cell.scenario, *place)
    (number, unit), (packet, _) = (_measure(text) for text in (rate, size))
    return packet * 8 / (number * RATES[unit]) * 1e6


def _measure(text: str) -> tuple[float, str]:
    """Number and unit."""
    number, _, unit = text.strip('"').partition(" ")
    return float(re.sub(r"[_,]", "", number)), unit


def with_jitter(cell: Cell) -> Cell:
    """Hosts send up to a packet's time at the bottleneck later."""
    if cell.scenario.name not in OVER_PERT:
        return cell
    return with_settings(cell, f'hosts.jitter="{packet_time_us(cell):.4g} us"')


OWN_PACKET = Choice(
    "A round trip is that of a packet acknowledged for the first time, cumulatively or selectively,"
    " from its own sending; of a train, the last packet's.",
    "(II) has beta from the estimated and the maximum queuing delay, and observes that it leads to"
    " W/2 at a loss: so it does where the maximum is the delay of the queue that was full, which is"
    " what single packets see. (IV.B) names the fourth packet of a train, which meets the delay of"
    " the three before it, as what the sender samples.",
    "(III) explains figure 8 by PERT's window, which a loss does not cut as drastically as RENO's;"
    " RENO's is halved.",
)
BETA = Choice(
    "A loss takes beta, as an early response does.",
    "(II) gives one rule for the reduction, and W/2 as what is observed of it.",
    "(II) speaks of the early response where it gives that rule, and of W/2 at a loss.",
)
NO_JITTER = Choice(
    "Hosts send without delay.",
    "no processing time is given, and ns-2's (`overhead_`) is zero by default; (III) randomizes the"
    " start times alone.",
    "it does so to take the effect of timing out of the results.",
)
ECHOED = Choice(
    "A round trip is that of each ACK, duplicates included, against the time stamp that it echoes:"
    " of an episode the stamp of the packet before the gap, of a train its first packet's.",
    "(II): PERT measures delays at the end host, and nothing is said of leaving out any; the"
    " receivers of ns-2 echo so by default, and (III) to (V) are simulated with ns-2. With it the"
    " maximum is that of a repair, beta at a loss is small, and the window is not drastically cut"
    " (III, on figure 8).",
    "(II): a loss leads to W/2, and the maximum is one of queuing delays; (IV.B) samples the fourth"
    " packet of a train.",
)
COVERED = Choice(
    "A round trip is that of each ACK that advances, against the last sending of the highest packet"
    " that it covers.",
    "(IV.B): the sample of an ACK for four packets is the fourth's, the highest that it covers."
    " Time stamps are not mentioned, and without them ns-2's sender has its times of sending alone."
    " The wait for a retransmission makes the maximum large and the cut at a loss small (III, on"
    " figure 8).",
    "(II): a loss leads to W/2, and the maximum is one of queuing delays. A round trip that"
    " contains a retransmission is what Karn's rule forbids, which ns-2's own timer keeps."
    " Equation 5.1 runs from the first packet.",
)
HALF = Choice(
    "A loss takes one half, whatever the queuing delay.",
    "(II): W/2 upon a packet loss.",
    "(II) observes it and does not prescribe it; (III) explains figure 8 by a cut less drastic than"
    " RENO's, which it gives as one half.",
)
PACKET_OF_JITTER = Choice(
    "Each packet leaves its host later by a random time, up to a packet's at the bottleneck.",
    "(III) takes means over random start times to lessen the effect of timing, which senders in"
    " step with a full queue keep for ever (Floyd and Jacobson, 1992); a random time of that length"
    " breaks it, and ns-2 has it (`overhead_`).",
    "no processing time is given, and ns-2's is zero by default.",
)

PRIMARY = Reading(
    "own packet",
    "Chapter II's beta and maximum, by round trips of single packets. (In brackets: chapters.)",
    [OWN_PACKET, BETA, NO_JITTER],
)
"""The one that the text supports best: it alone has W/2 at a loss by the rule that (II) gives.

Against it is one sentence of (III), an explanation of a figure.
"""

ON_REQUEST = [
    Reading(
        "every ACK",
        "As own packet, but for which ACKs give a round trip.",
        [ECHOED],
        simulated(sampled("every-ack")),
    ),
    Reading(
        "cumulative",
        "As own packet, but for the packet from which a round trip runs.",
        [COVERED],
        simulated(sampled("cumulative")),
    ),
    Reading(
        "half at a loss",
        "As own packet, but for what a loss takes.",
        [HALF],
        simulated(with_parameters('loss-decrease = "half"')),
    ),
    Reading(
        "host jitter",
        "As own packet, but for when hosts send.",
        [PACKET_OF_JITTER],
        simulated(with_jitter),
    ),
]
"""Each takes as long as the primary one, so that they run on request only."""
