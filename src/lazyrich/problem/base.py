"""What all kinds of problems share."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field

from lazyrich.errors import LazyrichError
from lazyrich.problem._model import Model, invalid

# More would take days to train.
_MOST_PROBLEMS = 1000


def quoted_keys(axes: Any) -> Any:
    """Refuse ``network.width = [..]`` without quotes, which TOML takes for a table in a table."""
    for table, keys in axes.items() if isinstance(axes, dict) else ():
        if isinstance(keys, dict) and keys and "." not in table:
            key = f'"{table}.{next(iter(keys))}"'
            raise invalid("a key with a dot in it needs quotes", f"write {key} = [..]", table)
    return axes


Axes = Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], BeforeValidator(quoted_keys)]


class AnyProblem(Model):
    """A problem of any kind: its tables, and copies with some keys changed.

    Attributes
    ----------
    curves : tuple of str
        Names of the curves over steps that a result prints.
    title : str
        What the kind is called in a message.
    verbs : str
        The commands that answer this kind of problem.
    methods : tuple of str
        How a transfer study of this kind can be answered: ``"theory"``, ``"training"``.
    alternatives : tuple of tuple of str
        Keys that exclude each other: setting one of them removes the others.
    """

    curves: ClassVar[tuple[str, ...]]
    title: ClassVar[str]
    verbs: ClassVar[str]
    methods: ClassVar[tuple[str, ...]]
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """A copy with some keys changed, e.g. ``{"network.width": 400}``; checked again as a whole.

        Setting one of several keys that exclude each other replaces the others.

        Raises
        ------
        LazyrichError
            When a key does not exist or a value is wrong.
        """
        tables = copy.deepcopy(self.to_dict())
        for key, value in values.items():
            first, *path = key.split(".")
            if first not in tables or not path:
                raise LazyrichError(key, "no such key", f"write table.key with a table of {', '.join(tables)}")
            for group in self.alternatives:
                for other in group if key in group else ():
                    *way, name = other.split(".")
                    table: Any = tables
                    for part in way:
                        table = table.get(part) if isinstance(table, dict) else None
                    if isinstance(table, dict):
                        table.pop(name, None)
            place = tables[first]
            for name in path[:-1]:
                if not isinstance(place.get(name), dict):
                    place[name] = {}
                place = place[name]
            place[path[-1]] = value
        return type(self)(**tables)

    def to_dict(self) -> dict[str, Any]:
        """Plain tables as in a problem file, defaults included, without keys that have no value."""
        return self.model_dump(exclude_none=True)


class AnyStudy(Model):
    """The contents of a study file: the tables of a problem and, if given, what to do with it.

    Attributes
    ----------
    kind : type
        The kind of problem.
    paths : tuple of str
        Keys that name a data file.
    """

    kind: ClassVar[type[AnyProblem]]
    paths: ClassVar[tuple[str, ...]]

    @property
    def problem(self) -> AnyProblem:
        """The base problem."""
        return self.kind(**{table: getattr(self, table) for table in self.kind.model_fields})

    def check(self) -> None:
        """Raise where the tables contradict each other."""
        self.problem  # noqa: B018

    def combinations(self, axes: Mapping[str, Sequence[Any]], place: str) -> list[tuple[dict[str, Any], Any]]:
        """Every combination of the axes with its problem, the base first.

        Raises
        ------
        LazyrichError
            For a key that does not exist, a wrong value, or too many combinations.
        """
        count = math.prod(len(values) for values in axes.values())
        if count > _MOST_PROBLEMS:
            what = f"{count} combinations, more than {_MOST_PROBLEMS}"
            raise LazyrichError(place, what, "shorten the lists")
        points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        base = self.problem
        try:
            return [(point, base.with_values(point)) for point in points]
        except LazyrichError as error:
            raise error.inside(place, joint=": ") from None
