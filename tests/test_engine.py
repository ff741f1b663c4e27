"""Cells on processes and clusters, and the folder of their results: what is finished survives whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

from lazyrich.errors import LazyrichError
from lazyrich.transfer.cells import Cell
from lazyrich.transfer.cluster import Workers
from lazyrich.transfer.engine import execute_task, run_cells
from lazyrich.transfer.store import ResultStore

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Work:
    """A cell for tests: leaves a file ``number.pid.time`` in `marks` when it is executed, and may misbehave."""

    number: int
    marks: str = ""
    seconds: float = 0.0
    does: str = ""
    size: int = 3

    def key(self) -> str:
        return f"key{self.number}" + (f"-{os.getpid()}" if self.does == "other version" else "")

    def execute(self) -> dict[str, np.ndarray]:
        if self.marks:
            (Path(self.marks) / f"{self.number}.{os.getpid()}.{time.monotonic_ns()}").touch()
        time.sleep(self.seconds)
        if self.does == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.does == "refuse":
            raise LazyrichError("training.steps", "too many", "take fewer")
        if self.does == "fail":
            raise ZeroDivisionError("of a cell")
        if self.does == "unpicklable":
            error = ValueError("of a cell")
            error.hook = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
            raise error
        if self.does == "algebra":
            # large enough that BLAS would share it out among threads, which changes the sums
            matrix = np.random.default_rng(self.number).normal(size=(301, 307))
            return {"product": matrix @ matrix.T @ matrix}
        if self.does == "address":
            from distributed import get_worker

            return {"address": np.array(get_worker().address), "process": np.array(os.getpid())}
        return {"values": np.arange(self.size) / (self.number + 1), "number": np.array(self.number)}


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results", "study")


def executed(marks: Path) -> Counter[int]:
    """How often each cell was executed."""
    return Counter(int(path.name.split(".")[0]) for path in marks.iterdir())


def processes(marks: Path) -> set[int]:
    return {int(path.name.split(".")[1]) for path in marks.iterdir()}


def assert_results(results: list[dict[str, np.ndarray]], numbers: list[int]) -> None:
    assert [int(result["number"]) for result in results] == numbers
    for result, number in zip(results, numbers, strict=True):
        assert result["values"].tobytes() == (np.arange(3) / (number + 1)).tobytes()
        assert result["number"].shape == ()


def stored(folder: Path) -> int:
    """Whole results in a folder; nothing else may be there."""
    names = [path.name for path in (folder / "cells").iterdir()]
    assert all(name.endswith(".npz") and not name.startswith(".") for name in names), names
    store = ResultStore(folder, "study")
    assert all(store.read(name.removesuffix(".npz")) is not None for name in names)
    return len(names)


def drive(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run code in a process of its own, which leads a group of its own."""
    preamble = (
        "import sys; from pathlib import Path; from tests.test_engine import *\n"
        "def show(done, total): print(done, flush=True)\n"
        "def report(call):\n"
        "    try: call()\n"
        "    except LazyrichError as error: print('error:', error, file=sys.stderr); sys.exit(2)\n"
        "    except KeyboardInterrupt: print('interrupted', flush=True); sys.exit(130)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", preamble + code, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_line(process: subprocess.Popen[str], wanted: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().isdigit() and int(line) >= wanted:
            return
    raise AssertionError(process.communicate())


def assert_one_line(process: subprocess.Popen[str], *words: str) -> None:
    out, err = process.communicate(timeout=40)
    assert process.returncode == 2, (out, err)
    assert err.count("\n") == 1 and err.startswith("error: "), err
    for word in words:
        assert word in err


# --- in this process -------------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_cells_and_equal_cells_are_executed_once(
    store: ResultStore, marks: Path
) -> None:
    numbers = [5, 3, 8, 3, 1, 5]
    seen: list[tuple[int, int]] = []
    results = run_cells([Work(n, str(marks)) for n in numbers], store, workers=1, progress=lambda *at: seen.append(at))
    assert_results(results, numbers)
    assert executed(marks) == {5: 1, 3: 1, 8: 1, 1: 1}
    assert processes(marks) == {os.getpid()}
    assert seen[-1] == (6, 6) and all(total == 6 for _, total in seen)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_what_is_finished_is_not_computed_again(store: ResultStore, marks: Path) -> None:
    run_cells([Work(n, str(marks)) for n in range(5)], store, workers=1)
    seen: list[int] = []
    again = ResultStore(store.folder, "study")
    results = run_cells(
        [Work(n, str(marks)) for n in range(8)], again, workers=1, progress=lambda done, _: seen.append(done)
    )
    assert_results(results, list(range(8)))
    assert executed(marks) == dict.fromkeys(range(8), 1)
    assert seen == list(range(1, 9))
    # all there: no cluster is looked for
    assert_results(run_cells([Work(3)], again, scheduler="tcp://127.0.0.1:1"), [3])


def test_no_cells(store: ResultStore) -> None:
    assert run_cells([], store) == []


def test_workers_must_be_positive(store: ResultStore) -> None:
    with pytest.raises(LazyrichError, match="--workers: 0 is not a number of processes; give 1 or more"):
        run_cells([Work(0)], store, workers=0)


def test_dask_is_loaded_only_for_a_cluster(tmp_path: Path) -> None:
    code = (
        "run_cells([Work(1)], ResultStore(Path(sys.argv[1]), 'study'), workers=1)\n"
        "print([name for name in ('dask', 'distributed', 'jax') if name in sys.modules])"
    )
    assert drive(code, tmp_path / "results").communicate(timeout=30) == ("[]\n", "")


def test_a_task_stops_when_its_time_is_up(marks: Path) -> None:
    cells = [Work(n, str(marks), seconds=0.05) for n in range(9)]
    results, error, elapsed = execute_task([(cell.key(), cell) for cell in cells], 0.12)
    assert error is None and 0.12 < elapsed < 2
    assert 1 <= len(results) <= 3 == max(3, len(executed(marks)))
    assert_results(results, list(range(len(results))))
    # and does one cell in any case
    assert len(execute_task([(cell.key(), cell) for cell in cells], 0.0)[0]) == 1


# --- processes -------------------------------------------------------------------------------------------------------


def test_two_processes_over_tcp_give_the_bits_of_one(tmp_path: Path, marks: Path) -> None:
    problem = {
        "network": {"width": 60, "blocks": 1},
        "data": {"kind": "gaussian", "dimension": 50, "samples": 80},
        "training": {"steps": 8, "learning_rate": 0.05},
    }
    cells = [
        *(Work(n, str(marks), does="algebra") for n in range(40)),
        Cell("theory", problem, (0.02, 0.1), (2, 7), "test", 0),
        Cell("training", problem, (0.02, 0.1), (2, 7), "test", 2),
    ]
    one = run_cells(cells, ResultStore(tmp_path / "one", "study"), workers=1)
    assert processes(marks) == {os.getpid()}
    environment = dict(os.environ)
    with_two = ResultStore(tmp_path / "two", "study")
    two = run_cells(cells, with_two, workers=2)
    assert len(processes(marks)) == 3
    assert dict(os.environ) == environment
    for first, second in zip(one, two, strict=True):
        assert first.keys() == second.keys()
        for name in first.keys() - {"seconds"}:
            assert first[name].dtype == second[name].dtype and first[name].shape == second[name].shape
            assert first[name].tobytes() == second[name].tobytes()
            assert second[name].flags.writeable
    for path in (tmp_path / "one/cells").glob("key*.npz"):
        assert path.read_bytes() == (tmp_path / "two/cells" / path.name).read_bytes()

    addresses = run_cells([Work(100 + n, seconds=0.2, does="address") for n in range(4)], with_two, workers=2)
    assert all(str(result["address"]).startswith("tcp://127.0.0.1:") for result in addresses)
    # none of them outlives the call
    assert not any(psutil.pid_exists(int(result["process"])) for result in addresses)


def test_processes_are_lent_to_one_call_after_the_other(store: ResultStore) -> None:
    said: list[str] = []

    def run(numbers: range) -> list[int]:
        cells = [Work(n, seconds=0.3, does="address") for n in numbers]
        return [int(each["process"]) for each in run_cells(cells, store, workers=lent, announce=said.append)]

    before = psutil.Process().children(recursive=True)
    with Workers(2) as lent:
        assert run(range(0)) == [] and psutil.Process().children(recursive=True) == before  # nothing to do
        (first,) = run(range(1))
        others = run(range(1, 21))  # those that are added start while the first one works
        assert len(set(others)) == 2 and first in others
        (last,) = run(range(21, 22))
        assert last in others
    assert not any(psutil.pid_exists(process) for process in others)
    assert len(said) <= 1  # the dashboard's link, where there is a dashboard


def test_a_worker_that_is_killed_loses_nothing(store: ResultStore, marks: Path) -> None:
    killed: set[int] = set()

    def kill(done: int, _: int) -> None:
        if done in (10, 40):
            victim = min(pid for pid in processes(marks) - killed if psutil.pid_exists(pid))
            killed.add(victim)
            os.kill(victim, signal.SIGKILL)

    results = run_cells([Work(n, str(marks), seconds=0.03) for n in range(80)], store, workers=2, progress=kill)
    assert len(killed) == 2
    assert_results(results, list(range(80)))
    assert set(executed(marks)) == set(range(80))
    assert stored(store.folder) == 80


def test_a_cell_that_ends_its_worker_is_named_after_all_others_are_kept(store: ResultStore) -> None:
    cells = [Work(n, does="die" if n == 7 else "") for n in range(30)]
    with pytest.raises(
        LazyrichError, match=r"^cell key7 \(Work\(number=7.*ended its worker process each time"
    ) as caught:
        run_cells(cells, store, workers=2)
    assert "\n" not in str(caught.value)
    assert stored(store.folder) == 29


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_cell_is_raised_as_it_is(tmp_path: Path, workers: int) -> None:
    store = ResultStore(tmp_path / "results", "study")
    cells = [Work(n, does="refuse" if n == 5 else "") for n in range(10)]
    with pytest.raises(LazyrichError, match=r"^training.steps: too many; take fewer$"):
        run_cells(cells, store, workers=workers)
    # two workers have two tasks each: up to three earlier cells are still on their way
    assert stored(store.folder) >= (5 if workers == 1 else 2)
    kinds = {"fail": ZeroDivisionError, "unpicklable": ValueError if workers == 1 else RuntimeError}
    if workers == 2:
        kinds = {"unpicklable": RuntimeError}
    for number, (does, kind) in enumerate(kinds.items(), start=20):
        with pytest.raises(kind, match="of a cell"):
            run_cells([Work(number, does=does)], store, workers=workers)


def test_an_error_of_a_worker_keeps_its_kind_and_place() -> None:
    cells = [Work(0), Work(1, does="fail"), Work(2)]
    results, error, _ = execute_task([(cell.key(), cell) for cell in cells], 10.0)
    assert_results(results, [0])
    assert isinstance(error, ZeroDivisionError) and "in execute" in error.__notes__[0]


# --- interruptions ---------------------------------------------------------------------------------------------------

SLOW = "report(lambda: run_cells([Work(n, sys.argv[2], 0.03) for n in range(100)], ResultStore(Path(sys.argv[1]), 'study'), workers=2, progress=show))"  # noqa: E501


def test_a_driver_that_is_killed_is_continued(tmp_path: Path, marks: Path) -> None:
    folder = tmp_path / "results"
    driver = drive(SLOW, folder, marks)
    wait_for_line(driver, 20)
    driver.kill()
    driver.communicate(timeout=20)
    workers = processes(marks)
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(pid) for pid in workers):
        assert time.monotonic() < deadline, "its workers go on without it"
        time.sleep(0.1)
    for path in (folder / "cells").glob(".*"):  # of the write that was under way, if one was
        path.unlink()
    finished = {int(path.stem.removeprefix("key")) for path in (folder / "cells").iterdir()}
    assert 20 <= len(finished) < 100
    before = executed(marks)
    results = run_cells([Work(n, str(marks)) for n in range(100)], ResultStore(folder, "study"), workers=1)
    assert_results(results, list(range(100)))
    again = executed(marks) - before
    assert set(again) == set(range(100)) - finished and set(again.values()) == {1}


@pytest.mark.parametrize("moment", ["while it starts", "while it works"])
def test_ctrl_c_ends_all_processes_and_keeps_what_is_finished(tmp_path: Path, marks: Path, moment: str) -> None:
    folder = tmp_path / "results"
    driver = drive(SLOW, folder, marks)
    if moment == "while it works":
        wait_for_line(driver, 20)
    else:
        deadline = time.monotonic() + 20
        while len(children := psutil.Process(driver.pid).children()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert children
    children = psutil.Process(driver.pid).children(recursive=True)
    os.killpg(driver.pid, signal.SIGINT)
    begin = time.monotonic()
    out, err = driver.communicate(timeout=30)
    assert time.monotonic() - begin < 10
    assert (driver.returncode, err) == (130, ""), (out, err)
    assert out.endswith("interrupted\n")
    assert stored(folder) >= (20 if moment == "while it works" else 0)
    psutil.wait_procs(children, timeout=5)
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_ctrl_c_between_two_calls_ends_the_processes_that_are_lent(tmp_path: Path) -> None:
    code = (
        "def spawned(): return sum('spawn_main' in ' '.join(c.cmdline()) for c in psutil.Process().children(True))\n"
        "try:\n"
        "    with Workers(2) as lent:\n"
        "        run_cells([Work(n) for n in range(2)], ResultStore(Path(sys.argv[1]), 'study'), workers=lent)\n"
        "        print(spawned(), flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt: print(spawned(), flush=True)"  # not only because this process ends
    )
    driver = drive(code, tmp_path / "results")
    wait_for_line(driver, 2)
    os.killpg(driver.pid, signal.SIGINT)
    assert driver.communicate(timeout=30) == ("0\n", "")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_in_one_line_and_is_continued(tmp_path: Path, workers: int) -> None:
    folder = tmp_path / "results"
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "cells = [Work(n, size=10_000 if n == 6 else 3) for n in range(10)]\n"
        "report(lambda: run_cells(cells, ResultStore(Path(sys.argv[1]), 'study'), workers=int(sys.argv[2])))"
    )
    assert_one_line(drive(code, folder, workers), str(folder), "cannot be written (File too large)", "free space")
    # two workers: the other one may have been on its way with what comes before
    assert (6 if workers == 1 else 1) <= stored(folder) < 10
    cells = [Work(n, size=10_000 if n == 6 else 3) for n in range(10)]
    results = run_cells(cells, ResultStore(folder, "study"), workers=1)
    assert [int(result["number"]) for result in results] == list(range(10))
    assert stored(folder) == 10


# --- the cluster of someone else -------------------------------------------------------------------------------------


@pytest.fixture
def cluster():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address=None,  # pyright: ignore[reportArgumentType]
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    ) as cluster:
        yield cluster


def test_a_cluster_by_its_address(cluster, store: ResultStore, marks: Path) -> None:
    numbers = [*range(50), 3]
    results = run_cells([Work(n, str(marks)) for n in numbers], store, scheduler=cluster.scheduler_address)
    assert_results(results, numbers)
    assert executed(marks) == dict.fromkeys(range(50), 1)
    assert stored(store.folder) == 50
    # the cluster is still there for the next, and is asked for what is new alone
    results = run_cells([Work(n, str(marks)) for n in range(60)], store, scheduler=cluster.scheduler_address)
    assert_results(results, list(range(60)))
    assert executed(marks) == dict.fromkeys(range(60), 1)


def test_a_cluster_that_goes_away(cluster, store: ResultStore) -> None:
    def close(done: int, _: int) -> None:
        if done == 10:
            cluster.close()

    with pytest.raises(LazyrichError, match="the connection to the cluster was lost; run it again; finished cells"):
        run_cells(
            [Work(n, seconds=0.02) for n in range(400)], store, scheduler=cluster.scheduler_address, progress=close
        )
    assert stored(store.folder) >= 10


def test_a_worker_of_another_version(store: ResultStore) -> None:
    with pytest.raises(LazyrichError, match="a worker has another version of lazyrich; install the same"):
        run_cells([Work(n, does="other version") for n in range(3)], store, workers=2)
    assert stored(store.folder) == 0


def test_a_scheduler_that_does_not_answer(tmp_path: Path) -> None:
    code = "report(lambda: run_cells([Work(1)], ResultStore(Path(sys.argv[1]), 'study'), scheduler=sys.argv[2]))"
    with socket.socket() as silent, socket.socket() as closed:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        closed.bind(("127.0.0.1", 0))  # and does not listen
        begin = time.monotonic()
        drivers = {}
        for server in (silent, closed):
            address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
            drivers[address] = drive(code, tmp_path / "results", address)
        for address, driver in drivers.items():
            assert_one_line(driver, f"--scheduler {address}: does not answer; start a cluster there")
        assert time.monotonic() - begin < 15
    assert stored(tmp_path / "results") == 0


@pytest.mark.parametrize("address", ["", "127.0.0.1", "tcp://", "nonsense://127.0.0.1:80", "tls://127.0.0.1:80"])
def test_an_address_that_is_none(store: ResultStore, address: str) -> None:
    with pytest.raises(LazyrichError, match=r"^--scheduler .*: cannot be used .*; give tcp://HOST:PORT") as caught:
        run_cells([Work(1)], store, scheduler=address)
    assert "\n" not in str(caught.value)


# --- the folder ------------------------------------------------------------------------------------------------------


def test_arrays_come_back_bit_for_bit(store: ResultStore) -> None:
    arrays = {
        "file": np.array([[1.0, np.nan], [-0.0, np.inf]]),
        "allow_pickle": np.array(3),
        "empty": np.zeros((0, 4), dtype="f4"),
        "flags": np.array([True, False]),
        "text": np.array(["a", "βγ"]),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    }
    store.write("key", arrays)
    back = store.read("key")
    assert back is not None and back.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == array.tobytes()
    content = store.path("key").read_bytes()
    store.write("key", arrays)
    assert store.path("key").read_bytes() == content
    assert store.read("another") is None and store.damaged == 0


def test_objects_are_not_stored(store: ResultStore) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        store.write("key", {"value": np.array([object()])})
    assert stored(store.folder) == 0


@pytest.mark.parametrize("damage", ["empty", "truncated", "one bit", "of another cell", "no header", "a folder"])
def test_a_damaged_result_is_computed_again(store: ResultStore, marks: Path, damage: str) -> None:
    cells = [Work(n, str(marks)) for n in range(3)]
    run_cells(cells, store, workers=1)
    path = store.path("key1")
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    contents = {
        "empty": b"",
        "truncated": content[:-1],
        "one bit": bytes(flipped),
        "of another cell": store.path("key2").read_bytes(),
        "no header": content.split(b"\n", 1)[1],
    }
    if damage == "a folder":
        path.unlink()
        path.mkdir()
        assert store.read("key1") is None and store.damaged == 1
        return
    path.write_bytes(contents[damage])
    again = ResultStore(store.folder, "study")
    assert_results(run_cells(cells, again, workers=1), [0, 1, 2])
    assert again.damaged == 1
    assert executed(marks) == {0: 1, 1: 2, 2: 1}
    assert path.read_bytes() == content


def test_a_folder_belongs_to_one_study(store: ResultStore) -> None:
    with pytest.raises(LazyrichError) as caught:
        ResultStore(store.folder, "another")
    assert str(caught.value) == (
        f"{store.folder}: holds results of study 'study', not 'another'; give another --results folder, or remove it"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"notes.txt": b"mine"}, "holds other files than results"),
        ({"study.json": b""}, "its study.json cannot be read"),
        ({"study.json": b"\xff{"}, "its study.json cannot be read"),
        ({"study.json": b"[1]"}, "its study.json cannot be read"),
        ({"study.json": b'{"format": "results 0", "study": "study"}'}, "has format 'results 0'"),
    ],
)
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, content: dict[str, bytes], words: str) -> None:
    for name, text in content.items():
        (tmp_path / name).write_bytes(text)
    with pytest.raises(LazyrichError, match=words) as caught:
        ResultStore(tmp_path, "study")
    assert str(caught.value).endswith("; give another --results folder, or remove it")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == content


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(LazyrichError, match="is not a folder"):
        ResultStore(tmp_path / "results", "study")
    with pytest.raises(LazyrichError, match=r"cannot be written \(Not a directory\)"):
        ResultStore(tmp_path / "results" / "inside", "study")


def test_what_a_killed_run_leaves_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".study.json.abc").touch()
    store = ResultStore(tmp_path, "study")
    old, new = store.folder / "cells/.key1.1.abc", store.folder / "cells/.key2.1.abc"
    for path in (old, new):
        path.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    ResultStore(tmp_path, "study")
    # the new one may be of a run that goes on
    assert new.exists() and not old.exists()
