"""What is read off a trajectory of matrices: crossings, plateaus, ranks, the best step."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from scipy.signal import find_peaks

from lazyrich.mixed_dynamics.closed_form import singular_value_at, time_to_reach
from lazyrich.mixed_dynamics.task import Task
from lazyrich.problem.problem import DIVERGENCE_FACTOR

# Singular values above this fraction of the largest count in the numerical rank.
RANK_FRACTION = 0.2
# With stop = "best": the run ends after so many times the best step, and so many steps more.
_PATIENCE, _LEAST_MORE = 1.25, 30
# An error that is smaller by less than this does not make a new best step.
_BETTER = 1e-12


def numerical_rank(values: np.ndarray) -> int:
    """Singular values above a fifth of the largest."""
    return int(np.count_nonzero(values > RANK_FRACTION * values.max())) if values.max() > 0 else 0


@dataclass
class Recorder:
    """Takes in A at every step, and keeps what is asked for.

    Attributes
    ----------
    task : Task
    recorded : set of int
        Steps at which singular values are taken.
    products : bool
        Whether A itself is kept at those steps.
    """

    task: Task
    recorded: set[int]
    products: bool = False
    train_error: list[float] = field(default_factory=list)
    test_error: list[float] = field(default_factory=list)
    amplitudes: list[np.ndarray] = field(default_factory=list)
    spectra: dict[int, np.ndarray] = field(default_factory=dict)
    alignment: dict[int, float] = field(default_factory=dict)
    matrices: dict[int, np.ndarray] = field(default_factory=dict)
    best_step: int = 0
    best_product: np.ndarray | None = None
    last_product: np.ndarray | None = None
    diverged: int | None = None

    def take(self, step: int, product: np.ndarray, error: float) -> bool:
        """Record a step; False if the training has diverged there."""
        first = self.train_error[0] if self.train_error else error
        if not (np.isfinite(error) and error <= DIVERGENCE_FACTOR * max(first, 1e-300)):
            self.diverged = step
            return False
        task = self.task
        self.train_error.append(error)
        test = task.test_error(product)
        if self.best_product is None or test < self.test_error[self.best_step] * (1.0 - _BETTER):
            self.best_step, self.best_product = step, product.astype(float)
        self.test_error.append(test)
        self.amplitudes.append(np.einsum("ij,ij->j", task.left, product @ task.right))
        if step in self.recorded:
            self.record(step, product)
        return True

    def past_best(self, step: int, at_least: int) -> bool:
        """Whether the best test error lies clearly behind."""
        return step >= max(_PATIENCE * self.best_step + _LEAST_MORE, at_least)

    def record(self, step: int, product: np.ndarray) -> None:
        """Take the singular values and the alignment of a step."""
        left, values, right = np.linalg.svd(product.astype(float), full_matrices=False)
        rank = min(self.task.rank, self.task.left.shape[1])
        cosines = [self.task.left[:, :rank].T @ left[:, :rank], self.task.right[:, :rank].T @ right[:rank].T]
        self.spectra[step] = values
        self.alignment[step] = float(np.mean([np.sum(cosine**2) / rank for cosine in cosines]))
        self.last_product = product.astype(float)
        if self.products:
            self.matrices[step] = self.last_product


def crossing_times(times: np.ndarray, amplitudes: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The first time at which each column of `amplitudes` reaches its level, linear between steps; NaN if never.

    Parameters
    ----------
    times : ndarray, shape (steps,)
    amplitudes : ndarray, shape (steps, modes)
    levels : ndarray, shape (modes,)
    """
    above = amplitudes >= levels
    found = np.full(len(levels), np.nan)
    for mode in np.flatnonzero(above.any(axis=0)):
        step = int(above[:, mode].argmax())
        if step == 0:
            found[mode] = times[0]
            continue
        low, high = amplitudes[step - 1 : step + 1, mode]
        share = (levels[mode] - low) / (high - low)
        found[mode] = times[step - 1] + share * (times[step] - times[step - 1])
    return found


def predicted_times(task: Task, amplitude: np.ndarray, threshold: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """When the closed form says that each mode of the target reaches its level, from its own start."""
    return time_to_reach(levels, task.strengths, threshold, np.maximum(amplitude, -0.5 * task.strengths))


def predicted_best(task: Task, threshold: float, last: float) -> tuple[float, float]:
    """Best stopping time and test error by the closed form of every singular mode of the target with its noise.

    Returns
    -------
    time, error : float
        NaN where there is no truth or the cost is not a factorization.
    """
    truth = task.truth
    if truth is None or task.cost.target is None:
        return np.nan, np.nan
    left, values, right = np.linalg.svd(task.cost.target, full_matrices=False)
    overlap = np.einsum("ij,ij->j", left, truth @ right.T)
    total = float(np.sum(truth**2))

    def errors(times: np.ndarray) -> np.ndarray:
        curves = singular_value_at(times[:, None], values, np.asarray(threshold))
        return (np.sum(curves**2 - 2.0 * curves * overlap, axis=1) + total) / truth.size

    times = np.linspace(0.0, last, 400)
    for _ in range(2):  # a grid, then a finer one around its best point
        best = int(errors(times).argmin())
        times = np.linspace(times[max(best - 1, 0)], times[min(best + 1, len(times) - 1)], 200)
    found = errors(times)
    return float(times[found.argmin()]), float(found.min())


def plateaus(times: np.ndarray, errors: np.ndarray) -> list[dict[str, float]]:
    """Stretches between two drops of the train error where it falls at less than half the slower one's speed.

    Returns
    -------
    list of dict
        ``start``, ``end`` (times) and ``train_error`` in the middle.
    """
    if len(times) < 5:
        return []
    speed = -np.gradient(errors, times)
    peaks = find_peaks(speed, prominence=0.0)[0]
    peaks = [peak for peak in peaks if speed[peak] > 1e-9 * speed.max()]
    found = []
    for left, right in itertools.pairwise(peaks):
        slow = np.flatnonzero(speed[left : right + 1] < 0.5 * min(speed[left], speed[right])) + left
        if len(slow):
            start, end = slow[0], slow[-1]
            found.append(
                {
                    "start": float(times[start]),
                    "end": float(times[end]),
                    "train_error": float(errors[(start + end) // 2]),
                }
            )
    return found
