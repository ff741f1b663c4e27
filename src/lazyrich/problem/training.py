"""The ``[training]`` table, and the rates that it means at every step and layer."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from lazyrich.problem._model import Model, invalid
from lazyrich.problem.network import (
    Count,
    LayerValues,
    NonNegative,
    NonNegativeOrLayers,
    Positive,
    integral,
    kind_of_value,
    listed,
    per_layer,
)


class Training(Model):
    """How the network is trained.

    Attributes
    ----------
    mode : str
        ``"full-batch"`` (the same `samples` at every step), ``"online"`` (a fresh batch at every step) or
        ``"population"`` (infinite data).
    steps : int
        T: results are given at steps 0 (initialisation) to T - 1.
    learning_rate : float, list over steps, or {input, block, output}
        eta0; the rate on the raw weights is ``eta0 gamma^2 D``.
    schedule : str
        Factor on the rate over steps: ``"constant"``; ``"cosine"`` and ``"linear"``, both to 0 after the last step;
        ``"warmup-cosine"``, linear over `warmup` steps, then cosine.
    batch : int
        B, in online mode only.
    momentum : float
        ``buffer <- momentum buffer + (gradient + weight_decay W)``, ``W <- W - rate buffer``.
    weight_decay : float or {input, block, output}
        Coupled decay as in ``torch.optim.SGD``, in units of eta0.
    parametrization : str
        ``"mup"``: ``gamma = richness sqrt(N/D)``; ``"ntk"``: ``gamma = richness``.
    richness : float
        gamma0: small is lazy, large is rich.
    seed : int
        Seed of the trained networks.
    """

    mode: Literal["full-batch", "online", "population"] = "full-batch"
    steps: Count
    learning_rate: Annotated[
        Annotated[Positive, Tag("number")]
        | Annotated[Annotated[list[NonNegative], BeforeValidator(listed)], Tag("list")]
        | Annotated[LayerValues, Tag("layers")],
        Discriminator(kind_of_value),
    ]
    schedule: Literal["constant", "cosine", "linear", "warmup-cosine"] = "constant"
    warmup: Count | None = None
    batch: Count | None = None
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    weight_decay: NonNegativeOrLayers = 0.0
    parametrization: Literal["mup", "ntk"] = "mup"
    richness: Positive = 1.0
    seed: Annotated[int, BeforeValidator(integral), Field(ge=0, lt=2**32)] = 0

    @model_validator(mode="after")
    def _consistent(self) -> Training:
        rate = self.learning_rate
        if isinstance(rate, list):
            if len(rate) != self.steps:
                raise invalid(
                    f"lists {len(rate)} rates for {self.steps} steps", "give one rate per step", "learning_rate"
                )
            if self.schedule != "constant":
                raise invalid("is given beside a list of rates", "remove schedule, or give one rate", "schedule")
        if isinstance(rate, LayerValues) and not (rate.input or rate.block or rate.output):
            raise invalid("is zero in every layer", "give at least one layer a positive rate", "learning_rate")
        if (self.schedule == "warmup-cosine") != (self.warmup is not None):
            raise invalid("belongs together with schedule = 'warmup-cosine'", "give both or neither", "warmup")
        if self.warmup is not None and self.warmup > self.steps:
            raise invalid(f"{self.warmup} steps are more than the {self.steps} of the training", "shorten it", "warmup")
        if (self.mode == "online") != (self.batch is not None):
            if self.batch is None:
                raise invalid("missing, and online training needs it", "add batch to [training]", "batch")
            raise invalid(f"has no meaning with mode = '{self.mode}'", "remove it, or set mode = 'online'", "batch")
        return self

    def rates(self, blocks: int) -> np.ndarray:
        """eta0 at every layer and step, shape (blocks + 2, steps); input layer first, output layer last."""
        if isinstance(self.learning_rate, list):
            return np.tile(np.asarray(self.learning_rate, dtype=float), (blocks + 2, 1))
        layers = np.asarray(per_layer(self.learning_rate, blocks))
        return layers[:, None] * schedule_factors(self.schedule, self.steps, self.warmup or 0)

    def weight_decays(self, blocks: int) -> list[float]:
        """Decay at every layer, length ``blocks + 2``."""
        return per_layer(self.weight_decay, blocks)


def schedule_factors(name: str, steps: int, warmup: int) -> np.ndarray:
    """The factor on the rate at steps 0 to steps - 1."""
    step = np.arange(steps, dtype=float)
    if name == "constant":
        return np.ones(steps)
    if name == "linear":
        return 1.0 - step / steps
    progress = np.clip(step - warmup, 0.0, None) / max(steps - warmup, 1)
    cosine = 0.5 * (1.0 + np.cos(np.pi * progress))
    return np.where(step < warmup, (step + 1.0) / max(warmup, 1), cosine)
