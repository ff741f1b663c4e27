"""Checks of a solution against its own equations: the residual, and the error of the quadrature."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lazyrich.theory.deep_linear.cascade import Cascade
from lazyrich.theory.deep_linear.data_level import DataLevel
from lazyrich.theory.deep_linear.flow import FlowSolution
from lazyrich.theory.deep_linear.flow_cascade import FlowCascade
from lazyrich.theory.deep_linear.flow_data import FlowData
from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.optimizer import Memory
from lazyrich.theory.deep_linear.products import SHORT
from lazyrich.theory.deep_linear.solver import Solution

_CHUNK = 4096  # modes handled at once
_LONG_ACCURACY = 1e-13  # of losses, in units of the initial one: measured 1e-14 to 1e-13 over 600 steps


def residual(solution: Solution | FlowSolution) -> float:
    """How far the solution is from solving the equations, as the largest relative error over all of them.

    The equations are tried in their matrix form, with inverses and sandwiched covariances, on one random vector
    (Freivalds' check): that costs O(levels T^2), and shares no formula with the row updates of the solver.
    """
    limit, size = solution.limit, solution.steps * solution.limit.outputs
    if size == 0:
        return 0.0
    probe = np.random.default_rng(0).standard_normal(size)
    kernels = _Kernels(limit, size)
    errors = [*_cascade_errors(solution.cascade, solution.data, kernels, probe)]
    errors += _data_errors(solution.cascade, solution.data, kernels, probe)
    return float(np.max(errors))  # NaN if one of them is, unlike max()


class _Kernels:
    """Full matrices of the optimiser's coefficients."""

    def __init__(self, limit: Limit, size: int) -> None:
        self.limit, self.size = limit, size

    def _memory(self, layer: int) -> Memory:
        return self.limit.memories[layer]

    def _spread(self, matrix: np.ndarray) -> np.ndarray:
        outputs = self.limit.outputs
        return np.kron(matrix, np.ones((outputs, outputs)))[: self.size, : self.size]

    def initial(self, layer: int, kernel: np.ndarray) -> np.ndarray:
        """``sigma^2 d(t) d(s) kernel(t, s)``."""
        decay = np.repeat(self._memory(layer).decay, self.limit.outputs)[: self.size]
        return self.limit.variances[layer] * decay[:, None] * decay * kernel

    def block(self, layer: int, response: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """P / kappa or Q / kappa of a layer."""
        scale = self.limit.branch**2 if 0 < layer <= self.limit.blocks else 1.0
        return scale * (self.initial(layer, response) + self._spread(self._memory(layer).gain) * covariance)

    def output(self) -> tuple[np.ndarray, np.ndarray]:
        """R / kappa and cov(b) at the last level."""
        eye = np.eye(self.limit.outputs)
        memory = self._memory(-1)
        gain = np.kron(memory.gain, eye)[: self.size, : self.size]
        source = np.kron(self.limit.variances[-1] * np.outer(memory.decay, memory.decay), eye)
        return gain, source[: self.size, : self.size]


def _relative(difference: np.ndarray, reference: np.ndarray) -> float:
    # the largest entry rather than the square root of a sum of squares, which may overflow
    scale, error = np.abs(reference).max(initial=0.0), np.abs(difference).max(initial=0.0)
    return float(error / scale) if scale > 0 else float(error)


def _cascade_errors(
    cascade: Cascade | FlowCascade, data: DataLevel | FlowData, kernels: _Kernels, probe: np.ndarray
) -> list[float]:
    limit, square = cascade.limit, cascade.limit.richness_squared
    errors = []
    for index, level in enumerate(cascade.levels):
        left, source_a = _side_of_input(cascade, data, kernels, index)
        right, source_b = _side_of_output(cascade, kernels, index)
        part = (slice(0, kernels.size), slice(0, kernels.size))
        dh_da, dh_db, dg_da, dg_db = (getattr(level, name)[part] for name in ("dh_da", "dh_db", "dg_da", "dg_db"))
        errors += [
            _relative(dh_da @ probe - probe - square * (left @ (right @ (dh_da @ probe))), probe),
            _relative(dg_db @ probe - probe - square * (right @ (left @ (dg_db @ probe))), probe),
            _relative(dh_db @ probe - left @ (dg_db @ probe), dh_db @ probe),
            _relative(dg_da @ probe - right @ (dh_da @ probe), dg_da @ probe),
        ]
        features = dh_da @ source_a(dh_da.T @ probe) + square * (dh_db @ source_b(dh_db.T @ probe))
        gradients = dg_db @ source_b(dg_db.T @ probe) + square * (dg_da @ source_a(dg_da.T @ probe))
        errors.append(_relative(level.cov_hh[part] @ probe - features, features))
        errors.append(_relative(level.cov_gg[part] @ probe - gradients, gradients))
        if cascade.skips and index < limit.blocks:
            block = kernels.block(
                index + 1, cascade.levels[index + 1].dg_da[part], cascade.levels[index + 1].cov_gg[part]
            )
            errors += _cut_errors(level.left.features, left, block, square, probe)
            errors.append(_relative(level.source_a[part] @ probe - source_a(probe), source_a(probe)))
        if cascade.skips and index > 0:
            block = kernels.block(index, cascade.levels[index - 1].dh_db[part], cascade.levels[index - 1].cov_hh[part])
            errors += _cut_errors(level.right.gradients, right, block, square, probe)
            errors.append(_relative(level.source_b[part] @ probe - source_b(probe), source_b(probe)))
    return errors


def _cut_errors(
    near: np.ndarray, coupling: np.ndarray, block: np.ndarray, square: float, probe: np.ndarray
) -> list[float]:
    """Of the near side of a cut system: ``(1 - kappa^2 S Q)^-1 S`` and ``(1 - kappa^2 S Q)^-1``, or with R and P."""
    cross, own = (matrix[: len(probe), : len(probe)] @ probe for matrix in near)
    return [
        _relative(cross - coupling @ (probe + square * (block @ cross)), cross),
        _relative(own - probe - square * (coupling @ (block @ own)), probe),
    ]


def _side_of_input(
    cascade: Cascade | FlowCascade, data: DataLevel | FlowData, kernels: _Kernels, index: int
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """S / kappa of a level, and cov(a) as a function of a vector."""
    part = (slice(0, kernels.size), slice(0, kernels.size))
    if index == 0:
        gradient = data.data_gradient[part]
        source = kernels.initial(0, gradient)
        return kernels.block(0, _first_response(data, kernels), gradient), lambda x: source @ x
    before, level = cascade.levels[index - 1], cascade.levels[index]
    block = kernels.block(index, before.dh_db[part], before.cov_hh[part])
    fresh = cascade.limit.branch**2 * kernels.initial(index, before.cov_hh[part])
    if not cascade.skips:
        return block, lambda x: fresh @ x
    turned = cascade.limit.branch**2 * kernels.initial(index, level.cov_gg[part])
    return _through(cascade.limit, before.left.features, before.source_a, turned, block, fresh)


def _side_of_output(
    cascade: Cascade | FlowCascade, kernels: _Kernels, index: int
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """R / kappa of a level, and cov(b) as a function of a vector."""
    part = (slice(0, kernels.size), slice(0, kernels.size))
    if index == cascade.limit.blocks:
        gain, source = kernels.output()
        return gain, lambda x: source @ x
    after, level = cascade.levels[index + 1], cascade.levels[index]
    block = kernels.block(index + 1, after.dg_da[part], after.cov_gg[part])
    fresh = cascade.limit.branch**2 * kernels.initial(index + 1, after.cov_gg[part])
    if not cascade.skips:
        return block, lambda x: fresh @ x
    turned = cascade.limit.branch**2 * kernels.initial(index + 1, level.cov_hh[part])
    return _through(cascade.limit, after.right.gradients, after.source_b, turned, block, fresh)


def _through(
    limit: Limit, near: np.ndarray, stored: np.ndarray, turned: np.ndarray, block: np.ndarray, fresh: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Coupling and source one block further on: what passes along the skip, plus the block's own."""
    size, scale = len(block), limit.skip**2
    cross, own = near[0, :size, :size], near[1, :size, :size]

    def source(x: np.ndarray) -> np.ndarray:
        passed = own @ (stored[:size, :size] @ (own.T @ x))
        passed = passed + limit.richness_squared * (cross @ (turned @ (cross.T @ x)))
        return scale * passed + fresh @ x

    return scale * cross + block, source


def _first_response(data: DataLevel | FlowData, kernels: _Kernels) -> np.ndarray:
    """Response of u to the first level's fluctuations, so that P^0 has the form of every other block."""
    limit, size = data.limit, kernels.size
    if limit.inverse_scale_squared == 0:
        return np.zeros((size, size))
    once = limit.nodes.weights * limit.nodes.points
    response = np.tensordot(once, data.responses[:, :size, :size], 1)
    if data.full_batch:
        response = data.data_response[:size, :size] @ response
    return -limit.inverse_scale_squared * response


def pull_matrix(solution: Solution | FlowSolution) -> np.ndarray:
    """``K R_D``: how strongly each step's error is pulled to zero by every earlier one."""
    limit, size = solution.limit, solution.steps * solution.limit.outputs
    level = solution.cascade.levels[0]
    kernel = _Kernels(limit, size).block(0, level.dg_da[:size, :size], level.cov_gg[:size, :size])
    return kernel @ solution.data.data_response[:size, :size] if solution.data.full_batch else kernel


def _data_errors(
    cascade: Cascade | FlowCascade, data: DataLevel | FlowData, kernels: _Kernels, probe: np.ndarray
) -> list[float]:
    limit, size = data.limit, kernels.size
    part = (slice(0, size), slice(0, size))
    inputs = cascade.levels[0]
    kernel = kernels.block(0, inputs.dg_da[part], inputs.cov_gg[part])
    fluctuation = limit.inverse_scale_squared * kernels.initial(0, inputs.cov_gg[part])
    source = None if data.population else data.source[part]
    response = data.data_response[part] if data.full_batch else np.eye(size)
    means, errors = data.means[:size], []
    start = np.tile(limit.target_vectors, (1, size // limit.outputs)).T
    errors.append(_relative(means - start + limit.target_points * (kernel @ (response @ means)), start))
    weight_error = means @ (limit.target_points * (means.T @ probe))
    data_gradient = response @ (means @ (limit.target_points**2 * (means.T @ (response.T @ probe))))
    memory = np.zeros(size)
    for index, (point, weight) in enumerate(zip(limit.nodes.points, limit.nodes.weights, strict=True)):
        if not limit.uses_nodes:
            break
        node = data.responses[index][part]
        errors.append(_relative(node @ probe - probe + point * (kernel @ (response @ (node @ probe))), probe))
        weight_error += weight * point * (node @ (fluctuation @ (node.T @ probe)))
        turned = node.T @ (response.T @ probe)
        data_gradient += weight * point**2 * (response @ (node @ (fluctuation @ turned)))
        if source is not None:
            pulled = node.T @ probe
            weight_error += weight * point**2 * (node @ (kernel @ (source @ (kernel.T @ pulled))))
            turned = source @ (probe - point * (kernel.T @ turned))
            data_gradient += weight * point * (turned - point * (response @ (node @ (kernel @ turned))))
            memory += weight * point * (node @ (kernel @ (response @ probe)))
    errors.append(_relative(data.weight_error[part] @ probe - weight_error, weight_error))
    errors.append(_relative(data.data_gradient[part] @ probe - data_gradient, data_gradient))
    if data.full_batch:
        errors.append(_relative(response @ probe - probe + memory / limit.sample_ratio, probe))
        noise = np.tile(limit.noise, (size // limit.outputs,) * 2)
        sample_error = response @ ((data.weight_error[part] + noise) @ (response.T @ probe))
        errors.append(_relative(data.sample_error[part] @ probe - sample_error, sample_error))
    return errors


def quadrature_error(solution: Solution) -> float:
    """The relative error of the loss that comes from using few nodes, estimated with all modes.

    Compares the three sums that make the loss (targets, initial fluctuations, sampling) between the nodes and all
    modes, for the pull ``K R_D`` that was found, and divides by the loss at each step, or by 10^-5 of the initial loss
    where that is more: below, rounding would be mistaken for quadrature.
    """
    limit, data = solution.limit, solution.data
    size = solution.steps * limit.outputs
    exact, nodes = limit.data.modes, limit.nodes
    all_targets = len(limit.target_points) == len(limit.data.target_points)
    if size == 0 or (all_targets and (len(nodes.points) == len(exact.points) or not limit.uses_nodes)):
        return 0.0
    pull = pull_matrix(solution)
    loss = np.abs(np.diag(data.weight_error)[:size])
    error = np.zeros(size)
    if not all_targets:
        constant = np.ones(size)
        squared = limit.data.target_vectors[:, 0] ** 2
        error += np.abs(
            _sum_of_squares(pull, constant, limit.data.target_points, squared * limit.data.target_points)
            - _sum_of_squares(
                pull, constant, limit.target_points, limit.target_vectors[:, 0] ** 2 * limit.target_points
            )
        )
    if limit.uses_nodes:
        inputs = solution.cascade.levels[0].cov_gg
        probes = [(np.ones(size), limit.inverse_scale_squared * limit.variances[0] * inputs[0, 0], 1)]
        if not data.population:
            probes.append((data.kernel[:size, 0], data.source[0, 0], 2))
        for probe, factor, power in probes:
            difference = _sum_of_squares(pull, probe, exact.points, exact.weights * exact.points**power)
            difference -= _sum_of_squares(pull, probe, nodes.points, nodes.weights * nodes.points**power)
            error += factor * np.abs(difference)
    return float(np.max(error / np.maximum(loss, 1e-5 * loss[0]), initial=0.0))


def loss_floor(loss: np.ndarray) -> float:
    """Below this a loss is rounding error: it is a sum of cancelling terms of the size of the initial loss.

    In long trainings the rows of the solver leave out more than rounding does.
    """
    accuracy = 16 * float(np.finfo(float).eps) if len(loss) <= SHORT else _LONG_ACCURACY
    return accuracy * float(loss[0])


def _sum_of_squares(pull: np.ndarray, probe: np.ndarray, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``sum_k weight_k ((1 + point_k pull)^-1 probe)(t)^2`` by forward substitution; shape (n,)."""
    total = np.zeros(len(probe))
    for start in range(0, len(points), _CHUNK):
        chunk = points[start : start + _CHUNK]
        solved = np.zeros((len(probe), len(chunk)))
        for row in range(len(probe)):
            solved[row] = probe[row] - chunk * (pull[row, :row] @ solved[:row])
        total += solved**2 @ weights[start : start + _CHUNK]
    return total
