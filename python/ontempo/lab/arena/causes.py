"""Why worlds differ: ``causes.toml``, by path and contender."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ontempo.lab.errors import BadInputError

FIELDS = {"cause", "experiment"}

NO_CAUSE = "Cause: not found yet."

CHANCE = "Cause: the draw. Experiment: a simulated seed goes as far."

Causes = Mapping[tuple[str, str], str]
"""A sentence for the path and the contender of a run."""


def read_causes(text: str | None = None) -> Causes:
    """The package's causes, or a text's; raises `BadInputError` for one without experiment."""
    if text is None:
        text = (files("ontempo.lab.arena") / "causes.toml").read_text("utf-8")
    found: dict[tuple[str, str], str] = {}
    for path, contenders in tomllib.loads(text).items():
        for contender, one in contenders.items():
            found[path, contender] = _sentence(f"{path}, {contender}", one)
    return found


def _sentence(where: str, one: Any) -> str:
    if not isinstance(one, dict) or set(one) != FIELDS or not all(map(_is_text, one.values())):
        raise BadInputError(
            f"causes.toml: {where}: needs a cause, and the experiment that bounds it, as text"
        )
    return f"Cause: {one['cause'].rstrip('.')}. Experiment: {one['experiment'].rstrip('.')}."


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
