"""Data files that users drop in: checked as on the command line, never unpickled, kept until the server ends."""

from __future__ import annotations

import hashlib
import re
import tempfile
import zipfile
from pathlib import Path

from lazyrich.errors import LazyrichError
from lazyrich.storage import write_whole

# Of one file; of what an archive or a Parquet file unfolds to; of all files together.
LARGEST_FILE = 16 * 2**20
_LARGEST_CONTENT = 256 * 2**20
_LARGEST_FOLDER = 1024 * 2**20


class Uploads:
    """A folder of uploaded files, each under the hash of its content.

    The folder is private, and removed with the object.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lazyrich-explorer-")
        self._paths: dict[str, Path] = {}
        self._size = 0

    def add(self, name: str, content: bytes) -> str:
        """Keep a file.

        Returns
        -------
        str
            What stands for it in a link: hash and name.

        Raises
        ------
        LazyrichError
            For a file that is too large, or unfolds to too much.
        """
        shown = Path(name.replace("\\", "/")).name[-80:]
        plain = re.sub(r"[^\w.+ -]", "_", shown).lstrip(". ") or "data"
        if len(content) > LARGEST_FILE:
            what = f"has {len(content) / 2**20:.1f} MiB, more than the explorer's {LARGEST_FILE >> 20}"
            raise LazyrichError(plain, what, "use lazyrich predict, or a part of the rows")
        key = f"{hashlib.sha256(content).hexdigest()[:16]}/{plain}"
        if key in self._paths:
            return key
        if self._size + len(content) > _LARGEST_FOLDER:
            raise LazyrichError(plain, "the explorer keeps too many files already", "start it again")
        path = Path(self._folder.name) / key
        path.parent.mkdir(exist_ok=True)
        write_whole(path, content, durable=False)
        try:
            _check_content(path)
        except LazyrichError:
            path.unlink()
            raise
        self._paths[key] = path
        self._size += len(content)
        return key

    def path(self, key: str) -> str | None:
        """Where the file of a link is; None without one.

        Raises
        ------
        LazyrichError
            When it is not here: the server was started again since, or the link is from another machine.
        """
        if not key:
            return None
        if key not in self._paths:  # a path is never made from a link
            raise LazyrichError(key.rpartition("/")[2][:80], "is not here any more", "drop the file in again")
        return str(self._paths[key])

    def readable(self, error: LazyrichError) -> LazyrichError:
        """An error with the file's own name instead of its place here."""
        parts = [error.where, error.what, error.remedy]
        for path in self._paths.values():
            parts = [part.replace(str(path), path.name) for part in parts]
        return LazyrichError(*parts)

    def close(self) -> None:
        """Remove all files."""
        self._folder.cleanup()


def _check_content(path: Path) -> None:
    """Refuse files that unfold to many times their size; what else is wrong with a file is said when it is read."""
    size = 0
    try:
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
        elif path.suffix.lower() == ".parquet":
            import pyarrow.parquet as parquet

            metadata = parquet.ParquetFile(path).metadata
            groups = [metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)]
            size = max(sum(groups), metadata.num_rows * metadata.num_columns * 8)
    except Exception:  # a damaged file: the reader names what is wrong
        return
    if size > _LARGEST_CONTENT:
        what = f"unfolds to {size / 2**20:.0f} MiB, more than the explorer's {_LARGEST_CONTENT >> 20}"
        raise LazyrichError(path.name, what, "use lazyrich predict, or a part of the rows")
