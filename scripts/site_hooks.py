"""Hooks of the documentation's site (mkdocs.yml): links that lead out of docs/ stay whole.

A page that links to a file or folder of the checkout, such as `../crates/network/src/link.rs`, gets
a page with that file's text, or with what the folder has. These pages are in no menu, but the
search finds them.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SOURCES = "source"
"""The folder of the site with the pages of files outside of docs/."""

LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
MAX_BYTES = 200_000
"""A larger file is not shown; a link to it is left out."""


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file and folder outside of docs/ that a page links to."""
    waiting = list(DOCS.rglob("*.md"))
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        for target in _targets(path):
            if target in seen or target.is_relative_to(DOCS):
                continue
            seen.add(target)
            text = _as_page(target)
            if text is not None:
                page = File.generated(
                    config, _place(target), content=text, inclusion=InclusionLevel.NOT_IN_NAV
                )
                files.append(page)
                waiting += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Lead each link to a page of the site; where there is none, its text alone is left."""
    here = page.file.src_uri
    is_source = here.startswith(f"{SOURCES}/")
    origin = ROOT / here.removeprefix(f"{SOURCES}/") if is_source else DOCS / here

    def lead(match: re.Match[str]) -> str:
        text, link = match[1], match[2]
        if re.match(r"[a-z]+:|#", link):
            return match[0]
        name, _, anchor = link.partition("#")
        target = (origin.parent / name).resolve()
        inside = target.is_relative_to(DOCS) and target.is_file()
        place = target.relative_to(DOCS).as_posix() if inside else _place(target)
        if files.get_file_from_path(place) is None:
            return text if text.startswith("!") else text.removeprefix("[").removesuffix("]")
        way = os.path.relpath(place, Path(here).parent)
        # A line of a source has no anchor.
        return f"{text}({way}{'#' + anchor if anchor and inside else ''})"

    pieces, end = [], 0
    for fenced in FENCED.finditer(markdown):
        pieces += [LINK.sub(lead, markdown[end : fenced.start()]), _titled(fenced[0])]
        end = fenced.end()
    return "".join([*pieces, LINK.sub(lead, markdown[end:])])


def _titled(fenced: str) -> str:
    """The block, with the name of its file as a title; what else stands there is for tests."""
    first, _, rest = fenced.partition("\n")
    language, _, argument = first.partition(" ")
    title = f' title="{argument}"' if "." in argument else ""
    return f"{language}{title}\n{rest}"


def _targets(path: Path) -> list[Path]:
    """The files and folders of the checkout to which a page links."""
    links = (match[2] for match in LINK.finditer(FENCED.sub("", path.read_text("utf-8"))))
    names = (link.partition("#")[0] for link in links if not re.match(r"[a-z]+:|#", link))
    targets = [(path.parent / name).resolve() for name in names]
    return [one for one in targets if one.exists() and one.is_relative_to(ROOT)]


def _place(target: Path) -> str:
    """The page of a file or folder outside of docs/."""
    name = target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else target.name
    return f"{SOURCES}/{name}" if target.suffix == ".md" else f"{SOURCES}/{name}.md"


def _as_page(target: Path) -> str | None:
    """A page with the file's text, or the names in a folder; None if not text, or too long."""
    title = f"# {target.relative_to(ROOT)}\n\n"
    if target.is_dir():
        names = sorted(f"{one.name}/" if one.is_dir() else one.name for one in target.iterdir())
        return title + "\n".join(f"- `{name}`" for name in names if not name.startswith("."))
    if target.stat().st_size > MAX_BYTES:
        return None
    try:
        text = target.read_text("utf-8")
    except UnicodeDecodeError:
        return None
    if target.suffix == ".md":
        return text
    # Without colours: they take longer than all the rest.
    return f"{title}````text\n{text}\n````\n"
