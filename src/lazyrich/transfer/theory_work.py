"""A theory cell: the loss at several learning rates, without training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lazyrich.problem import Problem
from lazyrich.theory.deep_linear.quadrature import data_measure
from lazyrich.theory.deep_linear.solving import losses_by_output, solve_problem
from lazyrich.theory.deep_linear.strided_curves import strided_curves


def losses_by_theory(problem: Problem, rates: Sequence[float], at: Sequence[int], loss: str) -> dict[str, np.ndarray]:
    """Losses at steps `at` for every rate; see :meth:`Cell.execute` for the result.

    The data are taken apart once for all rates, and every rate is solved only up to the last step that is read.
    """
    steps = max(at) + 1
    measure = data_measure(problem.data)
    losses = np.full((len(rates), len(at), 1), np.nan)
    diverged = np.full((len(rates), 1), -1)
    for index, rate in enumerate(rates):
        asked = problem.with_rate(rate).cut_to(steps)
        curves = strided_curves(asked, at=tuple(at), measure=measure)
        if curves is not None:
            places = np.searchsorted(curves.steps, at)
            losses[index, :, 0] = curves.losses[f"{loss}_loss"][places].mean(axis=-1)
            continue
        solution, _ = solve_problem(asked, measure=measure)
        if solution.diverged:
            diverged[index] = solution.steps
        reached = [position for position, step in enumerate(at) if step < solution.steps]
        by_output = losses_by_output(solution)[0][f"{loss}_loss"]
        losses[index, reached, 0] = by_output[[at[position] for position in reached]].mean(axis=-1)
    return {"losses": losses, "diverged": diverged}
