"""Loss against learning rate as a curve: its resamplings, and where and how well its minimum can be located."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy import stats
from scipy.interpolate import Akima1DInterpolator

from lazyrich.errors import LazyrichError

# Octaves to both sides of the minimum, and nats above it, that the wide parabola is fitted to.
_REACH = 1.5
_HEIGHT = 0.7
# Octaves that an estimate may be away from the best rate of the grid.
FARTHEST = 1.0
# Root mean square misfit (nat) of the wide parabola that is too small to matter.
_EXACT = 1e-6
# Root mean square misfit of a cubic around the minimum, per range of the losses there, above which there is a kink.
_SMOOTH = 0.02
_COVERED = (0.025, 0.975)

Method = Literal["parabola", "cubic", "points"]


class Curve(NamedTuple):
    """A loss curve over the rates that finished, ready for estimates.

    Attributes
    ----------
    x : ndarray
        log2 of the rates from the lowest that finished up to the first divergence, shape (n,).
    y : ndarray
        log of the mean loss, shape (n,).
    draws : ndarray
        The same for resampled networks, shape (draws, n); all equal to `y` with one network.
    networks : int
        M; 1 by theory.
    inflation : float
        What the spread of estimates over the draws has to be multiplied by, because few networks were resampled.
    start : int
        Index of the first of these rates in the grid.
    next : float
        log2 of the next rate of the grid, which diverged; NaN if the grid ends.
    """

    x: np.ndarray
    y: np.ndarray
    draws: np.ndarray
    networks: int
    inflation: float
    start: int
    next: float


def read_curve(
    rates: np.ndarray, losses: np.ndarray, draws: int = 400, seed: int = 0, least: float = 0.0
) -> Curve | None:
    """Check rates and losses, leave out what diverged, resample the networks.

    Parameters
    ----------
    rates : array_like
        Learning rates, rising, shape (R,).
    losses : array_like
        Losses, shape (R, M) or (R,); not finite where a network diverged.
    draws, seed : int
        How many resamplings, and what they start from.
    least : float
        Mean losses below this count as this.

    Returns
    -------
    Curve or None
        None where every rate has a network that diverged.

    Raises
    ------
    LazyrichError
        When rates or losses are not such arrays.
    """
    rates = np.asarray(rates, dtype=float)
    losses = np.asarray(losses, dtype=float)
    losses = losses[:, None] if losses.ndim == 1 else losses
    if rates.ndim != 1 or not rates.size or not np.all(np.isfinite(rates) & (rates > 0)) or np.any(np.diff(rates) <= 0):
        raise LazyrichError("rates", "not a list of rising positive numbers", "sort the rates, each once")
    if losses.ndim != 2 or len(losses) != len(rates) or not losses.shape[1]:
        what = f"shape {losses.shape} does not belong to {len(rates)} rates"
        raise LazyrichError("losses", what, "give one row per rate and one column per network")
    if np.any(losses < 0):
        raise LazyrichError("losses", "some are negative, and their logarithm is needed", "give losses of at least 0")
    if draws < 2:
        raise LazyrichError("draws", f"{draws} say nothing about the spread", "give at least 2")
    finished = np.flatnonzero(np.isfinite(losses).all(axis=1))
    if not finished.size:
        return None
    start = int(finished[0])
    stop = start + int(np.sum(finished == start + np.arange(len(finished))))
    kept = losses[start:stop]
    networks = kept.shape[1]
    # A loss of zero is the best there is; the logarithm of it has to be a number.
    least = max(least, np.finfo(float).tiny)
    y = np.log(np.maximum(kept.mean(axis=1), least))
    resampled, inflation = np.tile(y, (draws, 1)), 1.0
    if networks > 1:
        chosen = np.random.default_rng(seed).integers(networks, size=(draws, networks))
        weights = np.zeros((draws, networks))
        np.add.at(weights, (np.arange(draws)[:, None], chosen), 1 / networks)
        resampled = np.log(np.maximum(weights @ kept.T, least))
        # The plain bootstrap of few networks is too narrow: variance over M instead of M - 1, and no Student's t.
        normal = stats.norm.ppf(_COVERED[1])
        inflation = float(np.sqrt(networks / (networks - 1)) * stats.t.ppf(_COVERED[1], networks - 1) / normal)
    beyond = float(np.log2(rates[stop])) if stop < len(rates) else np.nan
    return Curve(np.log2(rates[start:stop]), y, resampled, networks, inflation, start, beyond)


def grid_best(y: np.ndarray) -> int:
    """Index of the smallest value; of several equal ones, the one in the middle."""
    lowest = np.flatnonzero(y == y.min())
    return int(lowest[(len(lowest) - 1) // 2])


def _window(x: np.ndarray, y: np.ndarray, best: np.ndarray) -> np.ndarray:
    """The points of the wide parabola, shape (B, n), for curves `y` (B, n) with minima at indices `best` (B,)."""
    rows = np.arange(len(y))
    near = (np.abs(x - x[best][:, None]) <= _REACH) & (y - y[rows, best][:, None] <= _HEIGHT)
    # Only what is connected with the minimum: a second valley is another minimum.
    index = np.arange(len(x))
    below = np.where(~near & (index < best[:, None]), index, -1).max(axis=1, initial=-1)
    above = np.where(~near & (index > best[:, None]), index, len(x)).min(axis=1, initial=len(x))
    near &= (index > below[:, None]) & (index < above[:, None])
    first = np.clip(best - 1, 0, max(len(x) - 3, 0))
    nearest = (index >= first[:, None]) & (index < first[:, None] + 3)
    return np.where(near.sum(axis=1, keepdims=True) >= 3, near, nearest)


def estimates(curve: Curve) -> tuple[Method, float, float, np.ndarray, np.ndarray]:
    """The minimum of the curve and of all its draws.

    Parabola and cubic are used where they miss the points of the window by no more than the networks' noise. The
    parabola has to do better than the cubic: missing the points by half their noise moves its minimum already by as
    much as the interval is wide. Every draw makes its own choice, so that their spread has the choice's in it.

    Returns
    -------
    method : {"parabola", "cubic", "points"}
        The one used for the curve.
    position, level : float
        log2 of its best rate, and the log loss there.
    positions, levels : ndarray
        The same for the draws, shape (draws,).
    """
    window = _window(curve.x, curve.y[None], np.array([grid_best(curve.y)]))[0]
    method: Method = "points"
    left = np.ones(len(curve.draws), dtype=bool)
    positions, levels = np.empty(len(left)), np.empty(len(left))
    choices: tuple[tuple[Method, int, float], ...] = (("parabola", 2, 0.5), ("cubic", 3, 0.9))
    for choice, degree, quantile in choices:
        if window.sum() <= degree + 2:
            continue
        misfit, misfits, limit = _misfits(curve, window, degree, quantile)
        if method == "points" and misfit <= limit:
            method = choice
        # The draws' noise is added to the noise that they are drawn from.
        use = left & (misfits <= 3 * limit)
        positions[use], levels[use] = minima(curve.x, curve.draws[use], choice)
        left &= ~use
    if left.any():
        positions[left], levels[left] = minima(curve.x, curve.draws[left], "points")
    position, level = minima(curve.x, curve.y[None], method)
    return method, float(position[0]), float(level[0]), positions, levels


def _misfits(curve: Curve, window: np.ndarray, degree: int, quantile: float) -> tuple[float, np.ndarray, float]:
    """Squared misfit of a polynomial to the curve and to the draws, and this quantile of what noise makes of it."""
    x = curve.x[window]
    design = np.vander(x - x.mean(), degree + 1)
    annihilator = np.eye(len(x)) - design @ np.linalg.pinv(design)
    residual, residuals = annihilator @ curve.y[window], curve.draws[:, window] @ annihilator
    noise = residuals - residual
    covariance = noise.T @ noise / len(noise)
    power, limit = float(np.trace(covariance)), len(x) * _EXACT**2
    if curve.networks > 1 and power > limit:
        freedom = power**2 / np.sum(covariance**2)
        ratio = curve.networks / (curve.networks - 1)
        limit = max(limit, float(stats.f.ppf(quantile, freedom, curve.networks - 1)) * power * ratio)
    return float(residual @ residual), np.sum(residuals**2, axis=1), limit


def minima(x: np.ndarray, y: np.ndarray, method: Method) -> tuple[np.ndarray, np.ndarray]:
    """Estimates for many curves over the same rates.

    Parameters
    ----------
    x : ndarray
        log2 of the rates, shape (n,).
    y : ndarray
        log losses, shape (B, n).
    method : {"parabola", "cubic", "points"}
        A polynomial through the points near the minimum, or the smooth curve through all points.

    Returns
    -------
    positions, levels : ndarray
        log2 of the best rates and the log losses there, shape (B,).
    """
    best = np.array([grid_best(each) for each in y], dtype=int)
    rows = np.arange(len(y))
    if len(x) < 3:
        return x[best].astype(float), y[rows, best]
    if method == "points":
        return _through_points(x, y, best)
    return _polynomial(x, y, best, 2 if method == "parabola" else 3)


def _polynomial(x: np.ndarray, y: np.ndarray, best: np.ndarray, degree: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(len(y))
    window = _window(x, y, best)
    enough = window.sum(axis=1) > degree
    from_best = x - x[best][:, None]
    design = from_best[..., None] ** np.arange(degree + 1)
    normal = np.einsum("bni,bn,bnj->bij", design, window, design)
    right = np.einsum("bni,bn,bn->bi", design, window, y - y[rows, best][:, None])
    normal[~enough] = np.eye(degree + 1)
    c = np.zeros((4, len(y)))
    c[: degree + 1] = np.linalg.solve(normal, right[..., None])[..., 0].T
    step, convex = _valley(c[3], c[2], c[1])
    step = np.clip(step, np.maximum(-FARTHEST, x[0] - x[best]), np.minimum(FARTHEST, x[-1] - x[best]))
    step = np.where(convex & enough, step, 0.0)
    fitted = ((c[3] * step + c[2]) * step + c[1]) * step + c[0]
    return x[best] + step, y[rows, best] + np.where(convex & enough, fitted, 0.0)


def _valley(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where ``a t^3 + b t^2 + c t`` has its local minimum, and whether it has one."""
    discriminant = b**2 - 3 * a * c
    root = np.sqrt(np.maximum(discriminant, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # two forms of the same root; for a = 0 the first is right
        t = np.where(b > 0, -c / (b + root), (root - b) / (3 * a))
    exists = (discriminant > 0) & np.isfinite(t)
    return np.where(exists, t, 0.0), exists


def _through_points(x: np.ndarray, y: np.ndarray, best: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(len(y))
    position, level = x[best].astype(float), y[rows, best].copy()
    cubic = Akima1DInterpolator(x, y.T).c  # (4, n - 1, B)
    for gap in (best - 1, best):
        inside = (gap >= 0) & (gap < len(x) - 1)
        index = np.clip(gap, 0, len(x) - 2)
        a, b, c, d = cubic[:, index, rows]
        t, exists = _valley(a, b, c)
        inside &= exists & (t > 0) & (t < x[index + 1] - x[index])
        t = np.where(inside, t, 0.0)
        value = ((a * t + b) * t + c) * t + d
        better = inside & (value < level)
        position, level = np.where(better, x[index] + t, position), np.where(better, value, level)
    return position, level


def spread(x: np.ndarray, y: np.ndarray, best: int, position: float, method: Method) -> tuple[float, float]:
    """How far a curve known at these points only may have its minimum from the estimate.

    The minimum of a curve with one valley is between the neighbours of the grid's best rate. Of a smooth curve more is
    known: how much the estimates differ after leaving out each of the points nearby, or by a parabola through three.

    Returns
    -------
    low, high : float
        log2 rates around `position`.
    """
    tied = x[y == y.min()]
    low, high = (min(position, float(tied[0])), max(position, float(tied[-1]))) if len(tied) > 1 else (position,) * 2
    if method != "points" or len(x) < 3:
        return low, high
    left, right = float(x[max(best - 1, 0)]), float(x[min(best + 1, len(x) - 1)])
    if not _resolved(x, y, best):
        return min(low, left), max(high, right)
    first = int(np.clip(best - 1, 0, len(x) - 3))
    three = slice(first, first + 3)
    others_say = [float(_polynomial(x[three], y[None, three], np.array([best - first]), 2)[0][0])]
    for left_out in range(max(best - 2, 0), min(best + 3, len(x))):
        rest, values = np.delete(x, left_out), np.delete(y, left_out)
        others_say.append(float(minima(rest, values[None], method)[0][0]))
    others_say = np.clip(others_say, left, right)
    return min(low, *others_say), max(high, *others_say)


def _resolved(x: np.ndarray, y: np.ndarray, best: int) -> bool:
    """Whether cubics describe the curve around its minimum: no kink between the points.

    One cubic through five points may do so by chance; therefore all runs of five points with the best one inside.
    """
    runs = [slice(first, first + 5) for first in range(max(best - 3, 0), best) if first + 5 <= len(x)]
    for run in runs:
        design = np.vander(x[run] - x[best], 4)
        misfit = y[run] - design @ np.linalg.lstsq(design, y[run], rcond=None)[0]
        if np.sqrt(np.mean(misfit**2)) > _SMOOTH * np.ptp(y[run]):
            return False
    return len(runs) > 1
