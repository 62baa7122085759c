"""The examples of the documentation run and print what it shows; its links exist.

The blocks of a page are run in order, in a separate folder: one with a file's name is saved under
it, shell and Python are run, and a text block right below one is what it must print. With
``ONTEMPO_UPDATE_DOCS=1`` (as in ``make docs``) those texts are rewritten instead.
"""

import importlib
import itertools
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/tutorial-media.md",
    "docs/tutorial-operator.md",
    "docs/controllers.md",
    "docs/studies.md",
    "docs/piping.md",
    "docs/deliver.md",
    "docs/media.md",
    "docs/qosockets.md",
    "docs/taps.md",
    "examples/image/README.md",
)
MODULES = ("ontempo", "ontempo.live", "ontempo.media", "ontempo.qos", "ontempo.taps")
"""Their docstrings hold an example that is a whole program."""
FENCE = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SKIPPED = ".venv", "target", "node_modules", "out"


@dataclass
class Block:
    """A fenced block: its language, the rest of its first line, and its line number."""

    language: str
    argument: str
    text: str
    start: int
    end: int


def blocks_of(page: str) -> list[Block]:
    return [
        Block(m[1] or "", m[2].strip(), m[3], m.start(3), m.end(3)) for m in FENCE.finditer(page)
    ]


def run(block: Block, folder: Path) -> str:
    """Run a block, and return what it prints."""
    # The commands of the Python that runs the tests come first.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = {
        "sh": ["bash", "-euo", "pipefail", "-c", block.text],
        "python": [sys.executable, "-c", block.text],
    }[block.language]
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.rstrip().splitlines())


def outputs(page: str, folder: Path) -> Iterator[tuple[Block, str]]:
    """Run a page; yield each text block that is an output, with what was printed."""
    blocks = blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.argument.endswith((".toml", ".py")):
            (folder / block.argument).write_text(block.text)
            continue
        if block.language not in ("sh", "python") or block.argument == "norun":
            continue
        printed = run(block, folder)
        if following is not None and following.language == "text":
            between = page[block.end : following.start].splitlines()
            if len(between) == 3:  # a fence, an empty line, a fence: nothing else
                yield following, printed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_its_commands_print(name: str, tmp_path: Path) -> None:
    path = ROOT / name
    page = path.read_text()
    found = list(outputs(page, tmp_path))
    if os.environ.get("ONTEMPO_UPDATE_DOCS"):
        for block, printed in reversed(found):
            page = page[: block.start] + printed + page[block.end :]
        path.write_text(page)
        return
    for block, printed in found:
        assert block.text == printed, f"{name} shows something else: run `make docs`"


def example(docstring: str) -> str:
    """The indented lines behind the first ``::``."""
    lines = docstring.partition("::\n\n")[2].splitlines()
    block = itertools.takewhile(lambda line: not line or line.startswith("    "), lines)
    return textwrap.dedent("\n".join(block))


@pytest.mark.parametrize("name", MODULES)
def test_the_example_in_a_modules_docstring_runs(name: str, tmp_path: Path) -> None:
    code = example(importlib.import_module(name).__doc__ or "")
    assert f"import {name}" in code or f"from ontempo import {name.rpartition('.')[2]}" in code
    assert run(Block("python", "", code, 0, 0), tmp_path) != ""


@pytest.mark.parametrize("name", MODULES)
def test_a_module_exports_what_it_lists_with_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(set(module.__all__))
    for exported in module.__all__:
        value = getattr(module, exported)
        assert isinstance(value, int) or value.__doc__, f"{name}.{exported} has no docstring"


def test_the_simulation_is_imported_without_the_other_packages() -> None:
    code = "import sys, ontempo; print(*sorted(name for name in sys.modules if 'ontempo' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ontempo", "ontempo._native", "ontempo.congestion"]


def pages() -> list[Path]:
    return sorted(
        path
        for path in ROOT.rglob("*.md")
        if not any(part in SKIPPED for part in path.relative_to(ROOT).parts)
    )


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", path.read_text())
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(path: Path) -> None:
    dead = []
    for link in LINK.findall(FENCE.sub("", path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(link)
    assert not dead
