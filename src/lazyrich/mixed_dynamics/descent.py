"""Gradient descent on a factor pair: the same steps for the law and for networks, which differ in where they start."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lazyrich.mixed_dynamics.costs import Cost
from lazyrich.mixed_dynamics.start import Factors

# At every step: A, shape (d_out, d_in), whose memory is used again; and the train error.
State = tuple[np.ndarray, float]


def factor_descent(factors: Factors, cost: Cost, rate: float, decay: float) -> Iterator[State]:
    """States of ``W <- (1 - rate decay) W - rate dC/dW`` on both factors, without end; step 0 is the start.

    Three matrix products a step, in the precision of the factors: no decomposition, no root.
    """
    first, second = (np.array(factor, order="C") for factor in factors)
    keep = 1.0 - rate * decay
    product = np.empty(cost.shape, dtype=first.dtype)
    to_first, to_second = np.empty_like(first), np.empty_like(second)
    scaled = np.empty_like(product)
    while True:
        np.matmul(second, first, out=product)
        error, gradient = cost(product)
        # before others may use the cost, and with it the memory of its gradient
        np.multiply(gradient, rate, out=scaled, casting="same_kind")
        yield product, error
        np.matmul(second.T, scaled, out=to_first)
        np.matmul(scaled, first.T, out=to_second)
        if decay:
            first *= keep
            second *= keep
        first -= to_first
        second -= to_second


def gram_descent(factors: Factors, cost: Cost, rate: float, decay: float) -> Iterator[State]:
    """The same states from ``S = M^T M``, ``M = [W1, W2^T]``.

    ``S <- F S F`` with ``F = (1 - rate decay) - rate [[0, G^T], [G, 0]]``, and A is the lower left block of S.
    The cost of a step does not depend on the width.
    """
    stacked = np.hstack([factors[0], factors[1].T])
    gram = stacked.T @ stacked
    inputs = factors[0].shape[1]
    step = np.zeros_like(gram)
    half = np.empty_like(gram)
    keep = 1.0 - rate * decay
    while True:
        product = gram[inputs:, :inputs]
        error, gradient = cost(product)
        step[inputs:, :inputs] = -rate * gradient
        yield product, error
        step[:inputs, inputs:] = step[inputs:, :inputs].T
        np.fill_diagonal(step, keep)
        np.matmul(step, gram, out=half)
        np.matmul(half, step, out=gram)
