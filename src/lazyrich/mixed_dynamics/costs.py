"""Costs of a matrix A, with their gradients: factorization, completion, sensing, regression, or a user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from lazyrich.errors import LazyrichError


class Cost(Protocol):
    """What a solver needs of a cost.

    Attributes
    ----------
    shape : (int, int)
        (d_out, d_in).
    curvature : float
        The largest eigenvalue of the cost's second derivative, or an estimate: it sets the default rate.
    target : ndarray or None, shape (d_out, d_in)
        The matrix of least cost, where it is known; its singular modes are followed.
    """

    @property
    def shape(self) -> tuple[int, int]: ...  # noqa: D102

    @property
    def curvature(self) -> float: ...  # noqa: D102

    @property
    def target(self) -> np.ndarray | None: ...  # noqa: D102

    def __call__(self, product: np.ndarray) -> tuple[float, np.ndarray]:
        """The train error (a mean square, twice the cost by the number of data) and the gradient of the cost."""
        ...

    def astype(self, dtype: Any) -> Cost:
        """The same cost in another precision."""
        ...


class Factorization:
    """``C = 1/2 |A - T|^2``; with a mask, over the observed entries only (matrix completion).

    Parameters
    ----------
    observed : ndarray, shape (d_out, d_in)
        T; any number where it is not observed.
    mask : ndarray of bool, shape (d_out, d_in), optional
    """

    curvature = 1.0

    def __init__(self, observed: np.ndarray, mask: np.ndarray | None = None) -> None:
        self.shape = (observed.shape[0], observed.shape[1])
        self.target = observed if mask is None else None
        self._observed = observed if mask is None else np.where(mask, observed, 0.0).astype(observed.dtype)
        self._mask = None if mask is None else mask.astype(observed.dtype)
        self._count = observed.size if mask is None else int(mask.sum())
        self._gradient = np.empty_like(self._observed)

    def __call__(self, product: np.ndarray) -> tuple[float, np.ndarray]:
        """See :class:`Cost`; the gradient's memory is used again at the next call."""
        np.subtract(product, self._observed, out=self._gradient)
        if self._mask is not None:
            self._gradient *= self._mask
        return float(np.vdot(self._gradient, self._gradient)) / self._count, self._gradient

    def astype(self, dtype: Any) -> Factorization:
        """See :class:`Cost`."""
        mask = None if self._mask is None else self._mask.astype(bool)
        return Factorization(self._observed.astype(dtype), mask)


class Sensing:
    """``C = 1/(2m) sum_i (<X_i, A> - y_i)^2``: m linear measurements of A.

    Parameters
    ----------
    probes : ndarray, shape (m, d_out, d_in)
    values : ndarray, shape (m,)
    """

    target = None

    def __init__(self, probes: np.ndarray, values: np.ndarray) -> None:
        self.shape = (probes.shape[1], probes.shape[2])
        self._probes = probes.reshape(len(probes), -1)
        self._values = values
        # normal probes: the edge of the Marchenko-Pastur law of X^T X / m
        self.curvature = float((1.0 + np.sqrt(self._probes.shape[1] / len(values))) ** 2)

    def __call__(self, product: np.ndarray) -> tuple[float, np.ndarray]:
        """See :class:`Cost`."""
        misfit = self._probes @ product.ravel() - self._values
        gradient = (misfit @ self._probes / len(misfit)).reshape(self.shape)
        return float(misfit @ misfit) / len(misfit), gradient

    def astype(self, dtype: Any) -> Sensing:
        """See :class:`Cost`."""
        return Sensing(self._probes.reshape(-1, *self.shape).astype(dtype), self._values.astype(dtype))


class Regression:
    """``C = 1/(2n) |A X - Y|^2``, taken apart as ``1/2 |(A - A_ls) L|^2`` and what no A explains.

    Parameters
    ----------
    best : ndarray, shape (d_out, d_in)
        A_ls, the least-squares solution.
    covariance : ndarray, shape (d_in, d_in)
        ``X X^T / n``.
    rest : float
        ``|A_ls X - Y|^2 / (n d_out)``.
    """

    def __init__(self, best: np.ndarray, covariance: np.ndarray, rest: float) -> None:
        self.shape = (best.shape[0], best.shape[1])
        self.target = best
        self.curvature = float(np.linalg.eigvalsh(covariance.astype(float))[-1])
        self._covariance = covariance
        self._rest = rest

    @classmethod
    def of_samples(cls, inputs: np.ndarray, outputs: np.ndarray) -> Regression:
        """From X, shape (n, d_in), and Y, shape (n, d_out).

        Raises
        ------
        LazyrichError
            When the inputs do not span all dimensions: then least squares does not determine A.
        """
        count, dimension = inputs.shape
        rank = int(np.linalg.matrix_rank(inputs))
        if rank < dimension:
            what = f"the inputs span {rank} of {dimension} dimensions, so A is not determined (X is singular)"
            raise LazyrichError("matrix.samples", what, f"give at least {dimension} independent samples")
        best = np.linalg.lstsq(inputs, outputs, rcond=None)[0].T
        misfit = outputs - inputs @ best.T
        return cls(best, inputs.T @ inputs / count, float((misfit**2).mean()))

    def __call__(self, product: np.ndarray) -> tuple[float, np.ndarray]:
        """See :class:`Cost`."""
        distance = product - self.target
        gradient = distance @ self._covariance
        return float(np.vdot(distance, gradient)) / self.shape[0] + self._rest, gradient

    def astype(self, dtype: Any) -> Regression:
        """See :class:`Cost`."""
        return Regression(self.target.astype(dtype), self._covariance.astype(dtype), self._rest)


class Custom:
    """A user's cost: a function of A in JAX that gives one number.

    Parameters
    ----------
    function : callable
        From an array of shape (d_out, d_in) to a scalar.
    shape : (int, int)
    target : ndarray, optional
        The matrix of least cost, if it is known.

    Raises
    ------
    LazyrichError
        When it cannot be differentiated, or its value or gradient at a small random matrix is not a finite number.
    """

    def __init__(
        self, function: Callable[[Any], Any], shape: tuple[int, int], target: np.ndarray | None = None
    ) -> None:
        import jax

        self.shape = shape
        self.target = target
        self._function = function
        self._dtype: Any = np.float64
        try:
            self._compiled = jax.jit(jax.value_and_grad(function))
            probe = np.random.default_rng(0).standard_normal(shape) * 1e-3
            value, gradient = self(probe)
        except LazyrichError:
            raise
        except Exception as error:  # whatever the user's function raises while it is traced
            reason = " ".join(str(error).split())[:160]
            what = f"cannot be differentiated ({type(error).__name__}: {reason})"
            raise LazyrichError("cost", what, "give a function of A in jax.numpy that returns one number") from None
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise LazyrichError("cost", "is not a finite number at a small random matrix", "give a finite cost")
        self.curvature = self._largest_curvature(probe)

    def __call__(self, product: np.ndarray) -> tuple[float, np.ndarray]:
        """The cost itself and its gradient."""
        from lazyrich.simulation.precision import double_precision

        with double_precision():
            value, gradient = self._compiled(product.astype(self._dtype))
        return float(value), np.asarray(gradient)

    def astype(self, dtype: Any) -> Custom:
        """The same cost in another precision."""
        other = Custom(self._function, self.shape, self.target)
        other._dtype = dtype
        return other

    def _largest_curvature(self, probe: np.ndarray) -> float:
        """By ten power iterations with differences of gradients."""
        direction = np.random.default_rng(1).standard_normal(self.shape)
        size = 1.0
        base = self(probe)[1]
        for _ in range(10):
            direction /= np.linalg.norm(direction)
            change = (self(probe + 1e-4 * direction)[1] - base) / 1e-4
            size = float(np.linalg.norm(change))
            if size == 0:
                raise LazyrichError("cost", "does not depend on A", "give a cost that has a gradient")
            direction = change
        return size
