"""``ontempo-lab demo``: one film over five networks, carried by six transports."""

import json
import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path as File
from typing import Any

import polars as pl
from rich.console import Console

from ontempo.lab.arena.cells import Buffer, Entry
from ontempo.lab.arena.command import run_grid
from ontempo.lab.arena.contenders import RIST_MS, SRT_MS, Contender, named
from ontempo.lab.arena.engine import FilmEngine
from ontempo.lab.arena.films import LIVE
from ontempo.lab.arena.grid import Grid
from ontempo.lab.arena.groups import FIVE_PROFILES, TEN_SEEDS, profile_path
from ontempo.lab.arena.output import RULE, packed, table_of
from ontempo.lab.arena.page import page
from ontempo.lab.arena.summary import over_seeds
from ontempo.lab.engine import Engine
from ontempo.lab.figure_html import figure_html
from ontempo.lab.folder import write_bytes, write_text
from ontempo.lab.plots import Axis, Figure, Series, View
from ontempo.lab.statistics import Interval

TITLE = "Will this film arrive on time?"

COUNTED_S = 20.0

CONTENDERS = named(("tcp-cubic", "tcp-bbr", "tcp-pert", "srt", "rist", "ontempo"))

BUFFERS = (
    Buffer("120 ms", SRT_MS),
    Buffer("200 ms", 200),
    Buffer("1 s", RIST_MS),
)
"""What SRT and RIST have by default, and 200 ms, which ontempo had; each is given to all."""

DEFAULT_OF = {"120 ms": "SRT's default", "1 s": "RIST's default"}

KINDS = {
    "dsl": "home line",
    "wifi-lossy": "Wi-Fi, far off",
    "lte-driving": "LTE in a car",
    "satellite-leo": "Starlink",
    "transcontinental": "New York–London",
}
"""What the five profiles are, in words that fit above a column."""

FILM = (
    "A live film of 4 Mbit/s, 25 pictures/s, a key picture each 2 s, sent as `ffmpeg -re` does;"
    f" {COUNTED_S:.0f} s, {len(TEN_SEEDS)} runs (seeds {TEN_SEEDS[0]} to {TEN_SEEDS[-1]})."
)

FURTHER = "Published figures: ontempo-lab reproduce --quick. More paths: ontempo-lab arena"


def demo_grid(
    profiles: Sequence[str] = FIVE_PROFILES,
    contenders: Sequence[Contender] = CONTENDERS,
    seeds: Sequence[int] = TEN_SEEDS,
) -> Grid:
    """Each profile with the film and the three buffers."""
    entries = (
        Entry(profile_path(name, seeds), LIVE, BUFFERS, COUNTED_S, has_default=False)
        for name in profiles
    )
    return Grid(tuple(entries), (), tuple(contenders))


def run_demo(
    engine: Engine, out: File, jobs: int, *, as_json: bool, grid: Grid | None = None
) -> File:
    """Run what is missing, print the table, write ``demo.json``, ``demo.parquet`` and the page."""
    outcome = run_grid(FilmEngine(engine), "demo", grid or demo_grid(), {}, out, jobs)
    found = as_dict(outcome.rows)
    write_text(out / "demo.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    write_bytes(out / "demo.parquet", packed(outcome.rows))
    html = out / "index.html"
    write_text(html, demo_page(outcome.rows))
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return html
    console = Console(highlight=False)
    show(outcome.rows, console)
    console.print(f"\n{FURTHER}\npage: {html}", soft_wrap=True, markup=False)
    return html


def places(rows: pl.DataFrame) -> Iterator[tuple[Buffer, Contender, str, Interval]]:
    """The share of pictures on time of each buffer, contender and profile, over the seeds."""
    for buffer in BUFFERS:
        for contender in CONTENDERS:
            for profile in KINDS:
                of_one = rows.filter(contender=contender.name, buffer=buffer.label, path=profile)
                if of_one.height:
                    yield buffer, contender, profile, over_seeds(of_one)


def show(rows: pl.DataFrame, console: Console) -> None:
    """Print a table for each buffer, 80 columns wide."""
    found = {(b.label, c.name, p): one for b, c, p, one in places(rows)}
    console.print(f"{TITLE}\n", style="bold")
    for buffer in BUFFERS:
        heads = (f"{buffer.label}", *(KINDS[name] for name in KINDS))
        lines = [
            [c.shown, *(words(found.get((buffer.label, c.name, name))) for name in KINDS)]
            for c in CONTENDERS
        ]
        console.print(table_of(heads, lines), "")
    console.print(
        f"Pictures decodable on time, %, with 95 % intervals; buffers of {buffer_words()}. {FILM}"
        f" {RULE}",
        markup=False,
    )


def buffer_words() -> str:
    """The three buffers, and whose they are."""
    whose = {name: f" ({words})" for name, words in DEFAULT_OF.items()}
    each = [f"{one.label}{whose.get(one.label, '')}" for one in BUFFERS]
    return f"{', '.join(each[:-1])} and {each[-1]}"


def words(one: Interval | None) -> str:
    """A share in percent, with half the width of its interval."""
    if one is None or not one.known:
        return ""
    value, half = f"{100 * one.value:.0f}", f"{50 * (one.high - one.low):.0f}"
    return value if half in ("nan", "0") else f"{value} ± {half}"


def as_dict(rows: pl.DataFrame) -> dict[str, Any]:
    """The results, to be written as JSON."""
    return {
        "title": TITLE,
        "film": FILM,
        "rule": RULE,
        "on_time": [
            {
                "profile": profile,
                "contender": contender.name,
                "buffer_ms": buffer.ms,
                "value": one.value,
                "low": _or_none(one.low),
                "high": _or_none(one.high),
                "seeds": one.n,
            }
            for buffer, contender, profile, one in places(rows)
        ],
    }


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


CONTRAST = 3
"""Power of the share in a cell's shade, so that 90 and 100 % differ to the eye."""

STYLE = """<style>
.shares { overflow-x: auto; margin: 1.5rem 0 }
.shares table { border-collapse: separate; border-spacing: 2px; font-variant-numeric: tabular-nums;
  width: 100%; min-width: 56rem }
.shares th { font-weight: 500; padding: .3rem .45rem; text-align: center; white-space: nowrap }
.shares th[scope=row] { text-align: left; position: sticky; left: 0; background: var(--page) }
.shares caption { text-align: left; color: var(--quiet); padding: 0 0 .6rem }
.shares thead tr + tr th { color: var(--quiet); font-size: .85em; font-weight: 400 }
.shares td { padding: .5rem .3rem; text-align: center; border-radius: 3px; min-width: 3.7rem;
  background: color-mix(in srgb, var(--pert) calc(var(--share) * 55%), var(--surface)) }
.shares .first { border-left: 8px solid var(--page) }
</style>"""


def demo_page(rows: pl.DataFrame) -> str:
    """The page: a table of all shares, then each network with its intervals."""
    lede = (
        f"{FILM} Pictures that are decodable on time, by transport, network and buffer:"
        f" {buffer_words()}. {RULE}"
    ).replace("`", "")
    figures = "".join(_figure_html(rows, name) for name in KINDS)
    further = (
        '<section class="verdicts"><h2>Further</h2><ul>'
        "<li>Published figures, simulated again: <code>ontempo-lab reproduce --quick</code></li>"
        "<li>More paths, films and buffers: <code>ontempo-lab arena</code></li>"
        "<li>The scenario of each network, to be changed and run: <code>scenarios/</code> beside"
        " this page, with <code>ontempo simulate FILE --out run</code></li></ul></section>"
    )
    return page(TITLE, "simulated", lede, f"{STYLE}{share_table(rows)}{figures}{further}")


def share_table(rows: pl.DataFrame) -> str:
    """All shares: a row for each transport, the networks side by side, buffers within."""
    found = {(b.label, c.name, p): one for b, c, p, one in places(rows)}
    networks = "".join(
        f'<th scope="colgroup" colspan="{len(BUFFERS)}" class="first">{escape(words)}</th>'
        for words in KINDS.values()
    )
    buffers = "".join(
        f'<th scope="col"{_first(place)}>{buffer.label}</th>'
        for _ in KINDS
        for place, buffer in enumerate(BUFFERS)
    )
    lines = "".join(
        f'<tr><th scope="row">{escape(contender.shown)}</th>'
        + "".join(
            _share_cell(found.get((buffer.label, contender.name, name)), place)
            for name in KINDS
            for place, buffer in enumerate(BUFFERS)
        )
        + "</tr>"
        for contender in CONTENDERS
    )
    return (
        '<div class="shares"><table><caption>Pictures decodable on time, %, by buffer</caption>'
        f"<thead><tr><th></th>{networks}</tr><tr><th></th>{buffers}</tr></thead>"
        f"<tbody>{lines}</tbody></table></div>"
    )


def _first(place: int) -> str:
    return ' class="first"' if place == 0 else ""


def _share_cell(one: Interval | None, place: int) -> str:
    if one is None or not one.known:
        return f"<td{_first(place)}></td>"
    shade = f'style="--share:{one.value**CONTRAST:.3f}"'
    return f"<td{_first(place)} {shade}>{100 * one.value:.0f}</td>"


def within(one: Interval) -> Interval:
    """An interval of a share, cut at 0 and 1."""
    return one._replace(low=max(0.0, one.low), high=min(1.0, one.high))


def _figure_html(rows: pl.DataFrame, profile: str) -> str:
    figure = figure_html(figure_of(rows, profile), f"figure-{profile}")
    return (
        f'<section class="claim"><div class="head"><span class="id">profile {profile}</span>'
        f'<h2>{escape(KINDS[profile])}</h2></div><div class="figures">{figure}</div></section>'
    )


def figure_of(rows: pl.DataFrame, profile: str) -> Figure:
    """One network: shares by buffer, with intervals over the seeds."""
    series: dict[str, dict[float, Interval]] = {}
    for buffer, contender, name, one in places(rows):
        if name == profile:
            series.setdefault(contender.name, {})[float(BUFFERS.index(buffer))] = within(one)
    lines = [
        Series(one.shown, one.colour, series[one.name], symbol=one.symbol)
        for one in CONTENDERS
        if one.name in series
    ]
    return Figure(
        f"Pictures decodable on time over {KINDS[profile]}, by buffer and transport.",
        Axis("Buffer", ticks={float(i): one.label for i, one in enumerate(BUFFERS)}),
        Axis("Pictures decodable on time", (-0.02, 1.02), format=".0%"),
        [View("", lines)],
    )
