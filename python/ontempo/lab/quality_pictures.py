"""What a viewer sees of one round of a film, decoded by ffmpeg and compared with the film."""

import json
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.programs import run_program
from ontempo.lab.quality_film import Film

SSIM_LINE = re.compile(r"^n:(\d+) .*All:([0-9.]+|inf|nan) ", re.MULTILINE)


@dataclass(frozen=True)
class Seen:
    """Scores of the pictures of a round in the order in which they are shown.

    SSIM from 0 to 1 over all planes; VMAF from 0 to 100, `None` where ffmpeg lacks it; and how many
    pictures the decoder gave.
    """

    ssim: tuple[float, ...]
    vmaf: tuple[float, ...] | None
    decoded: int


def ffmpeg() -> str:
    """The program ffmpeg; raises `UnfitEnvironmentError` if it is missing."""
    found = shutil.which("ffmpeg")
    if not found:
        raise UnfitEnvironmentError("ffmpeg is not installed: sudo apt-get install ffmpeg")
    return found


@cache
def has_vmaf(program: str) -> bool:
    """Whether this ffmpeg has the filter libvmaf."""
    filters = run_program([program, "-hide_banner", "-v", "fatal", "-filters"], "ffmpeg -filters")
    return re.search(r"\slibvmaf\s", filters) is not None


def version(program: str) -> str:
    """The first line of its version."""
    return run_program([program, "-version"], "ffmpeg -version").partition("\n")[0].strip()


def look(film: Film, missing: Collection[int], before: int | None, work: Path) -> Seen:
    """Decode a round of a film without the pictures at the places `missing`, and compare.

    A missing picture shows the last one before it: at the begin of the round that at the place
    `before`, the last one shown of the round before, or black if there is none. `work` is a folder
    for temporary files.
    """
    program = ffmpeg()
    still(film, before, work)
    are_left = len(missing) < len(film.pictures)
    # Of each time of the film the last picture that is not later: overlay and its frames' times.
    graph = [
        "[1:v]setpts=0[still]",
        f"[0:v:0]split={3 if has_vmaf(program) else 2}[from][whole]"
        + ("[again]" if has_vmaf(program) else ""),
        "[from][still]overlay=format=auto[base]",
    ]
    command = [program, "-v", "fatal", "-nostdin", "-y", "-copyts", "-i", str(film.path.resolve())]
    command += ["-i", "still.nut"]
    if are_left:
        (work / "seen.ts").write_bytes(film.without(missing))
        command += ["-copyts", "-i", "seen.ts"]
        graph += ["[2:v:0]split=2[got][count]", "[base][got]overlay=format=auto[seen]"]
    else:
        graph += ["[base]null[seen]"]
    if has_vmaf(program):
        graph += [
            "[seen]split=2[one][two]",
            "[two][again]libvmaf=log_fmt=json:log_path=vmaf.json[judged]",
        ]
    graph += [f"[{'one' if has_vmaf(program) else 'seen'}][whole]ssim=stats_file=ssim.log[out]"]
    command += ["-filter_complex", ";".join(graph), "-map", "[out]", "-f", "null", "-"]
    if has_vmaf(program):
        command += ["-map", "[judged]", "-f", "null", "-"]
    if are_left:
        command += ["-map", "[count]", "-fps_mode", "passthrough", "-f", "framecrc", "count.txt"]
    run_program(command, f"{film.path}: ffmpeg", cwd=work)
    return _read(film, work, are_left=are_left, judged=has_vmaf(program))


def still(film: Film, place: int | None, work: Path) -> None:
    """Write the film's picture at a place, or a black one of its size, to `still.nut`."""
    order = sorted(range(len(film.pictures)), key=lambda at: film.pictures[at].shown_s)
    number = 0 if place is None else order.index(place)
    middle = "(minval+maxval)/2"
    black = f",lutyuv=y=minval:u={middle}:v={middle}" if place is None else ""
    command = [ffmpeg(), "-v", "fatal", "-nostdin", "-y", "-i", str(film.path.resolve())]
    command += ["-map", "0:v:0", "-vf", rf"select=eq(n\,{number}){black}", "-frames:v", "1"]
    run_program([*command, "-c:v", "rawvideo", "still.nut"], f"{film.path}: ffmpeg", cwd=work)


def _read(film: Film, work: Path, *, are_left: bool, judged: bool) -> Seen:
    found = SSIM_LINE.findall((work / "ssim.log").read_text("utf-8"))
    if len(found) != len(film.pictures):
        raise UnfitEnvironmentError(
            f"{film.path}: ffmpeg decodes {len(found)} of its {len(film.pictures)} pictures: they"
            " cannot be compared one by one"
        )
    vmaf = None
    if judged:
        frames = json.loads((work / "vmaf.json").read_text("utf-8"))["frames"]
        vmaf = tuple(float(frame["metrics"]["vmaf"]) for frame in frames)
    lines = (work / "count.txt").read_text("utf-8").splitlines() if are_left else []
    decoded = sum(not line.startswith("#") for line in lines)
    return Seen(tuple(float(score) for _, score in found), vmaf, decoded)
