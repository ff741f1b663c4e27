"""Predict a training curve: problem in, trajectory out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import psutil

from lazyrich.errors import LazyrichError
from lazyrich.fields import lay_out
from lazyrich.problem import DatasetData, Problem
from lazyrich.theory.deep_linear.checks import loss_floor, quadrature_error, residual
from lazyrich.theory.deep_linear.flow_curves import flow_curves
from lazyrich.theory.deep_linear.infinite_depth import depth_limit
from lazyrich.theory.deep_linear.limit import take_limit
from lazyrich.theory.deep_linear.outputs import law_memory, read_data_set
from lazyrich.theory.deep_linear.quadrature import DataMeasure
from lazyrich.theory.deep_linear.solver import Solution, required_memory, solve
from lazyrich.trajectory import Outcome, Trajectory

# Nodes are added until the quadrature changes the loss by less than this.
_QUADRATURE_TOLERANCE = 1e-10
_MOST_NODES = 192


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what overflows has diverged
def predict(
    problem: Problem, *, responses: bool = False, progress: Callable[[int, int], object] | None = None
) -> Trajectory:
    """The training curve of a large network, without training one.

    Solves the dynamical mean field equations of deep linear networks (Bordelon & Pehlevan 2025;
    docs/theory/deep-linear.md) in one pass over the steps; in flow, and at infinite depth, on a few grids or depths,
    extrapolated (docs/theory/long-horizons.md).

    Parameters
    ----------
    problem : Problem
    responses : bool
        Also give ``feature_response`` (of h to a source in g) and ``gradient_response`` (of g to a source in h).
    progress : callable, optional
        Called with steps done and steps in all.

    Returns
    -------
    Trajectory
        Losses and kernels; its statistics hold the residual of the equations, the number of quadrature nodes and the
        estimate of their error. A training that diverges comes back with that outcome and its step.

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
    >>> predicted = lazyrich.predict(problem)
    >>> [round(float(loss), 4) for loss in predicted.train_loss[[0, 5, 39]]]
    [2.0, 0.2684, 0.0082]
    """
    if math.isinf(problem.network.blocks):
        return depth_limit(problem, partial(predict, responses=responses, progress=progress))
    started = time.perf_counter()
    if problem.training.mode == "flow":
        return _predict_flow(problem, responses, progress, started)
    solution, error = solve_to_tolerance(problem, progress)
    losses, at_floor = losses_by_output(solution)
    accuracies: dict[str, np.ndarray] = {}
    if isinstance(problem.data, DatasetData):
        held_out_loss, accuracies = read_data_set(solution, problem.data)
        losses |= held_out_loss
    remains = residual(solution)  # before the kernels are copied: it needs room too
    return Trajectory(
        data=lay_out(problem, losses, _kernels(solution, responses), accuracies),
        problem=problem,
        source="theory",
        outcome=Outcome("diverged", solution.steps) if solution.diverged else Outcome(),
        statistics={
            "residual": remains,
            "quadrature_nodes": len(solution.limit.nodes.points),
            "quadrature_error": error,
            "steps_at_rounding_floor": at_floor,
            "seconds": time.perf_counter() - started,
        },
    )


def _predict_flow(
    problem: Problem, responses: bool, progress: Callable[[int, int], object] | None, started: float
) -> Trajectory:
    if responses:
        raise LazyrichError("responses", "gradient flow has none between two steps", "leave them out")
    curves = flow_curves(problem.at_depth(problem.network.blocks), progress)
    data = lay_out(problem, curves.losses, curves.kernels, curves.accuracies, curves.times)
    data["slowest_mode"] = ("step", curves.slowest, {"long_name": "slowest mode of the target, relative to its start"})
    return Trajectory(
        data=data,
        problem=problem,
        source="theory",
        outcome=Outcome(),
        statistics=curves.statistics | {"seconds": time.perf_counter() - started},
    )


def solve_to_tolerance(
    problem: Problem,
    progress: Callable[[int, int], object] | None = None,
    measure: DataMeasure | None = None,
) -> tuple[Solution, float]:
    """Solve with as many quadrature nodes as the loss needs; returns the solution and the quadrature's error.

    `measure`, if it is known already, must be that of the problem's data.
    """
    if problem.training.mode == "flow" or math.isinf(problem.network.blocks):
        what = "averages and best rates are not predicted for gradient flow, nor at infinite depth"
        raise LazyrichError("training.mode", what, "train in steps, at a finite depth")
    problem = problem.at_depth(problem.network.blocks)
    _check_memory(problem, nodes=1)  # before anything that grows with the problem is made
    limit = take_limit(problem, measure=measure)
    while True:
        nodes = len(limit.nodes.points)
        _check_memory(problem, nodes)
        solution = solve(limit, progress)
        error = quadrature_error(solution)
        if error <= _QUADRATURE_TOLERANCE or nodes >= _MOST_NODES:
            return solution, error
        finer = take_limit(problem, math.ceil(1.5 * nodes), limit.data)
        if len(finer.nodes.points) == nodes:  # there are no more distinct modes
            return solution, error
        del solution  # it would stay while the next one is made
        limit = finer


def losses_by_output(solution: Solution) -> tuple[dict[str, np.ndarray], int]:
    """Losses by output, shape (steps, outputs), and at how many steps one of them is rounding error."""
    limit = solution.limit
    shape = (solution.steps, limit.outputs)
    size = solution.steps * limit.outputs
    error = np.diag(solution.data.weight_error)[:size].reshape(shape)
    noise = np.diag(limit.noise)
    if solution.data.full_batch:
        train, offset = np.diag(solution.data.sample_error)[:size].reshape(shape), np.zeros_like(noise)
    else:
        train, offset = error, noise
    floor = np.full(limit.outputs, 0.0) if size == 0 else np.array([loss_floor(column) for column in error.T])
    at_floor = int(np.count_nonzero(np.any((error < floor) | (train < floor), axis=1)))
    losses = {"train_loss": np.maximum(train, floor) + offset}
    if limit.has_test_loss:
        losses["test_loss"] = np.maximum(error, floor)
    return {name: np.repeat(values, limit.copies, axis=1) for name, values in losses.items()}, at_floor


def _kernels(solution: Solution, responses: bool) -> dict[str, np.ndarray]:
    """Kernels over (step, output), shapes (levels, n, n) or (n, n)."""
    limit, levels = solution.limit, solution.cascade.levels
    size = solution.steps * limit.outputs
    kernels = {
        "feature_kernel": np.stack([level.cov_hh[:size, :size] for level in levels]),
        "gradient_kernel": np.stack([level.cov_gg[:size, :size] for level in levels]),
        "error_kernel": solution.data.weight_error[:size, :size],
    }
    if solution.data.full_batch:
        kernels["sample_error_kernel"] = solution.data.sample_error[:size, :size]
    if responses:
        richness = math.sqrt(limit.richness_squared)
        kernels["feature_response"] = richness * np.stack([level.dh_db[:size, :size] for level in levels])
        kernels["gradient_response"] = richness * np.stack([level.dg_da[:size, :size] for level in levels])
    if limit.copies > 1:
        kernels = {name: np.kron(values, np.eye(limit.copies)) for name, values in kernels.items()}
    return kernels


def _check_memory(problem: Problem, nodes: int) -> None:
    needed, free = required_memory(problem, nodes), psutil.virtual_memory().available
    if isinstance(problem.data, DatasetData):
        needed += law_memory(problem.data, problem.training.steps)
    if needed > 0.8 * free:
        raise LazyrichError(
            "training.steps",
            f"the prediction needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free",
            "reduce steps, outputs or blocks",
        )
