"""Many steps of gradient descent at once, by a stabilised explicit method (docs/theory/long-horizons.md, "Strides").

A stride of m steps takes a few evaluations of the gradient, of the order of the square root of m at high rates and two
at low ones. An explicit method is one more linear optimiser: only its coefficients enter the equations.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np

from lazyrich.problem import Problem
from lazyrich.theory.deep_linear.optimizer import Memory
from lazyrich.theory.deep_linear.quadrature import DataMeasure

# The usual damping (Sommeijer, Shampine & Verwer 1998): modes at the edge shrink by a twentieth a stride.
_DAMPING = 2 / 13
# Shorter strides take as many evaluations as steps, or their halves do.
_SHORTEST = 4


@dataclass(frozen=True)
class Strides:
    """A training of some steps in strides, each in `parts` equal parts.

    Attributes
    ----------
    ends : ndarray of int, shape (n,)
        The steps at which strides end, from 0 to the last step; lengths other than 1 are even.
    edge : float
        Largest rate times the largest eigenvalue for which a stride is stable.
    parts : int
        1 or 2. A single step is not divided.
    factors : ndarray, shape (steps,)
        The rate at every step, in units of the largest.
    """

    ends: np.ndarray
    edge: float
    parts: int
    factors: np.ndarray

    @cached_property
    def pieces(self) -> list[np.ndarray]:
        """Coefficients of every part of a stride, each of shape (evaluations, evaluations)."""
        found = []
        for start, stop in itertools.pairwise(self.ends.tolist()):
            parts = self.parts if stop - start > 1 else 1
            length, edge = (stop - start) / parts, self.edge * float(self.factors[start:stop].max())
            found += [stages(length, evaluations(length, edge))] * parts
        return found

    @property
    def nodes(self) -> int:
        """At how many places the equations are solved."""
        return 1 + sum(len(piece) for piece in self.pieces)

    @property
    def steps(self) -> np.ndarray:
        """The steps at which parts end, `ends` among them."""
        if self.parts == 1:
            return self.ends
        return np.union1d(self.ends, (self.ends[1:] + self.ends[:-1]) // 2)

    @property
    def kept(self) -> np.ndarray:
        """The nodes at which parts end."""
        return np.cumsum([0, *(len(piece) for piece in self.pieces)])

    @cached_property
    def _factors_at_nodes(self) -> np.ndarray:
        """The rate at every node, in units of the largest: row sums are the steps that a stage has done."""
        done = [step + piece.sum(axis=1) for step, piece in zip(self.steps[:-1], self.pieces, strict=True)]
        return np.interp(np.concatenate([[0.0], *done]), np.arange(len(self.factors)), self.factors)

    def memory(self, rate: float, weight_decay: float) -> Memory:
        """Coefficients of gradient descent with decay, as :func:`~.optimizer.optimizer_memory` gives them for steps.

        Parameters
        ----------
        rate : float
            The largest.
        weight_decay : float
        """
        decay, gain = np.ones(self.nodes), np.zeros((self.nodes, self.nodes))
        start = 0
        for piece in self.pieces:
            stop = start + len(piece)
            weights = rate * piece * self._factors_at_nodes[start:stop]
            gain[start + 1 : stop + 1], decay[start + 1 : stop + 1] = gain[start], decay[start]
            gain[start + 1 : stop + 1, start:stop] += weights
            if weight_decay > 0:
                for count, row in enumerate(weight_decay * weights, 1):
                    done, answered = slice(start, start + count), start + count
                    gain[answered] -= row[:count] @ gain[done]
                    decay[answered] -= row[:count] @ decay[done]
            start = stop
        return Memory(decay, gain)


def stride_ends(steps: int, growth: float, at: tuple[int, ...] = ()) -> np.ndarray:
    """Ends of strides whose length is `growth` times the steps before them, single steps at first; `at` included."""
    ends = [0]
    for stop in sorted({*at, steps - 1}):
        while ends[-1] < stop:
            length = min(round(growth * ends[-1]), stop - ends[-1]) // 2 * 2
            ends.append(ends[-1] + (length if length >= _SHORTEST else 1))
    return np.array(ends)


@cache
def _chebyshev(count: int) -> tuple[float, np.ndarray]:
    """The point ``w0 = 1 + damping/count^2``, and T_j, T_j', T_j'' there for j up to `count`, shape (3, count + 1)."""
    point = 1.0 + _DAMPING / count**2
    values = np.zeros((3, count + 1))
    values[:, :2] = [[1.0, point], [0.0, 1.0], [0.0, 0.0]]
    for order in range(2, count + 1):
        values[:, order] = 2 * point * values[:, order - 1] - values[:, order - 2]
        values[1, order] += 2 * values[0, order - 1]
        values[2, order] += 4 * values[1, order - 1]
    return point, values


def _slope(length: float, count: int) -> float:
    """w1 of a stride: what the argument of the polynomials changes by per unit of rate x eigenvalue."""
    _, (_, first, second) = _chebyshev(count)
    return (length - 1.0) * first[count] / second[count]


@lru_cache(maxsize=2**12)
def evaluations(length: float, edge: float) -> int:
    """Evaluations of the gradient that a stride of `length` steps needs to be stable up to `edge`."""
    if length == 1:
        return 1
    count = 2
    while _slope(length, count) * edge > 1.0 + _chebyshev(count)[0]:
        count += 1
    return count


@lru_cache(maxsize=2**10)
def stages(length: float, count: int) -> np.ndarray:
    """Coefficients of a stride: ``W_j = W_0 + rate sum_k a_jk G(W_k)``, j = 1 .. count, the last its end.

    Where G is linear, W_j is a polynomial P_j of ``z = rate x (its slope)``. Gradient descent has ``(1 + z)^m``; here
    ``P_j(z) = 1 - b_j T_j(w0) + b_j T_j(w0 + w1 z)`` agrees with it to second order at ``m = 1 + w1 T_j''/T_j'``, the
    first of them with a single step exactly, the last with `length` of them, and is at most 1 where
    ``|w0 + w1 z| <= 1``: the Runge-Kutta-Chebyshev method (van der Houwen & Sommeijer 1980; Sommeijer, Shampine &
    Verwer 1998) with the condition of second order for steps in place of that for a differential equation.

    Returns
    -------
    ndarray, shape (count, count)
        Lower triangular.
    """
    if count == 1:
        return np.ones((1, 1))
    point, (value, first, second) = _chebyshev(count)
    slope = _slope(length, count)
    scale = np.ones(count + 1)  # b_j; that of j = 0 is free
    scale[1:] = (slope * second[1:] + first[1:]) / (slope * first[1:] ** 2)
    offset = 1.0 - scale * value
    # T_j(w0 + w1 z) applied to W_0: its coefficients of the gradients, by the three-term recursion
    turned = np.zeros((count + 1, count))
    turned[1, 0] = slope
    for order in range(2, count + 1):
        turned[order] = 2 * point * turned[order - 1] - turned[order - 2]
        # z (T_{j-1} W_0) = (z W_{j-1} - offset_{j-1} z W_0) / b_{j-1}, and z W_k is the gradient at W_k
        turned[order, order - 1] += 2 * slope / scale[order - 1]
        turned[order, 0] -= 2 * slope * offset[order - 1] / scale[order - 1]
    return (scale[:, None] * turned)[1:]


def initial_edge(problem: Problem, measure: DataMeasure, dimension: int) -> float:
    """Rate times the largest eigenvalue of the initial tangent kernel, as large networks have it.

    Seen from the data that kernel is ``r_0 + W_0^T (r_1 + W_1^T (r_2 + ..) W_1) W_0`` with r_l what learning layer l
    adds on average. Averages add up; the relative variance of the spectrum of ``W^T T W`` is that of T plus the ratio
    of the dimensions before and after W (free multiplicative convolution), and samples add theirs. The largest
    eigenvalue is taken to be that of a product of Wishart matrices of these variances c, ``min_z (1 + z)/z prod (1 + c
    z)``, and that of r_0 on the samples besides. Data have their effective dimension, trace over largest eigenvalue, as
    in Gordon's bound of the norm of a Gaussian matrix.
    """
    network, training = problem.network, problem.training
    rates, variances = training.rates(network.blocks).max(axis=1), [std**2 for std in network.init_stds]
    modes = measure.modes
    largest = float(modes.points.max())
    effective = dimension * float(modes.weights @ modes.points) / largest
    samples = problem.data.samples if training.mode == "full-batch" and problem.data.kind != "dataset" else None
    by_width = effective / network.width
    squared_branch, squared_skip = network.branch_multiplier**2, network.skip**2
    gains = [squared_skip + squared_branch * variance for variance in variances[1:-1]]
    through = math.prod(gains)
    mean, spread = rates[-1] * variances[0] * through, 0.0  # of the part behind W_0
    for rate, gain in zip(rates[-2:0:-1], gains[::-1], strict=True):
        # (skip + branch W)^T (skip + branch W), whose skip does not fluctuate
        spread += by_width * (1 - (squared_skip / gain) ** 2)
        learned = rate * squared_branch * variances[0] * variances[-1] * through / gain
        spread, mean = spread * (mean / (mean + learned)) ** 2, mean + learned
    point = np.geomspace(1e-3, 1e3, 400)
    on_samples = (1 + point) / point * (1 + effective / (samples or math.inf) * point)
    edge = rates[0] * variances[-1] * through * on_samples.min()
    edge += mean * np.min(on_samples * (1 + by_width * point) * (1 + spread * point))
    return float(edge) * largest
