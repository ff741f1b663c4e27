"""Matrices of files and built-in ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from lazyrich.errors import LazyrichError

# Squares and products of numbers up to here do not overflow.
_LARGEST = 1e30


def read_matrix(path: str, *, holes: bool = False) -> np.ndarray:
    """A matrix from a CSV (commas, with or without a line of names), NPZ (its only array) or Parquet file.

    Parameters
    ----------
    path : str
    holes : bool
        Whether cells may be empty; they become NaN.

    Returns
    -------
    ndarray, shape (rows, columns)

    Raises
    ------
    LazyrichError
        When the file cannot be read or holds something else than numbers.
    """
    if not os.path.isfile(path):
        raise LazyrichError(path, "no such file", "check the name")
    suffix = Path(path).suffix.lower()
    readers = {".csv": _read_csv, ".npz": _read_npz, ".parquet": _read_parquet}
    if suffix not in readers:
        raise LazyrichError(path, f"unknown ending {suffix!r}", f"give a file that ends in {', '.join(readers)}")
    try:
        matrix = readers[suffix](path)
    except LazyrichError:
        raise
    except MemoryError:
        raise LazyrichError(path, "does not fit into memory", "give a smaller matrix") from None
    except Exception as error:  # pandas, pyarrow and zipfile raise many kinds
        reason = " ".join(str(error).split())[:120]
        raise LazyrichError(path, f"cannot be read as a matrix ({reason})", "give a table of numbers") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise LazyrichError(path, f"has shape {matrix.shape}", "give a matrix with rows and columns")
    if np.isinf(matrix).any():
        raise LazyrichError(path, "holds infinite numbers", "give finite numbers")
    if np.nanmax(np.abs(matrix), initial=0.0) > _LARGEST:
        raise LazyrichError(path, f"holds numbers above {_LARGEST:g}", "rescale it")
    if not holes and np.isnan(matrix).any():
        row, column = np.argwhere(np.isnan(matrix))[0]
        what = f"row {row + 1}, column {column + 1} holds no number"
        raise LazyrichError(path, what, "fill it, or set cost = 'completion', which may have unknown entries")
    return matrix


def _read_csv(path: str) -> np.ndarray:
    import pandas

    first = pandas.read_csv(path, header=None, nrows=1)
    named = not any(isinstance(cell, int | float | np.number) for cell in first.iloc[0])
    return _numbers(path, pandas.read_csv(path, header=0 if named else None))


def _read_parquet(path: str) -> np.ndarray:
    import pandas

    return _numbers(path, pandas.read_parquet(path))


def _numbers(path: str, table) -> np.ndarray:
    for name in table.columns:
        if table[name].dtype.kind not in "iufb":
            raise LazyrichError(
                f"{path}: column {str(name)[:60]!r}", "does not hold numbers", "remove it, or correct it"
            )
    return table.to_numpy(dtype=float)


def _read_npz(path: str) -> np.ndarray:
    with np.load(path, allow_pickle=False) as archive:
        if len(archive.files) != 1:
            raise LazyrichError(path, f"holds {len(archive.files)} arrays", "save one matrix in it")
        values = archive[archive.files[0]]
    if values.dtype.kind not in "iufb":
        raise LazyrichError(path, f"holds an array of {values.dtype}", "save numbers")
    return values.astype(float)


def built_in_matrix(name: str) -> np.ndarray:
    """A real matrix: ``"digits"``, shape (1797, 64), pixels 0 to 16; ``"flower"``, shape (427, 640), grey, 0 to 1."""
    if name == "digits":
        from sklearn.datasets import load_digits

        return np.asarray(load_digits(return_X_y=True)[0])
    from sklearn.datasets import load_sample_image

    return load_sample_image("flower.jpg").mean(axis=-1) / 255.0
