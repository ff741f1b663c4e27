"""A few nodes instead of all modes: Gauss quadrature of the eigenvalues (docs/theory/deep-linear.md, "Quadrature")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal

from lazyrich.problem.data import Data, GaussianData, PowerLawData
from lazyrich.problem.spectrum import find_modes, power_law

# Above this many modes a power law is summed by Gauss rules on ranges of mode numbers.
_EXPLICIT_MODES = 512
# Eigenvalues closer than this (relative to the largest) are one node.
_EQUAL = 1e-13


@dataclass(frozen=True)
class Measure:
    """Points and weights on the eigenvalue axis: ``sum_k w_k f(lambda_k)``.

    Attributes
    ----------
    points : ndarray, shape (modes,)
    weights : ndarray, shape (modes,)
    """

    points: np.ndarray
    weights: np.ndarray

    def gauss(self, nodes: int) -> Measure:
        """The Gauss rule with at most `nodes` nodes, exact for polynomials of degree ``2 nodes - 1``."""
        diagonal, off_diagonal = self.jacobi(nodes)
        return self._rule(diagonal, off_diagonal)

    def gauss_rules(self, most: int) -> Iterator[Measure]:
        """The Gauss rules with 1, 2, .. nodes, as far as there are more points, at most `most`."""
        diagonal, off_diagonal = self.jacobi(most)
        for nodes in range(1, len(diagonal) + 1):
            yield self._rule(diagonal[:nodes], off_diagonal[: nodes - 1])

    def jacobi(self, nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """Diagonal and off-diagonal of the Jacobi matrix, points scaled to at most 1; fewer rows if points run out.

        Lanczos on ``diag(points)`` started at ``sqrt(weights)``, with full reorthogonalisation (Golub & Meurant,
        "Matrices, Moments and Quadrature", section 4).
        """
        total, scale = self.weights.sum(), self.points.max()
        if total <= 0 or scale <= 0:
            return np.zeros(1), np.zeros(0)
        vector = np.sqrt(self.weights / total)
        basis = np.zeros((min(nodes, len(vector)), len(vector)))
        diagonal, off_diagonal = [], []
        for index in range(len(basis)):
            basis[index] = vector
            image = self.points / scale * vector
            diagonal.append(vector @ image)
            for _ in range(2):  # twice is enough
                image = image - basis[: index + 1].T @ (basis[: index + 1] @ image)
            norm = np.linalg.norm(image)
            if norm < _EQUAL or index + 1 == len(basis):
                break
            off_diagonal.append(norm)
            vector = image / norm
        return np.array(diagonal), np.array(off_diagonal)

    def _rule(self, diagonal: np.ndarray, off_diagonal: np.ndarray) -> Measure:
        points, vectors = eigh_tridiagonal(diagonal, off_diagonal)
        return Measure(np.clip(points, 0.0, None) * self.points.max(), self.weights.sum() * vectors[0] ** 2)


@dataclass(frozen=True)
class DataMeasure:
    """What the theory needs to know of the data.

    Attributes
    ----------
    modes : Measure
        All modes, with weights that sum to 1.
    target_points : ndarray, shape (J,)
    target_vectors : ndarray, shape (J, C)
        ``sum_k w_k f(lambda_k) beta*_k beta*_k^T = sum_j f(target_points_j) z_j z_j^T``.
    noise : ndarray, shape (C, C)
        Covariance of the label noise, or of the residuals of a data set's least-squares fit.
    """

    modes: Measure
    target_points: np.ndarray
    target_vectors: np.ndarray
    noise: np.ndarray

    def first_output(self) -> DataMeasure:
        """The same of the first output alone."""
        present = self.target_vectors[:, 0] != 0.0
        vectors = self.target_vectors[present, :1]
        return DataMeasure(self.modes, self.target_points[present], vectors, self.noise[:1, :1])

    def compress_targets(self, nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """Points (J',) and vectors (J', C) of the target with at most `nodes` nodes per independent output."""
        points, vectors = self.target_points, self.target_vectors
        outputs = vectors.shape[1]
        if outputs > 1:
            return points, vectors  # vectors cost little beside C x C blocks
        rule = Measure(points, vectors[:, 0] ** 2).gauss(nodes)
        return rule.points, np.sqrt(rule.weights)[:, None]


def data_measure(data: Data) -> DataMeasure:
    """The eigenvalue distribution and the targets of any kind of data."""
    if isinstance(data, GaussianData):
        outputs = np.eye(data.outputs)
        modes = Measure(np.ones(1), np.ones(1))
        return DataMeasure(modes, np.ones(data.outputs), outputs, data.label_noise**2 * outputs)
    if isinstance(data, PowerLawData):
        # Equal and orthogonal targets: one scalar measure of target power, the same for every output.
        index, counts = _mode_numbers(data.dimension)
        weights = counts / data.dimension
        points, power = power_law(data, index)
        points = points / (weights @ points)
        power = power / (weights @ (points * power))
        outputs = np.eye(data.outputs)
        target_points, target_weights = points, weights * power
        if data.outputs > 1:
            rule = Measure(target_points, target_weights).gauss(96)
            target_points, target_weights = rule.points, rule.weights
        return DataMeasure(
            Measure(points, weights),
            np.tile(target_points, data.outputs),
            np.kron(outputs, np.sqrt(target_weights)[:, None]),
            data.label_noise**2 * outputs,
        )
    modes = find_modes(data)
    dimension = len(modes.eigenvalues)
    return DataMeasure(
        Measure(modes.eigenvalues, np.full(dimension, 1.0 / dimension)),
        modes.eigenvalues,
        modes.targets / np.sqrt(dimension),
        modes.noise,
    )


def _mode_numbers(dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Mode numbers and how many modes each stands for, for sums of smooth functions over 1 .. dimension.

    The first numbers stand for themselves; beyond, ranges that grow by a fifth are summed by the Gauss rule of the
    uniform measure on their integers (Jacobi matrix of the discrete Chebyshev polynomials), exact to degree 15.
    """
    explicit = dimension if dimension < 1.5 * _EXPLICIT_MODES else _EXPLICIT_MODES
    numbers, counts = [np.arange(1.0, explicit + 1)], [np.ones(explicit)]
    first, order = explicit + 1, np.arange(1.0, 8.0)
    while first <= dimension:
        left = dimension - first + 1
        count = left if left < first // 2 else first // 5
        off_diagonal = np.sqrt(order**2 * (count**2 - order**2) / (4 * (4 * order**2 - 1)))
        points, vectors = eigh_tridiagonal(np.full(8, (count - 1) / 2), off_diagonal)
        numbers.append(first + points)
        counts.append(count * vectors[0] ** 2)
        first += count
    return np.concatenate(numbers), np.concatenate(counts)
