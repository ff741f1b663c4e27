"""What the user sets by patterns of parameter names."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import ROLES, known_name

_OVERRIDES = ("role", "init_std", "learning_rate", "eps", "weight_decay")


class Overrides:
    """What the user sets by patterns of names; the last that matches counts."""

    def __init__(self, given: Mapping[str, Mapping[str, Any]] | None) -> None:
        self.given = dict(given or {})
        self.used: set[str] = set()
        for pattern, settings in self.given.items():
            for key, value in settings.items():
                known_name(f"overrides.{pattern}", key, _OVERRIDES)
                if key == "role":
                    known_name(f"overrides.{pattern}.role", value, ROLES)
                elif not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
                    raise LazyrichError(f"overrides.{pattern}.{key}", f"{value!r} is no number", "give at least 0")

    def of(self, name: str) -> dict[str, Any]:
        """The settings of a parameter."""
        matching = [pattern for pattern in self.given if fnmatch.fnmatchcase(name, pattern)]
        self.used.update(matching)
        return {key: value for pattern in matching for key, value in self.given[pattern].items()}

    def role(self, name: str) -> str | None:
        """The role of a parameter, if it is given."""
        return self.of(name).get("role")

    def refuse_unused(self) -> None:
        """Raise for a pattern that matched nothing."""
        for pattern in self.given.keys() - self.used:
            raise LazyrichError(f"overrides.{pattern}", "matches no parameter", "check the pattern")
