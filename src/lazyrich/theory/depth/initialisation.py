"""Residual stacks at initialisation: how norms and correlations of inputs move through the blocks.

At infinite width the units of ``x_l`` are independent copies of a Gaussian-like field: its mean and covariance over
inputs are all that the next block sees, and they obey a recursion over blocks (docs/theory/depth.md, "Kernels at
initialisation"). Cost: one Gaussian mean per pair of inputs and block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import known_name
from lazyrich.theory.depth.gaussian_means import Function, kernel, mean

NORMALISATIONS = {
    "none": "the block sees x itself",
    "layer": "layer norm: the mean over the width is subtracted, then the variance over it is made 1",
    "rms": "the mean square over the width is made 1",
}
MEAN_SUBTRACTIONS = {
    "none": "nothing is subtracted",
    "before": "from the pre-activation, whose mean over an infinite width is 0 already",
    "after": "from what the nonlinearity gives",
}


@dataclass(frozen=True)
class Kernels:
    """Moments over the width, block by block; index 0 is the network's input level.

    Attributes
    ----------
    second : ndarray, shape (blocks + 1, P, P)
        ``x_l(mu) . x_l(nu) / n``.
    mean : ndarray, shape (blocks + 1, P)
        The mean of ``x_l(mu)`` over its units.
    """

    second: np.ndarray
    mean: np.ndarray

    @property
    def norms(self) -> np.ndarray:
        """``|x_l|^2 / n``, shape (blocks + 1, P)."""
        return np.diagonal(self.second, axis1=1, axis2=2)

    @property
    def correlations(self) -> np.ndarray:
        """Cosines of the angles between inputs, shape (blocks + 1, P, P)."""
        roots = np.sqrt(self.norms)
        return self.second / (roots[:, :, None] * roots[:, None, :])


@np.errstate(over="ignore", invalid="ignore")  # what overflows is an error below
def propagate(
    covariance: np.ndarray,
    blocks: int,
    kind: str | Function = "relu",
    *,
    branch: float = 1.0,
    block_layers: int = 1,
    normalisation: str = "none",
    post: bool = False,
    mean_subtraction: str = "none",
) -> Kernels:
    """Kernels of a residual stack of infinite width at initialisation.

    ``x_l = x_(l-1) + branch F(x_(l-1))``, with ``F(x) = MS(phi(W LN(x)))`` for blocks of one layer and ``F(x) = W2
    MS(phi(W1 LN(x)))`` for blocks of two, weights of standard deviation ``1/sqrt(fan_in)``. With `post` the norm stands
    behind the sum instead: ``x_l = LN(x_(l-1) + branch F(x_(l-1)))``.

    Parameters
    ----------
    covariance : ndarray, shape (P, P)
        ``x_0(mu) . x_0(nu) / n``; the units of x_0 have mean 0 (a random input layer).
    blocks : int
    kind : str or function
        ``"linear"``, ``"relu"``, ``"abs"``, ``"tanh"``, ``"gelu"``, or any function of arrays that is smooth apart
        from 0, such as ``lambda z: abs(z) ** 1.5``.
    branch : float
        The factor in front of every block, ``a m^-alpha``.
    block_layers : int
        1 or 2.
    normalisation, mean_subtraction : str
        Keys of :data:`NORMALISATIONS` and :data:`MEAN_SUBTRACTIONS`.
    post : bool
        Whether the norm stands behind the sum; before the block otherwise.

    Returns
    -------
    Kernels

    Raises
    ------
    LazyrichError
        For an unknown name, a covariance that is none, or numbers that overflow.

    Notes
    -----
    Blocks of one layer whose nonlinearity has a mean, such as relu, push all units the same way: without mean
    subtraction the mean of x grows as ``branch l``, and its square beats the sum of the independent parts.

    Examples
    --------
    >>> import numpy as np
    >>> pair = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> stack = propagate(pair, 64, "relu", block_layers=2, normalisation="layer")
    >>> [round(float(value), 3) for value in (stack.norms[64, 0], stack.correlations[64, 0, 1])]
    [33.0, 0.73]
    """
    second = _checked(covariance)
    known_name("normalisation", normalisation, NORMALISATIONS)
    known_name("mean_subtraction", mean_subtraction, MEAN_SUBTRACTIONS)
    if block_layers not in (1, 2):
        raise LazyrichError("block_layers", f"{block_layers!r} is not known", "give 1 or 2")
    if not isinstance(blocks, int) or blocks < 0:
        raise LazyrichError("blocks", f"{blocks!r} is not a number of blocks", "give a whole number, at least 0")
    if post and normalisation == "none":
        raise LazyrichError("post", "there is no norm to place", "give normalisation 'layer' or 'rms'")
    centre = np.zeros(len(second))
    spread = second  # the covariance over the units: second moment without the mean's share
    levels, means = [second], [centre]
    for index in range(blocks):
        seen = spread + np.outer(centre, centre)
        if not post:
            seen, _ = _normalised(seen, centre, normalisation)
        pushed = mean(kind, np.diag(seen))
        increment = kernel(kind, seen)
        if mean_subtraction == "after" or block_layers == 1:
            increment = increment - np.outer(pushed, pushed)
        if block_layers == 1 and mean_subtraction != "after":
            centre = centre + branch * pushed
        spread = spread + branch * (branch * increment)
        if post:
            second, centre = _normalised(spread + np.outer(centre, centre), centre, normalisation)
            spread = second - np.outer(centre, centre)
        second = spread + np.outer(centre, centre)
        if not np.isfinite(second).all():  # squares of a factor within the range of numbers may be beyond it
            raise LazyrichError("branch", f"the features overflow in block {index + 1}", "choose a smaller factor")
        levels.append(second)
        means.append(centre)
    return Kernels(np.stack(levels), np.stack(means))


def printed_correlation(correlation: float, blocks: int) -> np.ndarray:
    """The recursion for pre-LN relu stacks that was printed, and that networks reject; shape (blocks + 1,).

    The norm grows by 1/2 a block, the inner product by ``rho (pi - arccos rho)/(2 pi)``: the arc-cosine kernel without
    its square root, which concludes that two inputs become orthogonal. Kept for the study that shows the rejection;
    :func:`propagate` has the whole kernel.
    """
    values, inner = [correlation], correlation
    for block in range(1, blocks + 1):
        rho = values[-1]
        inner += rho * (np.pi - np.arccos(np.clip(rho, -1.0, 1.0))) / (2.0 * np.pi)
        values.append(inner / (1.0 + block / 2))
    return np.array(values)


def _checked(covariance: np.ndarray) -> np.ndarray:
    matrix = np.asarray(covariance, dtype=float)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.size > 0
    if not square or not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-9, atol=0.0):
        raise LazyrichError("covariance", "is not a symmetric matrix of finite numbers", "give x_0 . x_0 / n")
    if np.diag(matrix).min() <= 0.0 or np.linalg.eigvalsh(matrix)[0] < -1e-9 * np.trace(matrix):
        raise LazyrichError("covariance", "is not that of any inputs", "give a positive semidefinite matrix")
    return matrix


def _normalised(second: np.ndarray, centre: np.ndarray, normalisation: str) -> tuple[np.ndarray, np.ndarray]:
    """Second moment and mean over the units behind a norm."""
    if normalisation == "none":
        return second, centre
    if normalisation == "layer":
        second, centre = second - np.outer(centre, centre), np.zeros_like(centre)
    roots = np.sqrt(np.diag(second))
    return second / np.outer(roots, roots), centre / roots
