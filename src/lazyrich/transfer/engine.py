"""Cells to results: in this process, on this machine's cores, or on a Dask cluster; what is finished is kept."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import queue
import signal
import threading
import time
import traceback
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from threadpoolctl import threadpool_limits

from lazyrich.errors import LazyrichError
from lazyrich.transfer.store import ResultStore

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster

# A task holds so many small cells that it takes this long, in seconds; a long cell is a task of its own.
_TASK_SECONDS = 0.25
_MOST_PER_TASK = 64
# Tasks at the cluster per worker thread: one that runs and one that waits.
_TASKS_PER_THREAD = 2
_CONNECT_SECONDS = 10.0
# A worker that starts again needs some seconds; where none has come back after so many, none will.
_RESTART_SECONDS = 60.0
# Cells that end their worker; after so many something else is wrong.
_MOST_KILLERS = 5

# Cells are spread over processes, so each has one thread. It also makes sums independent of the number of cores.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "NPROC": "1",  # XLA's thread pools
}
_ONE_XLA_THREAD = "--xla_cpu_multi_thread_eigen=false"

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
    workers: int | None = None,
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
    workers : int, optional
        Processes on this machine; 1 works in this process. Default: one for each core.
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
    if workers is not None and workers < 1:
        raise LazyrichError("--workers", f"{workers} is not a number of processes", "give 1 or more")
    book = _Book(cells, store, progress)
    if not book.waiting:
        return book.results()
    with ExitStack() as stack:
        if scheduler is not None:
            client = stack.enter_context(_connected(scheduler))
            _run_on_cluster(client, book, scheduler, announce)
        elif (processes := workers or _cores()) == 1:
            _run_here(book)
        else:
            client = stack.enter_context(_local_cluster(min(processes, len(book.waiting)), announce))
            _run_on_cluster(client, book, None, announce)
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


def _cores() -> int:
    from dask.system import CPU_COUNT

    return CPU_COUNT


@contextmanager
def _one_thread() -> Iterator[None]:
    """Environment in which libraries that are loaded, and processes that start, use one thread each."""
    before = dict(os.environ)
    flags = before.get("XLA_FLAGS", "")
    os.environ.update(_ONE_THREAD, XLA_FLAGS=f"{flags} {_ONE_XLA_THREAD}".strip())
    try:
        with threadpool_limits(1):
            yield
    finally:
        # also takes back what Dask sets for its workers
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _run_here(book: _Book) -> None:
    with _one_thread():
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the log of Dask, whose contents reach the user as errors where they matter."""
    import distributed  # noqa: F401  # sets levels when it is loaded

    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in ("distributed", "tornado")]
    loggers = [logging.getLogger(name) for name in [*names, "asyncio"]]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Ctrl-C takes effect at the end; threads and processes that start meanwhile never see it.

    A terminal sends it to all processes. The driver alone decides what then happens to its workers.
    """
    # it would let the signal in again for the thread that starts it
    resource_tracker.ensure_running()
    seen = []
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(True)) if in_main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main:
            signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        if seen:
            raise KeyboardInterrupt


@contextmanager
def _local_cluster(processes: int, announce: Callable[[str], object] | None) -> Iterator[Client]:
    """A cluster of processes that end with this one."""
    from importlib.util import find_spec

    from dask import config as dask_config
    from distributed import Client, LocalCluster
    from distributed.security import Security

    dashboard = find_spec("bokeh") is not None
    config = {
        "distributed.worker.multiprocessing-method": "spawn",
        "distributed.scheduler.worker-ttl": None,  # a cell may hold on to the interpreter for long
        "distributed.admin.tick.limit": "1h",
        "logging": {"distributed": "critical"},
    }
    environment = {"DASK_LOGGING__DISTRIBUTED": "critical", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with ExitStack() as stack:
        for context in (_quiet(), _one_thread(), dask_config.set(config)):
            stack.enter_context(context)
        os.environ.update(environment)
        try:
            with _interrupt_held_back():
                cluster = LocalCluster(
                    n_workers=processes,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    protocol="tcp://",
                    security=Security(require_encryption=False),
                    silence_logs=logging.CRITICAL,
                    memory_limit=None,
                    # without dashboard too Dask has a small web server, by default at a fixed port
                    scheduler_kwargs={
                        "allowed_failures": 1,
                        "dashboard": dashboard,
                        "dashboard_address": "127.0.0.1:0",
                    },
                )
                client = stack.enter_context(Client(stack.enter_context(cluster), set_as_default=False))
        except (OSError, RuntimeError) as error:
            what = f"the processes do not start ({error})"
            remedy = "use --workers 1; in a script, call it under `if __name__ == '__main__':`"
            raise LazyrichError("--workers", what, remedy) from None
        if dashboard and announce is not None:
            announce(f"dashboard: {cluster.dashboard_link}")
        try:
            yield client
        except BaseException:
            _end_workers(cluster)
            raise
        finally:
            with _interrupt_held_back():  # for someone who presses it twice
                client.close()
                cluster.close()


def _end_workers(cluster: LocalCluster) -> None:
    """End the processes at once, where closing the cluster would wait for their cells."""
    for nanny in list(cluster.workers.values()):
        nanny.auto_restart = False
        with suppress(OSError, TypeError, AttributeError):
            os.kill(nanny.pid, signal.SIGKILL)


@contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    """A client of a cluster that someone else has started."""
    from distributed import Client
    from distributed.comm.core import FatalCommClosedError

    with _quiet():
        try:
            # Dask waits without end for a server that accepts and stays silent, except where one can cancel it
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, _greet(scheduler)).result()
            client = Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)
        except OSError as error:  # includes time that ran out
            if isinstance(error, FatalCommClosedError):
                remedy = "check the address and Dask's distributed.comm.tls"
                what = f"refuses the connection ({str(error) or 'encryption that does not fit'})"
                raise LazyrichError(f"--scheduler {scheduler}", what, remedy) from None
            remedy = "start a cluster there with `dask scheduler` and `dask worker`, or correct the address"
            raise LazyrichError(f"--scheduler {scheduler}", "does not answer", remedy) from None
        except Exception as error:
            what = f"cannot be used ({str(error) or type(error).__name__})"
            remedy = "give tcp://HOST:PORT, or tls://HOST:PORT with Dask's distributed.comm.tls configured"
            raise LazyrichError(f"--scheduler {scheduler}", what, remedy) from None
        with client:
            yield client


async def _greet(scheduler: str) -> None:
    from distributed import Client

    client = Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False, asynchronous=True)
    try:
        await asyncio.wait_for(client, _CONNECT_SECONDS)
    finally:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(cast(Coroutine, client.close()), 2)


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
