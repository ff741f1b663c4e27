"""A matrix problem made concrete: the target, the noise and the cost, drawn from the seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil

from lazyrich.errors import LazyrichError
from lazyrich.mixed_dynamics.costs import Cost, Custom, Factorization, Regression, Sensing
from lazyrich.mixed_dynamics.matrices import built_in_matrix, read_matrix
from lazyrich.problem.matrix import Matrix, MatrixProblem
from lazyrich.problem.network import LayerValues

# Streams of random numbers: what is drawn for one purpose does not depend on what is drawn for another.
_TARGET, _NOISE, _MASK, _INPUTS, _WEIGHTS = range(5)
# The default rate is this fraction of the reciprocal of the fastest rate in the problem.
_RATE_FRACTION = 1 / 50
# Singular modes of the target that are followed one by one.
_MOST_MODES = 10


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned.

    Attributes
    ----------
    cost : Cost
    truth : ndarray or None, shape (d_out, d_in)
        A*, for the test error; NaN where it is not known.
    tested : ndarray of bool or None, shape (d_out, d_in)
        The entries that the test error is taken over: all, or those not observed.
    left, right : ndarray, shape (d_out, modes) and (d_in, modes)
        Singular vectors of the modes that are followed.
    strengths : ndarray, shape (modes,)
        Their singular values.
    size : float
        The largest singular value of the target without noise.
    rank : int
        Number of signal modes; those followed if the target has no rank of its own.
    """

    cost: Cost
    truth: np.ndarray | None
    tested: np.ndarray | None
    left: np.ndarray
    right: np.ndarray
    strengths: np.ndarray
    size: float
    rank: int

    @property
    def shape(self) -> tuple[int, int]:
        """(d_out, d_in)."""
        return self.cost.shape

    def test_error(self, product: np.ndarray) -> float:
        """Mean squared distance from the truth over the tested entries; NaN if nothing is known."""
        if self.truth is None:
            return math.nan
        difference = product - self.truth
        if self.tested is None:
            return float(np.vdot(difference, difference)) / difference.size
        return float(np.mean(difference[self.tested] ** 2))


@dataclass(frozen=True)
class Start:
    """Width, variances and rate after the layers' own rates are taken into the weights.

    Rates eta1 and eta2 are the same training as one rate ``eta = sqrt(eta1 eta2)`` for weights ``W1 sqrt(eta/eta1)``
    and ``W2 sqrt(eta/eta2)``, step by step: the product A and its gradient do not notice.

    Attributes
    ----------
    width : int or inf
    variances : (float, float)
        Of the input and the output layer's entries; 0 at infinite width.
    threshold : float
        ``s0 = (w/2) (sigma1^2 + sigma2^2)`` of those variances.
    rate : float
        eta; 0 in gradient flow.
    """

    width: float
    variances: tuple[float, float]
    threshold: float
    rate: float


def generator(problem: MatrixProblem, stream: int = _WEIGHTS) -> np.random.Generator:
    """Random numbers for one purpose, from the problem's seed; by default for the weights."""
    return np.random.default_rng([problem.training.seed, stream])


def make_task(problem: MatrixProblem, own_cost: Cost | Callable[[Any], Any] | None = None) -> Task:
    """Draw or read what a problem is about.

    Parameters
    ----------
    problem : MatrixProblem
    own_cost : Cost or callable, optional
        For ``cost = "custom"``.

    Raises
    ------
    LazyrichError
        For a file that cannot be used, a mask with an empty row or column, singular inputs, a matrix that does not fit
        into memory.
    """
    matrix = problem.matrix
    if own_cost is not None and matrix.cost != "custom":
        raise LazyrichError("cost", f"is given beside matrix.cost = '{matrix.cost}'", "set matrix.cost = 'custom'")
    if matrix.shape is not None:
        _check_memory(problem, matrix.shape[0], matrix.shape[1])
    if matrix.inputs is not None:
        return _regression_on_files(matrix)
    truth, rank = _truth(problem)
    _check_memory(problem, *truth.shape)
    tested = None
    if matrix.cost == "custom":
        if own_cost is None:
            raise LazyrichError("matrix.cost", "'custom' needs a function", "use lazyrich.two_layer(problem, cost=..)")
        cost = _own_cost(own_cost, truth.shape)
    elif matrix.cost == "completion":
        known = ~np.isnan(truth)
        mask = known & (generator(problem, _MASK).random(truth.shape) < (matrix.observed or 1.0))
        _check_mask(mask)
        tested = known & ~mask if (known & ~mask).any() else None
        noise = _noise(problem, truth.shape)
        cost = Factorization(np.where(known, truth, 0.0) + noise, mask)
    else:
        cost = _cost(problem, truth)
    if cost.shape != truth.shape:
        raise LazyrichError("cost", f"is of shape {cost.shape}, the target {truth.shape}", "let them agree")
    followed = cost.target if cost.target is not None else np.where(np.isnan(truth), 0.0, truth)
    left, strengths, right = np.linalg.svd(followed, full_matrices=False)
    size = strengths[0] if cost.target is None else np.linalg.norm(truth, 2)
    if size == 0:
        raise LazyrichError("matrix.target", "is zero", "give a matrix to learn")
    modes = min(rank or int(np.count_nonzero(strengths > 1e-10 * strengths[0])), _MOST_MODES)
    # unknown entries and none held out: nothing to test on
    known_truth = truth if tested is not None or not np.isnan(truth).any() else None
    vectors = left[:, :modes], right[:modes].T
    return Task(cost, known_truth, tested, *vectors, strengths[:modes], float(size), rank or modes)


def _own_cost(cost: Cost | Callable[[Any], Any], shape: tuple[int, ...]) -> Cost:
    if hasattr(cost, "curvature"):
        return cost  # pyright: ignore[reportReturnType]
    return Custom(cost, (shape[0], shape[1]))


def _truth(problem: MatrixProblem) -> tuple[np.ndarray, int | None]:
    """A* and its rank, where it has one of its own."""
    matrix = problem.matrix
    target = matrix.target
    if target is None:
        raise LazyrichError("matrix.target", "missing", "say what is learned")
    if target.path is not None:
        return read_matrix(target.path, holes=matrix.cost == "completion"), None
    if target.name is not None:
        return built_in_matrix(target.name), None
    if matrix.shape is None:
        raise LazyrichError("matrix.shape", "missing", "add shape = [d_out, d_in]")
    rows, columns = matrix.shape
    random = generator(problem, _TARGET)
    if target.rank is not None:
        factors = [random.standard_normal((size, target.rank)) for size in (rows, columns)]
        return factors[0] @ factors[1].T / math.sqrt(target.rank), target.rank
    values = np.asarray(target.singular_values)
    left, right = (np.linalg.qr(random.standard_normal((size, len(values))))[0] for size in (rows, columns))
    return (left * values) @ right.T, int(np.count_nonzero(values))


def _noise(problem: MatrixProblem, shape: tuple[int, ...]) -> np.ndarray | float:
    level = problem.matrix.target.noise if problem.matrix.target else 0.0
    return level * generator(problem, _NOISE).standard_normal(shape) if level else 0.0


def _cost(problem: MatrixProblem, truth: np.ndarray) -> Cost:
    matrix = problem.matrix
    if matrix.cost == "factorization":
        return Factorization(truth + _noise(problem, truth.shape))
    random = generator(problem, _INPUTS)
    if matrix.cost == "sensing":
        probes = random.standard_normal((matrix.measurements or 0, *truth.shape))
        values = np.tensordot(probes, truth, axes=2)
        return Sensing(probes, values + _noise(problem, values.shape))
    inputs = random.standard_normal((matrix.samples or 0, truth.shape[1]))
    outputs = inputs @ truth.T
    return Regression.of_samples(inputs, outputs + _noise(problem, outputs.shape))


def _regression_on_files(matrix: Matrix) -> Task:
    inputs, outputs = read_matrix(matrix.inputs or ""), read_matrix(matrix.outputs or "")
    if len(inputs) != len(outputs):
        what = f"has {len(outputs)} rows, {matrix.inputs} has {len(inputs)}"
        raise LazyrichError(str(matrix.outputs), what, "give one row per sample in both")
    try:
        cost = Regression.of_samples(inputs, outputs)
    except LazyrichError as error:
        raise LazyrichError(str(matrix.inputs), error.what, error.remedy) from None
    left, strengths, right = np.linalg.svd(cost.target, full_matrices=False)
    if strengths[0] == 0:
        raise LazyrichError(str(matrix.outputs), "is zero", "give outputs to learn")
    modes = min(len(strengths), _MOST_MODES)
    return Task(cost, None, None, left[:, :modes], right[:modes].T, strengths[:modes], float(strengths[0]), modes)


def _check_mask(mask: np.ndarray) -> None:
    for axis, name in ((1, "row"), (0, "column")):
        empty = np.flatnonzero(~mask.any(axis=axis))
        if len(empty):
            what = f"no entry of {name} {empty[0] + 1} is observed, so nothing is learned about it"
            raise LazyrichError("matrix.observed", what, f"observe more, or remove the {name}")


def _check_memory(problem: MatrixProblem, rows: int, columns: int) -> None:
    """Refuse what cannot fit, before anything of that size is made."""
    matrix, network = problem.matrix, problem.network
    inner = rows + columns
    if problem.training.reduction in ("none", "qr"):
        inner = int(min(_width(problem, max(rows, columns)), 1e18))
    numbers = 12.0 * rows * columns + 4.0 * inner * (rows + columns)
    if problem.training.reduction == "gram":
        numbers += 4.0 * (rows + columns) ** 2
    numbers += float(matrix.measurements or 0) * rows * columns + 2.0 * float(matrix.samples or 0) * inner
    needed, available = 8 * numbers, psutil.virtual_memory().available
    if needed > available:
        key = "matrix.shape" if network.width == math.inf or inner == rows + columns else "network.width"
        what = f"needs about {needed / 2**30:.3g} GiB of memory, {available / 2**30:.3g} GiB are free"
        raise LazyrichError(key, what, "choose smaller sizes, or reduction = 'bartlett' for a wide network")


def _width(problem: MatrixProblem, dimension: int) -> float:
    network = problem.network
    if network.width is not None:
        return network.width
    width = round(float(dimension) ** float(network.exponent or 0.0))
    if not 1 <= width <= 10**15:
        what = f"{dimension}^{network.exponent:g} is no width from 1 to 10^15"
        raise LazyrichError("network.exponent", what, "choose another exponent")
    return width


def make_start(problem: MatrixProblem, task: Task) -> Start:
    """Width, variances, threshold and rate of a problem; see :class:`Start`.

    Raises
    ------
    LazyrichError
        When an exponent gives a width that is none.
    """
    dimension = max(task.shape)
    width = _width(problem, dimension)
    variance, threshold = problem.network.variance, problem.network.threshold
    if threshold is not None:
        size = float(threshold) if isinstance(threshold, int | float) else threshold.relative * task.size
        own = (size / width, size / width)
    elif isinstance(variance, LayerValues):
        own = (variance.input, variance.output)
    else:
        single = float(variance) if isinstance(variance, int | float) else dimension**variance.exponent  # pyright: ignore[reportOptionalMemberAccess]
        own = (single, single)
    rate = problem.training.learning_rate
    rates = (rate.input, rate.output) if isinstance(rate, LayerValues) else (rate or 1.0, rate or 1.0)
    mean_rate = math.sqrt(rates[0] * rates[1])
    variances = (own[0] * mean_rate / rates[0], own[1] * mean_rate / rates[1])
    if math.isinf(width):
        balance = 0.5 * (math.sqrt(rates[1] / rates[0]) + math.sqrt(rates[0] / rates[1]))
        size = float(threshold) if isinstance(threshold, int | float) else threshold.relative * task.size  # pyright: ignore[reportOptionalMemberAccess]
        s0 = size * balance
    else:
        s0 = 0.5 * width * (variances[0] + variances[1])
    if problem.training.horizon is not None:
        step = 0.0
    elif rate is None:
        # weights of a network narrower than the matrix are larger than s0 says: sigma^2 d
        weights = s0 * max(1.0, dimension / width)
        step = _RATE_FRACTION / (max(task.size, weights) * task.cost.curvature)
    else:
        step = mean_rate
    return Start(width, variances, s0, step)
