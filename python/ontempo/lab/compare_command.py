"""``ontempo-lab compare`` behind its command line."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ontempo.lab.compare import (
    WORLDS,
    Comparison,
    Difference,
    compare,
    read_tables,
    run_worlds,
    title_of,
)
from ontempo.lab.compare_page import share, write_comparison
from ontempo.lab.errors import BadInputError
from ontempo.lab.folder import claimed, write_text
from ontempo.lab.narrow import Column, print_fitting, shown

SCENARIO = "scenario.json"
"""The path of the scenario that a folder holds the comparison of."""


def run_compare(
    path: Path,
    out: Path,
    options: Sequence[str],
    only_emulated: Sequence[str],
    *,
    as_json: bool,
    is_named: bool = True,
) -> Path:
    """Run a scenario in both worlds, write the page and print the differences.

    `is_named`: the user named the folder. Where its name is made from the scenario's,
    `BadInputError` if it holds the comparison of another one.
    """
    with claimed(out):
        whole = str(path.resolve())
        if not is_named and (before := _scenario_of(out)) not in (None, whole):
            raise BadInputError(
                f"{out}: holds the comparison of {before}; choose another folder with --out"
            )
        run_worlds(path, out, options, only_emulated)
        write_text(out / SCENARIO, json.dumps(whole) + "\n")
        simulated, emulated = (read_tables(out / world) for world in WORLDS)
        comparison = compare(title_of(out / "simulated") or path.stem, simulated, emulated)
        page = out / "comparison.html"
        write_comparison(comparison, page)
    if as_json:
        print(json.dumps(as_dict(comparison, page), indent=2, ensure_ascii=False))
        return page
    console = Console(highlight=False)
    console.print(comparison.title, style="bold", markup=False)
    print_fitting(*columns(comparison), console)
    console.print(f"\npage: {page}", soft_wrap=True, markup=False)
    return page


def _scenario_of(out: Path) -> str | None:
    """The path of the scenario that a folder holds the comparison of, if it says so."""
    try:
        return str(json.loads((out / SCENARIO).read_text("utf-8")))
    except (OSError, ValueError):
        return None


def columns(comparison: Comparison) -> tuple[list[Column], list[Column]]:
    """What differs, and by how much, as columns for the terminal."""

    def column(name: str, words: Callable[[Difference], str]) -> Column:
        return Column(name, [shown(words(one)) for one in comparison.differences])

    simulated, emulated = WORLDS
    axes = [column("of", lambda one: one.subject), column("quantity", lambda one: one.quantity)]
    values = [
        column(simulated, lambda one: f"{one.simulated:.4g}"),
        column(emulated, lambda one: f"{one.emulated:.4g}"),
        column("difference", lambda one: share(one.relative)),
    ]
    return [replace(one, is_axis=True) for one in axes], values


def as_dict(comparison: Comparison, page: Path) -> dict[str, Any]:
    """The differences, to be written as JSON."""

    def entry(one: Difference) -> dict[str, Any]:
        return {
            "of": one.subject,
            "quantity": one.quantity,
            "simulated": one.simulated,
            "emulated": one.emulated,
            "relative": None if math.isnan(one.relative) else one.relative,
        }

    return {
        "title": comparison.title,
        "page": str(page),
        "differences": [entry(one) for one in comparison.differences],
    }
