"""Picture quality of a run's films: what a viewer sees, compared with the film.

A run's table `frames` says which pictures can be decoded on time by a player of a latency. The
others are taken out of the film's transport stream, ffmpeg decodes the rest, and each picture that
is missing shows the last one before it. What is seen is compared with the film, picture by picture.
"""

import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from ontempo.lab.errors import BadInputError
from ontempo.lab.quality_film import Film, difference, read_film
from ontempo.lab.quality_pictures import Seen, look

MAX_ROUNDS = 100
"""Rounds of a film that are compared, for each flow and player; those after them are not."""

MAX_MANIFEST_BYTES = 64 << 20

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
TIME = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min)\s*$")


@dataclass(frozen=True)
class Quality:
    """A flow's film as a player of a latency shows it.

    `pictures` were sent in the measured time and due before its end, `on_time` of them are shown at
    their time, `decoded` is what ffmpeg gave of the pictures left in the stream, of `left`. SSIM
    from 0 to 1: mean, and the value that 5 % of the pictures do not reach. VMAF from 0 to 100, or
    `None`: not measured.
    """

    group: str
    index: int
    player_latency_s: float
    pictures: int
    on_time: int
    rounds: int
    rounds_left_out: int
    left: int
    decoded: int
    ssim_mean: float
    ssim_p5: float
    vmaf_mean: float | None


@dataclass
class Round:
    """A round of a film in a run: by place of a picture, the least latency that decodes it.

    `missing` have none, `scored` count; the others were sent outside of the measured time.
    """

    decodable_s: dict[int, float] = field(default_factory=dict)
    scored: dict[int, float] = field(default_factory=dict)


def seconds(text: str, what: str) -> float:
    """A time such as ``510 ms``, in seconds; raises `BadInputError` that names `what`."""
    found = TIME.match(text)
    if not found or not float(found[1]) > 0:
        raise BadInputError(f"{what}: {text!r} is no time such as 510 ms or 2 s")
    return float(found[1]) * SECONDS[found[2]]


def measure(run: Path, film_path: Path, latencies: Sequence[float]) -> tuple[Film, list[Quality]]:
    """Compare what viewers of a run's films see with the film in `film_path`.

    For players of `latencies` in seconds, or if there are none of those that the scenario asks for.
    Raises `BadInputError` if the run has no such film, `UnfitEnvironmentError` without ffmpeg.
    """
    manifest = _manifest(run)
    groups = _films(run, manifest)
    frames, media = (_table(run, name) for name in ("frames", "media"))
    if frames.is_empty():
        raise BadInputError(f"{run}: its table `frames` is empty: it sent no film")
    film, text = read_film(film_path)
    differences = {group: difference(text, theirs) for group, theirs in groups.items()}
    same = [group for group, why in differences.items() if why is None]
    if not same:
        group, why = next(iter(differences.items()))
        raise BadInputError(
            f"{film_path}: it is not the film of the flows `{group}`, or has changed since: {why}"
        )
    end_s = seconds(str(manifest["scenario"]["duration"]), f"{run}/run.json: duration")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        looks = Looks(film, Path(folder))
        flows = frames.filter(pl.col("group").is_in(same)).partition_by(
            ["group", "index"], as_dict=True, maintain_order=True
        )
        for (group, index), of_flow in flows.items():
            asked = media.filter((pl.col("group") == group) & (pl.col("index") == index))
            players = latencies or asked["player_latency_s"].sort().to_list()
            for latency in players:
                found.append(_quality(looks, of_flow, (str(group), int(index)), latency, end_s))
    return film, found


class Looks:
    """Rounds that were compared: those that miss the same pictures are compared once."""

    def __init__(self, film: Film, work: Path) -> None:
        self.film = film
        self.work = work
        self.done: dict[tuple[frozenset[int], int | None], Seen] = {}
        places = range(len(film.pictures))
        self.order = sorted(places, key=lambda place: film.pictures[place].shown_s)

    def of(self, missing: frozenset[int], before: int | None) -> Seen:
        """The round without these pictures, after one that ended with the picture `before`."""
        # What was shown before does not matter where the first picture is there.
        key = (missing, before if self.order[0] in missing else None)
        if key not in self.done:
            self.done[key] = look(self.film, key[0], key[1], self.work)
        return self.done[key]


def _quality(
    looks: Looks, frames: pl.DataFrame, flow: tuple[str, int], latency_s: float, end_s: float
) -> Quality:
    film = looks.film
    rounds = _rounds(film, frames)
    # Pictures sent before the measured time are taken for whole: what follows may need them.
    first = int(frames["frame"].min() or 0)  # type: ignore[arg-type]
    ssim: list[float] = []
    vmaf: list[float] | None = []
    before, on_time, left, decoded = None, 0, 0, 0
    for number in sorted(rounds)[:MAX_ROUNDS]:
        one = rounds[number]
        base = number * film.frames
        missing = frozenset(
            place
            for place, picture in enumerate(film.pictures)
            if base + picture.number >= first
            and not one.decodable_s.get(place, math.inf) <= latency_s
        )
        seen = looks.of(missing, before)
        left += len(film.pictures) - len(missing)
        decoded += seen.decoded
        for at, place in enumerate(looks.order):
            if one.scored.get(place, math.inf) + latency_s > end_s:
                continue
            on_time += place not in missing
            ssim.append(seen.ssim[at])
            if vmaf is not None:
                vmaf = None if seen.vmaf is None else [*vmaf, seen.vmaf[at]]
        shown = [place for place in looks.order if place not in missing]
        before = shown[-1] if shown else before
    if not ssim:
        raise BadInputError(
            f"flow {flow[0]}.{flow[1]}: no picture is due for a player of {latency_s:g} s before"
            " the run ends"
        )
    mean = sum(vmaf) / len(vmaf) if vmaf else None
    return Quality(
        *flow,
        player_latency_s=latency_s,
        pictures=len(ssim),
        on_time=on_time,
        rounds=min(len(rounds), MAX_ROUNDS),
        rounds_left_out=max(len(rounds) - MAX_ROUNDS, 0),
        left=left,
        decoded=decoded,
        ssim_mean=sum(ssim) / len(ssim),
        ssim_p5=sorted(ssim)[math.ceil(0.05 * len(ssim)) - 1],
        vmaf_mean=mean,
    )


def _rounds(film: Film, frames: pl.DataFrame) -> dict[int, Round]:
    """The rounds of which pictures were sent in the measured time."""
    places = {picture.number: place for place, picture in enumerate(film.pictures)}
    rounds: dict[int, Round] = {}
    rows = frames.select("frame", "sent_s", "decodable_s").iter_rows()
    for frame, sent_s, decodable_s in rows:
        number, at = divmod(frame, film.frames)
        if (place := places.get(at)) is None:
            continue
        one = rounds.setdefault(number, Round())
        one.scored[place] = sent_s
        if decodable_s is not None:
            one.decodable_s[place] = decodable_s
    return rounds


def _manifest(run: Path) -> dict[str, Any]:
    path = run / "run.json"
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise BadInputError(f"{path}: it is larger than {MAX_MANIFEST_BYTES} bytes")
        manifest = json.loads(path.read_text("utf-8"))
        if not isinstance(manifest["scenario"]["flows"], Mapping):
            raise TypeError("its flows are no table")
    except OSError as error:
        raise BadInputError(f"{run}: no complete run here: run.json: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{path}: no manifest of a run: {error}") from error
    return dict(manifest)


def _films(run: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """The table of frames of each group of flows with a film from a file."""
    films, made_up = {}, []
    for group, flow in manifest["scenario"]["flows"].items():
        application = flow.get("application", {}) if isinstance(flow, Mapping) else {}
        if not isinstance(application, Mapping) or application.get("kind") != "media":
            continue
        if isinstance(text := application.get("frames-text"), str):
            films[group] = text
        else:
            made_up.append(group)
    if films:
        return films
    if made_up:
        raise BadInputError(
            f"{run}: the film of `{made_up[0]}` is made up (`generate`): it has sizes, but no"
            ' pictures. Simulate one from a file: application = { kind = "media",'
            ' file = "film.ts" }'
        )
    raise BadInputError(f'{run}: no flow carries a film: application = {{ kind = "media" }}')


def _table(run: Path, name: str) -> pl.DataFrame:
    path = run / f"{name}.parquet"
    try:
        return pl.read_parquet(path).with_columns(pl.selectors.categorical().cast(pl.String))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadInputError(f"{path}: cannot be read: {error}") from error
