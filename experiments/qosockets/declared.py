"""The paper's readings: sets of choices where its text is open, each applied to all claims.

The numbers in brackets are sections of the paper. Claims with real packets are as they were run.
"""

from collections.abc import Callable
from dataclasses import replace

from ontempo.lab.claims import Choice, Claim, Reading, World
from ontempo.lab.readings import with_cells, with_settings
from ontempo.lab.study import Cell

from .grid import (
    CONVERSATIONS,
    GENERATOR,
    VIDEO,
    VIDEO_SENT,
    Source,
    links,
)

Change = Callable[[Claim], Claim]

LINE_KBPS = 1500.0
"""The line between the routers (III.A.1)."""

BACKGROUND_KBPS = LINE_KBPS - VIDEO.on_the_line(520) - 2 * GENERATOR.on_the_line(300)
"""What is left of a full line in C2, where 520 and twice 300 kbit/s are received: 352."""

BACKGROUND_FLOWS = 8
"""Ours: from two on, each asks for less than a fair share, and how many there are is the same."""

BACKGROUND_BYTES = 576
"""The packets that a host sent to another network (RFC 1122, 3.3.3)."""

ONE_QUEUE = '{ kind = "wfq", limit = "64 packets" }'
"""All that is not reserved in one queue, beside what is reserved."""

SHORT_CONVERSATIONS = CONVERSATIONS.replace("64 packets", "40 packets").replace(
    "16 packets", "10 packets"
)

SHORTEST_MS = 1.0
"""Between two messages of a video that sends as its camera sees."""


def simulated(change: Callable[[Cell], Cell]) -> Change:
    """All simulated cells are changed."""

    def changed(claim: Claim) -> Claim:
        return with_cells(claim, change) if claim.world is World.SIMULATION else claim

    return changed


def of_the_video(change: Callable[[Cell], Cell]) -> Change:
    """The cells of NetVideo's tests are changed; claims without any stay the same object."""

    def changed(claim: Claim) -> Claim:
        ours = any(dict(cell.labels)["application"] == "nv" for cell in claim.cells("quick"))
        return with_cells(claim, change) if ours else claim

    return lambda claim: changed(claim) if claim.world is World.SIMULATION else claim


def by_profile(cell: Cell) -> Cell:
    """Video and generators at the rates of their traffic profiles, as in the scenarios."""
    ours = (VIDEO.key, GENERATOR.key)
    kept = tuple(one for one in cell.overrides if one.partition("=")[0] not in ours)
    return replace(cell, overrides=kept)


def with_background(cell: Cell) -> Cell:
    """Other traffic on the line, and conversations that hold 40 packets."""
    each_kbps = BACKGROUND_KBPS / BACKGROUND_FLOWS
    others = Source("background", BACKGROUND_BYTES, 0, 0.5)
    flows = (
        f'flows.background={{ from = "ws1", to = "ws0", count = {BACKGROUND_FLOWS},'
        ' start = { low = "0 s", high = "1 s" },'
        f' application = {{ kind = "messages", interval = {others.interval(each_kbps)} }},'
        f' transport = {{ kind = "udp", packet = "{BACKGROUND_BYTES} B" }} }}'
    )
    return with_settings(cell, flows, links(SHORT_CONVERSATIONS))


def one_queue(cell: Cell) -> Cell:
    """What is not reserved waits together."""
    return with_settings(cell, links(ONE_QUEUE))


def as_the_camera_sees(cell: Cell) -> Cell:
    """A video whose messages come as unevenly as the pictures of a camera, at the same rate."""
    labels = dict(cell.labels)
    kbps = VIDEO_SENT.get(str(labels["test"])) if labels["application"] == "nv" else None
    if kbps is None:
        return cell
    longest = 2 * VIDEO.mean_ms(kbps) - SHORTEST_MS
    value = f'{{ low = "{SHORTEST_MS:g} ms", high = "{longest:.4f} ms" }}'
    return with_settings(cell, f"{VIDEO.key}={value}")


SENT = Choice(
    "Video and generators send what figure 6 says that they sent. The video: 570 kbit/s in A1 and"
    " B1, 530 in A2 and B2, 472 in C1, 520 in C2. Generators: 530 in A and B, 480 in C1, 500 in C2."
    " What is judged is what was received of it.",
    "(IV.A.1): reserved flows receive what they send, 530 and in C2a 520; those of A1 and B1a are a"
    " bit above; C1a receives 250 with a loss of 47 %, so that 472 were sent; generators receive"
    " 120 and 200 kbit/s less than they send with losses of 25 and 40 %, so that 480 and 500 were"
    " sent. (III.B): a generator sends approximately 530. A sending rate is not a result.",
    "(III.B.2): profiles of 614.4 and 540. (IV): B is close to 80 % of the line and C beyond it; by"
    " these rates B1 is 75 %, C1 98 % and C2 104 %, headers counted.",
)
ALONE = Choice(
    "Nothing else is on the line.",
    "(IV) gives no rate of other traffic; its 50 and 80 % of the line in A and B are those of the"
    " test's own flows.",
    "(IV): each testbed is also subject to the background traffic of the department.",
)
DEFAULT_QUEUE = Choice(
    "Each flow without a reservation has its own queue of 64 packets, which after a drop takes none"
    " until it has drained to 16.",
    "(III.A.2): Cisco IOS 11.2 with weighted fair queueing; this is its default (Cisco's manuals).",
    "(IV): the delays of 600 and 720 ms are 26 packets at 360 and 300 kbit/s, not the 40 that such"
    " a queue holds on average.",
)
EVEN = Choice(
    "The video's messages keep their interval but for a quarter of it.",
    "(III.B): it sends up to 80 messages a second, 60 on average.",
    "(III.B): its camera has 30 pictures a second.",
)
PROFILES = Choice(
    "Video and generators send what their traffic profiles say: 614.4 and 540 kbit/s.",
    "(III.B.2). (IV): A close to 50 % of the line, B close to 80 %, C beyond; these rates make 42,"
    " 79 and 116 %.",
    "figure 6, by which the flows of these tests sent 472 to 570; (III.B): generators of 530.",
)
OTHERS = Choice(
    "Eight other conversations send 352 kbit/s together, in every test.",
    "(IV): background traffic of the department. The arithmetic of C2: messages are lost, so that"
    " the line is full; 520 and twice 300 kbit/s received are 1,148 with headers, and the other"
    " 352 of 1,500 were not these flows'. With them C1 is 121 % of the line, and C2 127 %: beyond"
    " it, as (IV) says.",
    "no rate is given; B would be 96 to 99 % of the line, (IV) says close to 80, and A 59 to 62 %"
    " and not 50. C1 by the same arithmetic leaves 505 kbit/s.",
)
SHORT = Choice(
    "A queue of 40 packets, which after a drop takes none until it has drained to 10.",
    "600 ms at 360 kbit/s and 720 ms at 300 are 26 packets each (Little's law), headers counted; a"
    " queue that swings between a limit and a quarter of it holds five eighths of it on average, so"
    " that the limit is 42. Cisco's output hold queue has 40 by default.",
    "the default of a conversation of IOS's fair queueing is 64, and later manuals allow powers of"
    " two only.",
)
TOGETHER = Choice(
    "All that is not reserved waits in one queue of 64 packets.",
    "(IV.A.1): C1a receives 250 beside 360 kbit/s, where conversations would share alike."
    " (III.A.4): best effort is one service beside controlled load. (IV.C.3): unreserved ACKs are"
    " delayed or lost under others' load, which in a queue of their own they are not.",
    "(III.A.2): weighted fair queueing; by the work that the paper cites, it is by conversation.",
)
UNEVEN = Choice(
    "The video's messages come at intervals drawn between 1 ms and nearly twice the mean.",
    "(III.B): the camera has 30 pictures a second, of which 46 to 56 messages are sent.",
    "(III.B): at most 80 messages a second, and a peak of 100: a third of such intervals are"
    " shorter than the first allows.",
)

READINGS = [
    Reading(
        "measured",
        "The sending rates that figure 6 reports, the routers as they are by default, and nothing"
        " that the paper gives no number of. (In brackets: sections.)",
        [SENT, ALONE, DEFAULT_QUEUE, EVEN],
    ),
    Reading(
        "profile",
        "As measured, but for the sending rates.",
        [PROFILES],
        of_the_video(by_profile),
    ),
    Reading(
        "background",
        "As measured, with what the published rates and delays leave to others.",
        [OTHERS, SHORT],
        simulated(with_background),
    ),
    Reading(
        "one queue",
        "As measured, but for the routers.",
        [TOGETHER],
        simulated(one_queue),
    ),
    Reading(
        "camera",
        "As measured, but for the rhythm of the video.",
        [UNEVEN],
        of_the_video(as_the_camera_sees),
    ),
]
"""The primary one first.

What was sent is part of what the paper reports; it is an input, whatever a profile asked for. Other
traffic is named without a rate: the rate of "background" is an inference from two results.
"""
