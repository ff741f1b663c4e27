"""A folder that keeps every finished cell, so that a run that was ended is continued."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.storage import cannot_write, write_whole

FORMAT = "lazyrich results 1"
_CELL_FORMAT = "lazyrich-cell-1"
_REMEDY = "give another --results folder, or remove it"
# A temporary file of this age, in seconds, belongs to a run that was killed.
_STALE = 3600.0


class ResultStore:
    """The results of one study, one file per cell.

    A file is a line with a checksum, then the arrays as NPZ. Files appear whole: whatever ends a run, each is there or
    not, and one that was damaged since is recognised. Two runs may share a folder; the same cell has the same content.

    Parameters
    ----------
    folder : Path
        Created where it does not exist.
    study_name : str
        A folder belongs to one study.

    Attributes
    ----------
    damaged : int
        Files that were there but could not be used when they were read.

    Raises
    ------
    LazyrichError
        For a folder of another study, a folder of something else, one that cannot be written.
    """

    def __init__(self, folder: Path, study_name: str) -> None:
        self.folder = Path(folder)
        self.study_name = study_name
        self.damaged = 0
        self._cells = self.folder / "cells"
        try:
            self._open()
        except OSError as error:
            raise cannot_write(self.folder, error) from None

    def _open(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise LazyrichError(str(self.folder), "is not a folder", _REMEDY)
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "study.json"
        if manifest.exists():
            self._check(manifest)
        else:
            # a run that was killed while it began may have left its temporary manifest and nothing else
            if any(not entry.name.startswith(f".{manifest.name}.") for entry in self.folder.iterdir()):
                raise LazyrichError(str(self.folder), "holds other files than results", _REMEDY)
            content = json.dumps({"format": FORMAT, "study": self.study_name}, indent=1)
            write_whole(manifest, f"{content}\n".encode())
        self._cells.mkdir(exist_ok=True)
        self._remove_stale()

    def _check(self, manifest: Path) -> None:
        try:
            content = json.loads(manifest.read_bytes())
            found, study = content["format"], content["study"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise LazyrichError(str(self.folder), f"its {manifest.name} cannot be read", _REMEDY) from None
        if found != FORMAT:
            raise LazyrichError(str(self.folder), f"has format {found!r}, not {FORMAT!r}", _REMEDY)
        if study != self.study_name:
            what = f"holds results of study {study!r}, not {self.study_name!r}"
            raise LazyrichError(str(self.folder), what, _REMEDY)

    def _remove_stale(self) -> None:
        before = time.time() - _STALE
        for entry in os.scandir(self._cells):
            try:
                if entry.name.startswith(".") and entry.stat().st_mtime < before:
                    os.unlink(entry.path)
            except OSError:  # another run was faster, or it is not ours to remove
                continue

    def path(self, key: str) -> Path:
        """Where the result of a cell is kept."""
        return self._cells / f"{key}.npz"

    def read(self, key: str) -> dict[str, np.ndarray] | None:
        """The result of a cell; None where it is missing or damaged, so that it is computed again."""
        try:
            content = self.path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            self.damaged += 1
            return None
        header, _, body = content.partition(b"\n")
        try:
            if header != _header(key, body):
                raise ValueError("checksum")
            with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
            self.damaged += 1
            return None

    def write(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the result of a cell.

        It is not forced to the disk, which would cost more than a small cell: after a power failure the last files may
        be damaged, and those cells are computed again.

        Raises
        ------
        LazyrichError
            When it cannot be written; nothing half-written stays.
        """
        body = _npz(arrays)
        write_whole(self.path(key), _header(key, body) + b"\n" + body, durable=False)


def _header(key: str, body: bytes) -> bytes:
    return f"{_CELL_FORMAT} {key} {hashlib.sha256(body).hexdigest()}".encode()


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """What ``numpy.savez`` writes, without a time in it: the same arrays are the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return file.getvalue()
