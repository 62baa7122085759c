"""The stream that every contender carries: made by ffmpeg, kept under a name that says how."""

import hashlib
import json
import tempfile
from pathlib import Path

from ..pert.film import CACHE, ffmpeg_version, run_ffmpeg

PICTURES_PER_S = 25

RATE_MBIT_S = 4.0
"""Of the whole transport stream, which is filled up to a constant rate, as encoders send it."""

_VIDEO_KBIT_S, _AUDIO_KBIT_S = 3400, 128

_EXACT = ("-flags", "+bitexact", "-fflags", "+bitexact", "-map_metadata", "-1")


def stream_command(seconds: int) -> list[str]:
    """A test picture under noise, 720p, with B pictures and a key frame each 2 s; noise to hear."""
    picture = f"testsrc2=size=1280x720:rate={PICTURES_PER_S}:duration={seconds}"
    noise = "noise=all_seed=1:all_strength=20:all_flags=t"
    sound = f"anoisesrc=sample_rate=48000:seed=1:amplitude=0.1:duration={seconds}"
    rate = f"{_VIDEO_KBIT_S}k"
    return [
        *("-f", "lavfi", "-i", f"{picture},{noise}", "-f", "lavfi", "-i", sound),
        *("-c:v", "libx264", "-threads", "1", "-preset", "superfast", "-pix_fmt", "yuv420p"),
        *("-b:v", rate, "-minrate", rate, "-maxrate", rate, "-bufsize", f"{_VIDEO_KBIT_S // 4}k"),
        *("-bf", "2", "-x264-params", f"keyint={2 * PICTURES_PER_S}:scenecut=0"),
        *("-c:a", "aac", "-ac", "2", "-b:a", f"{_AUDIO_KBIT_S}k"),
        *("-f", "mpegts", "-muxrate", f"{RATE_MBIT_S * 1e6:.0f}", "-pcr_period", "20", *_EXACT),
    ]


def stream_key(seconds: int, version: str = "") -> str:
    """A name that follows from how it is made, and by which ffmpeg."""
    return hashlib.sha256(json.dumps([version, *stream_command(seconds)]).encode()).hexdigest()[:16]


def make_stream(seconds: int, cache: Path = CACHE) -> Path:
    """The stream, out of the cache or made now.

    Raises `UnfitEnvironmentError` where ffmpeg is missing or cannot do it.
    """
    path = cache / f"{stream_key(seconds, ffmpeg_version())}.ts"
    if path.exists():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as name:
        made = Path(name) / path.name
        run_ffmpeg([*stream_command(seconds), str(made)])
        made.replace(path)
    return path
