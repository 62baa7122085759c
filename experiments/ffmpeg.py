"""What ffmpeg makes for the experiments: the same bytes from the same ffmpeg.

Each file is kept under a name that says how it was made.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ontempo.lab.errors import UnfitEnvironmentError

CACHE = Path(__file__).resolve().parents[1] / "out" / "film"
"""Where it is kept."""

EXACT = ("-flags", "+bitexact", "-fflags", "+bitexact", "-map_metadata", "-1")
"""Options without which time and version are written into a file."""


def key(commands: Sequence[Sequence[str]], version: str) -> str:
    """A name that follows from the commands that make it, and from which ffmpeg."""
    return hashlib.sha256(json.dumps([version, *commands]).encode()).hexdigest()[:16]


def kept(path: Path, make: Callable[[Path], None]) -> Path:
    """The file at `path`; `make` makes one of the same name elsewhere where there is none."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
        made = Path(folder) / path.name
        make(made)
        made.replace(path)
    return path


def ffmpeg_version() -> str:
    """Which ffmpeg this is; raises `UnfitEnvironmentError` where it is missing."""
    if shutil.which("ffmpeg") is None:
        raise UnfitEnvironmentError("the program ffmpeg is missing, which makes the film")
    return _ran(["ffmpeg", "-version"]).splitlines()[0]


def run_ffmpeg(words: Sequence[str]) -> None:
    """Run it without a word; raises `UnfitEnvironmentError` with its first where it fails."""
    _ran(["ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-y", *words])


def _ran(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    said = [line for line in done.stderr.splitlines() if line.strip()]
    if "Unknown encoder" in done.stderr:
        raise UnfitEnvironmentError("this ffmpeg was built without libx264, which the film needs")
    raise UnfitEnvironmentError(f"ffmpeg cannot make the film: {said[0] if said else 'no word'}")
