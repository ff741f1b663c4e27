"""Predict a training curve: problem in, trajectory out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.fields import lay_out
from lazyrich.problem import DatasetData, Problem
from lazyrich.theory.deep_linear.checks import residual
from lazyrich.theory.deep_linear.flow_curves import flow_curves
from lazyrich.theory.deep_linear.infinite_depth import depth_limit
from lazyrich.theory.deep_linear.outputs import read_data_set
from lazyrich.theory.deep_linear.solving import kernels_of, losses_by_output, solve_problem
from lazyrich.theory.deep_linear.strided_curves import StridedCurves, strided_curves
from lazyrich.trajectory import Outcome, Trajectory


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
    if not responses:  # at the ends of strides these would be answers to strides
        curves = strided_curves(problem, progress=progress)
        if curves is not None:
            return _at_steps(problem, curves, started)
    solution, error = solve_problem(problem, progress)
    losses, at_floor = losses_by_output(solution)
    accuracies: dict[str, np.ndarray] = {}
    if isinstance(problem.data, DatasetData):
        held_out_loss, accuracies = read_data_set(solution, problem.data)
        losses |= held_out_loss
    remains = residual(solution)  # before the kernels are copied: it needs room too
    return Trajectory(
        data=lay_out(problem, losses, kernels_of(solution, responses=responses), accuracies),
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


def _at_steps(problem: Problem, curves: StridedCurves, started: float) -> Trajectory:
    return Trajectory(
        data=lay_out(problem, curves.losses, curves.kernels, curves.accuracies, curves.steps),
        problem=problem,
        source="theory",
        outcome=Outcome(),
        statistics=curves.statistics | {"seconds": time.perf_counter() - started},
    )


def _predict_flow(
    problem: Problem, responses: bool, progress: Callable[[int, int], object] | None, started: float
) -> Trajectory:
    if responses:
        raise LazyrichError("responses", "gradient flow has none between two steps", "leave them out")
    curves = flow_curves(problem.at_depth(problem.network.blocks), progress)
    nodes = np.arange(len(curves.times))
    data = lay_out(problem, curves.losses, curves.kernels, curves.accuracies, nodes)
    data = data.assign_coords(time=("step", curves.times))
    data["slowest_mode"] = ("step", curves.slowest, {"long_name": "slowest mode of the target, relative to its start"})
    return Trajectory(
        data=data,
        problem=problem,
        source="theory",
        outcome=Outcome(),
        statistics=curves.statistics | {"seconds": time.perf_counter() - started},
    )
