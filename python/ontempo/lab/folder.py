"""One run at a time in one output folder.

The lock is the system's, on an open file: it ends with the process that holds it, however that
dies, so nobody ever has to remove one by hand.
"""

import errno
import fcntl
import io
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import polars as pl

from ontempo.lab.errors import UnfitEnvironmentError

LOCK = ".in-use"


def unwritable(where: Path, error: OSError) -> UnfitEnvironmentError:
    """A failure to write, in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UnfitEnvironmentError(f"{where}: the disk is full; finished runs are kept")
    return UnfitEnvironmentError(f"{where}: cannot write here: {error.strerror or error}")


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a folder, or say who does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+", encoding="utf-8")
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


def replace_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder's content anew: readers find the old one or the whole new one."""
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
            shutil.rmtree(new, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise unwritable(folder, error) from error


def write_text(path: Path, text: str) -> None:
    """A file, whole or not at all."""
    temporary = path.with_name(f".tmp-{path.name}-{uuid4().hex}")
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, "utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def write_parquet(table: pl.DataFrame, path: Path) -> None:
    """A table as a file. polars' own writing tells of a full disk by no error of the system."""
    packed = io.BytesIO()
    table.write_parquet(packed)
    path.write_bytes(packed.getvalue())
