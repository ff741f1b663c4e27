"""Extrapolation of a second-order method from two grids, and what it tells of the error."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.ndimage import maximum_filter1d

# Neighbours that share an error estimate: estimates cross zero now and then.
_NEARBY = 5
# Errors are relative to the loss, or to this part of the initial loss where that is more. The training loss of a finite
# training set ends in exponential decay, for which no logarithmic grid is made.
_FAINT, _FAINT_ON_SAMPLES = 1e-5, 1e-2


def combined(coarse: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """The value at step zero, from steps h and h/2."""
    return (4 * fine - coarse) / 3


def largest_nearby(changes: np.ndarray) -> np.ndarray:
    """The largest among a few neighbours along the first axis."""
    return maximum_filter1d(changes, _NEARBY, axis=0, mode="nearest")


def largest_relative_error(losses: Mapping[str, np.ndarray], on_samples: bool) -> float:
    """The largest relative error of losses, shape (nodes, outputs), that have their errors beside them in ``.._error``.

    `on_samples`: whether the training loss is that of a finite training set.
    """
    faint = {"test_loss": _FAINT, "train_loss": _FAINT_ON_SAMPLES if on_samples else _FAINT}
    worst = [
        np.max(losses[f"{name}_error"] / np.maximum(losses[name], part * losses[name][0]))
        for name, part in faint.items()
        if name in losses
    ]
    return float(np.max(worst))  # NaN if one of them is, unlike max()
