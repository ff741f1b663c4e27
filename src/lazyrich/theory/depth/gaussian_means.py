"""Means of a nonlinearity over Gaussian variables: ``E phi(u)`` and ``E phi(u) phi(v)`` (docs/theory/depth.md).

Closed forms where there are any (linear; relu and abs are arc-cosine kernels, Cho & Saul 2009), and else a quadrature
in polar coordinates that never integrates across a kink at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import erf

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import known_name

Function = Callable[[np.ndarray], np.ndarray]

FUNCTIONS: Mapping[str, Function] = {
    "linear": lambda z: z,
    "relu": lambda z: np.maximum(z, 0.0),
    "abs": np.abs,
    "tanh": np.tanh,
    "gelu": lambda z: 0.5 * z * (1.0 + erf(z / math.sqrt(2.0))),
}

_RADIUS = 9.0  # beyond it the Gaussian weight is below 3e-18
_RADII, _ANGLES = 64, 32


def nonlinearity(kind: str | Function) -> Function:
    """The function of a name in :data:`FUNCTIONS`; a function of arrays stays what it is.

    Raises
    ------
    LazyrichError
        For an unknown name.
    """
    return kind if callable(kind) else FUNCTIONS[known_name("nonlinearity", kind, FUNCTIONS)]


def mean(kind: str | Function, variance: np.ndarray) -> np.ndarray:
    """``E phi(u)`` for u of mean 0 and these variances; same shape.

    Exact for linear, relu and abs. Else by Gauss-Legendre rules on both sides of 0: for tanh, gelu and ``|z|^p`` with
    p >= 1 as exact as floating-point numbers for variances up to 10.
    """
    variance = np.asarray(variance, dtype=float)
    phi = nonlinearity(kind)
    if isinstance(kind, str) and kind in ("linear", "relu", "abs"):
        return {"linear": 0.0, "relu": 0.5, "abs": 1.0}[kind] * np.sqrt(2.0 * variance / np.pi)
    points, weights = _radial_rule()
    weights = weights * np.exp(-(points**2) / 2) / math.sqrt(2.0 * np.pi)
    scaled = np.sqrt(variance)[..., None] * points
    return (phi(scaled) + phi(-scaled)) @ weights


def product_mean(kind: str | Function, first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """``E phi(u) phi(v)`` for jointly Gaussian u, v of mean 0.

    Parameters
    ----------
    kind : str or function
        A key of :data:`FUNCTIONS`, or any function of arrays that is smooth apart from 0.
    first, second, covariance : ndarray
        ``E u^2``, ``E v^2`` and ``E u v``; shapes that broadcast.

    Returns
    -------
    ndarray
        In closed form for ``"linear"``, ``"relu"`` and ``"abs"`` with ``rho = cos theta``: ``covariance``, ``sqrt(E u^2
        E v^2)/(2 pi) (sin theta + (pi - theta) cos theta)``, ``sqrt(E u^2 E v^2) (2/pi) (sin theta + (pi/2 - theta) cos
        theta)``. Else by quadrature.
    """
    first, second, covariance = np.broadcast_arrays(*(np.asarray(a, dtype=float) for a in (first, second, covariance)))
    phi = nonlinearity(kind)
    if kind == "linear":
        return covariance + 0.0
    scale = np.sqrt(first * second)
    rho = np.clip(np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0), -1.0, 1.0)
    angle = np.arccos(rho)
    if kind == "relu":
        return scale / (2.0 * np.pi) * (np.sin(angle) + (np.pi - angle) * rho)
    if kind == "abs":
        return scale * (2.0 / np.pi) * (np.sin(angle) + (np.pi / 2 - angle) * rho)
    return _polar(phi, np.sqrt(first), np.sqrt(second), angle)


def kernel(kind: str | Function, covariance: np.ndarray) -> np.ndarray:
    """``E phi(z) phi(z)^T`` for a Gaussian vector z of this covariance, shape (P, P)."""
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        raise LazyrichError("covariance", f"has the shape {covariance.shape}", "give a square matrix")
    variance = np.diag(covariance)
    rows, columns = np.triu_indices(len(variance))
    value = np.empty_like(covariance, dtype=float)
    value[rows, columns] = product_mean(kind, variance[rows], variance[columns], covariance[rows, columns])
    value[columns, rows] = value[rows, columns]
    return value


def _radial_rule() -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.legendre.leggauss(_RADII)
    return _RADIUS / 2 * (points + 1.0), _RADIUS / 2 * weights


def _polar(phi: Function, first: np.ndarray, second: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """``E phi(u) phi(v)`` in polar coordinates of two independent normal variables.

    ``u = first r cos(t)``, ``v = second r cos(t - angle)``. Both change sign only at ``t = +-pi/2`` and ``t = angle
    +- pi/2``: on the four arcs between them a nonlinearity with a kink at 0 is smooth, and Gauss-Legendre converges.
    """
    radii, radial = _radial_rule()
    radial = radial * radii * np.exp(-(radii**2) / 2)
    nodes, weights = np.polynomial.legendre.leggauss(_ANGLES)
    corners = np.stack(
        np.broadcast_arrays(-np.pi / 2, angle - np.pi / 2, np.pi / 2, angle + np.pi / 2, 1.5 * np.pi), axis=-1
    )
    total = np.zeros_like(angle)
    for arc in range(4):
        start, length = corners[..., arc], corners[..., arc + 1] - corners[..., arc]
        turns = start[..., None] + length[..., None] * (nodes + 1.0) / 2
        u = (first[..., None] * np.cos(turns))[..., None] * radii
        v = (second[..., None] * np.cos(turns - angle[..., None]))[..., None] * radii
        total = total + length / 2 * ((phi(u) * phi(v)) @ radial @ weights)
    return total / (2.0 * np.pi)
