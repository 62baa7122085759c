"""Writes values as TOML; the standard library only reads it."""

import json
import re
from collections.abc import Mapping, Sequence

BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml(value: object) -> str:
    """A value on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            # TOML's strings take JSON's escapes, but not a DEL as it is, which JSON leaves.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            inside = ", ".join(f"{toml_key(key)} = {toml(one)}" for key, one in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case Sequence():
            return f"[{', '.join(map(toml, value))}]"
    raise TypeError(f"no TOML for {value!r}")


def toml_key(key: str) -> str:
    """A key, in quotes if it needs them."""
    return key if BARE.fullmatch(key) else toml(key)
