"""Study files: a problem in TOML, plus tables that say what to do with it."""

from __future__ import annotations

import itertools
import math
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from lazyrich.errors import LazyrichError
from lazyrich.problem._model import Model, invalid
from lazyrich.problem.data import Data, DatasetData
from lazyrich.problem.network import Count, Network
from lazyrich.problem.problem import Problem
from lazyrich.problem.training import Training

# More would take days to train.
_MOST_PROBLEMS = 1000

AxisValues = Annotated[list[Any], Field(min_length=1)]


class Compare(Model):
    """The ``[compare]`` table: which problems to predict and train, and with how many networks.

    Attributes
    ----------
    seeds : int
        Networks trained per problem.
    axes : dict
        Keys of the problem and the values they take; all combinations are compared.
    """

    table: ClassVar[str] = "compare"

    seeds: Annotated[Count, Field(ge=2)] = 16
    axes: dict[str, AxisValues] = {}

    @model_validator(mode="before")
    @classmethod
    def _quoted(cls, values: Any) -> Any:
        axes = values.get("axes") if isinstance(values, dict) else None
        for table, keys in axes.items() if isinstance(axes, dict) else ():
            if isinstance(keys, dict) and keys:
                key = f'"{table}.{next(iter(keys))}"'
                raise invalid("a key with a dot in it needs quotes", f"write {key} = [..]", f"axes.{table}")
        return values


class Study(Model):
    """The contents of a study file: a problem and, if given, what to do with it."""

    table: ClassVar[str] = ""

    network: Network
    data: Data
    training: Training
    compare: Compare = Compare()

    @property
    def problem(self) -> Problem:
        """The base problem."""
        return Problem(network=self.network, data=self.data, training=self.training)

    def problems(self) -> list[tuple[dict[str, Any], Problem]]:
        """Every combination of the axes with its problem; one entry without axes."""
        axes = self.compare.axes
        count = math.prod(len(values) for values in axes.values())
        if count > _MOST_PROBLEMS:
            what = f"{count} combinations, more than {_MOST_PROBLEMS}"
            raise LazyrichError("compare.axes", what, "shorten the lists")
        points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        base = self.problem
        try:
            return [(point, base.with_values(point)) for point in points]
        except LazyrichError as error:
            raise error.inside("compare.axes", joint=": ") from None


def load_study(path: str | Path) -> Study:
    """Read a study or problem file.

    Parameters
    ----------
    path : str or Path
        A TOML file. A relative ``data.path`` in it is understood from the file's own folder.

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
        study = Study(**tables)
        data = study.data
        if isinstance(data, DatasetData) and data.path and not Path(data.path).is_absolute():
            data = data.model_copy(update={"path": str(path.parent / data.path)})
            study = study.model_copy(update={"data": data})
        study.problems()  # contradictions between the tables are errors of the file too
    except LazyrichError as error:
        raise error.inside(str(path), joint=": ") from None
    return study


def load_problem(path: str | Path) -> Problem:
    """Read the problem of a problem or study file; see :func:`load_study`."""
    return load_study(path).problem
