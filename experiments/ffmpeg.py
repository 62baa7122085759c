"""Media files made by ffmpeg for the experiments: the same bytes from the same ffmpeg.

Each file's name is a hash of how it was made.
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
"""Folder of the files."""

EXACT = ("-flags", "+bitexact", "-fflags", "+bitexact", "-map_metadata", "-1")
"""Options that keep time and version out of a file."""


def key(commands: Sequence[Sequence[str]], version: str) -> str:
    """A name derived from the commands that make it and ffmpeg's version."""
    return hashlib.sha256(json.dumps([version, *commands]).encode()).hexdigest()[:16]


def kept(path: Path, make: Callable[[Path], None]) -> Path:
    """The file at `path`; if it does not exist, `make` creates it elsewhere under the same name."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
        made = Path(folder) / path.name
        make(made)
        made.replace(path)
    return path


def ffmpeg_version() -> str:
    """The version of ffmpeg; raises `UnfitEnvironmentError` if it is missing."""
    if shutil.which("ffmpeg") is None:
        raise UnfitEnvironmentError("the program ffmpeg is missing, which makes the film")
    return _ran(["ffmpeg", "-version"]).splitlines()[0]


def run_ffmpeg(words: Sequence[str]) -> None:
    """Run it quietly; raises `UnfitEnvironmentError` with its first line of output if it fails."""
    _ran(["ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-y", *words])


def _ran(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if "Unknown encoder" in done.stderr:
        raise UnfitEnvironmentError("this ffmpeg was built without libx264, which the film needs")
    raise UnfitEnvironmentError(f"ffmpeg cannot make the film: {lines[0] if lines else 'failed'}")
