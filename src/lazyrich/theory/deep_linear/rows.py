"""Index arithmetic of kernels whose rows run over (step, output), and optimiser rows spread over them."""

from __future__ import annotations

import numpy as np

from lazyrich.theory.deep_linear.optimizer import Memory


class LayerRows:
    """Rows of a layer's optimiser coefficients, one entry per (step, output).

    Attributes
    ----------
    forgets : bool
        Whether the initial weights decay.
    """

    def __init__(self, memory: Memory, outputs: int) -> None:
        self._memory, self._outputs = memory, outputs
        self._decay = np.repeat(memory.decay, outputs)
        self.forgets = bool(np.any(memory.decay != 1.0))

    def initial(self, step: int, stop: int, factor: float) -> np.ndarray | float:
        """``factor d(t) d(s)`` over the first `stop` columns; a plain number without weight decay."""
        return (factor * self._memory.decay[step]) * self._decay[:stop] if self.forgets else factor

    def decayed(self, rows: np.ndarray) -> np.ndarray:
        """Rows times d(s)."""
        return rows * self._decay[: rows.shape[-1]] if self.forgets else rows

    def gain(self, step: int, stop: int) -> np.ndarray:
        """m(t, s) over the first `stop` columns: the same for all pairs of outputs."""
        row = self._memory.gain[step]
        return row[:stop] if self._outputs == 1 else np.repeat(row[: stop // self._outputs], self._outputs)

    def gain_by_output(self, step: int) -> np.ndarray:
        """m(t, s) times the identity between outputs, s up to `step`; shape (outputs, upto)."""
        return self._by_output(self._memory.gain[step, : step + 1])

    def initial_by_output(self, step: int, factor: float) -> np.ndarray:
        """``factor d(t) d(s)`` times the identity between outputs, s up to `step`; shape (outputs, upto)."""
        decay = self._memory.decay
        return self._by_output(factor * decay[step] * decay[: step + 1])

    def _by_output(self, row: np.ndarray) -> np.ndarray:
        return row[None, :] if self._outputs == 1 else np.kron(row, np.eye(self._outputs))


class Rows:
    """Slices of step t: its own rows, those before it, and both."""

    def __init__(self, memories: list[Memory], outputs: int) -> None:
        shared = {id(memory): LayerRows(memory, outputs) for memory in memories}
        self._layers = [shared[id(memory)] for memory in memories]
        self._outputs = outputs
        self._step, self._slices = -1, (slice(0), slice(0), slice(0))

    def layer(self, index: int) -> LayerRows:
        """The optimiser rows of layer `index`, 0 for the input layer."""
        return self._layers[index]

    def slices(self, step: int) -> tuple[slice, slice, slice]:
        """Slices `now`, `past` and `upto`."""
        if step != self._step:  # asked for many times a step
            start, stop = step * self._outputs, (step + 1) * self._outputs
            self._step, self._slices = step, (slice(start, stop), slice(0, start), slice(0, stop))
        return self._slices
