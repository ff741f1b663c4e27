"""Solve a problem with as many quadrature nodes as it needs, and read losses and kernels of the solution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil

from lazyrich.errors import LazyrichError
from lazyrich.problem import DatasetData, Problem
from lazyrich.problem.data import Data
from lazyrich.theory.deep_linear.checks import loss_floor, quadrature_error
from lazyrich.theory.deep_linear.flow import FlowSolution
from lazyrich.theory.deep_linear.limit import take_limit
from lazyrich.theory.deep_linear.outputs import law_memory, read_data_set
from lazyrich.theory.deep_linear.quadrature import DataMeasure
from lazyrich.theory.deep_linear.solver import Solution, required_memory, solve
from lazyrich.theory.deep_linear.strides import Strides

# Nodes are added until the quadrature changes the loss by less than this.
_QUADRATURE_TOLERANCE = 1e-10
_MOST_NODES = 192
# Bytes that need not be asked for: asking takes longer than a row of the solution.
_ALWAYS_FREE = 2**26


def solve_problem(
    problem: Problem,
    progress: Callable[[int, int], object] | None = None,
    measure: DataMeasure | None = None,
    strides: Strides | None = None,
) -> tuple[Solution, float]:
    """Solve with as many quadrature nodes as the loss needs; returns the solution and the quadrature's error.

    `measure`, if it is known already, must be that of the problem's data. With `strides`, the steps of the solution are
    their nodes.
    """
    if problem.training.mode == "flow" or math.isinf(problem.network.blocks):
        what = "averages and best rates are not predicted for gradient flow, nor at infinite depth"
        raise LazyrichError("training.mode", what, "train in steps, at a finite depth")
    problem = problem.at_depth(problem.network.blocks)
    _check_memory(problem, 1, strides)  # before anything that grows with the problem is made
    limit = take_limit(problem, measure=measure, strides=strides)
    while True:
        nodes = len(limit.nodes.points)
        _check_memory(problem, nodes, strides)
        solution = solve(limit, progress)
        error = quadrature_error(solution)
        if error <= _QUADRATURE_TOLERANCE or nodes >= _MOST_NODES:
            return solution, error
        finer = take_limit(problem, math.ceil(1.5 * nodes), limit.data, strides)
        if len(finer.nodes.points) == nodes:  # there are no more distinct modes
            return solution, error
        del solution  # it would stay while the next one is made
        limit = finer


def losses_by_output(solution: Solution | FlowSolution) -> tuple[dict[str, np.ndarray], int]:
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


def losses_and_accuracies(
    solution: Solution,
    data: Data,
    kept: np.ndarray | None = None,
    accuracies_on: Sequence[str] = ("train", "test"),
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Losses by output, that of a data set's held-out part included, and its accuracies, at the steps `kept` or at all.

    See :func:`lazyrich.theory.deep_linear.outputs.read_data_set`.
    """
    losses, accuracies = losses_by_output(solution)[0], {}
    if kept is not None:
        losses = {name: values[kept] for name, values in losses.items()}
    if isinstance(data, DatasetData):
        held_out, accuracies = read_data_set(solution, data, kept, accuracies_on)
        losses |= held_out
    return losses, accuracies


def kernels_of(
    solution: Solution | FlowSolution, kept: np.ndarray | None = None, responses: bool = False
) -> dict[str, np.ndarray]:
    """Kernels over (step, output) of the steps or nodes `kept`, or of all; shapes (levels, n, n) or (n, n)."""
    limit, levels = solution.limit, solution.cascade.levels
    part: Any = (slice(solution.steps * limit.outputs),) * 2
    if kept is not None:
        rows = (kept[:, None] * limit.outputs + np.arange(limit.outputs)).ravel()
        part = np.ix_(rows, rows)
    kernels = {
        "feature_kernel": np.stack([level.cov_hh[part] for level in levels]),
        "gradient_kernel": np.stack([level.cov_gg[part] for level in levels]),
        "error_kernel": solution.data.weight_error[part],
    }
    if solution.data.full_batch:
        kernels["sample_error_kernel"] = solution.data.sample_error[part]
    if responses:
        richness = math.sqrt(limit.richness_squared)
        kernels["feature_response"] = richness * np.stack([level.dh_db[part] for level in levels])
        kernels["gradient_response"] = richness * np.stack([level.dg_da[part] for level in levels])
    if limit.copies > 1:
        kernels = {name: np.kron(values, np.eye(limit.copies)) for name, values in kernels.items()}
    return kernels


def _check_memory(problem: Problem, nodes: int, strides: Strides | None) -> None:
    steps = problem.training.steps if strides is None else strides.nodes
    needed = required_memory(problem, nodes, steps)
    if isinstance(problem.data, DatasetData):
        needed += law_memory(problem.data, steps)
    if needed > _ALWAYS_FREE and needed > 0.8 * (free := psutil.virtual_memory().available):
        raise LazyrichError(
            "training.steps",
            f"the prediction needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free",
            ("set training.tolerance, or " if problem.training.tolerance is None else "")
            + "reduce steps, outputs or blocks",
        )
