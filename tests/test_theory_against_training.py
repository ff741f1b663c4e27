"""Predictions against really trained networks: z-scores over all steps, and gaps that close with size."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import lazyrich
from lazyrich import GaussianData, Network, PowerLawData, Problem, Training

SEEDS = 16
SETTINGS = {
    "full batch, plain, noise": Problem(
        network=Network(width=400, blocks=1),
        data=GaussianData(dimension=400, samples=600, label_noise=0.3),
        training=Training(steps=30, learning_rate=0.03),
    ),
    "full batch, two layers, NTK, few samples": Problem(
        network=Network(width=800, blocks=0),
        data=GaussianData(dimension=400, samples=200, label_noise=0.2),
        training=Training(steps=40, learning_rate=0.05, parametrization="ntk"),
    ),
    "full batch, residual": Problem(
        network=Network(width=400, blocks=4, skip=1.0, beta0=1.0),
        data=GaussianData(dimension=400, samples=800, label_noise=0.3),
        training=Training(steps=30, learning_rate=0.02),
    ),
    "online, rich": Problem(
        network=Network(width=400, blocks=1),
        data=GaussianData(dimension=400, label_noise=0.3),
        training=Training(mode="online", batch=400, steps=30, learning_rate=0.02, richness=1.5),
    ),
    "online, residual, momentum and decay, power law": Problem(
        network=Network(width=600, blocks=2, skip=1.0, branch=0.6),
        data=PowerLawData(dimension=400, capacity=0.5, source=0.2, label_noise=0.2),
        training=Training(
            mode="online", batch=800, steps=30, learning_rate=0.006, momentum=0.6, weight_decay=0.05, schedule="cosine"
        ),
    ),
    "population, plain, power law": Problem(
        network=Network(width=400, blocks=2),
        data=PowerLawData(dimension=400, capacity=0.6, source=0.3),
        training=Training(mode="population", steps=40, learning_rate=0.01),
    ),
    "full batch, partial skip, rates and scales per layer, power law": Problem(
        network=Network(
            width=300, blocks=2, skip=0.5, branch=0.7, init_std={"input": 1.0, "block": 0.8, "output": 0.9}
        ),
        data=PowerLawData(dimension=400, capacity=0.6, source=0.3, samples=600, label_noise=0.2),
        training=Training(
            steps=30,
            learning_rate={"input": 0.02, "block": 0.01, "output": 0.03},
            weight_decay={"input": 0.2, "block": 0.1, "output": 0.3},
        ),
    ),
    "full batch, three outputs": Problem(
        network=Network(width=800, blocks=1),
        data=GaussianData(dimension=400, samples=800, label_noise=0.3, outputs=3),
        training=Training(steps=30, learning_rate=0.02, richness=1.5),
    ),
}


@pytest.fixture(scope="module")
def comparisons():
    return {
        name: lazyrich.compare(lazyrich.predict(problem), lazyrich.train(problem, seeds=SEEDS), label=name)
        for name, problem in SETTINGS.items()
    }


@pytest.mark.parametrize("name", SETTINGS)
def test_theory_predicts_training(comparisons, name):
    comparison = comparisons[name]
    assert comparison.losses == ["train_loss", "test_loss"]
    for loss in comparison.losses:
        # 16 networks and one standard error each: |z| < 4 at all steps (steps are strongly correlated)
        assert comparison.largest_z(loss) < 4, comparison.summary()
        # the test has power: one standard error is a few per cent of the loss (measured at most 7%)
        sem = comparison.trained.data[f"{loss}_sem"].values
        assert np.median(sem / comparison.predicted.data[loss].values) < 0.1


def test_theory_predicts_training_on_average(comparisons):
    means = [comparison.mean_z(loss) for comparison in comparisons.values() for loss in comparison.losses]
    assert len(means) == 16
    assert np.mean(means) < 2  # measured: 0.6


def test_theory_predicts_kernels():
    problem = SETTINGS["full batch, residual"].with_values({"training.steps": 12})
    predicted = lazyrich.predict(problem)
    trained = lazyrich.train(problem, seeds=SEEDS, kernels=True)
    for name in ("feature_kernel", "gradient_kernel", "error_kernel", "sample_error_kernel"):
        mean, sem = trained.data[name].values, trained.data[f"{name}_sem"].values
        z = (mean - predicted.data[name].values) / sem
        assert np.abs(z).max() < 5, name  # up to 5 x 144 correlated entries; measured at most 1.3
        assert np.sqrt(np.mean(z**2)) < 2, name


def test_a_wrong_prediction_is_noticed():
    # the same problem at 10% more richness is far outside the standard errors
    problem = SETTINGS["full batch, plain, noise"]
    trained = lazyrich.train(problem, seeds=SEEDS)
    wrong = lazyrich.predict(problem.with_values({"training.learning_rate": 0.036}))
    z = (trained.train_loss - wrong.train_loss) / trained.data["train_loss_sem"].values
    assert np.abs(z).max() > 6


def test_gap_closes_as_one_over_size():
    # small networks leave the theory by O(1/N): measured 0.0317, 0.0150, 0.0074 (+- 0.0020, 0.0013, 0.0009)
    def gap(size):
        problem = Problem(
            network=Network(width=size, blocks=1),
            data=GaussianData(dimension=size, samples=2 * size, label_noise=0.3),
            training=Training(steps=16, learning_rate=0.05),
        )
        trained = lazyrich.train(problem, seeds=4000)
        return np.array([trained.train_loss[-1] - lazyrich.predict(problem).train_loss[-1],
                         trained.data["train_loss_sem"].values[-1]])  # fmt: skip

    gaps = {size: gap(size) for size in (8, 16, 32)}
    for size, (value, error) in gaps.items():
        assert value > 5 * error  # resolved
        assert abs(size * value - 8 * gaps[8][0]) < 4 * np.hypot(size * error, 8 * gaps[8][1])


def binary_digits(tmp_path):
    images, labels = load_digits(return_X_y=True)
    sign = np.where(labels < 5, 1.0, -1.0)
    path = tmp_path / "digits.npz"
    np.savez(path, pixel=images, sign=sign)
    return Problem(
        network=Network(width=1024, blocks=1),
        data=lazyrich.dataset(str(path), target="sign"),
        training=Training(steps=80, learning_rate=0.01),
    )


def test_digits(tmp_path):
    # target +1 for classes 0 to 4, -1 for the rest: figures of an independent implementation, four digits
    problem = binary_digits(tmp_path)
    steps = [0, 1, 5, 10, 20, 40, 79]
    predicted = lazyrich.predict(problem)
    np.testing.assert_allclose(
        predicted.train_loss[steps], [1.0625, 0.9533, 0.7010, 0.5650, 0.4701, 0.4217, 0.3947], atol=5e-5
    )
    assert predicted.test_loss is None
    comparison = lazyrich.compare(predicted, lazyrich.train(problem, seeds=SEEDS))
    assert comparison.largest_z() < 4, comparison.summary()


def test_three_classes_of_digits():
    # three one-hot outputs: figures of an independent implementation
    problem = Problem(
        network=Network(width=256, blocks=1),
        data=lazyrich.dataset("digits", classes=[0, 1, 2]),
        training=Training(steps=40, learning_rate=0.008),
    )
    predicted = lazyrich.predict(problem).data["train_loss_by_output"].values
    np.testing.assert_allclose(predicted[5], [0.6006, 0.7857, 0.7080], atol=5e-5)
    np.testing.assert_allclose(predicted[39], [0.2997, 0.5319, 0.3713], atol=5e-5)
    trained = lazyrich.train(problem, seeds=SEEDS).data
    z = (trained["train_loss_by_output"] - predicted) / trained["train_loss_sem_by_output"]
    assert np.abs(z).max() < 4.5  # 3 outputs, 64 inputs; measured 2.1


def test_divergence_in_training():
    problem = SETTINGS["full batch, plain, noise"].with_values({"training.learning_rate": 1.0, "network.width": 50})
    trained, predicted = lazyrich.train(problem, seeds=4), lazyrich.predict(problem)
    assert trained.outcome.kind == predicted.outcome.kind == "diverged"
    assert trained.statistics["networks_diverged"] == 4
    comparison = lazyrich.compare(predicted, trained)
    assert f"theory diverged at step {predicted.outcome.step}" in comparison.summary()
    assert f"training diverged at step {trained.outcome.step}" in comparison.summary()
