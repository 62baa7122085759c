"""What the runs with real packets measured, kept beside the scenarios: `emulated.json`.

So the simulator can be compared with them again on a machine that cannot emulate.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ontempo.lab.errors import BadInputError
from ontempo.lab.folder import write_text

from .agreement import Values
from .grid import HERE, ROWS

EMULATED = HERE / "emulated.json"

FIELDS = ("scenario", "of", "quantity", "values")


def keep_emulated(values: Values, circumstances: str, path: Path = EMULATED) -> None:
    """Replace the values of these scenarios; those of others stay."""
    new = {cell[0] for cell in values}
    old = [entry for entry in _read(path)["cells"] if entry["scenario"] not in new]
    entries = old + [
        dict(zip(FIELDS, (*cell, list(runs)), strict=True)) for cell, runs in values.items()
    ]
    order = {row.name: at for at, row in enumerate(ROWS)}
    entries.sort(key=lambda entry: order.get(entry["scenario"], len(order)))
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
    text = f'{{"circumstances": {json.dumps(circumstances)}, "cells": [\n{lines}\n]}}\n'
    write_text(path, text)


def read_emulated(scenarios: Sequence[str], path: Path = EMULATED) -> tuple[Values, str]:
    """The values of these scenarios, and how they were measured."""
    kept = _read(path)
    values = {
        (entry["scenario"], entry["of"], entry["quantity"]): entry["values"]
        for entry in kept["cells"]
        if entry["scenario"] in scenarios
    }
    found = {cell[0] for cell in values}
    if missing := [name for name in scenarios if name not in found]:
        raise BadInputError(f"{path}: has no values of {missing[0]!r}: run with --emulate")
    return values, kept["circumstances"]


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"circumstances": "", "cells": []}
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise BadInputError(f"{path}: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
        raise BadInputError(f"{path}: is not what this program writes: run with --emulate")
    return content
