"""The units of work of a sweep: one problem at several learning rates, by theory or by training."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from lazyrich.problem import Problem
from lazyrich.problem.files import Judged, TrainedProblem, study_kind

# The parts of the package whose code decides what a cell's result is.
_DECIDING = (
    "problem/**/*.py",
    "theory/**/*.py",
    "simulation/**/*.py",
    "mixed_dynamics/**/*.py",
    "transfer/*_work.py",
    "transfer/judging.py",
)


@dataclass(frozen=True)
class Cell:
    """One unit of work; plain values only, so that it travels to any worker and has a key.

    Attributes
    ----------
    by : str
        ``"theory"`` or ``"training"``.
    problem : dict
        The tables of a problem; its learning rate is replaced.
    rates : tuple of float
    at : tuple of int
        Steps at which the loss is read.
    loss : str
        As in :class:`lazyrich.problem.files.Transfer`.
    seeds : int
        Networks per rate; 0 by theory.
    data : str
        Hash of the data file's content, if the problem has one: a file that changes is another problem.
    """

    by: Literal["theory", "training"]
    problem: dict[str, Any]
    rates: tuple[float, ...]
    at: tuple[int, ...]
    loss: Judged
    seeds: int
    data: str = ""

    def key(self) -> str:
        """A name for the result: a hash of everything that decides it, the code's version included."""
        return content_key({**asdict(self), "code": code_version()})

    def execute(self) -> dict[str, np.ndarray]:
        """Do the work.

        Returns
        -------
        dict of ndarray
            ``losses`` (or errors), shape (rates, at, networks), one network by theory; NaN where the training had
            diverged.
            ``diverged``, shape (rates, networks): the step of divergence, or -1. ``seconds``: the time it took.
        """
        started = time.perf_counter()
        if self.by == "theory":
            from lazyrich.transfer.theory_work import losses_by_theory

            result = losses_by_theory(Problem(**self.problem), self.rates, self.at, self.loss)
        else:
            from lazyrich.transfer.training_work import losses_by_training

            problem = cast(TrainedProblem, study_kind(self.problem).kind(**self.problem))
            result = losses_by_training(problem, self.rates, self.at, self.loss, self.seeds)
        return {**result, "seconds": np.asarray(time.perf_counter() - started)}


def content_key(content: dict[str, Any]) -> str:
    """A name for what these plain values decide."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def data_hash(problem: TrainedProblem) -> str:
    """Hash of the content of a problem's data file; empty without one."""
    path = getattr(problem.data, "path", None)
    return "" if path is None else file_hash(path)


def file_hash(path: str) -> str:
    """Hash of a file's content."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:32]


@cache
def code_version() -> str:
    """Version of the package and a hash of the code that decides results."""
    from lazyrich import __version__

    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _DECIDING for path in root.glob(pattern)):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return f"{__version__}-{digest.hexdigest()[:16]}"
