"""What the named readings leave open, tried: how much it changes.

Run from the checkout's root::

    python -m experiments.qosockets.readings routers   # verdicts by what the routers do
    python -m experiments.qosockets.readings limits    # the router's limit, for figure 8
    python -m experiments.qosockets.readings sources   # the readings' and other rates, figures 6-9
    python -m experiments.qosockets.readings buckets   # NetVideo's token bucket, for figures 7-9
    python -m experiments.qosockets.readings images    # reservations and sockets, for figures 10-12
    python -m experiments.qosockets.readings bursts    # cameras and crowds, for figures 7 and 9

Each prints a table of Markdown, as in docs/experiments-qosockets.md. Cells are stored
beside those of ``ontempo-lab reproduce``, so nothing is run twice. Tables of routers, limits,
buckets and bursts are of the rates of the profiles, with which C1 and C2 exceed the line.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ontempo.lab.claims import World
from ontempo.lab.readings import with_settings
from ontempo.lab.study import Cell, Results

from ..pert.readings import Reading, comparison, run
from .claims import PAPER
from .declared import (
    ONE_QUEUE,
    as_the_camera_sees,
    by_profile,
    one_queue,
    with_background,
)
from .grid import (
    ACKS_RESERVED,
    CONVERSATIONS,
    IMAGES_RESERVED,
    NV_RESERVED,
    Application,
    cells,
    links,
)
from .measures import Values, delay, jitter, loss, received, share

IN_STEP = 'flows.tg.application.interval={ low = "15.1704 ms", high = "15.1704 ms" }'
"""Generators that keep their interval to the nanosecond."""


def changed(*overrides: str) -> Reading:
    """More overrides, each where a cell has the flows that it is about."""

    def reading(cell: Cell) -> Cell:
        return with_settings(cell, *(one for one in overrides if _concerns(one, cell)))

    return reading


def profile(*overrides: str) -> Reading:
    """The sources at the rates of their profiles, with more overrides."""
    return lambda cell: changed(*overrides)(by_profile(cell))


def reserved(old: str, new: str) -> Reading:
    """Other reservations in the place of one, the sources at the rates of their profiles."""
    return lambda cell: replace(
        by_profile(cell),
        overrides=tuple(one.replace(old, new) for one in by_profile(cell).overrides),
    )


def _concerns(override: str, cell: Cell) -> bool:
    if not override.startswith("flows."):
        return True
    group, scenario = override.split(".")[1], cell.scenario.stem
    groups = {"nv": {"nv"}, "dirm": {"images", "requests"}, "tg": {"tg"}, "back": {"images", "tg"}}
    return any(group in groups.get(part, ()) for part in scenario.split("-"))


ROUTERS: Mapping[str, Reading] = {
    "IOS: conversations, drained to 16": profile(),
    "conversations of 64": profile(links(CONVERSATIONS.replace(', resume = "16 packets"', ""))),
    "one queue of 64 beside what is reserved": profile(links(ONE_QUEUE)),
    "CBQ, one queue of 64": profile(links('{ kind = "cbq", limit = "64 packets" }')),
}

SOURCES: Mapping[str, Reading] = {
    "measured": changed(),
    "profile": profile(),
    "background": with_background,
    "one queue": one_queue,
    "camera": as_the_camera_sees,
    "profile, generators in step": profile(IN_STEP),
    "profile, 1.3 Mbit/s": profile(links(rate="1.3 Mbit/s")),
    "measured, 1.3 Mbit/s": changed(links(rate="1.3 Mbit/s")),
    "measured, 1.1 Mbit/s": changed(links(rate="1.1 Mbit/s")),
}
"""The named readings first."""

SIMULATED = [claim for claim in PAPER.claims if claim.world is World.SIMULATION]

LIMITS = (16, 32, 64, 128)
BUCKETS = (1, 2, 5, 10, 20)

LARGE_SOCKETS = (
    'flows.tg.application.buffer="64 packets"',
    'flows.tg.transport.receive-window="64 packets"',
    'flows.images.transport.receive-window="44 packets"',
)
"""Sockets of 64 kB in the place of Solaris' 8 kB."""

BURSTY = 'flows.nv.application.interval={ low = "1 ms", high = "32.333 ms" }'
"""A video as uneven as a camera of 30 pictures a second makes it, at the same mean rate."""

IMAGES: Mapping[str, Reading] = {
    "480 kbit/s reserved": changed(),
    "the peak, 1.1 Mbit/s at most": reserved(
        IMAGES_RESERVED, IMAGES_RESERVED.replace("494 kbit/s", "1.1 Mbit/s")
    ),
    "a bucket of 16 kB": reserved(IMAGES_RESERVED, IMAGES_RESERVED.replace("61680 B", "16000 B")),
    "sockets of 64 kB": changed(*LARGE_SOCKETS),
    "1.3 Mbit/s": changed(links(rate="1.3 Mbit/s")),
    "1.3 Mbit/s, sockets of 64 kB": changed(links(rate="1.3 Mbit/s"), *LARGE_SOCKETS),
    "background": with_background,
    "one queue": one_queue,
    "ACKs reserved too": reserved(IMAGES_RESERVED, f"{IMAGES_RESERVED}, {ACKS_RESERVED}"),
}

BURSTS: Mapping[str, Reading] = {
    "profile": profile(),
    "profile, video in bursts": profile(BURSTY),
    "profile, one queue of 64": profile(links(ONE_QUEUE)),
    "profile, one queue of 64, video in bursts": profile(links(ONE_QUEUE), BURSTY),
}


def of(application: Application, readings: Mapping[str, Reading], jobs: int) -> dict[str, Results]:
    """The results of an application's tests under each reading."""
    each = {
        name: [reading(cell) for cell in cells(application, "quick")]
        for name, reading in readings.items()
    }
    results = run((cell for some in each.values() for cell in some), jobs)
    return {name: results.of(some) for name, some in each.items()}


Column = tuple[str, Callable[[Results], Values], tuple[str, ...]]
"""Its head, what is measured, the flows whose values it gives."""


def table(found: Mapping[str, Results], columns: Sequence[Column], published: str) -> Iterator[str]:
    """A line for each reading, after one of what was published."""
    yield "| reading | " + " | ".join(head for head, _, _ in columns) + " |"
    yield "| --- |" + " --- |" * len(columns)
    yield f"| published | {published} |"
    for name, results in found.items():
        values = (_values(measure(results), flows) for _, measure, flows in columns)
        yield f"| {name} | " + " | ".join(values) + " |"


def _values(values: Values, flows: Sequence[str]) -> str:
    return ", ".join(f"{values[flow].value + 0:.3g}" for flow in flows)


OVERLOAD = (("C1a", "C1b"), ("C2a", "C2b"))

VIDEO: Sequence[Column] = (
    *((f"C1, C2: {what}", measure, ("C1a", "C1b", "C2a", "C2b")) for what, measure in (
        ("received over sent", share), ("loss, %", loss), ("delay, ms", delay),
        ("jitter, ms", jitter),
    )),
)  # fmt: skip
VIDEO_PUBLISHED = "0.53, 0.75, 1, 0.6 | 47, 25, 0, 40 | 250 to 750, 600, 25, 720 | 115, -, 5, -"

PICTURES: Sequence[Column] = (
    ("kbit/s: A1, A2", received, ("A1", "A2")),
    ("B1a, B2a", received, ("B1a", "B2a")),
    ("C1a, C2a", received, ("C1a", "C2a")),
    ("delay, ms: C1a, C2a", delay, ("C1a", "C2a")),
    ("C1b, C2b", delay, ("C1b", "C2b")),
    ("jitter, ms: C1a, C2a", jitter, ("C1a", "C2a")),
)
PICTURES_PUBLISHED = "alike | 20 % more | 20 % more | less | alike | less"


def limits_table(jobs: int) -> Iterator[str]:
    """Figure 8 by what a conversation holds; it is drained to a quarter."""
    readings = {
        f"{limit} packets": profile(
            links(CONVERSATIONS.replace("64 p", f"{limit} p").replace("16 p", f"{limit // 4} p"))
        )
        for limit in LIMITS
    }
    columns = (
        ("delay, ms: C1a", delay, ("C1a",)),
        ("C1b, C1c", delay, ("C1b", "C1c")),
        ("C2a", delay, ("C2a",)),
        ("C2b, C2c", delay, ("C2b", "C2c")),
    )
    return table(of("nv", readings, jobs), columns, "250 to 750 | 600, 600 | 25 | 720 at most")


def buckets_table(jobs: int) -> Iterator[str]:
    """Figures 7 to 9 by the depth of the video's bucket, in its packets."""
    readings = {
        f"{packets} packets": reserved("13080 B", f"{1308 * packets} B") for packets in BUCKETS
    }
    assert "13080 B" in NV_RESERVED
    columns = (
        ("C2a: loss, %", loss, ("C2a",)),
        ("delay, ms", delay, ("C2a",)),
        ("jitter, ms", jitter, ("C2a",)),
    )
    return table(of("nv", readings, jobs), columns, "0 | 25 | 5")


def main(arguments: Sequence[str]) -> None:
    """Print the requested table."""
    tables: Mapping[str, Callable[[int], Iterator[str]]] = {
        "routers": lambda jobs: comparison(jobs, SIMULATED, ROUTERS),
        "limits": limits_table,
        "sources": lambda jobs: table(of("nv", SOURCES, jobs), VIDEO, VIDEO_PUBLISHED),
        "buckets": buckets_table,
        "images": lambda jobs: table(of("dirm", IMAGES, jobs), PICTURES, PICTURES_PUBLISHED),
        "bursts": lambda jobs: table(of("nv", BURSTS, jobs), VIDEO, VIDEO_PUBLISHED),
    }
    if not arguments or arguments[0] not in tables:
        raise SystemExit(__doc__)
    jobs = int(arguments[1]) if len(arguments) > 1 else 2
    for line in tables[arguments[0]](jobs):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
