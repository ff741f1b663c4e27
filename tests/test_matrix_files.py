"""Matrix problems from files: every key, one clear line for every bad input, files of matrices, the two commands."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import lazyrich
from lazyrich import (
    Diagram,
    LayerValues,
    LazyrichError,
    Matrix,
    MatrixProblem,
    MatrixStudy,
    MatrixTraining,
    Study,
    Target,
    TwoLayerNetwork,
    load_problem,
    load_study,
)
from lazyrich.mixed_dynamics.matrices import built_in_matrix, read_matrix
from tests.conftest import assert_one_line_error, problem_text, run_command

BASE = {
    "matrix": {"shape": "[12, 10]", "target": "{ rank = 2, noise = 0.1 }"},
    "network": {"width": "40", "threshold": "{ relative = 0.1 }"},
    "training": {"steps": "20"},
}
DIAGRAM = {"diagram.axes": '{ "network.width" = [30, 60], "network.threshold" = [0.5, 2.0] }'}


def matrix_text(changes: Mapping[str, str | None] | None = None) -> str:
    """A problem file in TOML; `changes` maps ``table.key`` to TOML text, or to None for a key that is left out."""
    tables = {table: dict(keys) for table, keys in BASE.items()}
    for place, value in (changes or {}).items():
        table, _, key = place.partition(".")
        keys = tables.setdefault(table, {})
        keys.pop(key, None)
        if value is not None:
            keys[key] = value
    return "".join(
        f"[{table}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items()) for table, keys in tables.items()
    )


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a problem file with some changes; see :func:`matrix_text`."""

    def write(changes: Mapping[str, str | None] | None = None, name: str = "problem.toml") -> Path:
        path = tmp_path / name
        path.write_text(matrix_text(changes), encoding="utf-8")
        return path

    return write


@pytest.fixture
def problem(write: Callable[..., Path]) -> Callable[..., MatrixProblem]:
    """The problem that a file with some changes holds."""

    def read(changes: Mapping[str, str | None] | None = None) -> MatrixProblem:
        found = load_problem(write(changes))
        assert isinstance(found, MatrixProblem)
        return found

    return read


@pytest.fixture
def error(write: Callable[..., Path]) -> Callable[..., str]:
    """The error that a file with some changes gives, after the file's name; always one line of three parts."""

    def find(changes: Mapping[str, str | None]) -> str:
        path = write(changes)
        with pytest.raises(LazyrichError) as caught:
            load_study(path)
        text = str(caught.value)
        assert text.startswith(f"{path}: ") and "\n" not in text and len(text) < 500
        assert text == f"{caught.value.where}: {caught.value.what}; {caught.value.remedy}"
        return text.removeprefix(f"{path}: ")

    return find


# --- what a file means -----------------------------------------------------------------------------------------------


def test_defaults(problem: Callable[..., MatrixProblem]) -> None:
    loaded = problem()
    matrix, network, training = loaded.matrix, loaded.network, loaded.training
    assert (matrix.shape, matrix.cost, matrix.target) == ([12, 10], "factorization", Target(rank=2, noise=0.1))
    assert (network.width, network.variance, network.exponent) == (40, None, None)
    assert network.threshold.relative == 0.1
    assert (training.steps, training.horizon, training.learning_rate) == (20, None, None)
    assert (training.solver, training.reduction, training.stop) == ("auto", "auto", "end")
    assert (training.record, training.precision, training.weight_decay, training.seed) == (100, "float64", 0.0, 0)


def test_every_key(write: Callable[..., Path]) -> None:
    study = load_study(
        write(
            {
                "matrix.cost": '"completion"',
                "matrix.observed": "0.5",
                "matrix.target": '{ kind = "singular-values", singular_values = [3, 1.5, 0], noise = 0.2 }',
                "network.width": None,
                "network.exponent": "1.5",
                "network.threshold": None,
                "network.variance": "{ exponent = -2 }",
                "training.learning_rate": "{ input = 0.1, output = 0.2 }",
                "training.weight_decay": "0.01",
                "training.solver": '"network"',
                "training.reduction": '"gram"',
                "training.stop": '"best"',
                "training.record": "50",
                "training.precision": '"float32"',
                "training.seed": "7",
                "diagram.axes": '{ "network.exponent" = { from = 1, to = 2, count = 3 }, "training.seed" = [1, 2] }',
                "diagram.by": '"both"',
                "diagram.seeds": "4",
                "diagram.refine": "2",
                "diagram.level": "0.25",
                "diagram.signal_block": "true",
            }
        ),
        MatrixStudy,
    )
    target = Target(singular_values=[3.0, 1.5, 0.0], noise=0.2, kind="singular-values")
    assert study.matrix == Matrix(shape=[12, 10], target=target, cost="completion", observed=0.5)
    assert study.network == TwoLayerNetwork(exponent=1.5, variance={"exponent": -2.0})
    assert study.training == MatrixTraining(
        steps=20,
        learning_rate=LayerValues(input=0.1, output=0.2),
        weight_decay=0.01,
        solver="network",
        reduction="gram",
        stop="best",
        record=50,
        precision="float32",
        seed=7,
    )
    diagram = study.diagram
    assert diagram is not None
    assert diagram.values() == {"network.exponent": [1.0, 1.5, 2.0], "training.seed": [1, 2]}
    assert (diagram.by, diagram.seeds, diagram.refine, diagram.level, diagram.signal_block) == (
        "both",
        4,
        2,
        0.25,
        True,
    )


@pytest.mark.parametrize(
    ("changes", "attribute", "expected"),
    [
        ({"network.width": "1e12"}, "network.width", 10**12),
        ({"network.width": "inf"}, "network.width", math.inf),
        ({"network.threshold": "0.5"}, "network.threshold", 0.5),
        ({"network.threshold": None, "network.variance": "0.5"}, "network.variance", 0.5),
        (
            {"network.threshold": None, "network.variance": "{ input = 1, output = 2 }"},
            "network.variance",
            LayerValues(input=1.0, output=2.0),
        ),
        ({"training.steps": None, "training.horizon": "2.5"}, "training.horizon", 2.5),
        ({"training.steps": "1e3"}, "training.steps", 1000),
        ({"matrix.cost": '"sensing"', "matrix.measurements": "1e2"}, "matrix.measurements", 100),
        ({"matrix.cost": '"regression"', "matrix.samples": "30"}, "matrix.samples", 30),
        ({"matrix.shape": None, "matrix.target": '{ name = "digits" }'}, "matrix.target", Target(name="digits")),
    ],
    ids=str,
)
def test_forms(problem: Callable[..., MatrixProblem], changes: dict[str, str], attribute: str, expected: Any) -> None:
    table, _, key = attribute.partition(".")
    found = getattr(getattr(problem(changes), table), key)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("key", "axis", "values"),
    [
        ("network.width", "{ from = 10, to = 1000, count = 3 }", [10.0, 100.0, 1000.0]),
        ("network.width", "{ from = 10, to = 20, count = 3 }", [10.0, 14.0, 20.0]),
        ("matrix.measurements", "{ from = 100, to = 200, count = 3 }", [100.0, 141.0, 200.0]),
        ("network.threshold.relative", "{ from = 1e-4, to = 1, count = 3 }", [1e-4, 1e-2, 1.0]),
        ("network.variance.exponent", "{ from = -3, to = 0, count = 4 }", [-3.0, -2.0, -1.0, 0.0]),
        ("matrix.target.noise", "{ from = 0, to = 1, count = 3 }", [0.0, 0.5, 1.0]),
        ("training.weight_decay", "{ from = 0, to = 1, count = 3 }", [0.0, 0.5, 1.0]),
    ],
)
def test_ranges(write: Callable[..., Path], key: str, axis: str, values: list[float]) -> None:
    sensing = {"matrix.cost": '"sensing"', "matrix.measurements": "60"}
    study = load_study(write(sensing | {"diagram.axes": f'{{ "{key}" = {axis} }}'}), MatrixStudy)
    assert study.diagram is not None
    np.testing.assert_allclose(study.diagram.values()[key], values, rtol=1e-12)


def test_one_of_two_keys_replaces_the_other(problem: Callable[..., MatrixProblem]) -> None:
    base = problem()
    assert base.with_values({"network.exponent": 2.0}).network.width is None
    network = base.with_values({"network.variance.exponent": -1.5}).network
    assert network.threshold is None and network.variance.exponent == -1.5
    assert base.with_values({"network.variance": 0.5}).with_values({"network.threshold.relative": 2.0}).network == (
        TwoLayerNetwork(width=40, threshold={"relative": 2.0})
    )
    assert base.with_values({"training.horizon": 2.0}).training == MatrixTraining(horizon=2.0)
    assert base.with_values({"matrix.target.singular_values": [2.0]}).matrix.target == (
        Target(singular_values=[2.0], noise=0.1)
    )
    assert base.matrix.target == Target(rank=2, noise=0.1)  # the base is as it was
    for key in ("network.widht", "networks.width", "network"):
        with pytest.raises(LazyrichError):
            base.with_values({key: 3})


# --- bad files -------------------------------------------------------------------------------------------------------

NO_THRESHOLD = {"network.threshold": None}
FILES = {"matrix.shape": None, "matrix.target": None, "matrix.cost": '"regression"'}
ONE_LINE = [
    ({"matrix.csot": "3"}, "matrix.csot: unknown key; did you mean cost?"),
    ({"matrix.target": "{ rnak = 3 }"}, "matrix.target.rnak: unknown key; did you mean rank?"),
    ({"network.widht": "3"}, "network.widht: unknown key; did you mean width?"),
    ({"training.learnin_rate": "3"}, "training.learnin_rate: unknown key; did you mean learning_rate?"),
    (
        {"network.blocks": "3"},
        "network.blocks: unknown key; known keys are exponent, threshold, variance, width",
    ),
    ({"data.kind": '"gaussian"'}, "data: unknown key; did you mean diagram?"),
    # the target
    ({"matrix.target": None}, "matrix.target: missing; say what is learned, e.g. target = { rank = 5 }"),
    (
        {"matrix.target": "{ noise = 1 }"},
        "matrix.target: does not say which matrix; give one of rank, singular_values, path, name",
    ),
    (
        {"matrix.target": "{ rank = 3, singular_values = [1] }"},
        "matrix.target: rank and singular_values are given; give one of rank, singular_values, path, name",
    ),
    (
        {"matrix.target": '{ rank = 3, kind = "file" }'},
        "matrix.target.kind: 'file' does not go with rank; remove it, or set it to 'low-rank'",
    ),
    (
        {"matrix.target": "{ singular_values = [0, 0] }"},
        "matrix.target.singular_values: all are zero; give at least one positive value",
    ),
    (
        {"matrix.target": "{ rank = 11 }"},
        "matrix.target.rank: 11 is above the smaller dimension 10; give at most one singular value per dimension",
    ),
    (
        {"matrix.shape": "[2, 3]", "matrix.target": "{ singular_values = [3, 2, 1] }"},
        "matrix.target.singular_values: 3 is above the smaller dimension 2; "
        "give at most one singular value per dimension",
    ),
    ({"matrix.shape": None}, "matrix.shape: missing; add shape = [d_out, d_in]"),
    (
        {"matrix.target": '{ path = "a.csv" }'},
        "matrix.shape: is given beside a matrix that has its own; remove it",
    ),
    ({"matrix.target": "3"}, "matrix.target: is not a table; give a table of keys and values"),
    # costs and what they need
    (
        {"matrix.cost": '"sense"'},
        "matrix.cost: 'sense' is not known; choose 'factorization', 'completion', 'sensing', 'regression' or 'custom'",
    ),
    (
        {"matrix.observed": "0.5"},
        "matrix.observed: has no meaning with cost = 'factorization'; remove it, or set cost = 'completion'",
    ),
    (
        {"matrix.measurements": "5"},
        "matrix.measurements: has no meaning with cost = 'factorization'; remove it, or set cost = 'sensing'",
    ),
    (
        {"matrix.cost": '"sensing"', "matrix.samples": "5"},
        "matrix.samples: has no meaning with cost = 'sensing'; remove it, or set cost = 'regression'",
    ),
    (
        {"matrix.cost": '"sensing"'},
        "matrix.measurements: missing, and sensing needs it; say how many, measurements = ..",
    ),
    (
        {"matrix.cost": '"regression"'},
        "matrix.samples: missing, and regression needs it; add samples, or inputs and outputs files",
    ),
    (
        {"matrix.cost": '"completion"'},
        "matrix.observed: missing, and completion needs it; say which fraction is observed",
    ),
    (
        FILES | {"matrix.inputs": '"a.csv"'},
        "matrix.outputs: inputs and outputs belong together; give both files or neither",
    ),
    (
        FILES | {"matrix.inputs": '"a.csv"', "matrix.outputs": '"b.csv"', "matrix.shape": "[2, 2]"},
        "matrix.shape: is given beside files of inputs and outputs; remove it",
    ),
    (
        {"matrix.inputs": '"a.csv"', "matrix.outputs": '"b.csv"'},
        "matrix.inputs: has no meaning with cost = 'factorization'; remove it, or set cost = 'regression'",
    ),
    # the network
    ({"network.width": None}, "network.exponent: width or exponent is missing; give exactly one of width and exponent"),
    ({"network.exponent": "2"}, "network.exponent: width is given too; give exactly one of width and exponent"),
    (
        NO_THRESHOLD,
        "network.threshold: variance or threshold is missing; give exactly one of variance and threshold",
    ),
    (
        {"network.variance": "1"},
        "network.threshold: variance is given too; give exactly one of variance and threshold",
    ),
    (
        NO_THRESHOLD | {"network.width": "inf", "network.variance": "1"},
        "network.width: an infinite width needs a threshold; give threshold = s0 instead of variance",
    ),
    (
        {"network.width": "0"},
        "network.width: a width must be a whole number, at least 1 (it is 0); "
        "give a whole number, or inf for the infinite-width limit",
    ),
    (
        NO_THRESHOLD | {"network.variance": "{ input = 1, block = 1, output = 1 }"},
        "network.variance: a network of two layers has no blocks; remove the block entry",
    ),
    (
        NO_THRESHOLD | {"network.variance": "{ relative = 1 }"},
        "network.variance: is {relative = ..}; "
        "give one number or {input = .., block = .., output = ..} or {exponent = ..}",
    ),
    (
        {"network.threshold": "{ exponent = 1 }"},
        "network.threshold: is {exponent = ..}; give one number or {relative = ..}",
    ),
    # training
    (
        {"training.steps": None},
        "training.horizon: steps or horizon is missing; give steps for gradient descent, or horizon for gradient flow",
    ),
    (
        {"training.horizon": "2"},
        "training.horizon: steps is given too; give steps for gradient descent, or horizon for gradient flow",
    ),
    (
        {"training.steps": None, "training.horizon": "2", "training.learning_rate": "1"},
        "training.learning_rate: has no meaning in gradient flow; remove it, or give steps instead of horizon",
    ),
    (
        {"training.learning_rate": "{ input = 0, output = 1 }"},
        "training.learning_rate: is zero in one layer; give both layers a positive rate",
    ),
    (
        {"training.learning_rate": "{ input = 1, block = 1, output = 1 }"},
        "training.learning_rate: a network of two layers has no blocks; remove the block entry",
    ),
    (
        {"training.solver": '"law"', "training.reduction": '"qr"'},
        "training.reduction: has no meaning with solver = 'law'; remove it, or set solver = 'network'",
    ),
    (
        {"training.steps": None, "training.horizon": "2", "training.reduction": '"gram"'},
        "training.reduction: 'gram' has steps only; give steps, or choose another reduction",
    ),
    (
        {"training.steps": None, "training.horizon": "2", "training.stop": '"best"'},
        "training.stop: has no meaning in gradient flow; remove it, or give steps",
    ),
    (
        {"network.width": "inf", "training.solver": '"network"'},
        "training.solver: an infinite network cannot be trained; set solver = 'law', or give a width",
    ),
    (
        {"training.solver": '"closed-form"', "training.weight_decay": "1"},
        "training.solver: knows factorization without weight decay only; set solver = 'law'",
    ),
    (
        {"training.solver": '"closed-form"', "matrix.cost": '"completion"', "matrix.observed": "0.5"},
        "training.solver: knows factorization without weight decay only; set solver = 'law'",
    ),
    (
        {"training.solver": '"anisotropic-law"', "training.weight_decay": "1"},
        "training.solver: knows no weight decay; set solver = 'law'",
    ),
    (
        {"training.precision": '"half"'},
        "training.precision: 'half' is not known; choose 'float64' or 'float32'",
    ),
    # diagrams
    (
        {"diagram.axes": "{ network.width = [1, 2] }"},
        'diagram.axes.network: a key with a dot in it needs quotes; write "network.width" = [..]',
    ),
    (
        {"diagram.axes": '{ "network.width" = { from = -1, to = 5, count = 3 } }'},
        "diagram.axes.network.width: a range of sizes must be positive; give positive values from and to",
    ),
    (
        {"diagram.axes": '{ "matrix.shape" = [[5, 5], [8, 8]] }'},
        "diagram.axes.matrix.shape: a value is a list or a table; give numbers or texts; a table's key is an axis too",
    ),
    (
        {
            "diagram.axes": '{ "network.width" = { from = 30, to = 1e6, count = 200 }, '
            '"network.threshold" = { from = 0.1, to = 1, count = 200 } }'
        },
        "diagram.axes: 40000 points, more than 20000; shorten the axes",
    ),
    (
        {"diagram.axes": '{ "network.widht" = [1, 2] }'},
        "diagram.axes: network.widht: unknown key; did you mean width?",
    ),
    ({"diagram.by": '"law"'}, "diagram.axes: missing; add it"),
]


@pytest.mark.parametrize(("changes", "line"), ONE_LINE, ids=[line for _, line in ONE_LINE])
def test_one_line(error: Callable[..., str], changes: dict[str, str | None], line: str) -> None:
    assert error(changes) == line


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"matrix.shape": "[12]"}, "matrix.shape", "at least 2"),
        ({"matrix.shape": "[12, 0]"}, "matrix.shape[1]", "(it is 0)"),
        ({"matrix.shape": "[12, 2.5]"}, "matrix.shape[1]", "(it is 2.5)"),
        ({"matrix.shape": "12"}, "matrix.shape", "list"),
        ({"matrix.target": "{ rank = 0 }"}, "matrix.target.rank", "(it is 0)"),
        ({"matrix.target": "{ rank = 2, noise = -1 }"}, "matrix.target.noise", "(it is -1)"),
        ({"matrix.target": "{ singular_values = [] }"}, "matrix.target.singular_values", "more entries"),
        ({"matrix.target": "{ singular_values = [1, -1] }"}, "matrix.target.singular_values[1]", "(it is -1)"),
        ({"matrix.target": '{ path = "" }'}, "matrix.target.path", "at least 1 character"),
        ({"matrix.target": '{ name = "faces" }'}, "matrix.target.name", "'digits' or 'flower'"),
        ({"matrix.cost": '"completion"', "matrix.observed": "1.5"}, "matrix.observed", "(it is 1.5)"),
        ({"matrix.cost": '"completion"', "matrix.observed": "0"}, "matrix.observed", "(it is 0)"),
        ({"network.width": "2.5"}, "network.width", "(it is 2.5)"),
        ({"network.width": None, "network.exponent": "20"}, "network.exponent", "(it is 20)"),
        ({"network.width": "1e16"}, "network.width", "more than 10^15"),
        ({"network.threshold": "0"}, "network.threshold", "(it is 0)"),
        ({"network.threshold": "{ relative = -1 }"}, "network.threshold.relative", "(it is -1)"),
        ({"network.threshold": "nan"}, "network.threshold", "finite"),
        (NO_THRESHOLD | {"network.variance": "{ input = 1 }"}, "network.variance.output", "missing"),
        (NO_THRESHOLD | {"network.variance": "1e99"}, "network.variance", "too large"),
        ({"training.steps": "0"}, "training.steps", "(it is 0)"),
        ({"training.learning_rate": "0"}, "training.learning_rate", "(it is 0)"),
        ({"training.learning_rate": "[1, 2]"}, "training.learning_rate", "one number"),
        ({"training.record": "1"}, "training.record", "(it is 1)"),
        ({"training.weight_decay": "-1"}, "training.weight_decay", "(it is -1)"),
        ({"training.seed": "-1"}, "training.seed", "(it is -1)"),
        ({"diagram.axes": "{}"}, "diagram.axes", "at least 1"),
        (DIAGRAM | {"diagram.seeds": "0"}, "diagram.seeds", "(it is 0)"),
        (DIAGRAM | {"diagram.refine": "9"}, "diagram.refine", "(it is 9)"),
        (DIAGRAM | {"diagram.level": "0"}, "diagram.level", "(it is 0)"),
        ({"diagram.axes": '{ "network.width" = [] }'}, "diagram.axes.network.width", "more entries"),
        ({"diagram.axes": '{ "network.width" = 3 }'}, "diagram.axes.network.width", "list"),
        (
            {"diagram.axes": '{ "network.width" = { from = 1, to = 9, count = 1 } }'},
            "diagram.axes.network.width.count",
            "(it is 1)",
        ),
        ({"diagram.axes": '{ "network.width" = [30, 0] }'}, "diagram.axes: network.width", "(it is 0)"),
    ],
    ids=str,
)
def test_places(error: Callable[..., str], changes: dict[str, str | None], where: str, words: str) -> None:
    line = error(changes)
    assert line.startswith(f"{where}: "), line
    assert words in line.removeprefix(where)


@pytest.mark.parametrize("table", ["network", "training"])
def test_missing_tables(error: Callable[..., str], write: Callable[..., Path], table: str) -> None:
    assert error({f"{table}.{key}": None for key in BASE[table]}).startswith(f"{table}.")  # empty
    path = write({f"{table}.{key}": None for key in BASE[table]})
    path.write_text(path.read_text().replace(f"[{table}]\n", ""))
    with pytest.raises(LazyrichError) as caught:
        load_study(path)
    assert str(caught.value) == f"{path}: {table}: missing; add it"


def test_problems_from_python() -> None:
    with pytest.raises(LazyrichError, match="shape: missing; add shape"):
        Matrix(target=Target(rank=2))
    assert Matrix(shape=(3, 4), target=Target(singular_values=np.ones(2))).shape == [3, 4]
    assert Diagram(axes={"network.width": np.asarray([1, 2])}).values() == {"network.width": [1, 2]}


# --- files of matrices -----------------------------------------------------------------------------------------------

NUMBERS = np.asarray([[1.0, -2.5, 3.0], [0.0, 1e-3, 4.0]])


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "matrix.csv"
    path.write_text("1,-2.5,3\n0,1e-3,4\n")
    np.testing.assert_array_equal(read_matrix(str(path)), NUMBERS)
    path.write_text("first,second,third\n1,-2.5,3\n0,1e-3,4\n")
    np.testing.assert_array_equal(read_matrix(str(path)), NUMBERS)
    path.write_bytes(b"\xef\xbb\xbf1,-2.5,3\r\n0,1e-3,4\r\n")
    np.testing.assert_array_equal(read_matrix(str(path)), NUMBERS)
    # empty cells, also in the first line, are unknown entries
    path.write_text(",-2.5,3\n0,,4\n")
    holes = NUMBERS.copy()
    holes[0, 0] = holes[1, 1] = np.nan
    np.testing.assert_array_equal(read_matrix(str(path), holes=True), holes)


def test_npz_and_parquet(tmp_path: Path) -> None:
    np.savez(tmp_path / "matrix.npz", anything=NUMBERS)
    np.savez_compressed(tmp_path / "whole.npz", np.asarray([[1, 2]], dtype=np.int16))
    pandas.DataFrame(NUMBERS, columns=["a", "b", "c"]).to_parquet(tmp_path / "matrix.parquet")
    for name in ("matrix.npz", "matrix.parquet"):
        np.testing.assert_array_equal(read_matrix(str(tmp_path / name)), NUMBERS)
    found = read_matrix(str(tmp_path / "whole.npz"))
    assert found.dtype == float and found.tolist() == [[1.0, 2.0]]


def test_built_in_matrices() -> None:
    digits, flower = built_in_matrix("digits"), built_in_matrix("flower")
    assert digits.shape == (1797, 64) and digits.min() == 0 and digits.max() == 16
    assert flower.shape == (427, 640) and 0 <= flower.min() < 0.1 and 0.8 < flower.max() <= 1


class Opened:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


BAD = {
    "missing.csv": (None, "no such file; check the name"),
    "matrix.txt": (b"1,2\n", "unknown ending '.txt'; give a file that ends in .csv, .npz, .parquet"),
    "empty.csv": (b"", "cannot be read as a matrix (No columns to parse from file); give a table of numbers"),
    "heading.csv": (b"a,b\n", "does not hold numbers"),
    "text.csv": (b"1,2\n3,x\n", "column '1': does not hold numbers; remove it, or correct it"),
    "named.csv": (b"a,b\n1,2\n3,x\n", "column 'b': does not hold numbers; remove it, or correct it"),
    "ragged.csv": (b"1,2\n3,4,5\n", "cannot be read as a matrix"),
    "binary.csv": (bytes(range(256)), "cannot be read as a matrix"),
    "inf.csv": (b"1,2\n3,inf\n", "holds infinite numbers; give finite numbers"),
    "large.csv": (b"1,2\n3,1e200\n", "holds numbers above 1e+30; rescale it"),
    "hole.csv": (
        b"1,2\n3,\n",
        "row 2, column 2 holds no number; fill it, or set cost = 'completion', which may have unknown entries",
    ),
    "zero.csv": (b"0,0\n0,0\n", "is zero; give a matrix to learn"),
    "broken.npz": (b"PK\x03\x04 no archive", "cannot be read as a matrix"),
    "broken.parquet": (b"PAR1 no table", "cannot be read as a matrix"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(write: Callable[..., Path], tmp_path: Path, name: str) -> None:
    content, words = BAD[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    finished = run_command("two-layer", write({"matrix.shape": None, "matrix.target": f'{{ path = "{name}" }}'}))
    place = "matrix.target" if name == "zero.csv" else str(tmp_path / name)
    assert_one_line_error(finished, f"error: {tmp_path / 'problem.toml'}: {place}", words)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"a": np.ones((2, 2)), "b": np.ones((2, 2))}, "holds 2 arrays; save one matrix in it"),
        ({}, "holds 0 arrays; save one matrix in it"),
        ({"a": np.ones(3)}, "has shape (3,); give a matrix with rows and columns"),
        ({"a": np.ones((3, 0))}, "has shape (3, 0); give a matrix with rows and columns"),
        ({"a": np.ones((2, 2), dtype=complex)}, "holds an array of complex128; save numbers"),
        ({"a": np.asarray([["x", "y"]])}, "holds an array of <U1; save numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arrays(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    np.savez(tmp_path / "matrix.npz", **arrays)
    with pytest.raises(LazyrichError) as error:
        read_matrix(str(tmp_path / "matrix.npz"))
    assert str(error.value) == f"{tmp_path / 'matrix.npz'}: {words}"


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    content = np.empty((1, 1), dtype=object)
    content[0, 0] = Opened(tmp_path / "opened")
    np.savez(tmp_path / "matrix.npz", content)
    with pytest.raises(LazyrichError, match=r"cannot be read as a matrix \(Object arrays cannot be loaded"):
        read_matrix(str(tmp_path / "matrix.npz"))
    assert not (tmp_path / "opened").exists()


def test_paths_are_seen_from_the_file(write: Callable[..., Path], tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "data").mkdir()
    random = np.random.default_rng(0)
    inputs = random.standard_normal((30, 4))
    for name, values in (("a", NUMBERS), ("x", inputs), ("y", inputs @ random.standard_normal((4, 2)))):
        np.savez(tmp_path / "data" / f"{name}.npz", values)
    monkeypatch.chdir("/")
    path = write({"matrix.shape": None, "matrix.target": '{ path = "data/a.npz" }'})
    loaded = load_problem(path)
    assert isinstance(loaded, MatrixProblem) and loaded.matrix.target is not None
    assert loaded.matrix.target.path == str(tmp_path / "data" / "a.npz")
    files = FILES | {"matrix.inputs": '"data/x.npz"', "matrix.outputs": '"data/y.npz"'}
    run = lazyrich.two_layer(load_problem(write(files)))  # pyright: ignore[reportArgumentType]
    assert run.data.sizes["row"] == 2 and run.data.sizes["column"] == 4
    axis = {"diagram.axes": '{ "matrix.target.path" = ["data/a.npz"] }'}
    study = load_study(write({"matrix.shape": None, "matrix.target": '{ path = "data/a.npz" }'} | axis), MatrixStudy)
    assert study.diagram is not None
    assert study.diagram.values() == {"matrix.target.path": [str(tmp_path / "data" / "a.npz")]}


def test_regression_on_files_finds_least_squares(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    inputs, outputs = random.standard_normal((40, 3)), random.standard_normal((40, 2))
    np.savez(tmp_path / "x.npz", inputs)
    np.savez(tmp_path / "y.npz", outputs)
    matrix = Matrix(cost="regression", inputs=str(tmp_path / "x.npz"), outputs=str(tmp_path / "y.npz"))
    network = TwoLayerNetwork(width=100, threshold={"relative": 1.0})
    run = lazyrich.two_layer(MatrixProblem(matrix=matrix, network=network, training=MatrixTraining(steps=3000)))
    best = np.linalg.lstsq(inputs, outputs, rcond=None)[0].T
    # the slowest mode has come within 1e-9
    np.testing.assert_allclose(run.data["final"].values, best, rtol=0, atol=1e-8)
    rest = np.mean((outputs - inputs @ best.T) ** 2)
    assert run.data["train_error"].values[-1] == pytest.approx(rest, rel=1e-12)
    assert not np.isfinite(run.data["test_error"].values).any()  # nothing is known of the truth
    assert run.to_json()["test_error"] == [None] * len(run.steps)
    best_stop = MatrixTraining(steps=30, stop="best")
    with pytest.raises(LazyrichError, match=r"training\.stop: 'best' needs a test error"):
        lazyrich.two_layer(MatrixProblem(matrix=matrix, network=network, training=best_stop))


def test_unknown_entries_of_a_file(tmp_path: Path) -> None:
    truth = np.outer(np.arange(1.0, 11.0), np.linspace(1.0, 2.0, 8))
    known = truth.copy()
    known[0, 0] = known[4, 5] = np.nan
    np.savez(tmp_path / "holes.npz", known)
    matrix = Matrix(cost="completion", target=Target(path=str(tmp_path / "holes.npz")))
    network = TwoLayerNetwork(width=10**6, threshold={"relative": 1e-6})
    training = MatrixTraining(steps=3000)
    run = lazyrich.two_layer(MatrixProblem(matrix=matrix, network=network, training=training))
    # all that is known is observed, so that there is nothing to test on; the unknown ones are found
    assert not np.isfinite(run.data["test_error"].values).any()
    assert run.data["train_error"].values[-1] < 1e-12
    np.testing.assert_allclose(run.data["final"].values, truth, rtol=1e-4)
    with pytest.raises(LazyrichError, match=r"training\.stop: 'best' needs a test error"):
        lazyrich.two_layer(run.problem.with_values({"training.stop": "best"}))
    half = matrix.model_copy(update={"observed": 0.7})
    tested = lazyrich.two_layer(MatrixProblem(matrix=half, network=network, training=training))
    assert tested.data["test_error"].values[-1] < 1e-6 * tested.data["test_error"].values[0]


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        (
            {"matrix.cost": '"completion"', "matrix.observed": "0.05"},
            "matrix.observed",
            "is observed, so nothing is learned about it; observe more, or remove the",
        ),
        (
            {"matrix.cost": '"regression"', "matrix.samples": "9"},
            "matrix.samples",
            "the inputs span 9 of 10 dimensions, so A is not determined (X is singular); "
            "give at least 10 independent samples",
        ),
        ({"matrix.cost": '"custom"'}, "matrix.cost", "'custom' needs a function; use lazyrich.two_layer"),
        ({"matrix.shape": "[1000000, 1000000]"}, "matrix.shape", "GiB are free; choose smaller sizes"),
        ({"matrix.shape": "[1000000000000000, 2]"}, "matrix.shape", "GiB are free; choose smaller sizes"),
        (
            {"network.width": "10000000000", "training.reduction": '"qr"'},
            "network.width",
            "or reduction = 'bartlett' for a wide network",
        ),
        (
            {"network.width": None, "network.exponent": "-1"},
            "network.exponent",
            "12^-1 is no width from 1 to 10^15; choose another exponent",
        ),
        (
            {"matrix.cost": '"sensing"', "matrix.measurements": "1000000000000"},
            "matrix",
            "GiB are free",
        ),
    ],
    ids=str,
)
def test_what_shows_only_when_it_runs(
    write: Callable[..., Path], changes: dict[str, str], place: str, words: str
) -> None:
    path = write(changes)
    assert_one_line_error(run_command("two-layer", path), f"error: {path}: {place}", words)


def test_singular_and_zero_files_are_named(write: Callable[..., Path], tmp_path: Path) -> None:
    np.savez(tmp_path / "y.npz", np.zeros((20, 2)))
    files = FILES | {"matrix.inputs": '"x.npz"', "matrix.outputs": '"y.npz"'}
    for inputs, name, words in (
        (np.ones((20, 3)), "x.npz", "the inputs span 1 of 3 dimensions"),
        (np.random.default_rng(0).standard_normal((20, 3)), "y.npz", "is zero; give outputs to learn"),
        (np.ones((19, 3)), "y.npz", "has 20 rows"),
    ):
        np.savez(tmp_path / "x.npz", inputs)
        assert_one_line_error(run_command("two-layer", write(files)), f": {tmp_path / name}: ", words)


# --- the commands ----------------------------------------------------------------------------------------------------


def of_json(text: str) -> dict[str, Any]:
    return json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_two_layer_command(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write()
    words = ["two-layer", path, "--json", "--output", tmp_path / "run.nc", "--plot", tmp_path / "run.png", "--products"]
    finished = run_command(*words)
    assert (finished.status, finished.err) == (0, "")
    found = of_json(finished.out)
    count = len(found["steps"])
    assert found["steps"][0] == 0 and found["steps"][-1] == 20
    for key in ("train_error", "test_error", "threshold"):
        assert len(found[key]) == count
    assert np.asarray(found["singular_values"]).shape == (count, 10)
    assert (found["outcome"], found["step"], found["source"]) == ("finished", None, "training")
    assert found["statistics"]["solver"] == "network" and found["statistics"]["width"] == 40
    run = lazyrich.load(tmp_path / "run.nc")
    np.testing.assert_array_equal(run.data["train_error"], found["train_error"])
    assert run.data["product"].shape == (count, 12, 10)
    assert (tmp_path / "run.png").stat().st_size > 10_000
    table = run_command("two-layer", path)
    assert table.status == 0
    for part in ("train error", "turns active", "finished; solver: network", "best test error", "threshold s0 ="):
        assert part in table.out
    # an infinite width is no number of JSON
    infinite = of_json(run_command("two-layer", write({"network.width": "inf"}), "--json").out)
    assert infinite["statistics"]["width"] is None and infinite["source"] == "theory"


def test_a_rate_above_stability_is_flagged(write: Callable[..., Path]) -> None:
    path = write({"training.learning_rate": "10.0"})
    found = of_json(run_command("two-layer", path, "--json").out)
    assert found["outcome"] == "diverged" and found["steps"][-1] < found["step"] <= 20
    assert f"diverged at step {found['step']}; lower the learning rate" in run_command("two-layer", path).out


def test_phase_diagram_command(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(DIAGRAM | {"diagram.by": '"both"'})
    words = ["phase-diagram", path, "--workers", 1, "--results", tmp_path / "results"]
    finished = run_command(*words, "--json", "--table", tmp_path / "table.csv", "--plot", tmp_path / "plane.png")
    assert (finished.status, finished.err) == (0, "")
    found = of_json(finished.out)
    assert found["axes"] == ["network.width", "network.threshold"] and len(found["points"]) == 4
    for point in found["points"]:
        assert point["threshold"] == pytest.approx(point["network.threshold"])
        assert point["network_best_error"] > 0 and point["distance"] > 0
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 5
    assert (tmp_path / "plane.png").stat().st_size > 10_000
    table = run_command(*words)
    assert table.status == 0 and "4 points, 4 runs" in table.out and "network: best error" in table.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["two-layer", "--output", "run.txt"], "--output run.txt: unknown ending '.txt'"),
        (["two-layer", "--plot", "run.pdf"], "--plot run.pdf: unknown ending '.pdf'"),
        (["phase-diagram", "--table", "table.txt"], "--table table.txt: unknown ending '.txt'"),
        (["phase-diagram"], "problem.toml: diagram: missing; add a [diagram] table with axes"),
        (["phase-diagram", "--workers", "0"], "--workers"),
        (["two-layer", "--seeds", "3"], "--seeds"),
    ],
    ids=str,
)
def test_bad_options(write: Callable[..., Path], tmp_path: Path, words: list[str], message: str) -> None:
    results = ["--results", tmp_path / "results"] if words[0] == "phase-diagram" else []
    assert_one_line_error(run_command(words[0], write(), *results, *words[1:]), message)


@pytest.mark.parametrize("verb", ["predict", "train", "compare", "transfer"])
def test_verbs_of_the_other_kind(write: Callable[..., Path], verb: str) -> None:
    path = write()
    assert_one_line_error(
        run_command(verb, path),
        f"{path}: describes a problem of the kind two-layer network that learns a matrix; "
        "use lazyrich two-layer or phase-diagram",
    )
    path.write_text(problem_text())
    for other in ("two-layer", "phase-diagram"):
        finished = run_command(other, path)
        assert_one_line_error(finished, f"{path}: describes a problem of the kind", Study.kind.verbs)


def test_an_interrupted_command(write: Callable[..., Path], monkeypatch: Any) -> None:
    def interrupted(*_: Any, **__: Any) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("lazyrich.mixed_dynamics.run.make_states", interrupted)
    finished = run_command("two-layer", write())
    assert finished.status == 130 and finished.out == ""
    assert finished.err == "interrupted (0 of 21 steps were done); nothing was written\n"


def test_help_and_import_load_little() -> None:
    code = "import lazyrich.cli, sys; print([m for m in ('jax', 'matplotlib', 'scipy', 'sklearn') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_a_rate_above_stability_is_said(tmp_path: Path) -> None:
    # at 1.2/a the largest mode oscillates for ever: no divergence, so it has to be said
    path = tmp_path / "fast.toml"
    path.write_text(
        "[matrix]\nshape = [8, 8]\ntarget = { singular_values = [2.0] }\n"
        "[network]\nwidth = 1000\nthreshold = 0.01\n[training]\nsteps = 60\nlearning_rate = 0.6\n"
    )
    assert "it cannot settle; lower it" in run_command("two-layer", path).out
    path.write_text(path.read_text().replace("0.6", "0.4"))
    assert "cannot settle" not in run_command("two-layer", path).out
