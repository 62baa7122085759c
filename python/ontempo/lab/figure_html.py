"""A figure's part of the page: legend, selector, plot, and the same numbers as tables."""

import json
import math
from html import escape

from ontempo.lab.plots import Figure, Series, View, plotly_layout, plotly_traces
from ontempo.lab.statistics import Interval

DASHES = {"solid": "", "dash": "6 4", "dot": "2 3"}

SYMBOLS = {
    "circle": '<circle cx="14" cy="6" r="3.6"/>',
    "square": '<rect x="10.6" y="2.6" width="6.8" height="6.8"/>',
    "diamond": '<path d="M14 1.2 18.8 6 14 10.8 9.2 6Z"/>',
    "triangle-up": '<path d="M14 1.6 18.4 9.4H9.6Z"/>',
    "triangle-down": '<path d="M14 10.4 9.6 2.6H18.4Z"/>',
}


def figure_html(figure: Figure, anchor: str) -> str:
    """The figure as HTML; the page's script draws it from the data inside."""
    data = {
        "views": [plotly_traces(view, figure.x, figure.y) for view in figure.views],
        "layout": plotly_layout(figure),
    }
    return (
        f'<figure data-figure="{anchor}-data"><div class="bar">{_legend(figure)}'
        f'{_selector(figure, anchor)}</div><p class="ytitle">{escape(figure.y.title)}</p>'
        f'<div class="plot" role="img" aria-label="{escape(figure.alt)}"></div>'
        f'<p class="xtitle">{escape(figure.x.title)}</p>'
        f"<details><summary>The numbers</summary>{_tables(figure)}</details>"
        f'<script type="application/json" id="{anchor}-data">{embedded_json(data)}</script>'
        "</figure>"
    )


def embedded_json(data: object) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _legend(figure: Figure) -> str:
    known = {s.name: s for view in figure.views for s in view.series if s.name}
    items = "".join(
        f'<li><button type="button" aria-pressed="true" data-series="{escape(name)}">'
        f"{_swatch(series)}{escape(name)}</button></li>"
        for name, series in known.items()
    )
    return f'<ul class="legend" aria-label="Lines; press to hide or show">{items}</ul>'


def _swatch(series: Series) -> str:
    colour = f"var(--{series.colour})"
    shape = SYMBOLS.get(series.symbol.removesuffix("-open"), "") if series.markers else ""
    inside = "var(--surface)" if series.symbol.endswith("-open") else colour
    return (
        f'<svg viewBox="0 0 28 12" aria-hidden="true" style="stroke:{colour};fill:{inside}">'
        f"{_stroke(series)}{shape}</svg>"
    )


def _stroke(series: Series) -> str:
    if series.style == "none":
        return ""
    dash = DASHES[series.style]
    return f'<path d="M0 6H28" stroke-width="2" stroke-dasharray="{dash}"/>'


def _selector(figure: Figure, anchor: str) -> str:
    if len(figure.views) < 2:  # noqa: PLR2004 - one view leaves nothing to choose
        return ""
    options = "".join(
        f"<option{' selected' if index == figure.shown else ''}>{escape(view.label)}</option>"
        for index, view in enumerate(figure.views)
    )
    return (
        f'<label class="chooser" for="{anchor}-view">{escape(figure.selector)}'
        f'<select id="{anchor}-view">{options}</select></label>'
    )


def _tables(figure: Figure) -> str:
    return "".join(f'<div class="numbers">{_table(figure, view)}</div>' for view in figure.views)


def _table(figure: Figure, view: View) -> str:
    places = sorted({place for series in view.series for place in series.points})
    heads = "".join(f'<th scope="col">{escape(series.name)}</th>' for series in view.series)
    rows = "".join(
        f'<tr><th scope="row">{escape(figure.x.ticks.get(place, f"{place:g}"))}</th>'
        + "".join(f"<td>{_cell(series.points.get(place))}</td>" for series in view.series)
        + "</tr>"
        for place in places
    )
    what = f"{figure.selector}: {view.label}. " if view.label else ""
    return (
        f"<table><caption>{escape(what + figure.y.title)}</caption>"
        f'<thead><tr><th scope="col">{escape(figure.x.title)}</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _cell(point: Interval | None) -> str:
    if point is None or not point.known:
        return "<small>none</small>"
    value = f"{point.value:.4g}"
    if math.isnan(point.low):
        return value
    return f"{value} <small>({point.low:.3g} to {point.high:.3g})</small>"
