"""The films that are carried: generated ones, as docs/media.md has them.

Each makes a transport stream of about 4 Mbit/s with its headers, sound and stuffing: that is the
rate beside which paths are chosen.
"""

from dataclasses import dataclass

STREAM_MBIT_S = 4.0
"""Rate of the transport stream, in Mbit/s: that of the stream of `experiments.comparison`."""

PICTURES_PER_S = 25.0

PACED_PICTURES = "3.4 Mbit/s"
"""Of a paced film: what the stream of `experiments.comparison` is encoded at."""

BURST_PICTURES = "3.7 Mbit/s"
"""Of a film in bursts, which has no stuffing: 3.92 to 3.97 Mbit/s as a transport stream."""

FILM_S = 20
"""How long a film is before it begins anew: two groups of pictures of the longer kind."""


@dataclass(frozen=True)
class Film:
    """A film: its name, a description, and its application in a scenario, as TOML."""

    name: str
    words: str
    application: str


def _paced(key: int) -> Film:
    return Film(
        f"paced-{key}",
        f"paced by its PCR at 4 Mbit/s with stuffing, a key picture each {key}",
        f'kind = "media", generate = {{ rate = "{PACED_PICTURES}", constant = true,'
        f' key-distance = {key}, duration = "{FILM_S} s" }}, sending = "paced",'
        ' mux-rate = "4 Mbit/s", stuffing = true',
    )


def _bursts(key: int, *, constant: bool) -> Film:
    name, rate = ("cbr", "constant") if constant else ("vbr", "variable")
    return Film(
        f"{name}-{key}",
        f"in bursts as `ffmpeg -re` sends, {rate} rate, a key picture each {key}",
        f'kind = "media", generate = {{ rate = "{BURST_PICTURES}",'
        f" constant = {str(constant).lower()}, key-distance = {key},"
        f' duration = "{FILM_S} s" }}, sending = "bursts"',
    )


FILMS = (
    _paced(50),
    _paced(250),
    _bursts(50, constant=True),
    _bursts(250, constant=True),
    _bursts(50, constant=False),
    _bursts(250, constant=False),
)

FEW = (FILMS[0], FILMS[4])
"""One of a multiplexer, one of an encoder: for classes of many paths."""

LIVE = FILMS[4]
"""What `ffmpeg -re` makes of a film: that of the demo."""
