"""One tensor of a plan: its role, where it starts, and what the optimiser is told about it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lazyrich.errors import LazyrichError
from lazyrich.torch.measure import Measured, measure


@dataclass(frozen=True)
class Entry:
    """One tensor of the target model.

    Attributes
    ----------
    name : str
    aliases : tuple of str
        Its other names, where it is shared.
    shape, base_shape : tuple of int
    role : str
        A key of :data:`lazyrich.problem.parametrization.ROLES`.
    pool : str
        What it is measured together with: the same parameter of all blocks.
    depth, width, fan_in, fan_out : float
        Ratios of target to base.
    vector : bool
        Biases and gains: they are not decayed.
    trained : bool
        False for a frozen parameter, which the plan leaves alone.
    start : str
        ``"random"`` or ``"constant"``: what the base model starts it with.
    base_value, base_error : float
        Root mean square, or the constant, of the base model, and its relative standard error.
    init_std, learning_rate : float
        Factors on the base model's values, with everything moved in that can be.
    eps, weight_decay : float or None
        The same; None where the optimiser has no such setting or rule.
    moved : float
        The product of forward factors that `init_std` and the others contain.
    where : str
        Which factors those are, or where the factor of this parameter is instead.
    optimizer : str
        What trains it; differs from the plan's only with Muon.
    """

    name: str
    aliases: tuple[str, ...]
    shape: tuple[int, ...]
    base_shape: tuple[int, ...]
    role: str
    pool: str
    depth: float
    width: float
    fan_in: float
    fan_out: float
    vector: bool
    trained: bool
    start: str
    base_value: float
    base_error: float
    init_std: float
    learning_rate: float
    eps: float | None
    weight_decay: float | None
    moved: float
    where: str
    optimizer: str

    @property
    def value(self) -> float:
        """Root mean square, or the constant, that the target starts with."""
        return self.base_value * self.init_std

    @property
    def decayed(self) -> bool:
        """Whether weight decay applies."""
        return not self.vector and self.weight_decay is not None

    @property
    def unchanged(self) -> bool:
        """Whether shape and all settings are the base model's."""
        factors = (self.init_std, self.learning_rate, self.eps, self.weight_decay)
        return self.shape == self.base_shape and all(factor in (1.0, None) for factor in factors)


def group_settings(entry: Entry, decay: str, *, lr: float, weight_decay: float, eps: float) -> dict[str, Any]:
    """What the optimiser's group of a parameter holds, from the base model's values."""
    settings: dict[str, Any] = {"lr": lr * entry.learning_rate, "weight_decay": 0.0}
    if entry.decayed and weight_decay:
        assert entry.weight_decay is not None
        share = weight_decay * entry.weight_decay
        if decay == "independent":
            share = share / settings["lr"] if settings["lr"] else 0.0
        settings["weight_decay"] = share
    if entry.eps is not None:
        settings["eps"] = eps * entry.eps
    if entry.optimizer == "muon":
        rows, columns = entry.shape
        base_rows, base_columns = entry.base_shape
        # torch.optim.Muon multiplies the rate by this itself; what the base had of it stays in the tuned rate
        own = math.sqrt(max(1.0, rows / columns) / max(1.0, base_rows / base_columns))
        settings["lr"] /= own
        settings["weight_decay"] *= own  # which it does not apply to the decay's rate
        settings["adjust_lr_fn"] = "original"
    return settings


def pooled(pairs: Iterable[tuple[Entry, Tensor]]) -> dict[str, Measured]:
    """What the tensors of each pool have together."""
    pools: dict[str, list[Tensor]] = {}
    for entry, parameter in pairs:
        if parameter.is_meta:
            raise LazyrichError(entry.name, "is on the meta device", "materialise the model and run its own init first")
        pools.setdefault(entry.pool, []).append(parameter)
    return {pool: measure(tensors) for pool, tensors in pools.items()}
