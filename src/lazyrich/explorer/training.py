"""Networks trained on demand, one page after another, with progress and cancelling."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lazyrich.problem import Problem
from lazyrich.problem.residual import ResidualProblem
from lazyrich.trajectory import Interrupted, Trajectory

_ENDING = threading.Event()
# One training at a time: each takes all cores.
_TRAINER = ThreadPoolExecutor(1, thread_name_prefix="trainer")


def train_until(
    problem: Problem | ResidualProblem, networks: int, stop: threading.Event, progress: Callable[[int, int], object]
) -> Trajectory | None:
    """Train, unless `stop` is set before the end.

    Returns
    -------
    Trajectory or None
        With the outcome "interrupted" if it was stopped: of the networks that were finished, or None without any.

    Raises
    ------
    LazyrichError
        For what cannot be trained.
    """
    from lazyrich.simulation import train

    def report(done: int, total: int) -> None:
        if stop.is_set() or _ENDING.is_set():
            raise KeyboardInterrupt  # what Ctrl-C does to a training on the command line
        progress(done, total)

    if stop.is_set() or _ENDING.is_set():
        return None
    try:
        return train(problem, networks, progress=report)
    except Interrupted as interrupted:
        return interrupted.trajectory


def in_background(work: Callable[[], object]) -> None:
    """Do some work after what others have asked for."""
    _TRAINER.submit(work)


def stop_all() -> None:
    """End every training: the server ends."""
    _ENDING.set()
