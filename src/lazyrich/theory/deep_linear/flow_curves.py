"""Gradient flow to a tolerance: nested grids, extrapolated, with an estimate of what is left."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import psutil

from lazyrich.errors import LazyrichError
from lazyrich.problem import DatasetData, Problem
from lazyrich.problem.spectrum import output_count
from lazyrich.theory.deep_linear.checks import residual
from lazyrich.theory.deep_linear.flow import FlowSolution, Unsettled, solve_flow
from lazyrich.theory.deep_linear.flow_limit import flow_limit, grid_length, rule_error
from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.outputs import law_memory, read_data_set
from lazyrich.theory.deep_linear.quadrature import DataMeasure, data_measure
from lazyrich.theory.deep_linear.richardson import combined, largest_nearby, largest_relative_error
from lazyrich.theory.deep_linear.solving import kernels_of, losses_by_output

# Intervals are halved until the loss is this accurate, if no tolerance is asked for.
_TOLERANCE = 1e-3
# The coarsest of the first grids has logarithmic steps of this length.
_FIRST_STEP = 0.5
# A grid this fine that is no better than one of twice its step has met rounding ..
_FINE = 256
# .. and no finer grid than this is tried.
_MOST_INTERVALS = 1024


@dataclass(frozen=True)
class FlowCurves:
    """The results of gradient flow.

    Attributes
    ----------
    times : ndarray, shape (nodes,)
    losses : dict of ndarray, shape (nodes, outputs)
        ``train_loss``, ``test_loss`` where there is one, and ``.._error``: estimates of what is wrong with them.
    slowest : ndarray, shape (nodes,)
        What the mean of the slowest mode of the target is, relative to its start.
    accuracies : dict of ndarray
        Of data with classes; see :func:`lazyrich.theory.deep_linear.outputs.read_data_set`.
    kernels : dict of ndarray
        As :func:`lazyrich.theory.deep_linear.predict.predict` gives them.
    statistics : dict
    """

    times: np.ndarray
    losses: dict[str, np.ndarray]
    slowest: np.ndarray
    accuracies: dict[str, np.ndarray]
    kernels: dict[str, np.ndarray]
    statistics: dict[str, float]


def flow_curves(problem: Problem, progress: Callable[[int, int], object] | None = None) -> FlowCurves:
    """Solve gradient flow on grids of ever half the step until the loss is known, or on the nodes asked for.

    A grid and the one of half its step give an extrapolated value at the nodes they share (second order). Three grids
    give two of those at every other node; a third of their difference, which bounds it for an order of two or more, is
    the estimate of the better one's error.

    Raises
    ------
    LazyrichError
        When a grid does not fit into memory, or the nodes asked for are too few for the equations to be solved.
    """
    asked, tolerance = problem.training.nodes, problem.training.tolerance or _TOLERANCE
    measure = data_measure(problem.data)
    length = grid_length(problem, measure)
    intervals = asked - 1 if asked is not None else 2 * max(4, math.ceil(length / (2 * _FIRST_STEP)))
    grids: list[FlowSolution] = []
    step, before = intervals // 2, math.inf
    while True:
        try:
            grids = [*grids, _solve(problem, step, measure, progress)][-3:]
        except Unsettled as error:
            grids = []
            if asked is not None or step >= _MOST_INTERVALS:
                what = f"the equations of node {error.node} of {step} do not settle"
                remedy = "give more nodes, or leave nodes out" if asked is not None else "shorten the horizon"
                raise LazyrichError("training.nodes", what, remedy) from None
        if len(grids) == 3:
            curves = _extrapolated(grids)
            error = curves.statistics["time_step_error"]
            met_rounding = step >= _FINE and error > 0.5 * before
            if asked is not None or error <= tolerance or met_rounding or not _fits(problem, 2 * step):
                return _with_samples(curves, grids, problem.data) if problem.data.kind == "dataset" else curves
            before = error
        step *= 2


def _solve(
    problem: Problem, intervals: int, measure: DataMeasure, progress: Callable[[int, int], object] | None
) -> FlowSolution:
    limit, times = flow_limit(problem, intervals + 1, measure)
    needed, free = required_memory(problem, limit), psutil.virtual_memory().available
    if needed > 0.8 * free:
        raise LazyrichError(
            "training.nodes",
            f"{intervals + 1} nodes need {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free",
            "give fewer nodes, outputs or blocks",
        )
    return solve_flow(limit, times, progress)


def required_memory(problem: Problem, limit: Limit) -> int:
    """Bytes that the solution on one grid holds at once, and its kernels."""
    per_level = (8 + 10 * (limit.skip != 0.0 and limit.blocks > 0)) + 4
    rows = len(limit.nodes.points) * limit.uses_nodes
    samples = law_memory(problem.data, limit.steps) if isinstance(problem.data, DatasetData) else 0
    return 8 * (per_level * (limit.blocks + 1) + rows + 12) * limit.size**2 + samples


def _fits(problem: Problem, intervals: int) -> bool:
    """Whether a grid may be tried that has not been asked for."""
    size = intervals * output_count(problem.data)
    rough = 8 * (30 * (problem.network.blocks + 1) + 80) * size**2
    return intervals <= _MOST_INTERVALS and rough < 0.5 * psutil.virtual_memory().available


def _extrapolated(grids: list[FlowSolution]) -> FlowCurves:
    every_other = kernels_of(grids[-1], np.arange(0, grids[-1].steps, 2))  # the nodes of the middle grid
    losses = _extrapolated_losses([losses_by_output(grid)[0] for grid in grids])
    middle, fine = grids[1:]
    kernels = {
        name: combined(kernel, fine_kernel)
        for (name, kernel), fine_kernel in zip(kernels_of(middle).items(), every_other.values(), strict=True)
    }
    return FlowCurves(
        times=middle.times,
        losses=losses,
        slowest=_slowest(middle),
        accuracies={},
        kernels=kernels,
        statistics={
            "residual": residual(middle),
            "time_step_error": largest_relative_error(losses, on_samples=fine.data.full_batch),
            "nodes": len(fine.times),
            "sweeps_per_node": fine.sweeps,
            "unsettled": max(grid.unsettled for grid in grids),
            "quadrature_nodes": len(fine.limit.nodes.points),
            "quadrature_error": rule_error(fine.limit),
        },
    )


def _extrapolated_losses(grids: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Losses at the nodes of the middle grid, and estimates of their errors."""
    coarse, middle, fine = grids
    losses = {}
    for name in middle:
        better = combined(np.log(middle[name]), np.log(fine[name][::2]))
        change = np.abs(better[::2] - combined(np.log(coarse[name]), np.log(middle[name][::2]))) / 3
        change = largest_nearby(change)
        between = np.maximum(change[:-1], change[1:])
        error = np.zeros_like(better)
        error[::2], error[1::2] = change, between
        losses[name] = np.exp(better)
        losses[f"{name}_error"] = error * losses[name]
    return losses


def _with_samples(curves: FlowCurves, grids: list[FlowSolution], data: DatasetData) -> FlowCurves:
    """With what is read of the samples of a data set: the loss of a held-out part, and accuracies."""
    read = [read_data_set(grid, data) for grid in grids]
    (_, middle), (_, fine) = read[1:]
    accuracies = {name: combined(values, fine[name][::2]).clip(0.0, 1.0) for name, values in middle.items()}
    losses = curves.losses | _extrapolated_losses([losses for losses, _ in read])
    return dataclasses.replace(curves, losses=losses, accuracies=accuracies)


def _slowest(grid: FlowSolution) -> np.ndarray:
    """Mean of v at the target's least eigenvalue above 0, relative to its start; of the output that has most of it."""
    points, vectors = grid.limit.target_points, grid.limit.target_vectors
    power = np.where(points[:, None] > 0, vectors**2, 0.0)
    present = power.sum(axis=1) > 0
    if not present.any():
        return np.ones(grid.limit.steps)
    place = int(np.argmin(np.where(present, points, np.inf)))
    output = int(np.argmax(power[place]))
    return grid.data.means[output :: grid.limit.outputs, place] / vectors[place, output]
