"""A factor in the forward pass, for the places where it cannot be moved into a weight."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Multiplier(nn.Module):
    """Multiplies by a number that the plan sets; 1 until then.

    Put one where a factor is needed that no weight can carry, such as in front of a readout that shares its tensor with
    the embedding, and say so with ``plan(.., multipliers={"readout": "name.of.the.module"})``. The number is a buffer:
    it travels with checkpoints, ``torch.compile`` and export.

    Attributes
    ----------
    factor : Tensor
        A scalar.
    """

    factor: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def forward(self, values: Tensor) -> Tensor:
        """``factor * values``, in the type of `values`."""
        return values * self.factor.to(values.dtype)
