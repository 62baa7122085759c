"""The measured part of docs/comparison.md: a table for each path, plots, the machine.

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
from .paths import QUICK
from .readings import bad_share, path_of

MARKS = ("<!-- measured: written by experiments.comparison -->", "<!-- /measured -->")

COLUMNS = (
    *("carried by", "lost", "late", "sound", "p50", "p99", "bytes", "back"),
    *("sender", "receiver"),
)

LOOKS: Mapping[str, tuple[str, str]] = {
    "direct": ("quiet", "circle"),
    "rtp": ("reno", "square"),
    "http": ("cubic", "triangle-up"),
    "srt": ("step-0", "circle"),
    "rist": ("step-2", "square"),
    "srt-120": ("step-0", "circle-open"),
    "rist-1000": ("step-2", "square-open"),
    "ontempo-ordered": ("pert", "triangle-up"),
    "ontempo-out-of-sequence": ("pert", "circle"),
    "ontempo-partial-order": ("pert", "diamond"),
    "ontempo-cubic": ("pert", "square-open"),
}
"""Colour and symbol of each contender in plots."""

WIDTH_IN, HEIGHT_IN, DPI = 6.0, 3.6, 160


def path_words(row: Mapping[str, Any]) -> str:
    """A description of a path."""
    loss = "no loss"
    if row["loss"]:
        loss = f"{row['loss']:.0%} loss, {row['pattern']}".replace("%", " %")
    return f"{loss}; {row['rtt_ms']} ms; {row['share']:g} times the stream's rate"


def cells(row: Mapping[str, Any], shown: str) -> list[str]:
    """A row of the table."""
    return [
        shown + (f" ({row['ended_early']})" if row["ended_early"] else ""),
        _share(row["lost"] / row["frames"]),
        _share(row["late"] / row["frames"]),
        _share(row["sound"]),
        _millis(row["latency_p50_s"]),
        _millis(row["latency_p99_s"]),
        f"{row['wire_forth']:.2f}",
        f"{row['wire_back']:.3f}",
        f"{row['sender_ms']:.0f}",
        f"{row['receiver_ms']:.0f}",
    ]


def _share(value: float) -> str:
    return "0" if value == 0 else f"{100 * value:.1f} %"


def _millis(seconds: float) -> str:
    return "" if seconds != seconds else f"{seconds * 1000:,.0f} ms"  # noqa: PLR0124 - NaN


def tables(rows: pl.DataFrame, contenders: Sequence[Contender], missing: Sequence[str]) -> str:
    """A table in Markdown for each path."""
    shown = {one.name: one.shown for one in contenders}
    parts = []
    for _, group in groupby(rows.iter_rows(named=True), lambda row: row["path"]):
        of_path = list(group)
        first = of_path[0]
        lines = [" | ".join(COLUMNS), " | ".join("---" for _ in COLUMNS)]
        lines += [" | ".join(cells(row, shown[row["contender"]])) for row in of_path]
        table = "\n".join(f"| {line} |" for line in lines)
        parts.append(
            f"### {path_words(first).capitalize()}\n\n{first['frames']} frames; buffers by the rule"
            f" are of {path_of(first).latency_ms} ms.\n\n{table}\n"
        )
    if missing:
        parts.append("\n".join(f"- {line}" for line in missing) + "\n")
    return "\n".join(parts)


def figures(rows: pl.DataFrame, contenders: Sequence[Contender]) -> dict[str, Figure]:
    """The plots over the quick grid's paths: frames lost or late, latency, bytes."""
    plotted = {row["path"] for row in rows.iter_rows(named=True) if path_of(row) in QUICK}
    rows = rows.filter(pl.col("path").is_in(plotted))
    named = rows.select("path", "loss", "pattern", "rtt_ms", "share").unique(maintain_order=True)
    ticks = {float(row["path"]): _short(row) for row in named.iter_rows(named=True)}
    axis = Axis("Path: loss, round trip, rate of the bottleneck beside the stream's", ticks=ticks)

    def figure(alt: str, title: str, quantity: str, style: str) -> Figure:
        return Figure(alt, axis, Axis(title, format=style), [_view(rows, contenders, quantity)])

    return {
        "late": figure(
            "Share of the frames lost or late, by path and contender.",
            "Frames lost or late",
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


BESIDE = 0.045
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
            value = bad_share(row) if quantity == "bad" else row[quantity]
            if quantity == "latency_p99_s":
                value = min(value, MAX_SHOWN_S)
            points[row["path"] + beside] = exact(value)
        series.append(Series(one.shown, colour, points, style="none", symbol=symbol))
    return View("", series)


def _short(row: Mapping[str, Any]) -> str:
    bursts = " bursts" if row["pattern"] == "bursts" else ""
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
