"""Measured scales of tensors, whole or sharded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_UNIFORM = math.sqrt(9 / 5 - 1)


@dataclass(frozen=True)
class Measured:
    """The scale of some tensors together.

    Attributes
    ----------
    value : float
        The constant, or the root mean square.
    constant : bool
        Whether all entries are equal.
    error : float
        Relative standard error of the root mean square, from the fourth moment; 0 for a constant.
    count : int
        Number of entries.
    """

    value: float
    constant: bool
    error: float
    count: int


def measure(tensors: Sequence[Tensor]) -> Measured:
    """Measure tensors together, in float32 or more; sharded tensors over all their shards.

    Parameters
    ----------
    tensors : sequence of Tensor
        Of any shapes; not on the meta device.
    """
    count, sums, low, high = 0, torch.zeros(2, dtype=torch.float64), math.inf, -math.inf
    with torch.no_grad():
        for tensor in tensors:
            if not tensor.numel():
                continue
            values = tensor.detach().float()
            squares = values.square()
            parts = (squares.sum(), squares.square().sum(), values.amin(), values.amax())
            second, fourth, least, most = (float(whole(part)) for part in parts)
            sums += torch.tensor([second, fourth], dtype=torch.float64)
            low, high, count = min(low, least), max(high, most), count + tensor.numel()
    if low == high or not count:
        return Measured(low if count else 0.0, True, 0.0, count)
    second, fourth = (float(part) / count for part in sums)
    # the variance of a mean square, per square of it; the root has half the relative error. A few entries may happen to
    # be alike: at least that of a uniform distribution
    spread = max(math.sqrt(max(fourth / second**2 - 1.0, 0.0)), _UNIFORM)
    return Measured(math.sqrt(second), False, 0.5 * spread / math.sqrt(count), count)


def whole(value: Tensor) -> Tensor:
    """A number over all shards."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value  # pyright: ignore[reportAttributeAccessIssue]
