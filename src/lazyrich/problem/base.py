"""What all kinds of problems share."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from lazyrich.errors import LazyrichError
from lazyrich.problem._model import Model


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
                    table, _, name = other.partition(".")
                    tables[table].pop(name, None)
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
