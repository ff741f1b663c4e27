"""Linear residual networks of infinite width, then infinite depth, under any depth rule (alpha, gamma).

At a fixed depth this is the cascade of :mod:`lazyrich.theory.deep_linear` at infinite width. Depth enters it through
three numbers only: 1/L, ``u = L c^2 sigma^2`` (the random part of all blocks) and ``w = L c^2 rate`` (the learned one).
Under a depth rule u goes as ``L^(1 - 2 alpha)`` and w as ``L^(1 - alpha - gamma)``; where both have a limit, the losses
at that limit are a power series in 1/L, which Richardson extrapolation sums (docs/theory/depth.md, "Infinite depth").
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem import LayerValues, Problem
from lazyrich.problem.rules import classify
from lazyrich.theory.deep_linear.predict import predict
from lazyrich.trajectory import Outcome

# A block's rate of this size relative to what it would be is none: its square is below rounding.
_NO_RATE = 1e-9
_ROUNDING = 1e-9


@dataclass(frozen=True)
class DepthLimit:
    """Training curves at several depths and at infinite depth.

    Attributes
    ----------
    depths : tuple of int
    train_loss : ndarray, shape (depths, steps)
        Of the networks whose limit is taken: those of :func:`towards_limit`.
    limit, error : ndarray, shape (steps,)
        The train loss at infinite depth, and how much the last depth changed the extrapolation.
    outcome : Outcome
        Whether training diverged at one of the depths; the curves end before that step.
    """

    depths: tuple[int, ...]
    train_loss: np.ndarray
    limit: np.ndarray
    error: np.ndarray
    outcome: Outcome


def at_depth(problem: Problem, blocks: int, alpha: float, gamma: float) -> Problem:
    """The problem at another depth by the depth rule, its own depth being the base; width infinite.

    With ``m = blocks / base`` the branch is times ``m^-alpha``, and the blocks' rate times ``m^(alpha - gamma)``, with
    weight decay such that a step shrinks as before. The rate is written as what is the same training: a branch times
    ``m^-((alpha + gamma)/2)`` and blocks whose standard deviation is times ``m^((gamma - alpha)/2)``, so that schedules
    and lists of rates stay as they are.

    Raises
    ------
    LazyrichError
        For a network without skips or blocks, or an exponent that is none.
    """
    classify(alpha, gamma)  # refuses what is not an exponent
    growth = blocks / _base(problem)
    branch, std = growth ** (-(alpha + gamma) / 2), growth ** ((gamma - alpha) / 2)
    return _rescaled(problem, blocks, branch, std)


def towards_limit(problem: Problem, blocks: int, alpha: float, gamma: float) -> Problem:
    """A network of this depth whose u and w are those of infinite depth already; width infinite.

    Its losses differ from the limit by a power series in ``1/blocks``, where those of :func:`at_depth` may differ by
    ``blocks^(1 - 2 alpha)``, which is slow near 1/2. For alpha = 1/2 and gamma = 1/2 the two are the same.

    Raises
    ------
    LazyrichError
        Where features or their change grow without bound with depth.
    """
    if classify(alpha, gamma).name == "unstable":
        raise LazyrichError(
            "alpha, gamma",
            f"alpha = {alpha:g}, gamma = {gamma:g} is unstable: there is no limit in depth",
            "choose alpha of at least 1/2 and alpha + gamma of at least 1",
        )
    branch = math.sqrt(_base(problem) / blocks)
    learning = 1.0 if alpha + gamma < 1.0 + _ROUNDING else _NO_RATE
    random = 1.0 if alpha < 0.5 + _ROUNDING else 0.0
    return _rescaled(problem, blocks, branch * learning, random / learning)


def depth_limit(
    problem: Problem,
    alpha: float,
    gamma: float,
    depths: Sequence[int] = (8, 16, 32, 64),
    progress: Callable[[int, int], object] | None = None,
) -> DepthLimit:
    """The training curve at infinite width and depth.

    Parameters
    ----------
    problem : Problem
        At the base depth, with skip 1; any data. Its width is not used.
    alpha, gamma : float
        The depth rule.
    depths : sequence of int
        At least three, rising. Every further one takes an order in 1/depth away from the error.
    progress : callable, optional
        Called with depths done and depths in all.

    Returns
    -------
    DepthLimit

    Raises
    ------
    LazyrichError
        For an unstable rule, a network without skips, or depths that cannot be extrapolated.

    Examples
    --------
    >>> from lazyrich import GaussianData, Network, Problem, Training
    >>> problem = Problem(
    ...     network=Network(width=float("inf"), blocks=1, skip=1.0),
    ...     data=GaussianData(dimension=10),
    ...     training=Training(mode="population", steps=5, learning_rate=0.1),
    ... )
    >>> found = depth_limit(problem, alpha=1.0, gamma=0.0, depths=(4, 8, 16))
    >>> round(float(found.limit[-1]), 4), bool(found.error[-1] < 1e-3)
    (0.03, True)
    """
    depths = tuple(depths)
    if len(depths) < 3 or any(b <= a for a, b in itertools.pairwise(depths)) or depths[0] < 1:
        raise LazyrichError("depths", f"{list(depths)} cannot be extrapolated", "give three or more rising depths")
    curves, outcome = [], Outcome()
    for done, blocks in enumerate(depths):
        predicted = predict(towards_limit(problem, blocks, alpha, gamma))
        curves.append(predicted.train_loss)
        if predicted.outcome.kind == "diverged" and (outcome.step is None or len(curves[-1]) < outcome.step):
            outcome = predicted.outcome
        if progress is not None:
            progress(done + 1, len(depths))
    steps = min(map(len, curves)) if outcome.step is None else outcome.step
    table = np.stack([curve[:steps] for curve in curves])
    limit = extrapolate(depths, table)
    return DepthLimit(depths, table, limit, np.abs(limit - extrapolate(depths[1:], table[1:])), outcome)


def extrapolate(depths: Sequence[int], values: np.ndarray) -> np.ndarray:
    """Values at infinite depth of the polynomial in 1/depth through those at `depths`; shape ``values.shape[1:]``."""
    sizes = np.asarray(depths, dtype=float)
    # Lagrange's weights at 1/L = 0, in a form without differences of small numbers
    weights = [math.prod(size / (size - other) for other in sizes if other != size) for size in sizes]
    return np.tensordot(weights, values, axes=1)


def _base(problem: Problem) -> int:
    network = problem.network
    if network.blocks == 0 or network.skip != 1.0:
        raise LazyrichError(
            "network", "a limit in depth needs blocks and skip 1", "set blocks to the base depth and skip = 1.0"
        )
    return network.blocks


def _rescaled(problem: Problem, blocks: int, branch: float, std: float) -> Problem:
    network = problem.network
    first, middle, last = network.init_stds[0], network.init_stds[1], network.init_stds[-1]
    return problem.with_values(
        {
            "network.width": math.inf,
            "network.blocks": blocks,
            "network.branch": network.branch_multiplier * branch,
            "network.init_std": LayerValues(input=first, block=middle * std, output=last).model_dump(),
        }
    )
