"""The compute-optimal trade of width against steps: which width reaches the least loss at a given cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lazyrich.problem import PowerLawData
from lazyrich.theory.deep_linear.exponent import Exponent, expected_exponents
from lazyrich.trajectory import Trajectory, plain

_LEAST_WIDTHS = 3


@dataclass(frozen=True)
class ComputeTrade:
    """Where the next larger width takes over as the better one; compute is width x time.

    Attributes
    ----------
    compute, width, loss : list of float
        At every change from one width to the next: the compute, the geometric mean of the two widths, the loss.
    width_exponent, loss_exponent : tuple of float
        ``width ~ compute^p`` and ``loss ~ compute^-q``: a fit to all changes, and the least and the largest slope
        between two neighbours.
    expected : tuple of float or None
        p and q of random features (a frozen input layer) on power-law data: ``1/(1 + a)`` and ``a b/(1 + a)``.
    """

    compute: list[float]
    width: list[float]
    loss: list[float]
    width_exponent: tuple[float, float, float]
    loss_exponent: tuple[float, float, float]
    expected: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: plain(value) for name, value in asdict(self).items()}

    def summary(self) -> list[str]:
        """What was found, in one or two lines."""
        (width, *widths), (loss, *losses) = self.width_exponent, self.loss_exponent
        lines = [
            f"at a given compute, width x time, the best width is ~ compute^{width:.3f} ({widths[0]:.3f} to "
            f"{widths[1]:.3f}), its loss ~ compute^-{loss:.3f} ({losses[0]:.3f} to {losses[1]:.3f})"
        ]
        if self.expected is not None:
            lines.append(f"expected of random features {self.expected[0]:.4f} and {self.expected[1]:.4f}")
        return lines


def compute_trade(results: Sequence[tuple[Exponent, Trajectory]]) -> ComputeTrade | None:
    """Compare widths at equal compute; None unless the problems are of three or more finite widths, alike otherwise.

    A step of training costs a number of operations in proportion to the width, whatever the number of samples.
    """
    problems = [trajectory.problem for _, trajectory in results]
    widths = [problem.to_dict()["network"]["width"] for problem in problems]
    alike = {str(problem.with_values({"network.width": 1}).to_dict()) for problem in problems}
    if len(set(widths)) < max(_LEAST_WIDTHS, len(widths)) or len(alike) > 1 or not np.isfinite(widths).all():
        return None
    curves = sorted((width, *_curve(*result)) for width, result in zip(widths, results, strict=True))
    changes = [change for each in itertools.pairwise(curves) if (change := _change(*each)) is not None]
    if len(changes) < _LEAST_WIDTHS - 1:
        return None
    compute, width, loss = (np.array(values) for values in zip(*changes, strict=True))
    return ComputeTrade(
        compute=np.exp(compute).tolist(),
        width=np.exp(width).tolist(),
        loss=np.exp(loss).tolist(),
        width_exponent=_slope(compute, width),
        loss_exponent=_slope(compute, -loss),
        expected=_expected(results[0][1]),
    )


def _curve(fit: Exponent, trajectory: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of time and loss."""
    assert trajectory.times is not None  # it is gradient flow
    return np.log(trajectory.times[1:]), np.log(trajectory.data[fit.loss].values[1:])


_Curve = tuple[float, np.ndarray, np.ndarray]


def _change(narrow: _Curve, wide: _Curve) -> tuple[float, float, float] | None:
    """Logarithms of compute, width and loss where at equal compute the wide network becomes the better one for good."""
    (less, times, losses), (more, later, other) = narrow, wide
    first, last = max(times[0] + math.log(less), later[0] + math.log(more)), times[-1] + math.log(less)
    compute = np.linspace(first, last, 2000)
    at_narrow = np.interp(compute - math.log(less), times, losses)
    at_wide = np.interp(compute - math.log(more), later, other)
    behind = np.flatnonzero(at_wide > at_narrow)
    if not len(behind) or behind[-1] == len(compute) - 1:
        return None
    place = behind[-1]
    return compute[place], 0.5 * math.log(less * more), at_narrow[place]


def _slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    slopes = np.diff(y) / np.diff(x)
    return float(np.polyfit(x, y, 1)[0]), float(slopes.min()), float(slopes.max())


def _expected(trajectory: Trajectory) -> tuple[float, float] | None:
    problem = trajectory.problem
    data, (rich, lazy) = problem.data, expected_exponents(problem)  # pyright: ignore
    trained = problem.training.rates(problem.network.blocks)[:, 0]  # pyright: ignore
    if rich is None or lazy is None or not isinstance(data, PowerLawData) or np.count_nonzero(trained) != 1:
        return None
    return 1 / (1 + data.capacity), data.capacity * lazy / (1 + data.capacity)
