"""Residual problems from file to result: the command's answers, and one line for every mistake."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lazyrich
from lazyrich import LazyrichError
from lazyrich.problem.residual import LabelledData, ResidualProblem
from lazyrich.simulation.residual.data import load_samples
from tests.conftest import assert_one_line_error, run_command

TABLES = {
    "network": {"kind": '"residual"', "width": "8", "blocks": "4"},
    "data": {"kind": '"teacher"', "dimension": "5", "classes": "3", "samples": "40", "test_samples": "20"},
    "training": {"steps": "6", "learning_rate": "0.05", "batch": "8"},
}


@pytest.fixture
def write(tmp_path):
    """Write a problem file with some keys changed (TOML text), left out (None), and a [transfer] table."""

    def written(changes=None, transfer="", tables=TABLES):
        content = {table: dict(keys) for table, keys in tables.items()}
        for key, value in (changes or {}).items():
            table, _, name = key.partition(".")
            content[table] = {k: v for k, v in content[table].items() if k != name}
            content[table] |= {} if value is None else {name: value}
        lines = [f"[{t}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()) for t, keys in content.items()]
        path = tmp_path / "problem.toml"
        path.write_text("\n".join(lines) + transfer)
        return path

    return written


DATASET = {"data.kind": '"dataset"', "data.name": '"digits"'} | dict.fromkeys(
    ("data.dimension", "data.samples", "data.test_samples", "data.classes")
)
ALL_DIGITS = {"data.classes": "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network.blocks": "0"}, ["network.blocks", "choose a larger number"]),
        ({"network.nonlinearity": '"rleu"'}, ["network.nonlinearity: 'rleu' is not known; choose 'relu'"]),
        ({"network.nonlinearity": "{ power = 0.5 }"}, ["network.nonlinearity.power", "choose a larger number"]),
        ({"network.nonlinearity": "{ exponent = 2 }"}, ["network.nonlinearity.exponent: unknown key"]),
        ({"network.kind": '"resnet"'}, ["network.kind: unknown kind 'resnet'; choose 'residual'"]),
        ({"network.block_layers": "3"}, ["network.block_layers", "choose a smaller number"]),
        ({"network.base_with": "8"}, ["network.base_with: unknown key; did you mean base_width?"]),
        ({"network.width": "inf"}, ["network.width"]),
        ({"network.width": "10000000", "network.blocks": "1000"}, ["GiB per network", "reduce width, blocks or batch"]),
        ({"training.batch": "41"}, ["training.batch: 41 are more than the 40 training samples"]),
        ({"training.scheme": '"muup"'}, ["training.scheme: 'muup' is not known; did you mean 'mup'?"]),
        ({"training.alpha": "0.5"}, ["training.gamma: missing beside alpha"]),
        ({"training.alpha": "5", "training.gamma": "0"}, ["training.alpha: 5.0 is not an exponent"]),
        (
            {"training.scheme": '"mup"', "training.alpha": "1", "training.gamma": "0"},
            ["training.scheme: is given beside alpha and gamma"],
        ),
        ({"training.weight_decay": "0.1"}, ["training.weight_decay: has no rule with adam; use optimizer = 'adamw'"]),
        ({"training.momentum": "0.9"}, ["training.momentum: has no meaning with adam"]),
        ({"training.warmup": "3"}, ["training.warmup: belongs together with schedule = 'warmup-cosine'"]),
        ({"data.kind": '"gaussian"'}, ["data.kind: unknown kind 'gaussian'; choose one of 'dataset', 'teacher'"]),
        (DATASET, ["data.classes: missing, and cross-entropy needs them"]),
        (DATASET | {"data.classes": "[0, 1]"}, ["data.classes: 1437 samples belong to none of the 2 classes"]),
        (
            DATASET | ALL_DIGITS | {"data.test_fraction": "0.0001"},
            ["digits: test_fraction = 0.0001 holds out 0 of 1797"],
        ),
        (DATASET | ALL_DIGITS | {"data.test_fraction": "0.9999"}, ["holds out 1797 of 1797", "and one to train on"]),
        (
            DATASET | ALL_DIGITS | {"data.test_fraction": "0.5", "training.batch": "900"},
            ["training.batch: 900 are more than the 899 training samples"],
        ),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_mistakes_end_in_one_line(write, changes, words):
    assert_one_line_error(run_command("train", write(changes), "--seeds", "2"), "problem.toml", *words)


def test_other_commands_say_what_to_use(write):
    for command in ("predict", "compare"):
        finished = run_command(command, write())
        assert_one_line_error(finished, "describes a problem of the kind residual network; use lazyrich train or")
    assert_one_line_error(run_command("train", write(), "--kernels"), "kernels: are recorded of deep linear networks")


def test_train_prints_saves_and_plots(write, tmp_path):
    path = write()
    printed = run_command("train", path, "--seeds", "3", "--plot", tmp_path / "a.png", "--output", tmp_path / "a.nc")
    assert printed.status == 0 and "test accuracy" in printed.out
    assert (tmp_path / "a.png").stat().st_size > 10_000
    content = json.loads(run_command("train", path, "--seeds", "3", "--json").out)
    assert content["steps"] == [0, 1, 2, 3, 4, 5]
    for curve in ("train_loss", "test_loss", "train_accuracy", "test_accuracy"):
        assert len(content[curve]) == len(content[f"{curve}_sem"]) == 6
    assert min(content["test_accuracy"]) >= 0 and max(content["test_accuracy"]) <= 1
    loaded = lazyrich.load(tmp_path / "a.nc")
    assert loaded.problem == lazyrich.load_problem(path)
    np.testing.assert_array_equal(loaded.train_loss, content["train_loss"])  # the same again, bit for bit


def test_divergence_is_an_outcome(write):
    # |z|^8 overflows at once
    changes = {"network.nonlinearity": "{ power = 8.0 }", "network.multiplier": "1e6", "network.blocks": "12"}
    content = json.loads(run_command("train", write(changes), "--seeds", "2", "--json").out)
    assert content["outcome"] == "diverged" and content["step"] == 0 and 1 <= content["layer"] <= 12
    assert content["train_loss"] == [None] * 6
    table = run_command("train", write(changes), "--seeds", "2").out
    assert f"diverged at step 0 in layer {content['layer']}; lower the learning rate" in table


def test_interruption_and_numbers_of_networks(write):
    problem = lazyrich.load_problem(write({"training.steps": "40"}))
    assert isinstance(problem, ResidualProblem)

    def interrupt(done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="0 of 2 networks were finished"):
        lazyrich.train(problem, seeds=2, progress=interrupt)
    with pytest.raises(LazyrichError, match="seeds: a network's number is out of range"):
        lazyrich.train(problem, seeds=[-1])


def test_steps_that_are_recorded(write):
    problem = lazyrich.load_problem(write({"training.steps": "1000"}))
    assert isinstance(problem, ResidualProblem)
    steps = problem.training.recorded()
    assert steps[0] == 0 and steps[-1] == 999 and len(steps) == 21
    problem = problem.with_values({"training.record_every": 300})
    assert problem.training.recorded() == [0, 300, 600, 900, 999]


def test_held_out_samples(write):
    problem = lazyrich.load_problem(write(DATASET | ALL_DIGITS | {"data.test_fraction": "0.2"}))
    assert isinstance(problem, ResidualProblem) and isinstance(problem.data, LabelledData)
    samples = load_samples(problem)
    assert samples.test is not None and samples.test.labels is not None and samples.train.labels is not None
    assert (len(samples.train), len(samples.test)) == (1438, 359)
    whole = load_samples(problem.with_values({"data.test_fraction": 0.0}))
    assert whole.test is None
    both = np.concatenate([samples.train.inputs, samples.test.inputs])
    labels = np.concatenate([samples.train.labels, samples.test.labels])
    order, expected = np.lexsort(both.T), np.lexsort(whole.train.inputs.T)
    np.testing.assert_array_equal(both[order], whole.train.inputs[expected])
    np.testing.assert_array_equal(labels[order], np.asarray(whole.train.labels)[expected])
    from sklearn.datasets import load_digits

    np.testing.assert_array_equal(whole.train.labels, load_digits(return_X_y=True)[1])
    other = load_samples(problem.with_values({"training.seed": 1}))
    assert not np.array_equal(other.train.inputs, samples.train.inputs)


def test_regression_on_a_file_has_no_accuracy(write, tmp_path):
    random = np.random.default_rng(0)
    rows = random.standard_normal((30, 3))
    (tmp_path / "rows.csv").write_text("a,b,yield\n" + "\n".join(",".join(map(str, row)) for row in rows))
    changes = DATASET | {"data.name": None, "data.path": '"rows.csv"', "data.target": '"yield"'}
    path = write(changes | {"training.loss": '"mse"', "training.batch": None})
    content = json.loads(run_command("train", path, "--seeds", "2", "--json").out)
    assert content["train_accuracy"] is None and content["test_loss"] is None
    assert content["train_loss"][-1] < content["train_loss"][0]


def test_teacher_is_a_function_of_the_seed(write):
    problem = lazyrich.load_problem(write())
    assert isinstance(problem, ResidualProblem)
    one, same = load_samples(problem), load_samples(problem)
    np.testing.assert_array_equal(one.train.inputs, same.train.inputs)
    more = load_samples(problem.with_values({"data.samples": 4000, "data.classes": 10, "data.dimension": 32}))
    assert more.train.labels is not None
    share = np.bincount(more.train.labels, minlength=10) / 4000
    assert share.min() > 0.02 and share.max() < 0.35  # every class occurs: 0.05 to 0.17 measured
    with pytest.raises(LazyrichError, match=r"network\.wdth: unknown key"):
        problem.with_values({"network.wdth": 3})


# ---- Transfer --------------------------------------------------------------------------------------------------------

TRANSFER = """
[transfer]
rates = [0.01, 0.03, 0.1]
axes = { "network.blocks" = [2, 4], "training.scheme" = ["depth-mup", "mup"] }
loss = "test"
seeds = 2
"""


def test_transfer(write, tmp_path):
    path = write({"network.base_blocks": "2"}, TRANSFER)
    options = ["--workers", "1", "--results", tmp_path / "results", "--table", tmp_path / "losses.csv"]
    finished = run_command("transfer", path, *options, "--json")
    assert finished.status == 0
    content = json.loads(finished.out)
    assert [each["by"] for each in content["optima"]] == ["training"] * 4
    assert len(content["shift"]) == 4 and len(content["trends"]) == 2
    assert "network.blocks" in (tmp_path / "results" / "report.html").read_text()
    # at the base depth the schemes are one training; the losses are those of train
    import pandas as pd

    table = pd.read_csv(tmp_path / "losses.csv")
    base = table[table["network.blocks"] == 2].pivot(
        index=["rate", "network"], columns="training.scheme", values="loss"
    )
    np.testing.assert_array_equal(base["depth-mup"], base["mup"])
    problem = lazyrich.load_problem(path).with_values({"training.learning_rate": 0.03, "network.blocks": 2})
    assert isinstance(problem, ResidualProblem)
    losses = lazyrich.train(problem, seeds=2).data["test_loss_of_seed"].values[:, -1]
    np.testing.assert_allclose(base.loc[0.03, "mup"], losses, rtol=1e-5)  # float32; equal as measured
    assert run_command("transfer", path, *options, "--json").out == finished.out  # from what is kept


@pytest.mark.parametrize(
    ("changes", "arguments", "words"),
    [
        ({}, ["--by", "theory"], ["transfer.by: there is no theory of this problem, a residual network"]),
        (DATASET | ALL_DIGITS, [], ["transfer.loss: a data set without a held-out part has no test loss; set data.te"]),
        ({"network.width": "100000000"}, [], ["GiB per network"]),
    ],
    ids=["theory", "no test loss", "memory"],
)
def test_transfer_is_refused_before_any_work(write, tmp_path, changes, arguments, words):
    path = write(changes, TRANSFER)
    finished = run_command("transfer", path, "--workers", "1", "--results", tmp_path / "results", *arguments)
    assert_one_line_error(finished, *words)


def test_a_study_answered_by_theory_is_refused(write):
    finished = run_command("transfer", write({}, TRANSFER + 'by = "theory"\n'))
    assert_one_line_error(finished, "transfer.by: 'theory' is not known; choose 'training'")


def test_setting_a_scheme_replaces_the_exponents(write):
    problem = lazyrich.load_problem(write({"training.alpha": "1", "training.gamma": "0"}))
    assert isinstance(problem, ResidualProblem)
    named = problem.with_values({"training.scheme": "depth-mup"})
    assert named.training.alpha is None and named.training.parametrization.alpha == 0.5
    back = named.with_values({"training.alpha": 1.0, "training.gamma": 0.0})
    assert back.training.scheme is None and back == problem
