"""Work of a page in the background: one piece at a time, the newest question first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lazyrich.errors import LazyrichError
from lazyrich.explorer.workers import COUNT

_log = logging.getLogger(__name__)
# All pages share these threads, which wait for the workers. Each page has one piece of work in the queue at most, so
# that everyone gets a turn.
_POOL = ThreadPoolExecutor(COUNT + 1, thread_name_prefix="explorer")

Work = Iterator[Callable[[], object]]


class Redrawer:
    """Runs the newest request of a page; what it is asked meanwhile replaces what it has not begun.

    A request is an iterator: every piece of work yields a function that draws its result. Pieces run in threads, the
    functions in the page's own event loop.

    Parameters
    ----------
    schedule : callable
        Runs a function in the page's event loop.
    failed : callable
        Shows an error of the user's.
    """

    def __init__(
        self, schedule: Callable[[Callable[[], object]], object], failed: Callable[[LazyrichError], object]
    ) -> None:
        self._schedule, self._failed = schedule, failed
        self._lock = threading.Lock()
        self._next: Work | None = None
        self._busy = False
        self._closed = False

    def request(self, work: Work) -> None:
        """Ask for this instead of all that was asked before."""
        with self._lock:
            if self._closed:
                return
            self._next = work
            if self._busy:
                return
            self._busy = True
        _POOL.submit(self._piece, None)

    def close(self) -> None:
        """Do nothing any more: the page was left."""
        with self._lock:
            self._closed, self._next = True, None

    def _piece(self, work: Work | None) -> None:
        with self._lock:
            if self._next is not None:
                work, self._next = self._next, None
            if work is None or self._closed:
                self._busy = False
                return
        try:
            draw = next(work, None)
        except LazyrichError as error:
            draw, work = _later(self._failed, error), None
        except MemoryError:
            error = LazyrichError("memory", "there is not enough for these settings", "reduce steps, width or blocks")
            draw, work = _later(self._failed, error), None
        except Exception:  # a defect of a page must not end its thread silently
            _log.exception("a redraw failed")
            error = LazyrichError("explorer", "a redraw failed, see the terminal", "change a setting, and report it")
            draw, work = _later(self._failed, error), None
        if draw is None:
            work = None
        else:
            self._schedule(draw)
        _POOL.submit(self._piece, work)


def _later(function: Callable[[Any], object], argument: Any) -> Callable[[], object]:
    return lambda: function(argument)
