"""Figures as data, and how they become Plotly traces.

A figure names its colours by role (``"pert"``, ``"step-2"``); the report's page fills in the
light or the dark palette. Numbers are kept as given, so the table beside a plot shows exactly
what is plotted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ontempo.lab.statistics import Interval

Trace = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """One axis: what it shows, its range, its number format.

    With `ticks` the places have names and stand at equal distances. `hover` heads the box that
    shows the values at a place, with ``%{x}`` for the place.
    """

    title: str
    range: tuple[float, float] | None = None
    ticks: Mapping[float, str] = field(default_factory=dict)
    format: str = ""
    hover: str = ""


@dataclass(frozen=True)
class Series:
    """One line: estimates by place, with a band where the intervals are known.

    `style` distinguishes lines without colour; with "none" only markers are drawn, for places that
    are not connected, such as different flows.
    """

    name: str
    colour: str
    points: Mapping[float, Interval]
    style: Literal["solid", "dash", "dot", "none"] = "solid"
    symbol: str = "circle"
    markers: bool = True


@dataclass(frozen=True)
class Zone:
    """A shaded range of the x axis, with its label."""

    low: float
    high: float
    label: str


@dataclass(frozen=True)
class View:
    """One state of a figure; a figure with several has a selector."""

    label: str
    series: Sequence[Series]


@dataclass(frozen=True)
class Figure:
    """A plot: its views, its axes, and `alt`, the text for readers who cannot see it."""

    alt: str
    x: Axis
    y: Axis
    views: Sequence[View]
    selector: str = ""
    shown: int = 0
    zones: Sequence[Zone] = ()
    reference: Sequence[tuple[float, str]] = ()


def exact(value: float) -> Interval:
    """A value that is computed rather than estimated."""
    return Interval(value, math.nan, math.nan, 1)


def plotly_traces(view: View, x: Axis, y: Axis) -> list[Trace]:
    """The traces of one view: for each series a band, if it has one, and a line."""
    traces: list[Trace] = []
    for series in view.series:
        points = [(place, point) for place, point in sorted(series.points.items()) if point.known]
        if not points:
            continue
        drawn = series.style != "none"
        banded = [(p, i) for p, i in points if drawn and not math.isnan(i.low)]
        if len(banded) > 1:
            traces.append(_band(series, banded, x))
        traces.append(_line(series, points, x, y))
    return traces


def _band(series: Series, points: Sequence[tuple[float, Interval]], x: Axis) -> Trace:
    places = [x.ticks.get(place, place) for place, _ in points]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*places, *reversed(places)],
        "y": [*(i.high for _, i in points), *(i.low for _, i in reversed(points))],
        "fill": "toself",
        "fillcolor": f"@{series.colour}:0.14",
        "line": {"width": 0, "color": f"@{series.colour}"},
        "hoverinfo": "skip",
        "legendgroup": series.name,
    }


def _line(series: Series, points: Sequence[tuple[float, Interval]], x: Axis, y: Axis) -> Trace:
    return {
        "type": "scatter",
        "mode": _mode(series),
        "name": series.name,
        "legendgroup": series.name,
        "x": [x.ticks.get(place, place) for place, _ in points],
        "y": [point.value for _, point in points],
        "customdata": [_limits(point) for _, point in points],
        "hovertemplate": [_hover(point, y.format or ".3~g") for _, point in points],
        "line": {"color": f"@{series.colour}", "width": 2} | _dash(series),
        "marker": {
            "color": f"@{series.colour}",
            "size": 7,
            "symbol": series.symbol,
            "line": {"color": "@surface", "width": 1.5},
        },
    }


def _mode(series: Series) -> str:
    if series.style == "none":
        return "markers"
    return "lines+markers" if series.markers else "lines"


def _dash(series: Series) -> dict[str, str]:
    return {} if series.style == "none" else {"dash": series.style}


def _limits(point: Interval) -> list[float] | None:
    return None if math.isnan(point.low) else [point.low, point.high]


def _hover(point: Interval, unit: str) -> str:
    value = f"%{{y:{unit}}}"
    if math.isnan(point.low):
        return value
    return f"{value} (%{{customdata[0]:{unit}}} to %{{customdata[1]:{unit}}})"


def plotly_layout(figure: Figure) -> dict[str, Any]:
    """The layout that all views of a figure share."""
    return {
        "xaxis": _axis(figure.x),
        "yaxis": _axis(figure.y),
        "shapes": [
            *({**_zone(zone), "yref": "paper"} for zone in figure.zones),
            *(_rule(value) for value, _ in figure.reference),
        ],
        "annotations": [
            *(_note(zone.label, x=zone.low, y=0, on_rule=False) for zone in figure.zones),
            *(_note(text, x=0, y=value, on_rule=True) for value, text in figure.reference),
        ],
    }


def _axis(axis: Axis) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    if axis.range:
        drawn["range"] = list(axis.range)
    if axis.ticks:
        drawn["type"] = "category"
        drawn["categoryarray"] = list(axis.ticks.values())
        drawn["range"] = [-0.25, len(axis.ticks) - 0.75]
    if axis.hover:
        drawn["unifiedhovertitle"] = {"text": axis.hover}
    if axis.format:
        # A tick has no more digits than it needs: 50 %, not 50.0 %.
        drawn["tickformat"] = axis.format.replace("~%", "%").replace("%", "~%")
    return drawn


def _zone(zone: Zone) -> dict[str, Any]:
    return {
        "type": "rect",
        "x0": zone.low,
        "x1": zone.high,
        "y0": 0,
        "y1": 1,
        "fillcolor": "@ink:0.045",
        "line": {"width": 0},
        "layer": "below",
    }


def _rule(value: float) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": {"color": "@quiet", "width": 1, "dash": "2px,3px"},
        "layer": "below",
    }


def _note(text: str, *, x: float, y: float, on_rule: bool) -> dict[str, Any]:
    return {
        "text": text,
        "x": x,
        "y": y,
        "xref": "paper" if on_rule else "x",
        "yref": "y" if on_rule else "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "xshift": 6,
        "showarrow": False,
        "font": {"size": 11.5, "color": "@quiet"},
    }
