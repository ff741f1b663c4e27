"""Matrix problems: a two-layer linear network ``A = W2 W1`` that learns a matrix; and phase diagrams over them."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, PlainSerializer, Tag, model_validator

from lazyrich.problem._model import Model, invalid
from lazyrich.problem.base import AnyProblem
from lazyrich.problem.network import (
    Count,
    Finite,
    LayerValues,
    NonNegative,
    Positive,
    PositiveOrLayers,
    integral,
    listed,
    width_or_inf,
)

Path = Annotated[str, Field(min_length=1)]


class Target(Model):
    """The matrix to learn: random of low rank, with given singular values, from a file, or built in.

    Attributes
    ----------
    kind : str, optional
        ``"low-rank"``, ``"singular-values"``, ``"file"`` or ``"built-in"``; follows from the other keys.
    rank : int
        Of a random matrix ``A* = C D^T``; entries of C and D are normal with variance ``rank^(-1/2)``.
    singular_values : list of float
        Of a matrix with random singular vectors.
    path : str
        A CSV, NPZ or Parquet file with the matrix; empty cells are unknown (matrix completion only).
    name : str
        ``"digits"`` (1797 images as rows, 64 pixels) or ``"flower"`` (a photograph of 427 by 640 pixels, grey).
    noise : float
        Standard deviation of the normal noise that is added to what the network is trained on.
    """

    kind: Literal["low-rank", "singular-values", "file", "built-in"] | None = None
    rank: Count | None = None
    singular_values: Annotated[list[NonNegative], BeforeValidator(listed), Field(min_length=1)] | None = None
    path: Path | None = None
    name: Literal["digits", "flower"] | None = None
    noise: NonNegative = 0.0

    @model_validator(mode="after")
    def _one_kind(self) -> Target:
        kinds = {"rank": "low-rank", "singular_values": "singular-values", "path": "file", "name": "built-in"}
        given = [key for key in kinds if getattr(self, key) is not None]
        if len(given) != 1:
            what = f"{' and '.join(given)} are given" if given else "does not say which matrix"
            raise invalid(what, f"give one of {', '.join(kinds)}")
        if self.kind is not None and self.kind != kinds[given[0]]:
            raise invalid(
                f"{self.kind!r} does not go with {given[0]}", f"remove it, or set it to '{kinds[given[0]]}'", "kind"
            )
        if self.singular_values is not None and max(self.singular_values) == 0:
            raise invalid("all are zero", "give at least one positive value", "singular_values")
        return self


class Matrix(Model):
    """The ``[matrix]`` table: what is learned, and from what.

    Attributes
    ----------
    shape : (int, int)
        (d_out, d_in). A file or a built-in matrix has its own.
    target : Target
        A*. Not for a regression on files.
    cost : str
        ``"factorization"``: ``1/2 |A - T|^2`` with T the target and its noise; ``"completion"``: the same over the
        observed entries; ``"sensing"``: ``1/(2m) sum (<X_i, A> - y_i)^2`` with normal X_i; ``"regression"``:
        ``1/(2n) |A X - Y|^2``; ``"custom"``: a function given from Python.
    observed : float
        Fraction of the entries that are observed (completion).
    measurements : int
        m (sensing).
    samples : int
        n, of normal inputs (regression).
    inputs, outputs : str
        Files with the inputs (n x d_in) and outputs (n x d_out) of a regression, instead of target and samples.
    """

    shape: Annotated[list[Count], BeforeValidator(listed), Field(min_length=2, max_length=2)] | None = None
    target: Target | None = None
    cost: Literal["factorization", "completion", "sensing", "regression", "custom"] = "factorization"
    observed: Annotated[float, Field(gt=0, le=1)] | None = None
    measurements: Count | None = None
    samples: Count | None = None
    inputs: Path | None = None
    outputs: Path | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Matrix:
        needs = {"observed": "completion", "measurements": "sensing", "samples": "regression", "inputs": "regression"}
        for key, cost in needs.items():
            if getattr(self, key) is not None and self.cost != cost:
                raise invalid(f"has no meaning with cost = '{self.cost}'", f"remove it, or set cost = '{cost}'", key)
        if (self.inputs is None) != (self.outputs is None):
            raise invalid("inputs and outputs belong together", "give both files or neither", "outputs")
        if self.inputs is not None:
            for key in ("target", "shape", "samples"):
                if getattr(self, key) is not None:
                    raise invalid("is given beside files of inputs and outputs", "remove it", key)
            return self
        if self.target is None:
            raise invalid("missing", "say what is learned, e.g. target = { rank = 5 }", "target")
        if self.cost == "sensing" and self.measurements is None:
            raise invalid("missing, and sensing needs it", "say how many, measurements = ..", "measurements")
        if self.cost == "regression" and self.samples is None:
            raise invalid("missing, and regression needs it", "add samples, or inputs and outputs files", "samples")
        if self.cost == "completion" and self.observed is None and self.target.path is None:
            raise invalid("missing, and completion needs it", "say which fraction is observed", "observed")
        own = self.target.path is not None or self.target.name is not None
        if own and self.shape is not None:
            raise invalid("is given beside a matrix that has its own", "remove it", "shape")
        if not own and self.shape is None:
            raise invalid("missing", "add shape = [d_out, d_in]", "shape")
        if self.shape is not None:
            modes = self.target.rank or len(self.target.singular_values or ())
            if modes > min(self.shape):
                key = "target.rank" if self.target.rank else "target.singular_values"
                what = f"{modes} is above the smaller dimension {min(self.shape)}"
                raise invalid(what, "give at most one singular value per dimension", key)
        return self


class _Exponent(Model):
    """A power of the larger dimension."""

    exponent: Finite


class _Relative(Model):
    """A fraction of the largest singular value of the target."""

    relative: Positive


def _kind_of_setting(value: Any) -> str:
    if isinstance(value, dict | LayerValues | _Exponent | _Relative):
        keys = value if isinstance(value, dict) else type(value).model_fields
        return "a power" if "exponent" in keys else "a fraction" if "relative" in keys else "layers"
    return "number"


Variance = Annotated[
    Annotated[Positive, Tag("number")] | Annotated[LayerValues, Tag("layers")] | Annotated[_Exponent, Tag("a power")],
    Discriminator(_kind_of_setting),
]
Threshold = Annotated[
    Annotated[Positive, Tag("number")] | Annotated[_Relative, Tag("a fraction")], Discriminator(_kind_of_setting)
]


class TwoLayerNetwork(Model):
    """The ``[network]`` table of a matrix problem: ``A = W2 W1``, all entries normal and independent.

    Attributes
    ----------
    width : int or inf
        w, the number of hidden units; ``inf`` at a fixed threshold is the limit in which ``A(0) = 0``.
    exponent : float
        Instead of `width`: ``w = d^exponent`` with d the larger dimension.
    variance : float, {input, output} or {exponent}
        sigma^2 of the entries of both layers, of each, or as a power of d.
    threshold : float or {relative}
        Instead of `variance`: ``s0 = sigma^2 w``, or s0 in units of the target's largest singular value.
    """

    width: (
        Annotated[int | float, BeforeValidator(width_or_inf), PlainSerializer(lambda v: v, return_type=Any)] | None
    ) = None
    exponent: Annotated[Finite, Field(ge=-10, le=10)] | None = None
    variance: Variance | None = None
    threshold: Threshold | None = None

    @model_validator(mode="after")
    def _consistent(self) -> TwoLayerNetwork:
        for one, other in (("width", "exponent"), ("variance", "threshold")):
            if (getattr(self, one) is None) == (getattr(self, other) is None):
                what = f"{one} or {other} is missing" if getattr(self, one) is None else f"{one} is given too"
                raise invalid(what, f"give exactly one of {one} and {other}", other)
        if self.width == math.inf and self.threshold is None:
            raise invalid("an infinite width needs a threshold", "give threshold = s0 instead of variance", "width")
        return self


class MatrixTraining(Model):
    """The ``[training]`` table of a matrix problem.

    Attributes
    ----------
    steps : int
        Steps of gradient descent; results are given at steps 0 (initialisation) to `steps`.
    horizon : float
        Instead of `steps`: gradient flow up to this time.
    learning_rate : float or {input, output}, optional
        Default: a fiftieth of the reciprocal of max(largest singular value of the target, s0), divided by the
        cost's curvature. Not with `horizon`.
    weight_decay : float
        Both layers shrink by ``learning_rate weight_decay`` a step (the geometric mean of two rates), by
        ``weight_decay dt`` in gradient flow.
    solver : str
        ``"auto"``, ``"law"`` (the mixed lazy-active law), ``"closed-form"`` (of the law, for factorization),
        ``"network"``, or ``"anisotropic-law"`` (a heuristic for finite widths).
    reduction : str
        How a network is made small: ``"auto"``, ``"bartlett"`` (its triangular factor is drawn), ``"qr"`` (its weights
        are drawn and reduced), ``"gram"``, ``"none"``.
    stop : str
        ``"end"``, or ``"best"``: stop once the best test error is clearly past.
    record : int
        About so many steps have their singular values recorded, half of them evenly spaced, half by a factor.
    precision : str
        ``"float64"`` or ``"float32"``.
    seed : int
        Of the target, the noise, what is observed, and the weights.
    """

    steps: Count | None = None
    horizon: Positive | None = None
    learning_rate: PositiveOrLayers | None = None
    weight_decay: NonNegative = 0.0
    solver: Literal["auto", "law", "anisotropic-law", "closed-form", "network"] = "auto"
    reduction: Literal["auto", "bartlett", "qr", "gram", "none"] = "auto"
    stop: Literal["end", "best"] = "end"
    record: Annotated[int, BeforeValidator(integral), Field(ge=2, le=10_000)] = 100
    precision: Literal["float64", "float32"] = "float64"
    seed: Annotated[int, BeforeValidator(integral), Field(ge=0, lt=2**32)] = 0

    @model_validator(mode="after")
    def _consistent(self) -> MatrixTraining:
        if (self.steps is None) == (self.horizon is None):
            what = "steps or horizon is missing" if self.steps is None else "steps is given too"
            raise invalid(what, "give steps for gradient descent, or horizon for gradient flow", "horizon")
        rate = self.learning_rate
        if self.horizon is not None and rate is not None:
            raise invalid(
                "has no meaning in gradient flow", "remove it, or give steps instead of horizon", "learning_rate"
            )
        if isinstance(rate, LayerValues) and not (rate.input > 0 and rate.output > 0):
            raise invalid("is zero in one layer", "give both layers a positive rate", "learning_rate")
        if self.reduction != "auto" and self.solver not in ("auto", "network"):
            raise invalid(
                f"has no meaning with solver = '{self.solver}'", "remove it, or set solver = 'network'", "reduction"
            )
        if self.horizon is not None and self.reduction == "gram":
            raise invalid("'gram' has steps only", "give steps, or choose another reduction", "reduction")
        if self.horizon is not None and self.stop == "best":
            raise invalid("has no meaning in gradient flow", "remove it, or give steps", "stop")
        if self.precision == "float32" and (
            self.horizon is not None or self.solver in ("closed-form", "anisotropic-law")
        ):
            raise invalid("has no meaning in gradient flow and the closed form", "remove it", "precision")
        return self


class MatrixProblem(AnyProblem):
    """A two-layer linear network and the matrix that it learns; the contents of a problem file.

    Raises
    ------
    LazyrichError
        When a value is wrong or two values contradict each other.

    Examples
    --------
    >>> from lazyrich import Matrix, MatrixProblem, MatrixTraining, Target, TwoLayerNetwork
    >>> problem = MatrixProblem(
    ...     matrix=Matrix(shape=[50, 50], target=Target(rank=3, noise=0.1)),
    ...     network=TwoLayerNetwork(width=10**6, threshold={"relative": 0.01}),
    ...     training=MatrixTraining(steps=300),
    ... )
    >>> problem.matrix.cost
    'factorization'
    """

    curves: ClassVar = ("train_error", "test_error", "singular_values", "threshold")
    title: ClassVar = "two-layer network that learns a matrix"
    verbs: ClassVar = "two-layer or phase-diagram"
    alternatives: ClassVar = (
        ("network.width", "network.exponent"),
        ("network.variance", "network.threshold"),
        ("network.variance.exponent", "network.threshold"),
        ("network.threshold.relative", "network.variance"),
        ("training.steps", "training.horizon"),
        ("training.learning_rate", "training.horizon"),
        ("matrix.target.rank", "matrix.target.singular_values"),
    )

    matrix: Matrix
    network: TwoLayerNetwork
    training: MatrixTraining

    @model_validator(mode="after")
    def _consistent(self) -> MatrixProblem:
        for key in ("variance", "learning_rate"):
            table = "network" if key == "variance" else "training"
            value = getattr(getattr(self, table), key)
            if isinstance(value, LayerValues) and value.block is not None:
                raise invalid("a network of two layers has no blocks", "remove the block entry", f"{table}.{key}")
        if self.network.width == math.inf and self.training.reduction != "auto":
            raise invalid("has no meaning at infinite width", "remove it, or give a width", "training.reduction")
        if self.network.width == math.inf and self.training.solver == "network":
            raise invalid(
                "an infinite network cannot be trained", "set solver = 'law', or give a width", "training.solver"
            )
        if self.training.solver == "closed-form" and (
            self.matrix.cost != "factorization" or self.training.weight_decay
        ):
            what = "knows factorization without weight decay only"
            raise invalid(what, "set solver = 'law'", "training.solver")
        if self.training.solver == "anisotropic-law" and self.training.weight_decay:
            raise invalid("knows no weight decay", "set solver = 'law'", "training.solver")
        return self
