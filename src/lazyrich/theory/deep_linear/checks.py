"""Checks of a solution against its own equations: the residual, and the error of the quadrature."""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.cascade import Cascade
from lazyrich.theory.deep_linear.data_level import DataLevel
from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.optimizer import Memory
from lazyrich.theory.deep_linear.solver import Solution

_CHUNK = 4096  # modes handled at once


def residual(solution: Solution) -> float:
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
    return float(max(errors))


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
    scale = np.linalg.norm(reference)
    return float(np.linalg.norm(difference) / scale) if scale > 0 else float(np.linalg.norm(difference))


def _cascade_errors(cascade: Cascade, data: DataLevel, kernels: _Kernels, probe: np.ndarray) -> list[float]:
    limit, size = cascade.limit, kernels.size
    square, branch, skip = limit.richness_squared, limit.branch**2, limit.skip**2 * cascade.skips
    part = (slice(0, size), slice(0, size))
    levels, errors = cascade.levels, []
    forward = [
        kernels.block(0, _first_response(data, kernels), data.data_gradient[part]),
        *(kernels.block(i + 1, levels[i].dh_db[part], levels[i].cov_hh[part]) for i in range(limit.blocks)),
    ]
    backward = [np.zeros((0, 0))] + [
        kernels.block(i, levels[i].dg_da[part], levels[i].cov_gg[part]) for i in range(1, limit.blocks + 1)
    ]
    for index, level in enumerate(levels):
        left, right = forward[index], kernels.output()[0]
        source_a = kernels.initial(0, data.data_gradient[part])
        source_b = kernels.output()[1]
        if index > 0:
            before, block_source = levels[index - 1], branch * kernels.initial(index, levels[index - 1].cov_hh[part])
            source_a = block_source
            if skip:
                response, own = before.left.features[0][part], before.left.features[1][part]
                coupling = forward[index - 1] + (skip * levels[index - 2].left.features[0][part] if index > 1 else 0.0)
                errors.append(
                    _relative(
                        response @ probe - coupling @ (probe + square * backward[index] @ response @ probe), probe
                    )
                )
                errors.append(
                    _relative(own @ probe - probe - square * coupling @ (backward[index] @ (own @ probe)), probe)
                )
                crossed = branch * kernels.initial(index, level.cov_gg[part])
                source_a = source_a + skip * (
                    own @ before.source_a[part] @ own.T + square * response @ crossed @ response.T
                )
                left = left + skip * response
        if index < limit.blocks:
            right, source_b = backward[index + 1], branch * kernels.initial(index + 1, levels[index + 1].cov_gg[part])
            if skip:
                after = levels[index + 1]
                response, own = after.right.gradients[0][part], after.right.gradients[1][part]
                crossed = branch * kernels.initial(index + 1, level.cov_hh[part])
                source_b = source_b + skip * (
                    own @ after.source_b[part] @ own.T + square * response @ crossed @ response.T
                )
                right = right + skip * response
        dh_da, dh_db, dg_da, dg_db = (getattr(level, name)[part] for name in ("dh_da", "dh_db", "dg_da", "dg_db"))
        errors += [
            _relative(dh_da @ probe - probe - square * (left @ (right @ (dh_da @ probe))), probe),
            _relative(dg_db @ probe - probe - square * (right @ (left @ (dg_db @ probe))), probe),
            _relative(dh_db @ probe - left @ (dg_db @ probe), dh_db @ probe),
            _relative(dg_da @ probe - right @ (dh_da @ probe), dg_da @ probe),
        ]
        features = dh_da @ (source_a @ (dh_da.T @ probe)) + square * (dh_db @ (source_b @ (dh_db.T @ probe)))
        gradients = dg_db @ (source_b @ (dg_db.T @ probe)) + square * (dg_da @ (source_a @ (dg_da.T @ probe)))
        errors.append(_relative(level.cov_hh[part] @ probe - features, features))
        errors.append(_relative(level.cov_gg[part] @ probe - gradients, gradients))
    return errors


def _first_response(data: DataLevel, kernels: _Kernels) -> np.ndarray:
    """Response of u to the first level's fluctuations, so that P^0 has the form of every other block."""
    limit, size = data.limit, kernels.size
    if limit.inverse_scale_squared == 0:
        return np.zeros((size, size))
    once = limit.nodes.weights * limit.nodes.points
    response = np.tensordot(once, data.responses[:, :size, :size], 1)
    if data.full_batch:
        response = data.data_response[:size, :size] @ response
    return -limit.inverse_scale_squared * response


def pull_matrix(solution: Solution) -> np.ndarray:
    """``K R_D``: how strongly each step's error is pulled to zero by every earlier one."""
    limit, size = solution.limit, solution.steps * solution.limit.outputs
    level = solution.cascade.levels[0]
    kernel = _Kernels(limit, size).block(0, level.dg_da[:size, :size], level.cov_gg[:size, :size])
    return kernel @ solution.data.data_response[:size, :size] if solution.data.full_batch else kernel


def _data_errors(cascade: Cascade, data: DataLevel, kernels: _Kernels, probe: np.ndarray) -> list[float]:
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
    """Below this a loss is rounding error: it is a sum of cancelling terms of the size of the initial loss."""
    return 16 * float(np.finfo(float).eps) * float(loss[0])


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
