"""The data level of gradient flow, one node at a time (docs/theory/long-horizons.md, "Rows that depend on themselves").

Stiff modes, ``lambda K(t,t)`` far above 1, are where an implicit integrator earns its keep, so everything here that
depends on its own row is solved for, not swept: given the row of K, the row of every other matrix follows exactly.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from lazyrich.theory.deep_linear.limit import Limit


class FlowData:
    """Errors v and data-weighted errors u at the quadrature nodes.

    With ``X = K R_D`` and ``V_k = (1 + lambda_k X)^-1``, all of which commute, ``R_D = 1 - (1 - V0)/alpha``, and E the
    covariance of the errors of the training targets before the training set answers (C_v plus noise),

    ``E = T + noise + sum w (1 - V_k) E (1 - V_k)^T / alpha``,
    ``C_u = R_D [T2 + sum w lambda V_k E V_k^T / alpha] R_D^T``,

    where T and T2 are the sums of ``lambda`` and ``lambda^2`` times the target's and the initial fluctuations' parts.

    Attributes
    ----------
    weight_error : ndarray, shape (n, n)
        C_v.
    data_gradient : ndarray, shape (n, n)
        C_u.
    responses : ndarray, shape (nodes, n, n)
        V_k; no nodes where modes do not fluctuate.
    means : ndarray, shape (n, J)
        Mean of v at the target's nodes.
    data_response : ndarray, shape (n, n)
        R_D; in full batch only.
    """

    def __init__(self, limit: Limit) -> None:
        self.limit, size, nodes = limit, limit.size, limit.nodes
        self.full_batch, self.population = limit.mode == "full-batch", limit.mode == "population"
        self.memory, self._decay = limit.memories[0], np.repeat(limit.memories[0].decay, limit.outputs)
        self._points, self._weights = nodes.points, nodes.weights
        self.responses = np.zeros((len(nodes.points) if limit.uses_nodes else 0, size, size))
        self.means = np.zeros((size, len(limit.target_points)))
        self.weight_error, self.data_gradient = np.zeros((2, size, size))
        self._noise = np.tile(limit.noise, (1, limit.steps))
        self._start = float(limit.variances[0] * limit.inverse_scale_squared)
        if self.full_batch:
            self.data_response, self._error, self._gathered = np.zeros((3, size, size))

    def advance(self, node: int, response: np.ndarray, gradient: np.ndarray) -> bool:
        """Row of everything, from the row of RESP_g/kappa, shape (C, upto), and G at the input level, (upto, upto).

        Returns False, and does nothing, where these are not finite.
        """
        now, upto = slice(node * self.limit.outputs, (node + 1) * self.limit.outputs), slice(0, gradient.shape[1])
        past = slice(0, now.start)
        kernel = response * (self.limit.variances[0] * self.memory.decay[node]) * self._decay[upto]
        kernel += np.repeat(self.memory.gain[node, : node + 1], self.limit.outputs) * gradient[now]
        if not np.isfinite(kernel).all():
            return False
        values, basis = np.linalg.eig(kernel[:, now])
        inverse = np.linalg.inv(basis)
        pull = kernel[:, past]
        if self.full_batch:
            values, pull = self._answer(now, past, values, basis, inverse, pull)
        self._respond(now, past, values, basis, inverse, pull)
        if self.full_batch:
            self._sample_sums(now, past, upto, values, basis, inverse, gradient)
        else:
            self._sums(now, upto, gradient)
        return True

    def _answer(
        self,
        now: slice,
        past: slice,
        values: np.ndarray,
        basis: np.ndarray,
        inverse: np.ndarray,
        kernel: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Row of R_D; returns the eigenvalues of X(t,t) and the row of X before t.

        ``x = k R_D(x)`` on the diagonal by Newton's method, which rises to its root from 0; to the left of it the row
        r of R_D obeys ``r (1 + k M / alpha) = -(row of K) R_D M / alpha``, ``M = sum w lambda/(1 + lambda x) V``.
        """
        alpha, points, weights = self.limit.sample_ratio, self._points, self._weights
        pulled = np.zeros_like(values)
        for _ in range(60):
            shrink = 1.0 + np.multiply.outer(pulled, points)
            excess = pulled - values * (1.0 - (pulled[:, None] * points / shrink) @ weights / alpha)
            change = excess / (1.0 + values * ((points / shrink**2) @ weights) / alpha)
            pulled = pulled - change
            if np.all(np.abs(change) <= 1e-15 * np.abs(pulled)):
                break
        answers = 1.0 - 1.0 / alpha + (1.0 / (1.0 + np.multiply.outer(pulled, points))) @ weights / alpha
        self.data_response[now, now] = np.real((basis * answers) @ inverse)
        through = kernel @ self.data_response[past, past]
        if past.stop:
            rotated = inverse @ through
            factors = weights * points / (1.0 + np.multiply.outer(pulled, points)) / alpha
            row = np.empty_like(rotated)
            for index, (value, factor) in enumerate(zip(values, factors, strict=True)):
                gathered = np.tensordot(factor, self.responses[:, past, past], 1)
                system = np.eye(past.stop) + value * gathered
                row[index] = _solve_right(system, -rotated[index] @ gathered)
            self.data_response[now, past] = np.real(basis @ row)
        own = np.real((basis * values) @ inverse)
        return pulled, through + own @ self.data_response[now, past]

    def _respond(
        self, now: slice, past: slice, values: np.ndarray, basis: np.ndarray, inverse: np.ndarray, pull: np.ndarray
    ) -> None:
        """Rows of V_k and of the means, divided by ``1 + lambda X(t,t)``."""
        points, targets = self.limit.target_points, self.limit.target_vectors.T
        source = inverse @ (targets - (pull @ self.means[past]) * points)
        self.means[now] = np.real(basis @ (source / (1.0 + np.multiply.outer(values, points))))
        if len(self.responses):
            points = self._points[:, None, None]
            shrunk = np.real((basis / (1.0 + points * values)) @ inverse)
            self.responses[:, now, now] = shrunk
            self.responses[:, now, past] = -points * (shrunk @ (pull @ self.responses[:, past, past]))

    def _sums(self, now: slice, upto: slice, gradient: np.ndarray) -> None:
        """Rows of C_v and C_u where there are infinitely many samples."""
        sums = self._learned(now, upto)
        self._moment = None
        if len(self.responses):
            rows = self.responses[:, now, upto]
            left = _scaled(self._fluctuating(rows, gradient, upto), self._weights * self._points)
            both = np.concatenate([left, left * self._points[:, None, None]], axis=1)
            sums += _sandwich(both, self.responses[:, upto, upto]).reshape(sums.shape)
            self._moment = np.tensordot(self._weights * self._points, rows, 1)
        _store(self.weight_error, now, upto, sums[0])
        _store(self.data_gradient, now, upto, sums[1])

    def _learned(self, now: slice, upto: slice) -> np.ndarray:
        """The target's part of C_v and C_u (before R_D), shape (2, C, upto)."""
        points = self.limit.target_points
        left = self.means[now] * points
        return np.stack([left @ self.means[upto].T, (left * points) @ self.means[upto].T])

    def _fluctuating(self, rows: np.ndarray, gradient: np.ndarray, upto: slice) -> np.ndarray:
        decay = self._decay[upto]
        return _flat_product(rows * decay, gradient) * (self._start * decay)

    def _sample_sums(
        self,
        now: slice,
        past: slice,
        upto: slice,
        values: np.ndarray,
        basis: np.ndarray,
        inverse: np.ndarray,
        gradient: np.ndarray,
    ) -> None:
        """Rows of E, C_v and C_u with a finite training set."""
        alpha, points, weights, count = self.limit.sample_ratio, self._points, self._weights, now.stop - now.start
        rows, error = self.responses[:, now, upto], self._error
        sums = self._learned(now, upto)
        start = _scaled(self._fluctuating(rows, gradient, upto), weights * points)
        known = _scaled(_flat_product(-rows[..., past], error[past, past]), weights / alpha)
        padded = np.zeros_like(start)
        padded[..., past] = known
        products = _sandwich(
            np.concatenate([start, start * points[:, None, None], padded], axis=1), self.responses[:, upto, upto]
        )
        sums += products[: 2 * count].reshape(sums.shape)
        right = sums[0] + self._noise[:, upto]
        # to the left: e (1 - B)^T = ..., B = sum w (1 - V(t,t)) (1 - V) / alpha
        shrunk = 1.0 / (1.0 + np.multiply.outer(values, points))
        row = np.zeros((count, past.stop))
        if past.stop:
            source = right[:, past] + known.sum(axis=0) - products[2 * count :, past]
            rotated, solved = inverse @ source, np.empty((count, past.stop), dtype=basis.dtype)
            for index in range(count):
                factor = weights * (1.0 - shrunk[index]) / alpha
                system = np.eye(past.stop) * (1.0 - factor.sum())
                system = system + np.tensordot(factor, self.responses[:, past, past], 1)
                solved[index] = solve_triangular(system, rotated[index], lower=True)
            row = np.real(basis @ solved)
        own = np.eye(count) - rows[..., now]  # 1 - V_k(t,t)
        before = -rows[..., past]
        closing = known * (alpha / weights)[:, None, None] + own @ row if past.stop else before
        rest = np.tensordot(weights, closing @ before.transpose(0, 2, 1) + before @ row.T @ own.transpose(0, 2, 1), 1)
        factors = np.einsum("ik,jk,k->ij", 1.0 - shrunk, 1.0 - shrunk, weights) / alpha
        rotated = inverse @ (right[:, now] + rest / alpha) @ inverse.T
        row = np.concatenate([row, np.real(basis @ (rotated / (1.0 - factors)) @ basis.T)], axis=1)
        _store(error, now, upto, row)
        _store(self.weight_error, now, upto, row - self._noise[:, upto])
        left = _scaled(_flat_product(rows, error[upto, upto]), weights * points / alpha)
        _store(self._gathered, now, upto, sums[1] + _sandwich(left, self.responses[:, upto, upto]))
        answer = self.data_response[now, upto]
        row = answer @ self._gathered[upto, upto] @ self.data_response[upto, upto].T
        _store(self.data_gradient, now, upto, row)
        self._moment = answer @ np.tensordot(weights * points, self.responses[:, upto, upto], 1)

    def memory_row(self, node: int) -> np.ndarray:
        """Row of P^0 / kappa: how the first hidden level answers a change behind it; shape (C, upto)."""
        outputs = self.limit.outputs
        now, upto = slice(node * outputs, (node + 1) * outputs), slice(0, (node + 1) * outputs)
        row = np.repeat(self.memory.gain[node, : node + 1], outputs) * self.data_gradient[now, upto]
        if self._moment is not None:
            row -= self._moment * (self._start * self.memory.decay[node] * self._decay[upto])
        return row

    @property
    def source(self) -> np.ndarray:
        """Covariance of phi, the fluctuation of the training data; shape (n, n), in full batch only."""
        return self.sample_error / self.limit.sample_ratio

    @property
    def sample_error(self) -> np.ndarray:
        """C_Delta, the covariance of the errors on the training samples; shape (n, n), in full batch only."""
        return self.data_response @ self._error @ self.data_response.T


def _solve_right(system: np.ndarray, row: np.ndarray) -> np.ndarray:
    """``x system = row`` for a lower triangular system."""
    return solve_triangular(system, row, trans=1, lower=True)


def _store(matrix: np.ndarray, now: slice, upto: slice, rows: np.ndarray) -> None:
    """Write rows into a symmetric matrix, and their mirror image."""
    matrix[now, upto], matrix[upto, now] = rows, rows.T


def _scaled(rows: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return rows * factors[:, None, None]


def _flat_product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Rows of several nodes, (nodes, C, n), times one matrix: one product of all rows."""
    nodes, outputs, size = rows.shape
    return (rows.reshape(nodes * outputs, size) @ matrix).reshape(nodes, outputs, matrix.shape[-1])


def _sandwich(left: np.ndarray, responses: np.ndarray) -> np.ndarray:
    """``sum_k left_k V_k^T``: (nodes, rows, n) and (nodes, n, n) to (rows, n)."""
    return np.matmul(left, responses.transpose(0, 2, 1)).sum(axis=0)
