"""Processes that solve for all pages, so that pages stay responsive and all cores are used."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from lazyrich.errors import LazyrichError

T = TypeVar("T")
COUNT = min(max(2, os.cpu_count() or 2), 8)


class _Pool:
    """The processes, started when they are first needed, and again if one is killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ProcessPoolExecutor | None = None

    def get(self) -> ProcessPoolExecutor:
        """The running processes."""
        with self._lock:
            if self._executor is None:
                # not forked: this process has threads
                context = multiprocessing.get_context("spawn")
                self._executor = ProcessPoolExecutor(COUNT, mp_context=context, initializer=_begin)
            return self._executor

    def drop(self, executor: ProcessPoolExecutor | None = None) -> None:
        """End the processes; with an argument, only if they are still these."""
        with self._lock:
            if self._executor is not None and executor in (None, self._executor):
                self._executor.shutdown(wait=False, cancel_futures=True)
                self._executor = None


_POOL = _Pool()


def remote(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in another process, and wait.

    Raises
    ------
    LazyrichError
        The function's own, or when the process was killed.
    """
    executor = _POOL.get()
    try:
        return executor.submit(function, *arguments).result()
    except BrokenProcessPool:
        _POOL.drop(executor)
        what = "a process that solves was ended from outside, perhaps for lack of memory"
        raise LazyrichError("explorer", what, "reduce steps, width or blocks, or try again") from None


def warm_up() -> None:
    """Start all processes, so that the first page need not wait for them."""
    executor = _POOL.get()
    for _ in range(COUNT):
        executor.submit(_load)


def end_workers() -> None:
    """End all processes: the server ends."""
    _POOL.drop()


def _begin() -> None:
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's, which then ends its workers
    threadpool_limits(1)
    threading.Thread(target=_end_with_server, daemon=True).start()


def _end_with_server() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _load() -> None:
    from lazyrich.explorer.linear import DEFAULTS, curves_of, problem_of

    curves_of(problem_of(DEFAULTS))
