"""The command: what it prints and writes, its exit codes, and one line for everything that a user can get wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import lazyrich
from lazyrich.comparison import load_comparisons
from tests.conftest import Finished, assert_one_line_error, run_command

COMMAND = [sys.executable, "-m", "lazyrich.cli"]
SEEDS = ("--seeds", "3")  # one number everywhere, so that training is compiled once
DIVERGING = {"training.learning_rate": "5"}
HEAVY = ("numpy", "scipy", "jax", "optax", "pydantic", "xarray", "h5netcdf", "matplotlib", "torch", "pandas", "sklearn")


def run_process(*arguments: object, **options: Any) -> Finished:
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)
    return Finished(done.returncode, done.stdout, done.stderr)


def strict_json(text: str) -> dict[str, Any]:
    """The one JSON object in a text; NaN and infinities, which JSON does not know, are an error."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def assert_png(path: Path) -> None:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB\x60\x82")


def assert_svg(path: Path) -> None:
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


# --- what it gives ---------------------------------------------------------------------------------------------------


def test_predict_json(write_problem: Callable[..., Path]) -> None:
    path = write_problem()
    done = run_command("predict", path, "--json")
    assert (done.status, done.err) == (0, "") and done.out.count("\n") == 1
    content = strict_json(done.out)
    assert content["steps"] == [0, 1, 2, 3, 4, 5]
    assert (content["source"], content["outcome"], content["step"]) == ("theory", "finished", None)
    predicted = lazyrich.predict(lazyrich.load_problem(path))
    for name in ("train_loss", "test_loss"):
        assert content[name] == list(predicted.data[name].values)  # every digit
        assert f"{name}_sem" not in content
        assert all(isinstance(loss, float) for loss in content[name])
    assert content["test_loss"][0] == pytest.approx(2.0)  # 1 + D/N at richness 1
    assert content["statistics"]["residual"] < 1e-12
    assert content["versions"]["lazyrich"] == lazyrich.__version__


def test_train_json(write_problem: Callable[..., Path]) -> None:
    path = write_problem()
    done = run_command("train", path, *SEEDS, "--json")
    assert (done.status, done.err) == (0, "")
    content = strict_json(done.out)
    assert content["steps"] == [0, 1, 2, 3, 4, 5]
    assert (content["source"], content["outcome"], content["step"]) == ("training", "finished", None)
    trained = lazyrich.train(lazyrich.load_problem(path), seeds=3)
    for name in ("train_loss", "test_loss"):
        of_seed = trained.data[f"{name}_of_seed"].values
        assert of_seed.shape == (3, 6)
        assert content[name] == pytest.approx(of_seed.mean(axis=0), rel=1e-12)
        assert content[f"{name}_sem"] == pytest.approx(of_seed.std(axis=0, ddof=1) / np.sqrt(3), rel=1e-12)
        assert min(content[f"{name}_sem"]) > 0
    assert content["statistics"]["networks"] == 3


def test_one_network_has_no_standard_error(write_problem: Callable[..., Path]) -> None:
    content = strict_json(run_command("train", write_problem(), "--seeds", "1", "--json").out)
    assert content["train_loss_sem"] == content["test_loss_sem"] == [None] * 6
    assert all(isinstance(loss, float) for loss in content["train_loss"])


def test_the_seed_decides(write_problem: Callable[..., Path]) -> None:
    losses = [
        strict_json(run_command("train", write_problem({"training.seed": seed}), *SEEDS, "--json").out)["train_loss"]
        for seed in ("0", "0", "1")
    ]
    assert losses[0] == losses[1] and losses[0] != losses[2]


def test_compare_json(write_problem: Callable[..., Path]) -> None:
    path = write_problem({"compare.seeds": "3", "compare.axes": '{ "training.learning_rate" = [0.05, 0.1] }'})
    done = run_command("compare", path, "--json")
    assert (done.status, done.err) == (0, "")
    comparisons = strict_json(done.out)["comparisons"]
    assert [comparison["label"] for comparison in comparisons] == ["learning_rate = 0.05", "learning_rate = 0.1"]
    for comparison, rate in zip(comparisons, (0.05, 0.1), strict=True):
        problem = lazyrich.load_problem(path).with_values({"training.learning_rate": rate})
        predicted, trained = comparison["predicted"], comparison["trained"]
        assert predicted["train_loss"] == list(lazyrich.predict(problem).train_loss)
        assert trained["train_loss"] == list(lazyrich.train(problem, seeds=3).train_loss)
        difference = np.subtract(trained["train_loss"], predicted["train_loss"])
        assert comparison["train_loss_difference"] == list(difference)
        assert comparison["train_loss_z"] == pytest.approx(difference / trained["train_loss_sem"], rel=1e-12)
        largest = np.abs(comparison["train_loss_z"]).max()
        assert f"|z| at most {largest:.1f}" in comparison["summary"] and "3 networks" in comparison["summary"]


def test_data_sets_have_no_test_loss(write_problem: Callable[..., Path], tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((20, 4)).round(3)
    lines = ["a,b,c,y", *(",".join(map(str, row)) for row in values)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    of_data = {"data.kind": '"dataset"', "data.path": '"table.csv"', "data.target": '"y"'}
    path = write_problem(of_data | {"data.dimension": None, "data.samples": None})
    predicted = strict_json(run_command("predict", path, "--json").out)
    trained = strict_json(run_command("train", path, *SEEDS, "--json").out)
    assert predicted["test_loss"] is trained["test_loss"] is trained["test_loss_sem"] is None
    assert len(predicted["train_loss"]) == len(trained["train_loss"]) == len(trained["train_loss_sem"]) == 6
    table = " ".join(run_command("predict", path).out.split())
    assert "training loss" in table and "test loss" not in table
    assert re.search(r"own units: root mean squared error [\d.]+ at step 5$", table)
    of_data |= {"data.dimension": None, "data.samples": None}
    # results are fewer than steps in both
    of_flow = {"training.mode": '"flow"', "training.horizon": "0.5", "training.steps": None}
    assert run_command("predict", write_problem(of_data | of_flow)).out.rstrip().endswith(" at time 0.5")
    in_strides = {"training.steps": "600", "training.tolerance": "0.1"}
    assert run_command("predict", write_problem(of_data | in_strides)).out.rstrip().endswith(" at step 599")


def test_tables(write_problem: Callable[..., Path]) -> None:
    path = write_problem({"compare.axes": '{ "training.learning_rate" = [0.05, 0.1] }'})
    predicted = run_command("predict", path)
    assert (predicted.status, predicted.err) == (0, "")
    loss = lazyrich.predict(lazyrich.load_problem(path)).train_loss
    assert "theory: finished" in predicted.out
    for step in range(6):
        assert re.search(rf"\b{step}\b.*{re.escape(f'{loss[step]:.4g}')}", predicted.out)
    trained = run_command("train", path, *SEEDS)
    assert "training: finished" in trained.out and trained.out.count("±") == 12
    compared = run_command("compare", path, *SEEDS)
    assert compared.status == 0 and "…" not in compared.out  # nothing is cut off in a file
    for step in (0, 5):
        assert re.search(rf"\b{step}\b.*{re.escape(f'{loss[step]:.4g}')}", compared.out)
    assert "learning_rate = 0.05: 3 networks" in compared.out and "learning_rate = 0.1: 3 networks" in compared.out


def test_output(write_problem: Callable[..., Path], tmp_path: Path) -> None:
    path, output = write_problem(), tmp_path / "predicted.nc"
    content = strict_json(run_command("predict", path, "--json", "--output", output).out)
    loaded = lazyrich.load(output)
    assert loaded.source == "theory" and list(loaded.train_loss) == content["train_loss"]
    assert loaded.problem == lazyrich.load_problem(path) and loaded.data["feature_kernel"].shape == (2, 6, 1, 6, 1)

    output = tmp_path / "trained.nc"
    content = strict_json(run_command("train", path, *SEEDS, "--json", "--kernels", "--output", output).out)
    loaded = lazyrich.load(output)
    assert loaded.source == "training" and list(loaded.train_loss) == content["train_loss"]
    assert loaded.data["feature_kernel"].shape == loaded.data["feature_kernel_sem"].shape == (2, 6, 1, 6, 1)
    assert list(loaded.data["seed"].values) == [0, 1, 2]

    output = tmp_path / "compared.NC"
    content = strict_json(run_command("compare", path, *SEEDS, "--json", "--output", output).out)
    (loaded,) = load_comparisons(output)
    assert list(loaded.trained.train_loss) == content["comparisons"][0]["trained"]["train_loss"]
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".NC", ".nc", ".nc", ".toml"]  # and nothing else


@pytest.mark.parametrize("verb", ["predict", "train", "compare"])
def test_plot(write_problem: Callable[..., Path], tmp_path: Path, verb: str) -> None:
    path, seeds = write_problem(), () if verb == "predict" else SEEDS
    for name, check in (("figure.png", assert_png), ("figure.SVG", assert_svg)):
        done = run_command(verb, path, *seeds, "--plot", tmp_path / name)
        assert (done.status, done.err) == (0, "")
        check(tmp_path / name)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["figure.SVG", "figure.png", "problem.toml"]


def test_divergence_is_an_outcome(write_problem: Callable[..., Path], tmp_path: Path) -> None:
    path, output, plot = write_problem(DIVERGING), tmp_path / "diverged.nc", tmp_path / "diverged.png"
    for verb, seeds in (("predict", ()), ("train", SEEDS)):
        done = run_command(verb, path, *seeds, "--json", "--output", output, "--plot", plot)
        assert (done.status, done.err) == (0, "")
        content = strict_json(done.out)
        step = content["step"]
        assert content["outcome"] == "diverged" and 0 < step < 6
        names = [name for name in content if name.startswith(("train_loss", "test_loss"))]
        assert len(names) == (2 if verb == "predict" else 4)
        for name in names:
            assert all(isinstance(loss, float) for loss in content[name][:step])
            assert content[name][step:] == [None] * (6 - step)
        assert content["train_loss"][step - 1] <= 1e6 * content["train_loss"][0]
        loaded = lazyrich.load(output)
        assert (loaded.outcome.kind, loaded.outcome.step) == ("diverged", step)
        assert np.isfinite(loaded.train_loss).tolist() == [index < step for index in range(6)]
        assert_png(plot)
        table = " ".join(run_command(verb, path, *seeds).out.split())
        assert f"diverged at step {step}; lower the learning rate" in table
    done = run_command("compare", path, *SEEDS, "--json", "--plot", plot)
    assert (done.status, done.err) == (0, "")
    (comparison,) = strict_json(done.out)["comparisons"]
    assert "theory diverged at step" in comparison["summary"] and "training diverged at step" in comparison["summary"]
    assert comparison["train_loss_z"][-1] is None
    assert "nan" not in run_command("compare", path, *SEEDS).out.lower()


def test_a_rate_that_overflows_at_once(write_problem: Callable[..., Path]) -> None:
    path = write_problem({"training.learning_rate": "1e25"})
    for verb, seeds in (("predict", ()), ("train", SEEDS)):
        done = run_command(verb, path, *seeds, "--json")
        assert (done.status, done.err) == (0, "")
        content = strict_json(done.out)
        assert (content["outcome"], content["step"], content["train_loss"][1:]) == ("diverged", 1, [None] * 5)


# --- what a user can get wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict"], ["Missing argument 'FILE'"]),
        (["prodict", "FILE"], ["No such command 'prodict'"]),
        (["predict", "FILE", "--jsn"], ["No such option: --jsn"]),
        (["predict", "FILE", "--output"], ["'--output' requires an argument"]),
        (["predict", "FILE", "FILE"], ["unexpected extra argument"]),
        (["predict", "FILE", "--seeds", "3"], ["No such option: --seeds"]),
        (["train", "FILE", "--seeds", "0"], ["--seeds", "greater than or equal to 1"]),
        (["train", "FILE", "--seeds", "-1"], ["--seeds"]),
        (["train", "FILE", "--seeds", "x"], ["--seeds", "integer"]),
        (["train", "FILE", "--seeds", "2.5"], ["--seeds", "integer"]),
        (["train", "FILE", "--seeds", "1000000000000"], ["seeds"]),
        (["compare", "FILE", "--seeds", "1"], ["--seeds", "greater than or equal to 2"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_options(write_problem: Callable[..., Path], arguments: list[str], words: list[str]) -> None:
    path = write_problem()
    done = run_command(*(path if argument == "FILE" else argument for argument in arguments))
    assert_one_line_error(done, *words)


@pytest.mark.parametrize("verb", ["predict", "train", "compare"])
def test_bad_problem_files(write_problem: Callable[..., Path], tmp_path: Path, verb: str) -> None:
    path = write_problem({"network.widht": "3"})
    done = run_command(verb, path, "--output", tmp_path / "result.nc")
    assert_one_line_error(done)
    assert done.err == f"error: {path}: network.widht: unknown key; did you mean width?\n"
    done = run_command(verb, tmp_path / "nothing.toml")
    assert done.err == f"error: {tmp_path / 'nothing.toml'}: no such file; check the name\n"
    assert_one_line_error(run_command(verb, tmp_path), "cannot be read (Is a directory)")
    assert [file.name for file in tmp_path.iterdir()] == ["problem.toml"]


def test_bad_data_files(write_problem: Callable[..., Path], tmp_path: Path) -> None:
    of_data = {"data.kind": '"dataset"', "data.path": '"table.csv"', "data.target": '"y"'}
    path = write_problem(of_data | {"data.dimension": None, "data.samples": None})
    for verb in ("predict", "train", "compare"):
        done = run_command(verb, path)
        assert_one_line_error(
            done, f"error: {path}: {tmp_path / 'table.csv'}: no such file; check the name in data.path"
        )
    (tmp_path / "table.csv").write_text("x,y\n1,2\n3,\n")
    for verb in ("predict", "train"):
        assert_one_line_error(run_command(verb, path), "column 'y', row 2: the cell is empty")


def test_an_infinite_width_cannot_be_trained(write_problem: Callable[..., Path]) -> None:
    path = write_problem({"network.width": "inf"})
    assert run_command("predict", path).status == 0
    for verb in ("train", "compare"):
        done = run_command(verb, path)
        assert_one_line_error(done)
        assert done.err == (
            f"error: {path}: network.width: an infinitely wide network cannot be trained; give a finite width\n"
        )


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        ("--output", "missing/result.nc", ["no folder", "missing; create it, or choose another"]),
        ("--plot", "missing/result.png", ["no folder", "missing; create it, or choose another"]),
        ("--output", "result.txt", ["unknown ending '.txt'; name a file that ends in .nc"]),
        ("--output", "result", ["unknown ending ''; name a file that ends in .nc"]),
        ("--output", "result.png", ["unknown ending '.png'; name a file that ends in .nc"]),
        ("--plot", "result.pdf", ["unknown ending '.pdf'; name a file that ends in .png or .svg"]),
        ("--plot", "result.nc", ["unknown ending '.nc'; name a file that ends in .png or .svg"]),
        ("--output", "folder.nc", ["is a folder; name a file"]),
        ("--plot", "folder.png", ["is a folder; name a file"]),
        ("--output", "problem.toml/result.nc", ["no folder"]),
        ("--output", "\n/result.nc", ["no folder"]),
        ("--output", "x" * 300 + ".nc", ["cannot be written (File name too long)"]),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_bad_destinations(
    write_problem: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    name: str,
    words: list[str],
) -> None:
    path = write_problem()
    for folder in ("folder.nc", "folder.png"):
        (tmp_path / folder).mkdir()

    def compute(*_: object, **__: object) -> None:
        raise AssertionError("the destination was not checked before the work")

    monkeypatch.setattr(lazyrich, "predict", compute, raising=False)
    monkeypatch.setattr(lazyrich, "train", compute, raising=False)
    for verb in ("predict", "train", "compare"):
        done = run_command(verb, path, option, tmp_path / name)
        assert_one_line_error(done, option, *words)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder.nc", "folder.png", "problem.toml"]


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder in which no file can be made: for root, who may write everywhere, one of the kernel's."""
    if os.geteuid() == 0:
        if not Path("/sys").is_dir():
            pytest.skip("no folder that root cannot write to")
        yield Path("/sys")
        return
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    yield folder
    folder.chmod(0o700)


def test_read_only_folders(write_problem: Callable[..., Path], read_only: Path) -> None:
    done = run_command("predict", write_problem(), "--output", read_only / "result.nc")
    assert_one_line_error(done, f"--output {read_only / 'result.nc'}: cannot be written (")
    assert not (read_only / "result.nc").exists()


# --- the real process ------------------------------------------------------------------------------------------------


def test_the_process(write_problem: Callable[..., Path], tmp_path: Path) -> None:
    path = write_problem()
    done = run_process("predict", path, "--json")
    assert (done.status, done.err) == (0, "")
    assert strict_json(done.out)["train_loss"] == list(lazyrich.predict(lazyrich.load_problem(path)).train_loss)
    assert_one_line_error(run_process("predict", path, "--output", tmp_path / "missing" / "x.nc"), "no folder")
    assert_one_line_error(run_process("predict", tmp_path / "nothing.toml"), "no such file; check the name")
    assert_one_line_error(run_process("predict", path, "--nothing"), "No such option: --nothing")


def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("lazyrich")
    if not command.exists():
        pytest.skip("not installed beside this Python")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"lazyrich {lazyrich.__version__}\n")


def test_help() -> None:
    done = run_command("--help")
    assert (done.status, done.err) == (0, "")
    for verb in ("predict", "train", "compare"):
        assert f"  {verb} " in done.out
        of_verb = run_command(verb, "--help")
        assert of_verb.status == 0 and "--json" in of_verb.out and "--output" in of_verb.out
        assert ("--seeds" in of_verb.out) == (verb != "predict")


def test_without_a_verb_it_shows_its_help() -> None:
    done = run_command()
    assert "Usage: lazyrich" in done.out and "predict" in done.out and done.out.count("\n") > 5
    assert done.err == ""


def test_nothing_heavy_is_imported() -> None:
    code = f"""
import sys
heavy = {HEAVY!r}
loaded = lambda: [name for name in heavy if name in sys.modules]
import lazyrich
print(loaded())
dir(lazyrich), lazyrich.__version__, lazyrich.LazyrichError
print(loaded())
import lazyrich.cli
print(loaded())
sys.argv = ["lazyrich", "--help"]
try:
    lazyrich.cli.main()
except SystemExit as stop:
    print(stop.code or 0, loaded())
lazyrich.Problem
print(loaded())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["[]", "[]", "[]"]
    assert lines[-2] == "0 []"
    assert "pydantic" in lines[-1]  # so that the check sees what is loaded


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_a_full_disk_behind_standard_output(
    write_problem: Callable[..., Path], unbuffered: str, options: tuple[str, ...]
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "predict", write_problem(), *options],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert_one_line_error(Finished(done.returncode, "", done.stderr), "No space left on device")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves(write_problem: Callable[..., Path], unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        done = subprocess.run(
            [*COMMAND, "predict", write_problem(), "--json"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_a_terminal_that_knows_only_ascii(write_problem: Callable[..., Path]) -> None:
    done = run_process("train", write_problem(), *SEEDS, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.status, done.err) == (0, "") and "training: finished" in done.out


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["predict", "train"])
def test_interrupted_before_anything_was_finished(
    write_problem: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lazyrich, verb, interrupt, raising=False)
    done = run_command(verb, write_problem(), "--output", tmp_path / "result.nc")
    assert (done.status, done.out, done.err) == (130, "", "interrupted; nothing was written\n")
    assert [file.name for file in tmp_path.iterdir()] == ["problem.toml"]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal, to see when training has begun")
def test_interrupting_a_training(write_problem: Callable[..., Path], tmp_path: Path) -> None:
    path = write_problem({"training.steps": "200000", "training.learning_rate": "1e-6"})
    ours, terminal = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, "train", path, "--seeds", "64", "--output", tmp_path / "result.nc"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=os.environ | {"COLUMNS": "120", "TERM": "xterm"},
    )
    os.close(terminal)
    seen, deadline = "", time.monotonic() + 100
    try:
        # the bar tells the time left only once steps were done
        while not re.search(r"left\S* \S*\d+:\d\d", seen):
            assert time.monotonic() < deadline and process.poll() is None, seen
            seen += os.read(ours, 4096).decode()
        process.send_signal(signal.SIGINT)
        after = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the terminal was closed at the other end
                break
            if not chunk:
                break
            after += chunk
        status = process.wait(timeout=60)
    finally:
        process.kill()
        os.close(ours)
    assert process.stdout is not None and process.stdout.read() == b""
    process.stdout.close()
    assert status == 130
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", after.decode())
    assert "Traceback" not in text
    last = text.replace("\r", "\n").strip().splitlines()[-1]
    assert last == "interrupted (0 of 64 networks were finished); nothing was written"
    assert [file.name for file in tmp_path.iterdir()] == ["problem.toml"]
