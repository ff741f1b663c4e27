"""Study files: a problem in TOML, plus tables that say what to do with it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from lazyrich.errors import LazyrichError
from lazyrich.problem._model import Model, invalid, shown
from lazyrich.problem.base import AnyProblem, AnyStudy, Axes, quoted_keys
from lazyrich.problem.data import Data
from lazyrich.problem.diagram import MatrixStudy
from lazyrich.problem.network import Count, Network, Positive, integral, listed
from lazyrich.problem.problem import Problem
from lazyrich.problem.residual import ResidualData, ResidualNetwork, ResidualProblem, ResidualTraining
from lazyrich.problem.training import Training

TrainedProblem = Problem | ResidualProblem
# What a transfer study judges rates by.
Judged = Literal["test", "train", "test-error", "train-error"]

_MOST_RATES = 1000


class Compare(Model):
    """The ``[compare]`` table: which problems to predict and train, and with how many networks.

    Attributes
    ----------
    seeds : int
        Networks trained per problem.
    axes : dict
        Keys of the problem and the values they take; all combinations are compared.
    """

    seeds: Annotated[Count, Field(ge=2)] = 16
    axes: Axes = {}


class RateRange(Model):
    """Learning rates ``{ from = 1e-3, to = 2.0, count = 24 }``, evenly spaced on a logarithmic scale."""

    start: Annotated[Positive, Field(alias="from")]
    to: Positive
    count: Annotated[int, BeforeValidator(integral), Field(ge=2, le=_MOST_RATES)]

    @model_validator(mode="after")
    def _rising(self) -> RateRange:
        if self.to <= self.start:
            raise invalid(f"{self.to} is not above from = {self.start}", "give from below to", "to")
        return self


RateList = Annotated[list[Positive], BeforeValidator(listed), Field(min_length=2, max_length=_MOST_RATES)]


def _kind_of_rates(value: Any) -> str:
    return "range" if isinstance(value, dict | RateRange) else "list"


class Transfer(Model):
    """The ``[transfer]`` table, which asks where the best learning rate is and whether it moves.

    Attributes
    ----------
    rates : {from, to, count} or list
        Learning rates to try at every point of the axes. They replace a single ``training.learning_rate``; a list over
        steps or values per layer are multiplied by ``rate / largest``, so that their shape is kept.
    axes : dict
        Keys of the problem and the values they take; the first value of each is the base that rates are carried from.
    loss : str
        What rates are judged by: ``"test"``, which a data set has where samples are held out (``data.test_fraction``),
        or ``"train"``; of data with classes also ``"test-error"`` or ``"train-error"``, one minus the accuracy.
    at : list of int, optional
        Steps at which it is read; default: the last.
    by : str
        ``"theory"``, ``"training"`` or ``"both"``.
    seeds : int
        Networks trained per rate.
    targets : dict
        Sizes that are not run, e.g. ``{ "network.width" = 8192 }``: the best rate there is predicted from the others.
    refine : int
        How often the grid is refined around each optimum: every time, the two gaps beside the best rate are halved.
    """

    rates: Annotated[
        Annotated[RateRange, Tag("range")] | Annotated[RateList, Tag("list")], Discriminator(_kind_of_rates)
    ]
    axes: Axes = {}
    loss: Judged = "test"
    at: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    by: Literal["theory", "training", "both"] = "theory"
    seeds: Annotated[Count, Field(ge=2)] = 8
    targets: Annotated[dict[str, Positive], BeforeValidator(quoted_keys)] = {}
    refine: Annotated[int, Field(ge=0, le=10)] = 0

    @model_validator(mode="after")
    def _targets_are_axes(self) -> Transfer:
        for axis in self.targets:
            if len(self.axes.get(axis, [])) < 3:
                raise invalid(
                    "needs at least three sizes of this axis to learn from", "add them to axes", f"targets.{axis}"
                )
        return self

    @model_validator(mode="after")
    def _rate_is_no_axis(self) -> Transfer:
        if "training.learning_rate" in self.axes:
            raise invalid("is what rates are for", "remove it from axes", "axes.training.learning_rate")
        return self

    @model_validator(mode="after")
    def _different_rates(self) -> Transfer:
        if len(set(self.rate_grid())) < 2:
            raise invalid("all are the same", "give at least two different rates", "rates")
        return self

    def rate_grid(self) -> list[float]:
        """The learning rates, rising and each once."""
        if isinstance(self.rates, RateRange):
            return [float(rate) for rate in np.geomspace(self.rates.start, self.rates.to, self.rates.count)]
        return sorted(set(self.rates))


StudyT = TypeVar("StudyT", bound=AnyStudy)


class TrainedStudy(AnyStudy):
    """A study of networks that can be trained: a problem and, if given, over what to transfer its rate."""

    kind: ClassVar[type[Problem] | type[ResidualProblem]]
    paths: ClassVar = ("data.path",)

    transfer: Transfer | None = None

    @property
    def problem(self) -> TrainedProblem:
        """The base problem."""
        return self.kind(**{table: getattr(self, table) for table in self.kind.model_fields})

    def check(self) -> None:
        """Raise where the tables contradict each other."""
        self.transfer_points()

    def transfer_points(self) -> list[tuple[dict[str, Any], TrainedProblem]]:
        """Every combination of the axes to transfer over with its problem; the base first."""
        return self.combinations(self.transfer.axes if self.transfer else {}, "transfer.axes")


class Study(TrainedStudy):
    """A study of deep linear networks: a problem and, if given, what to compare and over what to transfer."""

    kind: ClassVar = Problem

    network: Network
    data: Data
    training: Training
    compare: Compare = Compare()

    @property
    def problem(self) -> Problem:
        """The base problem."""
        return Problem(network=self.network, data=self.data, training=self.training)

    def check(self) -> None:
        """Raise where the tables contradict each other."""
        self.problems()
        super().check()

    def problems(self) -> list[tuple[dict[str, Any], Problem]]:
        """Every combination of the axes to compare with its problem; one entry without axes."""
        return self.combinations(self.compare.axes, "compare.axes")


class TrainingTransfer(Transfer):
    """The ``[transfer]`` table of a problem that only training answers."""

    by: Literal["training"] = "training"


class ResidualStudy(TrainedStudy):
    """A study of residual networks."""

    kind: ClassVar = ResidualProblem

    network: ResidualNetwork
    data: ResidualData
    training: ResidualTraining
    transfer: TrainingTransfer | None = None


_KINDS: Mapping[str, type[AnyStudy]] = {"residual": ResidualStudy}


def point_label(values: dict[str, Any]) -> str:
    """Axis values as a label, e.g. ``width = 64, parametrization = mup``; empty without axes."""
    return ", ".join(f"{key.rpartition('.')[2]} = {value}" for key, value in values.items())


def study_kind(tables: Mapping[str, Any]) -> type[AnyStudy]:
    """Which kind of study some tables describe; of deep linear networks, if they do not say it.

    Raises
    ------
    LazyrichError
        When there is no such kind.
    """
    if "matrix" in tables:
        return MatrixStudy
    network = tables.get("network")
    if not isinstance(network, Mapping) or "kind" not in network:
        return Study
    if not isinstance(network["kind"], str) or network["kind"] not in _KINDS:
        what, known = f"unknown kind {shown(network['kind'])}", " or ".join(f"'{name}'" for name in _KINDS)
        raise LazyrichError("network.kind", what, f"choose {known}, or remove it for deep linear networks")
    return _KINDS[network["kind"]]


def _seen_from(tables: dict[str, Any], folder: Path, paths: Sequence[str]) -> None:
    """Change the data files' paths, given relative to `folder`, to what they are from here."""

    def beside(value: Any) -> Any:
        if isinstance(value, list):
            return [beside(item) for item in value]
        return str(folder / value) if isinstance(value, str) else value  # an absolute path stays one

    for key in paths:
        for axes in [part.get("axes") for part in tables.values() if isinstance(part, dict)]:
            if isinstance(axes, dict) and key in axes:
                axes[key] = beside(axes[key])
        *way, name = key.split(".")
        place: Any = tables
        for part in way:
            place = place.get(part) if isinstance(place, dict) else None
        if isinstance(place, dict) and place.get(name):
            place[name] = beside(place[name])


def load_study(path: str | Path, kind: type[StudyT] = AnyStudy) -> StudyT:
    """Read a study or problem file.

    Parameters
    ----------
    path : str or Path
        A TOML file. Relative paths of data files in it are understood from the file's own folder.
    kind : type
        The kind of study that is needed; default: any.

    Raises
    ------
    LazyrichError
        One line with the file, the key, what is wrong and what to do.
    """
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise LazyrichError(str(path), "no such file", "check the name") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise LazyrichError(str(path), f"cannot be read ({reason})", "give a readable TOML file") from None
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        reason = "too deep" if isinstance(error, RecursionError) else str(error)[:160].partition(";")[0]
        raise LazyrichError(str(path), f"not valid TOML ({reason})", "correct the file") from None
    try:
        found = study_kind(tables)
    except LazyrichError as error:
        raise error.inside(str(path), joint=": ") from None
    if not issubclass(found, kind):
        what, verbs = found.kind.title, found.kind.verbs
        raise LazyrichError(str(path), f"describes a problem of the kind {what}", f"use lazyrich {verbs}")
    _seen_from(tables, path.parent, found.paths)
    try:
        study = found(**tables)
        study.check()  # contradictions between the tables are errors of the file too
    except LazyrichError as error:
        raise error.inside(str(path), joint=": ") from None
    return study


def load_problem(path: str | Path) -> AnyProblem:
    """Read the problem of a problem or study file, of any kind; see :func:`load_study`."""
    return load_study(path).problem
