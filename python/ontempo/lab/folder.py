"""One run at a time in one output folder.

The lock is flock(2) on an open file: it ends with its process, however that dies, so it never has
to be removed by hand.
"""

import errno
import fcntl
import io
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO
from uuid import uuid4

import polars as pl

from ontempo.lab.errors import BadInputError, UnfitEnvironmentError
from ontempo.lab.place import open_folder

LOCK = ".in-use"


def unwritable(where: Path, error: OSError) -> UnfitEnvironmentError:
    """The error to raise after a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UnfitEnvironmentError(f"{where}: the disk is full; finished runs are kept")
    return UnfitEnvironmentError(f"{where}: cannot write here: {error.strerror or error}")


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Lock a folder; raises `UnfitEnvironmentError` with its holder if it is in use.

    `BadInputError` if another user could have put it there.
    """
    try:
        file = _lock_file(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UnfitEnvironmentError(
                f"{folder}: in use by {holder}; wait for it, or choose another folder with --out"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _lock_file(folder: Path) -> TextIO:
    opened = open_folder(folder)
    try:
        # A pipe or a device must not wait for who holds its other end.
        how = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(LOCK, os.O_RDWR | os.O_APPEND | os.O_CREAT | how, 0o666, dir_fd=opened)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _no_lock(folder) from error
        raise
    finally:
        os.close(opened)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _no_lock(folder)
    return os.fdopen(file, "a+", encoding="utf-8")


def _no_lock(folder: Path) -> UnfitEnvironmentError:
    return UnfitEnvironmentError(
        f"{folder / LOCK}: is no file, but a link, a pipe or a folder, and cannot be this folder's"
        " lock; move it away, or choose another folder with --out"
    )


def require_replaceable(folder: Path, is_own: Callable[[Path], bool]) -> None:
    """Raise `BadInputError` if a folder holds something, and not what was written there before."""
    try:
        is_replaceable = not folder.exists() or (
            folder.is_dir() and (not any(folder.iterdir()) or is_own(folder))
        )
    except OSError as error:
        raise unwritable(folder, error) from error
    if folder.is_symlink() or not is_replaceable:
        raise BadInputError(
            f"{folder}: holds files that were not written here by ontempo-lab; move it away, or"
            " choose another folder with --out"
        )


def replace_folder(
    folder: Path, is_own: Callable[[Path], bool], fill: Callable[[Path], None]
) -> None:
    """Replace a folder's content: readers find the old one or the complete new one.

    `BadInputError` if it is not replaceable.
    """
    require_replaceable(folder, is_own)
    new = folder.with_name(f".tmp-{folder.name}-{uuid4().hex}")
    old = folder.with_name(f".old-{folder.name}-{uuid4().hex}")
    try:
        try:
            new.mkdir(parents=True)
            fill(new)
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        finally:
            # What was there is back, whatever came between.
            if not folder.exists() and old.exists():
                old.rename(folder)
            shutil.rmtree(new, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise unwritable(folder, error) from error


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    temporary = path.with_name(f".tmp-{path.name}-{uuid4().hex}")
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def write_parquet(table: pl.DataFrame, path: Path) -> None:
    """Write a table as a file. polars' own writer does not raise `OSError` on a full disk."""
    packed = io.BytesIO()
    table.write_parquet(packed)
    path.write_bytes(packed.getvalue())


def replace_part(page: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what stands between two marks of a page; the rest stays."""
    try:
        before = page.read_text("utf-8")
    except OSError as error:
        raise BadInputError(f"{page}: cannot be read: {error.strerror}") from error
    begin, end = marks
    head, found, rest = before.partition(begin)
    _, ended, tail = rest.partition(end)
    if not (found and ended):
        raise BadInputError(f"{page}: lacks the lines {begin!r} and {end!r}")
    write_text(page, f"{head}{begin}\n\n{text.strip()}\n\n{end}{tail}")
