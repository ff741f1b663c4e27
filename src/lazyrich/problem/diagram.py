"""The ``[diagram]`` table: grids of matrix problems, and the study files that hold them."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator

from lazyrich.errors import LazyrichError
from lazyrich.problem._model import Model, invalid
from lazyrich.problem.base import AnyStudy, quoted_keys
from lazyrich.problem.matrix import Matrix, MatrixProblem, MatrixTraining, TwoLayerNetwork
from lazyrich.problem.network import Count, Finite, Positive, integral, listed

# More points than these are a mistake, or days of work.
_MOST_POINTS = 20_000
# Axes that are exponents or fractions are spaced evenly, sizes and variances by a factor; some take whole numbers only.
_EVEN = ("exponent", "observed", "noise", "weight_decay")
_WHOLE = ("width", "rank", "samples", "measurements", "steps")


def even(key: str) -> bool:
    """Whether an axis is an exponent or a fraction, taken as it is, and not a size, taken by its logarithm."""
    return key.rpartition(".")[2] in _EVEN


def whole(key: str) -> bool:
    """Whether an axis takes whole numbers only."""
    return key.rpartition(".")[2] in _WHOLE


class AxisRange(Model):
    """Values ``{ from = -3.0, to = 0.0, count = 30 }``: exponents and fractions evenly spaced, sizes by a factor."""

    start: Annotated[Finite, Field(alias="from")]
    to: Finite
    count: Annotated[int, BeforeValidator(integral), Field(ge=2, le=1000)]

    def values(self, key: str) -> list[float]:
        """The values of an axis named `key`."""
        if even(key):
            return [float(value) for value in np.linspace(self.start, self.to, self.count)]
        if not self.start > 0 or not self.to > 0:
            raise LazyrichError(
                f"diagram.axes.{key}", "a range of sizes must be positive", "give positive values from and to"
            )
        found = [float(value) for value in np.geomspace(self.start, self.to, self.count)]
        return [float(round(value)) for value in found] if whole(key) else found


def _kind_of_axis(value: Any) -> str:
    return "range" if isinstance(value, dict | AxisRange) else "list"


DiagramAxis = Annotated[
    Annotated[AxisRange, Tag("range")]
    | Annotated[Annotated[list[Any], BeforeValidator(listed), Field(min_length=1)], Tag("list")],
    Discriminator(_kind_of_axis),
]


class Diagram(Model):
    """The ``[diagram]`` table: a grid of matrix problems.

    Attributes
    ----------
    axes : dict
        Keys of the problem and their values, a list or ``{from, to, count}``. The first two are drawn as x and y.
    by : str
        ``"network"``, ``"law"`` or ``"both"``: then also how far apart they are.
    seeds : int
        Runs per point, with seeds counted up from the problem's own.
    refine : int
        How often the grid is halved where the best test error changes most, along the boundary of phases.
    level : float, optional
        Best test error of the contour that is taken for the boundary of lazy and active; default: the geometric mean of
        the smallest and the largest one.
    signal_block : bool
        Also compare the block of the target's singular vectors with a network of the size of the rank.
    """

    axes: Annotated[dict[str, DiagramAxis], BeforeValidator(quoted_keys), Field(min_length=1, max_length=4)]
    by: Literal["network", "law", "both"] = "network"
    seeds: Annotated[Count, Field(le=1000)] = 1
    refine: Annotated[int, Field(ge=0, le=5)] = 0
    level: Positive | None = None
    signal_block: bool = False

    @field_validator("axes")
    @classmethod
    def _plain_values(cls, axes: dict[str, Any]) -> dict[str, Any]:
        for key, values in axes.items():
            if not isinstance(values, AxisRange) and any(isinstance(value, list | dict | tuple) for value in values):
                raise invalid(
                    "a value is a list or a table", "give numbers or texts; a table's key is an axis too", key
                )
        return axes

    def values(self) -> dict[str, list[Any]]:
        """Every axis with its values."""
        return {key: axis.values(key) if isinstance(axis, AxisRange) else list(axis) for key, axis in self.axes.items()}


class MatrixStudy(AnyStudy):
    """A study of two-layer networks: a problem and, if given, a grid of them."""

    kind: ClassVar = MatrixProblem
    paths: ClassVar = ("matrix.target.path", "matrix.inputs", "matrix.outputs")

    matrix: Matrix
    network: TwoLayerNetwork
    training: MatrixTraining
    diagram: Diagram | None = None

    @property
    def problem(self) -> MatrixProblem:
        """The base problem."""
        return MatrixProblem(matrix=self.matrix, network=self.network, training=self.training)

    def check(self) -> None:
        """Raise where the tables contradict each other."""
        if self.diagram is None:
            self.problem  # noqa: B018
            return
        axes = self.diagram.values()
        if (count := math.prod(len(values) for values in axes.values())) > _MOST_POINTS:
            raise LazyrichError("diagram.axes", f"{count} points, more than {_MOST_POINTS}", "shorten the axes")
        for axis, values in axes.items():
            self.combinations({axis: values}, "diagram.axes")
