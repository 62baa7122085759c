"""A comparison as one HTML page: the same axes for both worlds, and the differences in numbers."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs

from ontempo.lab.compare import WORLDS, Comparison, Course
from ontempo.lab.figure_html import figure_html
from ontempo.lab.folder import write_text
from ontempo.lab.plots import Axis, Figure, Series, View, exact

#: Axis titles of the sampled quantities, in the order of the page.
TITLES = {
    "goodput_mbps": "goodput, Mbit/s",
    "cwnd_packets": "congestion window, packets",
    "srtt_s": "smoothed round-trip time, s",
    "queue_packets": "packets waiting",
    "in_flight_packets": "packets in flight",
}

COLOURS = {"simulated": "pert", "emulated": "cubic"}


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the page; it needs no other file, and no network."""
    write_text(path, page(comparison))


def page(comparison: Comparison) -> str:
    """The page as text: the report's template with style and scripts inlined."""
    assets = files("ontempo.lab") / "assets"
    style, script, template = (
        (assets / name).read_text("utf-8") for name in ("report.css", "report.js", "page.html")
    )
    text = Template(template).substitute(
        generator="ontempo",
        title=escape(f"{comparison.title}: simulated and emulated"),
        navigation="",
        body=_body(comparison),
        plotly=f"<script>{get_plotlyjs()}</script>\n",
    )
    text = text.replace(
        '<link rel="stylesheet" href="assets/report.css">', f"<style>{style}</style>"
    )
    return text.replace('<script src="assets/report.js"></script>', f"<script>{script}</script>")


def _body(comparison: Comparison) -> str:
    drawn = "".join(
        f'<section class="claim"><div class="head"><h2>{escape(figure.y.title)}</h2></div>'
        f'<div class="figures">{figure_html(figure, f"figure-{place}")}</div></section>'
        for place, figure in enumerate(figures(comparison))
    )
    return (
        f'<header><p class="kicker">simulated and emulated</p><h1>{escape(comparison.title)}</h1>'
        '<p class="lede">One scenario in two worlds: modelled packets in virtual time, and real'
        " ones of this machine's kernel in real time, over the same links.</p></header>"
        f'<main id="content"><section class="verdicts"><h2>Differences in numbers</h2>'
        f"{_differences(comparison)}</section>{drawn}</main>"
    )


def figures(comparison: Comparison) -> list[Figure]:
    """A figure for each quantity that both worlds sampled, a view for each subject."""
    found = []
    for quantity, title in TITLES.items():
        views = [
            View(subject, courses)
            for subject in sorted({course.subject for course in comparison.courses})
            if len(courses := _series(comparison.courses, quantity, subject)) == len(WORLDS)
        ]
        if views:
            alt = f"{title} over time, simulated and emulated, for {len(views)} subjects"
            axes = (Axis("time, s"), Axis(title))
            found.append(Figure(alt, *axes, views, selector="Of"))
    return found


def _series(courses: Sequence[Course], quantity: str, subject: str) -> list[Series]:
    return [
        Series(
            course.world,
            COLOURS[course.world],
            {place: exact(value) for place, value in course.points.items()},
            style="solid" if course.world == "simulated" else "dash",
            markers=False,
        )
        for course in courses
        if (course.quantity, course.subject) == (quantity, subject) and course.points
    ]


def _differences(comparison: Comparison) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(one.subject)}</th><td>{escape(one.quantity)}</td>'
        f"<td>{one.simulated:.4g}</td><td>{one.emulated:.4g}</td>"
        f"<td>{one.emulated - one.simulated:+.3g}</td><td>{share(one.relative)}</td></tr>"
        for one in comparison.differences
    )
    heads = ("of", "quantity", *WORLDS, "difference", "of simulated")
    return (
        '<div class="numbers whole"><table><thead><tr>'
        + "".join(f'<th scope="col">{head}</th>' for head in heads)
        + f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def share(value: float) -> str:
    """A relative difference as a percentage; empty if it is not a number."""
    return "" if value != value else f"{value * 100:+.1f} %"  # noqa: PLR0124 - not a number
