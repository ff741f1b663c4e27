"""A Problem: what is asked, of the theory and of the simulation alike."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import model_validator

from lazyrich.errors import LazyrichError
from lazyrich.problem._model import invalid
from lazyrich.problem.base import AnyProblem
from lazyrich.problem.data import Data, DatasetData
from lazyrich.problem.network import LayerValues, Network, check_layers, per_layer
from lazyrich.problem.training import Training

# Training whose loss exceeds its initial value by this factor has diverged, in theory and in simulation alike.
DIVERGENCE_FACTOR = 1e6


class Problem(AnyProblem):
    """A network, its data and its training; the contents of a problem file.

    Raises
    ------
    LazyrichError
        When a value is wrong or two values contradict each other.

    Examples
    --------
    >>> from lazyrich import GaussianData, Network, Problem, Training
    >>> problem = Problem(
    ...     network=Network(width=300, blocks=1),
    ...     data=GaussianData(dimension=300, samples=450),
    ...     training=Training(steps=40, learning_rate=0.03),
    ... )
    >>> problem.training.richness
    1.0
    """

    curves: ClassVar = ("test_loss", "train_loss")
    title: ClassVar = "deep linear network"
    verbs: ClassVar = "predict, train, compare or transfer"
    methods: ClassVar = ("theory", "training")
    alternatives: ClassVar = (("network.branch", "network.beta0"),)

    network: Network
    data: Data
    training: Training

    @model_validator(mode="after")
    def _consistent(self) -> Problem:
        for key in ("learning_rate", "weight_decay"):
            check_layers(getattr(self.training, key), self.network.blocks, f"training.{key}")
        if self.network.depth_exponent == 1.0 and isinstance(self.training.learning_rate, list):
            raise invalid(
                "lists rates over steps, and depth_exponent = 1 needs one per layer",
                "give one rate, or one per layer",
                "training.learning_rate",
            )
        full_batch = self.training.mode == "full-batch"
        if isinstance(self.data, DatasetData):
            if self.training.mode == "online":
                raise invalid(
                    "'online' is not available for a data set",
                    "use 'full-batch', or describe the data by kind = 'spectrum'",
                    "training.mode",
                )
        elif full_batch and self.data.samples is None:
            raise invalid("missing, and full-batch training needs it", "add samples to [data]", "data.samples")
        elif not full_batch and self.training.mode != "flow" and self.data.samples is not None:
            raise invalid(
                f"has no meaning with training.mode = '{self.training.mode}'",
                "remove it, or set mode = 'full-batch'",
                "data.samples",
            )
        return self

    @property
    def has_test_loss(self) -> bool:
        """Whether there are samples that training does not see."""
        return not isinstance(self.data, DatasetData) or self.data.held_out is not None

    def with_rate(self, rate: float) -> Problem:
        """A copy whose largest learning rate is `rate`; a list over steps or values per layer keep their shape.

        Raises
        ------
        LazyrichError
            When the rate is not a positive number, or all rates of a list are zero.
        """
        given = self.training.learning_rate
        if isinstance(given, list):
            if max(given) == 0:
                raise LazyrichError("training.learning_rate", "is zero at every step", "give a positive rate")
            value: Any = [each * rate / max(given) for each in given]
        elif isinstance(given, LayerValues):
            layers = given.model_dump(exclude_none=True)
            value = {layer: each * rate / max(layers.values()) for layer, each in layers.items()}
        else:
            value = rate
        return self.with_values({"training.learning_rate": value})

    def at_depth(self, blocks: int) -> Problem:
        """A copy with so many blocks, whose branch and rates are plain numbers where depth_exponent is 1."""
        if self.network.depth_exponent != 1.0:
            return self if blocks == self.network.blocks else self.with_values({"network.blocks": blocks})
        rates = per_layer(self.training.learning_rate, 1)  # pyright: ignore[reportArgumentType]  # it is no list
        decays = per_layer(self.training.weight_decay, 1)
        layers = {
            # decay is in units of the rate
            "learning_rate": LayerValues(input=rates[0], block=rates[1] * blocks, output=rates[2]),
            "weight_decay": LayerValues(input=decays[0], block=decays[1] / blocks, output=decays[2]),
        }
        plain = {
            "blocks": blocks,
            "branch": (self.network.beta0 or 1.0) / blocks,
            "beta0": None,
            "depth_exponent": None,
        }
        network = self.network.model_copy(update=plain)
        return type(self)(network=network, data=self.data, training=self.training.model_copy(update=layers))

    def to_train(self) -> Problem:
        """The problem as networks can be trained on it: gradient flow by small steps of descent.

        Raises
        ------
        LazyrichError
            For gradient flow without a number of steps, and for infinite depth.
        """
        if math.isinf(self.network.blocks):
            raise LazyrichError(
                "network.blocks", "an infinitely deep network cannot be trained", "give a finite number of blocks"
            )
        problem = self._in_steps() if self.training.mode == "flow" else self
        return problem.at_depth(self.network.blocks)

    def _in_steps(self) -> Problem:
        training, sampled = self.training, isinstance(self.data, DatasetData) or self.data.samples is not None
        if training.steps is None:
            raise LazyrichError(
                "training.steps",
                "missing, and networks are trained on gradient flow in small steps",
                "add steps to [training]; their learning rate is horizon / steps",
            )
        assert training.horizon is not None  # flow has one
        given, factor = training.learning_rate, training.horizon / training.steps
        rates: Any = given * factor if isinstance(given, float) else None
        if isinstance(given, LayerValues):
            rates = {layer: each * factor for layer, each in given.model_dump(exclude_none=True).items()}
        values = {
            "mode": "full-batch" if sampled else "population",
            "horizon": None,
            "nodes": None,
            "steps": training.steps + 1,
            "learning_rate": rates,
        }
        return self.with_values({f"training.{key}": value for key, value in values.items()})

    def cut_to(self, steps: int) -> Problem:
        """The same training, seen for fewer steps only: schedules stay those of the whole."""
        rates = self.training.learning_rate
        if steps >= self.training.steps:
            return self
        if self.training.schedule != "constant":
            return self  # a schedule is that of the whole training
        values: dict[str, Any] = {"training.steps": steps}
        if isinstance(rates, list):
            values["training.learning_rate"] = rates[:steps]
        return self.with_values(values)


def output_scale(problem: Problem, dimension: int) -> tuple[float, float]:
    """The richness that the dynamics see, and the output scale.

    Returns
    -------
    kappa_squared, gamma_squared : float
        ``kappa = gamma sqrt(D/N)`` and gamma of ``f = w . h / (gamma sqrt(N))``. muP keeps kappa (gamma0) as the width
        grows, NTK keeps gamma. At infinite width one of them is 0 or infinite.
    """
    richness = problem.training.richness**2
    ratio = problem.network.width / dimension
    if problem.training.parametrization == "mup":
        return richness, richness * ratio
    return (0.0 if math.isinf(ratio) else richness / ratio), richness
