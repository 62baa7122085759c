"""Finds the folders of experiments and the claims in them.

A folder of experiments holds one package a paper, with a module ``claims`` that names its
`Paper` as ``PAPER``. The folder is part of a checkout, not of the installed package.
"""

import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from ontempo.lab.claims import Claim, Paper
from ontempo.lab.errors import BadInputError, UnfitEnvironmentError

PACKAGE = "ontempo_experiments"


def find_folder(given: Path | None = None) -> Path:
    """The folder of experiments: the one given, the working checkout's, or our own checkout's."""
    if given is not None:
        if not _is_folder(given):
            raise BadInputError(f"{given}: no folder of experiments (no */claims.py in it)")
        return given.resolve()
    here = Path.cwd()
    candidates = [folder / "experiments" for folder in (here, *here.parents)]
    candidates.append(Path(__file__).resolve().parents[3] / "experiments")
    for candidate in candidates:
        if _is_folder(candidate):
            return candidate.resolve()
    raise UnfitEnvironmentError(
        "no folder of experiments found: run inside a checkout, or give --experiments DIR"
    )


def load_papers(folder: Path) -> list[Paper]:
    """The papers of a folder, by name."""
    _mount(folder)
    papers = []
    for name in sorted(path.parent.name for path in folder.glob("*/claims.py")):
        try:
            module = importlib.import_module(f"{PACKAGE}.{name}.claims")
        except Exception as error:
            where = folder / name / "claims.py"
            raise BadInputError(f"{where}: cannot be read: {_with_place(error)}") from error
        paper = getattr(module, "PAPER", None)
        if not isinstance(paper, Paper):
            raise BadInputError(f"{folder / name / 'claims.py'}: defines no PAPER")
        papers.append(paper)
    return papers


def choose(papers: Sequence[Paper], only: Sequence[str], rows: Sequence[str] = ()) -> list[Claim]:
    """The claims named by id or by paper; all where none is named.

    `rows` are the ids of all published rows, with code or without.
    """
    claims = {claim.id: claim for paper in papers for claim in paper.claims}
    if not only:
        return list(claims.values())
    names = {paper.name for paper in papers}
    unwritten = [name for name in only if name in rows and name not in claims]
    if unwritten:
        listed = ", ".join(unwritten)
        raise BadInputError(f"{listed}: published, but not yet written here (--list: the claims)")
    unknown = [name for name in only if name not in claims and name not in names]
    if unknown:
        raise BadInputError("\n".join(_unknown(name, [*names, *claims]) for name in unknown))
    return [claim for claim in claims.values() if claim.id in only or claim.paper in only]


def _unknown(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=4, cutoff=0.5)
    if not near:
        tail = [one for one in known if one.rpartition("/")[2] == name.rpartition("/")[2]]
        near = tail or sorted(known)[:4]
    return f"no claim is called {name!r}; near ones: {', '.join(near)} (all of them: --list)"


def _with_place(error: Exception) -> str:
    """An error of an import, with file and line."""
    trace = error.__traceback__
    place = ""
    while trace:
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error} ({place})"


def _is_folder(path: Path) -> bool:
    return any(path.glob("*/claims.py"))


def _mount(folder: Path) -> None:
    """Make the folder importable as one package, whatever its name and place."""
    package = ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    mounted = sys.modules.get(PACKAGE)
    if mounted is not None and list(mounted.__path__) != package.__path__:
        for name in [n for n in sys.modules if n == PACKAGE or n.startswith(f"{PACKAGE}.")]:
            del sys.modules[name]
        mounted = None
    if mounted is None:
        sys.modules[PACKAGE] = package
        importlib.invalidate_caches()
