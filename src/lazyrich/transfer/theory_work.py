"""A theory cell: the loss at several learning rates, without training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lazyrich.problem import Problem
from lazyrich.problem.data import Data
from lazyrich.problem.files import Judged
from lazyrich.theory.deep_linear.quadrature import data_measure
from lazyrich.theory.deep_linear.solver import Solution
from lazyrich.theory.deep_linear.solving import losses_and_accuracies, losses_by_output, solve_problem
from lazyrich.theory.deep_linear.strided_curves import strided_curves
from lazyrich.transfer.judging import is_error, judged_part


def losses_by_theory(
    problem: Problem, rates: Sequence[float], at: Sequence[int], loss: Judged
) -> dict[str, np.ndarray]:
    """Losses at steps `at` for every rate; see :meth:`Cell.execute` for the result.

    The data are taken apart once for all rates, and every rate is solved only up to the last step that is read.
    """
    steps = max(at) + 1
    measure = data_measure(problem.data)
    losses = np.full((len(rates), len(at), 1), np.nan)
    diverged = np.full((len(rates), 1), -1)
    for index, rate in enumerate(rates):
        asked = problem.with_rate(rate).cut_to(steps)
        curves = strided_curves(asked, at=tuple(at), measure=measure, accuracies_on=_accuracies_read(loss))
        if curves is not None:
            places = np.searchsorted(curves.steps, at)
            losses[index, :, 0] = _judged(curves.losses, curves.accuracies, loss)[places]
            continue
        solution, _ = solve_problem(asked, measure=measure)
        if solution.diverged:
            diverged[index] = solution.steps
        reached = [position for position, step in enumerate(at) if step < solution.steps]
        if reached:
            losses[index, reached, 0] = _read(solution, problem.data, np.asarray(at)[reached], loss)
    return {"losses": losses, "diverged": diverged}


def _read(solution: Solution, data: Data, steps: np.ndarray, loss: Judged) -> np.ndarray:
    if loss == "train":  # spares a data set's law of the outputs
        return _judged(losses_by_output(solution)[0], {}, loss)[steps]
    return _judged(*losses_and_accuracies(solution, data, steps, _accuracies_read(loss)), loss)


def _accuracies_read(loss: Judged) -> list[str]:
    return [judged_part(loss)] if is_error(loss) else []


def _judged(losses: dict[str, np.ndarray], accuracies: dict[str, np.ndarray], loss: Judged) -> np.ndarray:
    if is_error(loss):
        return 1.0 - accuracies[f"{judged_part(loss)}_accuracy"]
    return losses[f"{loss}_loss"].mean(axis=-1)
