"""The results of an arena as one HTML page: a figure for each class, and its numbers."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path as File
from string import Template

import polars as pl
from plotly.offline import get_plotlyjs

from ontempo.lab.arena.cells import ROUND_TRIPS
from ontempo.lab.arena.contenders import CONTENDERS, Contender
from ontempo.lab.arena.output import (
    BOTH,
    BOTH_HEADS,
    BOUND,
    HEADS,
    LEGEND,
    RULE,
    Outcome,
    both_cells,
    class_cells,
    classes,
    extent,
    notes,
)
from ontempo.lab.arena.summary import bounds, by_class, over_seeds
from ontempo.lab.figure_html import figure_html
from ontempo.lab.folder import write_text
from ontempo.lab.plots import Axis, Figure, Series, View, exact
from ontempo.lab.statistics import Interval

PLACES = {float(place): f"{times:g}" for place, times in enumerate(ROUND_TRIPS)}
"""Buffers of one scale; those by default, which are of another, stand in the table."""

_Found = Callable[[Contender, str], list[Interval]]

TICKS = {place: f"{name} round trips" for place, name in PLACES.items()}

STYLE = "<style>.numbers.whole td { text-align: right !important }</style>"
"""Of tables whose first column alone is text."""


def write_html(outcome: Outcome, path: File) -> None:
    """Write the page; it needs no other file, and no network."""
    sections = "".join(_section(name, words, rows) for name, words, rows in classes(outcome.rows))
    remarks = "".join(f"<li>{escape(line)}</li>" for line in notes(outcome))
    remarks = f'<section class="verdicts"><h2>Remarks</h2><ul>{remarks}</ul></section>'
    lede = (
        "The same films over the same paths, carried by each transport in turn: pictures that are"
        f" decodable on time. {RULE} {LEGEND}"
    )
    body = f"{STYLE}{_both(outcome)}{sections}{remarks if notes(outcome) else ''}"
    write_text(path, page("Which transport carries this film?", "arena", lede, body))


def page(title: str, kicker: str, lede: str, body: str) -> str:
    """A page of the report's look, with style and scripts inlined."""
    assets = files("ontempo.lab") / "assets"
    style, script, template = (
        (assets / name).read_text("utf-8") for name in ("report.css", "report.js", "page.html")
    )
    text = Template(template).substitute(
        generator="ontempo",
        title=escape(title),
        navigation="",
        body=f'<header><p class="kicker">{escape(kicker)}</p><h1>{escape(title)}</h1>'
        f'<p class="lede">{escape(lede)}</p></header><main id="content">{body}</main>',
        plotly=f"<script>{get_plotlyjs()}</script>\n",
    )
    text = text.replace(
        '<link rel="stylesheet" href="assets/report.css">', f"<style>{style}</style>"
    )
    return text.replace('<script src="assets/report.js"></script>', f"<script>{script}</script>")


def _section(name: str, words: str, rows: pl.DataFrame) -> str:
    figure = figure_html(figure_of(name, rows), f"figure-{name}")
    return (
        f'<section class="claim"><div class="head"><span class="id">{escape(extent(rows))}</span>'
        f"<h2>{escape(f'{name}: {words}')}</h2></div>"
        f'<div class="figures">{figure}</div>'
        f"{number_table(HEADS, class_cells(rows))}</section>"
    )


def number_table(heads: Sequence[str], lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table of numbers; the first `left` columns name the rows."""
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    rows = "".join(
        "<tr>"
        + "".join(f'<th scope="row">{escape(cell)}</th>' for cell in line[:left])
        + "".join(f"<td>{escape(cell)}</td>" for cell in line[left:])
        + "</tr>"
        for line in lines
    )
    return (
        '<div class="numbers whole"><table><thead><tr>'
        f"{top}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def figure_of(name: str, rows: pl.DataFrame) -> Figure:
    """Pictures on time by buffer: all paths together, then each."""
    paths = rows["path"].unique(maintain_order=True).to_list()
    views = [View("all paths", _of_class(rows))]
    if len(paths) > 1:
        views += [View(path, _of_path(rows.filter(path=path))) for path in paths]
    return Figure(
        f"Pictures decodable on time over the paths {name}, by buffer and transport.",
        Axis("Buffer", ticks=TICKS),
        Axis("Pictures decodable on time", (-0.02, 1.02), format=".1~%"),
        views,
        selector="Path",
    )


def _of_class(rows: pl.DataFrame) -> list[Series]:
    means = by_class(rows)
    return _series(
        lambda contender, buffer: [
            exact(value)
            for value in means.filter(contender=contender.name, buffer=buffer)["on_time"]
        ],
        bounds(means),
    )


def _of_path(rows: pl.DataFrame) -> list[Series]:
    def found(contender: Contender, buffer: str) -> list[Interval]:
        of_one = rows.filter(contender=contender.name, buffer=buffer)
        return [over_seeds(of_one)] if of_one.height else []

    return _series(found, bounds(by_class(rows)))


def _series(found: _Found, most: Mapping[str, float]) -> list[Series]:
    """The lines of the contenders, and that of the bound."""
    series = []
    for contender in CONTENDERS:
        points = {
            place: values[0]
            for place, buffer in PLACES.items()
            if (values := found(contender, buffer))
        }
        if points:
            series.append(
                Series(contender.shown, contender.colour, points, symbol=contender.symbol)
            )
    limits = {place: exact(most[name]) for place, name in PLACES.items() if name in most}
    if limits:
        series.append(Series(BOUND, "quiet", limits, style="dash", markers=False))
    return series


def _both(outcome: Outcome) -> str:
    if not outcome.apart:
        return ""
    return (
        f'<section class="verdicts"><h2>{escape(BOTH)}</h2>'
        f"{number_table(BOTH_HEADS, both_cells(outcome.apart), left=2)}</section>"
    )
