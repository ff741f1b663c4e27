"""Train residual networks of a problem: problem in, trajectory out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from lazyrich.fields import label_curves
from lazyrich.problem.residual import ResidualProblem
from lazyrich.simulation.residual.training import Trained, train_networks
from lazyrich.trajectory import Interrupted, Outcome, Trajectory


def train_residual(
    problem: ResidualProblem, numbers: Sequence[int], progress: Callable[[int, int], object] | None = None
) -> Trajectory:
    """Train one network per number and record losses and accuracies at ``training.recorded()``.

    Parameters
    ----------
    problem : ResidualProblem
    numbers : sequence of int
        The networks' numbers.
    progress : callable, optional
        Called with network-steps done and network-steps in all.

    Returns
    -------
    Trajectory
        Means over networks with standard errors. From the first step on at which a network's loss is not finite, or
        10^6 times its first value, nothing is given and the outcome is "diverged", with the layer where that was seen.

    Raises
    ------
    LazyrichError
        For data that cannot be used and networks that do not fit into memory.
    Interrupted
        On Ctrl-C, with the networks that were finished.
    """
    started = time.perf_counter()
    groups: list[Trained] = []
    try:
        members = [(problem, number) for number in numbers]
        for group in train_networks(members, at=problem.training.recorded(), progress=progress):
            groups.append(group)  # one by one: Ctrl-C leaves those that are finished
    except KeyboardInterrupt:
        finished = sum(len(group.diverged) for group in groups)
        partial = _trajectory(problem, groups, numbers[:finished], started, interrupted=True) if groups else None
        raise Interrupted(f"{finished} of {len(numbers)} networks were finished", partial) from None
    return _trajectory(problem, groups, numbers, started)


def _trajectory(
    problem: ResidualProblem, groups: list[Trained], numbers: Sequence[int], started: float, interrupted: bool = False
) -> Trajectory:
    steps, recorded = problem.training.steps, np.asarray(problem.training.recorded())
    diverged = np.concatenate([group.diverged for group in groups])
    layer = np.concatenate([group.layer for group in groups])
    reached = int(diverged.min())
    if interrupted:
        outcome = Outcome("interrupted", steps)
    elif reached < steps:
        seen = int(layer[diverged.argmin()])
        outcome = Outcome("diverged", reached, None if seen < 0 else seen)
    else:
        outcome = Outcome()
    curves = {}
    for name in groups[0].curves:
        values = np.concatenate([group.curves[name] for group in groups])
        curves[name] = np.where(recorded < reached, values, np.nan)
    return Trajectory(
        data=label_curves(curves, recorded, numbers, problem.training.loss),
        problem=problem,
        source="training",
        outcome=outcome,
        statistics={
            "networks": len(numbers),
            "networks_diverged": int(np.count_nonzero(diverged < steps)),
            "seconds": time.perf_counter() - started,
        },
    )
