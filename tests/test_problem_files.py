"""Problem files: every key in every form, and one clear line for every kind of bad input."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lazyrich
from lazyrich import (
    DatasetData,
    GaussianData,
    LayerValues,
    LazyrichError,
    Network,
    PowerLawData,
    Problem,
    SpectrumData,
    Training,
    load_problem,
    load_study,
)
from tests.conftest import problem_text


@pytest.fixture
def problem(write_problem: Callable[..., Path]) -> Callable[..., Problem]:
    """The problem that a file with some changes holds."""
    return lambda changes=None: load_problem(write_problem(changes))


@pytest.fixture
def error(write_problem: Callable[..., Path]) -> Callable[..., str]:
    """The error that a file with some changes gives, after the file's name; always one line of three parts."""

    def find(changes: dict[str, str | None] | str) -> str:
        path = write_problem(None if isinstance(changes, str) else changes)
        if isinstance(changes, str):
            path.write_text(changes, encoding="utf-8")
        with pytest.raises(LazyrichError) as caught:
            load_study(path)
        text = str(caught.value)
        assert text.startswith(f"{path}: ")
        assert "\n" not in text and len(text) < 500
        assert text == f"{caught.value.where}: {caught.value.what}; {caught.value.remedy}"
        return text.removeprefix(f"{path}: ")

    return find


# --- what a file means -----------------------------------------------------------------------------------------------


def test_defaults(problem: Callable[..., Problem]) -> None:
    loaded = problem()
    network, data, training = loaded.network, loaded.data, loaded.training
    assert (network.width, network.blocks) == (40, 1)
    assert (network.skip, network.branch_multiplier, network.init_stds) == (0.0, 1.0, [1.0, 1.0, 1.0])
    assert isinstance(data, GaussianData)
    assert (data.dimension, data.samples, data.label_noise, data.outputs) == (40, 80, 0.0, 1)
    assert (training.mode, training.steps, training.schedule) == ("full-batch", 6, "constant")
    assert (training.momentum, training.weight_decays(1)) == (0.0, [0.0, 0.0, 0.0])
    assert (training.parametrization, training.richness, training.seed) == ("mup", 1.0, 0)
    assert training.batch is None and training.warmup is None
    np.testing.assert_array_equal(training.rates(1), np.full((3, 6), 0.05))


def test_every_key(problem: Callable[..., Problem]) -> None:
    loaded = problem(
        {
            "network.width": "300",
            "network.blocks": "4",
            "network.skip": "-0.5",
            "network.branch": "0.25",
            "network.init_std": "1.5",
            "data.samples": "450",
            "data.label_noise": "0.3",
            "data.outputs": "3",
            "training.momentum": "0.9",
            "training.weight_decay": "0.01",
            "training.parametrization": '"ntk"',
            "training.richness": "0.1",
            "training.seed": "7",
        }
    )
    assert loaded.network == Network(width=300, blocks=4, skip=-0.5, branch=0.25, init_std=1.5)
    assert loaded.data == GaussianData(dimension=40, samples=450, label_noise=0.3, outputs=3)
    assert loaded.training == Training(
        steps=6, learning_rate=0.05, momentum=0.9, weight_decay=0.01, parametrization="ntk", richness=0.1, seed=7
    )


@pytest.mark.parametrize(("text", "width"), [("1", 1), ("64", 64), ("inf", math.inf), ("1e3", 1000), ("0x10", 16)])
def test_widths(problem: Callable[..., Problem], text: str, width: float) -> None:
    found = problem({"network.width": text}).network.width
    assert found == width and (math.isinf(width) or isinstance(found, int))


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ("network.blocks", {}),
        ("data.dimension", {}),
        ("data.samples", {}),
        ("training.steps", {}),
        ("training.batch", {"training.mode": '"online"', "data.samples": None}),
        ("training.warmup", {"training.schedule": '"warmup-cosine"', "training.steps": "5000"}),
        ("training.seed", {}),
    ],
)
def test_a_power_of_ten_is_a_whole_number(
    problem: Callable[..., Problem], place: str, changes: dict[str, str | None]
) -> None:
    table, key = place.split(".")
    found = getattr(getattr(problem(changes | {place: "1e3"}), table), key)
    assert found == 1000 and isinstance(found, int)


def test_branch_and_beta0(problem: Callable[..., Problem]) -> None:
    assert problem({"network.blocks": "4", "network.branch": "0.5"}).network.branch_multiplier == 0.5
    assert problem({"network.blocks": "4", "network.beta0": "1.0"}).network.branch_multiplier == 0.5
    assert problem({"network.blocks": "9", "network.beta0": "0.6"}).network.branch_multiplier == pytest.approx(0.2)


def test_values_by_layer(problem: Callable[..., Problem]) -> None:
    layers = "{ input = 1.0, block = 2, output = 0.5 }"
    loaded = problem(
        {
            "network.blocks": "2",
            "network.init_std": layers,
            "training.learning_rate": layers,
            "training.weight_decay": "{ input = 0, block = 0.1, output = 0 }",
        }
    )
    assert loaded.network.init_stds == [1.0, 2.0, 2.0, 0.5]
    assert loaded.training.weight_decays(2) == [0.0, 0.1, 0.1, 0.0]
    np.testing.assert_array_equal(loaded.training.rates(2), np.array([[1.0], [2.0], [2.0], [0.5]]) * np.ones(6))


def test_values_by_layer_without_blocks(problem: Callable[..., Problem]) -> None:
    loaded = problem({"network.blocks": "0", "network.init_std": "{ input = 2, output = 3 }"})
    assert loaded.network.init_stds == [2.0, 3.0]


def test_a_layer_may_stand_still(problem: Callable[..., Problem]) -> None:
    rates = problem({"training.learning_rate": "{ input = 0, block = 0.5, output = 0 }"}).training.rates(1)
    np.testing.assert_array_equal(rates, np.array([[0.0], [0.5], [0.0]]) * np.ones(6))


def test_a_list_of_rates(problem: Callable[..., Problem]) -> None:
    rates = problem({"training.learning_rate": "[1, 0.5, 0, 0.25, 1, 2]"}).training.rates(1)
    np.testing.assert_array_equal(rates, np.tile([1, 0.5, 0, 0.25, 1, 2], (3, 1)))


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ({"schedule": '"constant"'}, [1, 1, 1, 1]),
        ({"schedule": '"linear"'}, [1, 3 / 4, 1 / 2, 1 / 4]),
        ({"schedule": '"cosine"'}, [1, (2 + math.sqrt(2)) / 4, 1 / 2, (2 - math.sqrt(2)) / 4]),
        ({"schedule": '"warmup-cosine"', "warmup": "1"}, [1, 1, 3 / 4, 1 / 4]),
        ({"schedule": '"warmup-cosine"', "warmup": "2"}, [1 / 2, 1, 1, 1 / 2]),
        ({"schedule": '"warmup-cosine"', "warmup": "4"}, [1 / 4, 1 / 2, 3 / 4, 1]),
    ],
    ids=str,
)
def test_schedules(problem: Callable[..., Problem], schedule: dict[str, str], factors: list[float]) -> None:
    changes = {f"training.{key}": value for key, value in schedule.items()}
    training = problem(changes | {"training.steps": "4"}).training
    np.testing.assert_allclose(training.rates(1), 0.05 * np.tile(factors, (3, 1)), rtol=1e-14)
    by_layer = problem(
        changes | {"training.steps": "4", "training.learning_rate": "{ input = 1, block = 2, output = 0 }"}
    ).training
    np.testing.assert_allclose(by_layer.rates(1), np.outer([1, 2, 0], factors), rtol=1e-14)


def test_modes(problem: Callable[..., Problem]) -> None:
    online = problem({"data.samples": None, "training.mode": '"online"', "training.batch": "8"})
    assert (online.training.mode, online.training.batch) == ("online", 8)
    assert problem({"data.samples": None, "training.mode": '"population"'}).training.mode == "population"


POWER_LAW = {"data.kind": '"power-law"', "data.capacity": "0.6", "data.source": "-0.3"}
SPECTRUM = {
    "data.kind": '"spectrum"',
    "data.dimension": None,
    "data.eigenvalues": "[2, 1.0, 0]",
    "data.target": "[1, -1, 2]",
}


def test_kinds_of_data(problem: Callable[..., Problem]) -> None:
    power_law = problem(POWER_LAW).data
    assert power_law == PowerLawData(dimension=40, samples=80, capacity=0.6, source=-0.3)
    spectrum = problem(SPECTRUM).data
    assert spectrum == SpectrumData(samples=80, eigenvalues=[2.0, 1.0, 0.0], target=[1.0, -1.0, 2.0])
    assert isinstance(spectrum, SpectrumData)
    assert (spectrum.dimension, spectrum.outputs, spectrum.targets) == (3, 1, [[1.0, -1.0, 2.0]])
    several = problem(SPECTRUM | {"data.target": "[[1, -1, 2], [0, 0, 1]]"}).data
    assert isinstance(several, SpectrumData)
    assert (several.outputs, several.targets) == (2, [[1.0, -1.0, 2.0], [0.0, 0.0, 1.0]])


def test_data_sets(problem: Callable[..., Problem], tmp_path: Path) -> None:
    of_data = {"data.kind": '"dataset"', "data.dimension": None, "data.samples": None}
    assert problem(of_data | {"data.name": '"digits"'}).data == DatasetData(name="digits")
    chosen = problem(of_data | {"data.name": '"digits"', "data.classes": "[0, 1]", "data.scaling": '"column"'}).data
    assert chosen == DatasetData(name="digits", classes=[0, 1], scaling="column")
    file = problem(of_data | {"data.path": '"table.csv"', "data.target": '["a", "b"]'}).data
    # relative to the problem file, not to where the command runs
    assert file == DatasetData(path=str(tmp_path / "table.csv"), target=["a", "b"])
    absolute = problem(of_data | {"data.path": '"/data/table.csv"', "data.target": '"a"'}).data
    assert absolute == DatasetData(path="/data/table.csv", target="a")


# --- bad files -------------------------------------------------------------------------------------------------------

WIDTH = "give a whole number, or inf for the infinite-width limit"
ONE_LINE = [
    # unknown keys
    ({"network.widht": "3"}, "network.widht: unknown key; did you mean width?"),
    (
        {"network.zzz": "3"},
        "network.zzz: unknown key; known keys are beta0, blocks, branch, depth_exponent, init_std, skip, width",
    ),
    ({"training.learnin_rate": "3"}, "training.learnin_rate: unknown key; did you mean learning_rate?"),
    ({"training.momentun": "3", "training.steps": None}, "training.momentun: unknown key; did you mean momentum?"),
    ({"data.label_nosie": "3"}, "data.label_nosie: unknown key; did you mean label_noise?"),
    (
        {"data.capacity": "3"},
        "data.capacity: unknown key; known keys are dimension, kind, label_noise, outputs, samples",
    ),
    ({"nettwork.width": "3"}, "nettwork: unknown key; did you mean network?"),
    ({"compare.sedes": "3"}, "compare.sedes: unknown key; did you mean seeds?"),
    (
        {"network.init_std": "{ input = 1, blocks = 1, output = 1 }"},
        "network.init_std.blocks: unknown key; did you mean block?",
    ),
    # missing keys
    ({"network.width": None}, "network.width: missing; add it"),
    ({"network.blocks": None}, "network.blocks: missing; add it"),
    ({"data.dimension": None}, "data.dimension: missing; add it"),
    ({"training.steps": None}, "training.steps: missing; add it"),
    ({"training.learning_rate": None}, "training.learning_rate: missing; add it"),
    (
        {"data.kind": None},
        "data.kind: missing; add one of 'gaussian', 'power-law', 'spectrum', 'dataset'",
    ),
    ({"network.init_std": "{ input = 1, block = 1 }"}, "network.init_std.output: missing; add it"),
    # kinds and names
    (
        {"data.kind": '"gauss"'},
        "data.kind: unknown kind 'gauss'; choose one of 'gaussian', 'power-law', 'spectrum', 'dataset'",
    ),
    (
        {"training.mode": '"batch"'},
        "training.mode: 'batch' is not known; choose 'full-batch', 'online', 'population' or 'flow'",
    ),
    (
        {"training.schedule": '"step"'},
        "training.schedule: 'step' is not known; choose 'constant', 'cosine', 'linear' or 'warmup-cosine'",
    ),
    ({"training.parametrization": '"sp"'}, "training.parametrization: 'sp' is not known; choose 'mup' or 'ntk'"),
    # widths
    ({"network.width": "0"}, f"network.width: a width must be a whole number, at least 1 (it is 0); {WIDTH}"),
    ({"network.width": "-1"}, f"network.width: a width must be a whole number, at least 1 (it is -1); {WIDTH}"),
    ({"network.width": "2.5"}, f"network.width: a width must be a whole number, at least 1 (it is 2.5); {WIDTH}"),
    ({"network.width": "nan"}, f"network.width: a width must be a whole number, at least 1 (it is nan); {WIDTH}"),
    ({"network.width": "-inf"}, f"network.width: a width must be a whole number, at least 1 (it is -inf); {WIDTH}"),
    ({"network.width": '"64"'}, f"network.width: a width must be a number; {WIDTH}"),
    ({"network.width": "true"}, f"network.width: a width must be a number; {WIDTH}"),
    ({"network.width": "[64]"}, f"network.width: a width must be a number; {WIDTH}"),
    # branch, blocks, layers
    (
        {"network.branch": "1", "network.beta0": "1"},
        "network.beta0: branch is given too; keep one of them",
    ),
    (
        {"network.blocks": "0", "network.beta0": "1"},
        "network.beta0: needs at least one block; remove beta0 or set blocks to 1 or more",
    ),
    # samples and batches
    (
        {"data.samples": None},
        "data.samples: missing, and full-batch training needs it; add samples to [data]",
    ),
    (
        {"training.mode": '"population"'},
        "data.samples: has no meaning with training.mode = 'population'; remove it, or set mode = 'full-batch'",
    ),
    (
        {"training.mode": '"online"', "training.batch": "8"},
        "data.samples: has no meaning with training.mode = 'online'; remove it, or set mode = 'full-batch'",
    ),
    (
        {"training.batch": "8"},
        "training.batch: has no meaning with mode = 'full-batch'; remove it, or set mode = 'online'",
    ),
    (
        {"training.mode": '"population"', "data.samples": None, "training.batch": "8"},
        "training.batch: has no meaning with mode = 'population'; remove it, or set mode = 'online'",
    ),
    (
        {"training.mode": '"online"', "data.samples": None},
        "training.batch: missing, and online training needs it; add batch to [training]",
    ),
    # rates and schedules
    (
        {"training.learning_rate": "[1, 2]"},
        "training.learning_rate: lists 2 rates for 6 steps; give one rate per step",
    ),
    ({"training.learning_rate": "[]"}, "training.learning_rate: lists 0 rates for 6 steps; give one rate per step"),
    (
        {"training.learning_rate": "[1, 1, 1, 1, 1, 1]", "training.schedule": '"cosine"'},
        "training.schedule: is given beside a list of rates; remove schedule, or give one rate",
    ),
    (
        {"training.learning_rate": "{ input = 0, block = 0, output = 0 }"},
        "training.learning_rate: is zero in every layer; give at least one layer a positive rate",
    ),
    (
        {"training.warmup": "2"},
        "training.warmup: belongs together with schedule = 'warmup-cosine'; give both or neither",
    ),
    (
        {"training.schedule": '"warmup-cosine"'},
        "training.warmup: belongs together with schedule = 'warmup-cosine'; give both or neither",
    ),
    (
        {"training.schedule": '"warmup-cosine"', "training.warmup": "7"},
        "training.warmup: 7 steps are more than the 6 of the training; shorten it",
    ),
    # spectra
    (
        SPECTRUM | {"data.target": "[1, 2]"},
        "data.target: has 2 entries for 3 eigenvalues; give one entry per eigenvalue",
    ),
    (
        SPECTRUM | {"data.target": "[[1, 2, 3], [1, 2, 3, 4]]"},
        "data.target: has 4 entries for 3 eigenvalues; give one entry per eigenvalue",
    ),
    (
        SPECTRUM | {"data.eigenvalues": "[0, 0, 0]"},
        "data.eigenvalues: all are zero; give at least one positive eigenvalue",
    ),
    # data sets
    (
        {"data.kind": '"dataset"', "data.dimension": None, "data.samples": None},
        "data: a data set needs either name or path; give exactly one of them",
    ),
    (
        {
            "data.kind": '"dataset"',
            "data.dimension": None,
            "data.samples": None,
            "data.path": '"a.csv"',
        },
        "data.target: missing, and a data file needs it; name the target column, target = '...'",
    ),
    (
        {
            "data.kind": '"dataset"',
            "data.dimension": None,
            "data.samples": None,
            "data.name": '"digits"',
            "training.mode": '"online"',
            "training.batch": "8",
        },
        "training.mode: 'online' is not available for a data set; "
        "use 'full-batch', or describe the data by kind = 'spectrum'",
    ),
    # axes of a comparison
    ({"compare.axes": '{ "network.widht" = [8] }'}, "compare.axes: network.widht: unknown key; did you mean width?"),
    (
        {"compare.axes": '{ "width" = [8] }'},
        "compare.axes: width: no such key; write table.key with a table of network, data, training",
    ),
    (
        {"compare.axes": '{ "network.width" = [8, 0] }'},
        f"compare.axes: network.width: a width must be a whole number, at least 1 (it is 0); {WIDTH}",
    ),
    (
        {"compare.axes": '{ "training.mode" = ["full-batch", "population"] }'},
        "compare.axes: data.samples: has no meaning with training.mode = 'population'; "
        "remove it, or set mode = 'full-batch'",
    ),
]


@pytest.mark.parametrize(("changes", "line"), ONE_LINE, ids=[line[:60] for _, line in ONE_LINE])
def test_errors(error: Callable[..., str], changes: dict[str, str | None], line: str) -> None:
    assert error(changes) == line


NUMBERS = ["network.skip", "network.branch", "network.beta0", "network.init_std"]
NUMBERS += ["training.learning_rate", "training.momentum", "training.weight_decay", "training.richness"]
NUMBERS += ["data.label_noise"]
COUNTS = ["network.blocks", "data.dimension", "data.samples", "data.outputs", "training.steps", "training.seed"]


@pytest.mark.parametrize("value", ['"3"', "true", "nan", "inf", "-inf", "[1]", "{}", "1979-05-27"])
@pytest.mark.parametrize("place", [*NUMBERS, *COUNTS])
def test_not_a_number(error: Callable[..., str], place: str, value: str) -> None:
    line = error({place: value})
    where = line.partition(": ")[0]
    if (place, value) == ("network.blocks", "inf"):
        assert line == "network.skip: infinite depth has a limit with skip = 1 only; set skip = 1.0"
        return
    if value == "{}" and place in ("network.init_std", "training.learning_rate", "training.weight_decay"):
        assert line == f"{place}.input: missing; add it"
        return
    if value == "[1]" and place == "training.learning_rate":
        assert line == f"{place}: lists 1 rates for 6 steps; give one rate per step"
        return
    assert where == place
    if value in ("nan", "inf", "-inf"):
        assert f"(it is {value})" in line
        assert ("whole number" in line) if place in COUNTS else ("give a finite number" in line)
    else:
        assert "number" in line


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *[(place, "-1") for place in [*COUNTS, *NUMBERS] if place != "network.skip"],
        *[(place, "0") for place in ("network.branch", "network.beta0", "network.init_std")],
        *[(place, "0") for place in ("training.learning_rate", "training.richness")],
        *[(place, "0") for place in COUNTS if place not in ("network.blocks", "training.seed")],
    ],
)
def test_too_small(error: Callable[..., str], place: str, value: str) -> None:
    line = error({place: value})
    assert line.startswith(f"{place}: ") and f"(it is {value})" in line and "choose a larger number" in line


@pytest.mark.parametrize(("place", "value"), [("training.momentum", "1"), ("training.seed", str(2**32))])
def test_too_large(error: Callable[..., str], place: str, value: str) -> None:
    line = error({place: value})
    assert line.startswith(f"{place}: ") and f"(it is {value})" in line and "choose a smaller number" in line


@pytest.mark.parametrize("place", COUNTS)
def test_not_whole(error: Callable[..., str], place: str) -> None:
    line = error({place: "2.5"})
    assert line.startswith(f"{place}: ") and "(it is 2.5)" in line and "whole number" in line


@pytest.mark.parametrize("value", ['"1e9999999999"', "1e400"])
def test_not_finite_in_disguise(error: Callable[..., str], value: str) -> None:
    assert error({"training.learning_rate": value}).startswith("training.learning_rate: ")


@pytest.mark.parametrize("key", ["network.init_std", "training.learning_rate", "training.weight_decay"])
def test_block_entries(error: Callable[..., str], key: str) -> None:
    with_block, without = "{ input = 1, block = 1, output = 1 }", "{ input = 1, output = 1 }"
    no_blocks = error({"network.blocks": "0", key: with_block})
    assert no_blocks == f"{key}: has a block entry but network.blocks is 0; remove the block entry"
    blocks = error({"network.blocks": "2", key: without})
    assert blocks == f"{key}: has no block entry; add block = .. beside input and output"


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"training.learning_rate": "[1, 1, 1, -1, 1, 1]"}, "training.learning_rate[3]", "(it is -1)"),
        ({"training.learning_rate": "[1, 1, 1, 1, 1, nan]"}, "training.learning_rate[5]", "finite"),
        ({"training.learning_rate": "{ input = 1, block = -1, output = 1 }"}, "training.learning_rate.block", "-1"),
        ({"network.init_std": "[1, 1, 1]"}, "network.init_std", "one number"),
        ({"training.weight_decay": "[0, 0]"}, "training.weight_decay", "one number"),
        (SPECTRUM | {"data.eigenvalues": "[1, -1, 0]"}, "data.eigenvalues[1]", "(it is -1)"),
        (SPECTRUM | {"data.eigenvalues": "[]", "data.target": "[]"}, "data.eigenvalues", "give more entries"),
        (SPECTRUM | {"data.target": "[1, inf, 0]"}, "data.target[1]", "finite"),
        (SPECTRUM | {"data.target": "[[1, 1, 1], 1]"}, "data.target[1]", "list"),
        (SPECTRUM | {"data.target": "[1, [1], 1]"}, "data.target[1]", "number"),
        (SPECTRUM | {"data.target": "[{ a = 1 }]"}, "data.target", "list"),
        (SPECTRUM | {"data.target": "1"}, "data.target", "list"),
        (POWER_LAW | {"data.capacity": "-1"}, "data.capacity", "larger"),
        (POWER_LAW | {"data.source": "nan"}, "data.source", "finite"),
        ({"compare.seeds": "1"}, "compare.seeds", "greater than or equal to 2"),
        ({"compare.axes": "3"}, "compare.axes", "table"),
        ({"compare.axes": '{ "network.width" = [] }'}, "compare.axes.network.width", "give more entries"),
        ({"compare.axes": '{ "network.width" = 64 }'}, "compare.axes.network.width", "list"),
        # the quotes were forgotten, so that TOML reads a table inside a table
        ({"compare.axes": "{ network.width = [64] }"}, "compare.axes.network", '"network.width"'),
        ({"compare.axes": '{ "network.width" = [[64]] }'}, "compare.axes: network.width", "number"),
        ({"compare.axes": '{ "data.kind" = ["spectrum"] }'}, "compare.axes: data.dimension", "unknown key"),
        # outputs have orthogonal targets
        ({"data.outputs": "41"}, "data.outputs", "dimension"),
    ],
    ids=str,
)
def test_places(error: Callable[..., str], changes: dict[str, str | None], where: str, words: str) -> None:
    line = error(changes)
    assert line.startswith(f"{where}: ")
    assert words in line.removeprefix(where)


@pytest.mark.parametrize("table", ["network", "data", "training"])
def test_tables(error: Callable[..., str], table: str) -> None:
    start = problem_text().index(f"[{table}]")
    end = problem_text().find("[", start + 1)
    rest = problem_text()[:start] + (problem_text()[end:] if end >= 0 else "")
    assert error(rest) == f"{table}: missing; add it"
    for wrong in (f"{table} = 3\n", f"{table} = [1]\n", f'{table} = "x"\n'):
        line = error(wrong + rest)
        assert line.startswith((f"{table}: ", "data.kind: ")) and "python" not in line.lower()
        assert "instance of" not in line  # names of Python classes mean nothing in a file


def test_a_long_value_is_not_repeated_in_full(error: Callable[..., str]) -> None:
    for place in ("training.mode", "training.steps", "data.kind", "network.width"):
        assert error({place: f'"{"x" * 10_000}"'}).startswith(f"{place}: ")  # `error` checks the length


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[network\nwidth = 3", ["not valid TOML", "line 1", "correct the file"]),
        (b"width = 3\nwidth = 4\n", ["not valid TOML", "line 2"]),
        (b"a = " + b"[" * 100_000, ["not valid TOML"]),
        (b"[network]\nwidth = \xff\n", ["cannot be read (not UTF-8 text)", "give a readable TOML file"]),
        (b"\xff\xfe[\x00n\x00]\x00", ["not UTF-8 text"]),
        (b"[network]\nwidth = " + b"9" * 5000, ["not valid TOML"]),
        (b"", ["network: missing; add it"]),
    ],
    ids=["open bracket", "key twice", "too deep", "not UTF-8", "UTF-16", "too many digits", "empty"],
)
def test_files_that_are_no_problem_files(tmp_path: Path, content: bytes, words: list[str]) -> None:
    path = tmp_path / "problem.toml"
    path.write_bytes(content)
    with pytest.raises(LazyrichError) as caught:
        load_problem(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text and len(text) < 500
    for word in words:
        assert word in text


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "problem.toml"
    path.write_text(problem_text(), encoding="utf-8-sig")  # as some editors on Windows save
    assert load_problem(path).network.width == 40


def test_no_file(tmp_path: Path) -> None:
    path = tmp_path / "nothing.toml"
    with pytest.raises(LazyrichError) as caught:
        load_problem(path)
    assert str(caught.value) == f"{path}: no such file; check the name"


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(LazyrichError) as caught:
        load_problem(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read (Is a directory); give a readable TOML file"


# --- the same from Python --------------------------------------------------------------------------------------------

NETWORK, TRAINING = Network(width=40, blocks=1), Training(steps=6, learning_rate=0.05)
DATA = GaussianData(dimension=40, samples=80)
PROBLEM = Problem(network=NETWORK, data=DATA, training=TRAINING)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: lazyrich.Network(width=0),
            f"width: a width must be a whole number, at least 1 (it is 0); {WIDTH}",
        ),
        (lambda: lazyrich.Network(width=3), "blocks: missing; add it"),
        (lambda: Network(width=3, blocks=1, braanch=1), "braanch: unknown key; did you mean branch?"),
        (lambda: Network(width=3, blocks=1, branch=1.0, beta0=1.0), "beta0: branch is given too; keep one of them"),
        (
            lambda: Training(steps=3, learning_rate=0.1, batch=2),
            "batch: has no meaning with mode = 'full-batch'; remove it, or set mode = 'online'",
        ),
        (
            lambda: SpectrumData(eigenvalues=[1.0], target=[1.0, 2.0]),
            "target: has 2 entries for 1 eigenvalues; give one entry per eigenvalue",
        ),
        (
            lambda: Problem(network=NETWORK, data=GaussianData(dimension=4), training=TRAINING),
            "data.samples: missing, and full-batch training needs it; add samples to [data]",
        ),
        (
            lambda: Problem(
                network=Network(width=3, blocks=0),
                data=DATA,
                training=Training(steps=3, learning_rate=LayerValues(input=1.0, block=1.0, output=1.0)),
            ),
            "training.learning_rate: has a block entry but network.blocks is 0; remove the block entry",
        ),
        (lambda: lazyrich.dataset("digits", classes=[1, 1]), "classes: a class is listed twice; list every class once"),
        (lambda: LayerValues(input=1.0), "output: missing; add it"),
    ],
)
def test_errors_of_constructors(make: Callable[[], object], line: str) -> None:
    with pytest.raises(LazyrichError) as caught:
        make()
    assert type(caught.value) is LazyrichError and str(caught.value) == line


def test_numbers_of_numpy_are_numbers() -> None:
    network = Network(width=np.int64(40), blocks=np.int32(1), skip=np.float64(0.5))
    assert network == Network(width=40, blocks=1, skip=0.5) and type(network.width) is int
    training = Training(steps=np.int64(2), learning_rate=np.float64(0.1))
    assert training == Training(steps=2, learning_rate=0.1)
    assert Training(steps=2, learning_rate=np.array([0.1, 0.2])).learning_rate == [0.1, 0.2]
    assert Training(steps=2, learning_rate=(0.1, 0.2)).learning_rate == [0.1, 0.2]
    assert SpectrumData(eigenvalues=np.ones(3), target=np.arange(3.0)).target == [0.0, 1.0, 2.0]
    assert SpectrumData(eigenvalues=np.ones(3), target=np.ones((2, 3))).outputs == 2


def test_tables_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        PROBLEM.network.width = 3  # pyright: ignore[reportAttributeAccessIssue]
    assert PROBLEM.network.width == 40


def test_with_values() -> None:
    changed = PROBLEM.with_values({"network.width": 400, "training.learning_rate": [0.1] * 6, "data.samples": 8})
    assert changed.network == Network(width=400, blocks=1)
    assert changed.data == GaussianData(dimension=40, samples=8)
    assert changed.training == Training(steps=6, learning_rate=[0.1] * 6)
    assert PROBLEM.network.width == 40  # the original stays
    assert PROBLEM.with_values({}) == PROBLEM
    online = PROBLEM.with_values({"training.mode": "online", "training.batch": 4, "data.samples": None})
    assert online.training.batch == 4


def test_with_values_replaces_branch_and_beta0_by_each_other() -> None:
    by_depth = PROBLEM.with_values({"network.branch": 0.5}).with_values({"network.beta0": 2.0, "network.blocks": 4})
    assert (by_depth.network.branch, by_depth.network.branch_multiplier) == (None, 1.0)
    fixed = by_depth.with_values({"network.branch": 0.5})
    assert (fixed.network.beta0, fixed.network.branch_multiplier) == (None, 0.5)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"network.widht": 3}, "network.widht: unknown key; did you mean width?"),
        ({"width": 3}, "width: no such key; write table.key with a table of network, data, training"),
        ({"nets.width": 3}, "nets.width: no such key; write table.key with a table of network, data, training"),
        (
            {"network.width": 0},
            f"network.width: a width must be a whole number, at least 1 (it is 0); {WIDTH}",
        ),
        (
            {"training.mode": "population"},
            "data.samples: has no meaning with training.mode = 'population'; remove it, or set mode = 'full-batch'",
        ),
    ],
)
def test_with_values_errors(values: dict[str, object], line: str) -> None:
    with pytest.raises(LazyrichError) as caught:
        PROBLEM.with_values(values)
    assert str(caught.value) == line


EVERY_KIND = [
    PROBLEM,
    PROBLEM.with_values({"network.width": math.inf, "network.beta0": 1.0}),
    PROBLEM.with_values({"network.init_std": {"input": 1.0, "block": 0.5, "output": 2.0}}),
    PROBLEM.with_values({"training.learning_rate": [0.1, 0.2, 0.3, 0.0, 0.1, 0.1]}),
    PROBLEM.with_values({"training.schedule": "warmup-cosine", "training.warmup": 2, "training.seed": 3}),
    PROBLEM.with_values({"training.mode": "online", "training.batch": 4, "data.samples": None}),
    PROBLEM.with_values({"data.outputs": 3}),
    Problem(network=NETWORK, data=PowerLawData(dimension=9, samples=8, capacity=1.0, source=0.5), training=TRAINING),
    Problem(network=NETWORK, data=SpectrumData(samples=8, eigenvalues=[1.0], target=[[2.0], [1.0]]), training=TRAINING),
    Problem(network=NETWORK, data=lazyrich.dataset("digits", classes=[0, 1]), training=TRAINING),
    Problem(network=NETWORK, data=lazyrich.dataset("a.csv", target=["x", "y"], scaling="none"), training=TRAINING),
]


@pytest.mark.parametrize("problem", EVERY_KIND, ids=range(len(EVERY_KIND)))
def test_round_trips(problem: Problem) -> None:
    tables = problem.to_dict()
    assert Problem(**tables) == problem
    assert Problem(**json.loads(json.dumps(tables))) == problem
    for copied in (pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)):
        assert copied == problem and copied.to_dict() == tables
        np.testing.assert_array_equal(copied.training.rates(1), problem.training.rates(1))


def test_every_kind_differs() -> None:
    for index, problem in enumerate(EVERY_KIND):
        assert problem not in EVERY_KIND[:index]  # so that equality above means something


def test_pickled_errors() -> None:
    error = LazyrichError("training.steps", "too\nmany", "take  fewer").inside("a.toml", joint=": ")
    assert str(error) == "a.toml: training.steps: too many; take fewer"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is LazyrichError and str(again) == str(error)
        assert (again.where, again.what, again.remedy) == (error.where, error.what, error.remedy)
    assert isinstance(error, ValueError)


# --- studies ---------------------------------------------------------------------------------------------------------


def test_a_study_without_axes_is_its_problem(write_problem: Callable[..., Path]) -> None:
    study = load_study(write_problem())
    assert study.problems() == [({}, PROBLEM)]
    assert study.compare.seeds == 16 and study.problem == PROBLEM


def test_the_grid_runs_through_the_last_axis_first(write_problem: Callable[..., Path]) -> None:
    path = write_problem(
        {
            "compare.seeds": "5",
            "compare.axes": '{ "training.richness" = [0.5, 2], "network.width" = [30, inf, 10] }',
        }
    )
    study = load_study(path)
    assert study.compare.seeds == 5
    points = [
        {"training.richness": richness, "network.width": width} for richness in (0.5, 2) for width in (30, math.inf, 10)
    ]
    assert [point for point, _ in study.problems()] == points
    assert [problem for _, problem in study.problems()] == [PROBLEM.with_values(point) for point in points]
    assert load_problem(path) == PROBLEM


def test_axes_of_branch_replace_the_beta0_of_the_problem(write_problem: Callable[..., Path]) -> None:
    path = write_problem({"network.beta0": "1.0", "compare.axes": '{ "network.branch" = [0.5, 0.25] }'})
    assert [problem.network.branch_multiplier for _, problem in load_study(path).problems()] == [0.5, 0.25]


def test_an_endless_grid_is_refused(error: Callable[..., str]) -> None:
    values = ", ".join(str(value) for value in range(1, 101))
    axes = ", ".join(f'"{key}" = [{values}]' for key in ("network.width", "data.samples", "data.dimension"))
    line = error({"compare.axes": f"{{ {axes} }}"})
    assert line.startswith("compare.axes: ") and "1000000" in line
