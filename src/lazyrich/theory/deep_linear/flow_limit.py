"""Gradient flow on a grid of times: the grid, the integrator's coefficients, and the limit they give.

An implicit method with nodes t_0 = 0 < t_1 < .. is one more linear optimiser: ``W(t_i) = d_i W(0) + sum_{j<=i} m_ij
G(t_j)``. Only the diagonal of m, zero for gradient descent, is new (docs/theory/long-horizons.md).
"""

from __future__ import annotations

import numpy as np

from lazyrich.problem import Problem, output_scale
from lazyrich.problem.spectrum import input_dimension
from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.optimizer import Memory
from lazyrich.theory.deep_linear.quadrature import DataMeasure, Measure, data_measure

# The grid is linear up to this fraction of the fastest initial time scale, then logarithmic.
_ONSET = 0.1
# Eigenvalues are grouped into ranges of this ratio, each with a Gauss rule of its own.
_RANGE = 8.0
_LEAST_ORDER, _MOST_ORDER = 3, 12
# Sums over modes of exp(-2 lambda t) are exact to this, relative to the sum, at every t.
_SUM_TOLERANCE = 1e-7
# Loss that no node of the grid can still see: exp(-2 lambda t) of the slowest mode.
_LEARNED = 40.0


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
            last, before, implicit = ((1 + ratio) ** 2, -(ratio**2), 1 + ratio) / np.float64(1 + 2 * ratio)
        weight = implicit * steps[node - 1] * rate
        shrink = 1 + weight * weight_decay
        earlier = node - 2 if node > 1 else 0
        decay[node] = (last * decay[node - 1] + before * decay[earlier]) / shrink
        gain[node] = (last * gain[node - 1] + before * gain[earlier]) / shrink
        gain[node, node] += weight / shrink
    return Memory(decay, gain)


def flow_limit(problem: Problem, nodes: int, measure: DataMeasure | None = None) -> tuple[Limit, np.ndarray]:
    """The limit of a problem of gradient flow on so many nodes, and their times."""
    network, training, data = problem.network, problem.training, problem.data
    assert training.horizon is not None  # the Problem has checked it
    dimension = input_dimension(data)
    richness_squared, scale_squared = output_scale(problem, dimension)
    full_batch = getattr(data, "samples", None) is not None
    ratio = data.samples / dimension if full_batch else np.inf  # pyright: ignore[reportAttributeAccessIssue]
    # with a vanishing rate the buffer of momentum is the gradient over 1 - momentum
    rates = training.rates(network.blocks)[:, 0] / (1.0 - training.momentum)
    decays = training.weight_decays(network.blocks)
    variances = [std**2 for std in network.init_stds]
    measure = measure or data_measure(data)
    scale = _fastest_rate(problem, measure, rates, variances, richness_squared, scale_squared, ratio)
    times = flow_times(_ONSET / scale, training.horizon, nodes)
    first, middle, last = (flow_memory(times, rates[i], decays[i]) for i in (0, 1, -1))
    compressed = _spread_rule(measure.modes)
    points, vectors = measure.target_points, measure.target_vectors
    if vectors.shape[1] == 1:
        rule = _spread_rule(Measure(points, vectors[:, 0] ** 2))
        points, vectors = rule.points, np.sqrt(rule.weights)[:, None]
    limit = Limit(
        steps=nodes,
        outputs=len(measure.noise),
        blocks=network.blocks,
        richness_squared=richness_squared,
        inverse_scale_squared=1.0 / scale_squared,
        skip=network.skip,
        branch=network.branch_multiplier,
        variances=variances,
        memories=[first, *[middle] * network.blocks, last],
        mode="full-batch" if full_batch else "population",
        sample_ratio=ratio,
        has_test_loss=data.kind != "dataset",
        data=measure,
        nodes=compressed,
        target_points=points,
        target_vectors=vectors,
    )
    return limit, times


def _fastest_rate(
    problem: Problem,
    measure: DataMeasure,
    rates: np.ndarray,
    variances: list[float],
    richness_squared: float,
    scale_squared: float,
    sample_ratio: float,
) -> float:
    """One over the shortest time in which the initial loss or the initial kernels change."""
    skip, branch = problem.network.skip, problem.network.branch_multiplier
    gains = [skip**2 + branch**2 * variance for variance in variances[1:-1]]
    middle = float(np.prod(gains))
    kernel = rates[0] * variances[-1] * middle + rates[-1] * variances[0] * middle
    for gain, rate in zip(gains, rates[1:-1], strict=True):
        kernel += rate * branch**2 * variances[0] * variances[-1] * middle / gain
    modes, start = measure.modes, variances[0] * variances[-1] * middle / scale_squared
    power = (measure.target_vectors**2).sum(axis=1)
    error, gradient = (
        power @ measure.target_points**order + start * (modes.weights @ modes.points**order) for order in (1, 2)
    )
    noise = float(np.trace(measure.noise))
    gradient = gradient + (error + noise) * (modes.weights @ modes.points) / sample_ratio
    lazy = kernel * gradient / error if error > 0 else 0.0
    rich = np.sqrt(richness_squared * rates[0] * rates[-1] * gradient * middle)
    return max(lazy, rich) or 1.0


def _spread_rule(modes: Measure) -> Measure:
    """A few nodes for all modes, good at every time: Gauss rules on ranges of eigenvalues of a constant ratio.

    The sums contain functions of ``lambda t`` for t over many decades, smooth in log lambda at any t; a polynomial
    rule over all eigenvalues would need of the order of ``sqrt(lambda_max t)`` nodes.
    """
    largest = modes.points.max(initial=0.0)
    if largest <= 0:
        return modes
    positive = modes.points > 1e-13 * largest
    ranges = np.floor(np.log(largest / np.where(positive, modes.points, largest)) / np.log(_RANGE)).astype(int)
    least = modes.points[positive].min()
    times = np.geomspace(0.01 / largest, _LEARNED / least, 400)
    decay = np.exp(-2 * np.outer(times, modes.points[positive]))
    exact = decay @ (modes.weights * modes.points)[positive]
    for order in range(_LEAST_ORDER, _MOST_ORDER + 1):
        parts = [
            Measure(modes.points[part], modes.weights[part]).gauss(order)
            for part in (positive & (ranges == index) for index in np.unique(ranges[positive]))
        ]
        points, weights = (np.concatenate([getattr(part, name) for part in parts]) for name in ("points", "weights"))
        error = np.exp(-2 * np.outer(times, points)) @ (weights * points) - exact
        if np.all(np.abs(error) <= _SUM_TOLERANCE * exact):
            break
    if not positive.all():
        points, weights = np.append(points, 0.0), np.append(weights, modes.weights[~positive].sum())
    return Measure(points, weights)
