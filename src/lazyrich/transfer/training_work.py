"""A training cell: the loss of real networks at several learning rates, trained side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import psutil

from lazyrich.problem import DatasetData, Problem
from lazyrich.problem.files import Judged, TrainedProblem
from lazyrich.problem.residual import ResidualProblem
from lazyrich.simulation.linear import BatchResult, run_networks
from lazyrich.simulation.residual.data import load_samples
from lazyrich.simulation.residual.memory import fit_into_memory
from lazyrich.simulation.residual.program import program_of
from lazyrich.simulation.residual.training import train_networks
from lazyrich.simulation.train import first_divergence
from lazyrich.transfer.judging import is_error, judged_part


def losses_by_training(
    problem: TrainedProblem, rates: Sequence[float], at: Sequence[int], loss: Judged, seeds: int
) -> dict[str, np.ndarray]:
    """Losses at steps `at` for every rate and network; see :meth:`Cell.execute` for the result.

    Rates and seeds are one batch of networks. Network s has the same weights and data at every rate.
    """
    if isinstance(problem, ResidualProblem):
        return _residual(problem, rates, at, loss, seeds)
    return _linear(problem, rates, at, loss, seeds)


def check_residual(problem: ResidualProblem) -> None:
    """Refuse data that cannot be used, and networks that do not fit into memory, before any work."""
    samples = load_samples(problem)
    fit_into_memory(problem, program_of(problem), samples, psutil.virtual_memory().available // 2)


def _residual(
    problem: ResidualProblem, rates: Sequence[float], at: Sequence[int], loss: Judged, seeds: int
) -> dict[str, np.ndarray]:
    members = [
        (one, seed) for one in [problem.with_rate(rate).cut_to(max(at) + 1) for rate in rates] for seed in range(seeds)
    ]
    part = judged_part(loss)
    groups = list(train_networks(members, at=at, parts=[part]))
    if is_error(loss):
        accuracy = np.concatenate([group.curves[f"{part}_accuracy"] for group in groups])
        values = np.maximum(1.0 - accuracy, 0.0)  # in float32 a mean of ones may be rounded to more than one
    else:
        values = np.concatenate([group.curves[f"{part}_loss"] for group in groups])
    first = np.concatenate([group.diverged for group in groups])
    losses = values.reshape(len(rates), seeds, len(at)).transpose(0, 2, 1)
    return {"losses": losses, "diverged": np.where(first < max(at) + 1, first, -1).reshape(len(rates), seeds)}


def _linear(
    problem: Problem, rates: Sequence[float], at: Sequence[int], loss: Judged, seeds: int
) -> dict[str, np.ndarray]:
    on_samples = isinstance(problem.data, DatasetData) and loss != "train"
    base = problem.with_rate(1.0).cut_to(max(at) + 1)
    factors = [rate for rate in rates for _ in range(seeds)]
    networks = list(range(seeds)) * len(rates)
    batches = list(run_networks(base, networks, kernels=False, outputs=on_samples, rate_factors=factors))
    first = first_divergence(np.concatenate([batch.test_loss for batch in batches]))  # (rates x seeds,)
    values = np.concatenate([_judged(batch, loss) for batch in batches])[:, list(at)]
    values[first[:, None] <= np.asarray(at)] = np.nan
    losses = values.reshape(len(rates), seeds, len(at)).transpose(0, 2, 1)
    return {"losses": losses, "diverged": np.where(first < max(at) + 1, first, -1).reshape(len(rates), seeds)}


def _judged(batch: BatchResult, loss: Judged) -> np.ndarray:
    """Shape (networks, steps)."""
    if is_error(loss):
        return 1.0 - batch.accuracy[judged_part(loss)]
    if loss == "train":
        return batch.train_loss.mean(axis=-1)
    return (batch.test_loss if batch.held_out_loss is None else batch.held_out_loss).mean(axis=-1)
