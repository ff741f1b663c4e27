"""The gallery: verdicts follow from numbers, every claim can fall, and the command writes what it computed."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import lazyrich
from lazyrich.gallery import deep_linear as deep
from lazyrich.gallery import depth_classes, depth_transfer, two_layer
from lazyrich.gallery.claim import Check, Judgement, Number
from lazyrich.gallery.registry import CLAIMS
from lazyrich.gallery.studies import load_changed, studies_folder
from lazyrich.gallery.work import Work, packed, unpacked
from lazyrich.problem.files import TrainedStudy
from lazyrich.theory.deep_linear.exponent import Exponent, expected_exponents
from lazyrich.transfer import cluster
from lazyrich.transfer.analysis import analyse
from lazyrich.transfer.cluster import local_cluster
from lazyrich.transfer.diagram import PhaseDiagram
from lazyrich.transfer.sweep import Grid, Sweep, plan_points, plan_targets
from tests.conftest import assert_one_line_error, run_command

ROOT = Path(__file__).parent.parent
COMMITTED = ROOT / "docs" / "gallery"
IDS = [f"{letter}{number}" for letter, last in (("D", 9), ("M", 8), ("T", 11)) for number in range(1, last + 1)]


# --- from numbers to verdicts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "outcome"), [(1.0, 3.0, "yes"), (4.0, 6.0, "undecided"), (5.0, 6.0, "no"), (-1.0, 2.0, "undecided")]
)
def test_a_check_asks_for_the_whole_interval(low, high, outcome):
    assert Check(Number("", 0.5 * (low + high), low, high), above=0.0, below=5.0).outcome == outcome


def test_a_check_without_a_number_is_undecided():
    assert Check(Number("", math.nan), below=1.0).outcome == "undecided"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([(0.5, True), (0.5, False)], "holds"),
        ([(0.5, True), (2.0, False)], "holds with conditions"),
        ([(0.5, True), (math.nan, False)], "holds with conditions"),
        ([(0.5, True), (2.0, True)], "does not hold"),
        ([(math.nan, True), (2.0, True)], "does not hold"),
        ([(0.5, True), (math.nan, True)], "undecided"),
        ([(0.5, False)], "undecided"),
    ],
)
def test_verdicts(values, verdict):
    checks = [Check(Number("", value), below=1.0, essential=essential) for value, essential in values]
    assert Judgement("", checks).verdict == verdict


# --- the list of claims ---------------------------------------------------------------------------------------------


def test_every_claim_is_there_with_its_studies():
    assert list(CLAIMS) == IDS
    for claim in CLAIMS.values():
        for source in claim.sources:
            if source.name.endswith((".toml", ".py")):
                assert (studies_folder() / source.name).is_file(), source.name
            else:
                assert source.works is not None, source.name
            if source.works is None:
                load_changed(source.name, {})
                load_changed(source.name, source.quick)  # every key that a quick run changes exists
            else:
                quick, full = source.works(True), source.works(False)
                assert 1 <= len(quick) <= len(full)


# --- every judgement can go both ways: synthetic results of the real studies ----------------------------------------


def analysis(name, log_best, seeds=4, floor=None):
    """A transfer study's analysis whose log2 best rate at a point is `log_best`, its log lowest loss `floor`."""
    source = next(s for claim in CLAIMS.values() for s in claim.sources if s.name == name)
    study = load_changed(name, source.quick)
    assert isinstance(study, TrainedStudy) and study.transfer is not None
    points, targets = plan_points(study), plan_targets(study, plan_points(study))
    rates, rng, grids = np.asarray(study.transfer.rate_grid()), np.random.default_rng(0), {}
    methods = ["theory", "training"] if study.transfer.by == "both" else [study.transfer.by]
    for position, point in enumerate([*points, *targets]):
        short = {key.rpartition(".")[2]: value for key, value in point.values.items()}
        for by in methods if position < len(points) else ["theory"]:
            networks = 1 if by == "theory" else seeds
            away = np.log2(rates) - log_best(short)
            noise = 0.01 * rng.standard_normal((1, networks)) * (by == "training")
            lowest = floor(short) if floor else -1.0
            losses = np.exp(lowest + 0.25 * away[:, None] ** 2 + noise)
            losses = np.repeat(losses[:, None], len(point.at), axis=1)
            grids[position, by] = Grid(rates, losses, np.full((len(rates), networks), -1))
    return analyse(Sweep(study, points, targets, grids, {"theory": 0.0, "training": 0.0}))


def middle(name):
    rates = load_changed(name, {}).transfer.rate_grid()
    return 0.5 * (math.log2(rates[0]) + math.log2(rates[-1]))


def test_rate_over_width():
    names = ("d3-rate-over-width.toml", "d3-checked-by-training.toml")

    def verdict(ntk, mup):
        def best(point):
            power = ntk if point["parametrization"] == "ntk" else mup
            return -3.5 + power * math.log2(point["width"] / 100)

        return deep.judge_rate_over_width({name: analysis(name, best) for name in names}).verdict

    assert verdict(0.3, 0.0) == "holds"
    assert verdict(0.0, 0.0) == "does not hold"
    assert verdict(0.3, 0.3) == "does not hold"


def test_rate_over_depth():
    def verdict(scaled, constant):
        return deep.judge_depth(
            {
                "d6-rate-over-depth.toml": analysis("d6-rate-over-depth.toml", lambda p: -4.5 + scaled(p["blocks"])),
                "d6-constant-branch.toml": analysis("d6-constant-branch.toml", lambda p: -4.0 + constant(p["blocks"])),
            }
        ).verdict

    falls = lambda blocks: -2.0 * math.log2(blocks / 2)  # noqa: E731
    assert verdict(lambda blocks: 0.0, falls) == "holds"
    assert verdict(lambda blocks: 2.0 / blocks, falls) == "holds with conditions"
    assert verdict(lambda blocks: -0.4 * math.log2(blocks), falls) == "does not hold"
    assert verdict(lambda blocks: 0.0, lambda blocks: 0.0) == "does not hold"


def test_schemes_over_depth():
    name = "t3-schemes-over-depth.toml"

    def found(drifts, floors):
        return {
            name: analysis(
                name,
                lambda p: middle(name) + drifts.get(p["scheme"], 0.0) * math.log2(p["blocks"] / 8),
                floor=lambda p: floors.get(p["scheme"], -1.0),
            )
        }

    expected = found({"sqrt-depth": -0.5, "ode": -0.6}, {"ode": -0.5})
    assert depth_transfer.judge_ode(expected).verdict == "holds"
    assert depth_transfer.judge_scaled_rate(expected).verdict == "holds"
    assert depth_transfer.judge_ode(found({}, {"ode": -0.5})).verdict == "holds with conditions"
    assert depth_transfer.judge_ode(found({}, {"ode": -2.0})).verdict == "does not hold"
    assert depth_transfer.judge_scaled_rate(found({}, {})).verdict == "does not hold"


def test_transfer_over_depth():
    names = ("t2-rate-over-depth.toml", "t2-sgd-and-norms.toml", "t2-multiplier-over-depth.toml")

    def verdict(drift, normed=0.0, multiplier=0.0):
        def best(name):
            def at(point):
                power = normed if point.get("normalisation") == "layer" else drift
                return middle(name) + power * math.log2(point["blocks"] / 8)

            return at

        def floor(point):
            if "multiplier" not in point:
                return -1.0
            away = math.log2(point["multiplier"] / 0.6) - multiplier * math.log2(point["blocks"] / 8)
            return -1.0 + 0.3 * away**2

        return depth_transfer.judge_transfer({name: analysis(name, best(name), floor=floor) for name in names}).verdict

    assert verdict(0.0) == "holds"
    assert verdict(-0.6) == "does not hold"
    assert verdict(0.0, normed=-1.0) == "does not hold"


def test_nonlinearities():
    name = "t5-nonlinearities.toml"

    def verdict(**floors):
        found = analysis(name, lambda p: middle(name), floor=lambda p: floors.get(p["nonlinearity"], 0.0))
        return depth_transfer.judge_nonlinearities({name: found}).verdict

    assert verdict(abs=-0.5) == "holds"
    assert verdict(abs=0.5) == "does not hold"
    assert verdict(abs=-0.5, linear=-1.0) == "does not hold"


def slopes_result(values):
    return {"gamma": np.array([0.5, 0.25, 0.0]), "slope": np.array([[value, 0.02] for value in values])}


def test_two_layer_blocks():
    name = "t6-two-layer-blocks.toml"

    def verdict(drift, tanh):
        transfer = analysis(name, lambda p: middle(name) + drift * math.log2(p["blocks"] / 8))
        second = [slopes_result((-0.24, -0.12, 0.01)), slopes_result(tanh)]
        return depth_transfer.judge_two_layer_blocks({name: transfer, "t6-second-order.py": second}).verdict

    assert verdict(-1.0, (-0.5, -0.25, 0.0)) == "holds"
    assert verdict(0.0, (-0.5, -0.25, 0.0)) == "holds with conditions"
    assert verdict(-1.0, (0.0, 0.0, 0.0)) == "does not hold"


def test_order_of_limits():
    name = "t9-width-and-depth.toml"

    def verdict(mixed):
        def floor(point):
            narrow = 16 / point["width"]
            return -0.5 + narrow - 0.1 * (1 - 16 / point["blocks"]) * (1 + mixed * narrow)

        return depth_transfer.judge_order({name: analysis(name, lambda p: -4.0, seeds=12, floor=floor)}).verdict

    assert verdict(0.0) == "holds"
    assert verdict(12.0) == "does not hold"


def test_schedules():
    names = ("t10-schedules.toml", "t10-training-time.toml")

    def verdict(cosine):
        def best(point):
            moves = cosine if point.get("schedule") == "cosine" else 0.0
            return -3.0 + moves * math.log2(point["blocks"] / 8)

        return depth_transfer.judge_schedules({name: analysis(name, best) for name in names}).verdict

    assert verdict(0.0) == "holds"
    assert verdict(-1.0) == "does not hold"


def comparisons(name, changes, transform=lambda problem: problem, seeds=4):
    """The comparisons of a small version of a study; `transform` changes what is really predicted and trained."""
    study, found = load_changed(name, changes), []
    for _, problem in study.problems():
        other = transform(problem)
        pair = [lazyrich.predict(other), lazyrich.train(other, seeds)]
        found.append(lazyrich.compare(*(replace(each, problem=problem) for each in pair)))
    return {name: found}


def test_width_at_one_rate():
    name = "d2-width-at-fixed-rate.toml"
    small = {"data.dimension": 40, "data.samples": 160, "compare.axes": {"network.width": [40, 320]}}

    def swapped(problem):
        other = "ntk" if problem.training.parametrization == "mup" else "mup"
        return problem.with_values({"training.parametrization": other})

    assert deep.judge_width(comparisons(name, small, seeds=12)).verdict == "holds"
    assert deep.judge_width(comparisons(name, small, swapped, seeds=12)).verdict == "does not hold"


def test_agreement_notices_a_wrong_theory():
    name = "d1-full-batch.toml"
    axes = {"network.width": [200], "network.blocks": [1], "data.samples": [800]}
    found = comparisons(name, {"training.steps": 20, "compare.axes": axes}, seeds=16)
    assert deep.judge_agreement(found).verdict == "holds"
    (right,) = found[name]
    wrong = replace(right.predicted, data=right.predicted.data * 0.7)  # a theory that is 30% off
    assert deep.judge_agreement({name: [lazyrich.compare(wrong, right.trained)]}).verdict == "does not hold"


def test_power_laws():
    def found(change):
        results = {}
        for name in ("d8-lazy-and-rich.toml", "d8-exponents.toml"):
            results[name] = []
            for _, problem in load_changed(name, {}).problems():
                rich, lazy = expected_exponents(problem)
                if name == "d8-lazy-and-rich.toml" and problem.training.richness == 1.0:
                    value = lazy
                else:
                    value = change(problem.network.blocks + 2, rich, lazy)
                fit = Exponent(value, value - 0.005, value + 0.005, value, (1, 1e6), rich, lazy, "reached", "horizon",
                               None, None, "test_loss", [])  # fmt: skip
                results[name].append(("", fit, SimpleNamespace(problem=problem)))
        return deep.judge_power_laws(results).verdict

    assert found(lambda layers, rich, lazy: rich) == "holds"
    assert found(lambda layers, rich, lazy: lazy) == "does not hold"
    # as with two weight layers, whatever their number
    assert found(lambda layers, rich, lazy: max(2 * lazy / (1 + lazy), lazy)) == "does not hold"


def test_cost():
    noise = 1 + 0.01 * np.random.default_rng(0).standard_normal((6, 4))

    def verdict(width, blocks):
        powers = {"width": width, "dimension": 0.0, "samples": 0.0, "blocks": blocks}
        found = [{s: np.asarray(v, float) ** powers[s] * noise[:, : len(v)]} for s, v in deep._SIZES.items()]
        return deep.judge_cost({"d9-cost": found}).verdict

    assert verdict(0.0, 1.0) == "holds"
    assert verdict(0.0, 2.0) == "does not hold"
    assert verdict(1.0, 1.0) == "does not hold"


def test_classes():
    points = np.array([[0.5, 0.5], [0.75, 0.25], [0.25, 0.5]])
    theory = np.array(["feature learning, diverse", "feature learning, redundant", "unstable"])

    def verdict(measured):
        return depth_classes.judge_classes(
            {"t1": [{"points": points, "theory": theory, "measured": np.array(measured)}]}
        ).verdict

    assert verdict(theory) == "holds"
    assert verdict([theory[0], "undetermined", theory[2]]) == "holds with conditions"
    assert verdict([theory[0], theory[0], theory[2]]) == "does not hold"
    assert verdict([theory[1], theory[1], theory[2]]) == "does not hold"


def test_diversity():
    def verdict(trained):
        initial = [[0.0, 0.03], [-0.5, 0.03], [-1.0, 0.03]]
        each = {"alpha": np.array([0.5, 0.75, 1.0]), "initial": np.array(initial), "trained": np.array(trained)}
        return depth_classes.judge_diversity({"t4": [each]}).verdict

    assert verdict([[0.02, 0.05], [-0.5, 0.05], [-0.9, 0.05]]) == "holds"
    assert verdict([[0.02, 0.05], [0.0, 0.05], [-0.9, 0.05]]) == "does not hold"


def test_pre_norm():
    def verdict(plain_end, subtracted_end, growth=9.0):
        noise = 0.005 * np.random.default_rng(0).standard_normal((8, 2))

        def stack(end):
            curve = np.array([0.5, end])
            return {"correlation": curve + noise, "norm": np.array([1.0, growth]) + noise, "kernel": curve,
                    "kernel_norm": np.array([1.0, 9.0]), "printed": np.array([0.5, 0.2])}  # fmt: skip

        return depth_classes.judge_pre_norm({"t8": [stack(plain_end), stack(subtracted_end)]}).verdict

    assert verdict(0.66, 0.37) == "holds with conditions"
    assert verdict(0.3, 0.3) == "holds"
    assert verdict(0.66, 0.66) == "does not hold"
    assert verdict(0.66, 0.37, growth=1.0) == "does not hold"


def test_linear_limit():
    def verdict(gap, equation):
        each = {"limit": 0.13, "equation": equation, "losses": np.array([0.12, 0.1305]), "widths": np.array([64, 256]),
                "gap": np.array([0.3, gap]), "sem": np.array([0.01, 0.01])}  # fmt: skip
        return depth_classes.judge_limit({"t11": [each] * 3}).verdict

    assert verdict(0.05, 0.13) == "holds"
    assert verdict(0.5, 0.13) == "does not hold"
    assert verdict(0.05, 0.131) == "does not hold"


def test_law_and_width():
    def diagram(name, power):
        study = load_changed(name, {})
        axes, rng = study.diagram.values(), np.random.default_rng(0)
        rows = [
            {"network.width": w, "network.threshold.relative": s, "seed": seed,
             "distance": w**power * math.exp(0.05 * rng.standard_normal())}
            for w in axes["network.width"] for s in axes["network.threshold.relative"] for seed in range(4)
        ]  # fmt: skip
        return PhaseDiagram(study, tuple(axes), rows)

    names = ("m1-law-and-width.toml", "m1-law-other-costs.toml")
    assert two_layer.judge_law({name: diagram(name, -0.5) for name in names}).verdict == "holds"
    assert two_layer.judge_law({name: diagram(name, 0.0) for name in names}).verdict == "does not hold"


def matrix_rows(name, values):
    study = load_changed(name, {})
    return {name: PhaseDiagram(study, tuple(study.diagram.values()), values)}


def test_low_rank():
    def verdict(mixed, lazy, rank):
        values = {0.001: (mixed, rank), 10.0: (lazy, 40.0)}
        rows = [
            {"network.threshold.relative": s, "seed": seed, "signal_rank": 5.0, "network_best_error": e + 1e-3 * seed,
             "network_rank": r + 0.0}
            for s, (e, r) in values.items() for seed in range(3)
        ]  # fmt: skip
        return two_layer.judge_low_rank(matrix_rows("m8-low-rank-bias.toml", rows)).verdict

    assert verdict(0.05, 0.68, 5.0) == "holds"
    assert verdict(0.68, 0.68, 5.0) == "does not hold"
    assert verdict(0.05, 0.05, 5.0) == "does not hold"
    assert verdict(0.05, 0.68, 9.0) == "does not hold"


def test_small_width():
    def verdict(block):
        rows = [
            {
                "network.variance": v,
                "network.width": 4,
                "seed": 0,
                "size": 200.0,
                "block_network": block(v),
                "distance": 1.0,
            }
            for v in (1e-5, 1e-4, 1e-3)
        ]
        return two_layer.judge_small_width(matrix_rows("m7-small-width.toml", rows)).verdict

    assert verdict(lambda variance: 3 * variance) == "holds"
    assert verdict(lambda variance: 0.3) == "does not hold"


def test_phases():
    name = "m3-phase-diagram.toml"

    def verdict(line):
        axes = load_changed(name, {}).diagram.values()
        rows = [
            {"network.variance.exponent": s, "network.exponent": w, "seed": 0, "signal_rank": 5.0,
             "network_best_error": 0.05 + 0.5 / (1 + math.exp(-12 * line(s, w)))}
            for s in axes["network.variance.exponent"] for w in axes["network.exponent"]
        ]  # fmt: skip
        return two_layer.judge_phases(matrix_rows(name, rows)).verdict

    assert verdict(lambda s, w: s + w - 0.75) == "holds with conditions"  # nothing is noisy for its variance alone
    assert verdict(lambda s, w: max(s + w - 0.75, 2 * s + w)) in ("holds", "holds with conditions")
    assert verdict(lambda s, w: 1.0) == "does not hold"  # bad everywhere


@pytest.mark.parametrize("name", ["M2", "M4", "M5"])
def test_times_of_modes(name):
    claim = CLAIMS[name]
    (source,) = claim.sources
    study = load_changed(source.name, {})
    run = unpacked(packed(lazyrich.two_layer(study.problem)))
    assert claim.judge({source.name: run}).verdict == "holds"
    late = replace(run, data=run.data.assign(half_time=1.2 * run.data["half_time"]))
    assert claim.judge({source.name: late}).verdict == "does not hold"


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_list():
    finished = run_command("reproduce", "--list")
    assert finished.status == 0
    for name in IDS:
        assert re.search(rf"\b{name}\b", finished.out)
    assert "m6-law-by-factors.toml" in run_command("reproduce", "m6", "--list").out


def test_an_unknown_claim():
    assert_one_line_error(run_command("reproduce", "D99"), "D99", "--list")


def test_reproduce_writes_a_page_and_keeps_what_it_did(tmp_path, monkeypatch):
    words = ("reproduce", "M6", "M2", "--quick", "--workers", "1", "--results", tmp_path / "gallery", "--quiet")
    finished = run_command(*words)
    assert finished.status == 0, finished.err
    assert "M2: holds" in finished.out and "M6: holds" in finished.out
    page = (tmp_path / "gallery" / "gallery.html").read_text("utf-8")
    assert page.count('<img alt="Figure of claim') == 2 and "Quick run" in page
    assert not re.search(r"""(?:src|href)=(?!["']?(?:data:|#))""", page)
    content = json.loads((tmp_path / "gallery" / "gallery.json").read_text("utf-8"))
    assert [claim["id"] for claim in content["claims"]] == ["M2", "M6"]  # in the order of the list

    def never(self):
        raise AssertionError(f"{self} is computed again")

    monkeypatch.setattr(Work, "execute", never)
    again = run_command(*words, "--json")
    assert again.status == 0
    assert json.loads(again.out)["claims"] == content["claims"]


def test_reproduce_starts_its_processes_once(tmp_path, monkeypatch):
    started = []

    def counted(processes, announce):
        started.append(processes)
        return local_cluster(processes, announce)

    monkeypatch.setattr(cluster, "local_cluster", counted)
    words = ("reproduce", "M6", "M2", "--quick", "--workers", "2", "--results", tmp_path / "gallery")
    finished = run_command(*words)
    assert finished.status == 0 and "M2: holds" in finished.out and "M6: holds" in finished.out
    assert len(started) == 1 and finished.err.count("dashboard") <= 1
    again = run_command(*words)
    assert again.out == finished.out and len(started) == 1  # where nothing is computed, none is started
    stores = [path.parent for path in tmp_path.rglob("study.json")]
    assert len(stores) == 2 and all(list((store / "cells").iterdir()) for store in stores)


def test_studies_are_found_beside_an_installed_package(tmp_path):
    shutil.copytree(ROOT / "src" / "lazyrich", tmp_path / "lazyrich", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "studies", tmp_path / "lazyrich" / "studies")  # what the wheel's force-include does
    code = "from lazyrich.gallery.studies import studies_folder; print(studies_folder())"
    environment = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert found.stdout.strip() == str(tmp_path / "lazyrich" / "studies"), found.stderr


# --- what is committed ----------------------------------------------------------------------------------------------


def test_the_committed_gallery_and_the_page_about_it_say_the_same():
    content = json.loads((COMMITTED / "gallery.json").read_text("utf-8"))
    ids = [claim["id"] for claim in content["claims"]]
    assert ids == [name for name in IDS if name in ids]
    table = (ROOT / "docs" / "gallery.md").read_text("utf-8")
    for claim in content["claims"]:
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {claim['id']} |")]
        assert f"| {claim['verdict']} |" in row
        assert claim["claim"] == CLAIMS[claim["id"]].statement
    page = (COMMITTED / "gallery.html").read_text("utf-8")
    assert ("Quick run" in page) == content["quick"]
    assert not re.search(r"""(?:src|href)=(?!["']?(?:data:|#))""", page)
