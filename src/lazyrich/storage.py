"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from lazyrich.errors import LazyrichError


def check_destination(path: str | Path, suffixes: tuple[str, ...], option: str) -> Path:
    """Refuse, before long work begins, a path that could not be written at its end.

    Raises
    ------
    LazyrichError
        For an unknown ending, a folder that does not exist or cannot be written, or a folder in the file's place.
    """
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise LazyrichError(
            f"{option} {path}", f"unknown ending {path.suffix!r}", f"name a file that ends in {' or '.join(suffixes)}"
        )
    try:
        if path.is_dir():
            raise LazyrichError(f"{option} {path}", "is a folder", "name a file")
        if not path.parent.is_dir():
            raise LazyrichError(f"{option} {path}", f"no folder {path.parent}", "create it, or choose another")
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise cannot_write(path, error, option) from None
    os.close(descriptor)
    os.unlink(name)
    return path


def write_whole(path: str | Path, content: bytes | memoryview, *, durable: bool = True) -> None:
    """Write a file under a temporary name beside its place, then rename it.

    Without `durable` it is not forced to the disk, which takes milliseconds: a power failure may damage it.

    Raises
    ------
    LazyrichError
        When it cannot be written; what was at the path before is untouched.
    """
    path = Path(path)
    name = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException as error:
        if name is not None and os.path.exists(name):
            os.unlink(name)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from None
        raise


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


def cannot_write(path: Path, error: OSError, option: str = "") -> LazyrichError:
    """The error of a file or folder that the system refuses."""
    reason = error.strerror or str(error)
    return LazyrichError(
        f"{option} {path}".strip(), f"cannot be written ({reason})", "free space or choose another folder"
    )
