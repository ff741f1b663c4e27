"""What several test files share: small problem files, and the command run inside this process."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from lazyrich.cli import main

BASE = {
    "network": {"width": "40", "blocks": "1"},
    "data": {"kind": '"gaussian"', "dimension": "40", "samples": "80"},
    "training": {"steps": "6", "learning_rate": "0.05"},
}


def problem_text(changes: Mapping[str, str | None] | None = None) -> str:
    """A problem file in TOML; `changes` maps ``table.key`` to TOML text, or to None for a key that is left out."""
    tables = {table: dict(keys) for table, keys in BASE.items()}
    for place, value in (changes or {}).items():
        table, _, key = place.partition(".")
        keys = tables.setdefault(table, {})
        keys.pop(key, None)
        if value is not None:
            keys[key] = value
    lines = []
    for table, keys in tables.items():
        lines += [f"[{table}]", *(f"{key} = {value}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


@pytest.fixture
def write_problem(tmp_path: Path) -> Callable[..., Path]:
    """Write a problem file with some changes; see :func:`problem_text`."""

    def write(changes: Mapping[str, str | None] | None = None, name: str = "problem.toml") -> Path:
        path = tmp_path / name
        path.write_text(problem_text(changes), encoding="utf-8")
        return path

    return write


@dataclass
class Finished:
    """How a command ended."""

    status: int
    out: str
    err: str


def run_command(*arguments: object) -> Finished:
    """Run ``lazyrich`` inside this process; anything but an orderly exit is raised as it is."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["lazyrich", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    return Finished(int(stop.value.code or 0), out.getvalue(), err.getvalue())


def assert_one_line_error(finished: Finished, *words: str) -> None:
    """Status 2, nothing on standard output, and one line ``error: ...`` with these words in it."""
    assert finished.status == 2, finished
    assert finished.out == ""
    assert finished.err.startswith("error: ") and finished.err.endswith("\n")
    assert finished.err.count("\n") == 1, finished.err
    for word in words:
        assert word in finished.err
