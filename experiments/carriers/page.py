"""The measured part of a section of docs/validation.md. The text around it stays."""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from ontempo.lab.errors import BadInputError

from .agreement import QUANTITIES, Compared, Verdict
from .grid import CARRIERS, ROWS

MARKS = ("<!-- carriers: generated -->", "<!-- end of carriers -->")
CAUSES = Path(__file__).parent / "causes.toml"


def read_causes(path: Path = CAUSES) -> Mapping[str, str]:
    """Why a cell differs, in words: tables `cause` with `words` and `cells`."""
    try:
        entries = tomllib.loads(path.read_text("utf-8")).get("cause", [])
        return {cell: entry["words"] for entry in entries for cell in entry["cells"]}
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise BadInputError(f"{path}: {error}") from error


def counts(rows: Sequence[Compared]) -> str:
    """How many rows have each verdict."""
    many = Counter(row.verdict for row in rows)
    words: Sequence[Verdict] = ("agrees", "differs", "cannot be told")
    return f"{len(rows)} rows: " + ", ".join(f"{many[one]} {one}" for one in words)


def measured(rows: Sequence[Compared], circumstances: str, causes: Mapping[str, str]) -> str:
    """Counts, a table of each carrier, and the causes of what differs."""
    parts = [f"{counts(rows)}. {circumstances}"]
    for carrier, shown in CARRIERS.items():
        parts.append(_table([row for row in rows if row.carrier == carrier], shown))
    differing = [row for row in rows if row.verdict == "differs"]
    lines = [f"- {row.cell}: {causes.get(row.cell, '**without a cause**.')}" for row in differing]
    return "\n\n".join([*parts, *(["What differs:\n\n" + "\n".join(lines)] if lines else [])])


def _table(rows: Sequence[Compared], shown: str) -> str:
    heads = "".join(f" {one}, programs | model | |" for one in QUANTITIES)
    lines = [f"| {shown}: path | latency |{heads}", "| --- | ---: |" + " ---: | ---: | --- |" * 2]
    for path in ROWS:
        of = [row for row in rows if row.path == path.name]
        if of:
            cells = " | ".join(_cells(row) for row in of)
            lines.append(f"| {path.name} | {path.latency_ms} ms | {cells} |")
    return "\n".join(lines)


def _cells(row: Compared) -> str:
    if not row.emulated or not row.simulated:
        return "- | - | cannot be told"
    shown = "{:.2f} %" if row.quantity == "frames lost" else "{:.3f}"
    both = " | ".join(shown.format(fmean(one)) for one in (row.emulated, row.simulated))
    unit = " points" if row.quantity == "frames lost" else " %"
    return f"{both} | {row.verdict} ({row.distance:+.2f} ± {row.half_width:.2f}{unit})"
