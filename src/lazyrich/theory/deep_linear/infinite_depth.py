"""Infinitely deep residual networks: finite ones, extrapolated in one over the number of blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.ndimage import maximum_filter1d

from lazyrich.problem import Problem
from lazyrich.trajectory import Outcome, Trajectory

# Together they cost 1.75 times the deepest: what is asked for is at most three times.
DEPTHS = (8, 16, 32)
# Steps or nodes that share an error estimate.
_NEARBY = 7


def depth_limit(problem: Problem, predict: Callable[[Problem], Trajectory]) -> Trajectory:
    """The trajectory at infinite depth, where branches shrink with the number of blocks.

    Everything is a smooth function of one over the number of blocks: a parabola through three depths gives its value
    at 0, and the straight line through the deeper two an estimate of the error, larger than it by far.

    Parameters
    ----------
    problem : Problem
        With ``network.blocks = inf``.
    predict : callable
        Gives the trajectory of a problem of finite depth.

    Returns
    -------
    Trajectory
        Its level coordinate runs from 0 at the input to 1 at the output; ``train_loss_error`` and ``test_loss_error``
        are estimates, and the largest relative one is ``depth_error`` in the statistics.
    """
    found: list[Trajectory] = []
    for blocks in reversed(DEPTHS):  # in flow, the deepest network chooses the nodes for all
        finite = problem.at_depth(blocks)
        if problem.training.mode != "flow":  # every step: strides would end at different ones
            finite = finite.with_values({"training.tolerance": None})
        elif found:
            finite = finite.with_values({"training.nodes": len(found[0].steps)})
        found.insert(0, predict(finite))
    data = _common_levels(found)
    merged, relative = data[-1].copy(), 0.0
    for name in [str(each) for each in merged.data_vars if not str(each).startswith("target_")]:
        values = [each[name].values for each in data]
        if "_error" in name and "loss" in name:
            continue  # of the time step, in flow: the deepest network's, to which that of the depth is added below
        if "loss" not in name:
            value = _extrapolated(values)[0]
            if name.endswith(("_accuracy", "_correct")):
                value = value.clip(0.0, 1.0)  # they are parts and probabilities
            merged[name] = merged[name].copy(data=value)
            continue
        limit, line = _extrapolated([np.log(value) for value in values])
        # the largest nearby: the two cross each other now and then
        change = maximum_filter1d(np.abs(limit - line), _NEARBY, axis=0, mode="nearest")
        place = name.replace("loss", "loss_error")
        before = merged[place].values if place in merged else 0.0
        merged[name] = merged[name].copy(data=np.exp(limit))
        merged[place] = merged[name].copy(data=np.exp(limit) * change + before)
        relative = max(relative, float(np.nanmax(change, initial=0.0)))
    if "level" in merged.dims:
        merged = merged.assign_coords(level=np.linspace(0.0, 1.0, DEPTHS[0] + 1))
    first = [each.outcome.step for each in found if each.outcome.step is not None]
    return dataclasses.replace(
        found[-1],
        data=merged,
        problem=problem,
        outcome=Outcome("diverged", min(first)) if first else Outcome(),
        statistics=_statistics(found, relative),
    )


def _common_levels(found: list[Trajectory]) -> list[Any]:
    """Datasets with the levels at the same relative depths."""
    return [
        each.data.isel(level=slice(None, None, depth // DEPTHS[0])).drop_vars("level")
        for each, depth in zip(found, DEPTHS, strict=True)
    ]


def _extrapolated(values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Values at 1/blocks = 0 of the parabola through three depths that double, and of the line through the last two."""
    first, second, third = values
    line = 2 * third - second
    return line + (line - (2 * second - first)) / 3, line


def _statistics(found: list[Trajectory], error: float) -> dict[str, Any]:
    deepest = dict(found[-1].statistics)
    deepest["residual"] = max(each.statistics["residual"] for each in found)
    deepest["seconds"] = sum(each.statistics["seconds"] for each in found)
    return deepest | {"blocks": list(DEPTHS), "depth_error": error}
