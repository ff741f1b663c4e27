"""The one-pass solver against reference values, a fixed-point iteration, closed forms and its own checks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import lazyrich
from lazyrich import GaussianData, Network, PowerLawData, Problem, SpectrumData, Training
from lazyrich.theory.deep_linear import quadrature
from lazyrich.theory.deep_linear.checks import quadrature_error, residual
from lazyrich.theory.deep_linear.limit import take_limit
from lazyrich.theory.deep_linear.optimizer import optimizer_memory
from lazyrich.theory.deep_linear.quadrature import Measure, data_measure
from lazyrich.theory.deep_linear.solver import required_memory, solve
from tests.fixed_point import iterate
from tests.golden import CASES, golden_problem


def kernel(trajectory, name, level=None):
    """A kernel of a single-output trajectory as a (steps, steps) array."""
    values = trajectory.data[name].values
    return (values if level is None else values[level])[:, 0, :, 0]


def equal_time(trajectory, name, level):
    return np.diag(kernel(trajectory, name, level))


# ---- reference values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_golden_values(case):
    # measured: losses 2e-14, kernels 1e-12 relative, from rounding alone
    predicted = lazyrich.predict(golden_problem(case))
    times = case["times"]
    np.testing.assert_allclose(predicted.test_loss[times], case["test_loss"], rtol=1e-9)
    np.testing.assert_allclose(predicted.train_loss[times], case["train_loss"], rtol=1e-9)
    for name, key, level in [
        ("feature_kernel", "H_first", 0),
        ("feature_kernel", "H_last", -1),
        ("gradient_kernel", "G_first", 0),
    ]:
        np.testing.assert_allclose(equal_time(predicted, name, level)[times], case[key], rtol=1e-9)
    row, column = case["H_last_two_time_indices"]
    np.testing.assert_allclose(kernel(predicted, "feature_kernel", -1)[row, column], case["H_last_two_time"], rtol=1e-9)
    assert predicted.statistics["residual"] < 1e-12
    solution = solve(take_limit(golden_problem(case)))
    np.testing.assert_allclose(np.diag(solution.data.data_gradient)[times], case["C_u"], rtol=1e-9)


def spectrum_problem(network, training, **data):
    eigenvalues = np.arange(1, 9.0) ** -0.7
    target = np.cos(np.arange(8.0)) + 0.5
    data = SpectrumData(eigenvalues=eigenvalues.tolist(), target=target.tolist(), **data)
    return Problem(network=Network(**network), data=data, training=Training(**training))


FIXED_POINT = {
    "plain, noise": spectrum_problem(
        dict(width=12, blocks=2), dict(steps=16, learning_rate=0.02), samples=10, label_noise=0.4
    ),
    "residual, decay, momentum": spectrum_problem(
        dict(width=6, blocks=3, skip=1.0, branch=0.5, init_std={"input": 0.9, "block": 1.1, "output": 0.8}),
        dict(
            steps=16,
            learning_rate={"input": 0.02, "block": 0.01, "output": 0.03},
            momentum=0.5,
            weight_decay={"input": 0.3, "block": 0.2, "output": 0.1},
            richness=1.5,
        ),
        samples=12,
        label_noise=0.2,
    ),
    "online, partial skip": spectrum_problem(
        dict(width=20, blocks=2, skip=0.6, branch=0.7),
        dict(mode="online", batch=5, steps=16, learning_rate=0.03, schedule="cosine"),
        label_noise=0.3,
    ),
    "population, two layers, NTK": spectrum_problem(
        dict(width=40, blocks=0), dict(mode="population", steps=20, learning_rate=0.1, parametrization="ntk")
    ),
    "infinite width, full batch": spectrum_problem(
        dict(width=float("inf"), blocks=1), dict(steps=16, learning_rate=0.05, richness=2.0), samples=6
    ),
}


@pytest.mark.parametrize("problem", FIXED_POINT.values(), ids=FIXED_POINT)
def test_fixed_point_iteration_agrees(problem):
    # both are exact: measured at most 3e-14 of the largest entry
    limit = take_limit(problem)
    reference = iterate(limit)
    solution = solve(limit)
    levels = solution.cascade.levels
    kappa = np.sqrt(limit.richness_squared)
    pairs = [
        (solution.data.weight_error, reference.weight_error),
        (solution.data.data_gradient, reference.data_gradient),
        (np.stack([level.cov_hh for level in levels]), reference.features),
        (np.stack([level.cov_gg for level in levels]), reference.gradients),
        (kappa * np.stack([level.dh_db for level in levels]), reference.feature_response),
        (kappa * np.stack([level.dg_da for level in levels]), reference.gradient_response),
    ]
    if limit.mode == "full-batch":
        pairs.append((solution.data.sample_error, reference.sample_error))
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


def test_solution_where_the_fixed_point_iteration_fails():
    # nu = 2, alpha = 1/2, two blocks, kappa = 2, eta0 = 0.02: an ordinary setting
    problem = Problem(
        network=Network(width=200, blocks=2),
        data=GaussianData(dimension=100, samples=50),
        training=Training(steps=40, learning_rate=0.02, richness=2.0),
    )
    limit = take_limit(problem)
    with np.errstate(all="ignore"), pytest.raises((ArithmeticError, np.linalg.LinAlgError)):
        iterate(limit)
    solution = solve(limit)
    assert not solution.diverged
    assert residual(solution) < 1e-11  # measured 5e-15


# ---- closed forms and limits ------------------------------------------------------------------------------------


def test_initial_values():
    # H^l(0,0) = H^0 (s^2 + c^2)^l, G^0 = (s^2 + c^2)^L, test loss = 1 + G^0/gamma^2, by hand
    problem = Problem(
        network=Network(width=50, blocks=3, skip=0.5, branch=0.8),
        data=GaussianData(dimension=100, samples=200, label_noise=0.4),
        training=Training(steps=1, learning_rate=0.1, richness=2.0),
    )
    predicted = lazyrich.predict(problem)
    gain = 0.5**2 + 0.8**2
    test = 1 + gain**3 / (2.0**2 * 0.5)
    assert predicted.test_loss[0] == pytest.approx(test, rel=1e-14)
    assert predicted.train_loss[0] == pytest.approx(test + 0.16, rel=1e-14)
    # at infinite width f = 0 and u = X^T Delta / (alpha sqrt D) is independent of the weights: variance
    # (1 + noise)/alpha from the samples plus 1
    wide = lazyrich.predict(problem.with_values({"network.width": float("inf")}))
    features = wide.data["feature_kernel"].values[:, 0, 0, 0, 0]
    np.testing.assert_allclose(features, (1.16 / 2 + 1) * gain ** np.arange(4), rtol=1e-14)


@pytest.mark.parametrize("blocks", [0, 1, 5])
@pytest.mark.parametrize("richness", [1e-6, None], ids=["mup, richness 1e-6", "ntk"])
def test_lazy_limit_is_linear_regression(blocks, richness):
    # infinite width and kappa -> 0: every mode decays as (1 - eta (L+2) lambda)^t, exactly for kappa = 0
    training = {"parametrization": "ntk"} if richness is None else {"richness": richness}
    problem = spectrum_problem(
        dict(width=float("inf"), blocks=blocks),
        dict(mode="population", steps=30, learning_rate=0.2 / (blocks + 2), **training),
    )
    # in NTK parametrization at infinite width gamma = 1 keeps the initial output: E f^2 = 1/gamma^2
    data = problem.data
    eigenvalues, target = np.array(data.eigenvalues), np.array(data.target)
    start = target**2 + (1.0 if richness is None else 0.0)
    decay = (1 - 0.2 * eigenvalues) ** np.arange(30)[:, None]
    expected = np.mean(eigenvalues * start * decay**2, axis=1)
    predicted = lazyrich.predict(problem)
    np.testing.assert_allclose(predicted.test_loss, expected, rtol=1e-11)  # measured 2e-12 (kappa = 1e-6)


def test_zero_rate_changes_nothing():
    problem = spectrum_problem(
        dict(width=8, blocks=1), dict(steps=6, learning_rate=[0.0] * 6), samples=9, label_noise=0.1
    )
    predicted = lazyrich.predict(problem)
    np.testing.assert_allclose(predicted.test_loss, predicted.test_loss[0], rtol=1e-14)
    np.testing.assert_allclose(predicted.train_loss, predicted.train_loss[0], rtol=1e-14)


def test_infinite_width_is_approached_as_one_over_width():
    def loss(width):
        problem = spectrum_problem(
            dict(width=width, blocks=1), dict(steps=20, learning_rate=0.05), samples=12, label_noise=0.1
        )
        return lazyrich.predict(problem).test_loss[-1]

    gaps = [loss(width) - loss(float("inf")) for width in (800, 1600, 3200)]
    np.testing.assert_allclose([gaps[0] / gaps[1], gaps[1] / gaps[2]], 2.0, rtol=0.02)  # measured 0.1%, 0.04%


def test_depth_limit_of_residual_networks():
    # figures of an independent implementation (five digits)
    losses = []
    for blocks in (2, 4, 8, 16, 32):
        problem = Problem(
            network=Network(width=100, blocks=blocks, skip=1.0, beta0=1.0),
            data=GaussianData(dimension=100, samples=150, label_noise=0.2),
            training=Training(steps=100, learning_rate=0.03),
        )
        losses.append(lazyrich.predict(problem).test_loss[99])
    np.testing.assert_allclose(losses, [0.12891, 0.12771, 0.12735, 0.12727, 0.12726], atol=6e-6)


@pytest.mark.parametrize(
    ("exponent", "blocks", "expected"),
    [(0.5, 4, 0.046138), (0.5, 32, 0.028229), (1.0, 4, 0.101858), (1.0, 32, 0.125631)],
)
def test_fixed_data_at_infinite_width(exponent, blocks, expected):
    # four samples in six dimensions, block rates times L^(2 alpha - 1): a second, sample-resolved derivation
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((4, 6)), rng.standard_normal(4)
    eigenvalues, basis = np.linalg.eigh(inputs.T @ inputs / 4)
    eigenvalues = np.where(eigenvalues > 1e-12, eigenvalues, 0.0)
    correlation = basis.T @ (inputs.T @ targets) / 4
    target = np.sqrt(6) * np.divide(correlation, eigenvalues, out=np.zeros(6), where=eigenvalues > 0)
    rate = 0.25 / 6
    problem = Problem(
        network=Network(width=float("inf"), blocks=blocks, skip=1.0, branch=blocks**-exponent),
        data=SpectrumData(eigenvalues=eigenvalues.tolist(), target=target.tolist()),
        training=Training(
            mode="population",
            steps=10,
            learning_rate={"input": rate, "block": rate * blocks ** (2 * exponent - 1), "output": rate},
            richness=np.sqrt(6),
        ),
    )
    assert lazyrich.predict(problem).train_loss[9] == pytest.approx(expected, abs=6e-7)


# ---- several outputs --------------------------------------------------------------------------------------------


def two_output_problem(targets):
    return Problem(
        network=Network(width=9, blocks=2, skip=1.0, beta0=1.0),
        data=SpectrumData(
            eigenvalues=(np.arange(1, 7.0) ** -0.5).tolist(), target=targets.tolist(), samples=8, label_noise=0.3
        ),
        training=Training(steps=12, learning_rate=0.02, momentum=0.3, weight_decay=0.1, richness=1.3),
    )


def test_rotating_the_outputs_leaves_the_summed_loss():
    targets = np.random.default_rng(1).standard_normal((2, 6))
    rotation = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
    plain = lazyrich.predict(two_output_problem(targets))
    turned = lazyrich.predict(two_output_problem(rotation @ targets))
    np.testing.assert_allclose(turned.train_loss, plain.train_loss, rtol=1e-12)
    np.testing.assert_allclose(turned.test_loss, plain.test_loss, rtol=1e-12)
    by_output = [t.data["test_loss_by_output"].values for t in (plain, turned)]
    assert np.abs(by_output[0] - by_output[1]).max() > 0.01  # the rotation did something


def test_several_outputs_share_the_hidden_layers():
    # lazy networks learn outputs independently; rich ones do not, where the targets overlap
    targets = np.array([[1.0, 0, 0, 0, 0, 0], [1.0, 1.0, 0, 0, 0, 0]])

    def first_output(richness, outputs):
        problem = two_output_problem(targets[:outputs]).with_values(
            {"training.richness": richness, "network.width": float("inf")}
        )
        return lazyrich.predict(problem).data["test_loss_by_output"].values[-1, 0]

    lazy = [first_output(1e-3, outputs) for outputs in (1, 2)]
    rich = [first_output(2.0, outputs) for outputs in (1, 2)]
    assert lazy[0] == pytest.approx(lazy[1], rel=1e-4)
    assert abs(rich[0] / rich[1] - 1) > 1e-2


def test_equal_and_orthogonal_targets_are_learned_independently():
    # three outputs of Gaussian data are solved as one; a spectrum with the same targets takes all three
    network = Network(width=9, blocks=2, skip=1.0, beta0=1.0)
    training = Training(steps=12, learning_rate=0.02, momentum=0.3, weight_decay=0.1, richness=1.3)
    alike = GaussianData(dimension=6, samples=8, label_noise=0.3, outputs=3)
    targets = np.sqrt(6) * np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0][:3]
    any_targets = SpectrumData(eigenvalues=[1.0] * 6, target=targets.tolist(), samples=8, label_noise=0.3)
    assert take_limit(Problem(network=network, data=alike, training=training)).outputs == 1
    assert take_limit(Problem(network=network, data=any_targets, training=training)).outputs == 3
    one, three = (
        lazyrich.predict(Problem(network=network, data=data, training=training), responses=True).data
        for data in (alike, any_targets)
    )
    assert set(one.data_vars) == set(three.data_vars)
    for name in one.data_vars:
        expected = three[name].values
        # measured 3e-15 of the largest entry
        np.testing.assert_allclose(one[name].values, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


# ---- the optimiser's memory -------------------------------------------------------------------------------------


def test_optimizer_memory_reproduces_a_scalar_training():
    rng = np.random.default_rng(0)
    rates, momentum, weight_decay = rng.uniform(0.01, 0.2, 9), 0.7, 0.3
    dyads = rng.standard_normal(9)
    memory = optimizer_memory(rates, momentum, weight_decay)
    weight, buffer = 1.7, 0.0
    for step in range(9):
        assert memory.decay[step] * 1.7 + memory.gain[step] @ dyads == pytest.approx(weight, rel=1e-13)
        buffer = momentum * buffer + (-dyads[step] + weight_decay * weight)
        weight -= rates[step] * buffer
    assert not np.triu(memory.gain).any()


# ---- quadrature -------------------------------------------------------------------------------------------------


def test_gauss_rule_is_exact_for_polynomials():
    rng = np.random.default_rng(0)
    measure = Measure(rng.uniform(0, 3, 200), rng.uniform(0, 1, 200))
    rule = measure.gauss(7)
    for degree in range(14):
        assert rule.weights @ rule.points**degree == pytest.approx(measure.weights @ measure.points**degree, rel=1e-12)
    assert rule.weights @ rule.points**14 != pytest.approx(measure.weights @ measure.points**14, rel=1e-9)


def test_gauss_rule_finds_the_distinct_points():
    measure = Measure(np.array([1.0, 1.0, 2.0, 2.0, 0.0]), np.full(5, 0.2))
    rule = measure.gauss(50)
    np.testing.assert_allclose(rule.points, [0, 1, 2], atol=1e-12)
    np.testing.assert_allclose(rule.weights, [0.2, 0.4, 0.4], rtol=1e-12)


@pytest.mark.parametrize("capacity", [0.3, 1.3, 4.0])
def test_long_power_laws_are_summed_by_ranges(monkeypatch, capacity):
    data = PowerLawData(dimension=40_000, capacity=capacity, source=0.4, samples=10)
    short = data_measure(data)
    monkeypatch.setattr(quadrature, "_EXPLICIT_MODES", 10**6)
    exact = data_measure(data)
    assert len(short.modes.points) < 1000 < len(exact.modes.points) == 40_000
    for time in (0.1, 10.0, 1000.0):
        sums = [np.exp(-time * m.modes.points) * m.modes.points @ m.modes.weights for m in (short, exact)]
        assert abs(sums[0] - sums[1]) < 1e-15  # of a mean eigenvalue of 1; measured 2e-16
    assert (short.target_vectors**2).sum() == pytest.approx((exact.target_vectors**2).sum(), rel=1e-12)


POWER_LAW = Problem(
    network=Network(width=80, blocks=1),
    data=PowerLawData(dimension=400, capacity=0.8, source=0.3, samples=600, label_noise=0.2),
    training=Training(steps=60, learning_rate=0.02),
)


@pytest.mark.parametrize("mode", ["full-batch", "online", "population"])
def test_nodes_replace_all_modes(mode):
    extra = {"data.samples": None} if mode != "full-batch" else {}
    extra |= {"training.batch": 300} if mode == "online" else {}
    problem = POWER_LAW.with_values({"training.mode": mode, "training.steps": 30, **extra})
    chosen = take_limit(problem)
    everything = dataclasses.replace(
        chosen,
        nodes=chosen.data.modes,
        target_points=chosen.data.target_points,
        target_vectors=chosen.data.target_vectors,
    )
    assert len(chosen.nodes.points) < 40
    few, all_modes = solve(chosen), solve(everything)
    np.testing.assert_allclose(
        np.diag(few.data.weight_error), np.diag(all_modes.data.weight_error), rtol=1e-10
    )  # measured 8e-15
    np.testing.assert_allclose(np.diag(few.data.data_gradient), np.diag(all_modes.data.data_gradient), rtol=1e-9)


@pytest.mark.parametrize("nodes", [6, 8, 11])
@pytest.mark.parametrize("width", [80, 8000])
def test_quadrature_error_is_estimated(nodes, width):
    problem = POWER_LAW.with_values({"network.width": width})
    few, many = solve(take_limit(problem, nodes)), solve(take_limit(problem, 40))
    exact = np.diag(many.data.weight_error)
    error = np.max(np.abs(np.diag(few.data.weight_error) / exact - 1))
    estimate = quadrature_error(few)
    # it ignores how an error feeds back, and overstates the part of the initial fluctuations, which forget:
    # measured ratios 0.8 to 1.2 (wide) and 11 to 18 (narrow)
    assert error / 3 < estimate < 30 * error


# ---- self-checks and outcomes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXED_POINT)
def test_residual_notices_any_wrong_kernel(name):
    limit = take_limit(FIXED_POINT[name])
    solution = solve(limit)
    assert residual(solution) < 1e-12
    level, data = solution.cascade.levels[-1], solution.data
    matrices = [level.cov_hh, level.cov_gg, level.dh_da, level.dh_db, level.dg_da, level.dg_db, data.weight_error]
    for matrix in [*matrices, data.data_gradient]:
        matrix[7, 3] += 1e-6
        assert residual(solution) > 1e-9
        matrix[7, 3] -= 1e-6


def test_divergence_is_an_outcome():
    problem = POWER_LAW.with_values({"training.learning_rate": 3.0})
    predicted = lazyrich.predict(problem)
    assert predicted.outcome.kind == "diverged"
    step = predicted.outcome.step
    assert step is not None and 0 < step < 60
    assert np.isfinite(predicted.test_loss[:step]).all() and np.isnan(predicted.test_loss[step:]).all()
    assert str(predicted.outcome) == f"diverged at step {step}; lower the learning rate"


def test_losses_never_fall_below_the_rounding_floor():
    problem = Problem(
        network=Network(width=100, blocks=0),
        data=GaussianData(dimension=100, samples=400),
        training=Training(steps=300, learning_rate=0.2),
    )
    predicted = lazyrich.predict(problem)
    assert predicted.statistics["steps_at_rounding_floor"] > 0
    assert predicted.test_loss.min() > 0 and predicted.train_loss.min() > 0


def test_memory_is_refused_before_solving():
    problem = POWER_LAW.with_values({"training.steps": 60_000, "training.learning_rate": 0.02})
    with pytest.raises(lazyrich.LazyrichError, match=r"training\.steps: the prediction needs .* GiB"):
        lazyrich.predict(problem)


@pytest.mark.parametrize("skip", [0.0, 1.0])
@pytest.mark.parametrize("mode", ["full-batch", "online", "population"])
def test_memory_estimate(mode, skip):
    import tracemalloc

    extra = {"data.samples": None} if mode != "full-batch" else {}
    extra |= {"training.batch": 300} if mode == "online" else {}
    problem = POWER_LAW.with_values(
        {"training.mode": mode, "training.steps": 250, "network.blocks": 2, "network.skip": skip, **extra}
    )
    limit = take_limit(problem)
    tracemalloc.start()
    lazyrich.predict(problem)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.9 < required_memory(problem, len(limit.nodes.points)) / peak < 1.3
