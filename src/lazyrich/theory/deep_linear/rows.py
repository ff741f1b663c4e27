"""Index arithmetic of kernels whose rows run over (step, output), and optimiser rows spread over them."""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.optimizer import Memory


class LayerRows:
    """Rows of a layer's optimiser coefficients, one entry per (step, output)."""

    def __init__(self, memory: Memory, outputs: int) -> None:
        self._memory, self._outputs = memory, outputs
        self._decay = np.repeat(memory.decay, outputs)
        self._decays = not np.all(memory.decay == 1.0)

    def initial(self, step: int, factor: float) -> np.ndarray:
        """``factor d(t) d(s)`` for all s, shape (1, n)."""
        return (factor * self._memory.decay[step]) * self._decay[None, :]

    def initial_vector(self, step: int) -> np.ndarray:
        """d(s) for s up to `step`, shape (upto,)."""
        return self._decay[: (step + 1) * self._outputs]

    def gain(self, step: int) -> np.ndarray:
        """m(t, s) for all s, shape (1, n): the same for all pairs of outputs."""
        return np.repeat(self._memory.gain[step], self._outputs)[None, :]

    def gain_by_output(self, step: int) -> np.ndarray:
        """m(t, s) times the identity between outputs, for s before `step`; shape (outputs, past)."""
        return np.kron(self._memory.gain[step, :step], np.eye(self._outputs))

    def initial_by_output(self, step: int, factor: float) -> np.ndarray:
        """``factor d(t) d(s)`` times the identity between outputs, s up to `step`; shape (outputs, upto)."""
        decay = self._memory.decay
        return np.kron(factor * decay[step] * decay[: step + 1], np.eye(self._outputs))


class Rows:
    """Slices of step t: its own rows, those before it, and both."""

    def __init__(self, memories: list[Memory], outputs: int) -> None:
        shared = {id(memory): LayerRows(memory, outputs) for memory in memories}
        self._layers = [shared[id(memory)] for memory in memories]
        self._outputs = outputs

    def layer(self, index: int) -> LayerRows:
        """The optimiser rows of layer `index`, 0 for the input layer."""
        return self._layers[index]

    def slices(self, step: int) -> tuple[slice, slice, slice]:
        """Slices `now`, `past` and `upto`."""
        start, stop = step * self._outputs, (step + 1) * self._outputs
        return slice(start, stop), slice(0, start), slice(0, stop)
