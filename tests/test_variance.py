"""Averages of networks: covariances between networks that share data, start or neither; against training and limits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import lazyrich
from lazyrich.averages import average_loss, variance_parts
from lazyrich.simulation import train_averages
from lazyrich.simulation.linear import run_networks
from lazyrich.theory import predict_averages
from lazyrich.theory.deep_linear.solving import solve_problem
from lazyrich.theory.deep_linear.variance import target_error, with_same_data, with_same_start

OVER = ("initialisations", "data", "both")


def problem_of(data=None, size=100, blocks=1, steps=20, rate=0.05, training=None, **network):
    return lazyrich.Problem(
        network=lazyrich.Network(width=size, blocks=blocks, **network),
        data=data or lazyrich.GaussianData(dimension=size, samples=size * 5 // 4, label_noise=0.5),
        training=lazyrich.Training(steps=steps, learning_rate=rate, **(training or {})),
    )


SETTINGS = {
    "plain": problem_of(),
    "two blocks, rich, decay and momentum": problem_of(
        blocks=2, steps=15, rate=0.015, training={"richness": 2.0, "weight_decay": 0.5, "momentum": 0.6}
    ),
    "residual": problem_of(blocks=2, skip=1.0, branch=0.5, rate=0.04),
    "online, power law, two outputs": problem_of(
        lazyrich.PowerLawData(dimension=100, capacity=0.6, source=0.3, outputs=2, label_noise=0.3),
        steps=12,
        training={"mode": "online", "batch": 80},
    ),
}
SMALL = problem_of(size=20, steps=12)


@cache
def trained_groups(name):
    return train_averages(SETTINGS[name], groups=20)


@cache
def small_groups():
    return train_averages(SMALL, groups=2)


# --- what holds exactly ---


@pytest.mark.parametrize("name", SETTINGS)
def test_sharing_more_leaves_more_in_common(name):
    """Independent networks have least in common, and a covariance is never more than the variance."""
    solution, _ = solve_problem(SETTINGS[name])
    loss = np.diag(solution.data.weight_error)
    both = np.diag(target_error(solution))
    for shared in (np.diag(with_same_data(solution)[0]), np.diag(with_same_start(solution))):
        assert (shared >= both - 1e-12).all() and (shared <= loss + 1e-12).all()
        assert (shared[-2:] > 1.02 * both[-2:]).all() and (shared[-2:] < 0.95 * loss[-2:]).all()


def test_at_the_start_only_the_initialisation_matters():
    predicted = predict_averages(SETTINGS["residual"]).data
    assert predicted["test_loss_over_data"].values[0] == pytest.approx(predicted["test_loss"].values[0], rel=1e-12)
    for over in ("initialisations", "both"):  # the mean network is zero, the target has power 1
        assert predicted[f"test_loss_over_{over}"].values[0] == pytest.approx(1.0, rel=1e-12)


def test_much_data_leave_the_initialisation():
    problem = SETTINGS["residual"].with_values({"data.samples": 10**10})
    predicted = predict_averages(problem).data
    # terms of order D / samples: 8e-8 measured
    np.testing.assert_allclose(predicted["test_loss_over_data"], predicted["test_loss"], rtol=1e-6)
    np.testing.assert_allclose(predicted["test_loss_over_initialisations"], predicted["test_loss_over_both"], rtol=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_great_width_leaves_the_data(name):
    for width, tolerance in ((1e10, 1e-6), (float("inf"), 1e-12)):  # 5e-9 of order D / width, and rounding
        predicted = predict_averages(SETTINGS[name].with_values({"network.width": width})).data
        for part in ("train", "test"):
            shared = predicted[f"{part}_loss_over_initialisations"]
            np.testing.assert_allclose(shared, predicted[f"{part}_loss"], rtol=tolerance)
        np.testing.assert_allclose(predicted["test_loss_over_data"], predicted["test_loss_over_both"], rtol=tolerance)


def test_population_and_data_sets_have_initialisations_alone():
    population = SETTINGS["plain"].with_values({"training.mode": "population", "data.samples": None})
    for problem in (population, problem_of(lazyrich.dataset("digits", classes=[0, 1]), rate=0.01)):
        predicted = predict_averages(problem)
        assert "train_loss_over_initialisations" in predicted.data
        assert not any(f"test_loss_over_{over}" in predicted.data for over in ("data", "both"))
    parts = variance_parts(predict_averages(population))
    assert set(parts) == {"bias", "initialisation"}


def test_lazy_linear_regression_in_closed_form():
    """At infinite width and no richness the output is linear regression: only the data vary, and their law is known.

    After one step from zero, ``v = beta* - rate c X^T (X beta* / sqrt(D) + noise) sqrt(D) / P`` with c layers: its mean
    square is a moment of Gaussian matrices.
    """
    size, rate, layers = 100, 0.07, 3
    problem = problem_of(size=size, rate=rate, training={"richness": 1e-6}).with_values({"network.width": float("inf")})
    predicted = predict_averages(problem).data
    step, ratio, noise = rate * layers, problem.data.samples / size, 0.5**2
    shared = (1 - step) ** 2
    assert predicted["test_loss_over_both"].values[1] == pytest.approx(shared, rel=1e-9)
    assert predicted["test_loss_over_data"].values[1] == pytest.approx(shared, rel=1e-9)
    alone = shared + step**2 * (1 + noise) / ratio  # each sample puts (1 + noise) D / P into every direction
    for name in ("test_loss", "test_loss_over_initialisations"):
        assert predicted[name].values[1] == pytest.approx(alone, rel=1e-9)


# --- against trained networks ---


@pytest.mark.parametrize("name", SETTINGS)
def test_groups_of_networks(name):
    comparison = lazyrich.compare(predict_averages(SETTINGS[name]), trained_groups(name))
    assert [curve for curve in comparison.curves if "over" in curve] == [
        "train_loss_over_initialisations",
        *(f"test_loss_over_{over}" for over in OVER),
    ]
    for curve in comparison.curves:
        # 20 groups of networks of 100 units: largest z 2.7, of a residual one
        assert comparison.largest_z(curve) < 3.5, curve


def test_wrong_sharing_would_be_seen():
    """The z-scores of the test above tell the curves apart: at least 14 crosswise, at most 0.9 otherwise."""
    trained = trained_groups("plain").data
    predicted = predict_averages(SETTINGS["plain"]).data
    for one in OVER:
        for other in OVER:
            z = (trained[f"test_loss_over_{one}"] - predicted[f"test_loss_over_{other}"]).values[1:]
            z = z / trained[f"test_loss_over_{one}_sem"].values[1:]
            assert (np.abs(z).max() > 8) == (one != other), (one, other)


# --- averages of finitely many ---


def test_networks_averaged_one_by_one():
    """Five networks with the same samples: the loss of their averaged outputs, against the formula from pairs."""
    problem = problem_of(size=40, steps=8)
    count, sets = 5, 60
    seeds = [5 * s + i for s in range(sets) for i in range(count)]
    data_seeds = [s for s in range(sets) for _ in range(count)]
    batches = list(run_networks(problem, seeds, kernels=False, errors=True, data_seeds=data_seeds))
    errors = np.concatenate([batch.errors["weight_error"] for batch in batches])[:, :, 0]
    errors = errors.reshape(sets, count, 8, 40)
    direct = (errors.mean(axis=1) ** 2).mean(axis=-1)  # isotropic inputs: (sets, steps)
    predicted = predict_averages(problem)
    for networks, found in ((count, direct), (1, (errors**2).mean(axis=(1, -1)))):
        z = found.mean(axis=0) - average_loss(predicted, networks)
        z /= found.std(axis=0) / np.sqrt(sets)
        assert np.abs(z).max() < 3.5  # 0.6 and 1.1 measured
    z = (direct.mean(axis=0) - average_loss(predicted, 1)) / (direct.std(axis=0) / np.sqrt(sets))
    assert np.abs(z).max() > 15  # 41 measured: five networks are not one


def test_group_zero_is_made_of_known_networks():
    trained = small_groups()
    assert trained.statistics["networks"] == 8
    (batch,) = run_networks(
        SMALL, [0, 0, 1, 1, 2, 2, 3, 3], kernels=False, errors=True, data_seeds=[0, 1, 0, 1, 2, 3, 2, 3]
    )
    losses = batch.test_loss[:, :, 0]
    np.testing.assert_allclose(trained.test_loss, losses.mean(axis=0), rtol=1e-12)
    own = lazyrich.train(SMALL, [0, 1]).data["test_loss_of_seed"].values
    np.testing.assert_allclose(losses[[0, 3]], own, rtol=1e-12)
    # the same start and other data: the first step alone is the same
    assert losses[0, 0] == losses[1, 0] and losses[0, 1] != losses[1, 1]
    weights = batch.errors["weight_error"][:, :, 0]  # (networks, steps, D), eigenvalues 1
    sample = batch.errors["sample_error"][:, :, 0]

    def products(vectors, *pairs):
        return np.mean([(vectors[i] * vectors[j]).mean(axis=-1) for i, j in pairs], axis=0)

    for over, pairs in {
        "initialisations": ((0, 2), (1, 3), (4, 6), (5, 7)),
        "data": ((0, 1), (2, 3), (4, 5), (6, 7)),
        "both": ((0, 3), (1, 2), (4, 7), (5, 6)),
    }.items():
        np.testing.assert_allclose(trained.data[f"test_loss_over_{over}"], products(weights, *pairs), rtol=1e-10)
    pairs = ((0, 2), (1, 3), (4, 6), (5, 7))
    np.testing.assert_allclose(trained.data["train_loss_over_initialisations"], products(sample, *pairs), rtol=1e-10)


def test_parts_sum_to_the_loss():
    for trajectory in (predict_averages(SMALL), small_groups()):
        parts = variance_parts(trajectory)
        assert list(parts) == ["bias", "initialisation", "data", "interaction"]
        np.testing.assert_allclose(sum(parts.values()), trajectory.data["test_loss"], rtol=1e-12)
        for over in OVER:
            np.testing.assert_allclose(average_loss(trajectory, 1, over), trajectory.data["test_loss"], rtol=1e-12)
            limit = trajectory.data[f"test_loss_over_{over}"]
            np.testing.assert_allclose(average_loss(trajectory, 10**9, over), limit, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda result: average_loss(result, 0), "networks: 0 networks have no average; "),
        (lambda result: average_loss(result, 2, "data", "train"), "average: the result has no train loss over data; "),
        (lambda result: train_averages(result.problem, 1), "groups: 1 groups cannot be trained; "),
        (
            lambda result: train_averages(result.problem.with_values({"network.width": float("inf")})),
            "network.width: an infinitely wide network cannot be trained; ",
        ),
    ],
)
def test_what_cannot_be_averaged(call, message):
    with pytest.raises(lazyrich.LazyrichError) as error:
        call(predict_averages(SMALL))
    assert str(error.value).startswith(message)


def test_divergence_is_an_outcome():
    problem = SMALL.with_values({"training.learning_rate": 3.0})
    for trajectory in (predict_averages(problem), train_averages(problem, groups=2)):
        assert trajectory.outcome.kind == "diverged"
        for over in OVER:
            values = trajectory.data[f"test_loss_over_{over}"].values
            assert np.isfinite(values[: trajectory.outcome.step]).all()
            assert np.isnan(values[trajectory.outcome.step :]).all()


def test_averages_travel_and_are_drawn(tmp_path):
    from lazyrich.plots import plot_averages, save_figure

    comparison = lazyrich.compare(predict_averages(SMALL), small_groups())
    assert "test loss over both apart by at most" in comparison.summary()
    comparison.predicted.save(tmp_path / "a.nc")
    again = lazyrich.load(tmp_path / "a.nc")
    np.testing.assert_array_equal(again.data["test_loss_over_both"], comparison.predicted.data["test_loss_over_both"])
    assert len(again.to_json()["test_loss_over_data"]) == 12
    figure = plot_averages(comparison)
    assert [len(axes.get_legend().get_texts()) for axes in figure.axes] == [2, 4]
    save_figure(figure, tmp_path / "a.png")
    assert len(comparison.plot().axes) == 4  # losses of one network, and z-scores
