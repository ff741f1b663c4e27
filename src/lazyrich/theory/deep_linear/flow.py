"""Gradient flow to long times: the equations on an implicit grid of times, one node after another.

Rows depend on themselves, since features and gradients of a node do. A sweep computes the row anew from its last guess,
and Anderson's mixing of the last few sweeps makes 5 to 10 of them enough (docs/theory/long-horizons.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from lazyrich.theory.deep_linear.flow_cascade import FlowCascade
from lazyrich.theory.deep_linear.flow_data import FlowData
from lazyrich.theory.deep_linear.limit import Limit

# A row has settled when no entry of it changes by more than this, relative to the row's largest entry ..
_SETTLED = 1e-8
# .. or to this much of the largest entry of all rows before it: less is rounding.
_FAINT = 1e-6
# Sweeps whose results are mixed, and sweeps after which a row is given up.
_MIXED, _MOST_SWEEPS = 5, 80
# A row may stop here, good enough for a loss to 0.01%, once sweeps gain no more: what is left is rounding.
_TOLERABLE = 1e-5
_PATIENCE = 3


class Unsettled(ArithmeticError):
    """The rows of a node did not settle: the grid is too coarse."""

    def __init__(self, node: int) -> None:
        super().__init__(f"node {node}")
        self.node = node


@dataclass(frozen=True)
class FlowSolution:
    """The solved equations on one grid.

    Attributes
    ----------
    limit : Limit
    times : ndarray, shape (nodes,)
    data : FlowData
    cascade : FlowCascade
    sweeps : float
        Average number of sweeps per node.
    unsettled : float
        Largest relative change in the last sweep of any node.
    """

    limit: Limit
    times: np.ndarray
    data: FlowData
    cascade: FlowCascade
    sweeps: float
    unsettled: float

    @property
    def steps(self) -> int:
        """Nodes that were solved: all of them."""
        return self.limit.steps


def solve_flow(limit: Limit, times: np.ndarray, progress: Callable[[int, int], object] | None = None) -> FlowSolution:
    """Solve the equations of gradient flow on one grid.

    Parameters
    ----------
    limit : Limit
        From :func:`lazyrich.theory.deep_linear.flow_limit.flow_limit`.
    times : ndarray, shape (nodes,)
    progress : callable, optional
        Called with nodes done and nodes in all.

    Raises
    ------
    Unsettled
        When the rows of a node do not settle.
    """
    cascade, data = FlowCascade(limit), FlowData(limit)
    sweeps, worst = 0, 0.0
    largest = [np.zeros((len(row), 1, 1)) for row in cascade.rows(0)]
    threads = threadpool_limits(limits=1, user_api="blas") if limit.outputs == 1 else nullcontext()
    with threads, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for node in range(limit.steps):
            count, change = _solve_node(node, cascade, data, largest)
            sweeps, worst = sweeps + count, max(worst, change)
            if progress is not None:
                progress(node + 1, limit.steps)
    return FlowSolution(limit, times, data, cascade, sweeps / limit.steps, worst)


def _solve_node(node: int, cascade: FlowCascade, data: FlowData, largest: list[np.ndarray]) -> tuple[int, float]:
    """Sweep over the rows of a node until they settle; returns the number of sweeps and the last change."""
    if node == 0:  # nothing has been learned: the first sweep is exact
        _sweep(node, cascade, data)
        _remember(largest, cascade.rows(node))
        return 1, 0.0
    cascade.guess(node)
    if node == 1:  # at the start nothing is learned: its rows are no measure of the next one's sizes
        _sweep(node, cascade, data)
    guesses, results, changes = [], [], []
    guess = cascade.rows(node)
    scales = [np.maximum(_sizes(row), _FAINT * size) for row, size in zip(guess, largest, strict=True)]
    guesses.append(_flat(guess, scales))
    for _ in range(_MOST_SWEEPS):
        _sweep(node, cascade, data)
        results.append(_flat(cascade.rows(node), scales))
        changes.append(float(np.abs(results[-1] - guesses[-1]).max()))
        if not np.isfinite(changes[-1]):
            raise Unsettled(node)
        if changes[-1] < _SETTLED or _stands_still(changes):
            break
        guesses.append(_mixed(guesses[-_MIXED:], results[-_MIXED:]))
        cascade.put(node, _unflat(guesses[-1], guess, scales))
    if changes[-1] > _TOLERABLE:
        raise Unsettled(node)
    _remember(largest, cascade.rows(node))
    return len(changes), changes[-1]


def _stands_still(changes: list[float]) -> bool:
    return len(changes) > _PATIENCE and changes[-1] < _TOLERABLE and changes[-1] > 0.5 * min(changes[:-_PATIENCE])


def _sweep(node: int, cascade: FlowCascade, data: FlowData) -> None:
    now, upto = cascade.slices(node)
    cascade.backward(node)
    inputs = cascade.levels[0]
    if not data.advance(node, inputs.dg_da[now, upto], inputs.cov_gg[upto, upto]):
        raise Unsettled(node)
    source = cascade.initial(0, node, cascade.limit.variances[0]) * data.data_gradient[now, upto]
    cascade.forward(node, data.memory_row(node), source)


def _mixed(guesses: list[np.ndarray], results: list[np.ndarray]) -> np.ndarray:
    """The next guess by Anderson's mixing: the combination of results whose changes cancel best.

    Source: Walker & Ni, "Anderson acceleration for fixed-point iterations" (2011), in differences.
    """
    if len(results) == 1:
        return results[-1]
    changes = np.array(results) - np.array(guesses)
    factors = np.linalg.lstsq(np.diff(changes, axis=0).T, changes[-1], rcond=1e-12)[0]
    return results[-1] - factors @ np.diff(np.array(results), axis=0)


def _sizes(rows: np.ndarray) -> np.ndarray:
    return np.abs(rows).max(axis=(1, 2), keepdims=True)


def _remember(largest: list[np.ndarray], rows: list[np.ndarray]) -> None:
    for size, row in zip(largest, rows, strict=True):
        np.maximum(size, _sizes(row), out=size)


def _flat(rows: list[np.ndarray], scales: list[np.ndarray]) -> np.ndarray:
    """All rows of a node as one vector of entries of the order of 1."""
    parts = [
        np.divide(row, scale, out=np.zeros_like(row), where=scale > 0) for row, scale in zip(rows, scales, strict=True)
    ]
    return np.concatenate([part.ravel() for part in parts])


def _unflat(vector: np.ndarray, like: list[np.ndarray], scales: list[np.ndarray]) -> list[np.ndarray]:
    parts = np.split(vector, np.cumsum([row.size for row in like])[:-1])
    return [part.reshape(row.shape) * scale for part, row, scale in zip(parts, like, scales, strict=True)]
