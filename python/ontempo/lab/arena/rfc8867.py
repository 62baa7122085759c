"""The test cases of RFC 8867, section 5, as far as a film of constant rate can be in them.

The RFC's sources adapt their rate; a film does not. All capacities of the RFC are therefore taken
eight times: a film of 4 Mbit/s then has half of the reference capacity of 1 Mbit/s. Each film
is a flow of the RFC's. Start times and durations are the RFC's.
"""

from collections.abc import Sequence

from ontempo.lab.arena.paths import Path, dumbbell

SCALE = 8

ONE_WAY_MS, JITTER_MS, QUEUE_MS = 50, 30, 300
"""The RFC's one-way propagation delay, maximum jitter and bottleneck queue (section 5.1)."""

REFERENCE_MBIT_S = 1.0

NOT_RUN = {
    "5.5": "round-trip time fairness: its five flows have five round trips, a path here has one",
    "5.8": "media pause and resume: a flow stops once, and cannot resume over its connection",
    "6.1": "media flows with priority: no transport here has priorities between films",
    "6.2": "ECN: only TCP of the contenders has it, so nothing would be compared",
    "6.3": "multiple bottlenecks: the RFC gives the outline, and no numbers",
}
"""Test cases that are left out, and why."""

Steps = Sequence[tuple[float, float]]
"""Times in s, and the capacity from then on as a multiple of the reference capacity."""


def _link(mbit_s: float, one_way_ms: float = ONE_WAY_MS, queue_ms: float = QUEUE_MS) -> str:
    rate = mbit_s * SCALE
    limit = f"{rate * 1e6 / 8 * queue_ms / 1e3:.0f} bytes"
    low, high = f"{one_way_ms:g} ms", f"{one_way_ms + JITTER_MS:g} ms"
    return (
        f'rate = "{rate:g} Mbit/s", delay = {{ kind = "uniform", low = "{low}", high = "{high}" }},'
        f' queue = {{ kind = "drop-tail", limit = "{limit}" }}'
    )


def _events(steps: Steps, mbit_s: float, link: str = "bottleneck") -> str:
    return "".join(
        f'[[events]]\nat = "{at:g} s"\nlink = "{link}"\n'
        f'set = {{ rate = "{mbit_s * SCALE * ratio:g} Mbit/s" }}\n'
        for at, ratio in steps
    )


def _case(
    name: str, text: str, words: str, lasts_s: float, films: tuple[tuple[str, str], ...] = ()
) -> Path:
    return Path(
        "rfc8867",
        name,
        2 * ONE_WAY_MS,
        text,
        films or (("film", ""),),
        lasts_s=lasts_s - 2,
        words=words,
    )


def _started(*starts_s: float) -> tuple[tuple[str, str], ...]:
    return tuple((f"film{i}", f'start = "{start:g} s"\n') for i, start in enumerate(starts_s))


_TCP = 'transport = { kind = "tcp", packet = "1500 bytes" }\n'


def _long_tcp(queue_ms: float) -> Path:
    text = dumbbell(
        _link(2 * REFERENCE_MBIT_S, queue_ms=queue_ms),
        f'[flows.tcp]\napplication = {{ kind = "ftp" }}\n{_TCP}',
    )
    words = f"beside a long TCP flow, queue of {queue_ms:g} ms"
    return _case(f"5.6-{queue_ms:g}ms", text, words, 120, _started(5))


RFC8867 = (
    _case(
        "5.1",
        dumbbell(
            _link(REFERENCE_MBIT_S), _events([(40, 2.5), (60, 0.6), (80, 1)], REFERENCE_MBIT_S)
        ),
        "variable capacity, one film",
        100,
    ),
    _case(
        "5.2",
        dumbbell(
            _link(2 * 2 * REFERENCE_MBIT_S),
            _events([(25, 1), (50, 1.75), (75, 0.5), (100, 1)], 2 * REFERENCE_MBIT_S),
        ),
        "variable capacity, two films",
        125,
        _started(0, 0),
    ),
    _case(
        "5.3",
        dumbbell(
            _link(2 * REFERENCE_MBIT_S),
            _events([(20, 1), (40, 0.5), (60, 2)], REFERENCE_MBIT_S)
            + _events([(35, 0.8), (70, 2)], REFERENCE_MBIT_S, "reverse"),
        ),
        "congested feedback, a film each way",
        100,
        (("film0", ""), ("film1", 'from = "right"\nto = "left"\n')),
    ),
    _case(
        "5.4",
        dumbbell(_link(3.5 * REFERENCE_MBIT_S)),
        "three films of one transport",
        120,
        _started(0, 20, 40),
    ),
    _long_tcp(300),
    _long_tcp(1000),
    _case(
        "5.7",
        dumbbell(
            _link(2 * REFERENCE_MBIT_S),
            '[flows.web]\ncount = 10\napplication = { kind = "http", think = "10 s", objects = 1,'
            f' size = "40000 bytes" }}\n{_TCP}',
        ),
        "two films beside ten flows of short TCP transfers",
        300,
        _started(5, 5),
    ),
)

RFC8867_QUICK = (RFC8867[0],)
