"""How likely a given entry of a Gaussian vector is the largest one."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

_POINTS = 32  # of the lattice; see test_accuracy.py for what is left of the error


def chance_of_largest(mean: np.ndarray, covariance: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The probability that entry `index` of a Gaussian vector is the largest.

    The differences to the other entries are Gaussian, so that it is an orthant probability. It is found by Genz's
    separation of variables (Genz, "Numerical Computation of Multivariate Normal Probabilities", 1992): one
    conditional probability a variable, the least likely first, on a lattice with a random shift of its own for every
    vector, so that averages over vectors are far more exact than each of them. Two entries are exact.

    Parameters
    ----------
    mean : ndarray, shape (n, C)
    covariance : ndarray, shape (n, C, C)
    index : ndarray of int, shape (n,)

    Returns
    -------
    ndarray, shape (n,)
    """
    count, outputs = mean.shape
    rows = np.arange(count)[:, None]
    others = np.arange(outputs - 1) + (np.arange(outputs - 1) >= index[:, None])  # all indices but one
    lead = mean[rows, index[:, None]] - mean[rows, others]
    spread = _of_differences(covariance, index, others)
    order = np.argsort(lead / np.sqrt(np.maximum(np.diagonal(spread, axis1=1, axis2=2), 1e-300)), axis=1)
    lead = np.take_along_axis(lead, order, axis=1)
    root = _root(spread[rows[:, :, None], order[:, :, None], order[:, None, :]])
    chance = ndtr(lead[:, 0] / root[:, 0, 0])[:, None]
    if outputs == 2:
        return chance[:, 0]
    points = _lattice(count, outputs - 2)
    factor = chance
    draws = np.zeros((count, outputs - 1, _POINTS))
    for variable in range(1, outputs - 1):
        draws[:, variable - 1] = ndtri(np.clip(points[:, variable - 1] * factor, 1e-300, 1 - 1e-16))
        drift = np.einsum("nj,njp->np", root[:, variable, :variable], draws[:, :variable])
        factor = ndtr((lead[:, variable, None] - drift) / root[:, variable, variable, None])
        chance = chance * factor
    return chance.mean(axis=1)


def _of_differences(covariance: np.ndarray, index: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Covariance of ``x[index] - x[others]``; shape (n, C - 1, C - 1)."""
    rows = np.arange(len(index))[:, None]
    cross = covariance[rows, index[:, None], others]
    among = covariance[rows[:, :, None], others[:, :, None], others[:, None, :]]
    return among - cross[:, :, None] - cross[:, None, :] + covariance[rows, index[:, None], index[:, None]][:, :, None]


def _root(covariance: np.ndarray) -> np.ndarray:
    """Cholesky factors; a small multiple of the identity lets a vector without spread have one too."""
    size = covariance.shape[-1]
    least = 1e-12 * np.trace(covariance, axis1=1, axis2=2) + 1e-200
    return np.linalg.cholesky(covariance + least[:, None, None] * np.eye(size))


@lru_cache(maxsize=2)  # the same for all steps
def _lattice(count: int, dimensions: int) -> np.ndarray:
    """Points in the unit cube, shape (count, dimensions, points): multiples of roots of primes, shifted and folded."""
    primes = _primes(dimensions)
    shift = np.random.default_rng(0).random((count, dimensions, 1))
    steps = np.arange(1, _POINTS + 1) * np.sqrt(primes)[:, None]
    return np.abs(2 * ((steps + shift) % 1.0) - 1)


def _primes(count: int) -> np.ndarray:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % prime for prime in found):
            found.append(candidate)
        candidate += 1
    return np.array(found, dtype=float)
