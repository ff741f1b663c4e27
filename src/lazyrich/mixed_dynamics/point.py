"""One point of a phase diagram: the best test error, its rank and time, and how far law and network are apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.mixed_dynamics.costs import Factorization
from lazyrich.mixed_dynamics.descent import State, factor_descent
from lazyrich.mixed_dynamics.readings import Recorder, numerical_rank
from lazyrich.mixed_dynamics.run import expected_end, make_factors, make_states
from lazyrich.mixed_dynamics.start import Factors, tied_factors
from lazyrich.mixed_dynamics.task import Start, Task, make_start, make_task
from lazyrich.problem.matrix import MatrixProblem


def measure_point(
    problem: MatrixProblem, by: Literal["network", "law", "both"], *, signal_block: bool = False
) -> dict[str, np.ndarray]:
    """Run a problem by one or both methods, without its spectra.

    Returns
    -------
    dict of ndarray, all scalars
        For each method (the law is that of ``training.solver``), with its name in front: ``.._best_error``,
        ``.._best_step``, ``.._best_time``, ``.._rank`` (singular values above a fifth of the largest, at the best
        step), ``.._active_rank``, ``.._steps`` (done) and ``.._diverged`` (the step, or -1). Of both, ``distance``:
        the largest
        ``|A_law - A| / |A|`` (Frobenius). With `signal_block` also ``block_network`` and ``block_law``, see
        :func:`signal_block_distances`. ``threshold``, ``width``, ``variance`` (of A(0)'s factors, geometric mean),
        ``size`` and ``signal_rank`` place the point in the theory.
    """
    if problem.training.horizon is not None:
        raise LazyrichError("training.horizon", "a diagram takes steps", "give steps instead of horizon")
    task = make_task(problem)
    start = make_start(problem, task)
    factors = make_factors(problem, task, start)
    methods = ("network", "law") if by == "both" else (by,)
    if factors is None and "network" in methods:
        raise LazyrichError("diagram.by", "an infinite network cannot be trained", "set by = 'law'")
    steps = int(problem.training.steps or 0) + 1
    at_least = expected_end(problem, task, start)
    recorders = {method: Recorder(task, set()) for method in methods}
    law = "anisotropic-law" if problem.training.solver == "anisotropic-law" else "law"
    solvers = {"network": "network", "law": law}
    states = {method: make_states(problem, task, start, solvers[method], factors) for method in methods}
    distance = 0.0
    for step in range(steps):
        current = {method: next(states[method]) for method in methods}
        alive = [recorders[method].take(step, *current[method]) for method in methods]
        if not all(alive):
            break
        if len(methods) == 2:
            network = current["network"][0]
            difference = np.linalg.norm(current["law"][0] - network)
            distance = max(distance, float(difference / max(np.linalg.norm(network), 1e-300)))
        if problem.training.stop == "best" and all(r.past_best(step, at_least) for r in recorders.values()):
            break
    found = {
        "threshold": start.threshold,
        "width": start.width,
        "variance": math.sqrt(start.variances[0] * start.variances[1]),
        "size": task.size,
        "signal_rank": task.rank,
    }
    for method, recorder in recorders.items():
        found |= {f"{method}_{name}": value for name, value in _summary(recorder, start).items()}
    if len(methods) == 2:
        found["distance"] = distance
    if signal_block:
        if factors is None:
            raise LazyrichError("diagram.signal_block", "needs a network of finite width", "give a width")
        found |= signal_block_distances(problem, task, start, factors)
    return {name: np.asarray(float(value)) for name, value in found.items()}


def _summary(recorder: Recorder, start: Start) -> dict[str, float]:
    best = recorder.best_step
    values = np.zeros(1) if recorder.best_product is None else np.linalg.svd(recorder.best_product, compute_uv=False)
    return {
        "best_error": recorder.test_error[best] if recorder.test_error else math.nan,
        "best_step": best,
        "best_time": best * start.rate,
        "rank": numerical_rank(values),
        "active_rank": int(np.count_nonzero(values > start.threshold)),
        "steps": len(recorder.train_error) - 1,
        "diverged": -1 if recorder.diverged is None else recorder.diverged,
    }


def signal_block_distances(problem: MatrixProblem, task: Task, start: Start, factors: Factors) -> dict[str, float]:
    """How far the signal block ``B = U^T A V`` is from a network, and from the law, of the size of the rank.

    U and V are the target's first k singular vectors, k its rank. The small network starts from ``W1 V`` and ``U^T W2``
    and learns ``U^T T V``; the small law starts from B(0) with the same s0.

    Returns
    -------
    dict
        ``block_network`` and ``block_law``: the largest ``|difference|_op / a`` over the steps.
    """
    target = task.cost.target
    if target is None or task.rank > task.left.shape[1]:
        raise LazyrichError("diagram.signal_block", "needs a factorization of rank 10 or less", "remove it")
    left, right = task.left[:, : task.rank], task.right[:, : task.rank]
    small = Factorization(left.T @ target @ right)
    begin = np.ascontiguousarray(factors[0] @ right), np.ascontiguousarray(left.T @ factors[1])
    runs: dict[str, Iterator[State]] = {
        "block_network": factor_descent(begin, small, start.rate, problem.training.weight_decay),
        "block_law": factor_descent(
            tied_factors(begin[1] @ begin[0], start.threshold), small, start.rate, problem.training.weight_decay
        ),
    }
    worst = dict.fromkeys(runs, 0.0)
    whole = make_states(problem, task, start, "network", factors)
    for _ in range(int(problem.training.steps or 0) + 1):
        block = left.T @ next(whole)[0] @ right
        differences = {name: next(states)[0] - block for name, states in runs.items()}
        if not all(np.isfinite(difference).all() for difference in differences.values()):
            return dict.fromkeys(runs, math.nan)  # diverged, as the run itself says
        for name, difference in differences.items():
            worst[name] = max(worst[name], float(np.linalg.norm(difference, 2)) / task.size)
    return worst
