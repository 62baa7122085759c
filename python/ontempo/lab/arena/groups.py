"""The classes of paths."""

from collections.abc import Sequence
from itertools import product

from ontempo.lab.arena.films import FEW, FILMS, STREAM_MBIT_S
from ontempo.lab.arena.paths import QUEUE, Group, Path, dumbbell, plain
from ontempo.lab.arena.rfc8867 import RFC8867, RFC8867_QUICK

RTTS_MS = (20, 100, 300)

BURST_PACKETS = 4
"""Mean length of a burst of losses, in packets (`experiments.comparison`)."""

LOSSES = ((0.0, False), *product((0.01, 0.05, 0.1), (False, True)))
SHARES = (2.0, 1.1, 0.8)


def _comparison(loss: float, bursts: bool, rtt_ms: int, share: float) -> Path:
    """A path of `experiments.comparison`: losses both ways, a queue of 100 packets."""
    kind, more = "none", ""
    if loss and bursts:
        kind, q = f"bursts{loss * 100:g}", 1 / BURST_PACKETS
        more = f', loss = {{ kind = "gilbert", p = {q * loss / (1 - loss):.6f}, q = {q} }}'
    elif loss:
        kind, more = f"random{loss * 100:g}", f', loss = {{ kind = "bernoulli", rate = {loss} }}'
    link = plain(rtt_ms, STREAM_MBIT_S * share * 1000, more)
    name = f"{kind}-{rtt_ms}ms-{share:g}x"
    return Path("comparison", name, rtt_ms, dumbbell(link))


COMPARISON = tuple(
    _comparison(loss, bursts, rtt_ms, share)
    for share, rtt_ms, (loss, bursts) in product(SHARES, RTTS_MS, LOSSES)
)

COMPARISON_QUICK = (
    _comparison(0.0, False, 100, 2.0),
    _comparison(0.01, False, 100, 2.0),
    _comparison(0.05, False, 100, 2.0),
    _comparison(0.05, True, 100, 2.0),
    _comparison(0.05, False, 20, 2.0),
    _comparison(0.0, False, 100, 0.8),
)
"""The quick grid of `experiments.comparison`."""

PROFILE_RTTS_MS = {
    "dsl": 30,
    "cable": 14,
    "lte-still": 60,
    "lte-driving": 60,
    "5g": 30,
    "satellite-leo": 18,
    "satellite-geo": 580,
    "wifi": 2.6,
    "wifi-lossy": 3,
    "transcontinental": 71,
    "office": 12,
}
"""Delays there and back of the network profiles, without what varies, in ms (docs/profiles.md)."""

FIVE_PROFILES = ("dsl", "wifi-lossy", "lte-driving", "satellite-leo", "transcontinental")
"""One of each kind of link: a wire at home, Wi-Fi, mobile, a satellite, a long distance; of a
kind the harder one, but not the satellite whose round trip leaves no time for a repair. Chosen
before the first run."""

TEN_SEEDS = tuple(range(1, 11))


def profile_path(name: str, seeds: Sequence[int] = TEN_SEEDS) -> Path:
    """The downlink of a network profile."""
    text = dumbbell(f'profile = "{name}"')
    return Path("profiles", name, PROFILE_RTTS_MS[name], text, seeds=tuple(seeds))


BESIDE_MBIT_S = 20.0
"""A fifth of it is the film's rate: its fair share beside four downloads."""

BESIDE_FROM_S = 5

CROWDS = {"cubic": ("cubic", 1), "4cubic": ("cubic", 4), "bbr": ("bbr", 1)}
_CROSSING = {
    "cubic": '{ kind = "cubic", variant = "linux" }',
    "bbr": '{ kind = "bbr", variant = "v1" }',
}


def _downloads(control: str, count: int) -> str:
    return (
        f'[flows.downloads]\ncount = {count}\napplication = {{ kind = "ftp" }}\n'
        f'transport = {{ kind = "tcp", packet = "1500 bytes",'
        f" congestion = {_CROSSING[control]} }}\n"
    )


def _beside(crowd: str, rtt_ms: int, bdp: float) -> Path:
    kilobytes = BESIDE_MBIT_S * rtt_ms / 8 * bdp
    queue = f'{{ kind = "drop-tail", limit = "{kilobytes * 1000:.0f} bytes" }}'
    link = plain(rtt_ms, BESIDE_MBIT_S * 1000, queue=queue)
    text = dumbbell(link, _downloads(*CROWDS[crowd]))
    return Path("beside", f"{crowd}-{rtt_ms}ms-{bdp:g}bdp", rtt_ms, text, from_s=BESIDE_FROM_S)


THREE_SEEDS = (1, 2, 3)


def _jitter(jitter_ms: int, rtt_ms: int, seeds: Sequence[int] = THREE_SEEDS) -> Path:
    low = rtt_ms / 2
    delay = f'{{ kind = "uniform", low = "{low:g} ms", high = "{low + jitter_ms:g} ms" }}'
    link = f'rate = "8 Mbit/s", delay = {delay}, queue = {QUEUE}'
    name = f"{jitter_ms}ms-{rtt_ms}ms"
    return Path("jitter", name, rtt_ms, dumbbell(link), seeds=tuple(seeds))


OUTAGE_AT_S = 8


def _outage(lasts_s: float, rtt_ms: int, seeds: Sequence[int] = THREE_SEEDS) -> Path:
    more = f', outages = [{{ at = "{OUTAGE_AT_S} s", for = "{lasts_s * 1000:.0f} ms" }}]'
    name = f"{lasts_s:g}s-{rtt_ms}ms"
    link = plain(rtt_ms, 8000, more)
    return Path("outage", name, rtt_ms, dumbbell(link), seeds=tuple(seeds))


def _address(rtt_ms: int, seeds: Sequence[int] = THREE_SEEDS) -> Path:
    films = (("film", f'address-changes = ["{OUTAGE_AT_S} s"]\n'),)
    text = dumbbell(plain(rtt_ms, 8000))
    return Path("address", f"{rtt_ms}ms", rtt_ms, text, films, seeds=tuple(seeds))


GROUPS = (
    Group(
        "comparison",
        "constant links: losses, round trip, rate beside the stream's",
        COMPARISON,
        COMPARISON_QUICK,
        FILMS,
        FEW,
    ),
    Group(
        "profiles",
        "the downlinks of docs/profiles.md, made after measurements",
        tuple(profile_path(name) for name in PROFILE_RTTS_MS),
        tuple(profile_path(name, (1, 2)) for name in FIVE_PROFILES),
    ),
    Group("rfc8867", "test cases of RFC 8867 for a film of constant rate", RFC8867, RFC8867_QUICK),
    Group(
        "beside",
        "beside downloads over 20 Mbit/s",
        tuple(
            _beside(crowd, rtt_ms, bdp)
            for crowd, rtt_ms, bdp in product(CROWDS, RTTS_MS, (0.5, 1, 4))
        ),
        (_beside("cubic", 100, 1), _beside("bbr", 100, 1)),
    ),
    Group(
        "jitter",
        "delays that vary from packet to packet, in order",
        tuple(_jitter(jitter_ms, rtt_ms) for jitter_ms, rtt_ms in product((10, 50), RTTS_MS)),
        (_jitter(50, 100, (1,)),),
    ),
    Group(
        "outage",
        "once, from 6 s of the counted seconds on, nothing passes",
        tuple(_outage(lasts_s, rtt_ms) for lasts_s, rtt_ms in product((0.2, 1, 5), RTTS_MS)),
        (_outage(1, 100, (1,)),),
    ),
    Group(
        "address",
        "once, from 6 s of the counted seconds on, the sender has another address",
        tuple(_address(rtt_ms) for rtt_ms in RTTS_MS),
        (_address(100, (1,)),),
    ),
)

UNDECIDED: dict[str, str] = {}
"""Classes that are asked for and cannot be run, and why."""
