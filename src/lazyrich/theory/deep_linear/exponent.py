"""The exponent with which a loss falls: fitted where it is a power law, and said where it is not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem import PowerLawData, Problem
from lazyrich.theory.deep_linear.predict import predict
from lazyrich.theory.deep_linear.quadrature import data_measure
from lazyrich.trajectory import Trajectory, plain

# The window ends once the slowest mode has been learned this far ..
_LEARNED = 0.02
# .. or the slope has fallen to the first fraction of the largest one before, if it falls to the second: the loss levels
# off.
_LEAVING, _LEVELLED = 0.9, 0.5
# The window begins once so much of the loss is gone, and is at least and at most so many decades long.
_BEGUN, _LEAST_DECADES, _MOST_DECADES = 0.5, 1.5, 4.0
# The asymptotic regime is reached where the slope at the window's end is this close to the exponent, relatively.
_REACHED = 0.01
# Rates, per e-fold of time, at which the slope may approach the exponent.
_APPROACHES = np.geomspace(0.05, 2.0, 60)


@dataclass(frozen=True)
class Exponent:
    """A fit of ``loss ~ t^-exponent``.

    Attributes
    ----------
    exponent, low, high : float or None
        The exponent to which the slope tends, and the interval that the slope at the window's end and fits to parts of
        the window span; where the loss levels off, the median slope inside the window, the least and the largest. None
        where there is no window.
    slope : float or None
        ``-d log(loss)/d log(t)`` at the end of the window.
    window : tuple of float or None
        Times from and to which the loss is a power law.
    expected_rich, expected_lazy : float or None
        What is expected of rich and of lazy plain networks on power-law data.
    verdict : str
        ``"reached"``, ``"not reached"`` (the slope is still moving, and the exponent extrapolates it) or ``"none"``.
    ends : str
        Why the window ends: ``"horizon"``, ``"cut-off"`` (the slowest mode of the spectrum is being learned) or
        ``"levels off"``.
    leaves, level : float or None
        Where the loss levels off: the time by which its slope is half of the steepest, and the loss at the horizon.
    loss : str
        Which loss was fitted.
    decades : list of tuple of float
        The mean slope of each whole decade of time, as (from, to, slope), over all times.
    """

    exponent: float | None
    low: float | None
    high: float | None
    slope: float | None
    window: tuple[float, float] | None
    expected_rich: float | None
    expected_lazy: float | None
    verdict: str
    ends: str
    leaves: float | None
    level: float | None
    loss: str
    decades: list[tuple[float, float, float]]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: plain(value) for name, value in asdict(self).items()}

    def summary(self) -> list[str]:
        """What was found, in a few lines."""
        lines = []
        if self.exponent is None or self.window is None:
            lines.append(f"no power law: less than {_LEAST_DECADES:g} decades before the {_ENDS[self.ends]}")
        else:
            first, last = self.window
            lines.append(
                f"{self.loss.replace('_', ' ')} ~ t^-{self.exponent:.3f}, interval {self.low:.3f} to {self.high:.3f}, "
                f"from t = {first:.2g} to {last:.2g}, the {_ENDS[self.ends]}"
            )
            if self.verdict == "not reached":
                start = f"the asymptotic regime is not reached: the slope is {self.slope:.3f} there and still moving, "
                if self.ends == "levels off":
                    lines.append(start + "the exponent is its median; give more samples or a larger width")
                else:
                    lines.append(start + "the exponent extrapolates it; give a longer horizon")
        if self.leaves is not None:
            lines.append(f"levels off from t = {self.leaves:.2g} on, to {self.level:.4g} at the horizon")
        if self.ends == "cut-off":
            lines.append(
                "beyond, the end of the spectrum is felt: give more dimensions to follow the power law further"
            )
        if self.expected_rich is not None:
            lines.append(f"expected of rich networks {self.expected_rich:.4f}, of lazy ones {self.expected_lazy:.4f}")
        return lines


_ENDS = {
    "horizon": "end of the horizon",
    "cut-off": "cut-off of the spectrum",
    "levels off": "time at which the loss levels off",
}


def fit_exponent(problem: Problem, progress: Callable[[int, int], object] | None = None) -> tuple[Exponent, Trajectory]:
    """Predict gradient flow and fit a power law to the loss.

    Parameters
    ----------
    problem : Problem
        With ``training.mode = "flow"``.
    progress : callable, optional
        Called with nodes done and nodes in all.

    Raises
    ------
    LazyrichError
        For a problem that is not gradient flow, and whatever :func:`lazyrich.predict` raises.

    Examples
    --------
    >>> import lazyrich
    >>> problem = lazyrich.Problem(
    ...     network=lazyrich.Network(width=float("inf"), blocks=0),
    ...     data=lazyrich.PowerLawData(dimension=10**8, capacity=1.5, source=0.25),
    ...     training=lazyrich.Training(mode="flow", horizon=1e-3, nodes=65, richness=0.1),
    ... )
    >>> fit, trajectory = fit_exponent(problem)
    >>> round(fit.exponent, 3), fit.ends
    (0.5, 'horizon')
    """
    if problem.training.mode != "flow":
        raise LazyrichError("training.mode", "an exponent needs gradient flow", "set mode = 'flow' and give a horizon")
    trajectory = predict(problem, progress=progress)
    return read_exponent(trajectory), trajectory


def read_exponent(trajectory: Trajectory) -> Exponent:
    """Fit a power law to the loss of gradient flow: the test loss, or the training loss where there is none.

    Parameters
    ----------
    trajectory : Trajectory
        A prediction of gradient flow.
    """
    problem = trajectory.problem
    assert isinstance(problem, Problem)  # gradient flow is
    name = "train_loss" if trajectory.test_loss is None else "test_loss"
    data = trajectory.data
    times, losses = data["time"].values[1:], data[name].values
    fitted = losses[1:] + missing_tail(problem) * losses[0]
    slopes = -np.gradient(np.log(fitted), np.log(times))
    begin, end, ends, left = _window(losses, slopes, data["slowest_mode"].values[1:])
    (rich, lazy), decades = expected_exponents(problem), _decades(times, losses[1:])
    leaves, level = (None, None) if left is None else (float(times[left]), float(losses[-1]))
    if end - begin < 8 or times[end] < times[begin] * 10**_LEAST_DECADES:
        return Exponent(None, None, None, None, None, rich, lazy, "none", ends, leaves, level, name, decades)
    if ends == "levels off":  # slopes tend to nothing there
        estimates = [float(read(slopes[begin : end + 1])) for read in (np.median, np.min, np.max)]
    else:
        estimates = _estimates(np.log(times[begin : end + 1]), slopes[begin : end + 1])
    exponent, slope = float(np.median(estimates[:3])), float(slopes[end])
    error = float(np.max(data[f"{name}_error"].values[1:][begin : end + 1] / losses[1:][begin : end + 1]))
    error /= math.log(times[end] / times[begin])
    reached = abs(exponent - slope) <= _REACHED * abs(exponent)
    return Exponent(
        exponent=exponent,
        low=min(*estimates, slope) - error,
        high=max(*estimates, slope) + error,
        slope=slope,
        window=(float(times[begin]), float(times[end])),
        expected_rich=rich,
        expected_lazy=lazy,
        verdict="reached" if reached else "not reached",
        ends=ends,
        leaves=leaves,
        level=level,
        loss=name,
        decades=decades,
    )


def missing_tail(problem: Problem) -> float:
    """Power of the modes beyond the last one of a power law, relative to all: what an endless spectrum would add.

    As long as the last mode is hardly learned, those beyond are not learned at all.
    """
    data = problem.data
    if not isinstance(data, PowerLawData) or data.capacity == 0 or data.capacity + data.source <= 1:
        return 0.0
    # the sum over k > D of k^-exponent by Euler and Maclaurin, with that up to D by the same ranges as the theory's
    exponent, size = data.capacity + data.source, float(data.dimension)
    tail = size ** (1 - exponent) / (exponent - 1) - 0.5 * size**-exponent
    points, weights = (getattr(data_measure(data).modes, name) for name in ("points", "weights"))
    numbers = (points / points.max()) ** (-1 / data.capacity)
    return tail / float(numbers**-exponent @ weights * size)


def expected_exponents(problem: Problem) -> tuple[float, float] | tuple[None, None]:
    """Of rich and of lazy plain networks on power-law data; None of others.

    Rich: ``W b/(1 + (W - 1) b)`` for b below 1, else b, with W weight layers that are trained and ``b = (source -
    1)/capacity + 1``: the norms of all of them grow as ``|beta|^(1/W)``, and with them the effective rate. Lazy: b.
    Source: Bordelon & Pehlevan (2025) for two layers, docs/theory/long-horizons.md for more.
    """
    data, network = problem.data, problem.network
    if not isinstance(data, PowerLawData) or data.capacity == 0 or network.skip != 0.0:
        return None, None
    task = (data.source - 1) / data.capacity + 1
    if task <= 0:
        return None, None
    layers = int(np.count_nonzero(problem.training.rates(network.blocks)[:, 0]))
    return (task if task >= 1 else layers * task / (1 + (layers - 1) * task)), task


def _window(losses: np.ndarray, slopes: np.ndarray, slowest: np.ndarray) -> tuple[int, int, str, int | None]:
    """First and last index of the power law, why it ends, and where the loss has levelled off, if it does."""
    end, ends = len(slopes) - 1, "horizon"
    learned = np.flatnonzero(slowest < 1 - _LEARNED)
    if len(learned) and learned[0] <= end:
        end, ends = max(int(learned[0]) - 1, 0), "cut-off"
    begun = np.flatnonzero(losses[1:] < _BEGUN * losses[0])
    begin = int(begun[0]) if len(begun) else end
    left = None
    if begin < end:
        inside = slopes[begin : end + 1]
        level = np.flatnonzero(inside < _LEVELLED * np.maximum.accumulate(inside))
        if len(level):
            left = begin + int(level[0])
            before = slopes[begin : left + 1]
            end, ends = begin + int(np.flatnonzero(before >= _LEAVING * before.max())[-1]), "levels off"
    return begin, end, ends, left


def _estimates(logarithms: np.ndarray, slopes: np.ndarray) -> list[float]:
    """Limits of ``slope = exponent - c t^-q`` over parts of the window; the first ones reach to its end."""
    found = []
    longest = min(logarithms[-1] - logarithms[0], _MOST_DECADES * math.log(10))
    for last, part in itertools.product((1.0, 0.85, 0.7), (1.0, 0.75, 0.5)):
        stop = logarithms[0] + last * (logarithms[-1] - logarithms[0])
        inside = (logarithms <= stop) & (logarithms >= stop - part * longest)
        if np.count_nonzero(inside) < 6:
            continue
        distance, values = logarithms[inside] - logarithms[-1], slopes[inside]
        best = (np.inf, float(values[-1]))
        for approach in _APPROACHES:
            design = np.stack([np.ones_like(distance), -np.exp(-approach * distance)], axis=1)
            solved = np.linalg.lstsq(design, values, rcond=None)[0]
            best = min(best, (float(np.sum((design @ solved - values) ** 2)), float(solved[0])))
        found.append(best[1])
    return found


def _decades(times: np.ndarray, losses: np.ndarray) -> list[tuple[float, float, float]]:
    edges = 10.0 ** np.arange(math.ceil(math.log10(times[0])), math.floor(math.log10(times[-1]) + 1e-9) + 1)
    values = np.interp(np.log(edges), np.log(times), np.log(losses))
    return [
        (float(first), float(last), float(-change / math.log(10)))
        for first, last, change in zip(edges[:-1], edges[1:], np.diff(values), strict=True)
    ]
