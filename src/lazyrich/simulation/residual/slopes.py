"""Powers of depth: slopes on log-log axes with their errors, and what may be concluded from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Slope:
    """The power of depth with which a quantity grows.

    Attributes
    ----------
    value : float
        Of the straight line through the logarithms at all depths.
    error : float
        Two standard errors over seeds, plus how much leaving the smallest depth out changes the slope: that is what
        bends, and what further depth may still change.
    """

    value: float
    error: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value - self.error

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.value + self.error

    def to_json(self) -> dict[str, float | None]:
        """Value and error; None where a network diverged."""
        finite = np.isfinite(self.value)
        return {"slope": self.value if finite else None, "error": self.error if finite else None}


def fit_slope(depths: Sequence[int], values: np.ndarray) -> Slope:
    """The power of depth of some positive values, shape (depths, seeds).

    Values that overflow, at any depth, give a slope of infinity.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    if not np.isfinite(logs).all():
        grows = bool(np.isposinf(logs).any() or np.isnan(logs).any())
        return Slope(np.inf if grows else -np.inf, 0.0)
    slopes = _line(depths, logs)
    value, seeds = float(slopes.mean()), len(slopes)
    bend = abs(float(_line(depths[1:], logs[1:]).mean()) - value) if len(depths) > 2 else 0.0
    return Slope(value, 2.0 * float(slopes.std(ddof=1) / np.sqrt(seeds)) + bend)


def _line(depths: Sequence[int], logs: np.ndarray) -> np.ndarray:
    """Least-squares slope of every seed."""
    position = np.log(np.asarray(depths, dtype=float))
    position = position - position.mean()
    return position @ logs / (position @ position)
