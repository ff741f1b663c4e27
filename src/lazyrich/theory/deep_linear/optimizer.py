"""Linear optimisers: how much of the initial weights and of every past gradient is in the weights at each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Memory:
    """``W(t) = decay[t] W(0) + sum_{s<t} gain[t, s] G(s)`` with G(s) the dyad of step s.

    Attributes
    ----------
    decay : ndarray, shape (steps,)
    gain : ndarray, shape (steps, steps), strictly lower triangular
    """

    decay: np.ndarray
    gain: np.ndarray


def optimizer_memory(rates: np.ndarray, momentum: float, weight_decay: float) -> Memory:
    """The coefficients of stochastic gradient descent with momentum and coupled weight decay.

    Found by running the optimiser's own recursion, ``buffer <- momentum buffer + (weight_decay W - G)``,
    ``W <- W - rate buffer``, on the coefficients (docs/theory/deep-linear.md, "Linear optimisers").

    Parameters
    ----------
    rates : ndarray, shape (steps,)
        eta0 at every step, in units in which the dyad is the step of unit rate.
    momentum, weight_decay : float
    """
    steps = len(rates)
    decay, gain = np.ones(steps), np.zeros((steps, steps))
    buffer_decay, buffer_gain = 0.0, np.zeros(steps)
    for step in range(steps - 1):
        buffer_decay = momentum * buffer_decay + weight_decay * decay[step]
        buffer_gain = momentum * buffer_gain + weight_decay * gain[step]
        buffer_gain[step] -= 1.0
        decay[step + 1] = decay[step] - rates[step] * buffer_decay
        gain[step + 1] = gain[step] - rates[step] * buffer_gain
    return Memory(decay, gain)
