"""Along an axis: how the best learning rate drifts with size, and what is expected at a size that was not run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.transfer.optimum import Optimum
from lazyrich.transfer.shift import Regret, around, shuffled

# Octaves per doubling, octaves in all, and nats, up to which a rate is said to transfer.
_STEADY = 0.1
_NEAR = 0.5
_CHEAP = 0.02
# No best rate is known better than this (octaves): it keeps weights finite.
_SHARPEST = 0.01
# Predictions of the largest size that differ by less than this (octaves) are equally good in any case.
_EQUAL = 0.02


@dataclass(frozen=True)
class Drift:
    """The trend of the best rate over the sizes.

    Attributes
    ----------
    octaves_per_doubling : float
        Slope of log2 of the best rate over log2 of the size; NaN with fewer than two sizes.
    interval : tuple of float
        95% interval of the slope.
    total : float
        Shift from the smallest to the largest size, in octaves.
    verdict : str
        Begins with ``"transfers"``, ``"drifts by .. octaves per doubling"`` or ``"undetermined: .."``, the last with
        what to add.
    """

    octaves_per_doubling: float
    interval: tuple[float, float]
    total: float
    verdict: str


@dataclass(frozen=True)
class Extrapolation:
    """The best rate expected at a size that was not tried.

    Attributes
    ----------
    rate : float
    interval : tuple of float
        95% interval of the rate, from the spread of the optima, the misfit, the error at the largest size, and the
        other trends that do as well there.
    model : str
        The trend that was used, and why this one.
    checks : dict
        By trend: the largest size's best rate predicted from the smaller sizes, over its own, in octaves. Empty with
        fewer than three sizes.
    """

    rate: float
    interval: tuple[float, float]
    model: str
    checks: dict[str, float]


def drift(sizes: Sequence[Any], optima: Sequence[Optimum], regrets: Sequence[Regret] | None = None) -> Drift:
    """The trend of the best rate over a numeric axis, and whether the rate transfers.

    The rate transfers if the interval of the slope is within 0.1 octave per doubling and either the shift from the
    smallest to the largest size is below 0.5 octave or carrying the rate costs at most 0.02 nat everywhere, by the
    upper ends of the regrets' intervals. It also transfers if it costs no more than that and the slope may be zero. It
    drifts if the interval of the slope does not contain zero.

    Parameters
    ----------
    sizes : sequence of float
        Positive and different, such as widths or numbers of blocks. For names there is :func:`shift_octaves` only.
    optima : sequence of Optimum
        One per size.
    regrets : sequence of Regret, optional
        What the base's rate costs at every size.

    Returns
    -------
    Drift

    Raises
    ------
    LazyrichError
        When the sizes are not positive numbers.
    """
    values, kept = _usable(sizes, optima)
    finite = np.isfinite(values)
    x, kept = np.log2(values[finite]), [one for one, use in zip(kept, finite, strict=True) if use]
    if len(x) < 2:
        verdict = f"undetermined: {len(x)} {'size has' if len(x) == 1 else 'sizes have'} a best rate; add sizes"
        diverged = any("diverged" in one.flags for one in optima)
        verdict += " and smaller rates, because every rate diverged at some" * diverged
        return Drift(math.nan, (math.nan, math.nan), math.nan, verdict)
    y, sigma = _positions(kept)
    design = np.stack([np.ones_like(x), x], axis=1)
    slope = float(_fit(design, y, sigma)[1])
    slopes = _fit(design, _resampled(kept), sigma)[1]
    residual = y - design @ _fit(design, y, sigma)
    # Points off the line by more than their noise: the slope is as uncertain as they say.
    excess = float(np.sum((residual / sigma) ** 2)) / (len(x) - 2) if len(x) > 2 else 0.0
    interval = around(slope + math.sqrt(max(excess, 1.0)) * (slopes - slope), slope)
    total = float(y[-1] - y[0])
    verdict = _verdict(sizes, optima, slope, interval, total, regrets, bent=excess > 4)
    return Drift(slope, interval, total, verdict)


def _verdict(
    sizes: Sequence[Any],
    optima: Sequence[Optimum],
    slope: float,
    interval: tuple[float, float],
    total: float,
    regrets: Sequence[Regret] | None,
    bent: bool,
) -> str:
    remedies = {
        "edge-low": "the best rate is the smallest tried at size {}; widen the grid to smaller rates",
        "edge-high": "the best rate is the largest tried at size {}; widen the grid to larger rates",
        "diverged": "every rate diverged at size {}; widen the grid to smaller rates",
    }
    for flag, remedy in remedies.items():
        where = [str(size) for size, one in zip(sizes, optima, strict=True) if flag in one.flags]
        if where:
            return f"undetermined: {remedy.format(', '.join(where))}"
    low, high = interval
    text = f"{slope:+.2f} octaves per doubling (95% {low:+.2f} to {high:+.2f})"
    cost = max((one.interval[1] for one in regrets), default=math.inf) if regrets else math.inf
    steady = low >= -_STEADY and high <= _STEADY
    if steady and (abs(total) < _NEAR or cost <= _CHEAP):
        return "transfers"
    if low > 0 or high < 0:
        return f"drifts by {text}" + ", but not by the same at every doubling" * bent
    if cost <= _CHEAP:
        return f"transfers: a carried rate costs at most {cost:.3f} nat, though the best rate is not known well: {text}"
    if bent:
        return f"undetermined: {text}, and no straight line describes it; add sizes"
    if steady:
        return f"undetermined: {text}, but {total:+.2f} octaves in all; add sizes"
    worst = max(optima, key=lambda one: one.interval[1] / one.interval[0])
    flat = " (the loss is flat there: see the regret)" if "flat" in worst.flags else ""
    place = sizes[next(index for index, one in enumerate(optima) if one is worst)]
    return f"undetermined: {text}; add sizes, seeds, or a finer grid, first at size {place}{flat}"


def extrapolate(
    sizes: Sequence[Any],
    optima: Sequence[Optimum],
    target: float,
    *,
    exponent: float = 1.0,
    kind: Literal["width", "depth"] = "width",
) -> Extrapolation:
    """The best rate expected at a size that was not tried.

    Three trends of log2 of the best rate are tried: ``a + b / size^exponent`` (finite-size corrections), a constant,
    and ``a + b log2(size)`` (a power law). The one that predicts the largest size from the smaller ones best is used;
    of those that do as well within twice the noise of that prediction, the first in this order. The interval includes
    what the others of these say.

    Parameters
    ----------
    sizes : sequence of float
        Positive and different; infinity is allowed.
    optima : sequence of Optimum
        One per size; those without a best rate are left out.
    target : float
        The size asked for.
    exponent : float
        Of the finite-size correction.
    kind : {"width", "depth"}
        What the size is, for the name of the trend.

    Returns
    -------
    Extrapolation

    Raises
    ------
    LazyrichError
        When the sizes are not positive numbers or no optimum has a best rate.
    """
    if not target > 0:
        raise LazyrichError("target", f"{target} is not a positive number", "give a size")
    if not (math.isfinite(exponent) and exponent > 0):
        raise LazyrichError("exponent", f"{exponent} is not a positive number", "give a positive exponent")
    values, kept = _usable(sizes, optima)
    if not kept:
        raise LazyrichError("optima", "every rate diverged at every size", "try smaller rates")
    order = np.argsort(values)
    values, kept = values[order], [kept[index] for index in order]
    y, sigma = _positions(kept)
    samples = _resampled(kept)
    power = "" if exponent == 1 else f"^{exponent:g}"
    bases = {
        f"1/{kind}{power}": lambda size: np.stack([np.ones_like(size), size**-exponent], axis=1),
        "constant": lambda size: np.ones((len(size), 1)),
        "power law": lambda size: np.stack([np.ones_like(size), np.log2(size)], axis=1),
    }
    at = np.array([float(target)])
    if not np.isfinite([*values, *at]).all():
        del bases["power law"]
    count, checks, alike = len(values), {}, []
    if count >= 3:
        tolerance = _EQUAL
        for name, basis in bases.items():
            design, wanted = basis(values[:-1]), basis(values[-1:])
            checks[name] = float((wanted @ _fit(design, y[:-1], sigma[:-1]))[0] - y[-1])
            if not alike:  # the noise of the first trend's check: others have to do better by more than twice that
                precision = design.T @ (design / sigma[:-1, None] ** 2)
                error = float((wanted @ np.linalg.pinv(precision) @ wanted.T)[0, 0])
                tolerance = max(_EQUAL, 2 * math.sqrt(error + sigma[-1] ** 2))
                alike.append(name)
        smallest = min(abs(off) for off in checks.values())
        alike = [name for name, off in checks.items() if abs(off) <= smallest + tolerance]
        chosen = alike[0]
        rest = ", ".join(f"{name} {abs(off):.2f}" for name, off in checks.items() if name != chosen)
        model = (
            f"{chosen}: fitted to the smaller {kind}s it misses the largest's best rate by {abs(checks[chosen]):.2f}"
        )
        model += f" octave ({rest})"
    else:
        chosen = next(iter(bases)) if count == 2 else "constant"
        model = f"{chosen}: not checked, which takes three {kind}s"
    basis = bases[chosen]
    design, wanted = basis(values), basis(at)
    fitted = _fit(design, y, sigma)
    center = float((wanted @ fitted)[0])
    predicted = (wanted @ _fit(design, samples, sigma))[0]
    freedom = count - design.shape[1]
    if freedom > 0:
        # What the trend misses beyond the optima's own noise: with the leverage of the extrapolation.
        beyond = max(float(np.sum((y - design @ fitted) ** 2)) / freedom - float(np.mean(sigma**2)), 0.0)
        leverage = float((wanted @ np.linalg.pinv(design.T @ design) @ wanted.T)[0, 0])
        noise = np.random.default_rng(len(y)).standard_normal(len(predicted))
        predicted = predicted + math.sqrt(beyond * (1 + leverage)) * noise
    low, high = around(predicted, center)
    missed = abs(checks.get(chosen, 0.0))
    others = [float((bases[name](at) @ _fit(bases[name](values), y, sigma))[0]) for name in alike]
    low, high = min(low, center - missed, *others), max(high, center + missed, *others)
    return Extrapolation(2**center, (2**low, 2**high), model, checks)


def _usable(sizes: Sequence[Any], optima: Sequence[Optimum]) -> tuple[np.ndarray, list[Optimum]]:
    """Sizes as floats and their optima, without those that have no best rate."""
    if len(sizes) != len(optima):
        raise LazyrichError("sizes", f"{len(sizes)} for {len(optima)} optima", "give one optimum per size")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | float | np.integer | np.floating) or not size > 0:
            raise LazyrichError("sizes", f"{size!r} is not a positive number", "compare names by shift_octaves")
    if len(set(sizes)) < len(sizes):
        raise LazyrichError("sizes", "one is given twice", "give each size once")
    pairs = [(float(size), one) for size, one in zip(sizes, optima, strict=True) if one.best_rate > 0]
    pairs.sort(key=lambda pair: pair[0])
    return np.array([size for size, _ in pairs]), [one for _, one in pairs]


def _positions(optima: Sequence[Optimum]) -> tuple[np.ndarray, np.ndarray]:
    """log2 of the best rates and their standard errors, shape (optima,)."""
    spread = np.array([np.std(one.samples) for one in optima])
    return np.log2([one.best_rate for one in optima]), np.hypot(spread, _SHARPEST)


def _fit(design: np.ndarray, y: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Weighted least squares; `y` may have columns."""
    weighted = y / sigma if y.ndim == 1 else y / sigma[:, None]
    return np.linalg.lstsq(design / sigma[:, None], weighted, rcond=None)[0]


def _resampled(optima: Sequence[Optimum]) -> np.ndarray:
    """Samples of all optima, shape (optima, draws), independent of each other and with the errors of `_positions`."""
    count = min(len(one.samples) for one in optima)
    noise = _SHARPEST * np.random.default_rng(len(optima)).standard_normal((len(optima), count))
    return np.stack([shuffled(one, place)[:count] for place, one in enumerate(optima)]) + noise
