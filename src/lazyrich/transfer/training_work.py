"""A training cell: the loss of real networks at several learning rates, trained side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lazyrich.problem import Problem
from lazyrich.simulation.linear import run_networks
from lazyrich.simulation.train import first_divergence


def losses_by_training(
    problem: Problem, rates: Sequence[float], at: Sequence[int], loss: str, seeds: int
) -> dict[str, np.ndarray]:
    """Losses at steps `at` for every rate and network; see :meth:`Cell.execute` for the result.

    Rates and seeds are one batch of networks. Network s has the same weights and data at every rate.
    """
    base = problem.with_rate(1.0).cut_to(max(at) + 1)
    factors = [rate for rate in rates for _ in range(seeds)]
    batches = list(run_networks(base, list(range(seeds)) * len(rates), kernels=False, rate_factors=factors))
    test = np.concatenate([batch.test_loss for batch in batches])
    chosen = test if loss == "test" else np.concatenate([batch.train_loss for batch in batches])
    first = first_divergence(test)  # (rates x seeds,)
    values = chosen.mean(axis=-1)[:, list(at)]
    values[first[:, None] <= np.asarray(at)] = np.nan
    losses = values.reshape(len(rates), seeds, len(at)).transpose(0, 2, 1)
    return {"losses": losses, "diverged": np.where(first < max(at) + 1, first, -1).reshape(len(rates), seeds)}
