"""Cells on disk: complete or absent."""

import errno
import json
import multiprocessing
import os
import time
import zipfile
from pathlib import Path

import polars as pl
import pytest

from ontempo.lab.errors import ENVIRONMENT, UnfitEnvironmentError
from ontempo.lab.store import STALE_AFTER_S, Store, cell_key

KEY = cell_key('{"duration": "1 s"}', 3, "engine-1")
TABLES = {"flows": pl.DataFrame({"flow": [0, 1], "goodput_bps": [1.5, 2.5]})}


def test_a_stored_cell_reads_back_equal(store: Store) -> None:
    assert not store.has(KEY)
    assert store.read(KEY) is None
    store.keep(KEY, TABLES, {"seed": 3})
    assert store.has(KEY)
    found = store.read(KEY)
    assert found is not None
    assert found["flows"].equals(TABLES["flows"])
    assert not store.rejected


def test_the_same_cell_is_the_same_bytes(store: Store) -> None:
    store.keep(KEY, TABLES, {})
    first = store.path(KEY).read_bytes()
    store.keep(KEY, TABLES, {})
    assert store.path(KEY).read_bytes() == first


def test_scenario_seed_and_engine_each_make_another_key() -> None:
    keys = {KEY, cell_key("{}", 3, "engine-1"), cell_key('{"duration": "1 s"}', 4, "engine-1")}
    keys.add(cell_key('{"duration": "1 s"}', 3, "engine-2"))
    assert len(keys) == 4


@pytest.mark.parametrize("kept_bytes", [0, 1, 100, -1])
def test_a_truncated_cell_is_reported_and_not_read(store: Store, kept_bytes: int) -> None:
    store.keep(KEY, TABLES, {})
    whole = store.path(KEY).read_bytes()
    store.path(KEY).write_bytes(whole[:kept_bytes])
    assert not store.has(KEY)
    assert store.read(KEY) is None
    assert [rejected.path for rejected in store.rejected] == [store.path(KEY)]


def test_a_flipped_byte_in_a_table_is_noticed(store: Store) -> None:
    store.keep(KEY, TABLES, {})
    damaged = bytearray(store.path(KEY).read_bytes())
    damaged[80] ^= 0xFF
    store.path(KEY).write_bytes(damaged)
    assert not store.has(KEY)
    assert store.read(KEY) is None
    assert store.rejected[0].reason


def test_a_cell_of_another_layout_is_named_as_such(store: Store) -> None:
    store.path(KEY).parent.mkdir()
    with zipfile.ZipFile(store.path(KEY), "w") as archive:
        archive.writestr("meta.json", json.dumps({"schema": 0, "key": KEY, "tables": []}))
    assert not store.has(KEY)
    assert "layout 0" in store.rejected[0].reason


def test_a_cell_under_another_cells_name_is_not_trusted(store: Store) -> None:
    other = cell_key("{}", 0, "engine-1")
    store.keep(other, TABLES, {})
    store.path(KEY).parent.mkdir(exist_ok=True)
    store.path(other).rename(store.path(KEY))
    assert store.read(KEY) is None
    assert "another cell" in store.rejected[0].reason


def test_cells_of_another_engine_lie_apart(tmp_path: Path) -> None:
    old, new = Store(tmp_path, "engine-1"), Store(tmp_path, "engine-2")
    old.keep(KEY, TABLES, {})
    assert not new.has(KEY)
    assert new.others() == [old.folder]


def test_a_full_disk_leaves_nothing_and_is_reported(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UnfitEnvironmentError, match="the disk is full") as error:
        store.keep(KEY, TABLES, {})
    assert error.value.exit_code == ENVIRONMENT
    assert not store.has(KEY)
    assert not list(store.folder.rglob(".tmp-*"))


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnfitEnvironmentError, match="cannot write here"):
        Store(tmp_path / "file" / "cells", "engine-1")


def test_temporary_files_of_dead_processes_are_removed_and_of_live_ones_are_not(
    store: Store,
) -> None:
    dead, live = store.folder / ".tmp-1-a", store.folder / ".tmp-2-b"
    dead.write_text("half")
    live.write_text("half")
    long_ago = time.time() - STALE_AFTER_S - 1
    os.utime(dead, (long_ago, long_ago))
    Store(store.root, "engine-1")
    assert not dead.exists()
    assert live.exists()


def _keep_often(root: Path) -> None:
    store = Store(root, "engine-1")
    for _ in range(50):
        store.keep(KEY, TABLES, {})
        assert store.has(KEY)


def test_two_processes_at_one_store_never_see_a_broken_cell(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_keep_often, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    store = Store(tmp_path, "engine-1")
    assert store.has(KEY)
    assert not list(store.folder.rglob(".tmp-*"))
