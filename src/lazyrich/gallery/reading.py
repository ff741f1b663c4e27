"""Numbers with intervals out of results of studies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import t as student

from lazyrich.comparison import Comparison
from lazyrich.gallery.claim import Number
from lazyrich.transfer.analysis import Analysis, Best, Move, Trend


def covering(count: int) -> float:
    """Standard errors to both sides of a mean of `count` values that hold 95% (Student's t)."""
    return float(student.ppf(0.975, count - 1))


def mean_number(name: str, values: Sequence[float] | np.ndarray) -> Number:
    """A mean with its interval."""
    values = np.asarray(values, dtype=float)
    mean, half = values.mean(), covering(len(values)) * values.std(ddof=1) / math.sqrt(len(values))
    return Number(name, float(mean), float(mean - half), float(mean + half))


def with_error(name: str, value: float, error: float, count: int) -> Number:
    """A number with its standard error from `count` networks."""
    half = covering(count) * error
    return Number(name, float(value), float(value - half), float(value + half))


# --- predictions beside trained networks ----------------------------------------------------------------------------


def at(comparisons: Sequence[Comparison], **values: Any) -> Comparison:
    """The comparison of the problem with these values, e.g. ``width=100, parametrization="mup"``."""
    for each in comparisons:
        tables = each.predicted.problem.to_dict()
        if all(any(table.get(name) == value for table in tables.values()) for name, value in values.items()):
            return each
    raise KeyError(values)


def farthest(comparisons: Sequence[Comparison], loss: str = "test_loss") -> Number:
    """The largest distance of the trained mean from the theory, in units of the loss at the start."""
    worst = Number("", -1.0)
    for each in comparisons:
        predicted, trained = each.predicted.data[loss].values, each.trained.data
        steps = min(len(predicted), len(trained[loss]))
        gap = np.abs(trained[loss].values[:steps] - predicted[:steps]) / predicted[0]
        step = int(np.nanargmax(gap))
        half = covering(_networks(each)) * float(trained[f"{loss}_sem"].values[step]) / predicted[0]
        if gap[step] > worst.value:
            name = f"largest distance of trained mean and theory, in units of the loss at the start ({each.label})"
            worst = Number(name, float(gap[step]), max(float(gap[step] - half), 0.0), float(gap[step] + half))
    return worst


def log_ratio(name: str, one: Comparison, other: Comparison, step: int = -1, loss: str = "test_loss") -> Number:
    """Ln of one problem's loss over another's at a step, of trained networks."""
    means, errors = [], []
    for each in (one, other):
        means.append(float(each.trained.data[loss].values[step]))
        errors.append(float(each.trained.data[f"{loss}_sem"].values[step]) / means[-1])
    count = min(_networks(one), _networks(other))
    return with_error(name, math.log(means[0] / means[1]), math.hypot(*errors), count)


def _networks(comparison: Comparison) -> int:
    return int(comparison.trained.statistics["networks"])


# --- transfer studies -----------------------------------------------------------------------------------------------


def matches(axes: dict[str, Any], fixed: dict[str, Any]) -> bool:
    """Whether a point has these values; `fixed` names axes by their last part."""
    short = {name.rpartition(".")[2]: value for name, value in axes.items()}
    return all(short.get(name) == value for name, value in fixed.items())


def trend(analysis: Analysis, axis: str, by: str, **fixed: Any) -> Trend:
    """The trend along an axis, the last step read."""
    found = [t for t in analysis.trends if t.axis == axis and t.by == by and matches(t.fixed, fixed)]
    return max(found, key=lambda each: each.at)


def drift_number(name: str, each: Trend) -> Number:
    """Octaves per doubling."""
    return Number(name, each.drift.octaves_per_doubling, *each.drift.interval)


def moves(analysis: Analysis, axis: str, **fixed: Any) -> list[Move]:
    """Moves from the first to the last value of an axis."""
    last = max(each.axes[axis] for each in analysis.best)
    return [m for m in analysis.moves if m.axis == axis and m.end == last and matches(m.fixed, fixed)]


def regret_number(name: str, chosen: Sequence[Move]) -> Number:
    """What carrying the base's best rate costs, in nats: the move that costs most by the upper end."""
    worst = max(chosen, key=lambda each: each.regret.interval[1])
    return Number(name, worst.regret.nats, *worst.regret.interval)


def best_point(analysis: Analysis, **fixed: Any) -> Best:
    """The point with the lowest loss at its best rate among those with these values, at the last step read."""
    found = [each for each in analysis.best if matches(each.axes, fixed)]
    last = max(each.at for each in found)
    return min((each for each in found if each.at == last), key=lambda each: np.nanmin(each.losses.mean(axis=1)))


def losses_at(best: Best, rate: float | None = None) -> np.ndarray:
    """Losses of all networks at a rate of the grid, or at its best one."""
    mean = best.losses.mean(axis=1)
    return best.losses[int(np.nanargmin(mean)) if rate is None else int(np.argmin(np.abs(best.rates - rate)))]


def log_ratio_of(name: str, one: np.ndarray, other: np.ndarray) -> Number:
    """Ln of the mean of some losses over that of others."""
    error = math.hypot(*(v.std(ddof=1) / math.sqrt(len(v)) / v.mean() for v in (one, other)))
    return with_error(name, math.log(one.mean() / other.mean()), error, min(len(one), len(other)))
