"""Phase diagrams: cells on the engine, refinement, the boundary, tables, figures, and low-rank recovery."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray
from threadpoolctl import threadpool_limits

import lazyrich
from lazyrich import LazyrichError, MatrixProblem, MatrixStudy, PhaseDiagram, phase_diagram
from lazyrich.mixed_dynamics.figures import plot_phase_diagram
from lazyrich.mixed_dynamics.point import measure_point
from lazyrich.mixed_dynamics.readings import predicted_best
from lazyrich.mixed_dynamics.tables import diagram_lines
from lazyrich.mixed_dynamics.task import make_task
from lazyrich.transfer.diagram import MatrixCell

X, Y = "network.exponent", "network.variance.exponent"
GRID = {X: [1.0, 1.5, 2.0], Y: [-2.5, -1.5, -0.5]}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small matrices are slower with several threads, most of all where other work runs."""
    with threadpool_limits(1):
        yield


def study(
    axes: dict[str, Any] | None = None, changes: dict[str, Any] | None = None, steps: int = 60, **diagram: Any
) -> MatrixStudy:
    """A noisy matrix of rank 2 in 20 dimensions; `changes` maps ``table.key`` to a value."""
    problem = MatrixProblem(
        matrix={"shape": [20, 20], "target": {"rank": 2, "noise": 1.0}},  # pyright: ignore[reportArgumentType]
        network={"exponent": 2.0, "variance": {"exponent": -2.0}},  # pyright: ignore[reportArgumentType]
        training={"steps": steps},  # pyright: ignore[reportArgumentType]
    ).with_values(changes or {})
    return MatrixStudy(**problem.to_dict(), diagram={"axes": axes or GRID} | diagram)


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[MatrixCell]:
    """The cells that are really computed."""
    found: list[MatrixCell] = []
    execute = MatrixCell.execute

    def counted(cell: MatrixCell) -> dict[str, np.ndarray]:
        found.append(cell)
        return execute(cell)

    monkeypatch.setattr(MatrixCell, "execute", counted)
    return found


def without_seconds(diagram: PhaseDiagram) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in diagram.rows]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> PhaseDiagram:
    with threadpool_limits(1):
        return phase_diagram(study(by="both", seeds=2), tmp_path_factory.mktemp("both") / "r", workers=1)


# --- cells -----------------------------------------------------------------------------------------------------------


def test_finished_cells_are_not_computed_again(tmp_path: Path, executed: list[MatrixCell]) -> None:
    folder = tmp_path / "results"
    first = phase_diagram(study(), folder, workers=1)
    assert len(executed) == 9 and len(first.rows) == 9
    again = phase_diagram(study(), folder, workers=1)
    assert len(executed) == 9 and again.rows == first.rows
    next((folder / "cells").iterdir()).unlink()
    phase_diagram(study(), folder, workers=1)
    assert len(executed) == 10
    # one more point on an axis, one more seed: only what is new
    larger = {X: [*GRID[X], 2.2], Y: GRID[Y]}
    phase_diagram(study(larger), folder, workers=1)
    assert len(executed) == 13
    phase_diagram(study(seeds=2), folder, workers=1)
    assert len(executed) == 22
    # another number of steps is another cell
    phase_diagram(study(steps=61), folder, workers=1)
    assert len(executed) == 31


def test_an_interrupted_diagram_goes_on(tmp_path: Path, executed: list[MatrixCell]) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        phase_diagram(study(), tmp_path / "results", workers=1, progress=interrupt)
    assert len(executed) == 4
    seen: list[tuple[int, int]] = []
    whole = phase_diagram(study(), tmp_path / "results", workers=1, progress=lambda *pair: seen.append(pair))
    assert len(executed) == 9 and seen[-1] == (9, 9)
    apart = phase_diagram(study(), tmp_path / "apart", workers=1)
    assert without_seconds(whole) == without_seconds(apart)


def test_results_do_not_depend_on_the_workers(tmp_path: Path, both: PhaseDiagram) -> None:
    two = phase_diagram(study(by="both", seeds=2), tmp_path / "two", workers=2)
    assert without_seconds(two) == without_seconds(both)


def test_a_changed_file_is_computed_again(tmp_path: Path, executed: list[MatrixCell]) -> None:
    path = tmp_path / "matrix.npz"
    asked = {"matrix.shape": None, "matrix.target": {"path": str(path)}}
    tables = study({"network.exponent": [1.5]}).model_dump(exclude_none=True) | {
        "matrix": {"target": asked["matrix.target"]}
    }
    errors = []
    for factor in (1.0, 1.0, 2.0):
        np.savez(path, factor * np.outer(np.arange(1.0, 9.0), np.ones(9)))
        errors.append(phase_diagram(MatrixStudy(**tables), tmp_path / "r", workers=1).rows[0]["network_best_error"])
    assert errors[0] == errors[1] != errors[2] and len(executed) == 2


def test_cells_are_runs_of_two_layer(both: PhaseDiagram) -> None:
    for row in (both.rows[0], both.rows[9], both.rows[-1]):
        base = study().problem.with_values({X: row[X], Y: row[Y], "training.seed": row["seed"]})
        runs = {
            name: lazyrich.two_layer(
                base.with_values({"training.solver": name, "training.record": 2000}), products=True
            )
            for name in ("network", "law")
        }
        for name, run in runs.items():
            facts = run.statistics
            assert row[f"{name}_best_error"] == facts["best_test_error"]
            assert row[f"{name}_best_step"] == facts["best_step"] and row[f"{name}_diverged"] == -1
            assert row[f"{name}_best_time"] == pytest.approx(facts["best_time"], rel=1e-14)
            assert row[f"{name}_rank"] == facts["best_numerical_rank"]
            assert row[f"{name}_active_rank"] == facts["best_active_rank"]
            assert row[f"{name}_steps"] == 60
        assert row["threshold"] == runs["network"].statistics["threshold"]
        assert row["threshold"] == pytest.approx(20 ** row[Y] * round(20 ** row[X]), rel=1e-12)
        # the largest relative distance; here at the recorded steps only
        pairs = zip(runs["law"].data["product"].values, runs["network"].data["product"].values, strict=True)
        distances = [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in pairs]
        assert 0.9 * row["distance"] < max(distances) <= row["distance"] * (1 + 1e-12)


def test_law_and_network_come_together(tmp_path: Path) -> None:
    axes = {"network.width": [100, 10_000, 1_000_000]}
    changes = {"network.threshold": 5.0}
    rows = phase_diagram(study(axes, changes, by="both", seeds=2), tmp_path / "r", workers=1).means()
    distances = [row["distance"] for row in rows]
    # falls with the root of the width: ten times each
    assert all(7 < wide / narrow < 13 for wide, narrow in itertools.pairwise(distances))


def test_a_diagram_of_the_anisotropic_law(tmp_path: Path) -> None:
    changes = {"network.width": 40, "network.threshold": 0.5}
    distances = [
        phase_diagram(
            study({"network.width": [40]}, changes | {"training.solver": solver}, by="both"),
            tmp_path / solver,
            workers=1,
        ).rows[0]["distance"]
        for solver in ("law", "anisotropic-law")
    ]
    # measured 0.29 and 0.049, of which the step is a part
    assert distances[1] < 0.3 * distances[0]


def test_seeds_and_their_means(both: PhaseDiagram) -> None:
    assert [row["seed"] for row in both.rows] == [0, 1] * 9
    means = both.means()
    assert [(mean[X], mean[Y]) for mean in means] == list(itertools.product(*GRID.values()))
    for mean, *pair in zip(means, both.rows[::2], both.rows[1::2], strict=True):
        errors = [row["network_best_error"] for row in pair]
        assert mean["network_best_error"] == pytest.approx(np.mean(errors), rel=1e-14)
        assert mean["network_best_error_sem"] == pytest.approx(abs(errors[0] - errors[1]) / 2, rel=1e-12)
    assert both.methods == ["network", "law"]


def test_seeds_as_an_axis(tmp_path: Path) -> None:
    rows = phase_diagram(study({"training.seed": [3, 5]}, seeds=2), tmp_path / "r", workers=1).rows
    assert [row["seed"] for row in rows] == [3, 4, 5, 6]
    alone = measure_point(study().problem.with_values({"training.seed": 5}), "network")
    assert rows[2]["network_best_error"] == alone["network_best_error"] != rows[0]["network_best_error"]


def test_best_stop_ends_no_earlier_than_the_best(tmp_path: Path) -> None:
    whole = phase_diagram(study(steps=400), tmp_path / "whole", workers=1).rows
    stopped = phase_diagram(study(steps=400, changes={"training.stop": "best"}), tmp_path / "stop", workers=1).rows
    assert [row["network_best_error"] for row in stopped] == [row["network_best_error"] for row in whole]
    assert sum(row["network_steps"] for row in stopped) < 0.8 * sum(row["network_steps"] for row in whole)


def test_signal_block(tmp_path: Path) -> None:
    # k << w < d and small weights: the block of the signal is a network of its rank
    axes = {"network.variance": [1.6e-4, 1.6e-2]}
    changes = {"matrix.shape": [60, 60], "network.width": 20, "network.variance": 1.0, "matrix.target.noise": 0.1}
    found = phase_diagram(study(axes, changes, steps=500, by="both", signal_block=True), tmp_path / "r", workers=1).rows
    for row in found:
        assert row["distance"] > 0.3  # the law of the whole matrix is far off
    small, large = (row["block_network"] for row in found)
    # sigma^2 d / a of 2e-4 and 0.02: measured 0.0006 and 0.031
    assert small < 0.001 and 0.01 < large < 0.06


# --- refinement and the boundary -------------------------------------------------------------------------------------


def test_refinement_follows_the_boundary(tmp_path: Path, executed: list[MatrixCell]) -> None:
    axes = {X: {"from": 1.0, "to": 3.0, "count": 5}, Y: {"from": -3.0, "to": 0.0, "count": 4}}
    coarse = phase_diagram(study(axes, by="law"), tmp_path / "r", workers=1)
    assert len(executed) == 20
    fine = phase_diagram(study(axes, by="law", refine=1), tmp_path / "r", workers=1)
    height = {(row[X], row[Y]): math.log(row["law_best_error"]) for row in coarse.rows}
    range_ = max(height.values()) - min(height.values())
    x, y = np.linspace(1, 3, 5), np.linspace(-3, 0, 4)
    expected = set(height)
    steep = 0
    for a, b in itertools.pairwise(x):
        for c, d in itertools.pairwise(y):
            corners = [height[point] for point in itertools.product((a, b), (c, d))]
            if max(corners) - min(corners) > 0.15 * range_:
                steep += 1
                expected |= set(itertools.product((a, (a + b) / 2, b), (c, (c + d) / 2, d)))
    assert {(row[X], row[Y]) for row in fine.rows} == expected
    assert 0 < steep < 12 and len(executed) == len(expected) == len(fine.rows)
    ordered = [(row[X], row[Y]) for row in fine.rows]
    assert ordered == sorted(ordered)


def test_sizes_are_refined_by_whole_numbers(tmp_path: Path) -> None:
    axes = {"network.width": [10, 1000], "network.variance": [1e-4, 1.0]}
    changes = {"network.width": 10, "network.variance": 1.0}
    rows = phase_diagram(study(axes, changes, by="law", refine=1, steps=20), tmp_path / "r", workers=1).rows
    assert sorted({row["network.width"] for row in rows}) == [10, 100, 1000]
    assert sorted({row["network.variance"] for row in rows}) == pytest.approx([1e-4, 1e-2, 1.0])


def synthetic(
    error: Callable[[float, float], float],
    x: np.ndarray,
    y: np.ndarray,
    names: tuple[str, str] = (X, Y),
    **diagram: Any,
) -> PhaseDiagram:
    """A table with this best error, as if it had been computed."""
    facts = {"threshold": 1.0, "size": 2.0, "width": 100.0, "variance": 0.1, "signal_rank": 2.0, "seconds": 0.0}
    facts |= {"network_rank": 2.0, "network_best_step": 10.0}
    rows = [
        {names[0]: a, names[1]: b, "seed": 0, "network_best_error": error(a, b)} | facts
        for a, b in itertools.product(x.tolist(), y.tolist())
    ]
    return PhaseDiagram(study({names[0]: x.tolist(), names[1]: y.tolist()}, **diagram), names, rows)


def test_boundary_of_a_known_table() -> None:
    x, y = np.linspace(0.5, 3.0, 26), np.linspace(-3.0, 0.0, 16)

    def error(a: float, b: float) -> float:
        return 0.2 * math.exp(1.5 * math.tanh(4 * (b + 1.25 * a - 0.7)))

    # the geometric mean of the extremes is the middle of the step
    line = synthetic(error, x, y).boundary()
    assert line is not None
    assert line["level"] == pytest.approx(0.2, rel=1e-3)
    # y = 0.7 - 1.25 x; linear between points 0.1 apart
    assert line["slope"] == pytest.approx(-1.25, abs=0.01)
    assert line["offset"] == pytest.approx(0.7, abs=0.01)
    assert line["points"] == 16 and line["spread"] < 0.01
    # another level is another contour: tanh = ln(level/0.2)/1.5
    level = 0.2 * math.exp(1.5 * math.tanh(0.8))
    line = synthetic(error, x, y, level=level).boundary()
    assert line is not None
    assert line["offset"] == pytest.approx(0.9, abs=0.01) and line["level"] == level


def test_a_contour_through_points_of_the_grid() -> None:
    line = synthetic(lambda a, b: math.exp(a + b), np.arange(6.0), np.arange(-4.0, 0.0), level=1.0).boundary()
    assert line is not None
    assert line["points"] == 4
    assert line["slope"] == pytest.approx(-1.0, abs=1e-12) and line["offset"] == pytest.approx(0.0, abs=1e-12)


def test_no_boundary() -> None:
    x, y = np.linspace(1.0, 2.0, 4), np.linspace(-2.0, -1.0, 4)
    assert synthetic(lambda a, b: 0.5, x, y).boundary() is None
    assert synthetic(lambda a, b: math.exp(a + b), x, y, level=1e-9).boundary() is None
    assert synthetic(lambda a, b: math.nan, x, y, level=1.0).boundary() is None
    one = PhaseDiagram(study({X: [1.0, 2.0]}), (X,), [{X: 1.0}, {X: 2.0}])
    assert one.boundary() is None


def test_axes_of_sizes_are_logarithms() -> None:
    names = ("network.width", "network.variance")
    table = synthetic(
        lambda a, b: math.exp(math.tanh(math.log10(a) + 2 * math.log10(b))),
        np.geomspace(10, 1e4, 31),
        np.geomspace(1e-2, 1, 11),
        names,
        changes={"network.width": 10, "network.variance": 1.0},
        level=1.0,
    )
    line = table.boundary()
    assert line is not None and line["slope"] == pytest.approx(-0.5, abs=0.01)
    assert line["offset"] == pytest.approx(0.0, abs=0.02)


# --- tables and figures ----------------------------------------------------------------------------------------------


def test_tables(tmp_path: Path, both: PhaseDiagram) -> None:
    for name in ("table.nc", "table.csv", "table.parquet"):
        both.save(tmp_path / name)
    table = xarray.load_dataset(tmp_path / "table.nc", engine="h5netcdf")
    parquet = pandas.read_parquet(tmp_path / "table.parquet")
    with open(tmp_path / "table.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(parquet) == table.sizes["row"] == len(both.rows) == 18
    for name, values in table.items():
        expected = [row[name] for row in both.rows]
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(parquet[name], expected)
        np.testing.assert_array_equal([float(line[str(name)]) for line in lines], expected)
    assert set(table) == set(both.rows[0])


def test_json(both: PhaseDiagram) -> None:
    found = json.loads(json.dumps(both.to_json(), allow_nan=False))
    assert found["axes"] == [X, Y] and len(found["points"]) == 9
    assert found["points"][4]["law_best_error"] == both.means()[4]["law_best_error"]
    line = both.boundary()
    assert found["boundary"] == line


def test_figures(tmp_path: Path, both: PhaseDiagram) -> None:
    figure = plot_phase_diagram(both)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles[:3] == ["best test error", "rank at the best step", "steps to the best error"] and len(titles) == 4
    first = figure.axes[0]
    assert (first.get_xlabel(), first.get_ylabel()) == ("g_w, width = d^g_w", "g_s, variance = d^g_s")
    labels = first.get_legend_handles_labels()[1]
    assert "s0 = a (lazy above, active below)" in labels and "sigma^4 w = 1 (infinite initial noise)" in labels
    lazyrich.plots.save_figure(figure, tmp_path / "plane.png")  # pyright: ignore[reportAttributeAccessIssue]
    assert (tmp_path / "plane.png").stat().st_size > 20_000
    assert "9 points, 18 runs" in diagram_lines(both)[0]


def test_diverged_points_survive(tmp_path: Path) -> None:
    # the rate is far too high where the start is large
    axes = {"network.threshold": [0.1, 10.0, 1e5], "training.learning_rate": [0.001, 0.01]}
    changes = {"network.threshold": 1.0}
    diagram = phase_diagram(study(axes, changes, steps=30, by="both"), tmp_path / "r", workers=1)
    diverged = [row["network_diverged"] for row in diagram.rows]
    assert diverged[:4] == [-1] * 4 and diverged[4] > 0 and diverged[5] > 0
    figure = plot_phase_diagram(diagram)
    figure.savefig(tmp_path / "plane.png")
    holes = [dict(row) for row in diagram.rows]
    for name in ("network_best_error", "law_best_error", "distance"):
        holes[2][name] = math.nan
    unknown = PhaseDiagram(diagram.study, diagram.axes, holes)
    plot_phase_diagram(unknown).savefig(tmp_path / "holes.png")
    points = json.loads(json.dumps(unknown.to_json(), allow_nan=False))["points"]
    assert points[2]["network_best_error"] is None and points[3]["network_best_error"] is not None
    unknown.save(tmp_path / "holes.csv")
    # too few points to fill a plane, or none
    for known in (2, 0):
        few = [row | ({} if index < known else {"network_best_error": math.nan}) for index, row in enumerate(holes)]
        plot_phase_diagram(PhaseDiagram(diagram.study, diagram.axes, few)).savefig(tmp_path / "few.png")


@pytest.mark.parametrize(
    ("axes", "changes"),
    [
        ({"network.width": [30, 300, 3000]}, {"network.width": 30}),
        ({"training.precision": ["float64", "float32"]}, {}),
        ({"training.precision": ["float64", "float32"], X: [1.5, 2.0]}, {}),
        ({X: [1.5], Y: [-2.0, -1.5]}, {}),
        # one value on an axis, on both sides of s0 = a
        ({"network.width": [50], "network.threshold": [0.1, 1000.0]}, {"network.threshold": 1.0}),
        ({"matrix.target.noise": [0.0, 0.5], X: [1.5, 2.0]}, {}),
        ({"training.seed": [0, 1], X: [1.5, 2.0]}, {}),
        ({X: [1.5, 2.0], Y: [-2.0, -1.5], "training.weight_decay": [0.0, 0.1]}, {}),
    ],
    ids=lambda value: " ".join(value),
)
def test_axes_of_all_kinds_are_drawn(tmp_path: Path, axes: dict[str, Any], changes: dict[str, Any]) -> None:
    diagram = phase_diagram(study(axes, changes, steps=20), tmp_path / "r", workers=1)
    plot_phase_diagram(diagram).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert len(diagram.means()) == math.prod(len(values) for values in axes.values())
    diagram.save(tmp_path / "table.parquet")
    json.dumps(diagram.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("axes", "changes", "options", "words"),
    [
        ({X: [1.0, 2.0]}, {}, {"refine": 1}, "diagram.refine: needs two axes of numbers"),
        ({X: [1.0, 2.0], "training.precision": ["float32"]}, {}, {"refine": 1}, "diagram.refine: needs two axes"),
        ({X: [1.0, 20.0]}, {}, {}, "diagram.axes: network.exponent: "),
        ({"network.width": [10, math.inf]}, {"network.threshold": 1.0}, {}, "diagram.by: an infinite network"),
        ({Y: [-1.0]}, {"training.horizon": 1.0}, {}, "training.horizon: a diagram takes steps"),
        ({Y: [-1.0]}, {"matrix.cost": "custom"}, {}, "matrix.cost: a function cannot be sent to workers"),
        (
            {Y: [-1.0]},
            {"matrix.cost": "completion", "matrix.observed": 0.9},
            {"signal_block": True},
            "diagram.signal_block: needs a factorization of rank 10 or less",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_run(
    tmp_path: Path, axes: dict[str, Any], changes: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(LazyrichError) as error:
        phase_diagram(study(axes, changes, **options), tmp_path / "r", workers=1)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_study_without_diagram(tmp_path: Path) -> None:
    with pytest.raises(LazyrichError, match=r"diagram: missing; add a \[diagram\] table"):
        phase_diagram(MatrixStudy(**study().problem.to_dict()), tmp_path / "r", workers=1)
    assert not (tmp_path / "r").exists()


# --- low-rank recovery -----------------------------------------------------------------------------------------------


# d = 200, k = 5: (g_s, g_w), steps, best test error and its spread, as measured with an independent implementation of
# descent from full random weights; the largest distance from the closed form, for the same matrix
RECOVERY = [
    (-1.5, 2.0, 130, 0.2755, 0.0013, 0.015),  # measured 0.01: A(0) again, of the size sigma^2 sqrt(w)
    (-1.0, 2.6, 110, 0.959, 0.006, None),  # A(0) is large: the closed form, which begins at 0, is not valid
    (-2.0, 0.6, 600, 0.0499, 0.0016, 0.005),  # measured 0.0025
]


@pytest.mark.parametrize(("variance", "width", "steps", "error", "spread", "distance"), RECOVERY)
def test_low_rank_recovery(
    variance: float, width: float, steps: int, error: float, spread: float, distance: float | None
) -> None:
    changes = {"matrix.shape": [200, 200], "matrix.target.rank": 5, X: width, Y: variance}
    problems = [study(steps=steps).problem.with_values(changes | {"training.seed": seed}) for seed in range(4)]
    found = [measure_point(problem, "network") for problem in problems]
    errors = np.asarray([float(run["network_best_error"]) for run in found])
    # between seeds 0.0035, 0.008 and 0.0013 (eight seeds); measured z-scores -1.4, -0.9 and -0.6
    assert abs(errors.mean() - error) < 3 * math.hypot(spread, errors.std(ddof=1) / 2)
    assert all(0 < run["network_best_step"] < steps for run in found)
    ranks = [int(run["network_rank"]) for run in found]
    assert ranks == [5] * 4 if distance else min(ranks) > 20
    for problem, run in zip(problems, found, strict=True):
        task = make_task(problem)
        threshold, last = float(run["threshold"]), float(run["network_best_time"]) * 2
        _, predicted = predicted_best(task, threshold, last)
        if distance:
            assert abs(predicted / float(run["network_best_error"]) - 1) < distance
    if variance == -2.0:  # active: all that is left is the noise in the signal's singular vectors
        assert errors.mean() == pytest.approx((2 * 5 * 200 - 25) / 200**2, rel=0.03)
