"""Exponents of power laws: known ones found, cut-offs and plateaus named, claim D8 for two to five weight layers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import lazyrich
from lazyrich import LazyrichError, Network, PowerLawData, Problem, Training
from lazyrich.theory.deep_linear.compute import compute_trade
from lazyrich.theory.deep_linear.exponent import expected_exponents, fit_exponent, missing_tail
from tests.conftest import assert_one_line_error, run_command

ROOT = Path(__file__).parent.parent
INF = math.inf


def power_law_problem(blocks=0, task=0.5, dimension=10**10, horizon=1e5, rich=1.0, capacity=1.5, nodes=None, **more):
    """A network on power-law data in units where eigenvalues are k^-capacity and each mode counts once."""
    unit = dimension / (1 + sum(k**-capacity for k in range(2, 10**4)) + 2e-2)  # zeta(1.5), nearly
    return Problem(
        network=Network(width=INF, blocks=blocks),
        data=PowerLawData(dimension=dimension, capacity=capacity, source=capacity * task + 1 - capacity, **more),
        training=Training(
            mode="flow", horizon=horizon, nodes=nodes, learning_rate=1 / unit, richness=rich * math.sqrt(unit)
        ),
    )


def test_lazy_exponents():
    # lazy networks follow t^-b from the start; measured 0.25000, 0.50000 and 1.50000, intervals 0.0001 to 0.015 wide:
    # at b = 1.5 the slope overshoots where the window begins
    for task in (0.25, 0.5, 1.5):
        fit, _ = fit_exponent(power_law_problem(task=task, rich=1e-4))
        assert fit.verdict == "reached" and fit.ends == "horizon"
        assert fit.exponent == pytest.approx(task, abs=1e-3)
        assert fit.low <= fit.exponent <= fit.high and fit.high - fit.low < 0.02
        assert fit.expected_lazy == pytest.approx(task)


@pytest.mark.parametrize("blocks", [0, 1, 2, 3])
def test_rich_exponents_of_two_to_five_weight_layers(blocks):
    # claim D8 at b = 1/2; to t = 10^6 the slope has come within 0.003, 0.012, 0.021 and 0.030 of its limit, the
    # exponent within 0.000, 0.002, 0.005 and 0.004 (measured)
    layers = blocks + 2
    fit, trajectory = fit_exponent(power_law_problem(blocks, dimension=10**12, horizon=1e6, nodes=65))
    expected = layers / (layers + 1)
    assert fit.expected_rich == pytest.approx(expected)
    assert fit.slope < expected < fit.high
    assert abs(fit.exponent - expected) < 0.008
    # one layer less or more would be outside
    assert abs(expected - (layers - 1) / layers) > 0.016 and abs(expected - (layers + 1) / (layers + 2)) > 0.016
    assert fit.verdict == ("reached" if blocks == 0 else "not reached")
    assert trajectory.statistics["time_step_error"] < 4e-3  # measured at most 2.7e-3
    slopes = [slope for _, _, slope in fit.decades[-4:]]
    assert slopes == sorted(slopes)


def test_steep_tasks_gain_nothing_from_richness():
    fit, _ = fit_exponent(power_law_problem(task=1.5))
    assert fit.exponent == pytest.approx(1.5, abs=5e-3) and fit.expected_rich == pytest.approx(1.5)


def test_the_cut_off_is_felt():
    fit, trajectory = fit_exponent(power_law_problem(dimension=3000, horizon=1e7, rich=1e-4))
    assert fit.ends == "cut-off" and fit.window is not None
    # mode D = 3000 of eigenvalue D^-1.5 is 2% learned after 0.01/lambda at a lazy rate of 2
    assert fit.window[1] == pytest.approx(0.01 * 3000**1.5, rel=0.3)
    assert fit.exponent == pytest.approx(0.5, abs=0.01)
    # without minding the end of the spectrum the last slope would be wrong by far
    times, loss = trajectory.data["time"].values, trajectory.test_loss
    late = times > 30 * fit.window[1]
    assert -np.gradient(np.log(loss[late]), np.log(times[late]))[0] > 1.0
    assert any("dimensions" in line for line in fit.summary())


def test_a_plateau_is_named():
    fit, trajectory = fit_exponent(power_law_problem(dimension=10**5, horizon=1e6, rich=1e-4, samples=2000, nodes=65))
    assert fit.ends == "levels off" and fit.verdict == "not reached"
    assert fit.level == trajectory.test_loss[-1]
    # what is left of the power law is t^-1/2; P modes are learned at t = P^1.5, where the slope is about half
    assert fit.exponent == pytest.approx(0.5, abs=0.01) and fit.low < 0.5 < fit.high  # measured 0.4956
    assert 0.01 < fit.leaves / 2000**1.5 < 1  # measured 0.05
    assert any("levels off" in line for line in fit.summary())
    few, _ = fit_exponent(power_law_problem(dimension=10**5, horizon=1e6, rich=1e-4, samples=50, nodes=65))
    assert few.exponent is None and few.verdict == "none" and "levels off" in few.summary()[0]


def test_no_power_law():
    problem = Problem(
        network=Network(width=INF, blocks=0),
        data=lazyrich.GaussianData(dimension=10),
        training=Training(mode="flow", horizon=10.0, nodes=33),
    )
    fit, _ = fit_exponent(problem)
    assert fit.exponent is None and fit.verdict == "none" and fit.ends == "cut-off"
    assert fit.expected_rich is None and fit.summary()[0].startswith("no power law")


def test_the_tail_of_an_endless_spectrum():
    data = PowerLawData(dimension=2000, capacity=1.5, source=0.25)
    numbers = np.arange(1.0, 2e6)
    power = numbers**-1.75
    beyond = 2e6**-0.75 / 0.75
    expected = (power[2000:].sum() + beyond) / power[:2000].sum()
    problem = Problem(network=Network(width=9, blocks=0), data=data, training=Training(mode="flow", horizon=1.0))
    assert missing_tail(problem) == pytest.approx(expected, rel=1e-5)  # measured 1e-7
    assert missing_tail(problem.with_values({"data.outputs": 2})) == pytest.approx(expected, rel=1e-5)
    assert missing_tail(problem.with_values({"data.source": -0.6})) == 0.0  # its sum would not end


def test_expected_exponents_of_other_problems():
    problem = power_law_problem()
    assert expected_exponents(problem) == (pytest.approx(2 / 3), pytest.approx(0.5))
    residual = problem.with_values({"network.blocks": 1, "network.skip": 1.0})
    assert expected_exponents(residual) == (None, None)
    # a layer that is not trained does not grow
    frozen = {"network.blocks": 1, "training.learning_rate": {"input": 0.0, "block": 1.0, "output": 1.0}}
    assert expected_exponents(problem.with_values(frozen)) == (pytest.approx(2 / 3), pytest.approx(0.5))


def test_only_flow_has_an_exponent(write_problem):
    assert_one_line_error(run_command("exponent", write_problem()), "training.mode", "flow")
    with pytest.raises(LazyrichError, match="gradient flow"):
        fit_exponent(lazyrich.load_problem(write_problem()))


def test_exponent_command(tmp_path):
    study = (ROOT / "studies" / "d8-lazy-and-rich.toml").read_text()
    path = tmp_path / "small.toml"
    path.write_text(
        study.replace("horizon = 1e6", "horizon = 1e4\nnodes = 49").replace("[-0.125, 0.25, 0.625, 1.75]", "[0.25]")
    )
    done = run_command("exponent", path, "--json", "--plot", tmp_path / "small.png")
    assert done.status == 0, done.err
    fits = json.loads(done.out)["exponents"]
    assert [fit["label"] for fit in fits] == ["richness = 1.0, source = 0.25", "richness = 618700.0, source = 0.25"]
    assert fits[0]["exponent"] == pytest.approx(0.5, abs=0.01)
    assert fits[1]["slope"] > 0.6
    assert (tmp_path / "small.png").stat().st_size > 10_000
    table = run_command("exponent", path).out
    assert "test loss ~ t^-0.5" in table and "expected of rich networks 0.6667, of lazy ones 0.5000" in table
    done = run_command("exponent", path, "--output", tmp_path / "a.nc")  # two results
    assert_one_line_error(done, "--output", "several results")


def random_features(width):
    """Widths over which theory alone says what ends the power law: the input layer is frozen."""
    problem = power_law_problem(dimension=10**4, horizon=1e4, nodes=49)
    return problem.with_values(
        {
            "network.width": width,
            "network.init_std": {"input": 1.0, "output": 1e-6},
            "training.learning_rate": {"input": 0.0, "output": problem.training.learning_rate},
        }
    )


def test_width_against_steps():
    found = [fit_exponent(random_features(width)) for width in (10, 30, 100)]
    trade = compute_trade(found)
    assert trade is not None and trade.expected == (pytest.approx(0.4), pytest.approx(0.3))
    # so few and small widths are not yet those of the power laws: measured 0.437 and 0.273
    assert trade.width_exponent[0] == pytest.approx(0.4, abs=0.06)
    assert trade.loss_exponent[0] == pytest.approx(0.3, abs=0.05)
    # levels tend to width^-(1.5 x 0.5): measured 0.67 and 0.74
    levels = np.log([fit.level for fit, _ in found])
    slopes = -np.diff(levels) / np.diff(np.log([10, 30, 100]))
    assert slopes[0] < slopes[1] < 0.75 and slopes[1] > 0.72
    # the envelope of the curves, taken apart anew: at the compute of a change both widths reach the loss given
    for index, (compute, loss) in enumerate(zip(trade.compute, trade.loss, strict=True)):
        for _, trajectory in found[index : index + 2]:
            width = trajectory.problem.network.width
            read = np.interp(compute / width, trajectory.times, trajectory.test_loss)
            assert read == pytest.approx(loss, rel=0.02)
    assert "0.4000 and 0.3000" in "\n".join(trade.summary())
    assert compute_trade(found[:2]) is None  # two widths
    assert compute_trade([*found[:2], found[0]]) is None  # one of them twice
    richer = fit_exponent(random_features(300).with_values({"training.richness": 1.0}))
    assert compute_trade([*found, richer]) is None  # not alike
