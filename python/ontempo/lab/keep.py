"""Keeps what a full run found, for `ontempo.lab.kept`."""

import datetime
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from ontempo.lab.folder import write_bytes, write_text
from ontempo.lab.kept import FOLDER, PART, REAL, Kept, KeptCheck, KeptClaim
from ontempo.lab.readings import PRIMARY
from ontempo.lab.report import Judged
from ontempo.lab.study import Results

DIGITS = 6
"""Significant digits of a cell's numbers."""


def kept_of(judged: Sequence[Judged], made: Mapping[str, Any]) -> Kept:
    """The claims of a paper as they were judged; `made` are the other fields."""
    return Kept(claims=tuple(map(_claim, judged)), **made)


def _claim(one: Judged) -> KeptClaim:
    findings = {PRIMARY: one.finding, **one.others}
    readings = {
        name: tuple(
            KeptCheck(check.sentence, check.published, check.measured, check.ok)
            for check in finding.checks
        )
        for name, finding in findings.items()
    }
    words = str(one.judgement)
    return KeptClaim(one.claim.id, one.verdict.value, words, one.claim.conjecture, readings)


def part_name(only: Sequence[str]) -> str:
    """The name of the files of a paper, or of some of its claims: ``psp``, ``pert@fig5+fig6``."""
    paper, claims = only[0].partition("/")[0], [name.partition("/")[2] for name in only]
    return f"{paper}{PART}{'+'.join(sorted(claims))}" if all(claims) else paper


def write_kept(experiments: Path, part: str, kept: Kept, cells: pl.DataFrame) -> None:
    """Write the files of computed claims; without `cells` of those with real packets."""
    folder = experiments / FOLDER
    name = part if cells.height else f"{part}{REAL}"
    write_text(folder / f"{name}.json", json.dumps(asdict(kept), indent=1) + "\n")
    if cells.height:
        packed = io.BytesIO()
        cells.write_parquet(packed, compression="zstd")
        write_bytes(folder / f"{part}.parquet", packed.getvalue())


def today() -> str:
    """The date, of UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def cell_rows(results: Results) -> pl.DataFrame:
    """A row for each simulated cell: scenario, what is set, seed, and its main quantities.

    Of each group of flows: goodput, the share of packets lost, the share of units late for each
    start-up delay, mean delay of messages and of ADUs. Of the busiest link: its name, the share of
    time in which it transmits, the mean of packets that wait.
    """
    rows = []
    for cell in dict.fromkeys(cell for cell in results.cells if cell.real is None):
        named = {
            "scenario": cell.scenario.name,
            "set": "; ".join(cell.overrides),
            "seed": cell.seed,
        }
        rows.append({**named, **_quantities(results.tables(cell))})
    return table_of(rows).unique(maintain_order=True)


def table_of(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows as a table with every column that a row has; null where one has no value."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    # A column may have no value in many first rows, and its type shows in a later one only.
    filled = [{name: row.get(name) for name in names} for row in rows]
    return pl.DataFrame(filled, infer_schema_length=None)


def _quantities(tables: Mapping[str, pl.DataFrame]) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    empty = pl.DataFrame()
    for flows in _groups(tables.get("flows", empty)):
        name = flows["group"][0]
        found[f"{name}.goodput_bps"] = _rounded(flows["goodput_bps"].sum())
        found[f"{name}.loss_rate"] = _share(flows["dropped_packets"], flows["sent_packets"])
    for units in _groups(tables.get("playout", empty), "startup_delay_s"):
        name = f"{units['group'][0]}.late_{units['startup_delay_s'][0]:g}s"
        found[name] = _share(units["late"], units["units"])
    for messages in _groups(tables.get("messages", empty)):
        found[f"{messages['group'][0]}.delay_s"] = _rounded(messages["delay_s"].mean())
    for adus in _groups(tables.get("adus", empty)):
        delay = (adus["delivered_s"] - adus["due_s"]).mean()
        found[f"{adus['group'][0]}.adu_delay_s"] = _rounded(delay)
    links = tables.get("links", empty)
    if links.height:
        busiest = links.row(int(links["busy"].arg_max() or 0), named=True)
        found["busiest_link"] = str(busiest["link"])
        found["busiest.busy"] = _rounded(busiest["busy"])
        found["busiest.mean_packets"] = _rounded(busiest["mean_packets"])
    return found


def _groups(table: pl.DataFrame, *more: str) -> Iterable[pl.DataFrame]:
    if not table.height:
        return ()
    return table.partition_by("group", *more, maintain_order=True)


def _share(part: pl.Series, whole: pl.Series) -> float:
    """A sum as a share of another; 0 of nothing."""
    return _rounded(float(part.sum()) / (float(whole.sum()) or 1.0))


def _rounded(value: Any) -> float:
    """To `DIGITS` significant digits; not a number where there is none."""
    return float("nan") if value is None else float(f"{float(value):.{DIGITS}g}")
