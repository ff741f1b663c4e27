"""The page of two-layer networks, without widgets: settings to matrix problem, problem to what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.explorer.settings import Choice, Number, Setting, Text, Values
from lazyrich.mixed_dynamics import two_layer
from lazyrich.mixed_dynamics.point import measure_point
from lazyrich.mixed_dynamics.task import make_task
from lazyrich.problem import MatrixProblem
from lazyrich.trajectory import Trajectory

# Singular values that are drawn; points of the diagram along each axis, and between two redraws of it.
_MOST_VALUES, _SIDE, _OFTEN = 12, 13, 5
_COARSE = 4  # every fourth point of the diagram comes first
# A network's cost grows with its hidden units, of which no more than d_in + d_out are ever needed.
_DIAGRAM = {"training.stop": "best", "training.precision": "float32", "training.record": 2}

CURSOR: tuple[Setting, ...] = (
    Number("width", "Width w = d^g, g", 2.6, low=0.2, high=3.0),
    Number("variance", "Initial variance d^g, g", -2.2, low=-3.0, high=0.0),
)
MATRIX: tuple[Setting, ...] = (
    Number("dimension", "Rows and columns d", 40, low=8, high=100, whole=True),
    Choice("target", "Target", "rank", options={"rank": "random, of low rank", "values": "with these singular values"}),
    Number("rank", "Rank", 3, low=1, high=8, whole=True, only={"target": ("rank",)}),
    Text("values", "Singular values", "40, 20, 8, 2", only={"target": ("values",)}),
    Number("noise", "Noise", 1.0, low=0.0, high=3.0),
    Choice("cost", "Seen", "factorization", options={"factorization": "all entries", "completion": "some entries"}),
    Number("observed", "Fraction of entries seen", 0.5, low=0.05, high=1.0, only={"cost": ("completion",)}),
)
TRAINING: tuple[Setting, ...] = (
    Number("steps", "Steps", 400, low=50, high=2000, whole=True),
    Number("weight_decay", "Weight decay", 0.0, low=0.0, high=1.0),
    Choice(
        "solver",
        "Solved by",
        "network",
        options={"network": "the network itself", "law": "the mixed lazy-active law"},
    ),
    Number("seed", "Seed", 0, low=0, high=9999, whole=True),
)
VIEWS = {"run": "One run", "diagram": "Phase diagram"}
SETTINGS = (*CURSOR, *MATRIX, *TRAINING, Choice("view", "View", "run", options=VIEWS))


def problem_of(values: Values) -> MatrixProblem:
    """The matrix problem that the settings describe.

    Raises
    ------
    LazyrichError
        Where the settings contradict each other.
    """
    given = {setting.name: values[setting.name] for setting in SETTINGS if setting.shown(values)}
    target: dict[str, Any] = {"noise": given["noise"]}
    if "rank" in given:
        target["rank"] = min(int(given["rank"]), int(given["dimension"]))
    else:
        target["singular_values"] = _numbers(given["values"])
    size = int(given["dimension"])
    matrix: dict[str, Any] = {"shape": [size, size], "target": target, "cost": given["cost"]}
    if "observed" in given:
        matrix["observed"] = given["observed"]
    tables: dict[str, Any] = {
        "matrix": matrix,
        "network": {"exponent": given["width"], "variance": {"exponent": given["variance"]}},
        "training": {name: given[name] for name in ("steps", "weight_decay", "solver", "seed")},
    }
    return MatrixProblem(**tables)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise LazyrichError(
            "values", f"{text[:60]!r} are not numbers", "give numbers with commas between them"
        ) from None


@dataclass(frozen=True)
class Run:
    """One training over steps.

    Attributes
    ----------
    trajectory : Trajectory
    """

    trajectory: Trajectory

    @property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The largest singular values and whether they are active, shape (n, values), at steps, shape (n,)."""
        data = self.trajectory.data
        return (
            data["step"].values,
            data["singular_values"].values[:, :_MOST_VALUES],
            data["active"].values[:, :_MOST_VALUES],
        )

    @property
    def signal(self) -> int:
        """How many singular values the target has without its noise."""
        target = self.trajectory.problem.matrix.target  # pyright: ignore[reportAttributeAccessIssue]
        return target.rank or int(np.count_nonzero(target.singular_values))

    @property
    def half_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps at which the target's modes are predicted to be half learned, and the halves; within the run."""
        data, facts = self.trajectory.data, self.trajectory.statistics
        steps = data["half_time_predicted"].values / facts["learning_rate"]
        known = np.isfinite(steps) & (steps <= data["step"].values[-1])
        return steps[known], 0.5 * data["strength"].values[known]

    def summary(self) -> str:
        """Threshold, what turned active, and the best step, as sentences."""
        data, facts = self.trajectory.data, self.trajectory.statistics
        active = data["active_rank"].values
        width = f"Width {facts['width']:.4g}" if facts["width"] else "Infinite width"
        text = (
            f"{width}, threshold s0 = {facts['threshold']:.3g}, largest singular value of the "
            f"target {facts['target_size']:.3g}: {active[0]} singular values are active (above s0) at the start, "
            f"{active[-1]} at the end."
        )
        if np.isfinite(facts["best_test_error"]):
            text += (
                f" Best test error {facts['best_test_error']:.3g} at step {facts['best_step']}, with rank "
                f"{facts['best_numerical_rank']}."
            )
        if self.trajectory.outcome.kind != "finished":
            text += f" The training {self.trajectory.outcome}."
        return text


def run_of(problem: MatrixProblem) -> Run:
    """The run as :func:`lazyrich.two_layer` gives it."""
    return Run(two_layer(problem))


@dataclass(frozen=True)
class Diagram:
    """Best test errors over both exponents, as far as they are known.

    Attributes
    ----------
    variance, width : ndarray, shape (n,)
        The exponents g_s and g_w along the axes.
    error : ndarray, shape (width, variance)
        NaN where nothing is known yet, or nothing finite was found.
    lines : dict
        Borders by theory: pairs of points (g_s, g_w).
    """

    variance: np.ndarray
    width: np.ndarray
    error: np.ndarray
    lines: dict[str, np.ndarray]

    def filled(self) -> np.ndarray:
        """The error with the nearest known one wherever none is known yet."""
        from scipy.interpolate import NearestNDInterpolator

        rows, columns = np.nonzero(np.isfinite(self.error))
        if not len(rows):
            return self.error
        nearest = NearestNDInterpolator(np.stack([rows, columns], axis=1), self.error[rows, columns])
        return nearest(*np.indices(self.error.shape))


def diagram_axes() -> tuple[np.ndarray, np.ndarray]:
    """The exponents of the variance and of the width, over the ranges of their sliders."""
    width, variance = (setting for setting in CURSOR if isinstance(setting, Number))
    return np.linspace(variance.low, variance.high, _SIDE), np.linspace(width.low, width.high, _SIDE)


def diagram_of(problem: MatrixProblem, measure: Callable[[MatrixProblem], float] | None = None) -> Iterator[Diagram]:
    """Best test errors point by point, from a coarse grid to the whole.

    Parameters
    ----------
    problem : MatrixProblem
    measure : callable
        Default: :func:`best_error`.

    Yields
    ------
    Diagram
        After every few points.
    """
    variance, width = diagram_axes()
    lines = border_lines(problem)
    error = np.full((_SIDE, _SIDE), np.nan)
    rows, columns = np.indices(error.shape)
    # a point is the finer, the less its row and column are divided by two
    level = np.minimum(*(_level(index) for index in (rows, columns)))
    order = np.argsort(-level.ravel(), kind="stable")
    for count, index in enumerate(order, start=1):
        row, column = divmod(int(index), _SIDE)
        point = {"network.exponent": float(width[row]), "network.variance.exponent": float(variance[column])}
        error[row, column] = (measure or best_error)(problem.with_values({**point, **_DIAGRAM}))
        if count % _OFTEN == 0 or count == len(order):
            yield Diagram(variance, width, error.copy(), lines)


def _level(index: np.ndarray) -> np.ndarray:
    return np.where(index % _COARSE == 0, 2, np.where(index % (_COARSE // 2) == 0, 1, 0))


def best_error(problem: MatrixProblem) -> float:
    """The best test error of a run."""
    law = problem.training.solver == "law"
    found = measure_point(problem, "law" if law else "network")
    return float(found["law_best_error" if law else "network_best_error"])


def border_lines(problem: MatrixProblem) -> dict[str, np.ndarray]:
    """Where the theory has its borders, each as two points (g_s, g_w), shape (2, 2)."""
    task = make_task(problem)
    base = np.log(max(task.shape))
    size, rank = np.log(task.size) / base, np.log(max(task.rank, 1)) / base
    variance, _ = diagram_axes()
    ends = variance[[0, -1]]
    return {
        "s0 = a: lazy above, active below": np.stack([ends, size - ends], axis=1),
        "sigma^4 w = 1: infinite initial noise above": np.stack([ends, -2.0 * ends], axis=1),
        "width = rank: too narrow below": np.stack([ends, np.full(2, rank)], axis=1),
    }
