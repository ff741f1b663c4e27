"""Classes, diversity and second-order parts of depth rules, measured on networks and set beside theory."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from lazyrich import LazyrichError
from lazyrich.class_map import GRID
from lazyrich.problem.rules import classify
from lazyrich.simulation.residual.classification import measure_classes, near_border
from lazyrich.simulation.residual.diversity import Diversity, diversity_exponent, measure_diversity
from lazyrich.simulation.residual.probe import Probe, measure
from lazyrich.simulation.residual.second_order import second_order_fraction
from lazyrich.simulation.residual.slopes import Slope, fit_slope
from lazyrich.theory.depth.classes import expected_slopes, properties
from lazyrich.theory.depth.initialisation import propagate
from tests.conftest import assert_one_line_error, run_command

STABLE = [(0.5, 0.5), (0.75, 0.25), (1.0, 0.0)]


def test_properties_make_the_class():
    for alpha, gamma in itertools.product(np.arange(0.0, 1.6, 0.05), np.arange(-0.5, 1.1, 0.05)):
        holds = {each.name: each.holds for each in properties(float(alpha), float(gamma))}
        expected = (
            "unstable"
            if not holds["stable"]
            else "trivial"
            if not holds["nontrivial"]
            else "unfaithful"
            if not holds["faithful"]
            else "feature learning"
        )
        found = classify(float(alpha), float(gamma))
        assert found.name.partition(",")[0] == expected
        assert holds["feature learning"] == (holds["stable"] and holds["nontrivial"])
        assert (found.diversity_exponent == 0.5) == (expected == "feature learning" and abs(alpha - 0.5) < 1e-9)


def test_one_step_of_sign_descent_is_the_rate_of_the_table():
    probe = Probe(width=16, steps=1, seeds=2, rate=0.1, base_blocks=4)
    found = measure(probe, 16, [(0.5, 0.5), (1.0, -0.25)], _changes)
    for index, gamma in enumerate((0.5, -0.25)):
        moved = found["block"][index]
        # 0.1 m^-gamma / n with m = 16 / 4; a unit that is 0 for all samples does not move
        np.testing.assert_allclose(moved[moved > 0], 0.1 * 4.0**-gamma / 16, rtol=1e-11)
        assert np.mean(moved > 0) > 0.8
    assert found["input"].max() == found["output"].max() == 0.0
    assert measure(probe.at(only_blocks=False), 16, [(0.5, 0.5)], _changes)["input"].max() > 0.09


def _changes(form, network):
    del form
    return {
        "input": abs(network.final.input - network.initial.input),
        "block": abs(network.final.blocks - network.initial.blocks),
        "output": abs(network.final.output - network.initial.output),
    }


def test_large_branches_are_undetermined_rather_than_wrong():
    # multiplier^2 x base_blocks = 2, beyond the stated range: slopes bend, and their errors say so
    classes = measure_classes(GRID, Probe(seeds=4, multiplier=0.5, base_blocks=8))
    wrong = [each for each in classes if not each.agrees]
    assert 1 <= len(wrong) <= 8  # 5 measured
    assert {each.name for each in wrong} == {"undetermined"}


def test_beside_a_border_nothing_is_claimed():
    assert near_border(0.55, 0.5) and near_border(0.5, 0.55) and near_border(1.05, -0.05)
    assert not any(near_border(*point) for point in GRID)
    assert not near_border(0.3, 0.05) and not near_border(0.7, 0.6)
    (found,) = measure_classes([(0.55, 0.45)], Probe(seeds=2), depths=(16, 32))
    assert found.name == "undetermined" and not found.agrees and found.diversity_exponent is None


@pytest.mark.parametrize("kind", ["linear", "relu", "abs", "tanh", "gelu"])
def test_quadratic_variation_at_initialisation(kind):
    found = measure_diversity(Probe(nonlinearity=kind, seeds=6, steps=0), STABLE, depths=(16, 64, 128))
    for each in found:
        # off by 0.08 at most (linear, alpha = 1)
        assert each.initial.value == pytest.approx(1 - 2 * each.alpha, abs=0.12)
        assert each.exponent == classify(each.alpha, each.gamma).diversity_exponent
        # the plain fit reads the same for all: 0.499 to 0.504
        assert each.naive == pytest.approx(0.5, abs=0.01)


def test_training_leaves_the_diversity_as_it_is():
    probe = Probe(optimizer="adam", steps=40, rate=0.02, only_blocks=False, seeds=4)
    for each in measure_diversity(probe, STABLE, depths=(16, 64, 128)):
        assert each.exponent == classify(each.alpha, each.gamma).diversity_exponent
        assert each.trained.value == pytest.approx(1 - 2 * each.alpha, abs=0.2)  # 0.02, 0.06, 0.11 off measured
        assert each.trained.value != each.initial.value


def test_quadratic_variation_is_that_of_the_kernels():
    # the branch's square times the sum over blocks of what a block gives, from the kernels of infinite width
    probe = Probe(width=256, seeds=8, steps=0, multiplier=0.5, base_blocks=8)
    for alpha in (0.5, 1.0):
        found = measure(probe, 24, [(alpha, 0.0)], _variation)
        branch = 0.5 * 3.0**-alpha
        norms = [propagate(np.array([[norm]]), 24, "relu", branch=branch, mean_subtraction="after").norms[:, 0]
                 for norm in found["inputs"][0].ravel()]  # fmt: skip
        # centred blocks add up without cross terms: QV is the growth of the norm
        expected = np.mean([each[-1] - each[0] for each in norms])
        measured = found["variation"][0]
        error = measured.std(ddof=1) / np.sqrt(8)
        assert abs(measured.mean() - expected) < 3 * error  # z = 0.4 and 0.2 measured
        assert error < 0.05 * expected


def _variation(form, network):
    from lazyrich.simulation.residual.diversity import quadratic_variation
    from lazyrich.simulation.residual.network import forward_levels

    _, levels = forward_levels(form, network.initial, network.factors, network.inputs)
    return {"variation": quadratic_variation(levels), "inputs": (levels[0] ** 2).mean(axis=-1)}


# Few units cross a kink: relu needs larger steps to be measured well, and tanh smaller ones to be of lowest order.
@pytest.mark.parametrize(("kind", "power", "rate"), [("relu", 0.5, 0.2), ("tanh", 1.0, 0.05)])
def test_second_order_part_falls_with_the_rate(kind, power, rate):
    probe = Probe(nonlinearity=kind, block_layers=2, base_blocks=8, seeds=8, rate=rate)
    fractions, slopes = second_order_fraction(probe, STABLE, depths=(8, 32, 128))
    for (_, gamma), slope in zip(STABLE, slopes, strict=True):
        # -gamma/2 for a kink, -gamma without one; off by 0.02 at most, two standard errors are 0.03
        assert slope.value == pytest.approx(-power * gamma, abs=0.05)
    np.testing.assert_allclose(fractions[:, 0], np.broadcast_to(fractions[0, 0], (3, 8)), rtol=1e-9)  # at the base


def test_one_linear_layer_has_no_second_order_part():
    fractions, _ = second_order_fraction(Probe(nonlinearity="linear", seeds=2), [(0.5, 0.5)], depths=(8, 16))
    assert fractions.max() < 1e-9  # rounding: 3e-13 measured


def test_slopes_have_errors():
    depths, rng = (8, 16, 32, 64), np.random.default_rng(0)
    power = fit_slope(depths, np.array(depths, dtype=float)[:, None] ** np.array([-0.5, -0.5]))
    assert power.value == pytest.approx(-0.5) and power.error < 1e-12
    bent = fit_slope(depths, np.exp(-np.array(depths) / 100.0)[:, None] * np.ones(3))
    assert bent.error > 0.05
    noise = [fit_slope(depths, np.exp(0.1 * rng.standard_normal((4, 8)))) for _ in range(300)]
    assert np.mean([abs(each.value) < each.error for each in noise]) > 0.9
    assert fit_slope(depths, np.full((4, 2), np.nan)).value == np.inf
    assert diversity_exponent(Slope(-0.3, 0.15)) is None and diversity_exponent(Slope(np.inf, 0.0)) == 0.5
    assert Diversity(0.5, 0.5, power, Slope(-0.5, 0.05), 0.5).exponent == 0.0


def test_measurements_repeat():
    first, second = (measure_classes([(0.5, 0.5)], Probe(seeds=2), depths=(16, 32))[0].to_json() for _ in range(2))
    assert first == second
    other = measure_classes([(0.5, 0.5)], Probe(seeds=2, seed=1), depths=(16, 32))[0].to_json()
    assert other["slopes"] != first["slopes"]


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: Probe(optimizer="adamw"), "did you mean 'adam'"),
        (lambda: Probe(nonlinearity="rely"), "did you mean 'relu'"),
        (lambda: Probe(seeds=1), "give at least 2"),
        (lambda: Probe(multiplier=0.0), "positive"),
        (lambda: measure_classes([(0.5, 0.5)], depths=(8,)), "at least two depths"),
        (lambda: measure_classes([(0.5, 0.5)], depths=(0, 8)), "from 1 to 1024"),
        (lambda: measure_classes([(0.5, float("nan"))]), "not an exponent"),
        (lambda: measure_classes([(0.5, 0.5)], Probe(steps=0)), "at least one step"),
        (lambda: measure_classes([(0.5, 0.5)], Probe(width=10**6)), "reduce width or depth"),
    ],
)
def test_what_cannot_be_measured(act, words):
    with pytest.raises(LazyrichError, match=words):
        act()


def test_command_by_theory():
    shown = run_command("classify", "--alpha", 0.5, "--gamma", 0.5)
    assert shown.status == 0 and "feature learning, diverse" in shown.out and "1/2 by theory" in shown.out
    report = json.loads(run_command("classify", "--alpha", 1, "--gamma", 0.25, "--json").out)
    assert report["class"] == "trivial" and report["measured"] is None
    assert report["properties"]["feature learning"]["holds"] is False
    assert_one_line_error(run_command("classify", "--alpha", "nan", "--gamma", 0.5), "alpha", "from -4 to 4")
    assert_one_line_error(run_command("classify", "--alpha", 1, "--gamma", 0, "--optimizer", "adan"), "--optimizer")
    assert_one_line_error(run_command("classify", "--alpha", 1, "--gamma", 0, "--plot", "a.txt"), "--plot")


def test_command_by_networks(tmp_path):
    figure = tmp_path / "map.png"
    words = ("classify", "--alpha", 0.5, "--gamma", 0.5, "--optimizer", "sign", "--measure")
    report = json.loads(run_command(*words, "--plot", figure, "--json").out)
    assert report["measured"]["class"] == "feature learning, diverse" and report["measured"]["agrees"]
    assert {each["verdict"] for each in report["measured"]["verdicts"].values()} == {"pass"}
    assert figure.stat().st_size > 20_000
    # the class map: 25 of 25, and the powers of first order where the rule is stable (within 0.03 measured)
    assert [(each["alpha"], each["gamma"]) for each in report["grid"] if not each["agrees"]] == []
    assert report["grid_agrees"] == len(report["grid"]) == 25
    for each in report["grid"]:
        if each["class"] != "unstable":
            for name, expected in expected_slopes(each["alpha"], each["gamma"]).items():
                assert each["slopes"][name]["slope"] == pytest.approx(expected, abs=0.08), (each, name)
    shown = run_command(*words[:3], "--gamma", -0.25, *words[5:])
    assert "class by networks: unstable" in shown.out and shown.status == 0
