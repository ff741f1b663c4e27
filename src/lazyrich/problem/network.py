"""The ``[network]`` table."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    WrapValidator,
    model_validator,
)

from lazyrich.problem._model import Model, invalid, shown

# Squares and products of a few numbers within these bounds neither overflow nor vanish.
_SMALLEST, _LARGEST = 1e-30, 1e30
# Sizes up to here are exact as floating-point numbers.
_LARGEST_COUNT = 10**15


def _within_range(value: float) -> float:
    if abs(value) > _LARGEST or 0 < abs(value) < _SMALLEST:
        size = "large" if abs(value) > 1 else "small"
        raise invalid(f"too {size} to calculate with (it is {value!r})", f"stay between {_SMALLEST} and {_LARGEST}")
    return value


Finite = Annotated[float, Field(allow_inf_nan=False), AfterValidator(_within_range)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_within_range)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_within_range)]


def integral(value: Any) -> Any:
    """Let 1e6 stand for 1000000: TOML writes powers of ten as floats. Integers of NumPy are integers."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value == int(value) else value
    return value if isinstance(value, bool) or not hasattr(value, "__index__") else operator.index(value)


def listed(value: Any) -> Any:
    """Let tuples and NumPy arrays stand for lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


Count = Annotated[int, BeforeValidator(integral), Field(ge=1, le=_LARGEST_COUNT)]


def width_or_inf(value: Any) -> int | float:
    """A whole number, or inf."""
    value = integral(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid("a width must be a number", "give a whole number, or inf for the infinite-width limit")
    if value != math.inf and (not isinstance(value, int) or value < 1):
        raise invalid(
            f"a width must be a whole number, at least 1 (it is {shown(value)})",
            "give a whole number, or inf for the infinite-width limit",
        )
    if value != math.inf and value > _LARGEST_COUNT:
        raise invalid(f"a width of more than 10^15 (it is {shown(value)})", "give inf for the infinite-width limit")
    return value


def _count_or_inf(value: Any, count: Callable[[Any], int]) -> int | float:
    return value if isinstance(value, float) and value == math.inf else count(value)


class LayerValues(Model):
    """One value per layer: ``{input = .., block = .., output = ..}``; `block` is shared by all blocks."""

    input: NonNegative
    block: NonNegative | None = None
    output: NonNegative


def kind_of_value(value: Any) -> str:
    """Whether a setting is one number, a list over steps, or one value per layer."""
    if isinstance(value, list | tuple) or getattr(value, "ndim", 0):
        return "list"
    return "layers" if isinstance(value, dict | LayerValues) else "number"


PositiveOrLayers = Annotated[
    Annotated[Positive, Tag("number")] | Annotated[LayerValues, Tag("layers")], Discriminator(kind_of_value)
]
NonNegativeOrLayers = Annotated[
    Annotated[NonNegative, Tag("number")] | Annotated[LayerValues, Tag("layers")], Discriminator(kind_of_value)
]


def per_layer(value: float | LayerValues, blocks: int) -> list[float]:
    """The values of the input layer, the blocks and the output layer, length ``blocks + 2``."""
    if isinstance(value, LayerValues):
        return [value.input, *[value.block or 0.0] * blocks, value.output]
    return [float(value)] * (blocks + 2)


def check_layers(value: object, blocks: int, key: str) -> None:
    """A `block` entry is needed exactly where there are blocks."""
    if isinstance(value, LayerValues):
        if blocks == 0 and value.block is not None:
            raise invalid("has a block entry but network.blocks is 0", "remove the block entry", key)
        if blocks > 0 and value.block is None:
            raise invalid("has no block entry", "add block = .. beside input and output", key)


class Network(Model):
    """A deep linear network: input layer, `blocks` hidden N x N matrices, output layer.

    ``h0 = U x / sqrt(D)``, ``h_l = skip h_(l-1) + branch W_l h_(l-1) / sqrt(N)``, ``f = w . h_L / (gamma sqrt(N))``.

    Attributes
    ----------
    width : int or inf
        N, the number of units of every hidden level; ``inf`` is the infinite-width limit (theory only).
    blocks : int or inf
        Number of hidden matrices; 0 is the network with two weight layers. ``inf`` is the infinite-depth limit of a
        residual network (theory only): it needs ``skip = 1`` and `beta0`.
    skip : float
        Skip strength s: 0 is a plain network, 1 a residual one.
    branch, beta0 : float
        The branch multiplier c, or beta0 for ``c = beta0 / blocks^depth_exponent``. Default: ``branch = 1``.
    depth_exponent : float
        0.5, the default, or 1, with `beta0` only: 1 is the limit of an ordinary differential equation in depth, in
        which the blocks' learning rate is multiplied by the number of blocks, so that they learn at any depth.
    init_std : float or {input, block, output}
        Standard deviation of the entries at initialisation.
    """

    width: Annotated[int | float, BeforeValidator(width_or_inf), PlainSerializer(lambda v: v, return_type=Any)]
    blocks: Annotated[  # inf is not an int, but few places have to know
        int,
        Field(ge=0, le=_LARGEST_COUNT),
        BeforeValidator(integral),
        WrapValidator(_count_or_inf),
        PlainSerializer(lambda v: v, return_type=Any),
    ]
    skip: Finite = 0.0
    branch: Positive | None = None
    beta0: Positive | None = None
    depth_exponent: Finite | None = None
    init_std: PositiveOrLayers = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Network:
        if self.branch is not None and self.beta0 is not None:
            raise invalid("branch is given too", "keep one of them", "beta0")
        if self.beta0 is not None and self.blocks == 0:
            raise invalid("needs at least one block", "remove beta0 or set blocks to 1 or more", "beta0")
        if self.depth_exponent is not None:
            if self.beta0 is None:
                raise invalid(
                    "has no meaning without beta0", "give beta0, or write branch as a number", "depth_exponent"
                )
            if self.depth_exponent not in (0.5, 1.0):
                raise invalid(f"{self.depth_exponent} has no known limit", "choose 0.5 or 1.0", "depth_exponent")
        if math.isinf(self.blocks):
            if self.skip != 1.0:
                raise invalid("infinite depth has a limit with skip = 1 only", "set skip = 1.0", "skip")
            if self.beta0 is None:
                raise invalid("infinite depth needs a branch that shrinks", "give beta0 instead of branch", "beta0")
        check_layers(self.init_std, self.blocks, "init_std")
        return self

    @property
    def branch_multiplier(self) -> float:
        """c, the factor in front of every block."""
        if self.beta0 is not None:
            return self.beta0 / self.blocks ** (self.depth_exponent or 0.5)
        return 1.0 if self.branch is None else self.branch

    @property
    def init_stds(self) -> list[float]:
        """Initial standard deviations, input layer to output layer; length ``blocks + 2``."""
        return per_layer(self.init_std, self.blocks)
