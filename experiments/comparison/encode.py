"""The stream that every contender carries: made by ffmpeg and cached by how it is made."""

from pathlib import Path
from typing import Literal

from ..ffmpeg import CACHE, EXACT, ffmpeg_version, kept, key, run_ffmpeg

PICTURES_PER_S = 25

RATE_MBIT_S = 4.0
"""Rate of the whole transport stream, which stuffing keeps constant, as encoders send it."""

_VIDEO_KBIT_S, _AUDIO_KBIT_S = 3400, 128

Source = Literal["paced", "cbr", "vbr"]
"""How the stream is made and sent: with stuffing, at a constant rate; or without, all packets of a
picture at once, as ``ffmpeg -re`` does, with as many bytes in each quarter of a second (`cbr`), or
as pictures ask for (`vbr`: a key picture has 125 kB, seven times the mean)."""


def stream_command(seconds: int, source: Source = "paced") -> list[str]:
    """A test picture under noise, 720p, with B pictures, a key frame each 2 s, noise as sound."""
    picture = f"testsrc2=size=1280x720:rate={PICTURES_PER_S}:duration={seconds}"
    noise = "noise=all_seed=1:all_strength=20:all_flags=t"
    sound = f"anoisesrc=sample_rate=48000:seed=1:amplitude=0.1:duration={seconds}"
    rate = f"{_VIDEO_KBIT_S}k"
    constant = ("-minrate", rate, "-maxrate", rate, "-bufsize", f"{_VIDEO_KBIT_S // 4}k")
    multiplexed = ("-muxrate", f"{RATE_MBIT_S * 1e6:.0f}", "-pcr_period", "20")
    return [
        *("-f", "lavfi", "-i", f"{picture},{noise}", "-f", "lavfi", "-i", sound),
        *("-c:v", "libx264", "-threads", "1", "-preset", "superfast", "-pix_fmt", "yuv420p"),
        *("-b:v", rate, *(constant if source != "vbr" else ())),
        *("-bf", "2", "-x264-params", f"keyint={2 * PICTURES_PER_S}:scenecut=0"),
        *("-c:a", "aac", "-ac", "2", "-b:a", f"{_AUDIO_KBIT_S}k"),
        *("-f", "mpegts", *(multiplexed if source == "paced" else ()), *EXACT),
    ]


def stream_key(seconds: int, source: Source = "paced", version: str = "") -> str:
    """A name derived from the command that makes it and ffmpeg's version."""
    return key([stream_command(seconds, source)], version)


def make_stream(seconds: int, source: Source = "paced", cache: Path = CACHE) -> Path:
    """The stream, from the cache or made now.

    Raises `UnfitEnvironmentError` if ffmpeg is missing or fails.
    """
    name = f"{stream_key(seconds, source, ffmpeg_version())}.ts"
    return kept(
        cache / name, lambda made: run_ffmpeg([*stream_command(seconds, source), str(made)])
    )
