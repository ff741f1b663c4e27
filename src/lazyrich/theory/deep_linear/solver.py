"""The one-pass solver: every equation is causal, so each time step is solved exactly once.

Cost O((levels + nodes) T^3), far less of it for long trainings (products.py), memory O((levels + nodes) T^2), whatever
the width, the dimension, the number of samples or of modes. Source: Bordelon & Pehlevan (2025) for the limit;
docs/theory/deep-linear.md for the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from lazyrich.problem import Problem
from lazyrich.problem.problem import DIVERGENCE_FACTOR
from lazyrich.theory.deep_linear.cascade import Cascade
from lazyrich.theory.deep_linear.data_level import DataLevel
from lazyrich.theory.deep_linear.limit import Limit, independent_outputs, limit_mode
from lazyrich.theory.deep_linear.products import SHORT
from lazyrich.theory.deep_linear.rows import Rows


@dataclass(frozen=True)
class Solution:
    """The solved equations.

    Attributes
    ----------
    limit : Limit
    steps : int
        Steps that were solved; fewer than asked for when the loss diverged.
    data : DataLevel
    cascade : Cascade
    """

    limit: Limit
    steps: int
    data: DataLevel
    cascade: Cascade

    @property
    def diverged(self) -> bool:
        """Whether the loss diverged at step `steps`."""
        return self.steps < self.limit.steps


def required_memory(problem: Problem, nodes: int, steps: int | None = None) -> int:
    """Bytes that a prediction will hold at once with so many quadrature nodes; reads no data but its dimensions.

    `steps` is by default the number of steps of the training.
    """
    mode, steps = limit_mode(problem), steps or problem.training.steps
    blocks = problem.network.blocks
    outputs, copies = independent_outputs(problem.data)
    size, kernels = steps * outputs, 2 * (blocks + 1)
    # the solver's matrices, and those of the checks of the solution or, later, of the kernels of the result
    skips = problem.network.skip != 0.0 and blocks > 0
    per_level = 8 + 10 * skips
    data = {"population": 3, "online": 5, "full-batch": 7}[mode] + 1
    matrices = (per_level * (blocks + 1) + data + nodes + max(7, kernels)) * size**2 + 3 * steps**2
    if copies > 1:
        matrices += (kernels + 2) * (copies * size) ** 2
    # spaces of rows in long trainings, a few dozen directions and their images each
    directions = 0 if size <= SHORT else (700 + 900 * skips) * (blocks + 1) + 80 * nodes + 1100
    return 8 * (matrices + directions * size)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def solve(limit: Limit, progress: Callable[[int, int], object] | None = None) -> Solution:
    """Solve the equations of a limit.

    Parameters
    ----------
    limit : Limit
    progress : callable, optional
        Called with steps done and steps in all.

    Returns
    -------
    Solution
        Up to the last step before the loss exceeds 10^6 times its initial value, if it does.
    """
    rows = Rows(limit.memories, limit.outputs)
    cascade = Cascade(limit, rows)
    inputs = cascade.levels[0]
    data = DataLevel(limit, rows, inputs.cov_gg)
    memory = rows.layer(0)
    bound = np.inf
    # Products of one row with a matrix wait for memory: a second BLAS thread only costs its start.
    threads = _blas().limit(limits=1, user_api="blas") if limit.outputs == 1 else nullcontext()
    with threads, np.errstate(over="ignore", invalid="ignore"):
        for step in range(limit.steps):
            now, past, upto = rows.slices(step)
            cascade.backward(step)
            data.advance(step, inputs.dg_da[now, past])
            loss = data.weight_error[now, now].trace()
            if step == 0:
                bound = DIVERGENCE_FACTOR * loss
            if not loss <= bound:
                return Solution(limit, step, data, cascade)
            source = memory.initial(step, upto.stop, limit.variances[0]) * data.data_gradient[now, upto]
            cascade.forward(step, data.memory_row(step), source)
            if progress is not None:
                progress(step + 1, limit.steps)
    return Solution(limit, limit.steps, data, cascade)
