"""The measured part of docs/comparison.md: tables, plots, the machine.

The text around it stays.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path as File
from typing import Any

import polars as pl

from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.figure_pdf import LOOK, draw
from ontempo.lab.folder import replace_part, unwritable
from ontempo.lab.place import make_folder
from ontempo.lab.plots import Axis, Figure, Series, View, exact

from .contenders import Contender
from .paths import COMMON, QUICK, Grid, Path, paths
from .readings import decodable_share, path_of

MARKS = ("<!-- measured: written by experiments.comparison -->", "<!-- /measured -->")

COLUMNS = (
    *("carried by", "decodable", "lost", "late", "sound", "p50", "p99", "bytes", "back"),
    *("sender", "receiver", "download"),
)

LOOKS: Mapping[str, tuple[str, str]] = {
    "direct": ("quiet", "circle"),
    "rtp": ("reno", "square"),
    "http": ("cubic", "triangle-up"),
    "srt": ("step-0", "circle"),
    "srt-encrypted": ("step-0", "diamond"),
    "srt-fec": ("step-0", "square"),
    "rist": ("step-2", "square"),
    "rist-no-nulls": ("step-2", "diamond"),
    "srt-120": ("step-0", "circle-open"),
    "rist-1000": ("step-2", "square-open"),
    "ontempo-ordered": ("pert", "triangle-up"),
    "ontempo-partial-order": ("pert", "diamond"),
}
"""Colour and symbol in plots of the contenders that run everywhere."""

WIDTH_IN, HEIGHT_IN, DPI = 6.0, 3.6, 160


def cells(row: Mapping[str, Any], shown: str) -> list[str]:
    """A row of the table of a path."""
    download = row["download_bps"]
    return [
        shown + (f" ({row['ended_early']})" if row["ended_early"] else ""),
        f"{row['decodable']}",
        _share(row["lost"] / row["frames"]),
        _share(row["late"] / row["frames"]),
        _share(row["sound"]),
        _millis(row["latency_p50_s"]),
        _millis(row["latency_p99_s"]),
        f"{row['wire_forth']:.2f}",
        f"{row['wire_back']:.3f}",
        f"{row['sender_ms']:.0f}",
        f"{row['receiver_ms']:.0f}",
        "" if download is None else f"{download / 1e6:.1f}",
    ]


def _share(value: float) -> str:
    return "0" if value == 0 else f"{100 * value:.1f} %"


def _millis(seconds: float) -> str:
    return "" if seconds != seconds else f"{seconds * 1000:,.0f} ms"  # noqa: PLR0124 - NaN


def tables(rows: pl.DataFrame, contenders: Sequence[Contender], missing: Sequence[str]) -> str:
    """Markdown: decodable frames over all constant links, then a table for each other path."""
    shown = {one.name: one.shown for one in contenders}
    parts, detailed = [], paths(Grid.hard)
    listed = rows.filter(pl.Series([path_of(row) in COMMON for row in rows.iter_rows(named=True)]))
    if listed["path"].n_unique() > len(QUICK):
        parts.append(overview(listed, [one for one in contenders if one.everywhere]))
    for _, group in groupby(rows.iter_rows(named=True), lambda row: row["path"]):
        of_path = list(group)
        path = path_of(of_path[0])
        if path not in detailed:
            continue
        kept = COLUMNS if path.queue_bdp else COLUMNS[:-1]
        lines = [" | ".join(kept), " | ".join("---" for _ in kept)]
        lines += [" | ".join(cells(row, shown[row["contender"]])[: len(kept)]) for row in of_path]
        table = "\n".join(f"| {line} |" for line in lines)
        words = path.words[:1].upper() + path.words[1:]
        parts.append(
            f"### {words}\n\n{of_path[0]['frames']} frames;"
            f" buffers of {path.latency_ms:,} ms.\n\n{table}\n"
        )
    if missing:
        parts.append("\n".join(f"- {line}" for line in missing) + "\n")
    return "\n".join(parts)


def overview(rows: pl.DataFrame, contenders: Sequence[Contender]) -> str:
    """The shares of decodable frames: a line for each path, a column for each contender."""
    heading = ["path", *(one.shown for one in contenders)]
    lines = [" | ".join(heading), " | ".join(["---", *("---:" for _ in contenders)])]
    by_path: dict[Path, dict[str, str]] = {}
    for row in rows.iter_rows(named=True):
        share = f"{100 * decodable_share(row):.1f}"
        by_path.setdefault(path_of(row), {})[row["contender"]] = share
    for path in (path for path in COMMON if path in by_path):
        shares = [by_path[path].get(one.name, "") for one in contenders]
        lines.append(" | ".join([path.words.replace(" the stream's rate", ""), *shares]))
    table = "\n".join(f"| {line} |" for line in lines)
    return f"### Constant links\n\nFrames decodable on time, %.\n\n{table}\n"


def figures(rows: pl.DataFrame, contenders: Sequence[Contender]) -> dict[str, Figure]:
    """The plots over the quick grid's paths, of the contenders that run everywhere."""
    contenders = [one for one in contenders if one.everywhere]
    plotted = {row["path"] for row in rows.iter_rows(named=True) if path_of(row) in QUICK}
    rows = rows.filter(pl.col("path").is_in(plotted))
    named = rows.unique("path", maintain_order=True)
    ticks = {float(row["path"]): _short(row) for row in named.iter_rows(named=True)}
    axis = Axis("Path: loss, round trip, rate of the bottleneck beside the stream's", ticks=ticks)

    def figure(alt: str, title: str, quantity: str, style: str) -> Figure:
        return Figure(alt, axis, Axis(title, format=style), [_view(rows, contenders, quantity)])

    return {
        "late": figure(
            "Share of the frames that could not be decoded on time, by path and contender.",
            "Frames not decodable on time",
            "bad",
            ".0%",
        ),
        "latency": figure(
            "99th percentile of the latency of what arrived, by path and contender.",
            "Latency p99, s (at most 3 shown)",
            "latency_p99_s",
            ".3~g",
        ),
        "wire": figure(
            "Bytes on the path for each byte of the stream, by path and contender.",
            "Bytes on the way for each of the stream",
            "wire_forth",
            ".3~g",
        ),
    }


BESIDE = 0.036
"""Distance of two contenders' marks at one path, so that equal ones do not hide each other."""

MAX_SHOWN_S = 3.0
"""Upper end of latency plots: HTTP over losses would compress the others."""


def _view(rows: pl.DataFrame, contenders: Sequence[Contender], quantity: str) -> View:
    series = []
    for number, one in enumerate(contenders):
        beside = (number - (len(contenders) - 1) / 2) * BESIDE
        colour, symbol = LOOKS[one.name]
        points = {}
        for row in rows.filter(contender=one.name).iter_rows(named=True):
            value = 1 - decodable_share(row) if quantity == "bad" else row[quantity]
            if quantity == "latency_p99_s":
                value = min(value, MAX_SHOWN_S)
            points[row["path"] + beside] = exact(value)
        series.append(Series(one.shown, colour, points, style="none", symbol=symbol))
    return View("", series)


def _short(row: Mapping[str, Any]) -> str:
    bursts = " bursts" if row["burst"] else ""
    return f"{row['loss']:.0%}{bursts}\n{row['rtt_ms']} ms\n{row['share']:g}×"


def write_plots(drawn: Mapping[str, Figure], folder: File) -> None:
    """Each plot as PNG."""
    try:
        from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra
        from matplotlib.style import context  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UnfitEnvironmentError("--page needs the package matplotlib") from error
    try:
        make_folder(folder)
        with context(LOOK):
            for name, figure in drawn.items():
                canvas = Canvas(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
                draw(canvas, figure, figure.views[0])
                metadata = {"Software": None}
                canvas.savefig(folder / f"comparison-{name}.png", dpi=DPI, metadata=metadata)
    except OSError as error:
        raise unwritable(folder, error) from error


def write_page(page: File, measured: str, drawn: Mapping[str, Figure]) -> None:
    """Replace the measured part of the page, and its plots."""
    write_plots(drawn, page.parent / "images")
    images = "\n\n".join(
        f"![{figure.alt}](images/comparison-{name}.png)" for name, figure in drawn.items()
    )
    replace_part(page, MARKS, f"{images}\n\n{measured}")
