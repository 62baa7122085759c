"""The stream that every contender carries: made by ffmpeg and cached by how it is made."""

from pathlib import Path

from ..ffmpeg import CACHE, EXACT, ffmpeg_version, kept, key, run_ffmpeg

PICTURES_PER_S = 25

RATE_MBIT_S = 4.0
"""Rate of the whole transport stream, which stuffing keeps constant, as encoders send it."""

_VIDEO_KBIT_S, _AUDIO_KBIT_S = 3400, 128


def stream_command(seconds: int) -> list[str]:
    """A test picture under noise, 720p, with B pictures, a key frame each 2 s, noise as sound."""
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
        *("-f", "mpegts", "-muxrate", f"{RATE_MBIT_S * 1e6:.0f}", "-pcr_period", "20", *EXACT),
    ]


def stream_key(seconds: int, version: str = "") -> str:
    """A name derived from the command that makes it and ffmpeg's version."""
    return key([stream_command(seconds)], version)


def make_stream(seconds: int, cache: Path = CACHE) -> Path:
    """The stream, from the cache or made now.

    Raises `UnfitEnvironmentError` if ffmpeg is missing or fails.
    """
    name = f"{stream_key(seconds, ffmpeg_version())}.ts"
    return kept(cache / name, lambda made: run_ffmpeg([*stream_command(seconds), str(made)]))
