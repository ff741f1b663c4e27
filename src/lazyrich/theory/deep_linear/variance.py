"""What networks have in common: the loss of averages over initialisations, over data sets, over both.

Two networks that share their data, or their initialisation, or neither, have errors with a covariance of their own:
that of the limit with one source of chance less (docs/theory/outputs.md, "Averages of networks"). All responses are
those of one network, so that only covariances are computed again, row by row.
"""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.cascade import Level
from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.solver import Solution


def target_error(solution: Solution, power: int = 1) -> np.ndarray:
    """``sum_k w_k lambda_k^power <v_k> <v_k>^T``: the covariance that independent networks have left; shape (n, n)."""
    limit, means = solution.limit, solution.data.means[: solution.steps * solution.limit.outputs]
    return (means * limit.target_points**power) @ means.T


def with_same_data(solution: Solution) -> tuple[np.ndarray, np.ndarray | None]:
    """Covariances between networks that share the training samples (online: all batches) but not the start.

    The field phi of the training data has the covariance of the errors that the two have in common:
    ``C = sum_k w_k lambda_k (<v_k><v_k>^T + lambda_k V_k K cov(phi) K^T V_k^T)``.

    Returns
    -------
    weight_error : ndarray, shape (n, n)
        C_v between the two.
    sample_error : ndarray, shape (n, n), or None
        C_Delta between the two, in full batch.
    """
    limit, data = solution.limit, solution.data
    size, outputs = solution.steps * limit.outputs, limit.outputs
    shared = target_error(solution)
    if data.population:
        return shared, None
    weights = limit.nodes.weights * limit.nodes.points**2
    answers = data.responses[:, :size, :size] @ data.kernel[:size, :size]  # V_k K, strictly causal
    source, sample_error = np.zeros((2, size, size))
    noise = np.tile(limit.noise, (solution.steps, solution.steps))
    for step in range(solution.steps):
        now, upto = slice(step * outputs, (step + 1) * outputs), slice(0, (step + 1) * outputs)
        _add(shared, now, upto, _sandwiches(answers, source[upto, upto], weights, now, upto))
        if data.full_batch:
            response = data.data_response[upto, upto]
            row = response[now] @ (shared + noise)[upto, upto] @ response.T
            _add(sample_error, now, upto, row)
            _add(source, now, upto, row / limit.sample_ratio)
        else:
            source[now, now] = (shared[now, now] + limit.noise) / limit.sample_ratio
    return shared, sample_error if data.full_batch else None


def with_same_start(solution: Solution) -> np.ndarray:
    """Covariance C_v between networks that share the initial weights but not the training samples; shape (n, n)."""
    if solution.data.population:  # there is nothing else to differ in
        size = solution.steps * solution.limit.outputs
        return solution.data.weight_error[:size, :size]
    pair = _Pair(solution)
    for step in range(solution.steps):
        pair.advance(step)
    return pair.weight_error


class _Pair:
    """Covariances between two networks that start alike and see different data.

    Attributes
    ----------
    features, gradients : ndarray, shape (levels, n, n)
        Covariance of the one network's h with the other's, and of their g.
    sources_a, sources_b : ndarray, shape (levels, n, n)
        Likewise of what reaches a level from the input side, and from the output side.
    weight_error : ndarray, shape (n, n)
    """

    def __init__(self, solution: Solution) -> None:
        self.limit, self.levels, self.data = solution.limit, solution.cascade.levels, solution.data
        self.skips = solution.cascade.skips
        size = solution.steps * self.limit.outputs
        shape = (4, len(self.levels), size, size)
        self.features, self.gradients, self.sources_a, self.sources_b = np.zeros(shape)
        self._initial = [_initial(self.limit, layer, size) for layer in (0, min(1, self.limit.blocks), -1)]
        self._initial[1] *= self.limit.branch**2
        self._initial[2] *= np.tile(np.eye(self.limit.outputs), (solution.steps, solution.steps))
        self._answer = self.data.data_response[:size, :size] if self.data.full_batch else np.eye(size)
        self.weight_error = target_error(solution)
        self.data_gradient = self._answer @ target_error(solution, power=2) @ self._answer.T
        self._learned = np.zeros((size, size))  # of C_u, before R_D answers it

    def advance(self, step: int) -> None:
        """Row `step` of all covariances, from the output back to the input, through the data, and forward."""
        outputs, last = self.limit.outputs, self.limit.blocks
        now, upto = slice(step * outputs, (step + 1) * outputs), slice(0, (step + 1) * outputs)
        for index in range(last, -1, -1):
            row = self._initial[2][now, upto]
            if index < last:
                near = self.levels[index + 1].right.gradients if self.skips else None
                beyond = self.sources_b[index + 1], self.gradients[index + 1]
                row = self._passed(near, *beyond, self.features[index], now, upto)
            _add(self.sources_b[index], now, upto, row)
            self._join(index, now, upto, gradients=True)
        self._learn(now, upto)
        for index in range(last + 1):
            row = self._initial[0][now, upto] * self.data_gradient[now, upto]
            if index > 0:
                near = self.levels[index - 1].left.features if self.skips else None
                before = self.sources_a[index - 1], self.features[index - 1]
                row = self._passed(near, *before, self.gradients[index], now, upto)
            _add(self.sources_a[index], now, upto, row)
            self._join(index, now, upto, gradients=False)

    def _passed(
        self,
        near: np.ndarray | None,
        stored: np.ndarray,
        sent: np.ndarray,
        returned: np.ndarray,
        now: slice,
        upto: slice,
    ) -> np.ndarray:
        """Row of the source that a block passes on: its own fluctuation, and what comes along the skip.

        Parameters
        ----------
        near : ndarray, shape (2, n, n), or None
            Responses of the level on the near side of the block, cut off behind it; None without skips.
        stored, sent : ndarray, shape (n, n)
            Source and covariance of that level.
        returned : ndarray, shape (n, n)
            Covariance of what the level on the far side sends back through the block.
        """
        row = self._initial[1][now, upto] * sent[now, upto]
        if near is None:
            return row
        turned = self._initial[1] * returned
        along = _sandwich(near[1], stored, now, upto)
        along += self.limit.richness_squared * _sandwich(near[0], turned, now, upto)
        return row + self.limit.skip**2 * along

    def _join(self, index: int, now: slice, upto: slice, gradients: bool) -> None:
        level: Level = self.levels[index]
        own, other, to_own, to_other = (
            (self.sources_b, self.sources_a, level.dg_db, level.dg_da)
            if gradients
            else (self.sources_a, self.sources_b, level.dh_da, level.dh_db)
        )
        row = _sandwich(to_own, own[index], now, upto)
        row += self.limit.richness_squared * _sandwich(to_other, other[index], now, upto)
        _add((self.gradients if gradients else self.features)[index], now, upto, row)

    def _learn(self, now: slice, upto: slice) -> None:
        """The data level: only the initial fluctuations are shared, ``<v v^T> = .. + V_k a^2 (d d' . G) V_k^T``."""
        limit, nodes, data = self.limit, self.limit.nodes, self.data
        if limit.inverse_scale_squared == 0:
            return
        shared = limit.inverse_scale_squared * self._initial[0][upto, upto] * self.gradients[0][upto, upto]
        for moment, kernel in ((1, self.weight_error), (2, self._learned)):
            weights = nodes.weights * nodes.points**moment
            _add(kernel, now, upto, _sandwiches(data.responses, shared, weights, now, upto))
        _add(self.data_gradient, now, upto, _sandwich(self._answer, self._learned, now, upto))


def _initial(limit: Limit, layer: int, size: int) -> np.ndarray:
    """``sigma^2 d(t) d(s)`` of a layer, for every pair of rows."""
    decay = np.repeat(limit.memories[layer].decay, limit.outputs)[:size]
    return limit.variances[layer] * decay[:, None] * decay


def _sandwich(response: np.ndarray, source: np.ndarray, now: slice, upto: slice) -> np.ndarray:
    """Rows `now` of ``response source response^T``, up to them."""
    return response[now, upto] @ source[upto, upto] @ response[upto, upto].T


def _sandwiches(responses: np.ndarray, source: np.ndarray, weights: np.ndarray, now: slice, upto: slice) -> np.ndarray:
    """Rows `now` of ``sum_k weights_k responses_k source responses_k^T``; `source` is cut to `upto`."""
    rows = responses[:, now, upto] @ source @ responses[:, upto, upto].transpose(0, 2, 1)
    return np.tensordot(weights, rows, 1)


def _add(matrix: np.ndarray, now: slice, upto: slice, rows: np.ndarray) -> None:
    """Add rows to a symmetric matrix, and their mirror images."""
    past = slice(0, now.start)
    matrix[now, upto] += rows
    matrix[past, now] += rows[:, past].T
