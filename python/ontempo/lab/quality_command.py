"""``ontempo-lab quality`` behind its command line."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ontempo.lab.folder import claimed, write_text
from ontempo.lab.narrow import Column, print_fitting
from ontempo.lab.quality import MAX_ROUNDS, Quality, measure, seconds
from ontempo.lab.quality_pictures import ffmpeg, has_vmaf, version

FILE = "quality.json"
"""Beside the tables of the run."""

NO_VMAF = "undecided: this ffmpeg has no filter libvmaf (ffmpeg -filters)"


def run_quality(run: Path, film: Path, latencies: Sequence[str], *, as_json: bool) -> Path:
    """Compare what viewers of a run see with its film; print it and write `FILE` into the run."""
    players = [seconds(text, "--latency") for text in latencies]
    program = ffmpeg()
    read, found = measure(run, film, players)
    document: dict[str, Any] = {
        "run": str(run),
        "film": str(film),
        "film_sha256": read.sha256,
        "ffmpeg": version(program),
        "vmaf": "measured" if has_vmaf(program) else NO_VMAF,
        "players": [asdict(one) for one in found],
    }
    path = run / FILE
    with claimed(run):
        write_text(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    if as_json:
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return path
    console = Console(highlight=False)
    print_fitting(*columns(found), console)
    if not has_vmaf(program):
        console.print(f"VMAF: {NO_VMAF}", soft_wrap=True, markup=False)
    for one in found:
        if one.rounds_left_out:
            name = f"{one.group}.{one.index}"
            text = f"{name}: {one.rounds_left_out} rounds after the first {MAX_ROUNDS} are left out"
            console.print(text, soft_wrap=True, markup=False)
        if one.decoded != one.left:
            text = f"ffmpeg gave {one.decoded} pictures of {one.left} that are left in the stream"
            console.print(f"{one.group}.{one.index}: {text}", soft_wrap=True, markup=False)
    console.print(f"\nWritten to {path}", soft_wrap=True, markup=False)
    return path


def columns(found: Sequence[Quality]) -> tuple[list[Column], list[Column]]:
    """Film and player, and the figures of each, as columns for the terminal."""

    def column(name: str, words: Callable[[Quality], str]) -> Column:
        return Column(name, [Text(words(one)) for one in found])

    film = column("film", lambda one: f"{one.group}.{one.index}")
    player = column("player", lambda one: f"{one.player_latency_s * 1e3:.0f} ms")
    axes = [replace(film, is_axis=True), replace(player, is_axis=True, right=True)]
    values = [
        column("pictures", lambda one: str(one.pictures)),
        column("on time", lambda one: f"{100 * one.on_time / one.pictures:.2f} %"),
        column("SSIM", lambda one: f"{one.ssim_mean:.4f}"),
        column("5 % below", lambda one: f"{one.ssim_p5:.4f}"),
        column(
            "VMAF",
            lambda one: "undecided" if one.vmaf_mean is None else f"{one.vmaf_mean:.1f}",
        ),
    ]
    return axes, values
