"""Cells to results: in this process, on this machine's cores, or on a Dask cluster; what is finished is kept."""

from __future__ import annotations

import pickle
import queue
import time
import traceback
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from threadpoolctl import threadpool_limits

from lazyrich.errors import LazyrichError
from lazyrich.transfer.cluster import Workers, connected, one_thread
from lazyrich.transfer.store import ResultStore

if TYPE_CHECKING:
    from distributed import Client, Future

# A task holds so many small cells that it takes this long, in seconds; a long cell is a task of its own.
_TASK_SECONDS = 0.25
_MOST_PER_TASK = 64
# Tasks at the cluster per worker thread: one that runs and one that waits.
_TASKS_PER_THREAD = 2
# A worker that starts again needs some seconds; where none has come back after so many, none will.
_RESTART_SECONDS = 60.0
# Cells that end their worker; after so many something else is wrong.
_MOST_KILLERS = 5

Arrays = dict[str, np.ndarray]


class CellLike(Protocol):
    """What the engine needs of a cell; it must travel by pickle too."""

    def key(self) -> str:
        """A name for the result, the same wherever it is asked for."""
        ...

    def execute(self) -> Arrays:
        """Do the work."""
        ...


def run_cells(
    cells: Sequence[CellLike],
    store: ResultStore,
    *,
    workers: int | Workers | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int], object] | None = None,
    announce: Callable[[str], object] | None = None,
) -> list[Arrays]:
    """Execute cells that are not in the store yet, and keep each as soon as it is finished.

    Results do not depend on where they are computed: every cell runs with one thread. (In this process that holds for
    JAX only if it has not computed anything before.)

    Parameters
    ----------
    cells : sequence
        Those with the same key are executed once.
    store : ResultStore
    workers : int or Workers, optional
        Processes on this machine; 1 works in this process. Default: one for each core. An open :class:`Workers` lends
        its processes to one call after the other; else they end with the call.
    scheduler : str, optional
        Address of a Dask cluster to use instead, ``tcp://..`` or ``tls://..`` (with the certificates that Dask is
        configured with).
    progress : callable, optional
        Called with cells done, those from the store included, and cells in all.
    announce : callable, optional
        Called with things to know on the way, such as the link of Dask's dashboard.

    Returns
    -------
    list of dict of ndarray
        In the order of `cells`.

    Raises
    ------
    LazyrichError
        When a cell refuses its problem, the scheduler does not answer or is lost, a result cannot be written, or a cell
        ends its worker every time; finished cells are kept. Other exceptions of a cell are raised as they are.
    """
    with ExitStack() as stack:
        local = workers if isinstance(workers, Workers) else stack.enter_context(Workers(workers))
        book = _Book(cells, store, progress)
        if not book.waiting:
            return book.results()
        if scheduler is not None:
            client = stack.enter_context(connected(scheduler))
            _run_on_cluster(client, book, scheduler, announce)
        elif local.most == 1:
            _run_here(book)
        else:
            _run_on_cluster(local.client(len(book.waiting), announce), book, None, announce)
    return book.results()


class _Book:
    """Which cells are waiting and what came of the others."""

    def __init__(
        self, cells: Sequence[CellLike], store: ResultStore, progress: Callable[[int, int], object] | None
    ) -> None:
        self.store = store
        self.progress = progress
        self.waiting: deque[tuple[str, CellLike]] = deque()
        self._keys = [cell.key() for cell in cells]
        self._count: dict[str, int] = defaultdict(int)
        for key in self._keys:
            self._count[key] += 1
        self._done = 0
        self._results: dict[str, Arrays] = {}
        for key, cell in dict(zip(self._keys, cells, strict=True)).items():
            if (arrays := store.read(key)) is None:
                self.waiting.append((key, cell))
            else:
                self._take(key, arrays)

    def keep(self, key: str, arrays: Arrays) -> None:
        """Write a result to the store."""
        # a copy: what comes over the network cannot be changed, and a result should not depend on its way
        arrays = {name: np.array(array) for name, array in arrays.items()}
        self.store.write(key, arrays)
        self._take(key, arrays)

    def results(self) -> list[Arrays]:
        return [self._results[key] for key in self._keys]

    def _take(self, key: str, arrays: Arrays) -> None:
        self._results[key] = arrays
        self._done += self._count[key]
        if self.progress is not None:
            self.progress(self._done, len(self._keys))


def _run_here(book: _Book) -> None:
    with one_thread():
        while book.waiting:
            key, cell = book.waiting.popleft()
            book.keep(key, cell.execute())


# --- on workers ------------------------------------------------------------------------------------------------------


def execute_task(entries: list[tuple[str, CellLike]], seconds: float) -> tuple[list[Arrays], Exception | None, float]:
    """Execute cells one after the other until the time is up, at least one.

    Returns
    -------
    results : list of dict of ndarray
        Of the first cells.
    error : Exception or None
        What the next cell raised, if it did.
    elapsed : float
        Seconds.
    """
    threadpool_limits(1)
    begin = time.monotonic()
    results: list[Arrays] = []
    for key, cell in entries:
        try:
            if cell.key() != key:
                raise LazyrichError(
                    "--scheduler", "a worker has another version of lazyrich", "install the same on all machines"
                )
            results.append(cell.execute())
        except Exception as error:
            return results, _portable(error), time.monotonic() - begin
        if time.monotonic() - begin > seconds:
            break
    return results, None, time.monotonic() - begin


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note, as something that can be pickled."""
    note = "".join(traceback.format_exception(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    if not isinstance(copy, LazyrichError):
        copy.add_note(f"on a worker:\n{note}")
    return copy


# --- the driver of a cluster -----------------------------------------------------------------------------------------


def _run_on_cluster(
    client: Client, book: _Book, scheduler: str | None, announce: Callable[[str], object] | None
) -> None:
    """Execute all that is waiting; cells that end their worker are tried once more, one at a time, and named."""
    driver = _Driver(client, book, scheduler, announce)
    try:
        driver.run(book.waiting, alone=False)
        killers = []
        while driver.suspects and len(killers) < _MOST_KILLERS:
            suspect = driver.suspects.popleft()
            driver.run(deque([suspect]), alone=True)
            if driver.suspects and driver.suspects[-1][0] == suspect[0]:
                killers.append(driver.suspects.pop())
    except BaseException:
        driver.abandon()
        raise
    if killers:
        more = f" and {len(killers) - 1} more" if len(killers) > 1 else ""
        raise LazyrichError(
            f"cell {_shown(*killers[0])}{more}",
            "ended its worker process each time it was tried",
            "it may need more memory: use fewer --workers or a smaller problem; finished cells are kept",
        )


def _shown(key: str, cell: CellLike) -> str:
    text = " ".join(repr(cell).split())
    return f"{key} ({text if len(text) <= 300 else text[:300] + '...'})"


class _Driver:
    """Sends tasks, neither too small nor too many at a time, and puts results into the book."""

    def __init__(
        self, client: Client, book: _Book, scheduler: str | None, announce: Callable[[str], object] | None
    ) -> None:
        self.client = client
        self.book = book
        self.scheduler = scheduler
        self.announce = announce
        self.suspects: deque[tuple[str, CellLike]] = deque()
        self._name = f"lazyrich-{uuid.uuid4().hex[:12]}"
        self._sent = 0
        self._per_cell: float | None = None
        self._running: dict[str, tuple[Future, list[tuple[str, CellLike]]]] = {}
        self._finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._threads = 1
        self._checked = -np.inf
        self._seen_workers = time.monotonic()
        self._told = False

    def run(self, waiting: deque[tuple[str, CellLike]], *, alone: bool) -> None:
        """Execute cells until none is waiting or running, except for suspects."""
        while waiting or self._running:
            self._check_cluster()
            while waiting and len(self._running) < (1 if alone else _TASKS_PER_THREAD * self._threads):
                size = 1 if alone else self._task_size(len(waiting))
                self._send([waiting.popleft() for _ in range(size)])
            with suppress(queue.Empty):
                future = self._finished.get(timeout=0.5)
                _, entries = self._running.pop(str(future.key))
                waiting.extendleft(reversed(self._receive(future, entries)))

    def abandon(self) -> None:
        """Keep what is finished, and take back the rest."""
        futures = [future for future, _ in self._running.values()]
        for future, entries in list(self._running.values()):
            if future.status == "finished":
                with suppress(Exception):
                    results, _, _ = future.result(timeout=5)
                    for (key, _), arrays in zip(entries, results, strict=False):
                        self.book.keep(key, arrays)
        with suppress(Exception):
            self.client.cancel(futures, force=True)

    def _task_size(self, waiting: int) -> int:
        if self._per_cell is None:
            return 1
        wanted = _TASK_SECONDS / max(self._per_cell, 1e-6)
        share = waiting // (_TASKS_PER_THREAD * self._threads)
        return int(max(1, min(wanted, share, _MOST_PER_TASK)))

    def _send(self, entries: list[tuple[str, CellLike]]) -> None:
        self._sent += 1
        name = f"{self._name}-{self._sent}"
        future = self.client.submit(execute_task, entries, _TASK_SECONDS, key=name, pure=False)
        self._running[name] = future, entries
        future.add_done_callback(self._finished.put)

    def _receive(self, future: Future, entries: list[tuple[str, CellLike]]) -> list[tuple[str, CellLike]]:
        """Keep the results of a task; gives the cells that it did not come to."""
        from distributed import KilledWorker

        if future.status == "cancelled":
            raise self._lost()
        try:
            results, error, elapsed = future.result()
        except KilledWorker:
            # one of them, or one that waited at the same worker, or chance
            self.suspects.extend(entries)
            return []
        except OSError:
            raise self._lost() from None
        except Exception as error:
            if self.scheduler is None:
                raise
            cause = error.__cause__ or error
            reason = f"its workers cannot run lazyrich's cells ({type(cause).__name__}: {cause})"
            remedy = "install the same version of lazyrich on all machines"
            raise LazyrichError(f"--scheduler {self.scheduler}", reason, remedy) from None
        for (key, _), arrays in zip(entries, results, strict=False):
            self.book.keep(key, arrays)
        if error is not None:
            raise error
        if results:
            mean = elapsed / len(results)
            self._per_cell = mean if self._per_cell is None else 0.5 * (self._per_cell + mean)
        return entries[len(results) :]

    def _check_cluster(self) -> None:
        """Once a second: how many threads there are, and whether there is anyone at all."""
        now = time.monotonic()
        if now - self._checked < 1.0:
            return
        self._checked = now
        try:
            threads = sum(cast(dict[str, int], self.client.nthreads()).values())
        except (OSError, RuntimeError):
            raise self._lost() from None
        if threads:
            self._threads = threads
            self._seen_workers = now
        elif now - self._seen_workers > 5.0 and self.scheduler is not None:
            if not self._told and self.announce is not None:
                self.announce(f"{self.scheduler} has no workers; waiting for one")
            self._told = True
        elif now - self._seen_workers > _RESTART_SECONDS and self.scheduler is None:
            remedy = "free memory or use fewer --workers; finished cells are kept"
            raise LazyrichError("--workers", "the worker processes have ended and do not start again", remedy)

    def _lost(self) -> LazyrichError:
        where = "--workers" if self.scheduler is None else f"--scheduler {self.scheduler}"
        return LazyrichError(where, "the connection to the cluster was lost", "run it again; finished cells are kept")
