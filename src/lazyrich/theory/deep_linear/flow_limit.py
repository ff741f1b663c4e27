"""Gradient flow on a grid of times: the grid, the integrator's coefficients, and the limit they give.

An implicit method with nodes t_0 = 0 < t_1 < .. is one more linear optimiser: ``W(t_i) = d_i W(0) + sum_{j<=i} m_ij
G(t_j)``. Only the diagonal of m, zero for gradient descent, is new (docs/theory/long-horizons.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from lazyrich.problem import DatasetData, Problem, output_scale
from lazyrich.problem.spectrum import input_dimension
from lazyrich.theory.deep_linear.limit import Limit, limit_mode
from lazyrich.theory.deep_linear.optimizer import Memory
from lazyrich.theory.deep_linear.quadrature import DataMeasure, Measure

# The grid is linear up to this fraction of the fastest initial time scale, then logarithmic.
_ONSET = 0.1
# Times, in units of one over the largest and the least eigenvalue, between which sums over modes are reproduced.
_FIRST_TIME, _LAST_TIME = 0.03, 4.0
# Times a decade: measured largest relative error of the sums in between 3e-5 with 3, 3e-8 with 6 (power laws).
_TIMES_OF_MODES, _TIMES_OF_TARGET = 3, 6
# Eigenvalues below this (relative to the largest) are zero.
_ZERO = 1e-30


def flow_times(onset: float, horizon: float, nodes: int) -> np.ndarray:
    """Times ``onset (exp(j step) - 1)`` from 0 to `horizon`: halving the step keeps every node; shape (nodes,)."""
    stretched = np.log1p(horizon / onset) / (nodes - 1)
    times = onset * np.expm1(stretched * np.arange(nodes))
    times[-1] = horizon
    return times


def flow_memory(times: np.ndarray, rate: float, weight_decay: float) -> Memory:
    """Coefficients of ``dW/dt = rate (G - weight_decay W)`` by the second-order backward differences of variable step.

    ``W_i = a W_{i-1} + b W_{i-2} + c h_i rate (G_i - weight_decay W_i)`` with ``a = (1 + w)^2/(1 + 2w)``,
    ``b = -w^2/(1 + 2w)``, ``c = (1 + w)/(1 + 2w)``, w the ratio of the last two steps; the first step is implicit
    Euler. L-stable for w below 1 + sqrt(2) (Hairer & Wanner, "Solving Ordinary Differential Equations" I, III.5).

    Parameters
    ----------
    times : ndarray, shape (nodes,)
    rate, weight_decay : float

    Returns
    -------
    Memory
        `gain` is lower triangular, with a diagonal.
    """
    nodes = len(times)
    decay, gain = np.ones(nodes), np.zeros((nodes, nodes))
    steps = np.diff(times)
    for node in range(1, nodes):
        last, before, implicit = 1.0, 0.0, 1.0
        if node > 1:
            ratio = steps[node - 1] / steps[node - 2]
            last, before, implicit = np.array([(1 + ratio) ** 2, -(ratio**2), 1 + ratio]) / (1 + 2 * ratio)
        weight = implicit * steps[node - 1] * rate
        shrink = 1 + weight * weight_decay
        earlier = node - 2 if node > 1 else 0
        decay[node] = (last * decay[node - 1] + before * decay[earlier]) / shrink
        gain[node] = (last * gain[node - 1] + before * gain[earlier]) / shrink
        gain[node, node] += weight / shrink
    return Memory(decay, gain)


@dataclass(frozen=True)
class _Start:
    """What the scales of the initial network are made of."""

    rates: np.ndarray
    variances: list[float]
    richness_squared: float
    scale_squared: float
    sample_ratio: float


def _start(problem: Problem) -> _Start:
    network, training, data = problem.network, problem.training, problem.data
    dimension = input_dimension(data)
    richness_squared, scale_squared = output_scale(problem, dimension)
    samples = None if isinstance(data, DatasetData) else data.samples
    return _Start(
        # with a vanishing rate the buffer of momentum is the gradient over 1 - momentum
        rates=training.rates(network.blocks)[:, 0] / (1.0 - training.momentum),
        variances=[std**2 for std in network.init_stds],
        richness_squared=richness_squared,
        scale_squared=scale_squared,
        sample_ratio=np.inf if samples is None else samples / dimension,
    )


def grid_length(problem: Problem, measure: DataMeasure) -> float:
    """The logarithm that :func:`flow_times` divides into equal steps."""
    assert problem.training.horizon is not None  # the Problem has checked it
    return math.log1p(problem.training.horizon * _fastest_rate(problem, measure, _start(problem)) / _ONSET)


def flow_limit(problem: Problem, nodes: int, measure: DataMeasure) -> tuple[Limit, np.ndarray]:
    """The limit of a problem of gradient flow on so many nodes, and their times; `measure` is that of its data."""
    network, training, start = problem.network, problem.training, _start(problem)
    assert training.horizon is not None  # the Problem has checked it
    times = flow_times(_ONSET / _fastest_rate(problem, measure, start), training.horizon, nodes)
    decays = training.weight_decays(network.blocks)
    first, middle, last = (flow_memory(times, start.rates[i], decays[i]) for i in (0, 1, -1))
    points, vectors = measure.target_points, measure.target_vectors
    if vectors.shape[1] == 1:
        rule = spread_rule(Measure(points, vectors[:, 0] ** 2), _TIMES_OF_TARGET)
        points, vectors = rule.points, np.sqrt(rule.weights)[:, None]
    limit = Limit(
        steps=nodes,
        outputs=len(measure.noise),
        blocks=network.blocks,
        richness_squared=start.richness_squared,
        inverse_scale_squared=1.0 / start.scale_squared,
        skip=network.skip,
        branch=network.branch_multiplier,
        variances=start.variances,
        memories=[first, *[middle] * network.blocks, last],
        mode=limit_mode(problem),
        sample_ratio=start.sample_ratio,
        has_test_loss=problem.data.kind != "dataset",
        data=measure,
        nodes=spread_rule(measure.modes, _TIMES_OF_MODES),
        target_points=points,
        target_vectors=vectors,
    )
    return limit, times


def _fastest_rate(problem: Problem, measure: DataMeasure, start: _Start) -> float:
    """One over the shortest time in which the initial loss or the initial kernels change."""
    skip, branch, rates, variances = (
        problem.network.skip,
        problem.network.branch_multiplier,
        start.rates,
        start.variances,
    )
    gains = [skip**2 + branch**2 * variance for variance in variances[1:-1]]
    middle = float(np.prod(gains))
    kernel = rates[0] * variances[-1] * middle + rates[-1] * variances[0] * middle
    for gain, rate in zip(gains, rates[1:-1], strict=True):
        kernel += rate * branch**2 * variances[0] * variances[-1] * middle / gain
    modes, output = measure.modes, variances[0] * variances[-1] * middle / start.scale_squared
    power = (measure.target_vectors**2).sum(axis=1)
    error, gradient = (
        power @ measure.target_points**order + output * (modes.weights @ modes.points**order) for order in (1, 2)
    )
    gradient += (error + float(np.trace(measure.noise))) * (modes.weights @ modes.points) / start.sample_ratio
    lazy = kernel * gradient / error if error > 0 else 0.0
    rich = np.sqrt(start.richness_squared * rates[0] * rates[-1] * gradient * middle)
    return max(lazy, rich) or 1.0


def rule_error(limit: Limit) -> float:
    """Largest relative error of sums of ``lambda exp(-2 lambda t)`` over the modes and over the target, at any time."""
    pairs = []
    if limit.uses_nodes:
        pairs.append((limit.data.modes, limit.nodes))
    if limit.outputs == 1:
        target = Measure(limit.data.target_points, limit.data.target_vectors[:, 0] ** 2)
        pairs.append((target, Measure(limit.target_points, limit.target_vectors[:, 0] ** 2)))
    worst = 0.0
    for exact, rule in pairs:
        positive = exact.points[exact.points > _ZERO * exact.points.max(initial=0.0)]
        if len(positive):
            times = _mode_times(positive, 20)
            sums = [np.exp(-2 * np.outer(times, m.points)) @ (m.points * m.weights) for m in (exact, rule)]
            worst = max(worst, float(np.max(np.abs(sums[1] / sums[0] - 1.0))))
    return worst


def spread_rule(modes: Measure, times_per_decade: int) -> Measure:
    """A few of the modes with new weights, which make the same sums as all of them at times over many decades.

    The sums contain functions of ``lambda t``, smooth in log lambda at any t, like ``lambda^p exp(-2 lambda t)``; a
    polynomial rule would need of the order of ``sqrt(lambda_max t)`` nodes. Non-negative weights that are exact for
    p = 0, 1, 2 at so many times a decade, from before the largest eigenvalue is learned to after the least one is, are
    a linear feasibility problem, and its solver (Lawson & Hanson's non-negative least squares) returns a sparse vertex.
    """
    positive = modes.points > _ZERO * modes.points.max(initial=0.0)
    points, weights = modes.points[positive], modes.weights[positive]
    if len(points) == 0:
        return modes
    times = _mode_times(points, times_per_decade)
    decays = np.exp(-2 * np.outer(times, points)) * weights
    sums = np.concatenate([decays * points**power for power in range(3)])
    found, _ = nnls(sums / sums.sum(axis=1, keepdims=True), np.ones(len(sums)), maxiter=100 * len(points))
    kept = found > 0
    points, weights = points[kept], (weights * found)[kept]
    if not positive.all():
        points, weights = np.append(points, 0.0), np.append(weights, modes.weights[~positive].sum())
    return Measure(points, weights)


def _mode_times(points: np.ndarray, times_per_decade: int) -> np.ndarray:
    first, last = _FIRST_TIME / points.max(), _LAST_TIME / points.min()
    return np.geomspace(first, last, math.ceil(times_per_decade * math.log10(last / first)) + 1)
