"""Files of results: whole or not at all, and the same when read back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import lazyrich
from lazyrich import GaussianData, LazyrichError, Network, Problem, Training, Trajectory
from lazyrich.comparison import Comparison, load_comparisons, save_comparisons
from lazyrich.storage import check_destination, write_whole
from tests.conftest import Finished, assert_one_line_error

pytest.importorskip("resource")  # limits of what a process may do: not on Windows

PROBLEM = Problem(
    network=Network(width=40, blocks=1),
    data=GaussianData(dimension=40, samples=80),
    training=Training(steps=6, learning_rate=0.05),
)
DIVERGING = PROBLEM.with_values({"training.learning_rate": 5.0})


def one_line(call: Callable[[], object]) -> str:
    with pytest.raises(LazyrichError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text and len(text) < 500
    return text


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- writing ---------------------------------------------------------------------------------------------------------


def test_the_content_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    write_whole(path, b"a long old content")
    assert path.read_bytes() == b"a long old content"
    before = path.open("rb")  # who reads meanwhile keeps what there was
    write_whole(path, memoryview(b"new"))
    assert path.read_bytes() == b"new"
    assert before.read() == b"a long old content"
    before.close()
    assert files(tmp_path) == ["result.nc"]


def test_others_may_read_it_as_the_umask_says(tmp_path: Path) -> None:
    for umask in (0o022, 0o077):
        old = os.umask(umask)
        try:
            write_whole(tmp_path / "result.nc", b"new")
            assert os.umask(umask) == umask  # and it is left as it was
        finally:
            os.umask(old)
        assert (tmp_path / "result.nc").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()])
def test_a_failing_write_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        assert len(files(tmp_path)) == 2  # there is a temporary file to be removed
        raise failure

    path = tmp_path / "result.nc"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    if isinstance(failure, OSError):
        line = one_line(lambda: write_whole(path, b"new"))
        assert line == f"{path}: cannot be written (No space left on device); free space or choose another folder"
    else:
        with pytest.raises(type(failure)):
            write_whole(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old" and files(tmp_path) == ["result.nc"]


def test_no_folder_to_write_to(tmp_path: Path) -> None:
    line = one_line(lambda: write_whole(tmp_path / "missing" / "result.nc", b"new"))
    assert "missing/result.nc: cannot be written (No such file or directory)" in line
    (tmp_path / "folder.nc").mkdir()
    assert "cannot be written (Is a directory)" in one_line(lambda: write_whole(tmp_path / "folder.nc", b"new"))
    assert files(tmp_path) == ["folder.nc"]


def test_a_good_destination_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "result.NC"
    assert check_destination(str(path), (".nc",), "--output") == path and files(tmp_path) == []
    path.write_bytes(b"old")
    check_destination(path, (".nc",), "--output")
    assert path.read_bytes() == b"old" and files(tmp_path) == ["result.NC"]


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
from lazyrich.cli import main
main()
"""


@pytest.mark.parametrize(("verb", "old"), [("predict", None), ("predict", b"old"), ("compare", b"old")])
def test_a_full_disk(write_problem: Callable[..., Path], tmp_path: Path, verb: str, old: bytes | None) -> None:
    """The kernel refuses to make any file longer than 8 KiB, less than half of what there is to write."""
    path, output = write_problem(), tmp_path / "result.nc"
    if old is not None:
        output.write_bytes(old)
    seeds = [] if verb == "predict" else ["--seeds", "2"]

    done = subprocess.run(
        [sys.executable, "-c", LIMITED, verb, path, *seeds, "--json", "--output", output],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert_one_line_error(Finished(done.returncode, done.stdout, done.stderr))
    assert done.stderr == f"error: {output}: cannot be written (File too large); free space or choose another folder\n"
    assert files(tmp_path) == (["problem.toml"] if old is None else ["problem.toml", "result.nc"])
    if old is not None:
        assert output.read_bytes() == old


WRITER = """
import sys
import lazyrich
problem = lazyrich.load_problem(sys.argv[1]).with_values({"training.steps": int(sys.argv[3])})
result = lazyrich.predict(problem)
print("ready", flush=True)
sys.stdin.readline()
while not sys.stdin.closed:
    result.save(sys.argv[2])
    print(flush=True)
    if not sys.stdin.readline():
        break
"""


def test_two_processes_write_one_file(write_problem: Callable[..., Path], tmp_path: Path) -> None:
    path, output = write_problem(), tmp_path / "result.nc"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, output, steps],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        for steps in ("6", "60")
    ]
    seen = set()
    try:
        for writer in writers:
            assert writer.stdout and writer.stdin and writer.stdout.readline() == b"ready\n"
            # it writes on its own from here: every line lets it write once
            writer.stdin.write(b"\n" * 20)
        while not output.exists():
            assert all(writer.poll() is None for writer in writers)
        for _ in range(15):
            loaded = lazyrich.load(output)
            seen.add(len(loaded.steps))
            assert loaded.problem.training.steps == len(loaded.steps) and np.isfinite(loaded.train_loss).all()
    finally:
        for writer in writers:
            assert writer.stdin and writer.stdout
            writer.stdin.close()
            writer.stdout.read()
            writer.stdout.close()
            status = writer.wait(timeout=60)
            assert status == 0
    assert seen <= {6, 60}
    assert files(tmp_path) == ["problem.toml", "result.nc"]


# --- reading back ----------------------------------------------------------------------------------------------------


def assert_same(one: Trajectory, other: Trajectory) -> None:
    xarray.testing.assert_identical(one.data, other.data)  # values, NaN, names, dimensions, coordinates, attributes
    for name in one.data.variables:
        assert one.data[name].dtype.kind == other.data[name].dtype.kind
    assert (one.problem, one.source, one.outcome) == (other.problem, other.source, other.outcome)
    assert one.provenance == other.provenance and one.statistics == other.statistics


RESULTS: dict[str, Callable[[], Trajectory]] = {
    "theory": lambda: lazyrich.predict(PROBLEM, responses=True),
    "three outputs": lambda: lazyrich.predict(PROBLEM.with_values({"data.outputs": 3, "network.width": float("inf")})),
    "diverged": lambda: lazyrich.predict(DIVERGING),
    "data set": lambda: lazyrich.predict(
        Problem(network=PROBLEM.network, data=lazyrich.dataset("digits", classes=[0, 1]), training=PROBLEM.training)
    ),
    "training": lambda: lazyrich.train(PROBLEM, seeds=[4, 2, 9], kernels=True),
    "training diverged": lambda: lazyrich.train(DIVERGING, seeds=3),
    "one network": lambda: lazyrich.train(PROBLEM, seeds=1),
}


@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
def test_round_trip(make: Callable[[], Trajectory], tmp_path: Path) -> None:
    result, path = make(), tmp_path / "result.nc"
    result.save(path)
    loaded = lazyrich.load(path)
    assert_same(loaded, result)
    np.testing.assert_array_equal(loaded.train_loss, result.train_loss)
    assert loaded.to_json() == result.to_json()
    loaded.save(path)  # over the file that it was read from
    assert_same(lazyrich.load(path), result)
    assert files(tmp_path) == ["result.nc"]


def test_what_differs_is_seen(tmp_path: Path) -> None:
    """The check of the round trip itself."""
    one, other = lazyrich.predict(PROBLEM), lazyrich.predict(PROBLEM.with_values({"training.learning_rate": 0.06}))
    with pytest.raises(AssertionError):
        assert_same(one, other)
    assert_same(one, one)


def test_anyone_can_read_the_file(tmp_path: Path) -> None:
    result, path = lazyrich.predict(PROBLEM), tmp_path / "result.nc"
    result.save(path)
    with xarray.open_dataset(path) as plain:
        np.testing.assert_array_equal(plain["train_loss"].values, result.train_loss)
        assert plain["train_loss"].attrs["units"] and plain.attrs["source"] == "theory"


@pytest.fixture(scope="module")
def comparisons() -> list[Comparison]:
    return [
        lazyrich.compare(lazyrich.predict(problem), lazyrich.train(problem, seeds=3), label)
        for problem, label in ((PROBLEM, "rate = 0.05"), (DIVERGING, "rate = 5, größer"))
    ]


def test_comparisons_round_trip(comparisons: list[Comparison], tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    save_comparisons(comparisons, path)
    loaded = load_comparisons(path)
    assert len(loaded) == 2
    for one, other in zip(loaded, comparisons, strict=True):
        assert one.label == other.label and one.summary() == other.summary()
        assert_same(one.predicted, other.predicted)
        assert_same(one.trained, other.trained)
        xarray.testing.assert_identical(one.data, other.data)
    comparisons[1].save(path)
    assert [comparison.label for comparison in load_comparisons(path)] == ["rate = 5, größer"]
    assert files(tmp_path) == ["result.nc"]


def test_many_comparisons_keep_their_order(comparisons: list[Comparison], tmp_path: Path) -> None:
    first = comparisons[0]
    many = [Comparison(first.predicted, first.trained, str(index)) for index in range(12)]
    save_comparisons(many, tmp_path / "result.nc")
    assert [one.label for one in load_comparisons(tmp_path / "result.nc")] == [str(index) for index in range(12)]


def other_netcdf(path: Path) -> None:
    xarray.Dataset({"train_loss": ("step", [1.0, 2.0])}).to_netcdf(path, engine="h5netcdf")


def changed(path: Path, **attributes: Any) -> None:
    lazyrich.predict(PROBLEM).to_dataset().assign_attrs(**attributes).to_netcdf(path, engine="h5netcdf")


def truncated(path: Path) -> None:
    lazyrich.predict(PROBLEM).save(path)
    path.write_bytes(path.read_bytes()[:-2000])


def without_attribute(path: Path) -> None:
    data = lazyrich.predict(PROBLEM).to_dataset()
    del data.attrs["outcome"]
    data.to_netcdf(path, engine="h5netcdf")


NO_RESULTS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("[network]\nwidth = 3\n"),
    "noise": lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)),
    "only the signature": lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\x00" * 3000),
    "truncated": truncated,
    "other NetCDF": other_netcdf,
    "no outcome": without_attribute,
    "broken problem": lambda path: changed(path, problem="{"),
    "wrong problem": lambda path: changed(path, problem='{"network": {"width": 0}}'),
    "wrong outcome": lambda path: changed(path, outcome='{"colour": 1}'),
    "other version": lambda path: changed(path, format="lazyrich trajectory 99"),
}


@pytest.mark.parametrize("make", NO_RESULTS.values(), ids=NO_RESULTS)
@pytest.mark.parametrize("load", [lazyrich.load, load_comparisons])
def test_files_that_hold_no_result(tmp_path: Path, make: Callable[[Path], object], load: Callable) -> None:
    path = tmp_path / "result.nc"
    make(path)
    for given in (path, str(path)):
        line = one_line(lambda given=given: load(given))
        assert line.startswith(str(path)) and line.count("; ") >= 1


def test_one_kind_of_result_is_not_the_other(comparisons: list[Comparison], tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    comparisons[0].save(path)
    assert one_line(lambda: lazyrich.load(path)).startswith(f"{path}: holds no trajectory; ")
    comparisons[0].predicted.save(path)
    assert one_line(lambda: load_comparisons(path)).startswith(f"{path}: holds no comparisons; ")
    assert files(tmp_path) == ["result.nc"]
