"""Gradient flow of a factor pair, and of the anisotropic law, by an adaptive Runge-Kutta method of order 8."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.integrate import DOP853

from lazyrich.mixed_dynamics.costs import Cost
from lazyrich.mixed_dynamics.descent import State
from lazyrich.mixed_dynamics.start import Factors

# Error per step relative to the largest entry; against the closed form see tests.
_TOLERANCE = 1e-10


def factor_flow(factors: Factors, cost: Cost, times: np.ndarray, decay: float) -> Iterator[State]:
    """States of ``dW/dt = -dC/dW - decay W`` on both factors at rising times, the first of them 0."""
    shapes = factors[0].shape, factors[1].shape
    cut = factors[0].size

    def parts(state: np.ndarray) -> Factors:
        return state[:cut].reshape(shapes[0]), state[cut:].reshape(shapes[1])

    def slope(_: float, state: np.ndarray) -> np.ndarray:
        first, second = parts(state)
        _, gradient = cost(second @ first)
        return -np.concatenate([(second.T @ gradient).ravel(), (gradient @ first.T).ravel()]) - decay * state

    start = np.concatenate([factors[0].ravel(), factors[1].ravel()])
    for state in _integrate(slope, start, times):
        first, second = parts(state)
        product = second @ first
        yield product, cost(product)[0]


def anisotropic_flow(factors: Factors, cost: Cost, times: np.ndarray) -> Iterator[State]:
    """States of ``dA/dt = -(C2 G + G C1)`` with roots that keep what is known of the network's own start.

    ``C1 = sqrt(A^T A + C1(0)^2 - A0^T A0)`` and ``C2 = sqrt(A A^T + C2(0)^2 - A0 A0^T)`` with ``C1(0) = W1^T W1`` and
    ``C2(0) = W2 W2^T``: heuristic, not proved. At widths near the dimension the argument of a root can turn indefinite;
    negative eigenvalues are taken as 0.
    """
    first, second = factors
    start = second @ first
    inner, outer = first.T @ first, second @ second.T
    rest_in, rest_out = inner @ inner - start.T @ start, outer @ outer - start @ start.T

    def slope(_: float, state: np.ndarray) -> np.ndarray:
        product = state.reshape(start.shape)
        _, gradient = cost(product)
        return -(
            _root(product @ product.T + rest_out) @ gradient + gradient @ _root(product.T @ product + rest_in)
        ).ravel()

    for state in _integrate(slope, start.ravel(), times):
        product = state.reshape(start.shape)
        yield product, cost(product)[0]


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def _integrate(
    slope: Callable[[float, np.ndarray], np.ndarray], start: np.ndarray, times: np.ndarray
) -> Iterator[np.ndarray]:
    """The solution at rising times; NaN from where it cannot be continued."""
    yield start
    scale = max(float(np.abs(start).max()), 1e-30)
    solver = DOP853(slope, 0.0, start, t_bound=float(times[-1]), rtol=_TOLERANCE, atol=1e-3 * _TOLERANCE * scale)
    dense = None
    for time in times[1:]:
        while solver.t < time and solver.status == "running":
            solver.step()
            dense = solver.dense_output()
        if dense is None or solver.t < time:
            yield np.full_like(start, np.nan)
        else:
            yield dense(time)
