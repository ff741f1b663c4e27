"""Where cells are executed: this process with one thread, processes of its own, or a Dask cluster of someone else's."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, cast

from threadpoolctl import threadpool_limits

from lazyrich.errors import LazyrichError

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

_CONNECT_SECONDS = 10.0

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


@contextmanager
def one_thread() -> Iterator[None]:
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
def local_cluster(processes: int, announce: Callable[[str], object] | None) -> Iterator[Client]:
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
        for context in (_quiet(), one_thread(), dask_config.set(config)):
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


class Workers:
    """Processes on this machine: started when first needed, no more than there is work for, ended with the block.

    Parameters
    ----------
    most : int, optional
        1 stands for this process itself. Default: one for each core.

    Raises
    ------
    LazyrichError
        For a number below 1.
    """

    def __init__(self, most: int | None = None) -> None:
        if most is not None and most < 1:
            raise LazyrichError("--workers", f"{most} is not a number of processes", "give 1 or more")
        self._most = most
        self._stack = ExitStack()
        self._client: Client | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        return self._stack.__exit__(*raised)

    @property
    def most(self) -> int:
        """How many there may be."""
        if self._most is None:
            from dask.system import CPU_COUNT

            self._most = CPU_COUNT
        return self._most

    def client(self, cells: int, announce: Callable[[str], object] | None) -> Client:
        """A client of the processes, of which there are enough for so many cells."""
        wanted = min(self.most, cells)
        if self._client is None:
            self._client = self._stack.enter_context(local_cluster(wanted, announce))
        cluster = cast("LocalCluster", self._client.cluster)
        if wanted > len(cluster.worker_spec):
            cluster.scale(wanted)
        return self._client


def _end_workers(cluster: LocalCluster) -> None:
    """End the processes at once, where closing the cluster would wait for their cells."""
    for nanny in list(cluster.workers.values()):
        nanny.auto_restart = False
        with suppress(OSError, TypeError, AttributeError):
            os.kill(nanny.pid, signal.SIGKILL)


@contextmanager
def connected(scheduler: str) -> Iterator[Client]:
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
