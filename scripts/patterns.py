"""Patterns with the reason for each: scripts/allowed-skips.txt and scripts/tests-alone.txt."""

from fnmatch import fnmatchcase
from pathlib import Path


def listed(name: str) -> list[str]:
    """The patterns of a file beside this one: what is before " | ", without comments."""
    lines = Path(__file__).with_name(name).read_text("utf-8").splitlines()
    return [line.split(" | ")[0].strip() for line in lines if line and not line.startswith("#")]


def fits(text: str, patterns: list[str]) -> bool:
    """True if one of the patterns describes the text."""
    return any(fnmatchcase(text, each) for each in patterns)
