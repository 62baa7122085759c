"""Folders for output, in a folder that others can write to; another user's need root."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from small import scenario

import ontempo as ot
from ontempo.lab.errors import BadInputError
from ontempo.lab.place import make_folder, open_folder

OTHER = 65_534


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def require_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


@contextmanager
def refused(what: str) -> Iterator[None]:
    with pytest.raises(BadInputError, match=f"a {what} of user {OTHER}"):
        yield


def test_a_folder_and_those_on_the_way_are_made_and_own_links_followed(shared: Path) -> None:
    make_folder(shared / "one" / "two")
    make_folder(shared / "one" / "two")
    (shared / "link").symlink_to("one")
    opened = open_folder(shared / "link" / ".." / "one" / "three")
    try:
        assert os.fstat(opened).st_ino == (shared / "one" / "three").stat().st_ino
    finally:
        os.close(opened)
    (shared / "round").symlink_to("round")
    with pytest.raises(BadInputError, match="too many links"):
        make_folder(shared / "round")
    (shared / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_folder(shared / "file")


def test_what_another_user_puts_there_is_refused(shared: Path, tmp_path: Path) -> None:
    require_root()
    victim = tmp_path / "victim"
    victim.mkdir()
    (shared / "folder").mkdir()
    (shared / "link").symlink_to(victim)
    for name in ("folder", "link"):
        make_folder(shared / name)
        os.lchown(shared / name, OTHER, OTHER)
        with refused(name):
            make_folder(shared / name)
    with refused("link"):
        make_folder(shared / "link" / "new")
    # A folder of another user on the way is the choice of whoever named it.
    make_folder(shared / "folder" / "new")
    assert not list(victim.iterdir())


def test_a_folder_that_a_group_or_an_access_list_may_write_to_is_shared(shared: Path) -> None:
    require_root()
    (shared / "folder").mkdir()
    os.chown(shared / "folder", OTHER, OTHER)
    # The group is this process's own; with an access list its bits are the most that others may.
    for mode in (0o775, 0o2775, 0o720):
        shared.chmod(mode)
        with refused("folder"):
            make_folder(shared / "folder")
    shared.chmod(0o755)
    make_folder(shared / "folder")


def test_a_link_that_is_exchanged_while_it_is_read_leads_nowhere_else(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_root()
    good, bad = shared.parent / "good", shared.parent / "bad"
    good.mkdir()
    bad.mkdir()
    (shared / "link").symlink_to(good)
    (shared / "evil").symlink_to(bad)
    os.lchown(shared / "evil", OTHER, OTHER)
    read = os.readlink

    def readlink(path: str, *, dir_fd: int) -> str:
        (shared / "evil").replace(shared / "link")
        return read(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "readlink", readlink)
    make_folder(shared / "link" / "new")
    assert (good / "new").is_dir()
    assert not list(bad.iterdir())


def test_the_working_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_root()
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (tmp_path / "link").symlink_to(".")
    (folder / "link").symlink_to(".")
    for name in (".", "./", "link"):
        make_folder(Path(name))
    os.chown(folder, OTHER, OTHER)
    for name in (".", "./", "link"):
        with refused("folder"):
            make_folder(Path(name))
    # These are of this user.
    make_folder(tmp_path / "link")
    make_folder(Path("/"))


def test_for_root_who_called_sudo_is_this_user(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_root()
    (shared / "folder").mkdir()
    os.chown(shared / "folder", OTHER, OTHER)
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    make_folder(shared / "folder")


def test_a_saved_result_goes_through_nothing_of_another_user(shared: Path, tmp_path: Path) -> None:
    require_root()
    result = ot.run(scenario())
    victim = tmp_path / "victim"
    victim.mkdir()
    (shared / "link").symlink_to(victim)
    os.lchown(shared / "link", OTHER, OTHER)
    for name in ("link", "link/new"):
        with pytest.raises(PermissionError, match=f"the link.* belongs to user {OTHER}"):
            result.save(shared / name)
    assert not list(victim.iterdir())


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_what_is_no_file_is_no_lock_and_that_is_said(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = pytest.importorskip("ontempo.lab.folder")
    make(tmp_path / folder.LOCK)
    with (
        pytest.raises(folder.UnfitEnvironmentError, match=r"\.in-use: is no file"),
        folder.claimed(tmp_path),
    ):
        pass


def test_a_lock_is_not_written_through_a_link(shared: Path, tmp_path: Path) -> None:
    folder = pytest.importorskip("ontempo.lab.folder")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (shared / folder.LOCK).symlink_to(victim)
    with pytest.raises(folder.UnfitEnvironmentError), folder.claimed(shared):
        pass
    assert victim.read_text() == "precious"
