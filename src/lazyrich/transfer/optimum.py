"""The best learning rate of one loss curve, with an interval and with what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lazyrich.transfer.curves import FARTHEST, Curve, estimates, grid_best, read_curve, spread

# A curve that rises by less than this (nat) within an octave to both sides is flat.
_FLAT = 0.01
_COVERED = (0.025, 0.975)


@dataclass(frozen=True)
class Optimum:
    """The best learning rate of one loss curve.

    Attributes
    ----------
    best_rate : float
        Never outside the rates that finished; NaN where all diverged.
    interval : tuple of float
        95% interval of the best rate, always around `best_rate`. Beyond an edge of the grid it ends an octave
        further out, by convention: the grid does not say how far the best rate may be.
    loss : float
        The loss there, from the fit.
    flag : str
        Empty, or one or more of these joined by ``+``: ``"edge-low"``, ``"edge-high"`` (the best rate of the grid is
        its first or last), ``"cliff"`` (the next rate diverged: the loss falls up to the limit of stability, and
        `best_rate` is the largest stable rate), ``"flat"`` (the loss rises by less than 1% within an octave to both
        sides), ``"diverged"`` (no rate finished).
    largest_stable_rate : float
        The largest rate up to which everything from the lowest finished rate on finished; NaN if none did.
    samples : ndarray
        log2 of best rates, shape (draws,), that spread as the estimate does; for intervals of shifts.
    """

    best_rate: float
    interval: tuple[float, float]
    loss: float
    flag: str
    largest_stable_rate: float
    samples: np.ndarray = field(repr=False, compare=False)

    @property
    def flags(self) -> frozenset[str]:
        """The parts of `flag`."""
        return frozenset(self.flag.split("+")) - {""}


def find_optimum(
    rates: np.ndarray, losses: np.ndarray, *, draws: int = 400, seed: int = 0, least: float = 0.0
) -> Optimum:
    """The best learning rate of a loss curve.

    The loss is the mean over the networks; a rate with a diverged network has diverged, and rates above the first
    divergence do not count. The logarithm of the loss is fitted by a parabola in the logarithm of the rate, through the
    points within 1.5 octaves and 0.7 nat of the minimum. If the parabola misses points by more than their noise, then a
    cubic is tried; and if that does too, as where curves fall slowly and rise steeply, then the minimum of a smooth
    curve through the points (Akima's) between the two neighbours of the grid's best rate is taken. The interval comes
    from resampling the networks, all rates of a network together, widened for small numbers of networks. For the curve
    through the points, the only one by theory, it includes how far the minimum may be between the points: up to the
    neighbours unless the curve is smooth. A finer grid makes that small.

    Parameters
    ----------
    rates : array_like
        Learning rates, rising, shape (R,).
    losses : array_like
        Losses (not their logarithms), shape (R, M) with one column per network, common seeds in a column; one column by
        theory. NaN where a network diverged.
    draws : int
        Resamplings.
    seed : int
        What they start from.
    least : float
        Mean losses below this count as this: what cannot be told apart, such as errors of less than half a sample. Of
        equally good rates the one in the middle is the best, and the interval contains all.

    Returns
    -------
    Optimum

    Raises
    ------
    LazyrichError
        When rates or losses are not such arrays.

    Examples
    --------
    >>> import numpy as np
    >>> rates = np.geomspace(1e-3, 1, 12)
    >>> optimum = find_optimum(rates, np.exp(np.log2(rates / 0.1) ** 2 / 4))
    >>> round(optimum.best_rate, 6), optimum.flag
    (0.1, '')
    """
    curve = read_curve(rates, losses, draws, seed, least)
    if curve is None:
        nothing = np.full(draws, np.nan)
        return Optimum(np.nan, (np.nan, np.nan), np.nan, "diverged", np.nan, nothing)
    x, best = curve.x, grid_best(curve.y)
    flag, cliff = _flags(curve, best)
    random = np.random.default_rng([seed, 1])
    if cliff:
        position, level = float(x[best]), float(curve.y[best])
        low, high = (float(x[best - 1]) if best else position - FARTHEST), curve.next
        samples = random.uniform(low, high, draws)
    else:
        method, position, level, resampled, _ = estimates(curve)
        samples = position + curve.inflation * (resampled - position)
        # Estimates are never off the grid; their spread says nothing there either.
        samples = np.clip(samples, min(x[0], position), max(x[-1], position))
        inner = spread(x, curve.y, best, position, method)
        outer = (
            float(x[0]) - FARTHEST if "edge-low" in flag else inner[0],
            float(x[-1]) + FARTHEST if "edge-high" in flag else inner[1],
        )
        samples = samples + random.uniform(outer[0] - position, outer[1] - position, draws)
        low, high = np.quantile(samples, _COVERED) if curve.networks > 1 else outer
        low, high = min(float(low), position, outer[0]), max(float(high), position, outer[1])
    stable = np.asarray(rates, dtype=float)[curve.start : curve.start + len(x)]
    # On the grid it is the grid's number, not one rounded by logarithms.
    rate = float(stable[x == position][0] if position in x else 2**position)
    return Optimum(
        best_rate=rate,
        interval=(min(float(2**low), rate), max(float(2**high), rate)),
        loss=float(np.exp(level)),
        flag="+".join(flag),
        largest_stable_rate=float(stable[-1]),
        samples=samples,
    )


def _flags(curve: Curve, best: int) -> tuple[list[str], bool]:
    x, y = curve.x, curve.y
    last = best == len(x) - 1
    cliff = last and bool(np.isfinite(curve.next))
    flag = ["edge-low"] if best == 0 else []
    if last:
        flag.append("cliff" if cliff else "edge-high")
    near = np.concatenate([x[np.abs(x - x[best]) <= 1], np.clip(x[best] + np.array([-1.0, 1.0]), x[0], x[-1])])
    wall = np.isfinite(curve.next) and curve.next - x[best] <= 1
    if len(x) > 1 and not wall and np.interp(near, x, y).max() - y[best] < _FLAT:
        flag.append("flat")
    return flag, cliff
