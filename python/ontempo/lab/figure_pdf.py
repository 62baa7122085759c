"""Figures as a paper prints them: vector graphics of a column's width, legible in black and white.

They are drawn from the same data as the report's, in its light palette. A figure with several
views becomes a file with a page for each, the one shown first in front. The same data give the
same bytes: no date is written.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from textwrap import fill
from typing import Any

from ontempo.lab.errors import UnfitEnvironmentError
from ontempo.lab.folder import unwritable
from ontempo.lab.plots import Axis, Figure, Series, View

WIDTH_IN, HEIGHT_IN = 3.5, 2.5
"""One column of a two-column page."""

STYLES = {"solid": "-", "dash": (0, (4, 2)), "dot": (0, (1, 1.6)), "none": ""}
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v"}

LOOK = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral", "DejaVu Serif"],
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.direction": "out",
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.4,
    "pdf.fonttype": 42,  # text stays text, as publishers ask
}

LEGEND_PT, KEY_PT, LETTER_PT = 250, 30, 2.9
"""How wide a legend may be, and what an entry takes: its line, and about so much a letter."""

TITLE_LETTERS = {"x": 60, "y": 34}
"""How long a line of an axis's title may be."""


def write_figures(figures: Mapping[str, Sequence[Figure]], folder: Path) -> list[Path]:
    """A file for each figure, named after its claim."""
    try:
        from matplotlib.backends.backend_pdf import PdfPages  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure as Canvas  # noqa: PLC0415
        from matplotlib.style import context  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UnfitEnvironmentError(
            "--pdf needs the package matplotlib: pip install 'ontempo[lab,pdf]'"
        ) from error
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with context(LOOK):
            for name, drawn in figures.items():
                for index, figure in enumerate(drawn):
                    suffix = f"-{index + 1}" if len(drawn) > 1 else ""
                    path = folder / f"{name.replace('/', '-')}{suffix}.pdf"
                    about = {"Title": figure.alt, "CreationDate": None, "Producer": "ontempo"}
                    with PdfPages(path, metadata=about) as pages:
                        for view in _in_order(figure):
                            canvas = Canvas(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
                            draw(canvas, figure, view)
                            pages.savefig(canvas)
                    written.append(path)
    except OSError as error:
        raise unwritable(folder, error) from error
    return written


def draw(canvas: Any, figure: Figure, view: View) -> None:
    """One view on a canvas of matplotlib."""
    axes = canvas.add_subplot()
    places = {place: index for index, place in enumerate(sorted(figure.x.ticks))}
    for series in view.series:
        _line(axes, series, places)
    for zone in figure.zones:
        axes.axvspan(zone.low, zone.high, color=colour("ink"), alpha=0.05, lw=0, zorder=0)
        at = (zone.low, 0.02)
        axes.annotate(
            f" {zone.label}",
            at,
            xycoords=axes.get_xaxis_transform(),
            color=colour("quiet"),
            size=6.5,
        )
    for value, words in figure.reference:
        axes.axhline(value, color=colour("quiet"), lw=0.6, ls=(0, (2, 2)), zorder=1)
        axes.annotate(
            f" {words}",
            (0, value),
            xycoords=axes.get_yaxis_transform(),
            va="bottom",
            color=colour("quiet"),
            size=6.5,
        )
    _axes(axes, figure, places)
    named = [series for series in view.series if series.points]
    if len(named) > 1:
        order, columns = by_rows([series.name for series in named])
        handles, labels = axes.get_legend_handles_labels()
        canvas.legend(
            [handles[place] for place in order],
            [labels[place] for place in order],
            loc="outside upper left",
            ncols=columns,
            columnspacing=1.2,
        )
    if view.label:
        axes.set_title(
            f"{figure.selector} {view.label}", size=7, loc="right", color=colour("quiet")
        )


def by_rows(names: Sequence[str]) -> tuple[list[int], int]:
    """A legend that is read row by row: the order to give its entries in, and its columns.

    Rows are about equally long. matplotlib fills column by column, the first ones fuller.
    """
    widest = KEY_PT + LETTER_PT * max(map(len, names))
    rows = -(-len(names) // max(1, min(len(names), int(LEGEND_PT / widest))))
    columns = -(-len(names) // rows)
    return [
        place for first in range(columns) for place in range(first, len(names), columns)
    ], columns


def wrapped(text: str, most: int) -> str:
    """Lines of about equal length."""
    lines = -(-len(text) // most)
    return min(
        (fill(text, width) for width in range(most, len(text) // lines - 1, -1)),
        key=lambda one: (one.count("\n"), max(map(len, one.split("\n")))),
    )


def _line(axes: Any, series: Series, places: Mapping[float, int]) -> None:
    points = [(places.get(x, x), p) for x, p in sorted(series.points.items()) if p.known]
    if not points:
        return
    own = colour(series.colour)
    marker = MARKERS.get(series.symbol.removesuffix("-open"), "o") if series.markers else ""
    axes.plot(
        [x for x, _ in points],
        [point.value for _, point in points],
        color=own,
        ls=STYLES[series.style],
        marker=marker,
        mfc="white" if series.symbol.endswith("-open") else own,
        mew=0.7,
        label=series.name,
        zorder=3,
    )
    lined = series.style != "none"
    banded = [(x, point) for x, point in points if lined and point.low == point.low]  # not NaN
    if len(banded) > 1:
        axes.fill_between(
            [x for x, _ in banded],
            [point.low for _, point in banded],
            [point.high for _, point in banded],
            color=own,
            alpha=0.14,
            lw=0,
            zorder=2,
        )


def _axes(axes: Any, figure: Figure, places: Mapping[float, int]) -> None:
    axes.set_xlabel(wrapped(figure.x.title, TITLE_LETTERS["x"]))
    axes.set_ylabel(wrapped(figure.y.title, TITLE_LETTERS["y"]))
    axes.grid(axis="y", color=colour("grid"))
    axes.tick_params(color=colour("quiet"))
    if places:
        names = [figure.x.ticks[place] for place in places]
        axes.set_xticks(list(places.values()), names)
        axes.set_xlim(-0.25, len(places) - 0.75)
    elif figure.x.range:
        axes.set_xlim(*figure.x.range)
    if figure.y.range:
        axes.set_ylim(*figure.y.range)
    for one, axis in ((figure.x, axes.xaxis), (figure.y, axes.yaxis)):
        _percent(one, axis)


def _percent(axis: Axis, drawn: Any) -> None:
    from matplotlib.ticker import PercentFormatter  # noqa: PLC0415 - an extra

    if axis.format.endswith("%"):
        # The digits of the axis follow from its steps, those of the format are the least.
        drawn.set_major_formatter(PercentFormatter(1, symbol=" %"))


def _in_order(figure: Figure) -> list[View]:
    shown = figure.views[figure.shown]
    return [shown, *(view for view in figure.views if view is not shown)]


@cache
def palette() -> dict[str, str]:
    """The report's light palette."""
    style = (files("ontempo.lab") / "assets" / "report.css").read_text("utf-8")
    light = style[: style.index("}")]
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", light))


def colour(name: str) -> str:
    """A colour by its role; ink for a role that the palette lacks."""
    return palette().get(name, palette()["ink"])
