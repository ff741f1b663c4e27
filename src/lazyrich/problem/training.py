"""The ``[training]`` table, and the rates that it means at every step and layer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
        ``"full-batch"`` (the same `samples` at every step), ``"online"`` (a fresh batch at every step),
        ``"population"`` (infinite data), or ``"flow"`` (gradient flow, on `samples` or, without, on infinite data).
    steps : int
        T: results are given at steps 0 (initialisation) to T - 1. In flow only where networks are trained: so many
        steps of gradient descent, of rate ``horizon / steps``, stand for it.
    horizon : float
        How long flow lasts, in units of rate x steps: the learning rate, 1 unless given, multiplies it.
    nodes : int
        Times from 0 to `horizon` at which flow is solved, an odd number; default: as many as 0.1% of the loss takes.
    tolerance : float
        Relative error that predicted losses may have. Where it is cheaper, many steps are then taken together, and
        results are given at the ends of such strides (docs/long-horizons.md); without, every step is solved. In flow
        0.001 unless given. Trained networks do not depend on it.
    learning_rate : float, list over steps, or {input, block, output}
        eta0; the rate on the raw weights is ``eta0 gamma^2 D``.
    schedule : str
        Factor on the rate over steps: ``"constant"``; ``"cosine"`` and ``"linear"``, both to 0 after the last step;
        ``"warmup-cosine"``, linear over `warmup` steps, then cosine.
    batch : int
        B, in online mode only.
    momentum : float
        ``buffer <- momentum buffer + (gradient + weight_decay W)``, ``W <- W - rate buffer``. Its flow, the limit of
        small rates, is that of gradient descent ``1/(1 - momentum)`` times as fast.
    weight_decay : float or {input, block, output}
        Coupled decay as in ``torch.optim.SGD``, in units of eta0.
    parametrization : str
        ``"mup"``: ``gamma = richness sqrt(N/D)``; ``"ntk"``: ``gamma = richness``.
    richness : float
        gamma0: small is lazy, large is rich.
    seed : int
        Seed of the trained networks.
    """

    mode: Literal["full-batch", "online", "population", "flow"] = "full-batch"
    steps: Count = None  # pyright: ignore[reportAssignmentType]  # absent in flow only, where theory needs none
    horizon: Positive | None = None
    nodes: Annotated[Count, Field(ge=9)] | None = None
    tolerance: Annotated[float, Field(gt=0, lt=1)] | None = None
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

    @model_validator(mode="before")
    @classmethod
    def _own_units(cls, values: Any) -> Any:
        """In flow the rate only sets the unit of time."""
        flows = isinstance(values, dict) and values.get("mode") == "flow"
        return {"learning_rate": 1.0, **values} if flows else values

    @model_validator(mode="after")
    def _consistent(self) -> Training:
        self._check_flow()
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

    def _check_flow(self) -> None:
        if self.mode != "flow":
            if self.steps is None:
                raise invalid("missing", "add it", "steps")
            for key in ("horizon", "nodes"):
                if getattr(self, key) is not None:
                    raise invalid(f"has no meaning with mode = '{self.mode}'", "remove it, or set mode = 'flow'", key)
            return
        if self.horizon is None:
            raise invalid("missing, and gradient flow needs it", "add horizon to [training]", "horizon")
        if self.nodes is not None and self.nodes % 2 == 0:
            what = "an odd number is needed, so that the error can be told from every other node"
            raise invalid(f"{what} (it is {self.nodes})", f"give {self.nodes + 1}", "nodes")
        if self.schedule != "constant":
            raise invalid("has no meaning with mode = 'flow'", "remove it; horizon says how long", "schedule")
        if isinstance(self.learning_rate, list):
            raise invalid("lists rates over steps and flow has none", "give one rate", "learning_rate")

    def rates(self, blocks: int) -> np.ndarray:
        """eta0 at every layer and step, shape (blocks + 2, steps); input layer first, output layer last.

        In flow there is one step: the rates hold at all times.
        """
        if isinstance(self.learning_rate, list):
            return np.tile(np.asarray(self.learning_rate, dtype=float), (blocks + 2, 1))
        layers = np.asarray(per_layer(self.learning_rate, blocks))
        return layers[:, None] * schedule_factors(self.schedule, self.steps or 1, self.warmup or 0)

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
