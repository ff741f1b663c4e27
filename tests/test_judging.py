"""What transfer studies judge rates by: the loss of held-out samples, and errors, by theory and by training."""

from __future__ import annotations

import io

import numpy as np
import pytest

import lazyrich
from lazyrich.problem.datasets import load_data
from lazyrich.problem.files import ResidualStudy
from lazyrich.problem.residual import LabelledData, ResidualNetwork, ResidualTraining, TeacherData
from lazyrich.theory.deep_linear import outputs
from lazyrich.transfer.analysis import analyse
from lazyrich.transfer.figures import plot_losses
from lazyrich.transfer.report import best_rows, report_page
from lazyrich.transfer.sweep import Grid, _between_best, plan_points, run_sweep
from lazyrich.transfer.theory_work import losses_by_theory
from lazyrich.transfer.training_work import losses_by_training

LOSSES = ("test", "train", "test-error", "train-error")
# from slow to divergent
RATES = [0.004, 0.02, 0.05, 1.0]
AT = (6, 19)


def digits_problem(width=128, steps=20, classes=(0, 1, 2), test_fraction=0.8, **training):
    return lazyrich.Problem(
        network=lazyrich.Network(width=width, blocks=1),
        data=lazyrich.dataset("digits", classes=classes and list(classes), test_fraction=test_fraction),
        training=lazyrich.Training(steps=steps, learning_rate=0.01, **training),
    )


# two classes, so that one step in five is solved
IN_STRIDES = digits_problem(steps=300, classes=(0, 1), tolerance=1e-2).with_rate(0.004)


def read_from(data, loss, suffix=""):
    """The same of a trajectory, whose curves are losses and accuracies."""
    if loss.endswith("-error"):
        return 1.0 - data[f"{loss.removesuffix('-error')}_accuracy{suffix}"].values
    return data[f"{loss}_loss{suffix}"].values


# --- cells -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def predicted():
    return [lazyrich.predict(digits_problem().with_rate(rate)) for rate in RATES]


@pytest.mark.parametrize("loss", LOSSES)
def test_theory_cells_are_predictions(predicted, loss):
    found = losses_by_theory(digits_problem(), RATES, AT, loss)
    expected = [read_from(each.data, loss)[list(AT)] for each in predicted]
    # the same numbers, equal as measured; NaN after the divergence
    np.testing.assert_allclose(found["losses"][..., 0], expected, rtol=1e-13)
    assert np.isnan(expected).sum() == 2 and found["diverged"][:, 0].tolist()[:3] == [-1] * 3
    assert found["diverged"][3, 0] == predicted[3].outcome.step


def test_cells_in_strides_are_predictions():
    predicted = lazyrich.predict(IN_STRIDES)
    assert predicted.data.sizes["step"] < 100
    for loss in LOSSES:
        found = losses_by_theory(IN_STRIDES, [0.004], (299,), loss)["losses"][0, 0, 0]
        assert found == pytest.approx(read_from(predicted.data, loss)[-1], rel=1e-13)  # equal as measured


def test_losses_need_no_accuracies(monkeypatch):
    def counted(law, inputs, labels, data):
        asked.append((len(labels), len(law.mean)))
        return chances(law, inputs, labels, data)

    asked, chances = [], outputs.chances_on
    monkeypatch.setattr(outputs, "chances_on", counted)
    problem = digits_problem()
    for loss in ("test", "train"):
        losses_by_theory(problem, [0.004], (19,), loss)
        losses_by_theory(IN_STRIDES, [0.004], (299,), loss)
    assert asked == []
    # and an error those of its own part, at the steps that are read
    losses_by_theory(problem, [0.004], (6, 19), "test-error")
    losses_by_theory(problem, [0.004], (19,), "train-error")
    assert asked == [(1438, 2), (359, 1)]


@pytest.mark.parametrize("loss", LOSSES)
def test_training_cells_are_the_networks_of_train(loss):
    problem = digits_problem(width=24)
    found = losses_by_training(problem, [0.02, 1.0], AT, loss, 3)
    trained = lazyrich.train(problem.with_rate(0.02), 3)
    expected = read_from(trained.data, loss, "_of_seed")[:, list(AT)].T
    np.testing.assert_allclose(found["losses"][0], expected, rtol=1e-12)  # of trainings side by side
    assert np.isnan(found["losses"][1, 1]).all() and (found["diverged"][1] >= 0).all()


@pytest.mark.parametrize("loss", ["test", "test-error"])
def test_theory_against_training(loss):
    """359 images are trained on, 1438 are held out."""
    problem, rates = digits_problem(width=256), RATES[:3]
    theory = losses_by_theory(problem, rates, AT, loss)["losses"][..., 0]
    trained = losses_by_training(problem, rates, AT, loss, 24)["losses"]
    sem = trained.std(axis=-1, ddof=1) / np.sqrt(24)
    # measured 1.2 and 1.4, over rates and steps; 42 and 29 from the other part's
    assert np.abs((trained.mean(axis=-1) - theory) / sem).max() < 3.5
    wrong = losses_by_theory(problem, rates, AT, loss.replace("test", "train"))["losses"][..., 0]
    assert np.abs((trained.mean(axis=-1) - wrong) / sem).max() > 10


# --- residual networks -----------------------------------------------------------------------------------------------


def residual_study(data, judged, **training):
    return ResidualStudy(
        network=ResidualNetwork(width=8, blocks=2),
        data=data,
        training=ResidualTraining(steps=6, learning_rate=0.01, **training),
        transfer={"rates": [0.01, 0.1], "axes": {"network.blocks": [1, 2]}, "loss": judged, "seeds": 2},
    )


@pytest.mark.parametrize("loss", ["test-error", "train-error"])
def test_errors_of_residual_networks(tmp_path, loss):
    study = residual_study(TeacherData(dimension=6, classes=3, samples=40, test_samples=30), loss)
    sweep = run_sweep(study, tmp_path / "results", workers=1)
    trained = lazyrich.train(study.problem.with_rate(0.1), 2)
    expected = read_from(trained.data, loss, "_of_seed")[:, -1]
    np.testing.assert_allclose(sweep.grids[1, "training"].losses[1, 0], expected, atol=1e-6)  # float32
    assert 0 < expected.mean() < 1
    assert analyse(sweep).best[0].least == pytest.approx(0.5 / (30 if loss == "test-error" else 40))


# --- what is refused -------------------------------------------------------------------------------------------------

NO_CLASSES = r"transfer\.loss: an error is the share of samples in a wrong class, and these data have no classes; list"


@pytest.mark.parametrize(
    ("data", "loss", "message"),
    [
        (
            lazyrich.dataset("digits"),
            "test",
            r"transfer\.loss: a data set without a held-out part has no test loss; "
            r"set data\.test_fraction, or loss = 'train'$",
        ),
        (
            lazyrich.dataset("digits", classes=[0, 1]),
            "test-error",
            r"transfer\.loss: a data set without a held-out part has no test error; "
            r"set data\.test_fraction, or loss = 'train-error'$",
        ),
        (lazyrich.dataset("digits", test_fraction=0.3), "test-error", NO_CLASSES),
        (lazyrich.dataset("digits", classes=[1], test_fraction=0.3), "train-error", NO_CLASSES),
        (lazyrich.GaussianData(dimension=8, samples=16), "test-error", NO_CLASSES + ".* or set loss = 'test'$"),
    ],
    ids=["no held-out loss", "no held-out error", "no classes", "one class", "Gaussian"],
)
def test_what_there_is_not(data, loss, message):
    tables = digits_problem().to_dict() | {"data": data.model_dump(exclude_none=True)}
    study = lazyrich.Study(**tables, transfer={"rates": [0.01, 0.02], "loss": loss})
    with pytest.raises(lazyrich.LazyrichError, match=message):
        plan_points(study)


def test_held_out_samples_of_other_classes_only(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["x,y", *(f"{index},{index % 3}" for index in range(20))]) + "\n")
    # which samples are held out depends on their number alone
    held_out = load_data(lazyrich.dataset(str(path), target="y", scaling="none", test_fraction=0.25)).test_inputs
    rows = [f"{index},{'c' if index in held_out else 'ab'[index % 2]}" for index in range(20)]
    path.write_text("\n".join(["x,y", *rows]) + "\n")
    data = lazyrich.dataset(str(path), target="y", classes=["a", "b"], test_fraction=0.25)
    tables = digits_problem().to_dict() | {"data": data.model_dump(exclude_none=True)}
    for loss in ("test", "train-error", "test-error"):
        study = lazyrich.Study(**tables, transfer={"rates": [0.01, 0.02], "loss": loss})
        if loss != "test-error":
            assert len(plan_points(study)) == 1
            continue
        with pytest.raises(lazyrich.LazyrichError, match=r"data\.classes: no held-out sample belongs to one of the"):
            plan_points(study)


def test_residual_data_without_labels():
    data = LabelledData(name="digits", test_fraction=0.3)
    with pytest.raises(lazyrich.LazyrichError, match=NO_CLASSES):
        plan_points(residual_study(data, "test-error", loss="mse"))
    assert len(plan_points(residual_study(data, "test", loss="mse"))) == 2


# --- what comes of it ------------------------------------------------------------------------------------------------


def test_labels_say_what_is_judged(tmp_path):
    tables = digits_problem(width=24, steps=8).to_dict()
    transfer = {"rates": [0.01, 0.02, 0.04], "axes": {"network.width": [24, 48]}, "loss": "test-error"}
    sweep = run_sweep(lazyrich.Study(**tables, transfer=transfer), tmp_path / "results", workers=1)
    analysis = analyse(sweep)
    assert plot_losses(analysis).axes[0].get_ylabel() == "test error at step 7"
    assert best_rows(analysis.best)[0][4] == "test error"
    page = report_page(analysis, title="t", study_text="", command="")
    assert "<h2>Test error against learning rate</h2>" in page and "loss" not in page.lower().replace("losses", "")
    # as many as were held out belong to the three classes, of which half a sample counts as none
    labels = load_data(sweep.points[0].problem.data).test_labels
    assert analysis.best[0].least == 0.5 / np.count_nonzero(labels >= 0)


def test_rates_without_an_error_are_equally_good(tmp_path):
    """Zeros and ones, linearly separated with a wide margin: from some rate on no sample is in a wrong class."""
    path = tmp_path / "apart.npz"
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60)
    np.savez(path, x=np.where(labels, 3.0, -3.0)[:, None] + 0.1 * rng.standard_normal((60, 4)), y=labels)
    data = lazyrich.dataset(str(path), target="y", classes=[0, 1], test_fraction=0.5)
    tables = digits_problem(width=16, steps=12).to_dict() | {"data": data.model_dump(exclude_none=True)}
    transfer = {"rates": list(np.geomspace(1e-4, 1e-1, 10)), "axes": {"network.width": [16, 32]}, "by": "both"}
    transfer |= {"loss": "test-error", "seeds": 4}
    sweep = run_sweep(lazyrich.Study(**tables, transfer=transfer), tmp_path / "results", workers=1)
    analysis = analyse(sweep)
    for best in analysis.best:
        mean = best.losses.mean(axis=1)
        tied = best.rates[mean < 0.5 / 30]
        assert len(tied) >= 2 and mean[0] > 0.1
        assert tied[0] <= best.optimum.best_rate <= tied[-1]
        low, high = best.optimum.interval
        assert low <= tied[0] * (1 + 1e-12) and high >= tied[-1] * (1 - 1e-12)  # they went through a logarithm
        assert best.optimum.loss == pytest.approx(0.5 / 30)
    assert all(np.isfinite(move.regret.nats) for move in analysis.moves)
    assert plot_losses(analysis).savefig(io.BytesIO()) is None


def test_refinement_is_around_the_middle_of_equal_rates():
    losses = np.array([0.3, 0.1, 0.0, 0.01, 0.0, 0.2])[:, None, None]
    grid = Grid(np.geomspace(1.0, 32.0, 6), losses, np.full((6, 1), -1))
    np.testing.assert_allclose(_between_best(grid, least=0.02), [2**2.5, 2**3.5])
    np.testing.assert_allclose(_between_best(grid, least=0.0), [2**1.5, 2**2.5])
