"""The data level of the equations, one time step at a time (docs/theory/deep-linear.md, "The data level")."""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.rows import Rows


class DataLevel:
    """Errors v and data-weighted errors u, mode by mode at the quadrature nodes.

    K, R_D and all ``V_k = (1 + lambda_k K R_D)^-1`` commute, which leaves little to compute: ``R_D = 1 - (1 - V0)/alpha``
    with V0 the average of V_k, and every sum over modes is one over ``V_k X V_k^T``, so a node costs two products with
    its own matrix per row, whatever the mode of training. Matrices that the same row multiplies are stacked: K
    multiplies (R_D, cov phi), R_D multiplies (C_v, the learned part of C_u, the average of lambda V).

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
    source : ndarray, shape (n, n)
        Covariance of phi, the fluctuation of the training data; absent in population mode.
    data_response : ndarray, shape (n, n)
        R_D, in full batch only.
    """

    def __init__(self, limit: Limit, rows: Rows) -> None:
        self.limit, self.rows = limit, rows
        size, nodes = limit.size, limit.nodes
        self.full_batch, self.population = limit.mode == "full-batch", limit.mode == "population"
        self.memory = rows.layer(0)
        self._points = nodes.points[:, None, None]
        self._moments = nodes.weights * nodes.points ** np.arange(3)[:, None]  # of sums with powers 0, 1, 2 of lambda
        self.responses = np.zeros((len(nodes.points) if limit.uses_nodes else 0, size, size))
        self.means = np.zeros((size, len(limit.target_points)))
        self._answered = np.zeros((3 if self.full_batch else 1, size, size))
        self.weight_error, self.data_gradient = self._answered[0], np.zeros((size, size))
        self._eye = np.eye(limit.outputs)
        if not self.population:
            self.kernel = np.zeros((size, size))  # K
            self.spread = np.zeros((size, size))  # K cov(phi) K^T
            self.moment_one = self._answered[2] if self.full_batch else np.zeros((size, size))  # sum w lambda V
            self._pulled = np.zeros((2 if self.full_batch else 1, size, size))
            self.source = self._pulled[-1]
        if self.full_batch:
            self.data_response = self._pulled[0]
            self._constant_answer = np.zeros((size, limit.outputs))  # R_D applied to an error constant in time

    @property
    def sample_error(self) -> np.ndarray:
        """C_Delta, the covariance of the errors on the training samples; shape (n, n), in full batch only."""
        return self.limit.sample_ratio * self.source

    def advance(self, step: int, response: np.ndarray, gradient: np.ndarray) -> None:
        """Row `step` of everything, from RESP_g/kappa (rows known: the past) and G at the input level.

        Parameters
        ----------
        response : ndarray, shape (outputs, past)
        gradient : ndarray, shape (n, n)
            Filled up to this step.
        """
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        pull = kernel = self._kernel_row(step, response, gradient)
        if not self.population:
            products = kernel @ self._pulled[:, past, past]
            if self.full_batch:
                pull = products[0]
            self.kernel[now, past] = kernel
            self.spread[now, upto] = row = products[-1] @ self.kernel[upto, past].T
            self.spread[upto, now] = row.T
        self.means[now] = limit.target_vectors.T - (pull @ self.means[past]) * limit.target_points
        if len(self.responses):
            self.responses[:, now, past] = (pull @ self.responses[:, past, past]) * -self._points
            self.responses[:, now, now] = self._eye
        sums = self._sums(step, gradient)
        self.weight_error[now, upto], self.weight_error[upto, now] = sums[0], sums[0].T
        if self.population:
            row, self._answer_row = sums[1], self._moment_rows[1] if len(self.responses) else None
        else:
            row = self._fluctuating_gradient(step, sums)
        self.data_gradient[now, upto] = row
        self.data_gradient[upto, now] = row.T

    def _kernel_row(self, step: int, response: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Row of K, before `step`."""
        now, past, _ = self.rows.slices(step)
        row = response * self.memory.initial(step, past.stop, self.limit.variances[0])
        row += self.memory.gain(step, past.stop) * gradient[now, past]
        return row

    def _sums(self, step: int, gradient: np.ndarray) -> np.ndarray:
        """Rows of the sums of ``w lambda <v v^T>`` and ``w lambda^2 <v v^T>`` over modes, shape (2, outputs, upto)."""
        limit, now, _, upto = self.limit, *self.rows.slices(step)
        means = self.means[now] * limit.target_points
        sums = np.array([means, means * limit.target_points]) @ self.means[upto].T
        if not len(self.responses):
            return sums
        rows = self.responses[:, now, upto]
        left = self.memory.initial_both(rows, limit.variances[0] * limit.inverse_scale_squared)
        left = self.memory.initial_both(_flat_product(left, gradient[upto, upto]), 1.0)
        if not self.population:
            left += self._points * _flat_product(rows, self.spread[upto, upto])
        sums += _weighted(self._moments[1:], left @ self.responses[:, upto, upto].transpose(0, 2, 1))
        self._moment_rows = _weighted(self._moments[:2], rows)
        return sums

    def _fluctuating_gradient(self, step: int, sums: np.ndarray) -> np.ndarray:
        """Row of C_u where the training data fluctuate: the learned part, and phi itself through V_k on both sides."""
        limit, now, _, upto = self.limit, *self.rows.slices(step)
        self.moment_one[now, upto] = moment_row = self._moment_rows[1]
        if self.full_batch:
            learned = self._sample_rows(step, sums)
        else:
            learned, self._answer_row = sums[1], moment_row
            self.source[now, now] = (sums[0][:, now] + limit.noise) / limit.sample_ratio
        source = self.source[now, upto]
        row = learned - self._moments[1].sum() * source
        row += moment_row @ self.source[upto, upto]
        return row + source @ self.moment_one[upto, upto].T

    def _sample_rows(self, step: int, sums: np.ndarray) -> np.ndarray:
        """Rows of R_D and C_Delta, and of the learned part of C_u as the finite training set answers it."""
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        self.data_response[now, past] = self._moment_rows[0][:, past] / limit.sample_ratio
        self.data_response[now, now] = self._eye
        response = self.data_response[now, upto]
        self._answered[:2, now, upto] = sums
        self._answered[:2, upto, now] = sums.transpose(0, 2, 1)
        products = response @ self._answered[:, upto, upto]
        self._answer_row = products[2]
        sample_error, learned = _flat_product(products[:2], self.data_response[upto, upto].T)
        constant = self._constant_answer
        constant[now] = response.reshape(limit.outputs, step + 1, limit.outputs).sum(axis=1)
        sample_error += constant[now] @ limit.noise @ constant[upto].T
        self.source[now, upto] = row = sample_error / limit.sample_ratio
        self.source[upto, now] = row.T
        return learned

    def memory_row(self, step: int) -> np.ndarray:
        """Row of P^0 / kappa: how the first hidden level answers a change behind it; shape (outputs, upto)."""
        limit, now, _, upto = self.limit, *self.rows.slices(step)
        row = self.memory.gain(step, upto.stop) * self.data_gradient[now, upto]
        if limit.inverse_scale_squared > 0:
            factor = limit.variances[0] * limit.inverse_scale_squared
            row -= self._answer_row * self.memory.initial(step, upto.stop, factor)
        return row


def _flat_product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Rows of several nodes, (nodes, outputs, n), times one matrix: one product of all rows."""
    return (rows.reshape(-1, rows.shape[-1]) @ matrix).reshape(*rows.shape[:-1], matrix.shape[-1])


def _weighted(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Weighted sums over nodes: (sums, nodes) and (nodes, outputs, n) to (sums, outputs, n)."""
    return (weights @ rows.reshape(len(rows), -1)).reshape(len(weights), *rows.shape[1:])
