"""Folders that a user names for output, also where other users can write.

In a folder of another user, or one that others can write to, such as /tmp, anybody may have put a
link or a folder at the name. What belongs to another user there is refused, also a link on the way;
links of this user and of root are followed. The Rust programs decide alike (`Output`,
crates/place).
"""

import errno
import os
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path

from ontempo.lab.errors import BadInputError

MAX_LINKS = 40
"""As many as the system follows."""

ON_THE_WAY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(path: Path) -> int:
    """Open a folder, made if missing, with those on the way; close the descriptor.

    Raises `BadInputError` if another user could have put it there, or a link on the way.
    """
    # A path without names is the folder it begins at.
    rest, links = deque(_names(path) or ["."]), 0
    folder = _start(path)
    try:
        while rest:
            name = rest.popleft()
            # What is checked is what is read or entered, whatever takes its name.
            entry = _entry(folder, name)
            try:
                about = os.fstat(entry)
                is_link = stat.S_ISLNK(about.st_mode)
                # A folder of another user on the way is the choice of whoever named it.
                if is_link or not rest:
                    _check(path, folder, about)
                to = Path(os.readlink("", dir_fd=entry)) if is_link else None
                if not is_link and not stat.S_ISDIR(about.st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            except BaseException:
                os.close(entry)
                raise
            if to is None:
                folder = _instead(folder, entry)
                continue
            os.close(entry)
            links += 1
            if links > MAX_LINKS:
                raise BadInputError(f"{path}: too many links on the way")
            rest.extendleft(reversed(_names(to)))
            if not rest:
                rest.append(".")
            if to.is_absolute():
                folder = _instead(folder, _start(to))
    except BaseException:
        os.close(folder)
        raise
    return folder


def make_folder(path: Path) -> None:
    """Make a folder, or find that it is there, as `open_folder`."""
    os.close(open_folder(path))


def _names(path: Path) -> list[str]:
    return [part for part in path.parts if part != path.anchor]


def _start(path: Path) -> int:
    return os.open("/" if path.is_absolute() else ".", ON_THE_WAY)


def _instead(old: int, new: int) -> int:
    os.close(old)
    return new


def _entry(folder: int, name: str) -> int:
    try:
        return os.open(name, ON_THE_WAY, dir_fd=folder)
    except FileNotFoundError:
        # Another program may make it, too.
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        return os.open(name, ON_THE_WAY, dir_fd=folder)


def _is_trusted(owner: int) -> bool:
    """True for this user and root; for root also the user who became root by sudo(8)."""
    user = os.geteuid()
    by_sudo = os.environ.get("SUDO_UID", "") if user == 0 else ""
    return owner in (0, user) or by_sudo == str(owner)


def _is_shared(about: os.stat_result) -> bool:
    """Whether others than this user and root can put entries into a folder.

    Who is in its group cannot be known for sure, and the bits of the group are also the most that
    an access list grants to anybody.
    """
    others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return bool(others) or not _is_trusted(about.st_uid)


def _check(path: Path, folder: int, entry: os.stat_result) -> None:
    if _is_trusted(entry.st_uid) or not _is_shared(os.fstat(folder)):
        return
    what = "link" if stat.S_ISLNK(entry.st_mode) else "folder"
    raise BadInputError(
        f"{path}: a {what} of user {entry.st_uid} is there, or on the way, in a folder that others "
        "can write to; choose a folder of your own"
    )
