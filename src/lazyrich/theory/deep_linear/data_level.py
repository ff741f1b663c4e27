"""The data level of the equations, one time step at a time (docs/theory/deep-linear.md, "The data level")."""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.cascade import symmetrize
from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.products import GrowingProduct
from lazyrich.theory.deep_linear.rows import Rows


class DataLevel:
    """Errors v and data-weighted errors u, mode by mode at the quadrature nodes.

    K, R_D and all ``V_k = (1 + lambda_k K R_D)^-1`` commute, which leaves little to compute:
    ``R_D = 1 - (1 - V0)/alpha`` with V0 the average of V_k, and every sum over modes is one over ``V_k X V_k^T``, so a
    node costs two products with its own matrix per row, whatever the mode of training. Matrices that the same row
    multiplies are stacked: K multiplies (R_D, cov phi), R_D multiplies (C_v, the learned part of C_u, the average of
    lambda V).

    Parameters
    ----------
    gradient : ndarray, shape (n, n)
        G at the input level, which the cascade fills up to a step before :meth:`advance`.

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
    data_response, learned : ndarray, shape (n, n)
        R_D, and the learned part of C_u before R_D answers it; in full batch only.
    """

    def __init__(self, limit: Limit, rows: Rows, gradient: np.ndarray) -> None:
        self.limit, self.rows = limit, rows
        size, nodes = limit.size, limit.nodes
        self.full_batch, self.population = limit.mode == "full-batch", limit.mode == "population"
        self.memory, self._gradient = rows.layer(0), gradient
        self._points = nodes.points[:, None, None]
        self._minus_points = -self._points
        self._moments = nodes.weights * nodes.points ** np.arange(3)[:, None]  # of sums with powers 0, 1, 2 of lambda
        self._mean_eigenvalue = self._moments[1].sum()
        self._target_moments = limit.target_points ** np.array([1, 2])[:, None, None]
        self.responses = np.zeros((len(nodes.points) if limit.uses_nodes else 0, size, size))
        np.einsum("kii->ki", self.responses)[:] = 1.0
        self.means = np.zeros((size, len(limit.target_points)))
        # C_v; in full batch also sum w lambda^2 <v v^T> and sum w lambda V
        self._answered = np.zeros((3 if self.full_batch else 1, size, size))
        self.weight_error, self.data_gradient = self._answered[0], np.zeros((size, size))
        self.kernel = np.zeros((size, size))  # K
        if not self.population:
            self.spread = np.zeros((size, size))  # K cov(phi) K^T
            self.moment_one = self._answered[2] if self.full_batch else np.zeros((size, size))
            self._pulled = np.zeros((2 if self.full_batch else 1, size, size))  # cov(phi), R_D
            self.source = self._pulled[0]
        if self.full_batch:
            self.learned, self.data_response = self._answered[1], self._pulled[1]
            np.fill_diagonal(self.data_response, 1.0)
            self._constant = np.tile(np.eye(limit.outputs), (limit.steps, 1))  # an error constant in time,
            self._constant_answer = np.zeros((size, limit.outputs))  # and R_D applied to it
        self._make_products()

    def _make_products(self) -> None:
        several = self.limit.outputs > 1

        def lower(matrices: np.ndarray, symmetric: int = 0) -> GrowingProduct:
            return GrowingProduct(matrices, mirrors=matrices[:symmetric], several=several)

        def transposed(matrices: np.ndarray) -> GrowingProduct:
            return GrowingProduct(matrices, transposed=True, several=several)

        self._by_responses, self._by_answers = lower(self.responses), transposed(self.responses)
        self._by_gradient = lower(self._gradient[None], symmetric=1)
        if not self.population:
            # online cov(phi) is diagonal
            self._by_pulled = lower(self._pulled, symmetric=int(self.full_batch))
            self._by_kernel, self._by_spread = transposed(self.kernel[None]), lower(self.spread[None], symmetric=1)
            self._by_source = lower(self.source[None], symmetric=int(self.full_batch))
            self._by_moment = transposed(self.moment_one[None])
        if self.full_batch:
            self._by_answered = lower(self._answered, symmetric=2)
            # one row for each of two products: a product of two rows would cost more
            twice = np.broadcast_to(self.data_response, (2, *self.data_response.shape))
            self._by_data_response = transposed(twice)

    @property
    def sample_error(self) -> np.ndarray:
        """C_Delta, the covariance of the errors on the training samples; shape (n, n), in full batch only."""
        return self.limit.sample_ratio * self.source

    def advance(self, step: int, response: np.ndarray) -> None:
        """Row `step` of everything, from the row of RESP_g/kappa at the input level, known before `step`."""
        limit, (now, past, upto) = self.limit, self.rows.slices(step)
        self.kernel[now, past] = self._kernel_row(step, response)
        pull = kernel = self.kernel[now, upto]
        if not self.population:
            products = self._by_pulled(kernel[None])
            if self.full_batch:
                pull = products[1]
            _store(self.spread, now, upto, self._by_kernel(products[:1])[0])
        self.means[now] = limit.target_vectors.T - (pull @ self.means[upto]) * limit.target_points
        if len(self.responses):
            self.responses[:, now, past] = self._by_responses(pull[None])[..., past] * self._minus_points
        sums = self._sums(step)
        if self.full_batch:
            _store(self._answered[:2], now, upto, sums)
        else:
            _store(self.weight_error, now, upto, sums[0])
        if self.population:
            row = sums[1]
            self._answer_row = self._moment_rows[1] if limit.uses_nodes else None
        else:
            row = self._fluctuating_gradient(step, sums)
        _store(self.data_gradient, now, upto, row)

    def _kernel_row(self, step: int, response: np.ndarray) -> np.ndarray:
        """Row of K, before `step`."""
        now, past, _ = self.rows.slices(step)
        row = response * self.memory.initial(step, past.stop, self.limit.variances[0])
        row += self.memory.gain(step, past.stop) * self._gradient[now, past]
        return row

    def _sums(self, step: int) -> np.ndarray:
        """Rows of the sums of ``w lambda <v v^T>`` and ``w lambda^2 <v v^T>`` over modes, shape (2, outputs, upto)."""
        limit, now, _, upto = self.limit, *self.rows.slices(step)
        sums = (self.means[now] * self._target_moments) @ self.means[upto].T
        if limit.uses_nodes:
            rows = self.responses[:, now, upto]
            left = self.memory.decayed(_flat_product(self.memory.decayed(rows), self._by_gradient))
            left *= limit.variances[0] * limit.inverse_scale_squared
            if not self.population:
                left += self._points * _flat_product(rows, self._by_spread)
            self._moment_rows = _weighted(self._moments[:2], rows)
            sums += _weighted(self._moments[1:], self._by_answers(left))
        return sums

    def _fluctuating_gradient(self, step: int, sums: np.ndarray) -> np.ndarray:
        """Row of C_u where the training data fluctuate: the learned part, and phi itself through V_k on both sides."""
        limit, now, _, upto = self.limit, *self.rows.slices(step)
        self.moment_one[now, upto] = moment_row = self._moment_rows[1]
        if self.full_batch:
            learned = self._sample_rows(step)
        else:
            learned, self._answer_row = sums[1], moment_row
            self.source[now, now] = (sums[0][:, now] + limit.noise) / limit.sample_ratio
        source = self.source[now, upto]
        row = learned - self._mean_eigenvalue * source
        row += self._by_source(moment_row[None])[0]
        row += self._by_moment(source[None])[0]
        return row

    def _sample_rows(self, step: int) -> np.ndarray:
        """Rows of R_D and C_Delta, and of the learned part of C_u as the finite training set answers it."""
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        self.data_response[now, past] = self._moment_rows[0][:, past] / limit.sample_ratio
        response = self.data_response[now, upto]
        products = self._by_answered(response[None])
        self._answer_row = products[2]
        sample_error, learned = self._by_data_response(products[:2])
        self._constant_answer[now] = response @ self._constant[upto]
        sample_error += (self._constant_answer[now] @ limit.noise) @ self._constant_answer[upto].T
        _store(self.source, now, upto, sample_error / limit.sample_ratio)
        return learned

    def memory_row(self, step: int) -> np.ndarray:
        """Row of P^0 / kappa: how the first hidden level answers a change behind it; shape (outputs, upto)."""
        limit, now, _, upto = self.limit, *self.rows.slices(step)
        row = self.memory.gain(step, upto.stop) * self.data_gradient[now, upto]
        if self._answer_row is not None:
            factor = limit.variances[0] * limit.inverse_scale_squared
            row -= self._answer_row * self.memory.initial(step, upto.stop, factor)
        return row


def _store(matrix: np.ndarray, now: slice, upto: slice, rows: np.ndarray) -> None:
    """Write rows into symmetric matrices, and their mirror images."""
    if now.stop - now.start > 1:
        symmetrize(rows[..., now])
    matrix[..., now, upto] = rows
    matrix[..., upto, now] = rows.swapaxes(-1, -2)


def _flat_product(rows: np.ndarray, by_matrix: GrowingProduct) -> np.ndarray:
    """Rows of several nodes, (nodes, outputs, n), times one matrix: one product of all rows."""
    return by_matrix(rows.reshape(1, -1, rows.shape[-1])).reshape(rows.shape)


def _weighted(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Weighted sums over nodes: (sums, nodes) and (nodes, outputs, n) to (sums, outputs, n)."""
    nodes, outputs, size = rows.shape
    return (weights @ rows.reshape(nodes, outputs * size)).reshape(len(weights), outputs, size)
