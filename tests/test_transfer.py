"""Transfer studies from file to answer: the grid, its cells, the best rates against known ones, the command."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import lazyrich
from lazyrich import GaussianData, Network, Problem, Study, Training, cli, load_study
from lazyrich.transfer.analysis import analyse
from lazyrich.transfer.cells import Cell
from lazyrich.transfer.sweep import run_sweep

STUDIES = Path(__file__).parent.parent / "studies"

SMALL = """
[network]
width = 40
blocks = 1
[data]
kind = "gaussian"
dimension = 40
samples = 80
[training]
steps = 12
learning_rate = 0.1
richness = 2.0
[transfer]
rates = { from = 0.01, to = 1.0, count = 9 }
axes = { "network.width" = [40, 80, 160] }
"""


def small(extra: str = "", **transfer) -> Study:
    tables = tomllib.loads(SMALL + extra)
    tables["transfer"] |= transfer
    return Study(**tables)


def run_command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["lazyrich", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return (stop.value.code, *capsys.readouterr())


# ---- the best rates ---------------------------------------------------------------------------------------------


def test_best_rates_of_mup_stay_and_those_of_ntk_move(tmp_path):
    # figures of an independent implementation, three digits; the estimator is within 0.03 octaves (2%)
    study = load_study(STUDIES / "d3-rate-over-width.toml")
    found = analyse(run_sweep(study, tmp_path / "results", workers=1))
    best = {
        (each.axes["network.width"], each.axes["training.parametrization"]): each.optimum.best_rate
        for each in found.best
    }
    expected = {"mup": [0.046, 0.051, 0.051, 0.051], "ntk": [0.046, 0.089, 0.135, 0.158]}
    for name, rates in expected.items():
        np.testing.assert_allclose([best[width, name] for width in (100, 400, 1600, 6400)], rates, rtol=0.02)
    verdicts = {trend.fixed["training.parametrization"]: trend.drift.verdict for trend in found.trends}
    assert verdicts["mup"].startswith("transfers")
    assert verdicts["ntk"].startswith("drifts by")


def with_tables(study: Study, **tables) -> Study:
    return Study(**(study.model_dump(by_alias=True, exclude_none=True) | tables))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    study = with_tables(
        small(by="both", seeds=8, rates={"from": 0.01, "to": 1.0, "count": 17}, axes={"network.width": [200, 800]}),
        data=GaussianData(dimension=200, samples=400, label_noise=0.3),
        training=Training(steps=30, learning_rate=0.1),
    )
    return run_sweep(study, tmp_path_factory.mktemp("results"), workers=1)


def test_training_finds_the_rate_that_theory_predicts(both):
    best = {(each.axes["network.width"], each.by): each.optimum for each in analyse(both).best}
    # near the edge of stability networks of 200 units still differ: measured 0.33 octaves, 0.06 with 800 units
    # (0.62 with 100 units and inputs)
    for width, octaves in ((200, 0.5), (800, 0.2)):
        theory, training = best[width, "theory"], best[width, "training"]
        assert abs(np.log2(training.best_rate / theory.best_rate)) < octaves
        # the largest stable rate: the same gap of the grid, or the one beside it (finite networks, eight of them)
        grid = both.grids[0, "theory"].rates
        positions = [int(np.argmin(np.abs(grid - each.largest_stable_rate))) for each in (theory, training)]
        assert abs(positions[0] - positions[1]) <= 1


def test_training_cells_are_the_networks_of_train(both):
    point, grid = both.points[1], both.grids[1, "training"]
    index = 6
    trained = lazyrich.train(point.problem.with_rate(float(grid.rates[index])), seeds=8)
    np.testing.assert_allclose(grid.losses[index, 0], trained.data["test_loss_of_seed"].values[:, -1], rtol=1e-12)


def test_theory_cells_are_predictions(both):
    point, grid = both.points[0], both.grids[0, "theory"]
    for index in (2, 9):
        predicted = lazyrich.predict(point.problem.with_rate(float(grid.rates[index])))
        assert grid.losses[index, 0, 0] == pytest.approx(predicted.test_loss[-1], rel=1e-12)


# ---- the grid ---------------------------------------------------------------------------------------------------


def test_trainings_that_differ_in_length_only_share_their_cells(tmp_path):
    shared = run_sweep(small(axes={"training.steps": [4, 8, 12]}), tmp_path / "shared", workers=1)
    assert len(list((tmp_path / "shared" / "cells").iterdir())) == 2  # nine rates, eight per cell
    for position, steps in enumerate((4, 8, 12)):
        alone = with_tables(small(axes={}), training=Training(steps=steps, learning_rate=0.1, richness=2.0))
        single = run_sweep(alone, tmp_path / f"alone{steps}", workers=1)
        np.testing.assert_array_equal(shared.grids[position, "theory"].losses, single.grids[0, "theory"].losses)


def test_schedules_are_not_cut(tmp_path):
    study = small(axes={"training.steps": [6, 12]}, at=[5])
    cosine = Training(steps=6, learning_rate=0.1, richness=2.0, schedule="cosine")
    study = with_tables(study, training=cosine)
    grids = run_sweep(study, tmp_path / "results", workers=1).grids
    assert np.abs(grids[0, "theory"].losses[3] / grids[1, "theory"].losses[3] - 1).max() > 0.01


def test_refinement_narrows_the_grid_around_the_best_rate(tmp_path):
    coarse = run_sweep(small(), tmp_path / "coarse", workers=1)
    fine = run_sweep(small(refine=2), tmp_path / "fine", workers=1)
    for place, grid in fine.grids.items():
        assert set(coarse.grids[place].rates) < set(grid.rates)
        best = int(np.nanargmin(grid.losses[:, 0, 0]))
        gap = np.log2(grid.rates[best + 1] / grid.rates[best - 1])
        assert gap < np.log2(100) / 8 * 2 / 3.9  # two gaps of the grid, halved twice


def test_sizes_that_are_not_run_are_predicted(tmp_path):
    # from 2 to 16 blocks the best rate falls by 40%; what they say of 64 blocks is what the theory finds there
    study = load_study(STUDIES / "d6-rate-over-depth.toml")
    transfer = {"axes": {"network.blocks": [2, 4, 8, 16]}, "targets": {"network.blocks": 64}}
    study = with_tables(study, transfer=study.transfer.model_dump(by_alias=True, exclude_none=True) | transfer)
    sweep = run_sweep(study, tmp_path / "results", workers=1)
    (trend,) = analyse(sweep).trends
    assert abs(np.log2(trend.prediction.rate / trend.theory.best_rate)) < 0.1  # measured 0.04 octaves
    low, high = trend.prediction.interval
    assert low <= trend.theory.best_rate <= high
    assert abs(np.log2(trend.optima[0].best_rate / trend.theory.best_rate)) > 0.5
    assert set(sweep.to_dataset()["network.blocks"].values) == {2, 4, 8, 16}


def test_rates_keep_the_shape_of_layers_and_steps():
    layers = {"input": 0.4, "block": 0.1, "output": 0.2}
    problem = Problem(
        network=Network(width=40, blocks=1),
        data=GaussianData(dimension=40, samples=80),
        training=Training(steps=3, learning_rate=layers),
    )
    scaled = problem.with_rate(0.8).training.learning_rate.model_dump()
    assert scaled == pytest.approx({"input": 0.8, "block": 0.2, "output": 0.4})
    steps = problem.with_values({"training.learning_rate": [0.1, 0.2, 0.05]}).with_rate(0.4)
    np.testing.assert_allclose(steps.training.learning_rate, [0.2, 0.4, 0.1])


def test_a_key_changes_with_everything_that_decides_the_result():
    problem = small().problem.to_dict()
    cell = Cell("theory", problem, (0.1, 0.2), (3,), "test", 0)
    others = [
        Cell("training", problem, (0.1, 0.2), (3,), "test", 2),
        Cell("theory", problem | {"network": {"width": 41, "blocks": 1}}, (0.1, 0.2), (3,), "test", 0),
        Cell("theory", problem, (0.1, 0.21), (3,), "test", 0),
        Cell("theory", problem, (0.1, 0.2), (4,), "test", 0),
        Cell("theory", problem, (0.1, 0.2), (3,), "train", 0),
    ]
    assert len({each.key() for each in [cell, *others]}) == 6
    assert cell.key() == Cell("theory", dict(reversed(problem.items())), (0.1, 0.2), (3,), "test", 0).key()


def test_worker_processes_make_the_same_table(tmp_path):
    study = small(by="both", seeds=2)
    tables = [run_sweep(study, tmp_path / str(workers), workers=workers).to_dataset() for workers in (1, 2)]
    assert tables[0].identical(tables[1])


# ---- the command ------------------------------------------------------------------------------------------------


@pytest.fixture
def study_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_json(study_file, tmp_path, monkeypatch, capsys):
    code, out, err = run_command(
        monkeypatch, capsys, "transfer", study_file, "--json", "--results", tmp_path / "r", "--workers", 1
    )
    assert (code, err) == (0, "")
    found = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert [each["axes"] for each in found["optima"]] == [{"network.width": width} for width in (40, 80, 160)]
    for each in found["optima"]:
        assert each["by"] == "theory" and each["flag"] in ("", "cliff")
        assert each["interval"][0] <= each["best_rate"] <= each["interval"][1]
        assert each["largest_stable_rate"] < each["smallest_unstable_rate"]
    assert [(each["from"], each["to"]) for each in found["shift"]] == [(40, 80), (40, 160)]
    assert all(each["regret"] >= 0 for each in found["shift"])
    assert len(found["trends"]) == 1


def test_table_and_report(study_file, tmp_path, monkeypatch, capsys):
    words = ["transfer", study_file, "--by", "both", "--results", tmp_path / "r", "--workers", 1]
    words += ["--plot", tmp_path / "a.svg", "--table", tmp_path / "a.csv"]
    code, out, _ = run_command(monkeypatch, capsys, *words)
    assert code == 0
    assert "width, by theory: " in out and "times the theory's time" in out
    page = (tmp_path / "r" / "report.html").read_text()
    assert page.count("<svg") == 2 and "network.width" in page
    # nothing is loaded from elsewhere: names of XML namespaces are not links
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", page)
    assert "@import" not in page and "url(http" not in page
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 * 9 * (1 + 8)
    for ending in (".nc", ".parquet"):
        assert run_command(monkeypatch, capsys, *words[:-1], tmp_path / f"a{ending}")[0] == 0
        assert (tmp_path / f"a{ending}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count = 9", "count = 0", "transfer.rates.count"),
        ("rates = { from = 0.01, to = 1.0, count = 9 }", "rates = [0.1]", "transfer.rates: .*at least 2"),
        ("rates = { from = 0.01, to = 1.0, count = 9 }", "rates = []", "transfer.rates: .*at least 2"),
        ("rates = { from = 0.01, to = 1.0, count = 9 }", "rates = [0.1, 0.1]", "transfer.rates: all are the same"),
        (
            "from = 0.01, to = 1.0",
            "from = 50.0, to = 90.0",
            "transfer.rates: every training diverged; give lower rates",
        ),
        ("network.width", "network.widht", "transfer.axes: network.widht: unknown key; did you mean width"),
        ("network.width", "training.learning_rate", "transfer.axes.training.learning_rate: is what rates are for"),
        (
            "learning_rate = 0.1",
            "learning_rate = [0,0,0,0,0,0,0,0,0,0,0,0]",
            "training.learning_rate: is zero at every",
        ),
        ("[40, 80, 160]", "[]", "transfer.axes.network.width"),
        ("[transfer]", "[transfer]\nloss = 'text'", "transfer.loss"),
        ("[transfer]", "[transfer]\nat = [12]", "transfer.at: step 12 is not reached"),
        ("[transfer]", "[transfer]\nseeds = 1", "transfer.seeds"),
        ("[transfer]", '[transfer]\ntargets = { "network.depth" = 3 }', "transfer.targets.network.depth"),
        (SMALL[SMALL.index("[transfer]") :], "", r"transfer: missing; add a \[transfer\] table"),
    ],
)
def test_bad_studies(study_file, tmp_path, monkeypatch, capsys, old, new, message):
    assert old in SMALL
    study_file.write_text(SMALL.replace(old, new))
    code, out, err = run_command(
        monkeypatch, capsys, "transfer", study_file, "--results", tmp_path / "r", "--workers", 1
    )
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and re.match(f"error: {re.escape(str(study_file))}: {message}", err), err


def test_data_files_on_an_axis_are_beside_the_study(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n5,9\n")
    (tmp_path / "b.csv").write_text("x,y\n1,2\n3,4\n5,1\n")
    data = '[data]\nkind = "dataset"\npath = "a.csv"\ntarget = "y"\n[training]'
    text = re.sub(r"\[data\].*?\[training\]", data, SMALL, flags=re.DOTALL)
    text = text.replace('{ "network.width" = [40, 80, 160] }', '{ "data.path" = ["a.csv", "b.csv"] }\nloss = "train"')
    (tmp_path / "study.toml").write_text(text)
    monkeypatch.chdir("/")
    study = load_study(tmp_path / "study.toml")
    first = run_sweep(study, tmp_path / "results", workers=1)
    assert np.abs(first.grids[0, "theory"].losses[0] / first.grids[1, "theory"].losses[0] - 1) > 0.1
    # a file that changed is another problem, also under its old name
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n5,0\n")
    second = run_sweep(study, tmp_path / "results", workers=1)
    assert np.abs(first.grids[0, "theory"].losses[0] / second.grids[0, "theory"].losses[0] - 1) > 0.01
    np.testing.assert_array_equal(first.grids[1, "theory"].losses, second.grids[1, "theory"].losses)


def test_results_of_another_study_are_refused(study_file, tmp_path, monkeypatch, capsys):
    words = ["--results", tmp_path / "r", "--workers", 1]
    assert run_command(monkeypatch, capsys, "transfer", study_file, *words)[0] == 0
    other = study_file.rename(tmp_path / "other.toml")
    code, _, err = run_command(monkeypatch, capsys, "transfer", other, *words)
    assert code == 2 and err.count("\n") == 1 and str(tmp_path / "r") in err


def test_a_scheduler_that_does_not_answer(study_file, tmp_path, monkeypatch, capsys):
    words = ["transfer", study_file, "--results", tmp_path / "r", "--scheduler", "tcp://127.0.0.1:1"]
    code, _, err = run_command(monkeypatch, capsys, *words)
    assert code == 2 and re.fullmatch(r"error: .*--scheduler tcp://127\.0\.0\.1:1: .*\n", err), err


def test_rules_command(monkeypatch, capsys):
    words = ["rules", "--scheme", "complete-p", "--width", 1024, "--base-width", 256, "--depth", 32, "--base-depth", 8]
    code, out, _ = run_command(monkeypatch, capsys, *words, "--optimizer", "adamw")
    assert code == 0 and "block" in out and "Dey et al. 2025" in out
    code, out, _ = run_command(monkeypatch, capsys, *words, "--json")
    block = next(rule for rule in json.loads(out)["rules"] if rule["role"] == "block")["factors"]
    assert block["learning_rate"]["factor"] == 0.25 and block["eps"]["factor"] == 1 / 16
    code, _, err = run_command(monkeypatch, capsys, "rules", "--scheme", "mup", "--width", 1024)
    assert code == 2 and err.startswith("error: base_width: missing")
