"""Predict the loss of averages of networks: problem in, trajectory out."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from lazyrich.fields import lay_out
from lazyrich.problem import DatasetData, Problem
from lazyrich.problem.datasets import load_data
from lazyrich.theory.deep_linear.checks import residual
from lazyrich.theory.deep_linear.outputs import data_set_law, losses_on
from lazyrich.theory.deep_linear.solver import Solution
from lazyrich.theory.deep_linear.solving import losses_by_output, solve_problem
from lazyrich.theory.deep_linear.variance import target_error, with_same_data, with_same_start
from lazyrich.trajectory import Outcome, Trajectory


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what overflows has diverged
def predict_averages(problem: Problem, *, progress: Callable[[int, int], object] | None = None) -> Trajectory:
    """The loss of one network and of averages of networks' outputs, without training one.

    Parameters
    ----------
    problem : Problem
    progress : callable, optional
        Called with steps done and steps in all.

    Returns
    -------
    Trajectory
        ``train_loss`` and ``test_loss`` of one network, and the same of the average of infinitely many:
        ``.._over_initialisations`` (different initial weights, the same training samples), and where training samples
        are random ``.._over_data`` (the same initial weights, different samples) and ``.._over_both``. For finite
        averages and a split into bias and variances see :func:`lazyrich.average_loss` and
        :func:`lazyrich.variance_parts`.

    Raises
    ------
    LazyrichError
        When the solution would not fit into memory, or a data file cannot be used.

    Examples
    --------
    >>> import lazyrich
    >>> problem = lazyrich.Problem(
    ...     network=lazyrich.Network(width=100, blocks=0),
    ...     data=lazyrich.GaussianData(dimension=100, samples=200),
    ...     training=lazyrich.Training(steps=40, learning_rate=0.1),
    ... )
    >>> predicted = predict_averages(problem)
    >>> averaged = predicted.data["test_loss_over_both"].values
    >>> bool((averaged[5:] < predicted.test_loss[5:]).all())
    True
    """
    started = time.perf_counter()
    solution, error = solve_problem(problem, progress)
    losses, at_floor = losses_by_output(solution)
    if isinstance(problem.data, DatasetData):
        losses |= _of_data_set(solution, problem.data)
    else:
        losses |= _of_random_data(solution)
    return Trajectory(
        data=lay_out(problem, losses, {}, {}),
        problem=problem,
        source="theory",
        outcome=Outcome("diverged", solution.steps) if solution.diverged else Outcome(),
        statistics={
            "residual": residual(solution),
            "quadrature_nodes": len(solution.limit.nodes.points),
            "quadrature_error": error,
            "steps_at_rounding_floor": at_floor,
            "seconds": time.perf_counter() - started,
        },
    )


def _of_random_data(solution: Solution) -> dict[str, np.ndarray]:
    noise = solution.limit.noise[0, 0]
    weight_error, sample_error = with_same_data(solution)
    same_data = _by_output(solution, weight_error)
    losses = {
        "test_loss_over_initialisations": same_data,
        "train_loss_over_initialisations": same_data + noise
        if sample_error is None
        else _by_output(solution, sample_error),
    }
    if not solution.data.population:
        losses["test_loss_over_data"] = _by_output(solution, with_same_start(solution))
        losses["test_loss_over_both"] = _by_output(solution, target_error(solution))
    return losses


def _of_data_set(solution: Solution, data: DatasetData) -> dict[str, np.ndarray]:
    residuals = np.diag(solution.limit.noise)
    losses = {"train_loss_over_initialisations": _by_output(solution, target_error(solution)) + residuals}
    loaded = load_data(data)
    if len(loaded.test_inputs):
        law, basis = data_set_law(solution, data)
        of_one, of_average = losses_on(law, loaded.test_inputs @ basis, loaded.test_targets)
        losses |= {"test_loss": of_one, "test_loss_over_initialisations": of_average}
    return losses


def _by_output(solution: Solution, kernel: np.ndarray) -> np.ndarray:
    """Equal-time entries, shape (steps, outputs)."""
    limit = solution.limit
    return np.repeat(np.maximum(np.diag(kernel), 0.0).reshape(-1, limit.outputs), limit.copies, axis=1)
