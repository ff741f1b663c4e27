"""The explorer without a browser: settings, links, problem files, what is drawn, uploads, background work."""

from __future__ import annotations

import asyncio
import io
import json
import math
import socket
import subprocess
import sys
import threading
import tomllib
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyrich
from lazyrich import LazyrichError
from lazyrich.explorer import depth, linear, two_layer
from lazyrich.explorer.settings import Choice, Number, Text, defaults, read_query, write_query
from lazyrich.explorer.toml import problem_file
from lazyrich.explorer.training import train_until
from lazyrich.explorer.uploads import LARGEST_FILE, Uploads
from lazyrich.problem.files import study_kind
from lazyrich.problem.rules import classify

PAGES = {"linear": linear, "two-layer": two_layer, "depth": depth}


def values_of(module):
    """Any values that the controls of a page can have."""

    def of(setting):
        if isinstance(setting, Number):
            return st.integers(0, setting.positions).map(setting.at)
        if isinstance(setting, Choice):
            return st.sampled_from(sorted(setting.options))
        return st.just(setting.default)

    return st.fixed_dictionaries({setting.name: of(setting) for setting in module.SETTINGS})


# ---- Settings and links ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_link_restores_every_value_that_matters(name, data):
    module = PAGES[name]
    values = data.draw(values_of(module))
    restored, errors = read_query(module.SETTINGS, write_query(module.SETTINGS, values))
    assert not errors
    for setting in module.SETTINGS:
        assert restored[setting.name] == values[setting.name] or not setting.shown(values)


def test_a_link_holds_only_what_differs():
    assert write_query(linear.SETTINGS, linear.DEFAULTS) == ""
    values = linear.DEFAULTS | {"width": math.inf, "richness": 0.123456789, "warmup": 7}
    # warm-up steps mean nothing without their schedule
    assert write_query(linear.SETTINGS, values) == "width=inf&richness=0.123456789"
    assert read_query(linear.SETTINGS, "width=inf&richness=0.123456789")[0] == values | {"warmup": 10}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("wdth=3", "link: unknown setting 'wdth'; did you mean width?"),
        ("richness=-1", "link: richness: -1 is out of range; stay between 0.02 and 20"),
        ("richness=nan", "link: richness: nan is out of range; stay between 0.02 and 20"),
        ("blocks=1.5", "link: blocks: 1.5 is not a whole number; give a whole number"),
        ("width=many", "link: width: 'many' is not a number; give a number"),
        ("mode=<script>", "link: mode: '<script>' is not known; choose one of full-batch, online, population"),
        ("kept=" + "x" * 2000, "link: kept: 2000 characters are too many; give up to 1000"),
        ("&".join(["width=9"] * 101), "link: has too many parts; copy it again from the page"),
    ],
)
def test_a_bad_link_gives_its_default_and_one_line(query, message):
    values, errors = read_query(linear.SETTINGS, query)
    assert [str(error) for error in errors] == [message]
    assert values == linear.DEFAULTS


@pytest.mark.parametrize("name", PAGES)
def test_sliders_reach_their_ends_and_the_default(name):
    for setting in PAGES[name].SETTINGS:
        if isinstance(setting, Number):
            assert setting.at(0) == pytest.approx(setting.low, rel=5e-3, abs=1e-12)  # three digits are kept
            assert setting.at(setting.positions) == pytest.approx(setting.high, rel=5e-3)
            steps = [setting.at(position) for position in range(setting.positions + 1)]
            assert steps == sorted(steps)
            assert setting.read(setting.write(setting.default)) == setting.default
            assert (
                abs(setting.position(setting.default) - setting.position(steps[setting.position(setting.default)])) < 1
            )


# ---- Problems and their files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "two-layer", "depth"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_problem_file_reads_as_the_same_problem(name, data):
    module = PAGES[name]
    values = data.draw(values_of(module))
    try:
        problem = module.problem_of(values)
    except LazyrichError as error:
        # the only contradictions that sliders can make
        assert error.where in ("data.path", "training.mode", "training.warmup", "network.beta0", "optimizer"), error
        return
    text = problem_file(problem.to_dict(), "of a test")
    tables = tomllib.loads(text)
    assert study_kind(tables).kind(**tables) == problem


def test_texts_in_a_problem_file_are_escaped():
    text = 'a "quoted" \\ name\x7f\nülñ.csv'
    tables = {"data": {"path": text, "classes": ["a\tb", 1, 2.5, True], "x": {"network.width": [math.inf, 8]}}}
    assert tomllib.loads(problem_file(tables, "two\nlines")) == tables


def test_files_of_views_reproduce_them_on_the_command_line(tmp_path):
    """What the page of linear networks writes for its views is a study with the same answer."""
    from lazyrich.transfer.theory_work import losses_by_theory

    values = linear.DEFAULTS | {"steps": 20, "view": "rates"}
    problem = linear.problem_of(values)
    *_, curves = linear.rate_curves(problem)
    assert [curve.width for curve in curves] == linear.sweep_widths(problem) == [64, 256, 1024]
    for curve in curves:
        sized = problem.with_values({"network.width": curve.width})
        expected = losses_by_theory(sized, list(curve.rates), [19], "test")["losses"][:, 0, 0]
        np.testing.assert_array_equal(curve.losses, expected)  # the same solver on the same numbers
        assert curve.optimum.best_rate > 0
    assert "multiplied by" in linear.sweep_summary(curves)


# ---- What is drawn ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mode": "online", "momentum": 0.5, "schedule": "cosine", "skip": 1.0, "branches": "beta0"},
        {"mode": "population", "data": "power-law", "width": math.inf, "schedule": "warmup-cosine"},
        {"data": "digits", "steps": 30, "parametrization": "ntk", "rate": 0.003},
        {"data": "digits", "steps": 20, "classes": "0, 1, 2", "test_fraction": 0.25},
    ],
)
def test_curves_and_kernels_are_those_of_predict(changes):
    problem = linear.problem_of(linear.DEFAULTS | {"steps": 40} | changes)
    predicted = lazyrich.predict(problem)
    curves = linear.curves_of(problem)
    np.testing.assert_array_equal(curves.losses["train_loss"], predicted.train_loss)
    assert ("test_loss" in curves.losses) == (predicted.test_loss is not None)
    if predicted.test_loss is not None:
        np.testing.assert_array_equal(curves.losses["test_loss"], predicted.test_loss)
    assert set(curves.accuracies) == {name for name in ("train_accuracy", "test_accuracy") if name in predicted.data}
    for name, accuracy in curves.accuracies.items():
        np.testing.assert_array_equal(accuracy, predicted.data[name].values)
    kernels = linear.kernels_of(problem, 1)
    whole = predicted.data["feature_kernel"].isel(level=1, output=0, output_prime=0).values
    np.testing.assert_array_equal(kernels.feature, whole)
    assert f"{predicted.train_loss[-1]:.4g}" in curves.summary()


def test_kernels_of_long_trainings_are_thinned_out():
    kernels = linear.kernels_of(linear.problem_of(linear.DEFAULTS | {"steps": 200}), 8)  # level 8 of 2: the last
    assert kernels.level == 2
    assert kernels.feature.shape == kernels.gradient.shape == (120, 120)
    assert kernels.steps[[0, -1]].tolist() == [0, 199]


def test_divergence_is_an_outcome_and_what_is_too_large_an_error():
    curves = linear.curves_of(linear.problem_of(linear.DEFAULTS | {"rate": 5.0}))
    assert curves.outcome.kind == "diverged"
    assert np.isnan(curves.losses["train_loss"][curves.outcome.step :]).all()
    assert f"diverged at step {curves.outcome.step}; lower the learning rate" in curves.summary()
    ten = linear.problem_of(linear.DEFAULTS | {"data": "digits", "classes": "0,1,2,3,4,5,6,7,8,9", "steps": 400})
    with pytest.raises(LazyrichError, match=r"steps: 400 steps of 10 outputs .* reduce them to 120 steps"):
        linear.curves_of(ten)


def test_where_all_rates_diverge_there_is_no_best_one():
    curves = [
        linear.RateCurve(8.0, np.array([1.0, 2.0]), np.full(2, np.nan), linear.find_optimum([1, 2], [np.nan] * 2))
    ]
    assert linear.sweep_summary(curves) == "At these widths all rates diverged."


def test_kept_curve_is_a_problem_of_its_own():
    values = linear.DEFAULTS | {"richness": 4.0, "kept": "richness=0.1&width=64"}
    kept = linear.kept_values(values)
    assert (kept["richness"], kept["width"], kept["kept"]) == (0.1, 64, "")


def test_two_layer_run_is_that_of_the_library():
    values = defaults(two_layer.SETTINGS) | {"steps": 200}
    run = two_layer.run_of(two_layer.problem_of(values))
    expected = lazyrich.two_layer(two_layer.problem_of(values))
    _, spectrum, active = run.spectrum
    np.testing.assert_array_equal(spectrum, expected.data["singular_values"].values[:, :12])
    assert (active == (spectrum > expected.statistics["threshold"])).all()
    halves, heights = run.half_times
    # lazy modes grow together, active ones are learned at their own times: seen and predicted agree to a few steps,
    # as the predictions are of gradient flow (measured: 1.5 steps of 40 to 80)
    seen = expected.data["half_time"].values / expected.statistics["learning_rate"]
    np.testing.assert_allclose(halves[:3], seen[:3], atol=4)
    assert len(halves) == len(heights)
    assert run.signal == 3
    assert f"at step {expected.statistics['best_step']}" in run.summary()


def test_diagram_fills_up_and_agrees_with_the_theory_s_border():
    problem = two_layer.problem_of(defaults(two_layer.SETTINGS) | {"dimension": 16, "noise": 1.0})
    calls = []

    def measure(point):
        calls.append((point.network.variance.exponent, point.network.exponent))
        return 1.0 if sum(calls[-1]) > 1.0 else 0.1  # s0 = d^(g_s + g_w)

    diagrams = list(two_layer.diagram_of(problem, measure))
    assert len(set(calls)) == len(calls) == 13 * 13
    known = [int(np.isfinite(diagram.error).sum()) for diagram in diagrams]
    assert known == sorted(known) and known[-1] == 169
    # coarse points come first: the first fifteen spread over the whole plane
    first = np.array(calls[:16])
    assert np.ptp(first[:, 0]) == 3.0 and np.ptp(first[:, 1]) == pytest.approx(2.8)
    assert np.isfinite(diagrams[0].filled()).all()
    last = diagrams[-1]
    sums = last.variance[None, :] + last.width[:, None]
    np.testing.assert_array_equal(last.error, np.where(sums > 1.0, 1.0, 0.1))
    border = last.lines["s0 = a: lazy above, active below"]
    size = lazyrich.two_layer(problem).statistics["target_size"]
    np.testing.assert_allclose(16.0 ** border.sum(axis=1), size)


def test_a_point_of_the_diagram_is_the_best_error_of_its_run():
    problem = two_layer.problem_of(defaults(two_layer.SETTINGS) | {"dimension": 16, "steps": 200})
    best = lazyrich.two_layer(problem).statistics["best_test_error"]
    assert two_layer.best_error(problem) == pytest.approx(best, rel=1e-12)


def test_plane_of_rules_is_classify_s():
    plane = depth.plane()
    names = list(depth.AREAS)
    rows, columns = plane.areas.shape
    for row, column in [(0, 0), (rows - 1, 0), (rows - 1, columns - 1), (rows // 2, columns // 2)]:
        alpha, gamma = (column + 0.5) / 40, -0.5 + (row + 0.25) / 40
        assert names[plane.areas[row, column]] == classify(alpha, gamma).name
    assert plane.lines["feature learning, diverse"].tolist() == [[0.5, 0.5]]
    redundant = plane.lines["feature learning, redundant"]
    assert redundant[:, 0].min() == pytest.approx(0.505) and redundant[:, 0].max() == pytest.approx(1.0)
    assert plane.named[(1.0, 0.0)] == "ODE, CompleteP"


def test_rules_of_the_depth_page_are_the_command_s(capsys, monkeypatch):
    values = defaults(depth.SETTINGS) | {"alpha": 0.75, "gamma": 0.25}
    assert depth.summary_of(values).startswith("alpha = 0.75, gamma = 0.25: feature learning, redundant.")
    from lazyrich import cli

    monkeypatch.setattr(sys, "argv", [*depth.command_of(values).split(), "--json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0
    assert json.loads(capsys.readouterr().out)["rows"] == depth.report_of(values)["rows"]
    depths, sizes = depth.growth_of(values)
    start, change, _ = sizes.values()
    assert change[-1] == 1.0  # alpha + gamma = 1: features change as much at any depth
    assert start[-1] == pytest.approx(depths[-1] ** -0.25)


def test_networks_of_the_depth_page_follow_the_rule():
    values = defaults(depth.SETTINGS) | {"alpha": 1.0, "gamma": 0.25, "base_depth": 4, "depth": 16, "steps": 10}
    tuned, deeper = depth.trained_problems(values)
    assert (tuned.network.blocks, deeper.network.blocks) == (4, 16)
    assert tuned.rules()["block"].multiplier == 1.0 and deeper.rules()["block"].multiplier == pytest.approx(4**-1.0)
    # the table of the page, for networks of one width, says the same
    table = depth.report_of(values | {"width": 64, "base_width": 64})
    row = dict(zip(table["columns"], next(row for row in table["rows"] if row[0] == "block"), strict=True))
    for column, factor in (("multiplier", "multiplier"), ("learning rate", "learning_rate")):
        assert float(row[column]) == pytest.approx(getattr(deeper.rules()["block"], factor), rel=1e-5), column
    trained = [lazyrich.train(problem, 2) for problem in (tuned, deeper)]
    columns = depth.trained_table(trained)
    assert sorted(set(columns["blocks"])) == [4, 16]
    np.testing.assert_array_equal(columns["train_loss"][columns["blocks"] == 16], trained[1].train_loss)
    assert len(depth.plot_plane(values, trained).axes) == 3
    with pytest.raises(LazyrichError, match=r"^training: needs 2\.1 times what the explorer trains; reduce blocks"):
        depth.trained_problems(values | {"depth": 4096, "trained_width": 58, "steps": 60})
    with pytest.raises(
        LazyrichError, match=r"^optimizer: 'muon' has a rule, but trains no networks here; choose one of sgd"
    ):
        depth.problem_of(values | {"optimizer": "muon"})


# ---- Uploads ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def uploads():
    made = Uploads()
    yield made
    made.close()


def archive(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def test_an_upload_is_read_like_any_file(uploads, tmp_path):
    text = "a,b,y\n1,2,1\n2,1,3\n0,5,2\n"
    key = uploads.add("measurements.csv", text.encode())
    values = linear.DEFAULTS | {"data": "file", "file": key, "target": "y", "steps": 10}
    uploaded = linear.curves_of(linear.problem_of(values, uploads.path(key)))
    (tmp_path / "own.csv").write_text(text)
    own = lazyrich.Problem(
        network=lazyrich.Network(width=256, blocks=2),
        data=lazyrich.dataset(str(tmp_path / "own.csv"), target="y"),
        training=lazyrich.Training(steps=10, learning_rate=0.03),
    )
    np.testing.assert_array_equal(uploaded.losses["train_loss"], lazyrich.predict(own).train_loss)
    assert uploads.add("measurements.csv", text.encode()) == key  # kept once


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.csv", b"a,y\n1,2\nx,3\n", "bad.csv: column 'a', row 2: the cell 'x' is not a finite number; give finite"),
        ("x.npz", archive(a=np.array([{}, 1], dtype=object)), "x.npz: array 'a': holds pickled Python objects, which"),
        ("x.pkl", b"\x80\x04N.", "x.pkl: is not a known kind of data file; give a .csv, .parquet or .npz file"),
        ("x.csv", b"", "x.csv: is empty; give a file with one row per sample"),
        ("x.parquet", b"PAR1 nothing", "x.parquet: cannot be read as PARQUET"),
        ("x.npz", b"PK\x03\x04 cut off", "x.npz: cannot be read as NPZ"),
    ],
)
def test_a_bad_upload_gives_the_command_line_s_message(uploads, name, content, message):
    key = uploads.add(name, content)
    problem = linear.problem_of(linear.DEFAULTS | {"data": "file", "file": key, "target": "y"}, uploads.path(key))
    with pytest.raises(LazyrichError) as error:
        linear.curves_of(problem)
    assert str(uploads.readable(error.value)).startswith(message)


def test_uploads_that_are_too_large_are_refused(uploads, monkeypatch):
    with pytest.raises(
        LazyrichError, match=r"^big.csv: has 16.0 MiB, more than the explorer's 16; use lazyrich predict"
    ):
        uploads.add("big.csv", b"1" * (LARGEST_FILE + 1))
    bomb = archive(a=np.zeros((2**13, 2**13)))  # 512 MiB in half a MiB
    assert len(bomb) < 2**20
    with pytest.raises(LazyrichError, match=r"bomb\.npz: unfolds to 512 MiB, more than the explorer's 256"):
        uploads.add("bomb.npz", bomb)
    monkeypatch.setattr("lazyrich.explorer.uploads._LARGEST_FOLDER", 100)
    with pytest.raises(LazyrichError, match="the explorer keeps too many files already"):
        uploads.add("c.csv", b"1" * 101)
    assert [path for path in _files(uploads)] == []


def _files(uploads):
    from pathlib import Path

    return [path for path in Path(uploads._folder.name).rglob("*") if path.is_file()]


def test_wide_tables_are_left_to_the_command_line(uploads):
    random = np.random.default_rng(0)
    key = uploads.add("wide.npz", archive(x=random.standard_normal((3, 2001)), y=np.arange(3.0)))
    problem = linear.problem_of(linear.DEFAULTS | {"data": "file", "file": key, "target": "y"}, uploads.path(key))
    with pytest.raises(LazyrichError, match="2001 input columns, more than the explorer's 2000"):
        linear.curves_of(problem)


@pytest.mark.parametrize("key", ["/etc/passwd", "../../secret.csv", "0123456789abcdef/gone.csv"])
def test_a_link_reads_no_file_but_uploads(uploads, key):
    with pytest.raises(LazyrichError, match="is not here any more; drop the file in again"):
        uploads.path(key)


@pytest.mark.parametrize("name", ["../../evil.csv", "..\\evil.csv", "/etc/evil.csv", "x/evil.csv"])
def test_names_of_uploads_stay_in_their_folder(uploads, name):
    key = uploads.add(name, b"a,y\n1,2\n")
    assert key.endswith("/evil.csv")
    assert [path.name for path in _files(uploads)] == ["evil.csv"]


def test_zip_headers_that_lie_are_the_reader_s_business(uploads):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(
            "a.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (10**15,), }\n"
        )
    key = uploads.add("lie.npz", buffer.getvalue())
    problem = linear.problem_of(linear.DEFAULTS | {"data": "file", "file": key, "target": "a"}, uploads.path(key))
    with pytest.raises(LazyrichError, match="cannot be read as NPZ"):
        linear.curves_of(problem)


# ---- Work in the background ------------------------------------------------------------------------------------------


def small_problem(steps=40):
    return linear.problem_of(linear.DEFAULTS | {"steps": steps, "width": 32, "dimension": 16, "samples": 24})


def test_training_on_demand_is_that_of_the_library_and_can_be_stopped():
    problem = small_problem()
    seen = []
    trained = train_until(problem, 4, threading.Event(), lambda done, total: seen.append((done, total)))
    np.testing.assert_array_equal(trained.train_loss, lazyrich.train(problem, 4).train_loss)
    assert seen and seen[-1][0] == seen[-1][1]
    stop = threading.Event()
    assert train_until(problem, 4, stop, lambda done, total: stop.set()) is None  # none was finished
    assert train_until(problem, 4, stop, lambda done, total: pytest.fail("trained")) is None


def test_the_newest_request_is_drawn_and_what_it_replaces_is_not_finished():
    from lazyrich.explorer.redraw import Redrawer

    drawn, failed, finished = [], [], threading.Event()
    begun, gate = threading.Event(), threading.Event()

    def work(name, pieces, last=False):
        for piece in range(pieces):
            if name == "first":
                begun.set()
                gate.wait(20)
            yield lambda text=f"{name} {piece}": drawn.append(text)
        if last:
            finished.set()

    redrawer = Redrawer(lambda function: function(), failed.append)
    redrawer.request(work("first", 3))
    assert begun.wait(20)
    redrawer.request(work("second", 3))
    redrawer.request(work("third", 2, last=True))
    gate.set()
    assert finished.wait(20)
    assert drawn == ["first 0", "third 0", "third 1"]
    assert failed == []


def test_a_thread_leaves_the_document_to_its_own_loop():
    # Panel holds a document's events while it makes a page, and loses those that a thread adds meanwhile: one page in
    # nine, whose first curve was solved at that moment, stayed empty
    from bokeh.document import Document
    from panel.io.state import set_curdoc

    from lazyrich.explorer.page import Page

    async def draw():
        document = Document()
        with set_curdoc(document):
            page = Page("linear", linear.SETTINGS, lambda values: iter(()))
        thread = threading.Thread(target=page.schedule, args=(lambda: None,))
        thread.start()
        thread.join()
        assert document.session_callbacks == []
        await asyncio.sleep(0.05)
        assert len(document.session_callbacks) == 1

    asyncio.run(draw())


def test_errors_of_work_are_shown_and_defects_do_not_end_it(caplog):
    from lazyrich.explorer.redraw import Redrawer

    failed, done = [], threading.Semaphore(0)

    def fail(error):
        failed.append(str(error))
        done.release()

    def breaks(error):
        raise error
        yield

    redrawer = Redrawer(lambda function: function(), fail)
    for error in (LazyrichError("a", "is wrong", "mend it"), RuntimeError("a defect"), MemoryError()):
        redrawer.request(breaks(error))
        assert done.acquire(timeout=20)
    assert failed[0] == "a: is wrong; mend it"
    assert failed[1].startswith("explorer: a redraw failed") and failed[2].startswith("memory: ")
    assert "a defect" in caplog.text  # for the terminal


def test_a_killed_worker_is_an_error_and_the_next_one_works():
    import os

    from lazyrich.explorer.workers import end_workers, remote

    try:
        with pytest.raises(LazyrichError, match="was ended from outside"):
            remote(os._exit, 3)
        assert remote(math.sqrt, 9.0) == 3.0
        with pytest.raises(LazyrichError, match="steps: 400 steps"):
            remote(
                linear.check_size,
                linear.problem_of(linear.DEFAULTS | {"data": "digits", "steps": 400, "classes": "0,1,2,3"}),
            )
    finally:
        end_workers()


# ---- The command -----------------------------------------------------------------------------------------------------


def run_explore(*words):
    command = [sys.executable, "-m", "lazyrich.cli", "explore", "--no-browser", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_port_that_is_taken_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_explore("--port", str(port))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --port {port}: cannot be used (") and done.stderr.count("\n") == 1


def test_without_panel_the_command_says_what_to_install(monkeypatch, capsys):
    from lazyrich import cli

    monkeypatch.setitem(sys.modules, "panel", None)
    for name in [name for name in sys.modules if name.startswith("lazyrich.explorer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["lazyrich", "explore"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: lazyrich explore: needs Panel; pip install 'panel>=1.9,<2'\n"


def test_texts_are_settings_too():
    setting = Text("kept", "Kept", "")
    assert setting.read("a=1") == "a=1"
