"""Finished cells on disk.

A cell is one run of one scenario with one seed. It is stored as one file, named by a hash of all
its inputs, so a study that is run again finds its finished cells. The file is a
zip of Parquet tables beside ``meta.json``; any program that reads those can look inside.

A cell is written under a temporary name and renamed when whole, so a reader finds either no
cell or a whole one, however many processes share the store and whenever one of them dies. Cells
are verified when read: a damaged file is reported, never used.
"""

import errno
import hashlib
import io
import json
import os
import time
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ontempo.lab.errors import UnfitEnvironmentError

SCHEMA = 1
"""Version of the cell's layout and of the tables' columns."""

STALE_AFTER_S = 24 * 3600
"""A temporary file this old was left by a process that died."""

_META = "meta.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Rejected:
    """A file in a cell's place that could not be used."""

    path: Path
    reason: str


class DamagedCellError(Exception):
    """A file that is not the complete cell of its name."""


def cell_key(canonical: str, seed: int, engine: str) -> str:
    """The name of the cell: a hash of everything that determines its content."""
    parts = json.dumps([SCHEMA, engine, canonical, seed], separators=(",", ":"))
    return hashlib.blake2b(parts.encode(), digest_size=20).hexdigest()


class Store:
    """A folder of cells made by one engine; cells of other engines lie beside it, unused."""

    def __init__(self, root: Path, engine: str) -> None:
        self.root = root
        self.folder = root / f"v{SCHEMA}-{hashlib.blake2b(engine.encode()).hexdigest()[:12]}"
        self.rejected: list[Rejected] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            probe = self.folder / f".tmp-probe-{uuid.uuid4().hex}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise _unfit(error, self.folder) from error

    def path(self, key: str) -> Path:
        """The path of a cell's file, existing or not."""
        return self.folder / key[:2] / f"{key}.zip"

    def has(self, key: str) -> bool:
        """Whether a complete cell is stored; a damaged file is added to `rejected`."""
        try:
            with zipfile.ZipFile(self.path(key)) as archive:
                self._meta(archive, key)
                if (broken := archive.testzip()) is not None:
                    raise DamagedCellError(f"{broken} fails its checksum")
        except FileNotFoundError:
            return False
        except Exception as error:
            self._reject(key, error)
            return False
        return True

    def read(self, key: str, only: str | None = None) -> dict[str, pl.DataFrame] | None:
        """A cell's tables, or `only` the one named, if it has it; None without a complete cell."""
        try:
            with zipfile.ZipFile(self.path(key)) as archive:
                kept = self._meta(archive, key)["tables"]
                names = [name for name in kept if only in (None, name)]
                return {
                    name: pl.read_parquet(io.BytesIO(archive.read(f"{name}.parquet")))
                    for name in names
                }
        except FileNotFoundError:
            return None
        except Exception as error:
            self._reject(key, error)
            return None

    def keep(self, key: str, tables: Mapping[str, pl.DataFrame], about: Mapping[str, Any]) -> None:
        """Write a cell, whole or not at all; `about` is metadata for inspection."""
        self.keep_packed(key, pack(key, tables, about))

    def keep_packed(self, key: str, packed: bytes) -> None:
        """Write a cell that was packed elsewhere; whole or not at all."""
        path = self.path(key)
        temporary = path.with_name(f".tmp-{os.getpid()}-{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(exist_ok=True)
            try:
                temporary.write_bytes(packed)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise _unfit(error, path.parent) from error

    def others(self) -> list[Path]:
        """Folders of cells made by other versions, which this one does not use."""
        return sorted(p for p in self.root.iterdir() if p.is_dir() and p != self.folder)

    def take_rejected(self) -> list[Rejected]:
        """Return the files rejected since the last call."""
        rejected, self.rejected = self.rejected, []
        return rejected

    def _meta(self, archive: zipfile.ZipFile, key: str) -> dict[str, Any]:
        meta: dict[str, Any] = json.loads(archive.read(_META))
        if meta.get("schema") != SCHEMA:
            raise DamagedCellError(f"written in layout {meta.get('schema')}, this is {SCHEMA}")
        if meta.get("key") != key:
            raise DamagedCellError("holds another cell than its name says")
        return meta

    def _reject(self, key: str, error: Exception) -> None:
        rejected = Rejected(self.path(key), str(error) or type(error).__name__)
        if all(known.path != rejected.path for known in self.rejected):
            self.rejected.append(rejected)

    def _sweep(self) -> None:
        """Remove temporary files of dead processes."""
        oldest = time.time() - STALE_AFTER_S
        for leftover in self.folder.rglob(".tmp-*"):
            try:
                if leftover.stat().st_mtime < oldest:
                    leftover.unlink()
            except FileNotFoundError:
                continue


def pack(key: str, tables: Mapping[str, pl.DataFrame], about: Mapping[str, Any]) -> bytes:
    """A cell's file: the same bytes for the same cell."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, table in tables.items():
            parquet = io.BytesIO()
            table.write_parquet(parquet)
            archive.writestr(zipfile.ZipInfo(f"{name}.parquet", _EPOCH), parquet.getvalue())
        meta = {"schema": SCHEMA, "key": key, "tables": list(tables), **about}
        archive.writestr(zipfile.ZipInfo(_META, _EPOCH), json.dumps(meta, indent=1))
    return packed.getvalue()


def _unfit(error: OSError, where: Path) -> UnfitEnvironmentError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UnfitEnvironmentError(f"{where}: the disk is full; nothing half written was left")
    return UnfitEnvironmentError(f"{where}: cannot write here: {error.strerror or error}")
