"""The explorer in headless Chromium: sliders, links, training, uploads, files, widths, keyboard."""

from __future__ import annotations

import csv
import os
import shutil
from urllib.parse import urlsplit

import numpy as np
import pytest

import lazyrich
from lazyrich.explorer import linear, two_layer
from lazyrich.explorer.settings import read_query
from tests.explorer_client import running_explorer

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# For a machine that is busy with other things (compiling a training took 14 s at a load of 8); nothing is timed.
PATIENCE = 120_000
# A column of a figure's data; BokehJS keeps them as an object or as a map.
COLUMN = """window.column = (source, name) => {
    const data = Bokeh.documents[0].get_model_by_name(source).data
    return Array.from(data instanceof Map ? data.get(name) : data[name])
}"""


@pytest.fixture(scope="module")
def server():
    with running_explorer() as running:
        yield running
        assert not running.said, running.said  # nothing was wrong enough to be said in the terminal


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(f"none of {', '.join(BROWSERS)} is installed, and CI has to run these tests")
        pytest.skip("needs Chromium; CI installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=path,
            args=ARGUMENTS,
            headless=True,
            accept_downloads=True,
        )
        context.set_default_timeout(PATIENCE)
        yield context
        context.close()


@pytest.fixture
def page(browser, server):
    """A page; at its end no request may have left the machine and neither error nor warning be in its console."""
    opened = browser.new_page()
    opened.add_init_script(COLUMN)
    requests, errors = [], []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("websocket", lambda socket: requests.append(socket.url))
    opened.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    away = [
        url
        for url in requests
        if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).hostname != "127.0.0.1"
    ]
    assert len(requests) > 5
    assert away == []
    assert errors == []


def visit(page, server, address, width=1280, height=900):
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{server.url}/{address}")
    page.wait_for_selector("#summary")


def column(page, source, name):
    """A column of a figure's data, as it is in the page."""
    return np.asarray(page.evaluate("([source, name]) => column(source, name)", [source, name]))


def summary_other_than(page, text):
    page.locator("#summary").filter(has_not_text=text).wait_for()
    return page.locator("#summary").inner_text()


def see_figures(page, count):
    """Wait until so many figures are visible."""
    from playwright.sync_api import expect

    expect(page.locator(".bk-Canvas:visible")).to_have_count(count, timeout=PATIENCE)


def problem_in_address(page):
    values, errors = read_query(linear.SETTINGS, urlsplit(page.url).query)
    assert not errors
    return linear.problem_of(values)


# ---- Pages -----------------------------------------------------------------------------------------------------------


def test_a_slider_moves_the_curve_to_what_the_library_gives_and_its_link_restores_it(page, server):
    visit(page, server, "linear?width=64&steps=30")
    before = page.locator("#summary").inner_text()
    handle = page.locator(".noUi-handle").first
    handle.focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.wait_for_url("**richness=1.42**")  # six of 120 positions over a factor of 1000
    problem = problem_in_address(page)
    predicted = lazyrich.predict(problem)
    after = f"At step 29: training loss {predicted.train_loss[-1]:.4g}, test loss {predicted.test_loss[-1]:.4g}."
    assert after != before
    page.get_by_text(after).wait_for()  # the curve comes with it
    # the same solver on the same numbers; other processors may order sums in another way (measured: equal)
    np.testing.assert_allclose(column(page, "curves", "test_loss"), predicted.test_loss, rtol=1e-12)
    np.testing.assert_allclose(column(page, "curves", "train_loss"), predicted.train_loss, rtol=1e-12)
    visit(page, server, page.url.rpartition("/")[2])
    assert page.locator("#summary").inner_text() == after
    assert page.get_by_label("Richness (lazy to rich), number").input_value() == "1.42"


def test_a_box_takes_any_number_and_refuses_others_in_one_line(page, server):
    visit(page, server, "linear?width=64&steps=20")
    box = page.get_by_label("Width, number")
    before = page.locator("#summary").inner_text()
    box.fill("inf")
    box.press("Enter")
    summary_other_than(page, before)
    assert problem_in_address(page).network.width == float("inf")
    box.fill("-3")
    box.press("Enter")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text() == "error: width: -3 is out of range; stay between 8 and 8192, or inf"


def test_a_bad_link_is_said_and_drawn_with_its_default(page, server):
    visit(page, server, "linear?steps=20&richness=<b>much</b>")
    assert "training loss" in page.locator("#summary").inner_text()
    assert len(column(page, "curves", "step")) == 20


def test_accuracies_of_data_with_classes_are_drawn_beside_the_losses(page, server):
    visit(page, server, "linear?data=digits&classes=0,1&test_fraction=0.25&steps=20&width=64")
    predicted = lazyrich.predict(problem_in_address(page))
    for name in ("train_accuracy", "test_accuracy"):
        np.testing.assert_allclose(column(page, "accuracies", name), predicted.data[name].values, rtol=1e-12)
    assert f"test accuracy {predicted.data['test_accuracy'].values[-1]:.4g}" in page.locator("#summary").inner_text()
    see_figures(page, 2)
    page.get_by_label("Data", exact=True).select_option(label="Gaussian")
    page.wait_for_function("() => column('accuracies', 'step').length == 0")
    see_figures(page, 1)


def test_loss_against_rate_kernels_and_a_kept_curve(page, server):
    visit(page, server, "linear?width=64&steps=20")
    page.get_by_role("button", name="Keep this curve").click()
    page.wait_for_url("**kept=**")
    page.get_by_role("button", name="Loss against rate").click()
    page.wait_for_function("""() => column('best_rate_2', 'rate').length == 1""")
    see_figures(page, 1)
    *_, curves = linear.rate_curves(problem_in_address(page))
    for index, curve in enumerate(curves):
        assert column(page, f"best_rate_{index}", "rate")[0] == pytest.approx(curve.optimum.best_rate, rel=1e-9)
    before = page.locator("#summary").inner_text()
    page.get_by_role("button", name="Kernels").click()
    assert "Level 0 of 0 to 2" in summary_other_than(page, before)
    drawn = np.asarray(page.evaluate("() => Array.from(column('gradient_kernel', 'image')[0]).flat()"))
    expected = linear.kernels_of(problem_in_address(page), 0).gradient
    np.testing.assert_allclose(drawn, expected.ravel(), rtol=1e-6)  # sent in single precision
    see_figures(page, 2)
    page.get_by_role("button", name="Training curve").click()
    see_figures(page, 1)


def test_networks_are_trained_on_demand_and_cancelled(page, server):
    visit(page, server, "linear?width=32&dimension=16&samples=24&steps=20&networks=4")
    page.get_by_role("button", name="Train", exact=True).click()
    page.get_by_text("4 networks: finished").wait_for()
    trained = lazyrich.train(problem_in_address(page), 4)
    shown = column(page, "trained_test_loss", "step")
    # the same program on the same numbers
    np.testing.assert_allclose(column(page, "trained_test_loss", "mean"), trained.test_loss[shown], rtol=1e-12)
    page.get_by_label("Richness (lazy to rich), number").fill("3")
    page.get_by_label("Richness (lazy to rich), number").press("Enter")
    page.wait_for_function("() => column('trained_test_loss', 'step').length == 0")
    # more than anyone waits for; a cancelled training ends at its next sixteenth step
    visit(page, server, "linear?width=128&steps=400&blocks=1&networks=32")
    page.get_by_role("button", name="Train", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("cancelled").wait_for()
    assert page.get_by_role("button", name="Train", exact=True).is_enabled()
    assert column(page, "trained_test_loss", "step").size == 0
    # the trainer is free again
    visit(page, server, "linear?width=32&dimension=16&samples=24&steps=20&networks=4")
    page.get_by_role("button", name="Train", exact=True).click()
    page.get_by_text("4 networks: finished").wait_for()


def test_files_are_dropped_in_good_and_bad(page, server, tmp_path):
    random = np.random.default_rng(0)
    inputs = random.standard_normal((50, 4))
    good = tmp_path / "good.csv"
    rows = [["a", "b", "c", "d", "y"], *([*row, row[0] - row[1]] for row in inputs.tolist())]
    good.write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    visit(page, server, "linear?steps=20&width=64")
    page.get_by_label("Data", exact=True).select_option(label="my file")
    page.get_by_role("alert").filter(has_text="no file was given").wait_for()
    page.get_by_label("Target column").fill("y")
    page.get_by_label("Target column").press("Enter")
    page.locator("input[type=file]").first.set_input_files(good)
    page.wait_for_function("() => column('curves', 'step').length == 20")
    training = lazyrich.Training(steps=20, learning_rate=0.03)
    network = lazyrich.Network(width=64, blocks=2)
    own = lazyrich.Problem(network=network, data=lazyrich.dataset(str(good), target="y"), training=training)
    expected = lazyrich.predict(own).train_loss
    np.testing.assert_allclose(column(page, "curves", "train_loss"), expected, rtol=1e-12)
    for name, content, message in [
        ("bad.csv", b"a,y\n1,2\nx,3\n", "error: bad.csv: column 'a', row 2: the cell 'x' is not a finite number; give"),
        (
            "bad.pkl",
            b"\x80\x04N.",
            "error: bad.pkl: is not a known kind of data file; give a .csv, .parquet or .npz file",
        ),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        page.locator("input[type=file]").first.set_input_files(path)
        alert = page.locator("p.error").filter(has_text=name)  # the box has alerts of its own
        alert.wait_for()
        assert alert.inner_text().startswith(message)
        assert column(page, "curves", "step").size == 0
    large = tmp_path / "large.csv"
    large.write_bytes(b"a,y\n" + b"1,2\n" * (2**22 + 2**20))
    page.locator("input[type=file]").first.set_input_files(large)
    page.get_by_text("File is too large").first.wait_for()


def test_every_export_is_a_file_that_says_the_same(page, server, tmp_path):
    visit(page, server, "linear?steps=20&width=64")
    files = {}
    for label in ("Problem file", "PNG", "SVG", "CSV"):
        with page.expect_download() as download:
            page.get_by_text(label, exact=True).click()
        files[label] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[label])
    problem = lazyrich.load_problem(files["Problem file"])
    assert problem == problem_in_address(page)
    assert files["PNG"].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in files["SVG"].read_bytes()
    with files["CSV"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_array_equal([float(row["test_loss"]) for row in rows], lazyrich.predict(problem).test_loss)


def test_a_click_into_the_phase_diagram_moves_the_cursor(page, server):
    visit(page, server, "two-layer?dimension=12&steps=60&view=diagram")
    page.wait_for_function("() => column('diagram', 'image').length == 1")
    see_figures(page, 2)
    before = page.locator("#summary").inner_text()
    page.locator(".bk-Canvas").first.click(position={"x": 200, "y": 120})
    summary_other_than(page, before)
    values, errors = read_query(two_layer.SETTINGS, urlsplit(page.url).query)
    assert not errors and values["variance"] != -2.2
    run = lazyrich.two_layer(two_layer.problem_of(values))
    assert f"threshold s0 = {run.statistics['threshold']:.3g}," in page.locator("#summary").inner_text()
    assert column(page, "cursor", "x").tolist() == [values["variance"]]
    with page.expect_download() as download:
        page.get_by_text("Problem file", exact=True).click()
    study = lazyrich.load_study(download.value.path().rename(download.value.path().with_suffix(".toml")))
    assert study.diagram is not None and study.problem.network.exponent == values["width"]


def test_the_depth_page_says_the_class_of_a_rule(page, server):
    visit(page, server, "depth?alpha=1&gamma=0")
    assert "feature learning, redundant" in page.locator("#summary").inner_text()
    before = page.locator("#summary").inner_text()
    page.get_by_label("gamma: rates fall as L^-gamma, number").fill("0.5")
    page.get_by_label("gamma: rates fall as L^-gamma, number").press("Enter")
    assert "trivial" in summary_other_than(page, before)
    assert column(page, "rule", "gamma").tolist() == [0.5]


def test_the_depth_page_trains_by_its_rule_and_its_file_trains_the_same(page, server, tmp_path):
    visit(page, server, "depth?alpha=1&gamma=0&base_depth=2&depth=8&trained_width=16&steps=20&networks=2")
    page.get_by_role("button", name="Train", exact=True).click()
    page.get_by_text("4 networks: finished").wait_for()
    with page.expect_download() as download:
        page.get_by_text("Problem file", exact=True).click()
    download.value.save_as(tmp_path / "problem.toml")
    problem = lazyrich.load_problem(tmp_path / "problem.toml")
    assert problem.network.blocks == 8
    trained = lazyrich.train(problem, 2)
    assert column(page, "trained_1", "step").tolist() == trained.steps.tolist()
    see_figures(page, 3)
    # the same program on the same numbers
    np.testing.assert_allclose(column(page, "trained_1", "mean"), trained.train_loss, rtol=1e-12)
    page.get_by_label("gamma: rates fall as L^-gamma, number").fill("0.5")
    page.get_by_label("gamma: rates fall as L^-gamma, number").press("Enter")
    page.wait_for_function("() => column('trained_1', 'step').length == 0")
    see_figures(page, 2)


@pytest.mark.parametrize("address", ["linear", "linear?view=kernels&steps=20", "two-layer?dimension=12", "depth"])
def test_pages_fit_into_400_pixels(page, server, address):
    visit(page, server, address, width=400, height=800)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    box = page.locator(".bk-Canvas:visible").first.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 400
    assert page.locator(".noUi-handle:visible").first.bounding_box()["width"] >= 10


def test_a_figure_alone_fills_its_place(page, server):
    visit(page, server, "linear?steps=20&width=64")
    assert page.locator(".bk-Canvas:visible").count() == 1
    place = page.locator("#figure").bounding_box()["width"]
    assert page.locator(".bk-Canvas:visible").bounding_box()["width"] > 0.9 * place


def test_everything_can_be_reached_by_the_keyboard(page, server):
    visit(page, server, "linear?steps=20&width=64")
    code = """() => {
        let node = document.activeElement
        while (node && node.shadowRoot && node.shadowRoot.activeElement) node = node.shadowRoot.activeElement
        return [node.tagName, node.getAttribute('role') ?? node.type ?? '', (node.textContent ?? '').trim()].join(' ')
    }"""
    reached = []
    for _ in range(70):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(code))
    assert any(text.startswith("DIV slider") for text in reached)
    assert any(text.startswith("INPUT text") for text in reached)
    assert any(text.startswith("SELECT") for text in reached)
    for label in ("Loss against rate", "Keep this curve", "Train", "PNG"):
        assert any(label in text for text in reached), (label, reached)
