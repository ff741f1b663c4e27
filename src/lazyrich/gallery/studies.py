"""Where the studies are, in a checkout and in an installed package, and how they are made small for a quick run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lazyrich.errors import LazyrichError
from lazyrich.problem.base import AnyStudy
from lazyrich.problem.files import study_kind


def studies_folder() -> Path:
    """The folder of the study files: the package's own, or that of the checkout the package is in.

    Raises
    ------
    LazyrichError
        When neither is there.
    """
    package = Path(__file__).parent.parent
    for folder in (package / "studies", package.parent.parent / "studies"):
        if folder.is_dir():
            return folder
    raise LazyrichError("studies", "are not part of this installation", "install lazyrich from its wheel or a checkout")


def load_changed(name: str, changes: Mapping[str, Any]) -> AnyStudy:
    """A study file with some keys changed; see :class:`lazyrich.gallery.claim.Source`."""
    tables = tomllib.loads((studies_folder() / name).read_text(encoding="utf-8"))
    for key, value in changes.items():
        table, _, entry = key.partition(".")
        place = tables[table]
        if isinstance(value, Mapping) and isinstance(place.get(entry), dict):
            place[entry] |= value
        else:
            place[entry] = value
    study = study_kind(tables)(**tables)
    study.check()
    return study
