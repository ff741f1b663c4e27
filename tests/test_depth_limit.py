"""Linear networks at infinite width and depth: two independent derivations, orders in depth, and trained networks."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lazyrich
from lazyrich import LazyrichError, Network, Problem, SpectrumData, Training
from lazyrich.theory.depth.depth_ode import _collocation, solve_depth_ode
from lazyrich.theory.depth.linear_limit import at_depth, depth_limit, extrapolate, towards_limit


def four_samples() -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and target coefficients of four samples of six normal numbers with normal targets."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((4, 6)), rng.standard_normal(4)
    eigenvalues, basis = np.linalg.eigh(inputs.T @ inputs / 4)
    eigenvalues = np.where(eigenvalues > 1e-12, eigenvalues, 0.0)
    correlation = basis.T @ inputs.T @ targets / 4
    return eigenvalues, math.sqrt(6) * np.divide(correlation, eigenvalues, out=np.zeros(6), where=eigenvalues > 0)


def small(rate=0.25 / 6, **training) -> Problem:
    eigenvalues, target = four_samples()
    settings = {"mode": "population", "steps": 10, "learning_rate": rate, "richness": math.sqrt(6)} | training
    return Problem(
        network=Network(width=math.inf, blocks=1, skip=1.0, branch=1.0),
        data=SpectrumData(eigenvalues=list(eigenvalues), target=list(target)),
        training=Training(**settings),
    )


def digits(**changes) -> Problem:
    """Two outputs, and everything that a linear optimiser has."""
    problem = Problem(
        network=Network(width=64, blocks=3, skip=1.0, beta0=0.9, init_std={"input": 0.8, "block": 1.0, "output": 1.2}),
        data=lazyrich.dataset("digits", classes=[0, 1]),
        training=Training(
            steps=25,
            learning_rate={"input": 0.004, "block": 0.003, "output": 0.002},
            schedule="cosine",
            momentum=0.5,
            weight_decay={"input": 0.5, "block": 1.0, "output": 0.3},
            richness=1.5,
        ),
    )
    return problem.with_values(changes)


@pytest.mark.parametrize(
    ("alpha", "blocks", "expected"), [(0.5, 4, 0.046138), (0.5, 32, 0.028229), (1.0, 4, 0.101858), (1.0, 32, 0.125631)]
)
def test_two_derivations_agree(alpha, blocks, expected):
    # from a sample-resolved derivation that shares nothing with the cascade, six digits; blocks' rate times L^(2a - 1)
    predicted = lazyrich.predict(at_depth(small(), blocks, alpha, 1.0 - alpha))
    assert predicted.train_loss[9] == pytest.approx(expected, abs=6e-7)


def test_infinite_depth():
    # extrapolated by the other derivation: 0.0255 +- 0.001 and 0.1305 +- 0.0005
    square_root, ode = (depth_limit(small(), alpha, 1 - alpha) for alpha in (0.5, 1.0))
    assert square_root.limit[9] == pytest.approx(0.0255, abs=1e-3)
    assert ode.limit[9] == pytest.approx(0.1305, abs=5e-4)
    assert max(square_root.error.max(), ode.error.max()) < 1e-5  # 2e-6 measured
    assert square_root.outcome.kind == "finished" and square_root.train_loss.shape == (4, 10)


@pytest.mark.parametrize("problem", [small(), digits()], ids=["four samples", "digits"])
def test_equation_in_depth_is_the_limit_of_the_cascade(problem):
    # extrapolation over 4..64 is right to 1e-9 by its own estimate; measured difference 8e-11 and 1e-14
    extrapolated = depth_limit(problem, 1.0, 0.0, depths=(4, 8, 16, 32, 64))
    solved = solve_depth_ode(problem, nodes=6)
    np.testing.assert_allclose(solved, extrapolated.limit, atol=1e-9)
    assert np.all(np.abs(solved - extrapolated.limit) <= 3 * extrapolated.error + 1e-12)


def test_collocation_converges_like_a_gauss_rule():
    exact = solve_depth_ode(small(), nodes=8)
    errors = [np.abs(solve_depth_ode(small(), nodes) - exact).max() for nodes in (1, 2, 3)]
    # 3e-4, 7e-7, 3e-9 measured: a factor of more than a hundred a node
    assert errors[0] > 100 * errors[1] > 1e4 * errors[2] > 0


def test_collocation_integrates_polynomials():
    forwards, backwards, quadrature = _collocation(4)
    points = (np.polynomial.legendre.leggauss(4)[0] + 1) / 2
    for power in range(4):
        np.testing.assert_allclose(forwards @ points**power, points ** (power + 1) / (power + 1), atol=1e-14)
        rest = (1 - points ** (power + 1)) / (power + 1)
        np.testing.assert_allclose(backwards @ points**power, rest, atol=1e-14)
        assert quadrature @ points**power == pytest.approx(1 / (power + 1), abs=1e-14)


@pytest.mark.parametrize(
    ("alpha", "gamma", "power"), [(0.5, 0.5, 1.0), (0.75, 0.25, 0.5), (1.0, 0.0, 1.0), (1, 0.5, 0.5)]
)
def test_finite_depth_approaches_the_limit_at_the_order_of_theory(alpha, gamma, power):
    # the distance goes as L^-1, L^(1 - 2 alpha) or L^(1 - alpha - gamma), whichever is slowest
    limit = depth_limit(small(), alpha, gamma).limit[5]
    distances = [
        abs(lazyrich.predict(at_depth(small(steps=6), blocks, alpha, gamma)).train_loss[5] - limit)
        for blocks in (64, 128, 256)
    ]
    orders = -np.diff(np.log2(distances))
    # measured: 0.995 0.998, 0.491 0.496, 0.994 0.997, 0.583 0.561 (terms in L^-1 beside those in L^-1/2)
    assert orders[1] == pytest.approx(power, abs=0.07)
    assert abs(orders[1] - power) < abs(orders[0] - power)


def test_all_redundant_rules_have_the_limit_of_the_equation():
    limits = [depth_limit(small(), alpha, 1 - alpha, depths=(8, 16, 32)).limit for alpha in (0.6, 0.75, 1.0)]
    np.testing.assert_array_equal(limits[0], limits[2])
    np.testing.assert_array_equal(limits[1], limits[2])


def test_trivial_rules_end_as_networks_whose_blocks_stay_as_they_were():
    two_layers = small().with_values({"network.blocks": 0, "network.skip": 0.0})
    tables = two_layers.to_dict()
    del tables["network"]["branch"]
    expected = lazyrich.predict(Problem(**tables)).train_loss
    np.testing.assert_allclose(depth_limit(small(), 1.0, 0.5).limit, expected, rtol=1e-12)
    frozen = small(rate={"input": 0.25 / 6, "block": 0.0, "output": 0.25 / 6})
    blocks = [lazyrich.predict(at_depth(frozen, depth, 0.5, 0.5)).train_loss for depth in (8, 16, 32, 64)]
    limit = depth_limit(small(), 0.5, 1.0)
    np.testing.assert_allclose(limit.limit, extrapolate((8, 16, 32, 64), np.stack(blocks)), rtol=1e-12)


@pytest.mark.parametrize(("alpha", "gamma"), [(0.5, 0.5), (0.75, 0.0), (1.0, 0.25)])
def test_depth_rule_is_that_of_the_table(alpha, gamma):
    # Written out: branch m^-alpha, rate m^(alpha - gamma), decay over it; at_depth moves factors into the weights
    problem, growth = digits(), 4.0
    rate = problem.training.learning_rate.block * growth ** (alpha - gamma)
    decay = problem.training.weight_decay.block / growth ** (alpha - gamma)
    written = problem.with_values(
        {
            "network.width": math.inf,
            "network.blocks": 12,
            "network.branch": problem.network.branch_multiplier * growth**-alpha,
            "training.learning_rate.block": rate,
            "training.weight_decay.block": decay,
        }
    )
    moved = at_depth(problem, 12, alpha, gamma)
    np.testing.assert_allclose(lazyrich.predict(moved).train_loss, lazyrich.predict(written).train_loss, rtol=1e-11)


@pytest.mark.parametrize(("alpha", "gamma"), [(0.5, 0.5), (1.0, 0.0)])
def test_networks_approach_it_like_one_over_width(alpha, gamma):
    infinite = at_depth(small(), 16, alpha, gamma)
    theory = lazyrich.predict(infinite).train_loss
    gaps, errors = [], []
    for width, seeds in ((64, 128), (256, 64)):
        trained = lazyrich.train(infinite.with_values({"network.width": width}), seeds)
        gaps.append(width * (trained.train_loss - theory))
        errors.append(width * trained.data["train_loss_sem"].values)
    z = np.abs(gaps[1] - gaps[0]) / np.hypot(*errors)
    assert z.max() < 3.0  # 1.4 and 1.8 measured: width times gap is the same at both widths
    # 3.0 to 0.6 over the steps: at the last step 28% (alpha = 1/2) and 9% of the loss at width 64, a quarter at 256
    assert gaps[0].min() > 0.3 and gaps[0].max() < 5.0


def test_divergence_is_an_outcome():
    limit = depth_limit(small(rate=2.0, steps=40), 0.5, 0.5, depths=(2, 4, 8))
    assert limit.outcome.kind == "diverged"
    assert limit.outcome.step == len(limit.limit) < 40
    assert np.isfinite(limit.limit).all()
    solved = solve_depth_ode(small(rate=2.0, steps=40))
    assert len(solved) < 40 and np.isfinite(solved).all()


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: depth_limit(small(), 0.4, 0.6), "is unstable: there is no limit"),
        (lambda: depth_limit(small(), 0.5, math.nan), "not an exponent"),
        (lambda: depth_limit(small(), 0.5, 0.5, depths=(8, 8, 16)), "three or more rising depths"),
        (lambda: depth_limit(small(), 0.5, 0.5, depths=(8, 16)), "three or more rising depths"),
        (lambda: towards_limit(small().with_values({"network.skip": 0.5}), 8, 0.5, 0.5), "blocks and skip 1"),
        (lambda: solve_depth_ode(small().with_values({"network.skip": 0.0})), "blocks, and skip"),
        (lambda: solve_depth_ode(small(parametrization="ntk")), "lazy at infinite width"),
        (lambda: solve_depth_ode(small(), nodes=2000), "unknowns; use fewer nodes"),
        (lambda: solve_depth_ode(small().with_values({"training.mode": "online", "training.batch": 3})), "fixed"),
    ],
)
def test_what_has_no_limit(act, words):
    with pytest.raises(LazyrichError, match=words):
        act()
