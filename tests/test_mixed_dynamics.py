"""Two-layer networks that learn a matrix: the law against roots, networks against plain descent, limits, readings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from threadpoolctl import threadpool_limits

import lazyrich
from lazyrich import LazyrichError, Matrix, MatrixProblem, MatrixTraining, Target, Trajectory, TwoLayerNetwork
from lazyrich.mixed_dynamics import readings
from lazyrich.mixed_dynamics.closed_form import singular_value_at, time_to_reach
from lazyrich.mixed_dynamics.costs import Custom, Factorization, Regression, Sensing
from lazyrich.mixed_dynamics.descent import factor_descent
from lazyrich.mixed_dynamics.point import measure_point
from lazyrich.mixed_dynamics.readings import crossing_times, plateaus
from lazyrich.mixed_dynamics.start import bartlett_network, full_network, tied_factors
from lazyrich.mixed_dynamics.task import generator, make_start, make_task
from lazyrich.trajectory import Interrupted, load

DEEP = [10.0, 7.0, 5.0, 3.0, 2.0]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small matrices are slower with several threads, most of all where other work runs."""
    with threadpool_limits(1):
        yield


def problem(
    shape: tuple[int, int] = (12, 8), matrix: Any = None, network: Any = None, **training: Any
) -> MatrixProblem:
    """A factorization of rank 3 at width 30 with s0/a = 0.1, with some changes."""
    target = Target(singular_values=[1.0, 0.6, 0.3])
    return MatrixProblem(
        matrix=Matrix(**({"shape": shape, "target": target} | (matrix or {}))),
        network=TwoLayerNetwork(**(network or {"width": 30, "threshold": 0.1})),
        training=MatrixTraining(**({} if "horizon" in training else {"steps": 100}) | training),
    )


def products_of(problem: MatrixProblem, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Times and A of a run, at the recorded steps."""
    data = lazyrich.two_layer(problem, products=True, **options).data
    return data["time"].values, data["product"].values


def plain_descent(
    first: np.ndarray,
    second: np.ndarray,
    target: np.ndarray,
    rates: tuple[float, float],
    steps: int,
    shrink: float = 0.0,
) -> np.ndarray:
    """A at every step of gradient descent on ``1/2 |W2 W1 - T|^2``, written here a second time."""
    found = [second @ first]
    for _ in range(steps):
        gradient = second @ first - target
        first, second = (
            first - rates[0] * second.T @ gradient - shrink * first,
            second - rates[1] * gradient @ first.T - shrink * second,
        )
        found.append(second @ first)
    return np.asarray(found)


def root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def law_by_roots(
    start: np.ndarray, target: np.ndarray, threshold: float, end: float, steps: int, decay: float = 0.0
) -> np.ndarray:
    """A at the end of the law with its matrix roots, by the classical Runge-Kutta method."""

    def slope(time: float, product: np.ndarray) -> np.ndarray:
        square, gradient = (threshold * math.exp(-2 * decay * time)) ** 2, product - target
        outer = root(product @ product.T + square * np.eye(len(product)))
        inner = root(product.T @ product + square * np.eye(product.shape[1]))
        return -(outer @ gradient + gradient @ inner) - 2 * decay * product

    step, product = end / steps, start
    for index in range(steps):
        time = index * step
        k1 = slope(time, product)
        k2 = slope(time + step / 2, product + step / 2 * k1)
        k3 = slope(time + step / 2, product + step / 2 * k2)
        k4 = slope(time + step, product + step * k3)
        product = product + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return product


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "decay"), [((12, 8), 0.0), ((5, 9), 0.0), ((7, 7), 0.15)])
def test_tied_factors_are_the_law_with_its_roots(shape: tuple[int, int], decay: float) -> None:
    end = 6.0
    asked = problem(shape, solver="law", horizon=end, record=5, weight_decay=decay)
    target = make_task(asked).cost.target
    _, products = products_of(asked)
    errors = [
        relative(law_by_roots(products[0], target, 0.1, end, steps, decay), products[-1]) for steps in (30, 60, 120)
    ]
    # what differs is the step of the method with roots: order 4, measured 4.1; asked for 1e-5, measured 1.4e-9
    orders = [math.log2(coarse / fine) for coarse, fine in pairwise(errors)]
    assert all(3.8 < order < 4.4 for order in orders), orders
    assert errors[-1] < 3e-9


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5)])
@pytest.mark.parametrize("size", [0.0, 1e-9, 1.0, 1e6])
def test_tied_factors_are_those_of_the_start(shape: tuple[int, int], size: float) -> None:
    start = size * np.random.default_rng(1).standard_normal(shape)
    first, second = tied_factors(start, 2.0)
    rows, columns = shape
    scale = 2.0 + np.linalg.norm(start, 2)
    # rounding: measured 1e-15 of the largest number in it, and of A(0) also where that is far below s0
    assert relative(second @ first, start) < 1e-14 if size else not (second @ first).any()
    inner, outer = first.T @ first, second @ second.T
    assert np.linalg.eigvalsh(inner)[0] > 0 and np.linalg.eigvalsh(outer)[0] > 0
    assert relative(inner @ inner, start.T @ start + 4 * np.eye(columns)) < 1e-14
    assert relative(outer @ outer, start @ start.T + 4 * np.eye(rows)) < 1e-14
    kept = 2.0 * np.diag([1.0] * columns + [-1.0] * rows)
    np.testing.assert_allclose(first @ first.T - second.T @ second, kept, rtol=0, atol=1e-14 * scale)


def test_descent_keeps_what_the_law_is_made_of() -> None:
    # W1 W1^T - W2^T W2 is constant in the flow; descent changes it by the square of the rate a step: 0.0037 at 0.01
    target = make_task(problem()).cost.target
    changes = []
    for rate in (0.04, 0.02, 0.01):
        first, second = tied_factors(np.zeros((12, 8)), 0.1)
        before = first @ first.T - second.T @ second
        for _ in range(round(4 / rate)):
            gradient = second @ first - target
            first, second = first - rate * second.T @ gradient, second - rate * gradient @ first.T
        changes.append(relative(first @ first.T - second.T @ second, before))
    states = factor_descent(tied_factors(np.zeros((12, 8)), 0.1), Factorization(target), 0.01, 0.0)
    product = [next(states)[0].copy() for _ in range(401)][-1]
    np.testing.assert_allclose(second @ first, product, rtol=0, atol=1e-13)
    assert all(1.9 < coarse / fine < 2.1 for coarse, fine in pairwise(changes))
    assert changes[-1] < 0.005


def test_error_of_the_law_falls_with_the_root_of_the_width() -> None:
    widths, seeds = [100, 1000, 10_000, 100_000], range(6)
    errors = np.asarray(
        [
            [
                measure_point(
                    problem((5, 5), network={"width": width, "threshold": 0.1}, learning_rate=0.05, seed=seed), "both"
                )["distance"]
                for seed in seeds
            ]
            for width in widths
        ]
    )
    slope = np.polyfit(np.log(widths), np.log(errors).mean(axis=1), 1)[0]
    # measured -0.484, with a standard error of 0.02 from six seeds at four widths
    assert abs(slope + 0.5) < 0.06


def test_other_constants_are_wrong() -> None:
    # s0 = sigma^2 w; texts also print sigma^4 w under the root, which is s0 = sigma^2 sqrt(w)
    asked = problem((20, 20), network={"width": 1600, "threshold": 0.3}, reduction="none", steps=200)
    _, products = products_of(asked)
    task = make_task(asked)
    start = make_start(asked, task)
    steps = lazyrich.two_layer(asked).steps

    def error(threshold: float) -> float:
        states = factor_descent(tied_factors(products[0], threshold), task.cost, start.rate, 0.0)
        law = np.asarray([next(states)[0].copy() for _ in range(steps[-1] + 1)])[steps]
        return max(relative(found, expected) for found, expected in zip(law, products, strict=True))

    variance = 0.3 / 1600
    errors = {
        "right": error(variance * 1600),
        "root": error(variance * 40),
        "half": error(variance * 800),
        "twice": error(variance * 3200),
    }
    # measured 0.07 (the finite width), against 0.41 or more
    assert errors["right"] < 0.1
    assert min(errors["root"], errors["half"], errors["twice"]) > 4 * errors["right"]


def test_start_is_the_network_s_own() -> None:
    network = products_of(problem(solver="network"))[1]
    law = products_of(problem(solver="law"))[1]
    assert np.linalg.norm(network[0]) > 0.01
    np.testing.assert_allclose(law[0], network[0], rtol=0, atol=1e-15)
    assert not products_of(problem(network={"width": math.inf, "threshold": 0.1}))[1][0].any()


@pytest.mark.parametrize(("ratio", "threshold", "share"), [(1, 0.01, 0.3), (4, 0.01, 0.25), (16, 1.0, 0.05)])
def test_anisotropic_law_is_better_near_the_dimension(ratio: int, threshold: float, share: float) -> None:
    runs = {}
    end = 3.0 if threshold > 0.1 else 12.0
    for solver in ("network", "law", "anisotropic-law"):
        network = {"width": 20 * ratio, "threshold": threshold}
        runs[solver] = products_of(problem((20, 20), network=network, horizon=end, record=40, solver=solver))[1]
    errors = {
        solver: max(relative(a, b) for a, b in zip(runs[solver], runs["network"], strict=True))
        for solver in ("law", "anisotropic-law")
    }
    # largest errors measured: 0.67 and 0.13, 0.25 and 0.039, 0.118 and 0.0032
    assert errors["anisotropic-law"] < share * errors["law"]


# --- networks of any width -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [5, 200])
def test_reductions_are_plain_descent(width: int) -> None:
    setting = {"shape": (8, 12), "network": {"width": width, "variance": {"input": 0.02, "output": 0.01}}}
    asked = problem(**setting, learning_rate=0.3, steps=60, record=60)
    target = make_task(asked).cost.target
    weights = full_network((8, 12), width, (0.02, 0.01), generator(asked))
    expected = plain_descent(*weights, target, (0.3, 0.3), 60)
    for reduction in ("none", "qr", "gram"):
        run = lazyrich.two_layer(
            problem(**setting, learning_rate=0.3, steps=60, record=60, reduction=reduction), products=True
        )
        error = max(relative(a, b) for a, b in zip(run.data["product"].values, expected[run.steps], strict=True))
        # rounding: measured 2e-15; asked for 1e-10
        assert error < 2e-14
        assert run.statistics["hidden_units_computed"] == (min(width, 20) if reduction == "qr" else width)


def test_layer_rates_are_one_rate_with_other_variances() -> None:
    rates = {"input": 0.5, "output": 0.08}
    network = {"width": 40, "variance": {"input": 0.01, "output": 0.03}}
    asked = problem(network=network, learning_rate=rates, reduction="none", record=100)
    # the same normal numbers, in weights of the asked variances
    normal = full_network((12, 8), 40, (1.0, 1.0), generator(asked))
    weights = math.sqrt(0.01) * normal[0], math.sqrt(0.03) * normal[1]
    expected = plain_descent(*weights, make_task(asked).cost.target, (0.5, 0.08), 100)
    run = lazyrich.two_layer(asked, products=True)
    # rounding
    for found, product in zip(run.data["product"].values, expected[run.steps], strict=True):
        assert relative(found, product) < 1e-12
    s0 = 20 * (0.01 * math.sqrt(0.08 / 0.5) + 0.03 * math.sqrt(0.5 / 0.08))
    assert run.statistics["threshold"] == pytest.approx(s0, rel=1e-14)
    assert run.statistics["learning_rate"] == pytest.approx(math.sqrt(0.5 * 0.08), rel=1e-14)
    infinite = make_start(problem(network={"width": math.inf, "threshold": 0.1}, learning_rate=rates), make_task(asked))
    balance = 0.5 * (math.sqrt(0.5 / 0.08) + math.sqrt(0.08 / 0.5))
    assert infinite.threshold == pytest.approx(0.1 * balance, rel=1e-14)


def test_weight_decay() -> None:
    network = {"width": 40, "threshold": 0.2}
    setting = {"network": network, "learning_rate": 0.2, "weight_decay": 0.1, "record": 100}
    asked = problem(**setting, reduction="none")
    weights = full_network((12, 8), 40, (0.2 / 40, 0.2 / 40), generator(asked))
    expected = plain_descent(*weights, make_task(asked).cost.target, (0.2, 0.2), 100, shrink=0.2 * 0.1)
    for reduction in ("none", "qr", "gram"):
        run = lazyrich.two_layer(problem(**setting, reduction=reduction), products=True)
        for found, product in zip(run.data["product"].values, expected[run.steps], strict=True):
            assert relative(found, product) < 1e-12
    np.testing.assert_allclose(run.data["threshold"], 0.2 * np.exp(-2 * 0.1 * 0.2 * run.steps), rtol=1e-12)
    # a target below the decay is forgotten: |A| falls for ever
    weak = problem(matrix={"target": Target(singular_values=[0.05])}, network=network, weight_decay=0.1, steps=3000)
    assert lazyrich.two_layer(weak).data["singular_values"].values[-1, 0] < 0.01


@pytest.mark.parametrize("width", [5, 17, 10**12])
def test_bartlett_networks_are_random_networks(width: int) -> None:
    # S = M^T M of normal M has mean w and variances w (1 + delta_ij): Wishart
    draws, shape = 4000, (2, 3)
    random = np.random.default_rng(3)
    squares = np.empty((draws, 5, 5))
    for index in range(draws):
        first, second = bartlett_network(shape, width, (4.0, 0.25), random)
        stacked = np.hstack([first / 2.0, second.T / 0.5])
        squares[index] = stacked.T @ stacked
    scaled = (squares - width * np.eye(5)) / np.sqrt(width * (1.0 + np.eye(5)))
    mean_z = scaled.mean(axis=0) * math.sqrt(draws)
    variance_z = (np.mean(scaled**2, axis=0) - 1.0) / (np.std(scaled**2, axis=0) / math.sqrt(draws))
    # the largest of 15 numbers each: measured 2.3
    assert np.abs(mean_z).max() < 3.6 and np.abs(variance_z).max() < 3.6
    # chi-squared numbers are skewed, by sqrt(8/w)
    cubes = scaled[:, range(5), range(5)] ** 3
    assert np.abs((cubes.mean(axis=0) - math.sqrt(8.0 / width)) / cubes.std(axis=0)).max() < 3.6 / math.sqrt(draws)


def test_bartlett_networks_learn_as_full_ones() -> None:
    errors = {}
    for reduction in ("bartlett", "none"):
        runs = [
            measure_point(
                problem((4, 5), network={"width": 9, "threshold": 0.2}, steps=60, seed=seed)
                .with_values({"training.reduction": reduction, "training.learning_rate": 0.1}),
                "network",
            )
            for seed in range(200)
        ]  # fmt: skip
        errors[reduction] = np.asarray([run["network_best_error"] for run in runs])
    a, b = errors["bartlett"], errors["none"]
    z = (a.mean() - b.mean()) / math.sqrt((a.var() + b.var()) / 200)
    # measured 0.3; of the spread 1.04, with a standard error of 0.07
    assert abs(z) < 3.5
    assert abs(np.log(a.std() / b.std())) < 0.3


@pytest.mark.parametrize("width", [10**6, 10**12])
def test_enormous_widths(width: int) -> None:
    run = lazyrich.two_layer(problem(network={"width": width, "threshold": 0.1}))
    law = lazyrich.two_layer(problem(network={"width": width, "threshold": 0.1}, solver="law"))
    assert run.statistics["hidden_units_computed"] == 20
    error = relative(run.data["final"].values, law.data["final"].values)
    # falls with the root of the width: measured 0.8 / sqrt(w)
    assert error < 2.0 / math.sqrt(width)


def test_float32_keeps_a_small_threshold() -> None:
    # sqrt(A A^T + s0^2) in single precision has lost s0 = 1e-5; the factors hold its root
    network = {"width": 10**9, "threshold": 1e-5}
    found = [
        lazyrich.two_layer(problem(network=network, learning_rate=0.05, steps=1000, precision=precision)).data
        for precision in ("float32", "float64")
    ]
    values = [data["singular_values"].values[:, :3] for data in found]
    worst = np.abs(values[0] - values[1]).max()
    # measured 5e-7 and 8e-8; asked for 1e-3
    assert worst < 1e-5
    np.testing.assert_allclose(found[0]["half_time"], found[1]["half_time"], rtol=1e-6)


def test_same_seed_same_numbers() -> None:
    runs = [products_of(problem(seed=seed))[1] for seed in (4, 4, 5)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert relative(runs[2], runs[0]) > 0.1


# --- closed form -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [0.0, 0.3, -1e-4])
@pytest.mark.parametrize("ratio", [1e-10, 1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3])
def test_closed_form_against_an_integrator(ratio: float, begin: float) -> None:
    strength, start = 3.0, 3.0 * begin
    threshold = strength * ratio
    end = time_to_reach(np.asarray(0.999 * strength), np.asarray(strength), np.asarray(threshold), start)
    times = np.linspace(0.0, float(end), 30)

    def slope(_: float, value: np.ndarray) -> np.ndarray:
        return 2.0 * np.hypot(value, threshold) * (strength - value)

    exact = solve_ivp(
        slope, (0.0, times[-1]), [start], method="DOP853", t_eval=times, rtol=1e-13, atol=1e-14 * threshold
    ).y[0]
    found = singular_value_at(times, np.asarray(strength), np.asarray(threshold), start)
    error = np.abs(found - exact).max() / strength
    back = time_to_reach(found, np.asarray(strength), np.asarray(threshold), start)
    # measured 7e-12 at s0/a = 1000, below 1e-12 otherwise; asked for 1e-9
    assert error < 2e-11
    np.testing.assert_allclose(back, times, rtol=0, atol=2e-11 * times[-1])


def test_closed_form_at_its_limits() -> None:
    time = np.linspace(0.0, 5.0, 7)
    assert not singular_value_at(time, np.asarray(0.0), np.asarray(0.1)).any()
    assert singular_value_at(np.asarray(1e6), np.asarray(2.0), np.asarray(1e-3)) == pytest.approx(2.0, rel=1e-14)
    half = time_to_reach(np.asarray(0.5), np.asarray(1.0), np.asarray(1e-8))
    # s0 << a: ln(2a/s0)/(2a), with corrections of order s0
    assert half == pytest.approx(math.log(2e8) / 2, rel=1e-6)
    reached = [
        time_to_reach(np.asarray(value), np.asarray(1.0), np.asarray(0.1), start)
        for value, start in ((1.0, 0.0), (2.0, 0.0), (0.5, 0.7), (0.5, 1.5))
    ]
    assert reached == [math.inf, math.inf, 0.0, 0.0]


def test_lazy_limit() -> None:
    # s0 >> a: s = a (1 - exp(-2 s0 t)); the correction is of order (a/s0)^2
    times = np.linspace(0.0, 0.03, 30)
    errors = []
    for threshold in (50.0, 100.0):
        scaled = times * 100.0 / threshold
        exact = singular_value_at(scaled, np.asarray(1.0), np.asarray(threshold))
        errors.append(np.abs(exact - (1.0 - np.exp(-2.0 * threshold * scaled))).max())
    assert errors[0] < 3e-5  # measured 2.1e-5
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.02)
    run = lazyrich.two_layer(problem(network={"width": 10**12, "threshold": 100.0}, horizon=0.03, record=20))
    modes = 1.0 - np.exp(-200.0 * run.data["time"].values)
    error = np.abs(run.data["amplitude"].values - modes[:, None] * run.data["strength"].values).max()
    # 1.1e-4: the errors of order (a/s0)^2, and A(0), which is of the size s0 / sqrt(w) = 1e-4
    assert error < 3e-4
    assert not run.data["active"].values.any()


@pytest.mark.parametrize(
    ("threshold", "times"),
    [(1e-4, [0.6103, 0.8464, 1.1513, 1.8337, 2.6491]), (0.01, [0.3800, 0.5173, 0.6906, 1.0656, 1.4966])],
)
def test_half_times_of_a_saddle_to_saddle_run(threshold: float, times: list[float]) -> None:
    strengths = np.asarray(DEEP)
    half = time_to_reach(0.5 * strengths, strengths, np.asarray(threshold))
    np.testing.assert_allclose(half, times, rtol=0, atol=6e-5)  # four decimals
    matrix, network = {"target": Target(singular_values=DEEP)}, {"width": math.inf, "threshold": threshold}
    run = lazyrich.two_layer(problem((6, 7), matrix, network, horizon=3.0, record=3000))
    assert run.statistics["solver"] == "closed-form"
    np.testing.assert_allclose(run.data["half_time"], times, rtol=0, atol=6e-5)


def test_half_times_of_random_networks() -> None:
    run = lazyrich.two_layer(
        problem(
            (100, 100),
            {"target": Target(singular_values=DEEP)},
            {"width": 1000, "threshold": 0.01},
            learning_rate=0.001,
            steps=1600,
            record=10,
        )
    )
    expected = time_to_reach(0.5 * np.asarray(DEEP), np.asarray(DEEP), np.asarray(0.01))
    ratio = run.data["half_time"].values / expected
    # asked for 1.5%; measured 1.0%: the finite width, and the step
    np.testing.assert_allclose(ratio, 1.0, rtol=0, atol=0.015)


@pytest.mark.parametrize("width", [1, 3, 50])
def test_one_mode_at_any_width(width: int) -> None:
    # exact with the mode's own m instead of s0, and q0 instead of 0
    asked = problem(
        (1, 1),
        {"target": Target(singular_values=[1.5])},
        {"width": width, "variance": {"input": 0.4 / width, "output": 0.1 / width}},
        horizon=6.0,
        solver="network",
        record=40,
        seed=2,
    )
    first, second = full_network((1, 1), width, (0.4 / width, 0.1 / width), generator(asked))
    if width >= 2:
        first, second = bartlett_network((1, 1), width, (0.4 / width, 0.1 / width), generator(asked))
    target = float(make_task(asked).cost.target[0, 0])
    q0 = float((second @ first)[0, 0])
    m = math.sqrt(0.25 * float(np.sum(first**2) + np.sum(second**2)) ** 2 - q0**2)
    sign = math.copysign(1.0, target)
    time, products = products_of(asked)
    expected = sign * singular_value_at(time, np.asarray(1.5), np.asarray(m), sign * q0)
    error = np.abs(products[:, 0, 0] - expected).max()
    # tolerance of the integrator: measured 2e-10
    assert error < 2e-9
    run = lazyrich.two_layer(asked)
    half = float(time_to_reach(np.asarray(0.75), np.asarray(1.5), np.asarray(m), sign * q0))
    assert float(run.data["half_time_predicted"][0]) == pytest.approx(half, rel=1e-12)


def test_steps_of_the_closed_form_and_of_flow_agree() -> None:
    setting = {"network": {"width": math.inf, "threshold": 0.05}, "horizon": 8.0, "record": 30}
    closed, law = (products_of(problem(**setting, solver=solver))[1] for solver in ("closed-form", "law"))
    # tolerance of the integrator: measured 8e-12
    np.testing.assert_allclose(law, closed, rtol=0, atol=1e-10)
    times, descent = products_of(problem(network=setting["network"], solver="law", steps=800, learning_rate=0.01))
    exact = products_of(problem(network=setting["network"], solver="closed-form", steps=800, learning_rate=0.01))
    np.testing.assert_array_equal(times, exact[0])
    errors = [np.abs(descent - exact[1]).max()]
    half = products_of(problem(network=setting["network"], solver="law", steps=1600, learning_rate=0.005))[1]
    fine = products_of(problem(network=setting["network"], solver="closed-form", steps=1600, learning_rate=0.005))[1]
    errors.append(np.abs(half - fine).max())
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.1)  # first order in the step


# --- costs -----------------------------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(7)
SHAPE = (4, 3)
TRUTH = RANDOM.standard_normal(SHAPE)
MASK = RANDOM.random(SHAPE) < 0.6
PROBES, VALUES = RANDOM.standard_normal((40, *SHAPE)), RANDOM.standard_normal(40)
INPUTS, OUTPUTS = RANDOM.standard_normal((25, 3)), RANDOM.standard_normal((25, 4))


def softened(product: Any) -> Any:
    import jax.numpy as jnp

    return jnp.sum(jnp.sqrt(1.0 + (product - TRUTH) ** 2))


# each with the cost of its definition and the number that makes twice the cost a mean square
COSTS = {
    "factorization": (lambda: Factorization(TRUTH), lambda a: 0.5 * np.sum((a - TRUTH) ** 2), 12),
    "completion": (
        lambda: Factorization(TRUTH, MASK),
        lambda a: 0.5 * np.sum((a - TRUTH)[MASK] ** 2),
        int(MASK.sum()),
    ),
    "sensing": (
        lambda: Sensing(PROBES, VALUES),
        lambda a: sum((np.sum(x * a) - y) ** 2 for x, y in zip(PROBES, VALUES, strict=True)) / 80,
        1,
    ),
    "regression": (
        lambda: Regression.of_samples(INPUTS, OUTPUTS),
        lambda a: sum(np.sum((a @ x - y) ** 2) for x, y in zip(INPUTS, OUTPUTS, strict=True)) / 50,
        4,
    ),
    "custom": (lambda: Custom(softened, SHAPE), lambda a: np.sum(np.sqrt(1.0 + (a - TRUTH) ** 2)), 2),
}


@pytest.mark.parametrize("name", COSTS)
def test_costs_and_their_gradients(name: str) -> None:
    make, defined, count = COSTS[name]
    cost = make()
    point = np.random.default_rng(8).standard_normal(SHAPE)
    error, gradient = cost(point)
    assert error == pytest.approx(2.0 * defined(point) / count, rel=1e-12)
    gradient = gradient.copy()
    for place in np.ndindex(SHAPE):
        step = np.zeros(SHAPE)
        step[place] = 1e-5
        # central differences: measured below 1e-9
        slope = (defined(point + step) - defined(point - step)) / 2e-5
        assert gradient[place] == pytest.approx(slope, abs=1e-8)
    single = cost.astype(np.float32)(point.astype(np.float32))
    assert single[1].dtype == np.float32
    np.testing.assert_allclose(single[1], gradient, rtol=0, atol=2e-6 * np.abs(gradient).max() + 1e-6)


@pytest.mark.parametrize("name", COSTS)
def test_curvature(name: str) -> None:
    cost = COSTS[name][0]()
    point = np.random.default_rng(0).standard_normal(SHAPE) * 1e-3
    base = cost(point)[1].copy()
    hessian = np.empty((12, 12))
    for column, place in enumerate(np.ndindex(SHAPE)):
        step = np.zeros(SHAPE)
        step[place] = 1e-5 if name == "custom" else 1.0  # the others are quadratic
        hessian[:, column] = (cost(point + step)[1] - base).ravel() / step[place]
    largest = float(np.linalg.eigvalsh(0.5 * (hessian + hessian.T))[-1])
    # sensing: the edge for many entries, 1.14 of it here; custom: ten power iterations, 0.97; else rounding
    assert cost.curvature == pytest.approx(largest, rel={"sensing": 0.2, "custom": 0.05}.get(name, 1e-9))


@pytest.mark.parametrize(
    "matrix", [{}, {"observed": 0.6}, {"measurements": 120}, {"samples": 40}], ids=lambda matrix: "".join(matrix)
)
def test_small_problems_are_recovered(matrix: dict[str, Any]) -> None:
    costs = {"observed": "completion", "measurements": "sensing", "samples": "regression"}
    matrix |= {"target": Target(rank=1), "cost": costs.get("".join(matrix), "factorization")}
    run = lazyrich.two_layer(problem((14, 12), matrix, {"width": 10**6, "threshold": 1e-4}, steps=6000))
    errors = run.data["train_error"].values
    # 120 measurements, or 100 entries, of a matrix of 168: a small start finds the one of rank 1. Measured 1e-14, 6e-7
    # (completion), 1.3e-4 (sensing, where the default rate is five times lower), 3e-14
    assert run.data["test_error"].values[-1] < 3e-4 * run.data["test_error"].values[0]
    assert run.statistics["best_numerical_rank"] == 1
    # the default rate is stable: the train error never rises
    assert (np.diff(errors) <= 1e-12 * errors[0]).all()
    assert run.outcome.kind == "finished"


@pytest.mark.parametrize("threshold", [1e-3, 1.0, 100.0])
def test_default_rate_is_stable(threshold: float) -> None:
    for width in (1, 3, 12, 10**6):  # weights of a network narrower than the matrix are larger than s0 says
        run = lazyrich.two_layer(problem(network={"width": width, "threshold": threshold}, steps=300))
        errors = run.data["train_error"].values
        assert (np.diff(errors) <= 1e-12 * errors[0]).all() and errors[-1] < errors[0]
        assert run.statistics["learning_rate"] == pytest.approx(
            1 / (50 * max(1.0, threshold * max(1, 12 / width))), rel=1e-12
        )


@pytest.mark.parametrize("rate", [3.0, 20.0, 1e6])
def test_rates_above_stability_diverge(rate: float) -> None:
    run = lazyrich.two_layer(problem(learning_rate=rate, steps=200))
    assert run.outcome.kind == "diverged"
    assert 0 < run.outcome.step < 200 and str(run.outcome).endswith("lower the learning rate")
    assert run.steps[-1] < run.outcome.step
    assert np.isfinite(run.data["train_error"].values).all()
    assert run.to_json()["outcome"] == "diverged" and run.to_json()["step"] == run.outcome.step


def test_flow_that_ends_before_its_horizon_says_when() -> None:
    import jax.numpy as jnp

    def quartic(product: Any) -> Any:  # falls without bound, and is at minus infinity after a finite time
        return -jnp.sum(product**4)

    own = problem((4, 4), {"cost": "custom"}, {"width": 4, "threshold": 0.5}, horizon=1.0)
    run = lazyrich.two_layer(own, cost=quartic)
    last, end = run.data["time"].values[-1], run.outcome.time
    assert end is not None and 0 < last < end < 0.3 and run.steps[-1] + 1 == run.outcome.step
    assert str(run.outcome) == f"diverged at time {end:.4g}; shorten the horizon"
    assert lazyrich.two_layer(own.with_values({"training.horizon": last}), cost=quartic).outcome.kind == "finished"


def test_a_custom_cost_is_the_built_in_one(tmp_path: Path) -> None:
    import jax.numpy as jnp

    target = make_task(problem()).cost.target

    def squared(product: Any) -> Any:
        return 0.5 * jnp.sum((product - target) ** 2)

    own = problem(matrix={"cost": "custom"})
    expected = lazyrich.two_layer(problem()).data
    found = lazyrich.two_layer(own, cost=squared).data
    # the curvature by differences sets the rate: measured 1e-12 from 1
    np.testing.assert_allclose(found["time"], expected["time"], rtol=1e-7)
    np.testing.assert_allclose(found["singular_values"], expected["singular_values"], rtol=0, atol=1e-7)
    np.testing.assert_allclose(found["train_error"], 96 / 2 * expected["train_error"], rtol=1e-6)
    np.savez(tmp_path / "target.npz", target)
    file = {"cost": "custom", "shape": None, "target": Target(path=str(tmp_path / "target.npz"))}
    of_file = lazyrich.two_layer(problem(matrix=file), cost=squared).data
    np.testing.assert_allclose(of_file["final"], found["final"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(lazyrich.two_layer(own, cost=Factorization(target)).data["final"], expected["final"])


# --- what is read off ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saddles() -> Trajectory:
    matrix = {"target": Target(singular_values=DEEP, noise=0.001)}
    network = {"width": 10**12, "threshold": 1e-10}
    return lazyrich.two_layer(problem((20, 15), matrix, network, learning_rate=0.0005, steps=16_000, record=800))


def test_crossings_and_half_times_are_as_predicted(saddles: Trajectory) -> None:
    data = saddles.data
    for name in ("crossing_time", "half_time"):
        ratio = data[name].values / data[f"{name}_predicted"].values
        # a step of 0.0005 delays the strongest mode most: measured 0.5%
        np.testing.assert_allclose(ratio, 1.0, rtol=0, atol=0.01)
        assert (np.diff(data[name].values) > 0).all()


def test_plateaus_ranks_and_alignment(saddles: Trajectory) -> None:
    data, facts = saddles.data, saddles.statistics
    found = facts["plateaus"]
    assert len(found) == 4
    # on the plateau after the k-th mode the error is that of the modes to come
    rest = np.cumsum(np.square(DEEP)[::-1])[::-1][1:] / 300
    # 2% below, as the next mode has begun
    np.testing.assert_allclose([part["train_error"] for part in found], rest, rtol=0.03)
    for part, before, after in zip(found, data["half_time"].values, data["half_time"].values[1:], strict=False):
        assert before < part["start"] < part["end"] < after
    ranks = data["active_rank"].values
    assert sorted(set(ranks)) == list(range(6)) and (np.diff(ranks) >= 0).all()
    assert facts["best_numerical_rank"] == 4 and data["numerical_rank"].values[-1] == 4  # 2 is a fifth of 10
    assert data["stable_rank"].values[-1] == pytest.approx(np.sum(np.square(DEEP)) / 100, rel=1e-3)
    alignment = data["alignment"].values
    assert alignment[0] < 0.6 and alignment[-1] > 0.999


def test_best_step_is_predicted() -> None:
    matrix = {"target": Target(rank=3, noise=1.0)}
    run = lazyrich.two_layer(problem((60, 50), matrix, {"width": 10**8, "threshold": 0.5}, steps=600, record=600))
    facts, errors = run.statistics, run.data["test_error"].values
    assert 0 < facts["best_step"] < 600 and facts["best_step"] not in (run.steps[0], run.steps[-1])
    assert errors.min() * 0.999 < facts["best_test_error"] <= errors.min()
    # the step and the width: measured 0.04% and 0.4%
    assert facts["best_test_error_predicted"] == pytest.approx(facts["best_test_error"], rel=0.002)
    assert facts["best_time_predicted"] == pytest.approx(facts["best_time"], rel=0.02)
    truth, best = make_task(run.problem).truth, run.data["best"].values
    assert np.mean((best - truth) ** 2) == pytest.approx(facts["best_test_error"], rel=1e-12)
    early = lazyrich.two_layer(run.problem.with_values({"training.stop": "best", "training.steps": 10_000}))
    # the last step is there, although it is none of those to be recorded
    assert early.steps[-1] == math.ceil(readings._PATIENCE * facts["best_step"] + readings._LEAST_MORE) < 600
    assert early.statistics["best_step"] == facts["best_step"]
    np.testing.assert_allclose(np.linalg.svd(early.data["final"].values)[1], early.data["singular_values"].values[-1])


def test_test_error_of_a_completion_is_of_what_was_held_out() -> None:
    asked = problem(matrix={"cost": "completion", "observed": 0.7, "target": Target(rank=1, noise=0.3)})
    task = make_task(asked)
    run = lazyrich.two_layer(asked)
    final = run.data["final"].values
    assert 0.15 < np.mean(task.tested) < 0.45
    held_out = np.mean((final - task.truth)[task.tested] ** 2)
    assert run.data["test_error"].values[-1] == pytest.approx(held_out, rel=1e-12)
    noisy = final - task.cost(final)[1]  # the gradient is A - T where it is observed, 0 elsewhere
    assert run.data["train_error"].values[-1] == pytest.approx(np.mean((final - noisy)[~task.tested] ** 2), rel=1e-12)


def test_crossing_times_and_plateaus_of_known_curves() -> None:
    times = np.asarray([0.0, 1.0, 2.0, 4.0])
    amplitudes = np.asarray([[0.0, 3.0, 0.0], [1.0, 3.0, 0.5], [2.0, 3.0, 0.0], [6.0, 3.0, 0.0]])
    found = crossing_times(times, amplitudes, np.asarray([3.0, 3.0, 1.0]))
    np.testing.assert_array_equal(found, [2.5, 0.0, np.nan])
    time = np.linspace(0.0, 10.0, 501)
    assert plateaus(time, np.exp(-time)) == []
    steps = 2.0 - np.tanh(3 * (time - 2)) - 0.5 * np.tanh(3 * (time - 7))
    (flat,) = plateaus(time, steps)
    assert 2.0 < flat["start"] < 3.0 and 6.0 < flat["end"] < 7.0
    assert flat["train_error"] == pytest.approx(1.5, abs=1e-3)


def test_saved_and_loaded(tmp_path: Path) -> None:
    run = lazyrich.two_layer(problem(steps=30), products=True)
    run.save(tmp_path / "run.nc")
    again = load(tmp_path / "run.nc")
    assert again.data.equals(run.data) and again.data["active"].dtype == bool
    assert again.problem == run.problem and again.outcome == run.outcome and again.source == "training"
    assert again.to_json() == json.loads(json.dumps(run.to_json(), allow_nan=False))
    infinite = lazyrich.two_layer(problem(network={"width": math.inf, "threshold": 0.1}, steps=5))
    infinite.save(tmp_path / "infinite.nc")
    assert load(tmp_path / "infinite.nc").problem.network.width == math.inf
    shape = run.data["product"].shape
    assert shape == (len(run.steps), 12, 8)
    np.testing.assert_array_equal(run.data["product"].values[-1], run.data["final"].values)
    values = np.linalg.svd(run.data["product"].values, compute_uv=False)
    np.testing.assert_allclose(values, run.data["singular_values"].values, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["run.png", "run.svg"])
def test_figures(tmp_path: Path, saddles: Trajectory, name: str) -> None:
    figure = saddles.plot(tmp_path / name)
    assert (tmp_path / name).stat().st_size > 20_000
    assert [axes.get_ylabel() for axes in figure.axes] == ["singular values of A", "mean squared error", "rank"]
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    assert [2 * float(dot.get_ydata()[0]) for dot in dots] == pytest.approx(DEEP, rel=1e-3)


def test_a_diverged_run_and_a_single_step_can_be_drawn(tmp_path: Path) -> None:
    for name, run in {
        "diverged": lazyrich.two_layer(problem(learning_rate=1e6)),
        "one": lazyrich.two_layer(problem(steps=1, record=2)),
        "infinite": lazyrich.two_layer(problem(network={"width": math.inf, "threshold": 0.1}, steps=2)),
    }.items():
        run.plot(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def interrupt_at(last: int) -> Callable[[int, int], None]:
    def progress(step: int, total: int) -> None:
        assert total == 101
        if step >= last:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_run_keeps_what_was_done() -> None:
    with pytest.raises(Interrupted, match="51 of 101 steps") as stop:
        lazyrich.two_layer(problem(record=100), progress=interrupt_at(50))
    partial, whole = stop.value.trajectory, lazyrich.two_layer(problem(record=100))
    assert partial is not None and str(partial.outcome) == "interrupted at step 51"
    count = len(partial.steps)
    assert partial.steps[-1] <= 50 and count > 30
    np.testing.assert_array_equal(partial.data["singular_values"], whole.data["singular_values"][:count])


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"matrix.cost": "custom"}, "matrix.cost", "needs a function"),
        ({"network.width": 19, "training.reduction": "bartlett"}, "training.reduction", "at least 20"),
        ({"network.width": math.inf, "training.solver": "anisotropic-law"}, "training.solver", "finite widths"),
        ({"network.exponent": -2.0}, "network.exponent", "no width"),
        ({"matrix.shape": [300_000, 300_000]}, "matrix.shape", "GiB of memory"),
        ({"network.width": 10**14, "training.reduction": "none"}, "network.width", "GiB of memory"),
        (
            {"network.width": 10**15, "network.variance": 1e30, "training.precision": "float32"},
            "network",
            "at initialisation is not a finite number",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_run(changes: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(LazyrichError) as error:
        lazyrich.two_layer(problem().with_values(changes))
    assert error.value.where == where and words in error.value.what


def test_costs_that_cannot_be_used() -> None:
    import jax.numpy as jnp

    own = problem(matrix={"cost": "custom"}, network={"width": 30, "variance": 1.0})
    bad: dict[str, tuple[Any, str]] = {
        "no number": (lambda a: a, "cannot be differentiated"),
        "no JAX": (lambda a: float(np.linalg.matrix_rank(np.asarray(a))), "cannot be differentiated"),
        "whole numbers": (lambda a: jnp.sum(a > 0), "cannot be differentiated"),
        "NaN": (lambda a: jnp.sum(jnp.log(-1.0 - a**2)), "is not a finite number"),
        "constant": (lambda a: 3.0 + 0.0 * jnp.sum(a), "does not depend on A"),
        "far": (lambda a: jnp.sum(jnp.sqrt(1.0 - a**2)), "at initialisation is not a finite number"),
    }
    for name, (function, words) in bad.items():
        with pytest.raises(LazyrichError) as error:
            lazyrich.two_layer(own, cost=function)
        assert words in error.value.what and "\n" not in str(error.value), name
    with pytest.raises(LazyrichError, match=r"is given beside matrix\.cost = 'factorization'"):
        lazyrich.two_layer(problem(), cost=softened)
    with pytest.raises(LazyrichError, match=r"cost: is of shape \(4, 3\), the target \(12, 8\)"):
        lazyrich.two_layer(own, cost=Factorization(TRUTH))
    # fine at the start, NaN later: an outcome
    log = lazyrich.two_layer(
        own.with_values({"network.variance": 0.001, "training.learning_rate": 0.5}),
        cost=lambda a: jnp.sum(jnp.sqrt(0.25 - a)),
    )
    assert log.outcome.kind == "diverged" and np.isfinite(log.data["train_error"]).all()


def test_an_infinite_width_survives_saving(tmp_path: Path) -> None:
    run = lazyrich.two_layer(problem(network={"width": float("inf"), "threshold": 0.1}, steps=20))
    run.save(tmp_path / "run.nc")
    lazyrich.load(tmp_path / "run.nc").plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000
