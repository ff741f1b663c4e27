"""Trained networks: every step against the gradient of the loss itself, seeds, kernels, refusals."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lazyrich.errors import LazyrichError
from lazyrich.problem import GaussianData, Network, PowerLawData, Problem, SpectrumData, Training, dataset
from lazyrich.problem.datasets import load_data
from lazyrich.problem.spectrum import find_modes
from lazyrich.simulation import linear, linear_program
from lazyrich.simulation.linear import BatchResult, required_memory, run_networks
from lazyrich.simulation.precision import double_precision

# Rounding. Measured: 1e-15 against the gradient, no difference between batchings.
SAME = 1e-12

SPECTRUM: dict[str, Any] = {
    "eigenvalues": [2.0, 1.5, 0.7, 0.3, 0.0],
    "target": [[1.0, -1, 0.5, 2, 1], [0.3, 1, -2, 0, 1]],
}
NETWORK: dict[str, Any] = {"width": 7, "blocks": 2, "skip": 0.6, "branch": 0.8}
STDS: Any = {"input": 0.8, "block": 1.2, "output": 0.9}
# 19 steps are two chunks, the second with one step too many.
TRAINING: dict[str, Any] = {
    "steps": 19,
    "learning_rate": {"input": 0.01, "block": 0.03, "output": 0.02},
    "schedule": "warmup-cosine",
    "warmup": 4,
    "momentum": 0.7,
    "weight_decay": {"input": 0.3, "block": 0.2, "output": 0.1},
    "richness": 1.3,
}


def small(mode: str, **training: Any) -> Problem:
    """D = 5, N = 7, two blocks, two outputs, and everything that can be set is set."""
    samples: dict[str, Any] = {"samples": 11} if mode == "full-batch" else {}
    batch: dict[str, Any] = {"batch": 6} if mode == "online" else {}
    settings: dict[str, Any] = TRAINING | {"mode": mode} | batch | training
    return Problem(
        network=Network(**NETWORK, init_std=STDS),
        data=SpectrumData(**SPECTRUM, label_noise=0.4, **samples),
        training=Training(**settings),
    )


def run(problem: Problem, seeds: list[int], kernels: bool = False, **options: Any) -> BatchResult:
    """All batches in one."""
    batches = list(run_networks(problem, seeds, kernels=kernels, **options))
    return BatchResult(
        [seed for batch in batches for seed in batch.seeds],
        np.concatenate([batch.test_loss for batch in batches]),
        np.concatenate([batch.train_loss for batch in batches]),
        {name: np.concatenate([batch.kernels[name] for batch in batches]) for name in batches[0].kernels},
    )


def drawn(problem: Problem, seed: int, step: int = 0) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Initial weights, inputs (P, D) and label noise (P, C) of a network."""
    form, numbers = linear._take_apart(problem, False)
    with double_precision():
        weights = linear_program._draw_weights(form, numbers, np.array([seed], dtype=np.uint32))
        inputs, noise = linear_program._draw_samples(form, numbers, np.uint32(seed), step)
    return [np.asarray(layer)[0] for layer in weights], np.asarray(inputs), np.asarray(noise).T


def gamma(problem: Problem, dimension: int) -> float:
    richness = problem.training.richness
    return (
        richness * math.sqrt(problem.network.width / dimension)
        if problem.training.parametrization == "mup"
        else richness
    )


def train_by_gradient(problem: Problem, weights: list[Any], loss_at: Any) -> list[list[np.ndarray]]:
    """The weights at every step, from the gradient of ``loss_at(step)(f)`` and raw rates and decays.

    `loss_at` gives a function of the network f, itself a function of inputs (P, D).
    """
    network, training = problem.network, problem.training
    n, d = weights[0].shape
    raw = gamma(problem, d) ** 2 * d
    rates, decays = training.rates(network.blocks), training.weight_decays(network.blocks)

    def outputs(weights: list[Any], inputs: Any) -> Any:
        h = inputs @ weights[0].T / math.sqrt(d)
        for block in weights[1:-1]:
            h = network.skip * h + network.branch_multiplier * h @ block.T / math.sqrt(n)
        return h @ weights[-1].T / (gamma(problem, d) * math.sqrt(n))

    history, buffers = [], [np.zeros_like(layer) for layer in weights]
    with double_precision():
        for step in range(training.steps):
            history.append(weights)
            loss = loss_at(step)
            gradients = jax.grad(lambda weights, loss=loss: loss(lambda inputs: outputs(weights, inputs)))(weights)
            for i, gradient in enumerate(gradients):
                buffers[i] = training.momentum * buffers[i] + (np.asarray(gradient) + decays[i] / raw * weights[i])
            weights = [layer - rates[i, step] * raw * buffers[i] for i, layer in enumerate(weights)]
    return history


def coefficients(problem: Problem, weights: list[np.ndarray]) -> np.ndarray:
    """beta, shape (D, C)."""
    (n, d), network = weights[0].shape, problem.network
    product = np.eye(n)
    for block in weights[1:-1]:
        product = (network.skip * np.eye(n) + network.branch_multiplier * block / math.sqrt(n)) @ product
    return (weights[-1] @ product @ weights[0]).T / (gamma(problem, d) * math.sqrt(n))


def sample_loss(inputs: np.ndarray, targets: np.ndarray) -> Any:
    return lambda f: 0.5 * jnp.sum((targets - f(inputs)) ** 2) / len(inputs)


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float = SAME) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("parametrization", ["mup", "ntk"])
def test_full_batch_follows_the_gradient_of_the_sample_loss(parametrization: str) -> None:
    problem = small("full-batch", parametrization=parametrization)
    modes = find_modes(problem.data)
    result = run(problem, [5])
    weights, inputs, noise = drawn(problem, 5)
    targets = inputs @ modes.targets / math.sqrt(5) + noise
    history = train_by_gradient(problem, weights, lambda step: sample_loss(inputs, targets))
    betas = np.array([coefficients(problem, now) for now in history])
    errors = modes.targets - betas
    close(result.test_loss[0], (modes.eigenvalues[:, None] * errors**2).mean(axis=1))
    close(result.train_loss[0], ((targets - inputs @ betas / math.sqrt(5)) ** 2).mean(axis=1))
    assert result.train_loss[0, -1].sum() < 0.5 * result.train_loss[0, 0].sum()


def test_online_follows_the_gradient_on_fresh_samples() -> None:
    problem = small("online")
    modes = find_modes(problem.data)
    result = run(problem, [2])

    def loss_at(step: int) -> Any:
        _, inputs, noise = drawn(problem, 2, step)
        assert inputs.shape == (6, 5)
        return sample_loss(inputs, inputs @ modes.targets / math.sqrt(5) + noise)

    history = train_by_gradient(problem, drawn(problem, 2)[0], loss_at)
    errors = np.array([modes.targets - coefficients(problem, now) for now in history])
    expected = (modes.eigenvalues[:, None] * errors**2).mean(axis=1)
    close(result.test_loss[0], expected)
    close(result.train_loss[0], expected + 0.4**2)
    assert not np.allclose(drawn(problem, 2, 0)[1], drawn(problem, 2, 1)[1])


def test_population_follows_the_gradient_of_the_expected_loss() -> None:
    problem = small("population", momentum=0.0, weight_decay=0.0)
    modes = find_modes(problem.data)
    roots = np.sqrt(modes.eigenvalues)[:, None] * np.eye(5)  # f(roots) = sqrt(lambda_k) beta_k / sqrt(D)

    def loss_at(step: int) -> Any:
        return lambda f: 0.5 * jnp.sum((roots @ modes.targets / math.sqrt(5) - f(roots)) ** 2)

    history = train_by_gradient(problem, drawn(problem, 0)[0], loss_at)
    errors = np.array([modes.targets - coefficients(problem, now) for now in history])
    close(run(problem, [0]).test_loss[0], (modes.eigenvalues[:, None] * errors**2).mean(axis=1))


def test_two_weight_layers_and_a_list_of_rates() -> None:
    rates = list(np.linspace(0.0, 0.05, 19))
    base = small("full-batch", learning_rate=rates, schedule="constant", warmup=None, weight_decay=0.1)
    problem = Problem(network=Network(width=4, blocks=0), data=base.data, training=base.training)
    modes = find_modes(problem.data)
    weights, inputs, noise = drawn(problem, 1)
    targets = inputs @ modes.targets / math.sqrt(5) + noise
    history = train_by_gradient(problem, weights, lambda step: sample_loss(inputs, targets))
    residuals = [targets - inputs @ coefficients(problem, now) / math.sqrt(5) for now in history]
    close(run(problem, [1]).train_loss[0], (np.array(residuals) ** 2).mean(axis=1))


@pytest.mark.parametrize("scaling", ["global", "none"])
def test_a_data_set_trains_as_on_its_samples(tmp_path: Path, scaling: Any) -> None:
    generator = np.random.default_rng(3)
    features = generator.normal(size=(9, 4)) * [3.0, 1.0, 0.5, 0.0] + 1.0  # correlated, with a constant column
    features[:, 1] += 0.5 * features[:, 0]
    targets = np.tanh(features[:, :2]) + 0.1 * generator.normal(size=(9, 2))
    np.savez(tmp_path / "data.npz", x=features, y=targets)
    data = dataset(str(tmp_path / "data.npz"), target="y", scaling=scaling)
    problem = Problem(network=Network(**NETWORK), data=data, training=small("full-batch").training)
    loaded = load_data(data)
    weights = drawn(problem, 3)[0]
    # The simulation works in the eigenbasis of the covariance: the same network on the data has U rotated back.
    basis = np.linalg.eigh(loaded.inputs.T @ loaded.inputs / 9)[1]
    rotated = [weights[0] @ basis.T, *weights[1:]]
    history = train_by_gradient(problem, rotated, lambda step: sample_loss(loaded.inputs, loaded.targets))
    predictions = np.array([loaded.inputs @ coefficients(problem, now) / 2 for now in history])
    result = run(problem, [3], kernels=True)
    close(result.train_loss[0], ((loaded.targets - predictions) ** 2).mean(axis=1), 1e-11)
    assert set(result.kernels) == {"feature_kernel", "gradient_kernel", "error_kernel"}


def test_kernels_are_the_products_of_what_the_network_computes() -> None:
    problem = small("full-batch", steps=4, warmup=2)
    modes = find_modes(problem.data)
    weights, inputs, noise = drawn(problem, 7)
    targets = inputs @ modes.targets / math.sqrt(5) + noise
    features: list[list[np.ndarray]] = [[], [], []]
    gradients: list[list[np.ndarray]] = [[], [], []]
    weight_errors, sample_errors = [], []
    for u, first, second, w in train_by_gradient(problem, weights, lambda step: sample_loss(inputs, targets)):
        layers = [0.6 * np.eye(7) + 0.8 * layer / math.sqrt(7) for layer in (first, second)]
        error = targets - inputs @ coefficients(problem, [u, first, second, w]) / math.sqrt(5)
        for output in range(2):
            pushed = inputs.T @ error[:, output] * math.sqrt(5) / 11
            h = u @ pushed / math.sqrt(5)
            for level, values in enumerate([h, layers[0] @ h, layers[1] @ layers[0] @ h]):
                features[level].append(values)
            g = w[output]
            for level, values in enumerate([layers[0].T @ layers[1].T @ g, layers[1].T @ g, g]):
                gradients[level].append(values)
            weight_error = modes.targets - coefficients(problem, [u, first, second, w])
            weight_errors.append(np.sqrt(modes.eigenvalues) * weight_error[:, output])
            sample_errors.append(error[:, output])
    kernels = run(problem, [7, 8], kernels=True).kernels
    assert {name: values.shape for name, values in kernels.items()} == {
        "feature_kernel": (2, 3, 8, 8),
        "gradient_kernel": (2, 3, 8, 8),
        "error_kernel": (2, 8, 8),
        "sample_error_kernel": (2, 8, 8),
    }
    for level in range(3):
        close(kernels["feature_kernel"][0, level], np.array(features[level]) @ np.array(features[level]).T / 7)
        close(kernels["gradient_kernel"][0, level], np.array(gradients[level]) @ np.array(gradients[level]).T / 7)
    close(kernels["error_kernel"][0], np.array(weight_errors) @ np.array(weight_errors).T / 5)
    close(kernels["sample_error_kernel"][0], np.array(sample_errors) @ np.array(sample_errors).T / 11)


@pytest.mark.parametrize("mode", ["full-batch", "online", "population"])
def test_shapes_and_diagonals(mode: str) -> None:
    problem = small(mode)
    result = run(problem, [0, 1, 2, 3, 4], kernels=True)
    assert result.test_loss.shape == result.train_loss.shape == (5, 19, 2)
    assert result.test_loss.dtype == np.float64
    assert ("sample_error_kernel" in result.kernels) == (mode == "full-batch")
    diagonal = np.diagonal(result.kernels["error_kernel"], axis1=1, axis2=2).reshape(5, 19, 2)
    close(diagonal, result.test_loss)
    plain = run(problem, [0])
    assert plain.kernels == {}
    close(plain.train_loss, result.train_loss[:1])


@pytest.mark.parametrize("mode", ["full-batch", "online"])
def test_a_network_does_not_depend_on_its_company(mode: str) -> None:
    problem = small(mode)
    seeds = [4, 0, 9, 4_294_967_295, 2]
    together = run(problem, seeds, kernels=True)
    two_fit = 2 * required_memory(problem, True)
    batches = list(run_networks(problem, seeds[::-1], kernels=True, memory_limit=two_fit))
    assert [batch.seeds for batch in batches] == [[2, 4_294_967_295], [9, 0], [4]]
    apart = run(problem, seeds[::-1], kernels=True, memory_limit=two_fit)
    assert together.seeds == apart.seeds[::-1] == seeds
    close(apart.test_loss[::-1], together.test_loss)
    close(apart.train_loss[::-1], together.train_loss)
    for name, values in together.kernels.items():
        close(apart.kernels[name][::-1], values)
    np.testing.assert_array_equal(run(problem, seeds, kernels=True).train_loss, together.train_loss)
    first = together.train_loss[:, 0, 0]
    assert len(np.unique(first)) == len(seeds)
    other = run(problem.with_values({"training.seed": 4_294_967_295}), seeds, kernels=True)
    assert not np.isin(other.train_loss[:, 0, 0], first).any()


def test_draws_have_the_law_they_should() -> None:
    """Moments of about 20 000 numbers each, within 5 standard errors."""
    problem = Problem(
        network=Network(width=150, blocks=1, init_std=STDS),
        data=PowerLawData(dimension=150, samples=20_000, capacity=1.0, source=0.5, outputs=2, label_noise=0.3),
        training=Training(steps=1, learning_rate=0.1),
    )
    weights, inputs, noise = drawn(problem, 0)
    for layer, std in zip(weights, STDS.values(), strict=True):
        assert layer.std() == pytest.approx(std, abs=5 * std / math.sqrt(2 * layer.size))
        assert abs(layer.mean()) < 5 * std / math.sqrt(layer.size)
    eigenvalues = find_modes(problem.data).eigenvalues
    covariance = inputs.T @ inputs / len(inputs)
    deviation = (covariance - np.diag(eigenvalues)) / np.sqrt(np.outer(eigenvalues, eigenvalues))
    assert deviation.std() * math.sqrt(len(inputs)) == pytest.approx(1.0, abs=0.05)
    assert np.abs(noise.T @ noise / len(noise) / 0.3**2 - np.eye(2)).max() < 5 * math.sqrt(2 / len(noise))


def test_initial_loss_of_20_000_networks() -> None:
    """The mean over initial weights is exact at any size: 1 + sigma_0^2 sigma_3^2 (s^2 + c^2 sigma^2)^2 / gamma^2."""
    problem = Problem(
        network=Network(**NETWORK, init_std=STDS),
        data=GaussianData(dimension=10),
        training=Training(mode="population", steps=1, learning_rate=0.1, richness=1.5),
    )
    losses = run(problem, list(range(20_000))).test_loss[:, 0, 0]
    expected = 1 + 0.8**2 * 0.9**2 * (0.6**2 + 0.8**2 * 1.2**2) ** 2 / (1.5**2 * 0.7)
    sem = losses.std(ddof=1) / math.sqrt(20_000)
    assert sem < 0.005 * expected
    assert abs(losses.mean() - expected) < 4 * sem


def test_progress_counts_steps_of_networks_and_may_interrupt() -> None:
    problem, calls = small("full-batch"), []
    memory = 2 * required_memory(problem, False)
    run(problem, [0, 1, 2], memory_limit=memory, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(20, 57), (38, 57), (48, 57), (57, 57)]

    def interrupt(done: int, total: int) -> None:
        if done > 38:
            raise KeyboardInterrupt

    batches = run_networks(problem, [0, 1, 2], kernels=False, memory_limit=memory, progress=interrupt)
    assert next(batches).seeds == [0, 1]
    with pytest.raises(KeyboardInterrupt):
        next(batches)


def test_divergence_is_left_to_the_caller_without_warnings() -> None:
    problem = small("full-batch", learning_rate=30.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(problem, [0, 1], kernels=True)
    assert np.isfinite(result.test_loss[:, 0]).all()
    assert not np.isfinite(result.test_loss[:, -1]).any()


def test_infinite_width_is_refused() -> None:
    problem = small("population").with_values({"network.width": math.inf})
    with pytest.raises(LazyrichError, match="an infinitely wide network cannot be trained; give a finite width"):
        run_networks(problem, [0], kernels=False)


def test_what_does_not_fit_into_memory_is_refused_before_any_work() -> None:
    huge = small("full-batch").with_values({"network.width": 10**6})
    with pytest.raises(LazyrichError, match=r"network.width: training needs \d{5}\.\d GiB per network and .* reduce"):
        run_networks(huge, [0], kernels=False)
    problem = small("full-batch")
    needed = required_memory(problem, True)
    assert needed > required_memory(problem, False)
    with pytest.raises(LazyrichError, match="turn kernels off"):
        run_networks(problem, [0], kernels=True, memory_limit=needed - 1)
    assert run(problem, [0], kernels=True, memory_limit=needed).seeds == [0]


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(LazyrichError, match="seeds: a network's number is out of range"):
        run_networks(small("population"), [0, seed], kernels=False)


def test_the_precision_that_the_user_set_stays() -> None:
    seen = []

    def look(*_: int) -> None:
        seen.append((jax.config.read("jax_enable_x64"), jnp.ones(1).dtype))

    look()
    for batch in run_networks(small("full-batch"), [0], kernels=False, progress=look):
        look()
        assert batch.test_loss.dtype == np.float64
    look()
    assert seen[0] == (False, jnp.float32)
    assert len(seen) == 5
    assert set(seen) == {seen[0]}
