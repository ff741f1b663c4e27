"""Factor pairs to start from: a real network of any width, made small, or the law's own pair."""

from __future__ import annotations

import numpy as np

Factors = tuple[np.ndarray, np.ndarray]


def tied_factors(product: np.ndarray, threshold: float) -> Factors:
    """The pair whose gradient flow is the law, exactly (Tu, Aranguri & Jacot 2024).

    With ``A(0) = U S V^T`` (thin) and ``theta = 1/2 asinh(S / s0)``::

        W1 = sqrt(s0) [V cosh(theta) V^T + 1 - V V^T ; U sinh(theta) V^T]
        W2 = sqrt(s0) [U sinh(theta) V^T , U cosh(theta) U^T + 1 - U U^T]

    so that ``W2 W1 = A(0)`` and ``W1 W1^T - W2^T W2 = s0 diag(1, -1)``, which gradient flow keeps.

    Parameters
    ----------
    product : ndarray, shape (d_out, d_in)
        A(0).
    threshold : float
        s0.

    Returns
    -------
    first, second : ndarray, shape (d_in + d_out, d_in) and (d_out, d_in + d_out)
    """
    left, values, right = np.linalg.svd(product, full_matrices=False)
    right = right.T
    theta = 0.5 * np.arcsinh(values / threshold)
    # cosh(theta) - 1 = 2 sinh(theta/2)^2 keeps small angles exact
    excess, slope = 2.0 * np.sinh(theta / 2) ** 2, np.sinh(theta)
    corner = (left * slope) @ right.T
    first = np.vstack([np.eye(product.shape[1]) + (right * excess) @ right.T, corner])
    second = np.hstack([corner, np.eye(product.shape[0]) + (left * excess) @ left.T])
    return np.sqrt(threshold) * first, np.sqrt(threshold) * second


def full_network(
    shape: tuple[int, int], width: int, variances: tuple[float, float], random: np.random.Generator
) -> Factors:
    """Weights of a network of this width, shapes (w, d_in) and (d_out, w)."""
    first = np.sqrt(variances[0]) * random.standard_normal((width, shape[1]))
    second = np.sqrt(variances[1]) * random.standard_normal((shape[0], width))
    return first, second


def reduced(factors: Factors) -> Factors:
    """The same product and training with at most ``d_in + d_out`` hidden units.

    ``[W1, W2^T] = Q R``: gradients of the two blocks of R are those of W1 and W2^T times Q^T, and Q drops out of the
    product. It holds for every optimiser that does not notice rotations of the hidden units.
    """
    first, second = factors
    triangle = np.asarray(np.linalg.qr(np.hstack([first, second.T]), mode="r"))
    return triangle[:, : first.shape[1]], np.ascontiguousarray(triangle[:, first.shape[1] :].T)


def bartlett_network(
    shape: tuple[int, int], width: int, variances: tuple[float, float], random: np.random.Generator
) -> Factors:
    """The reduced weights of a random network of any width >= d_in + d_out, drawn directly.

    The triangular factor R of a normal matrix has normal entries above its diagonal, and on it square roots of
    chi-squared numbers with w, w - 1, .. degrees of freedom (Bartlett 1933).
    """
    count = shape[0] + shape[1]
    triangle = np.triu(random.standard_normal((count, count)), 1)
    np.fill_diagonal(triangle, np.sqrt(random.chisquare(width - np.arange(count))))
    first = np.sqrt(variances[0]) * triangle[:, : shape[1]]
    return first, np.sqrt(variances[1]) * np.ascontiguousarray(triangle[:, shape[1] :].T)


def mode_start(factors: Factors, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each mode starts, and its own threshold.

    For ``x = W1 v`` and ``y = W2^T u``: ``q0 = x . y`` and ``m = sqrt(((|x|^2 + |y|^2)/2)^2 - q0^2)``; a mode whose
    gradient stays aligned follows the law of one singular value with s0 = m from s(0) = q0.

    Returns
    -------
    amplitude, threshold : ndarray, shape (modes,)
    """
    inward, outward = factors[0] @ right, factors[1].T @ left
    amplitude = np.einsum("ij,ij->j", inward, outward)
    half = 0.5 * (np.einsum("ij,ij->j", inward, inward) + np.einsum("ij,ij->j", outward, outward))
    return amplitude, np.sqrt(np.maximum(half - amplitude, 0.0) * np.maximum(half + amplitude, 0.0))
