"""The results of an arena on the terminal, as JSON, as Parquet and as Markdown."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ontempo.lab.arena.causes import CHANCE, NO_CAUSE, Causes, read_causes
from ontempo.lab.arena.cells import DEFAULT, MARGIN_MS, ROUND_TRIPS
from ontempo.lab.arena.contenders import CONTENDERS
from ontempo.lab.arena.grid import plain_path
from ontempo.lab.arena.groups import GROUPS, UNDECIDED
from ontempo.lab.arena.rfc8867 import NOT_RUN
from ontempo.lab.arena.summary import BUFFERS, Apart, both_worlds, bounds, by_class, far_apart
from ontempo.lab.folder import replace_part, write_bytes, write_text

LONGEST = f"{ROUND_TRIPS[-1]:g}"

SHOWN = {one.name: one.shown for one in CONTENDERS}

BOUND = "any sender, at most"
"""The line of the bound (`bound.py`) in a table of contenders."""

RULE = (
    f"On time: decodable, and there half a round trip + the buffer + {MARGIN_MS} ms after it was"
    " sent (the rule of experiments.comparison)."
)

LEGEND = (
    "Pictures decodable on time in %, by the buffer in round trips of the path, and with each"
    f" program's default. At {LONGEST} RTT: bytes sent for each of the film, 99th percentile of the"
    " latencies of frames that arrived, freezes a minute, and the share of the time that they"
    f" last, in %. Means; each path weighs the same. {BOUND}: what a sender could deliver that"
    " knew the path beforehand and had it alone."
)

BOTH = (
    "In both worlds: pictures decodable on time, %, means over the same seeds, three where a seed"
    " draws the link, else one; and the least and the greatest of ten simulated seeds"
)

BOTH_HEADS = ("path", "carried by", "seeds", "simulated", "emulated", "of ten")

MARKS = ("<!-- arena: written by ontempo-lab arena -->", "<!-- /arena -->")


@dataclass(frozen=True)
class Outcome:
    """What an arena found.

    `rows` are those of `rows.rows`, of the grid; `both` those of the runs that both worlds have.
    `missing` says which contenders did not run with real programs, and why; `machine` under which
    circumstances the others did.
    """

    scale: str
    rows: pl.DataFrame
    both: pl.DataFrame
    engine: str
    missing: Sequence[str] = ()
    machine: str = ""

    @property
    def apart(self) -> Sequence[Apart]:
        """The runs of both worlds."""
        return both_worlds(self.both)


def classes(rows: pl.DataFrame) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Each class that has rows: name, description, rows."""
    for group in GROUPS:
        of_class = rows.filter(pl.col("class") == group.name)
        if of_class.height:
            yield group.name, group.words, of_class


def extent(rows: pl.DataFrame) -> str:
    """How many paths, films and seeds some rows have."""
    paths, films, seeds = (rows[name].n_unique() for name in ("path", "film", "seed"))
    words = [(paths, "path"), (films, "film"), (seeds, "seed")]
    return ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in words)


def share(value: float | None) -> str:
    """A share in percent, with a decimal; empty if there is none."""
    return "" if value is None else f"{100 * value:.1f}"


def millis(seconds: float | None) -> str:
    """A duration in whole milliseconds; empty if there is none."""
    return "" if seconds is None else f"{seconds * 1000:,.0f}"


HEADS = (
    "",
    *(f"{times:g} RTT" for times in ROUND_TRIPS),
    DEFAULT,
    "bytes",
    "p99 ms",
    "freezes",
    "frozen",
)


def class_cells(rows: pl.DataFrame) -> list[list[str]]:
    """A line for each contender of one class: shares by buffer, and the rest at the longest.

    First that of the bound, where UDP was run.
    """
    means = by_class(rows)
    lines = []
    if most := bounds(means):
        lines.append([BOUND, *(share(most.get(name)) for name in BUFFERS), "", "", "", ""])
    for contender in CONTENDERS:
        of_one = {
            row["buffer"]: row
            for row in means.filter(contender=contender.name).iter_rows(named=True)
        }
        if not of_one:
            continue
        row = of_one.get(LONGEST, {})
        bytes_, freezes = row.get("bytes"), row.get("freezes_a_minute")
        lines.append(
            [
                contender.shown,
                *(share(of_one.get(name, {}).get("on_time")) for name in BUFFERS),
                "" if bytes_ is None else f"{bytes_:.2f}",
                millis(row.get("latency_p99_s")),
                "" if freezes is None else f"{freezes:.1f}",
                share(row.get("frozen")),
            ]
        )
    return lines


def show(outcome: Outcome, console: Console) -> None:
    """Print a table for each class, at most 80 columns wide."""
    for name, words, rows in classes(outcome.rows):
        console.print(Text.assemble((name, "bold"), f": {words} ({extent(rows)})"))
        console.print(table_of(HEADS, class_cells(rows)), "")
    if outcome.rows.height:
        console.print(LEGEND, markup=False)
        console.print(RULE, markup=False)
    _show_both(outcome, console)
    for line in notes(outcome):
        console.print(line, markup=False)


def _show_both(outcome: Outcome, console: Console) -> None:
    apart = outcome.apart
    if not apart:
        return
    console.print(f"\n{BOTH}", style="bold")
    console.print(table_of(BOTH_HEADS, both_cells(apart), left=2), "")


def both_cells(apart: Sequence[Apart]) -> list[list[str]]:
    """A line for each run of both worlds."""
    return [
        [
            one.path,
            SHOWN[one.contender],
            str(one.seeds),
            share(one.simulated),
            share(one.emulated),
            f"{share(one.low)} to {share(one.high)}",
        ]
        for one in apart
    ]


def table_of(heads: Sequence[str], lines: Sequence[Sequence[str]], left: int = 1) -> Table:
    """A table for the terminal; all columns but the first ones are numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < left else "right", no_wrap=True)
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def notes(outcome: Outcome, causes: Causes | None = None) -> list[str]:
    """What is left out, and where the worlds differ, each difference with its cause."""
    found = [f"Not run: {line}." for line in outcome.missing]
    if outcome.scale == "full":
        found += _left_out({name for name, _, _ in classes(outcome.rows)})
    apart = outcome.apart
    if apart:
        far = far_apart(apart)
        found.append(f"{len(apart) - len(far)} of {len(apart)} runs differ by at most 3 points.")
        causes = read_causes() if causes is None else causes
        found += [
            f"{one.path}, {SHOWN[one.contender]}: simulated {share(one.simulated)} %, emulated"
            f" {share(one.emulated)} %, {'within' if one.within else 'outside of'} what ten seeds"
            f" give. {causes.get((plain_path(one.path), one.contender), _otherwise(one))}"
            for one in far
        ]
    return [*found, outcome.machine] if outcome.machine else found


def _otherwise(one: Apart) -> str:
    """What is said of a difference without a cause of its own."""
    return CHANCE if one.within else NO_CAUSE


def _left_out(names: set[str]) -> list[str]:
    """What a full grid lacks; of all classes, where all were asked for."""
    cases = [f"Not run: RFC 8867, {case}: {why}." for case, why in NOT_RUN.items()]
    every = [f"Undecided: {name}: {why}." for name, why in UNDECIDED.items()]
    return [
        *(cases if "rfc8867" in names else []),
        *(every if names == {group.name for group in GROUPS} else []),
    ]


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """The results, to be written as JSON: means by class, and the runs of both worlds."""
    found = []
    for name, words, rows in classes(outcome.rows):
        entries = by_class(rows).drop("class").to_dicts()
        found.append({"class": name, "words": words, "extent": extent(rows), "means": entries})
    return {
        "scale": outcome.scale,
        "engine": outcome.engine,
        "rule": RULE,
        "classes": found,
        "both_worlds": [vars(one) | {"difference": one.difference} for one in outcome.apart],
        "notes": notes(outcome),
        "undecided": dict(UNDECIDED),
    }


def write_results(outcome: Outcome, out: File) -> None:
    """Write ``arena.json``, and ``arena.parquet`` with a row for each run, buffer and player."""
    text = json.dumps(as_dict(outcome), indent=2, ensure_ascii=False)
    write_text(out / "arena.json", f"{text}\n")
    # Rows of both worlds that the grid has, too, are there once.
    rows = pl.concat([outcome.rows, outcome.both]).unique(maintain_order=True)
    write_bytes(out / "arena.parquet", packed(rows))


def packed(rows: pl.DataFrame) -> bytes:
    """A table as Parquet."""
    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    return buffer.getvalue()


def markdown(outcome: Outcome) -> str:
    """The results as Markdown: a table for each class."""
    parts = [f"### Results\n\n`ontempo-lab arena --{outcome.scale}`. {LEGEND} {RULE}"]
    for name, words, rows in classes(outcome.rows):
        heads = [head or "carried by" for head in HEADS]
        parts.append(f"#### {name}\n\n{words[:1].upper()}{words[1:]}: {extent(rows)}.")
        parts.append(_markdown_table(heads, class_cells(rows)))
    if outcome.apart:
        parts.append(f"#### In both worlds\n\n{BOTH}.")
        parts.append(_markdown_table(BOTH_HEADS, both_cells(outcome.apart)))
    if found := notes(outcome):
        parts.append("\n".join(f"- {line}" for line in found))
    return "\n\n".join(parts)


def _markdown_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    every = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in every)


def write_page(page: File, outcome: Outcome) -> None:
    """Replace the arena's part of a page in Markdown."""
    replace_part(page, MARKS, markdown(outcome))
