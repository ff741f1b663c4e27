"""A matrix problem from question to trajectory, by the law, by its closed form, or by a network of any width."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from lazyrich.errors import LazyrichError
from lazyrich.mixed_dynamics.closed_form import singular_value_at
from lazyrich.mixed_dynamics.costs import Cost
from lazyrich.mixed_dynamics.descent import State, factor_descent, gram_descent
from lazyrich.mixed_dynamics.flow import anisotropic_flow, factor_flow
from lazyrich.mixed_dynamics.readings import (
    Recorder,
    crossing_times,
    numerical_rank,
    plateaus,
    predicted_best,
    predicted_times,
)
from lazyrich.mixed_dynamics.start import Factors, bartlett_network, full_network, mode_start, reduced, tied_factors
from lazyrich.mixed_dynamics.task import Start, Task, generator, make_start, make_task
from lazyrich.problem.matrix import MatrixProblem
from lazyrich.trajectory import Interrupted, Outcome, Trajectory

if TYPE_CHECKING:
    import xarray

# Up to this dimension the products of a step are too small to share between cores.
_ONE_THREAD = 150


def two_layer(
    problem: MatrixProblem,
    *,
    cost: Cost | Callable[[Any], Any] | None = None,
    products: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Trajectory:
    """How a two-layer linear network ``A = W2 W1`` learns a matrix.

    Parameters
    ----------
    problem : MatrixProblem
    cost : callable, optional
        For ``matrix.cost = "custom"``: a function in ``jax.numpy`` from A, shape (d_out, d_in), to one number.
    products : bool
        Also keep A itself at the recorded steps.
    progress : callable, optional
        Called with steps done and steps in all.

    Returns
    -------
    Trajectory
        At the recorded steps ``train_error`` (mean square over what is observed), ``test_error`` (mean square distance
        from the truth), ``singular_values`` (step, mode), ``threshold`` s0, ``active`` (step, mode), ``active_rank``,
        ``numerical_rank``, ``stable_rank``, ``alignment`` with the target's singular vectors and, of each of the
        target's modes, ``amplitude`` (step, target_mode), ``crossing_time`` (s0 is passed: lazy turns active) and
        ``half_time``, both also ``.._predicted``; ``final`` and ``best``, the matrices A at the end and at the best
        test error. ``time`` is the sum of the learning rates. `statistics` say which solver was used and why, the best
        stopping step, and the plateaus.

    Raises
    ------
    LazyrichError
        When the problem's data cannot be used, or it does not fit into memory.
    Interrupted
        On Ctrl-C; its `trajectory` holds what was done.

    Examples
    --------
    >>> import lazyrich
    >>> problem = lazyrich.MatrixProblem(
    ...     matrix=lazyrich.Matrix(shape=[30, 30], target=lazyrich.Target(singular_values=[10.0, 3.0])),
    ...     network=lazyrich.TwoLayerNetwork(width=10**9, threshold=0.01),
    ...     training=lazyrich.MatrixTraining(steps=1000),
    ... )
    >>> run = lazyrich.two_layer(problem)
    >>> run.data["active_rank"].values[[0, -1]]
    array([0, 2])
    """
    started = time.perf_counter()
    task = make_task(problem, cost)
    start = make_start(problem, task)
    solver, reason = choose_solver(problem, start)
    times = _times(problem, start)
    recorder = Recorder(task, _recorded_steps(len(times), problem.training.record), products)
    factors = make_factors(problem, task, start)
    at_least = expected_end(problem, task, start)
    interrupted = None
    states = make_states(problem, task, start, solver, factors)
    try:
        with threadpool_limits(1 if max(task.shape) <= _ONE_THREAD else None):
            for step, (product, error) in zip(range(len(times)), states, strict=False):
                if not recorder.take(step, product, error):
                    break
                if progress is not None and step % 10 == 0:
                    progress(step, len(times))
                if problem.training.stop == "best" and recorder.past_best(step, at_least):
                    recorder.record(step, product)
                    break
    except KeyboardInterrupt:
        interrupted = len(recorder.train_error)
        if not interrupted:
            raise Interrupted(f"0 of {len(times)} steps were done", None) from None
    if recorder.diverged == 0:
        raise LazyrichError("network", "the cost at initialisation is not a finite number", "lower the variance")
    data, statistics = _lay_out(problem, recorder, task, start, times, factors)
    outcome = Outcome()
    if recorder.diverged is not None:
        outcome = Outcome("diverged", recorder.diverged)
    elif interrupted is not None:
        outcome = Outcome("interrupted", interrupted)
    if outcome.step is not None and problem.training.horizon is not None:
        # no step is too large there: beyond that time there is no flow
        when = float(times[min(outcome.step, len(times) - 1)])
        outcome = replace(outcome, time=when, remedy="shorten the horizon")
    trajectory = Trajectory(
        data=data,
        problem=problem,
        source="training" if solver == "network" else "theory",
        outcome=outcome,
        statistics={"solver": solver, "reason": reason, **statistics, "seconds": time.perf_counter() - started},
    )
    if interrupted is not None:
        raise Interrupted(f"{interrupted} of {len(times)} steps were done", trajectory)
    return trajectory


def choose_solver(problem: MatrixProblem, start: Start) -> tuple[str, str]:
    """The solver's name, and why it was chosen."""
    asked = problem.training.solver
    if asked != "auto":
        return asked, "asked for by training.solver"
    if math.isfinite(start.width):
        return "network", "a network of any finite width is exact at the law's price"
    if (
        problem.training.horizon is not None
        and problem.matrix.cost == "factorization"
        and not problem.training.weight_decay
    ):
        return "closed-form", "gradient flow of a factorization at infinite width has a closed form"
    return "law", "the width is infinite: the law is exact"


def make_factors(problem: MatrixProblem, task: Task, start: Start) -> Factors | None:
    """The network's own weights at the start, made small where that is possible; None at infinite width.

    Raises
    ------
    LazyrichError
        For a reduction that needs a wider network.
    """
    if math.isinf(start.width):
        return None
    width, inner, reduction = int(start.width), sum(task.shape), problem.training.reduction
    if reduction == "auto":
        reduction = "bartlett" if width >= inner else "none"
    if reduction == "bartlett":
        if width < inner:
            what = f"'bartlett' needs a width of at least {inner} (d_in + d_out)"
            raise LazyrichError("training.reduction", what, "set reduction = 'none', or widen the network")
        return bartlett_network(task.shape, width, start.variances, generator(problem))
    factors = full_network(task.shape, width, start.variances, generator(problem))
    return reduced(factors) if reduction == "qr" else factors


def make_states(
    problem: MatrixProblem, task: Task, start: Start, solver: str, factors: Factors | None
) -> Iterator[State]:
    """States at every step by the named solver; they may go on for ever."""
    training, cost = problem.training, task.cost
    times = _times(problem, start)
    if solver == "closed-form":
        return _closed_states(task, start, times)
    if solver == "anisotropic-law":
        if factors is None:
            raise LazyrichError("training.solver", "'anisotropic-law' is for finite widths", "set solver = 'law'")
        return anisotropic_flow(factors, cost, times)
    if solver == "law":
        zero = np.zeros(task.shape)
        factors = tied_factors(zero if factors is None else factors[1] @ factors[0], start.threshold)
    assert factors is not None  # an infinite network is refused by the problem
    if training.horizon is not None:
        return factor_flow(factors, cost, times, training.weight_decay)
    dtype = np.dtype(training.precision)
    factors = factors[0].astype(dtype), factors[1].astype(dtype)
    descend = gram_descent if training.reduction == "gram" and solver == "network" else factor_descent
    return descend(factors, cost.astype(dtype), start.rate, training.weight_decay)


def _closed_states(task: Task, start: Start, times: np.ndarray) -> Iterator[State]:
    target = task.cost.target
    assert target is not None
    left, values, right = np.linalg.svd(target, full_matrices=False)
    for moment in times:
        product = (left * singular_value_at(np.asarray(moment), values, np.asarray(start.threshold))) @ right
        yield product, task.cost(product)[0]


def _recorded_steps(count: int, record: int) -> set[int]:
    """Half of them evenly spaced, half by a factor, as much happens early; with the first and the last."""
    even = np.linspace(0, count - 1, min(record, count) // 2 + 1)
    growing = np.geomspace(1, count, min(record, count) // 2) - 1
    return set(np.concatenate([even, growing]).round().astype(int).tolist())


def _times(problem: MatrixProblem, start: Start) -> np.ndarray:
    """The time of every step: multiples of the rate, or the moments of gradient flow that are recorded."""
    training = problem.training
    if training.horizon is not None:
        return np.linspace(0.0, training.horizon, training.record)
    return start.rate * np.arange(int(training.steps or 0) + 1)


def expected_end(problem: MatrixProblem, task: Task, start: Start) -> int:
    """Steps by which the weakest mode that is followed should be learned; stop = "best" does not end before."""
    if problem.training.stop == "end":
        return 0
    if task.truth is None:
        raise LazyrichError("training.stop", "'best' needs a test error, and nothing is known", "set stop = 'end'")
    signal = task.strengths[: task.rank]
    last = float(
        predicted_times(task, np.zeros_like(signal), np.full_like(signal, start.threshold), 0.9 * signal).max()
    )
    return math.ceil(last / start.rate / task.cost.curvature)


def _lay_out(
    problem: MatrixProblem, recorder: Recorder, task: Task, start: Start, times: np.ndarray, factors: Factors | None
) -> tuple[xarray.Dataset, dict[str, Any]]:
    import xarray

    done = len(recorder.train_error)
    steps = np.asarray(sorted(recorder.spectra))
    spectra = np.asarray([recorder.spectra[int(step)] for step in steps])
    thresholds = start.threshold * np.exp(-2.0 * problem.training.weight_decay * times[steps])
    active = spectra > thresholds[:, None]
    amplitudes = np.asarray(recorder.amplitudes)
    if factors is None:
        begin, own = np.zeros_like(task.strengths), np.full_like(task.strengths, start.threshold)
    else:
        begin, own = mode_start(factors, task.left, task.right)
    crossing, half = np.full_like(task.strengths, start.threshold), 0.5 * task.strengths
    crossable = start.threshold < task.strengths
    squares = np.sum(spectra**2, axis=1)
    stable = np.divide(squares, spectra[:, 0] ** 2, out=np.zeros_like(squares), where=spectra[:, 0] > 0)
    per_step = {
        "time": (times[steps], "sum of the learning rates"),
        "train_error": (np.asarray(recorder.train_error)[steps], "train error"),
        "test_error": (np.asarray(recorder.test_error)[steps], "test error"),
        "threshold": (thresholds, "threshold s0 between lazy and active"),
        "active_rank": (active.sum(axis=1), "singular values above s0"),
        "numerical_rank": (
            np.asarray([numerical_rank(row) for row in spectra]),
            "singular values above 1/5 of the largest",
        ),
        "stable_rank": (stable, "squared Frobenius norm by squared operator norm"),
        "alignment": (
            np.asarray([recorder.alignment[int(step)] for step in steps]),
            "mean squared cosine with the target",
        ),
    }
    variables: dict[str, Any] = {
        name: ("step", values, {"long_name": label}) for name, (values, label) in per_step.items()
    }
    variables["singular_values"] = (("step", "mode"), spectra, {"long_name": "singular values of A"})
    variables["active"] = (("step", "mode"), active, {"long_name": "active (above s0), not lazy"})
    variables["amplitude"] = (
        ("step", "target_mode"),
        amplitudes[steps],
        {"long_name": "u^T A v of the target's modes"},
    )
    modes = {
        "strength": task.strengths,
        "crossing_time": np.where(crossable, crossing_times(times[:done], amplitudes, crossing), np.nan),
        "crossing_time_predicted": np.where(crossable, predicted_times(task, begin, own, crossing), np.nan),
        "half_time": crossing_times(times[:done], amplitudes, half),
        "half_time_predicted": predicted_times(task, begin, own, half),
    }
    variables |= {name: ("target_mode", values) for name, values in modes.items()}
    for name, matrix in (("final", recorder.last_product), ("best", recorder.best_product)):
        if matrix is not None:
            variables[name] = (("row", "column"), matrix)
    if recorder.products:
        variables["product"] = (("step", "row", "column"), np.asarray([recorder.matrices[int(step)] for step in steps]))
    best = recorder.best_step
    best_values = np.linalg.svd(recorder.best_product, compute_uv=False) if recorder.best_product is not None else None
    expected_time, expected_error = predicted_best(task, start.threshold, float(times[done - 1]))
    statistics = {
        "width": start.width if math.isfinite(start.width) else None,  # None: infinite
        "hidden_units_computed": None if factors is None else factors[0].shape[0],
        "threshold": start.threshold,
        "target_size": task.size,
        "learning_rate": start.rate,
        "largest_stable_rate": 1.0
        / (task.cost.curvature * math.hypot(max(task.size, task.strengths[0]), start.threshold)),
        "best_step": best,
        "best_time": float(times[best]),
        "best_test_error": recorder.test_error[best],
        "best_test_error_predicted": expected_error,
        "best_time_predicted": expected_time,
        "best_numerical_rank": None if best_values is None else numerical_rank(best_values),
        "best_active_rank": None if best_values is None else int(np.count_nonzero(best_values > start.threshold)),
        "plateaus": plateaus(times[:done], np.asarray(recorder.train_error)),
    }
    return xarray.Dataset(variables, {"step": steps}), statistics
