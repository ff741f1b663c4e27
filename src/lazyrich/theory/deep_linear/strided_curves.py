"""Curves of gradient descent to a tolerance: strides and strides in halves, extrapolated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lazyrich.problem import Problem
from lazyrich.problem.spectrum import input_dimension
from lazyrich.problem.training import schedule_factors
from lazyrich.theory.deep_linear.checks import residual
from lazyrich.theory.deep_linear.quadrature import DataMeasure, data_measure
from lazyrich.theory.deep_linear.richardson import largest_nearby, largest_relative_error
from lazyrich.theory.deep_linear.solver import Solution
from lazyrich.theory.deep_linear.solving import kernels_of, losses_and_accuracies, solve_problem
from lazyrich.theory.deep_linear.strides import Strides, initial_edge, stride_ends

# Measured: strides that grow by a part g of the steps before them leave an error of about this times g^2.
_ERROR = 0.02
_LONGEST_GROWTH = 1.0
# The first strides are stable for this many times the largest eigenvalue of the initial kernel: it may grow. Where they
# were not, the two solutions differ by more than this, and the next strides are for more.
_ALLOWED, _UNSTABLE = 1.15, 0.1
# Beyond this rate times eigenvalue (gradient descent is stable up to 2) every step is solved.
_STEEPEST = 2.0
# More steps, one rate each, are not even listed: every step is asked for, and refused.
_MOST_STEPS = 10**7
# Strides are worth while if both solutions together have fewer nodes than this part of the steps.
_WORTH_WHILE = 0.6


@dataclass(frozen=True)
class StridedCurves:
    """The results of gradient descent at the steps where strides and their halves end.

    Attributes
    ----------
    steps : ndarray of int, shape (n,)
    losses : dict of ndarray, shape (n, outputs)
        ``train_loss``, ``test_loss`` where there is one, and ``.._error``: estimates of what is wrong with them.
    accuracies, kernels : dict of ndarray
        As :func:`lazyrich.theory.deep_linear.predict.predict` gives them.
    statistics : dict
    """

    steps: np.ndarray
    losses: dict[str, np.ndarray]
    accuracies: dict[str, np.ndarray]
    kernels: dict[str, np.ndarray]
    statistics: dict[str, float]


def strided_curves(
    problem: Problem,
    *,
    at: tuple[int, ...] = (),
    measure: DataMeasure | None = None,
    accuracies_on: Sequence[str] = ("train", "test"),
    progress: Callable[[int, int], object] | None = None,
) -> StridedCurves | None:
    """The curves of a training to its tolerance, or None where solving every step is what it takes.

    That is in trainings with momentum, with a list of rates or on fresh batches; near the edge of stability; and where
    there are so few steps, or such different ones, that nothing is gained.

    Parameters
    ----------
    problem : Problem
    at : tuple of int
        Steps that the result must have.
    measure : DataMeasure, optional
        That of the problem's data, if it is known already.
    accuracies_on : sequence of str
        The parts of a data set with classes whose accuracies are needed.
    progress : callable, optional
        Called with nodes done and nodes in all.
    """
    training, tolerance = problem.training, problem.training.tolerance
    smooth = training.mode in ("full-batch", "population") and not isinstance(training.learning_rate, list)
    if tolerance is None or not smooth or training.momentum > 0 or training.steps > _MOST_STEPS:
        return None
    factors = schedule_factors(training.schedule, training.steps, training.warmup or 0)
    factors /= factors.max()
    if training.warmup is not None and training.warmup < training.steps:
        at = (*at, training.warmup)  # where the rate has a kink a stride ends
    measure = measure or data_measure(problem.data)
    edge = initial_edge(problem, measure, input_dimension(problem.data))
    growth, allowed = min(_LONGEST_GROWTH, math.sqrt(tolerance / _ERROR)), _ALLOWED
    while True:
        ends = stride_ends(training.steps, growth, at)
        whole, halves = (Strides(ends, allowed * edge, parts, factors) for parts in (1, 2))
        if not allowed * edge <= _STEEPEST or whole.nodes + halves.nodes > _WORTH_WHILE * training.steps:
            return None
        pair = [_Solved(strides, *solve_problem(problem, progress, measure, strides)) for strides in (whole, halves)]
        if any(each.solution.diverged for each in pair):
            allowed *= 2
            continue
        curves = _curves(problem, *pair, accuracies_on)
        error = curves.statistics["step_error"]
        if error <= tolerance:
            return curves
        if not error < _UNSTABLE:
            allowed *= 1.5
        growth *= max(0.2, min(0.8, 0.8 * math.sqrt(tolerance / error)))


@dataclass(frozen=True)
class _Solved:
    """A solution in strides, and its quadrature's error."""

    strides: Strides
    solution: Solution
    quadrature_error: float


def _curves(problem: Problem, whole: _Solved, halves: _Solved, accuracies_on: Sequence[str]) -> StridedCurves:
    """Extrapolated values where strides end, and with the extrapolation of their neighbours where halves do."""
    (coarse, coarse_accuracies), (fine, fine_accuracies) = (
        losses_and_accuracies(each.solution, problem.data, each.strides.kept, accuracies_on) for each in (whole, halves)
    )
    ends, steps = whole.strides.steps, halves.strides.steps
    between, shared = _between(ends, steps), np.isin(steps, ends)
    losses = {}
    for name, values in fine.items():
        change = (np.log(values[shared]) - np.log(coarse[name])) / 3
        losses[name] = values * np.exp(between @ change)
        losses[f"{name}_error"] = losses[name] * (between @ largest_nearby(np.abs(change)))
    accuracies = {
        name: (values + between @ (values[shared] - coarse_accuracies[name]) / 3).clip(0.0, 1.0)
        for name, values in fine_accuracies.items()
    }
    outputs, kernels = fine["train_loss"].shape[1], {}
    rows, of_rows = np.repeat(shared, outputs), np.kron(between, np.eye(outputs))
    coarse_kernels, fine_kernels = (kernels_of(each.solution, each.strides.kept) for each in (whole, halves))
    for name, values in fine_kernels.items():
        change = (values[..., rows, :][..., rows] - coarse_kernels[name]) / 3
        kernels[name] = values + of_rows @ change @ of_rows.T
    return StridedCurves(
        steps=steps,
        losses=losses,
        accuracies=accuracies,
        kernels=kernels,
        statistics={
            "residual": residual(halves.solution),
            "step_error": largest_relative_error(losses, on_samples=halves.solution.data.full_batch),
            "nodes": whole.strides.nodes + halves.strides.nodes,
            "quadrature_nodes": len(halves.solution.limit.nodes.points),
            "quadrature_error": halves.quadrature_error,
        },
    )


def _between(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The matrix that interpolates linearly from steps `known` to steps `wanted`, shape (wanted, known)."""
    unit = np.eye(len(known))
    return np.stack([np.interp(wanted, known, column) for column in unit], axis=1)
