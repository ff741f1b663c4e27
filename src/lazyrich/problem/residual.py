"""The tables of a residual network that is trained: nonlinear blocks, labelled data, SGD or Adam, any depth rule."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from lazyrich.errors import LazyrichError
from lazyrich.problem._model import Model, invalid
from lazyrich.problem.base import AnyProblem
from lazyrich.problem.data import DatasetData
from lazyrich.problem.network import Count, NonNegative, Positive, integral
from lazyrich.problem.parametrization import Growth, Rule, Scheme, rule_for, scheme_named
from lazyrich.problem.training import schedule_factors

# Roles of the weights of a residual network, in the order of the layers.
WEIGHT_ROLES = ("input", "block", "output")
_DEFAULT_SCHEME = "depth-mup"
_MOST_LEVELS = 1_000_000

Fraction = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Power(Model):
    """The nonlinearity ``|z|^power``. Below 1 its slope at 0 would be infinite."""

    power: Annotated[float, Field(ge=1, le=8, allow_inf_nan=False)]


NamedNonlinearity = Literal["relu", "linear", "abs", "tanh", "gelu"]
Nonlinearity = Annotated[
    Annotated[NamedNonlinearity, Tag("str")] | Annotated[Power, Tag("number")],
    Discriminator(lambda value: "number" if isinstance(value, dict | Power) else "str"),
]


class ResidualNetwork(Model):
    """A residual network: input layer, `blocks` blocks, output layer.

    ``x^0 = W_in xi``, ``x^l = x^(l-1) + multiplier m^-alpha B(x^(l-1))``, ``f = (1/n) W_out x^L`` with
    ``B(x) = phi(W N(x))`` or, with two layers a block, ``B(x) = W' phi(W N(x))``.

    Attributes
    ----------
    width, blocks : int
        N and L.
    block_layers : int
        Weight layers per block, 1 or 2.
    nonlinearity : str or {power}
        ``"relu"``, ``"linear"``, ``"abs"``, ``"tanh"``, ``"gelu"``, or ``{ power = p }`` for ``|z|^p``.
    normalisation : str
        N at the entrance of every block (pre-LN): ``"none"``, ``"layer"`` or ``"rms"``, without gains.
    mean_subtraction : str
        The mean over the width is taken away ``"before"`` the nonlinearity, ``"after"`` it, or not: ``"none"``.
    multiplier : float
        a, the factor of every block at the base depth.
    base_width, base_blocks : int, optional
        The tuned sizes: ``n = width / base_width``, ``m = blocks / base_blocks``. Default: the network's own, at which
        every parametrization is plain training.
    """

    kind: Literal["residual"] = "residual"
    width: Count
    blocks: Annotated[Count, Field(le=_MOST_LEVELS)]
    block_layers: Annotated[int, BeforeValidator(integral), Field(ge=1, le=2)] = 1
    nonlinearity: Nonlinearity = "relu"
    normalisation: Literal["none", "layer", "rms"] = "none"
    mean_subtraction: Literal["none", "before", "after"] = "none"
    multiplier: Positive = 1.0
    base_width: Count | None = None
    base_blocks: Count | None = None

    @property
    def growth(self) -> Growth:
        """How much larger the network is than the tuned one: n and m."""
        return Growth.between(
            (self.base_width or self.width, self.width), (self.base_blocks or self.blocks, self.blocks)
        )


class LabelledData(DatasetData):
    """A data set as in :class:`lazyrich.DatasetData`, with a held-out part.

    Attributes
    ----------
    test_fraction : float
        Share of the samples that is held out for the test loss, drawn from ``training.seed``. Inputs and targets are
        scaled before that, all together.
    """

    test_fraction: Fraction = 0.0

    @property
    def held_out(self) -> None:
        """Nothing: residual training holds samples out itself, by its own seed."""


class TeacherData(Model):
    """Gaussian inputs, labelled by a random network: ``label = argmax_c V_c . tanh(U x / sqrt(D))``.

    Attributes
    ----------
    dimension : int
        D, the number of inputs, each with mean 0 and variance 1.
    classes : int
        C, the number of labels.
    samples, test_samples : int
        Training samples, and fresh ones for the test loss.
    hidden : int
        Units of the teacher.
    """

    kind: Literal["teacher"] = "teacher"
    dimension: Count
    classes: Annotated[Count, Field(ge=2)] = 10
    samples: Annotated[Count, Field(ge=2)]
    test_samples: Count = 1000
    hidden: Count = 64


ResidualData = Annotated[
    Annotated[LabelledData, Tag("dataset")] | Annotated[TeacherData, Tag("teacher")],
    Discriminator(lambda value: value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)),
]


class ResidualTraining(Model):
    """How the network is trained.

    Attributes
    ----------
    steps : int
        T: results are given at steps 0 (initialisation) to T - 1.
    learning_rate : float
        The rate at the base size; the parametrization turns it into that of every role.
    batch : int, optional
        Samples per step. Every network passes through the samples in its own order, shuffled again at every pass, and
        the last batch of a pass is full: what is left over is not used in that pass. Default: all samples.
    optimizer : str
        ``"sgd"``, ``"adam"``, ``"adamw"`` or ``"sign"``.
    momentum : float
        Of sgd: ``buffer <- momentum buffer + gradient``.
    beta1, beta2, epsilon : float
        Of adam and adamw, at the base size.
    schedule : str
        As in :class:`lazyrich.Training`: ``"constant"``, ``"cosine"``, ``"linear"``, ``"warmup-cosine"``.
    warmup : int
        Steps of the warm-up.
    weight_decay : float
        At the base size; as in ``torch.optim.SGD`` (in the gradient) and ``torch.optim.AdamW`` (beside it; sign too).
        The parametrization keeps its shrinkage per step. With adam there is no such rule.
    loss : str
        What is minimised and recorded: ``"cross-entropy"`` (nats), or ``"mse"``, the mean over samples and outputs.
    scheme : str
        A named parametrization: ``"sp"``, ``"ntk"``, ``"mup"``, ``"sqrt-depth"``, ``"depth-mup"``, ``"ode"``,
        ``"complete-p"``. Default: ``"depth-mup"``.
    alpha, gamma : float
        Any depth rule instead: branches fall as ``m^-alpha`` and normalised rates of the blocks as ``m^-gamma``.
    train : str
        ``"all"`` layers, or the ``"blocks"`` only.
    precision : str
        ``"float32"`` or ``"float64"``.
    record_every : int, optional
        Losses and accuracies are recorded at every so many steps and at the last. Default: about 20 times in all.
    seed : int
        Of everything random: the teacher, the held-out part, weights and batches.
    """

    steps: Count
    learning_rate: Positive
    batch: Count | None = None
    optimizer: Literal["sgd", "adam", "adamw", "sign"] = "adam"
    momentum: Fraction = 0.0
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: Positive = 1e-8
    schedule: Literal["constant", "cosine", "linear", "warmup-cosine"] = "constant"
    warmup: Count | None = None
    weight_decay: NonNegative = 0.0
    loss: Literal["cross-entropy", "mse"] = "cross-entropy"
    scheme: str | None = None
    alpha: float | None = None
    gamma: float | None = None
    train: Literal["all", "blocks"] = "all"
    precision: Literal["float32", "float64"] = "float32"
    record_every: Count | None = None
    seed: Annotated[int, BeforeValidator(integral), Field(ge=0, lt=2**32)] = 0

    @model_validator(mode="after")
    def _consistent(self) -> ResidualTraining:
        if self.scheme is not None and (self.alpha is not None or self.gamma is not None):
            raise invalid("is given beside alpha and gamma", "keep one of them", "scheme")
        if (self.alpha is None) != (self.gamma is None):
            missing, present = ("gamma", "alpha") if self.gamma is None else ("alpha", "gamma")
            raise invalid(f"missing beside {present}", "add it, or name a scheme", missing)
        self.parametrization  # noqa: B018  # an unknown name, or numbers that are no exponents
        if (self.schedule == "warmup-cosine") != (self.warmup is not None):
            raise invalid("belongs together with schedule = 'warmup-cosine'", "give both or neither", "warmup")
        if self.warmup is not None and self.warmup > self.steps:
            raise invalid(f"{self.warmup} steps are more than the {self.steps} of the training", "shorten it", "warmup")
        if self.momentum and self.optimizer != "sgd":
            raise invalid(f"has no meaning with {self.optimizer}", "use optimizer = 'sgd', or remove it", "momentum")
        if self.weight_decay and self.optimizer == "adam":
            raise invalid("has no rule with adam", "use optimizer = 'adamw'", "weight_decay")
        return self

    @property
    def parametrization(self) -> Scheme:
        """The scheme that is named or given by its exponents."""
        if self.alpha is not None and self.gamma is not None:
            return Scheme(self.alpha, self.gamma)
        return scheme_named(self.scheme or _DEFAULT_SCHEME)

    def factors(self) -> np.ndarray:
        """The schedule: the factor on the rate at every step, shape (steps,)."""
        return schedule_factors(self.schedule, self.steps, self.warmup or 0)

    def recorded(self) -> list[int]:
        """Steps at which losses are recorded, rising, the first and the last among them."""
        every = self.record_every or max(1, self.steps // 20)
        return sorted({*range(0, self.steps, every), self.steps - 1})


class ResidualProblem(AnyProblem):
    """A residual network, its data and its training; the contents of a problem file with ``kind = "residual"``.

    Raises
    ------
    LazyrichError
        When a value is wrong or two values contradict each other.

    Examples
    --------
    >>> from lazyrich.problem.residual import ResidualNetwork, ResidualProblem, ResidualTraining, TeacherData
    >>> problem = ResidualProblem(
    ...     network=ResidualNetwork(width=64, blocks=32, base_blocks=8),
    ...     data=TeacherData(dimension=32, samples=512),
    ...     training=ResidualTraining(steps=100, learning_rate=0.01, batch=64, scheme="depth-mup"),
    ... )
    >>> problem.rules()["block"].multiplier, problem.rules()["block"].learning_rate
    (0.5, 0.5)
    """

    curves: ClassVar = ("train_loss", "test_loss", "train_accuracy", "test_accuracy")
    title: ClassVar = "residual network"
    verbs: ClassVar = "train or transfer"
    methods: ClassVar = ("training",)
    alternatives: ClassVar = (("training.scheme", "training.alpha"), ("training.scheme", "training.gamma"))

    network: ResidualNetwork
    data: ResidualData
    training: ResidualTraining

    @model_validator(mode="after")
    def _consistent(self) -> ResidualProblem:
        data, batch = self.data, self.training.batch
        if isinstance(data, TeacherData):
            check_batch(batch, data.samples)
        elif self.training.loss == "cross-entropy" and data.classes is None:
            raise invalid(
                "missing, and cross-entropy needs them", "list the labels, or set loss = 'mse'", "data.classes"
            )
        return self

    def rules(self) -> dict[str, Rule]:
        """The parametrization's factors on the settings of input, block and output weights."""
        training = self.training
        return {
            role: rule_for(role, training.parametrization, training.optimizer, self.network.growth)
            for role in WEIGHT_ROLES
        }

    @property
    def has_test_loss(self) -> bool:
        """Whether there are samples that training does not see."""
        return isinstance(self.data, TeacherData) or self.data.test_fraction > 0

    def with_rate(self, rate: float) -> ResidualProblem:
        """A copy with another learning rate."""
        return self.with_values({"training.learning_rate": rate})

    def cut_to(self, steps: int) -> ResidualProblem:
        """The same training, seen for fewer steps only: schedules stay those of the whole."""
        if steps >= self.training.steps or self.training.schedule != "constant":
            return self
        return self.with_values({"training.steps": steps})


def check_batch(batch: int | None, samples: int) -> None:
    """Refuse batches that are larger than the data."""
    if batch is not None and batch > samples:
        raise LazyrichError("training.batch", f"{batch} are more than the {samples} training samples", "shorten it")
