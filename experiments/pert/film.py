"""The film of table 2 and figure 14, made by ffmpeg: the same bytes from the same ffmpeg.

The thesis plays a trailer of 286.5 MB and 210 s: 1080p, 24 pictures a second, H.264 with peaks of
25 Mbit/s, AAC of 192 kbit/s and 48 kHz (pert, ch. III.B). It does not describe how its rate
varies. Ours repeats `ROUND`, whose scenes have each a constant rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..ffmpeg import CACHE, EXACT, ffmpeg_version, kept, key, run_ffmpeg

PICTURES_PER_S = 24


@dataclass(frozen=True)
class Scene:
    """A part of the film: its length, and the rate of its H.264 in Mbit/s."""

    seconds: int
    mbit_s: float


ROUND = (Scene(7, 4.65), Scene(6, 25), Scene(8, 4.65))
"""The scenes that the film repeats.

How long the peak lasts was chosen over RENO alone: 3, 4, 5 and 6 s gave 11, 14, 23 and 30 late
pictures in a play, of the thesis' 33.5. The rest has the rate that makes the size.
"""

SHORT = ROUND
"""21 s."""

WHOLE = ROUND * 10
"""210 s, 287 MB."""

FILLING = (Scene(10, 7.75),) * 12 + (Scene(2, 25), Scene(7, 12)) * 10
"""210 s, another film, of which the last 90 s fill the link of 15 Mbit/s; in no claim."""

FILMS = {"short": SHORT, "whole": WHOLE, "filling": FILLING}


def seconds(scenes: Sequence[Scene]) -> int:
    """The duration of a film of these scenes, in seconds."""
    return sum(scene.seconds for scene in scenes)


def scene_command(scene: Scene) -> list[str]:
    """The ffmpeg command of a scene: a test picture under costly noise, at a constant rate.

    x264 is set to fast decoding, so that the player is never late by itself.
    """
    picture = f"testsrc2=size=1920x1080:rate={PICTURES_PER_S}:duration={scene.seconds}"
    noise = "noise=all_seed=1:all_strength=40:all_flags=t"
    rate = f"{scene.mbit_s:g}M"
    return [
        *("-f", "lavfi", "-i", f"{picture},{noise}", "-c:v", "libx264", "-threads", "1"),
        *("-preset", "ultrafast", "-tune", "fastdecode", "-pix_fmt", "yuv420p"),
        *("-b:v", rate, "-minrate", rate, "-maxrate", rate, "-bufsize", f"{scene.mbit_s / 2:g}M"),
        *("-x264-params", f"nal-hrd=cbr:keyint={PICTURES_PER_S}:scenecut=0", *EXACT),
    ]


def film_command(parts: Path, film_s: int) -> list[str]:
    """The ffmpeg command that joins the scenes listed in `parts` and adds sound."""
    sound = f"anoisesrc=sample_rate=48000:seed=1:amplitude=0.1:duration={film_s}"
    return [
        *("-f", "concat", "-i", str(parts), "-f", "lavfi", "-i", sound, "-map", "0:v"),
        *("-map", "1:a", "-c:v", "copy", "-c:a", "aac", "-ac", "2", "-b:a", "192k"),
        *("-movflags", "+faststart", *EXACT),
    ]


def film_key(scenes: Sequence[Scene], version: str = "") -> str:
    """A name derived from the film's commands and ffmpeg's version."""
    commands = [*map(scene_command, scenes), film_command(Path("parts"), seconds(scenes))]
    return key(commands, version)


def make_film(scenes: Sequence[Scene], cache: Path = CACHE) -> Path:
    """The film of these scenes, out of the cache or made now.

    Raises `UnfitEnvironmentError` if ffmpeg is missing or fails.
    """

    def make(film: Path) -> None:
        files = {one: film.parent / f"{n}.ts" for n, one in enumerate(dict.fromkeys(scenes))}
        for scene, file in files.items():
            run_ffmpeg([*scene_command(scene), str(file)])
        parts = film.parent / "parts"
        parts.write_text("".join(f"file {files[one].name}\n" for one in scenes))
        run_ffmpeg([*film_command(parts, seconds(scenes)), str(film)])

    return kept(cache / f"{film_key(scenes, ffmpeg_version())}.mp4", make)
