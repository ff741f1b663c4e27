"""The data level of the equations, one time step at a time (docs/theory/deep-linear.md, "The data level")."""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.limit import Limit
from lazyrich.theory.deep_linear.rows import Rows


class DataLevel:
    """Errors v and data-weighted errors u, mode by mode at the quadrature nodes.

    With ``V_k = (1 + lambda_k K R_D)^-1`` every sum over modes is one over ``V_k X V_k^T``, so a node costs two
    products with its own matrix per row, whatever the mode of training.

    Attributes
    ----------
    weight_error : ndarray, shape (n, n)
        C_v.
    sample_error : ndarray, shape (n, n)
        C_Delta, full batch only.
    data_gradient : ndarray, shape (n, n)
        C_u.
    source : ndarray, shape (n, n)
        Covariance of phi, the fluctuation of the training data; absent in population mode.
    """

    def __init__(self, limit: Limit, rows: Rows) -> None:
        self.limit, self.rows = limit, rows
        size, nodes = limit.size, limit.nodes
        self.full_batch, self.population = limit.mode == "full-batch", limit.mode == "population"
        self.memory = rows.layer(0)
        self.points, self.weights = nodes.points[:, None, None], nodes.weights
        count = len(nodes.points) if limit.uses_nodes else 0
        self.responses = np.zeros((count, size, size))  # V_k
        self.means = np.zeros((size, len(limit.target_points)))  # means of v, by target node
        self.weight_error = np.zeros((size, size))
        self.data_gradient = np.zeros((size, size))
        if not self.population:
            self.kernel = np.zeros((size, size))  # K
            self.source = np.zeros((size, size))
            self.spread = np.zeros((size, size))  # K cov(phi) K^T
            self.theta = np.zeros((size, size))  # R_D V2 K
        if self.full_batch:
            self.sample_error = np.zeros((size, size))
            self.noisy_error = np.zeros((size, size))  # C_v + noise
            self.data_response = np.zeros((size, size))  # R_D
            self.moment_one = np.zeros((size, size))  # sum w lambda V
            self.moment_two = np.zeros((size, size))  # sum w lambda^2 V
            self.learned = np.zeros((size, size))  # sum w lambda^2 <V (..) V^T> + means

    def advance(self, step: int, response: np.ndarray, gradient: np.ndarray) -> None:
        """Row `step` of everything, from RESP_g/kappa (rows known: the past) and G at the input level.

        Parameters
        ----------
        response : ndarray, shape (outputs, past)
        gradient : ndarray, shape (n, n)
            Filled up to this step.
        """
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        kernel = self.memory.initial(step, limit.variances[0])[:, past] * response
        kernel += self.memory.gain(step)[:, past] * gradient[now, past]
        pull = kernel @ self.data_response[past, past] if self.full_batch else kernel
        self.means[now] = limit.target_vectors.T - limit.target_points * (pull @ self.means[past])
        if len(self.responses):
            self.responses[:, now, past] = -self.points * (pull @ self.responses[:, past, past])
            self.responses[:, now, now] = np.eye(limit.outputs)
        if not self.population:
            self.kernel[now, past] = kernel
            self.spread[now, upto] = kernel @ self.source[past, past] @ self.kernel[upto, past].T
            self.spread[upto, now] = self.spread[now, upto].T
        self._errors(step, gradient)
        self._data_gradient(step)

    def _errors(self, step: int, gradient: np.ndarray) -> None:
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        rows = self.responses[:, now, upto]
        points, means = limit.target_points, self.means
        mean_rows = means[now] * points
        self.weight_error[now, upto] = mean_rows @ means[upto].T
        self.squared = (mean_rows * points) @ means[upto].T  # weighted by lambda^2
        if len(rows):
            scale = self.memory.initial_vector(step)
            left = (rows * scale) @ gradient[upto, upto] * (scale * limit.variances[0] * limit.inverse_scale_squared)
            if not self.population:
                left += self.points * (rows @ self.spread[upto, upto])
            sums = left @ self.responses[:, upto, upto].transpose(0, 2, 1)
            once = self.weights * limit.nodes.points
            self.weight_error[now, upto] += np.tensordot(once, sums, 1)
            self.squared += np.tensordot(once * limit.nodes.points, sums, 1)
        self.weight_error[upto, now] = self.weight_error[now, upto].T

    def _data_gradient(self, step: int) -> None:
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        rows = self.responses[:, now, upto]
        once = self.weights * limit.nodes.points
        if len(rows):
            self.moment_row = np.tensordot(once, rows, 1)
        if self.population:
            self.data_gradient[now, upto] = self.squared
        else:
            moment_two = np.tensordot(once * limit.nodes.points, rows, 1)
            if self.full_batch:
                self._sample_rows(step)
                response = self.data_response[now, upto]
                self.moment_one[now, upto], self.moment_two[now, upto] = self.moment_row, moment_two
                self.learned[now, upto], self.learned[upto, now] = self.squared, self.squared.T
                learned = response @ self.learned[upto, upto] @ self.data_response[upto, upto].T
                self.moment_row = response @ self.moment_one[upto, upto]
                moment_two = response @ self.moment_two[upto, upto]
            else:
                learned = self.squared
                batch_error = self.weight_error[now, now] + limit.noise
                self.source[now, now] = batch_error / limit.sample_ratio
            self.theta[now, upto] = moment_two @ self.kernel[upto, upto]
            crossed = self.theta[now, past] @ self.source[past, upto]
            crossed += self.source[now, upto] @ self.theta[upto, upto].T
            self.data_gradient[now, upto] = once.sum() * self.source[now, upto] + learned - crossed
        self.data_gradient[upto, now] = self.data_gradient[now, upto].T

    def _sample_rows(self, step: int) -> None:
        """Rows of R_D and C_Delta: what the finite training set does to the errors on it."""
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        memory = -(self.moment_row @ self.kernel[upto, past])  # R_v
        self.data_response[now, past] = memory @ self.data_response[past, past] / limit.sample_ratio
        self.data_response[now, now] = np.eye(limit.outputs)
        self.noisy_error[now, upto] = self.weight_error[now, upto] + np.tile(limit.noise, step + 1)
        self.noisy_error[upto, now] = self.noisy_error[now, upto].T
        row = self.data_response[now, upto] @ self.noisy_error[upto, upto] @ self.data_response[upto, upto].T
        self.sample_error[now, upto], self.sample_error[upto, now] = row, row.T
        self.source[now, upto], self.source[upto, now] = row / limit.sample_ratio, row.T / limit.sample_ratio

    def memory_row(self, step: int) -> np.ndarray:
        """Row of P^0 / kappa: how the first hidden level answers a change behind it; shape (outputs, upto)."""
        limit, now, past, upto = self.limit, *self.rows.slices(step)
        row = self.memory.gain(step)[:, upto] * self.data_gradient[now, upto]
        if limit.inverse_scale_squared > 0:
            row -= (
                self.memory.initial(step, limit.variances[0] * limit.inverse_scale_squared)[:, upto] * self.moment_row
            )
        return row
