"""Which tables a scenario asks for: any other is empty, and counting its rows measures nothing."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import polars as pl

LINES = {
    "queues": 'measure.queues = ["bottleneck"]',
    "samples": 'measure.sample-every = "100 ms"',
    "playout": 'flows.GROUP.playout = ["1 s"]',
    "adus": "measure.adus = true",
    "packets": 'measure.packets = ["bottleneck"]',
    "events": "measure.events = true",
    "messages": "measure.messages = true",
    "intervals": 'measure.intervals = "1 s"',
}
"""Tables that are recorded where asked for, and what asks for each in a scenario."""


def names(query: str, table: str) -> bool:
    """Whether the table's name is a word of the query."""
    return re.search(rf"\b{table}\b", query) is not None


def unrecorded(
    tables: Mapping[str, pl.DataFrame], queries: Iterable[str], canonical: Callable[[], str]
) -> dict[str, str]:
    """The queried tables that the scenario does not ask for, and what would ask for each."""
    empty = [name for name in LINES if name in tables and tables[name].is_empty()]
    empty = [name for name in empty if any(names(query, name) for query in queries)]
    scenario = json.loads(canonical()) if empty else None
    if not isinstance(scenario, dict):
        return {}
    return {name: LINES[name] for name in empty if not _asks(scenario, name)}


def _asks(scenario: Mapping[str, Any], table: str) -> bool:
    if table == "playout":
        return any(group.get("playout") for group in scenario.get("flows", {}).values())
    if table == "events" and scenario.get("events"):
        return True
    field = LINES[table].partition(" = ")[0].removeprefix("measure.")
    return bool(scenario.get("measure", {}).get(field))
