"""Problem files: a problem written as TOML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any


def problem_file(tables: Mapping[str, Mapping[str, Any]], comment: str) -> str:
    """The tables of a problem or study as the text of a file that reads as the same.

    Parameters
    ----------
    tables : dict of dict
        From :meth:`lazyrich.problem.base.AnyProblem.to_dict`, with others beside them.
    comment : str
        Lines to put in front.
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    for table, keys in tables.items():
        lines += ["", f"[{table}]", *(f"{key} = {_written(value)}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_written(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(item) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML knows JSON's escapes
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
