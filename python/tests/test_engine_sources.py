"""The claims' fingerprint leaves out what only films use, and no claim with a film gets it."""

import re
import tomllib
from pathlib import Path

import pytest
from conftest import EXPERIMENTS
from fake import FakeEngine
from typer.testing import CliRunner

from ontempo.lab import claims_engine, main
from ontempo.lab.arena.cells import write_scenarios
from ontempo.lab.arena.contenders import CONTENDERS
from ontempo.lab.arena.grid import emulated_entries
from ontempo.lab.claims_engine import CarriesFilmError, ClaimsEngine
from ontempo.lab.engine import NativeEngine
from ontempo.lab.engine_sources import engine_files, listed
from ontempo.lab.store import Store

CHECKOUT = EXPERIMENTS.parent
CRATES = CHECKOUT / "crates"

USERS = {
    "media": {"scenario", "session", "runtime", "simulator"},
    "transport": {"session", "simulator"},
    "session": {"simulator"},
}
"""The engine's crates that depend on those that are left out whole."""

NAMING = {
    "mechanisms/src/lib.rs": "declares the modules",
    "scenario/src/attach.rs": "reads the table of a film",
    "scenario/src/film.rs": "makes the film of an application that is one",
    "scenario/src/model/flows.rs": "defaults of a film's settings",
    "scenario/src/model/transport.rs": "defaults of SRT's and RIST's settings",
    "scenario/src/traces.rs": "reads the table of a film; the memory that one takes",
    "runtime/src/applications.rs": "the source of a film",
    "runtime/src/showing.rs": "the player of a film",
    "simulator/src/agents/mod.rs": "an agent among others; calls go to one that was made",
    "simulator/src/assemble.rs": "makes that agent where the application is a film",
}
"""The sources that name what is left out, and where only a film leads there."""

NAMES = re.compile(
    r"\bontempo_(media|transport|session)\b|\b(srt|rist|carried)::|\bmod (srt|rist|carried)\b"
    r"|\buse\b[^;]*\b(srt|rist|carried)\b[^;]*;"
)

OWN = re.compile(r"^impl(?:<[^{]*?>)? (?:[^{]*? for )?(?:&)?(\w+)", re.MULTILINE)
DECLARED = re.compile(r"\b(?:struct|enum|trait|type) (\w+)")


def code(file: Path) -> str:
    return re.sub(r"//.*", "", file.read_text("utf-8"))


def dependencies(crate: str) -> set[str]:
    manifest = tomllib.loads((CRATES / crate / "Cargo.toml").read_text("utf-8"))
    return {name.removeprefix("ontempo-") for name in manifest["dependencies"]}


def test_only_known_crates_depend_on_those_that_are_left_out() -> None:
    crates = listed(CHECKOUT, "crate")
    for left_out, users in USERS.items():
        assert {one for one in crates if left_out in dependencies(one)} == users
    whole = {p.removesuffix("/src") for p in listed(CHECKOUT, "film") if p.count("/") == 1}
    assert whole == set(USERS)


def test_only_the_assembly_of_films_names_what_is_left_out() -> None:
    kept = list(engine_files(CHECKOUT, films=False))
    assert 0 < len(kept) < len(list(engine_files(CHECKOUT)))
    found = {f.relative_to(CRATES).as_posix() for f in kept if NAMES.search(code(f))}
    assert found == set(NAMING)


def test_what_is_left_out_gives_no_methods_to_types_that_are_kept() -> None:
    """Of crates that are left out whole the compiler sees to it (coherence)."""
    parts = [name for name in listed(CHECKOUT, "film") if name.partition("/")[0] not in USERS]
    assert parts
    for place in (CRATES / name for name in parts):
        files = list(place.rglob("*.rs")) if place.is_dir() else [place]
        texts = [code(file) for file in files if "tests" not in file.parts]
        declared = {name for text in texts for name in DECLARED.findall(text)}
        used = {name for text in texts for name in OWN.findall(text)}
        assert used <= declared, place


def test_every_place_that_is_left_out_exists() -> None:
    assert all((CRATES / place).exists() for place in listed(CHECKOUT, "film"))


def test_a_scenario_with_a_film_or_a_transport_of_films_is_refused(tmp_path: Path) -> None:
    engine = ClaimsEngine(NativeEngine())
    (one, *_) = emulated_entries()
    write_scenarios([one], CONTENDERS, tmp_path)
    (path,) = (tmp_path / "scenarios").iterdir()
    for contender in CONTENDERS:
        with pytest.raises(CarriesFilmError, match=r"has a film.*engine-sources"):
            engine.load(path, [f"flows.film.transport={contender.table(200)}"])
    path = EXPERIMENTS / "fidelity" / "udp.toml"
    assert engine.load(path, ()).canonical() == NativeEngine().load(path, ()).canonical()


@pytest.mark.parametrize("has_film", [False, True])
def test_claims_with_a_film_are_kept_under_the_whole_fingerprint(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, has_film: bool
) -> None:
    monkeypatch.setattr(main, "make_engine", lambda: engine)
    monkeypatch.setattr(claims_engine, "carries_film", lambda _: has_film)
    asked = ["reproduce", "--no-open", "--out", str(tmp_path), "--only", "pert/fig4"]
    page = tmp_path / "differences.md"
    result = CliRunner().invoke(main.app, [*asked, "--differences", str(page)])
    assert result.exit_code == 0, result.output
    assert ("the whole engine's fingerprint is taken" in result.output) is has_film
    whole, claims = engine.fingerprint(), engine.claims_fingerprint()
    for fingerprint, used in ((whole, has_film), (claims, not has_film)):
        cells = Store(tmp_path / "cells", fingerprint).folder
        assert bool(list(cells.rglob("*.zip"))) is used
    assert f"<!-- engine: {whole if has_film else claims} -->" in page.read_text("utf-8")
