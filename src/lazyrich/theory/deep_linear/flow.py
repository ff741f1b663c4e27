"""Gradient flow to long times: the equations on an implicit grid of times, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lazyrich.problem.problem import DIVERGENCE_FACTOR
from lazyrich.theory.deep_linear.flow_cascade import FlowCascade
from lazyrich.theory.deep_linear.flow_data import FlowData
from lazyrich.theory.deep_linear.limit import Limit

_SETTLED = 1e-9
_MOST_SWEEPS = 200


@dataclass(frozen=True)
class FlowSolution:
    limit: Limit
    steps: int
    data: FlowData
    cascade: FlowCascade
    sweeps: list


def solve_flow(limit: Limit, progress: Callable[[int, int], object] | None = None, tol=_SETTLED) -> FlowSolution:
    cascade, data = FlowCascade(limit), FlowData(limit)
    counts = []
    for node in range(limit.steps):
        now, upto = cascade.slices(node)
        if node:
            cascade.guess(node)
        before = None
        for sweep in range(_MOST_SWEEPS):
            cascade.backward(node)
            inputs = cascade.levels[0]
            data.advance(node, inputs.dg_da[now, upto], inputs.cov_gg[upto, upto])
            source = cascade.initial(0, node, limit.variances[0]) * data.data_gradient[now, upto]
            cascade.forward(node, data.memory_row(node), source)
            state = np.concatenate([data.weight_error[now, upto].ravel() / np.abs(data.weight_error[now, upto]).max(), (data.data_gradient[now,upto] / np.abs(data.data_gradient[now,upto]).max()).ravel(),
              (inputs.cov_gg[now, upto] / inputs.cov_gg[now, upto].max()).ravel()])
            if before is not None and np.abs(state - before).max() < tol:
                break
            if node == 0: break
            before = state
        counts.append(sweep + 1)
    return FlowSolution(limit, limit.steps, data, cascade, counts)
