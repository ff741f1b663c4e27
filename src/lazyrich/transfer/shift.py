"""From one size to another: by how much the best learning rate moves, and what carrying it over costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator

from lazyrich.transfer.curves import Curve, estimates, read_curve
from lazyrich.transfer.optimum import Optimum

_COVERED = (0.025, 0.975)


@dataclass(frozen=True)
class Shift:
    """How far one best rate is from another.

    Attributes
    ----------
    octaves : float
        log2 of the other best rate over the base's; NaN if one has none.
    interval : tuple of float
        95% interval, around `octaves`.
    flag : str
        The flags of both optima, each once, joined by ``+``.
    """

    octaves: float
    interval: tuple[float, float]
    flag: str


@dataclass(frozen=True)
class Regret:
    """What a carried rate costs.

    Attributes
    ----------
    nats : float
        log of the loss at the carried rate over the loss at the own best rate; at least 0. Infinite where the rate
        diverges or was not tried, NaN where no rate finished.
    interval : tuple of float
        95% interval, around `nats`; the carried rate is taken as given.
    reason : str
        Why `nats` is not finite, or empty.
    """

    nats: float
    interval: tuple[float, float]
    reason: str = ""


def shift_octaves(base: Optimum, other: Optimum) -> Shift:
    """How far the other best rate is from the base's.

    Parameters
    ----------
    base, other : Optimum
        The two are taken as independent of each other.

    Returns
    -------
    Shift
    """
    flag = "+".join(dict.fromkeys(part for one in (base, other) for part in one.flag.split("+") if part))
    octaves = math.log2(other.best_rate / base.best_rate)
    if math.isnan(octaves):
        return Shift(math.nan, (math.nan, math.nan), flag)
    count = min(len(base.samples), len(other.samples))
    shifts = shuffled(other, 1)[:count] - shuffled(base, 0)[:count]
    return Shift(octaves, around(shifts, octaves), flag)


def regret(rates: np.ndarray, losses: np.ndarray, rate: float, optimum: Optimum, *, least: float = 0.0) -> Regret:
    """What it costs to train at a carried rate and not at the own best one.

    Between the rates of the grid and the best rate the log loss follows a monotone cubic in the log rate.

    Parameters
    ----------
    rates : array_like
        Learning rates, rising, shape (R,).
    losses : array_like
        Losses, shape (R, M), of the problem that the rate is carried to; NaN where a network diverged.
    rate : float
        The carried rate.
    optimum : Optimum
        What :func:`find_optimum` says about these losses.
    least : float
        As for :func:`find_optimum`.

    Returns
    -------
    Regret

    Raises
    ------
    LazyrichError
        When rates or losses are not such arrays.
    """
    curve = read_curve(rates, losses, max(len(optimum.samples), 2), least=least)
    if curve is None:
        return Regret(math.nan, (math.nan, math.nan), "every rate diverged")
    reason = _unreachable(np.asarray(rates, dtype=float), curve, rate)
    if reason:
        return Regret(math.inf, (math.inf, math.inf), reason)
    x, at = curve.x, float(np.clip(math.log2(rate), curve.x[0], curve.x[-1]))
    position, level = math.log2(optimum.best_rate), math.log(max(optimum.loss, np.finfo(float).tiny))
    smooth, straight = _height(x, curve.y, position, level, at)
    nats = max(smooth, 0.0)
    if "cliff" in optimum.flags:
        positions, levels = np.full(len(curve.draws), x[-1]), curve.draws[:, -1]
    else:
        _, _, _, positions, levels = estimates(curve)
    low, high = min(straight, nats), max(straight, nats)
    if curve.networks > 1:
        heights = [_height(x, *each, at)[0] for each in zip(curve.draws, positions, levels, strict=True)]
        low, high = around(nats + curve.inflation * (np.array(heights) - nats), nats)
        low, high = min(low, straight), max(high, straight)
    return Regret(nats, (max(low, 0.0), high))


def _unreachable(rates: np.ndarray, curve: Curve, rate: float) -> str:
    stable = rates[curve.start : curve.start + len(curve.x)]
    if not rate > 0 or rate < rates[0] * (1 - 1e-9) or rate > rates[-1] * (1 + 1e-9):
        return f"{rate:.3g} is not within the rates tried, {rates[0]:.3g} to {rates[-1]:.3g}"
    if rate > stable[-1] * (1 + 1e-9):
        return f"{rate:.3g} is above {stable[-1]:.3g}, the largest stable rate"
    if rate < stable[0] * (1 - 1e-9):
        return f"{rate:.3g} is below {stable[0]:.3g}, the smallest rate that finished"
    return ""


def _height(x: np.ndarray, y: np.ndarray, position: float, level: float, at: float) -> tuple[float, float]:
    """Log loss at log2 rate `at` over that at the best rate: by a monotone cubic, and by straight lines."""
    apart = np.abs(x - position) > 1e-6
    knots, values = np.append(x[apart], position), np.append(y[apart], level)
    order = np.argsort(knots)
    knots, values = knots[order], values[order]
    if len(knots) < 2:
        return 0.0, 0.0
    return float(PchipInterpolator(knots, values)(at)) - level, float(np.interp(at, knots, values)) - level


def shuffled(optimum: Optimum, place: int) -> np.ndarray:
    """The samples in an order of their own, so that two optima with the same seed are not paired."""
    return np.random.default_rng([place, len(optimum.samples)]).permutation(optimum.samples)


def around(samples: np.ndarray, center: float) -> tuple[float, float]:
    """95% interval that contains the estimate."""
    low, high = np.quantile(samples, _COVERED)
    return min(float(low), center), max(float(high), center)
