"""Train real networks of a problem: problem in, trajectory out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.fields import lay_out
from lazyrich.problem import DatasetData, Problem
from lazyrich.problem.problem import DIVERGENCE_FACTOR
from lazyrich.problem.residual import ResidualProblem
from lazyrich.simulation.linear import BatchResult, run_networks
from lazyrich.simulation.residual.records import train_residual
from lazyrich.trajectory import Interrupted, Outcome, Trajectory

_MOST_NETWORKS = 1_000_000
# Times at which results of gradient flow are kept.
_FLOW_TIMES = 64


def train(
    problem: Problem | ResidualProblem,
    seeds: int | Sequence[int] = 16,
    *,
    kernels: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Trajectory:
    """Train networks of the problem's own size and record what the theory predicts, or the curves of the problem.

    Parameters
    ----------
    problem : Problem or ResidualProblem
    seeds : int or sequence of int
        Networks to train, numbered from 0, or their numbers. Network s draws its weights and data from
        ``training.seed`` and s alone.
    kernels : bool
        Also record the kernels between all pairs of steps (memory grows as steps^2); of deep linear networks only.
    progress : callable, optional
        Called with network-steps done and network-steps in all.

    Returns
    -------
    Trajectory
        Means over networks with standard errors. From the first step at which a network's loss exceeds 10^6 times its
        initial value, or is not finite, nothing is given and the outcome is "diverged"; for residual networks with the
        layer where numbers stopped being finite.

    Raises
    ------
    LazyrichError
        For an infinite width, a network that does not fit into memory, or a data file that cannot be used.
    Interrupted
        On Ctrl-C; a KeyboardInterrupt whose `trajectory` holds the networks that were finished, if any.

    Examples
    --------
    >>> import lazyrich
    >>> problem = lazyrich.Problem(
    ...     network=lazyrich.Network(width=60, blocks=0),
    ...     data=lazyrich.GaussianData(dimension=60, samples=120),
    ...     training=lazyrich.Training(steps=10, learning_rate=0.1),
    ... )
    >>> trained = lazyrich.train(problem, seeds=4)
    >>> trained.train_loss.shape
    (10,)
    """
    numbers = _numbers(seeds)
    if isinstance(problem, ResidualProblem):
        if kernels:
            raise LazyrichError("kernels", "are recorded of deep linear networks only", "leave them out")
        return train_residual(problem, numbers, progress)
    if problem.training.mode == "flow":
        return _train_flow(problem, numbers, kernels, progress)
    started = time.perf_counter()
    batches: list[BatchResult] = []
    moments = _KernelMoments()
    correct: dict[str, np.ndarray] = {}  # summed as they come: they are large
    try:
        for batch in run_networks(problem, numbers, kernels=kernels, outputs=True, progress=progress):
            moments.add(batch.kernels)
            correct = {part: count + correct.get(part, 0) for part, count in batch.correct.items()}
            batches.append(dataclasses.replace(batch, kernels={}, correct={}))
    except KeyboardInterrupt:
        finished = sum(len(batch.seeds) for batch in batches)
        partial = None
        if batches:
            outcome = Outcome("interrupted", problem.training.steps)
            partial = _trajectory(problem, batches, moments, correct, outcome, started)
        raise Interrupted(f"{finished} of {len(numbers)} networks were finished", partial) from None
    return _trajectory(problem, batches, moments, correct, None, started)


def _train_flow(
    problem: Problem, numbers: Sequence[int], kernels: bool, progress: Callable[[int, int], object] | None
) -> Trajectory:
    """Gradient flow by small steps of descent; results at times spaced logarithmically, as the theory's are."""
    try:
        trained = train(problem.to_train(), numbers, kernels=kernels, progress=progress)
    except Interrupted as stop:
        partial = None if stop.trajectory is None else _at_times(stop.trajectory, problem)
        raise Interrupted(str(stop), partial) from None
    return _at_times(trained, problem)


def _at_times(trained: Trajectory, problem: Problem) -> Trajectory:
    steps, horizon, outcome = problem.training.steps, problem.training.horizon or 0.0, trained.outcome
    read = np.unique(np.geomspace(1, steps, _FLOW_TIMES).round().astype(int))
    read = np.concatenate([[0], read])
    data = trained.data.isel({name: read for name in ("step", "step_prime") if name in trained.data.dims})
    counted = {name: np.arange(len(read)) for name in ("step", "step_prime") if name in data.dims}
    times = horizon * read / steps
    if outcome.step is not None:
        place = int(np.searchsorted(read, outcome.step))
        time = float(times[min(place, len(read) - 1)])  # all steps are done where networks are missing
        outcome = dataclasses.replace(outcome, step=place, time=time, remedy="take more steps")
    return dataclasses.replace(
        trained,
        data=data.assign_coords(counted).assign_coords(time=("step", times)),
        problem=problem,
        outcome=outcome,
    )


def _numbers(seeds: int | Sequence[int]) -> list[int]:
    count = int(seeds) if isinstance(seeds, int | np.integer) else len(seeds)
    if not 1 <= count <= _MOST_NETWORKS:
        raise LazyrichError("seeds", f"{count} networks cannot be trained", f"give from 1 to {_MOST_NETWORKS}")
    numbers = [int(seed) for seed in (range(count) if isinstance(seeds, int | np.integer) else seeds)]
    if len(set(numbers)) < count:
        raise LazyrichError("seeds", "a network is listed twice", "give every number once")
    return numbers


class _KernelMoments:
    """Means and standard errors of kernels over networks, without keeping each network's."""

    def __init__(self) -> None:
        self._count = 0
        self._reference: dict[str, np.ndarray] = {}  # the first network's kernels, against cancellation
        self._sums: dict[str, np.ndarray] = {}

    def add(self, kernels: dict[str, np.ndarray]) -> None:
        """Take in the kernels of a batch, leading axis seeds."""
        with np.errstate(over="ignore", invalid="ignore"):  # networks that diverged
            for name, values in kernels.items():
                reference = self._reference.setdefault(name, values[0].copy())
                shifted = values - reference
                sums = np.stack([shifted.sum(axis=0), (shifted**2).sum(axis=0)])
                self._sums[name] = self._sums[name] + sums if name in self._sums else sums
        self._count += len(next(iter(kernels.values()), ()))

    def summary(self, size: int) -> dict[str, np.ndarray]:
        """Kernels and their standard errors (``.._sem``) over the first `size` rows."""
        found = {}
        for name, sums in self._sums.items():
            total, square = sums[..., :size, :size]
            found[name] = self._reference[name][..., :size, :size] + total / self._count
            if self._count > 1:
                spread = np.clip(square - total**2 / self._count, 0.0, None)
                found[f"{name}_sem"] = np.sqrt(spread / (self._count - 1) / self._count)
        return found


def _trajectory(
    problem: Problem,
    batches: list[BatchResult],
    moments: _KernelMoments,
    correct: dict[str, np.ndarray],
    outcome: Outcome | None,
    started: float,
) -> Trajectory:
    test = np.concatenate([batch.test_loss for batch in batches])
    train_losses = np.concatenate([batch.train_loss for batch in batches])
    first = first_divergence(test)
    reached = int(first.min())
    if outcome is None:
        outcome = Outcome("diverged", reached) if reached < problem.training.steps else Outcome()
    losses, overall = {}, {}
    of_seed = {"train_loss": train_losses[:, :reached]}
    held_out = [batch.held_out_loss for batch in batches if batch.held_out_loss is not None]
    if held_out:
        of_seed["test_loss"] = np.concatenate(held_out)[:, :reached]
    elif not isinstance(problem.data, DatasetData):
        of_seed["test_loss"] = test[:, :reached]
    for name, values in of_seed.items():
        losses |= {name: values.mean(axis=0), f"{name}_sem": _sem(values), f"{name}_of_seed": values}
        overall[f"{name}_sem"] = _sem(values.mean(axis=-1))
    accuracies = {}
    for part, counts in correct.items():
        values = np.concatenate([batch.accuracy[part] for batch in batches])[:, :reached]
        name = f"{part}_accuracy"
        accuracies |= {name: values.mean(axis=0), f"{name}_sem": _sem(values), f"{name}_of_seed": values}
        accuracies[f"{part}_correct"] = counts[:reached] / len(values)
    data = lay_out(problem, losses, moments.summary(reached * test.shape[-1]), accuracies)
    for name, values in overall.items():
        padded = np.pad(values, (0, problem.training.steps - reached), constant_values=np.nan)
        data[name] = ("step", padded, data[f"{name}_by_output"].attrs)
    numbers = np.concatenate([batch.seeds for batch in batches])
    return Trajectory(
        data=data.assign_coords(seed=numbers),
        problem=problem,
        source="training",
        outcome=outcome,
        statistics={
            "networks": len(numbers),
            "networks_diverged": int(np.count_nonzero(first < problem.training.steps)),
            "seconds": time.perf_counter() - started,
        },
    )


def first_divergence(test_loss: np.ndarray) -> np.ndarray:
    """The first step of each network at which its loss has diverged, or the number of steps; shape (seeds,)."""
    total = test_loss.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        diverged = ~(total <= DIVERGENCE_FACTOR * total[:, :1])
    return np.where(diverged.any(axis=1), diverged.argmax(axis=1), total.shape[1])


def _sem(values: np.ndarray) -> np.ndarray:
    """Standard error of the mean over the leading axis; NaN for a single network."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.std(axis=0, ddof=1) / np.sqrt(len(values))
