"""Every published row is listed, with code or without."""

from pathlib import Path

import pytest
from conftest import EXPERIMENTS

from ontempo.lab.catalogue import listings, load_rows
from ontempo.lab.claims import Claim, Finding, Paper, World, no_cells
from ontempo.lab.errors import BadInputError
from ontempo.lab.experiments import load_papers


def claim(name: str, world: World = World.SIMULATION, row: str = "") -> Claim:
    return Claim(
        name, name, world, "", "", no_cells, lambda _r: Finding([], []), lambda _s: "", row=row
    )


def folder(tmp_path: Path, rows: str) -> Path:
    (tmp_path / "rows.toml").write_text(f"""
        [psp]
        title = "Spacing"
        about = "About it."
        rows = [{rows}]
    """)
    return tmp_path


ROW = "{ id = 'fig1', worlds = ['simulation', 'emulation'], what = 'W', expectation = 'E' }"


def test_a_row_is_an_entry_in_each_of_its_worlds(tmp_path: Path) -> None:
    rows = load_rows(folder(tmp_path, ROW))
    (listing,) = listings(rows, [Paper("psp", "Spacing", "", [claim("psp/fig1")])])
    assert [(entry.world, entry.claim is None) for entry in listing.entries] == [
        (World.SIMULATION, False),
        (World.EMULATION, True),
    ]
    assert listing.entries[1].id == "psp/fig1"
    assert listing.entries[1].title == "W"


def test_claims_may_share_a_row_or_name_another(tmp_path: Path) -> None:
    rows = load_rows(folder(tmp_path, ROW))
    claims = [
        claim("psp/fig1"),
        claim("psp/fig1-longer", row="fig1"),
        claim("psp/fig1-real", World.EMULATION, "fig1"),
        claim("psp/extra"),
    ]
    (listing,) = listings(rows, [Paper("psp", "Spacing", "", claims)])
    assert [entry.id for entry in listing.entries] == [one.id for one in claims]


def test_a_paper_without_rows_is_listed_after_the_others(tmp_path: Path) -> None:
    papers = [Paper("small", "Small", "About it.", [claim("small/link")])]
    found = listings(load_rows(folder(tmp_path, ROW)), papers)
    assert [listing.name for listing in found] == ["psp", "small"]
    assert found[0].paper is None
    assert not load_rows(tmp_path / "nowhere")


@pytest.mark.parametrize("rows", ["{ id = 'fig1' }", "3", ROW.replace("emulation", "dreams"), "{"])
def test_a_list_that_cannot_be_read_is_named(tmp_path: Path, rows: str) -> None:
    with pytest.raises(BadInputError, match=r"rows\.toml"):
        load_rows(folder(tmp_path, rows))


def test_the_published_rows_are_all_listed_and_every_claim_answers_one_or_says_so() -> None:
    rows = load_rows(EXPERIMENTS)
    counts = {listed.name: len(listed.rows) for listed in rows}
    assert counts == {"pert": 28, "rr3216": 22, "psp": 13, "qosockets": 12}
    for listed in rows:
        assert len({row.id for row in listed.rows}) == len(listed.rows)
    by_name = {listed.name: {row.id for row in listed.rows} for listed in rows}
    for paper in load_papers(EXPERIMENTS):
        for one in paper.claims:
            beyond = one.published.startswith("Not in the paper")
            assert beyond != (one.answers in by_name[paper.name]), f"{one.id}: see rows.toml"


def test_claims_that_cannot_be_imported_are_bad_input_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").touch()
    (tmp_path / "broken" / "claims.py").write_text("import polars\nraise ValueError('no')\n")
    with pytest.raises(BadInputError, match=r"claims\.py: cannot be read: ValueError: no .*:2"):
        load_papers(tmp_path)
