"""The law of the outputs over initialisations: on every sample, Gaussian (docs/theory/outputs.md).

From it follow the loss and the accuracy on any samples, those that were held out included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from lazyrich.problem.data import DatasetData
from lazyrich.problem.datasets import LoadedData, load_data
from lazyrich.problem.spectrum import dataset_basis
from lazyrich.theory.deep_linear.argmax import chance_of_largest
from lazyrich.theory.deep_linear.checks import pull_matrix
from lazyrich.theory.deep_linear.flow import FlowSolution
from lazyrich.theory.deep_linear.solver import Solution

# Directions of the gradients' covariance below this part of the largest are rounding.
_RANK_TOLERANCE = 1e-14


@dataclass(frozen=True)
class WeightLaw:
    """Mean and covariance of the network's linear map beta, mode by mode; different modes are independent.

    Attributes
    ----------
    mean : ndarray, shape (steps, D, C)
    covariance : ndarray, shape (steps, D, C, C)
        Between outputs of one mode, at one step.
    """

    mean: np.ndarray
    covariance: np.ndarray

    def of_outputs(self, inputs: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Mean (P, C) and covariance (P, C, C) of the outputs at every step.

        Parameters
        ----------
        inputs : ndarray, shape (P, D)
            Samples in the eigenbasis of the training inputs' covariance.
        """
        (_, dimension, outputs), scaled = self.mean.shape, inputs / np.sqrt(inputs.shape[1])
        for mean, covariance in zip(self.mean, self.covariance, strict=True):
            spread = scaled**2 @ covariance.reshape(dimension, -1)
            yield scaled @ mean, spread.reshape(-1, outputs, outputs)


def data_set_law(solution: Solution | FlowSolution, data: DatasetData) -> tuple[WeightLaw, np.ndarray]:
    """The law of beta after full-batch training on a data set, and the basis in which it is written, (D, D)."""
    eigenvalues, basis, correlations = dataset_basis(data)
    return weight_law(solution, eigenvalues, correlations), basis


def weight_law(solution: Solution | FlowSolution, eigenvalues: np.ndarray, correlations: np.ndarray) -> WeightLaw:
    """The law of beta from the solved equations.

    With the pull ``A = K R_D`` and ``V_k = (1 + lambda_k A)^-1``, ``v_k = V_k (beta*_k - a d . xi)`` gives
    ``beta_k = V_k (A lambda_k beta*_k + a d . xi)``: no small eigenvalue is divided by.

    Parameters
    ----------
    solution : Solution or FlowSolution
        In population mode.
    eigenvalues : ndarray, shape (D,)
    correlations : ndarray, shape (D, C)
        ``lambda_k beta*_k``.
    """
    steps, outputs = solution.steps, solution.limit.outputs
    size = steps * outputs
    pull = pull_matrix(solution)
    constant = np.tile(np.eye(outputs), (steps, 1))
    sources = np.hstack([pull @ constant, _fluctuation_root(solution)])
    points, of_mode = np.unique(eigenvalues, return_inverse=True)
    means, covariances = np.zeros((2, len(points), steps, outputs, outputs))
    unit, implicit = np.eye(size), bool(np.diag(pull).any())  # in flow, rows depend on themselves
    for index, point in enumerate(points):
        system = unit + point * pull
        if implicit:
            answers = np.linalg.solve(system, sources)
        else:
            answers = solve_triangular(system, sources, lower=True, unit_diagonal=True, check_finite=False)
        answers = answers.reshape(steps, outputs, -1)
        means[index] = answers[..., :outputs]
        fluctuations = answers[..., outputs:]
        covariances[index] = fluctuations @ fluctuations.transpose(0, 2, 1)
    return WeightLaw(
        np.einsum("ktcd,kd->tkc", means[of_mode], correlations), covariances[of_mode].transpose(1, 0, 2, 3)
    )


def _fluctuation_root(solution: Solution | FlowSolution) -> np.ndarray:
    """A root of the covariance of ``a d . xi``, shape (n, rank): what the initial input weights put into beta."""
    limit, size = solution.limit, solution.steps * solution.limit.outputs
    factor = limit.inverse_scale_squared * limit.variances[0]
    if factor == 0 or size == 0:
        return np.zeros((size, 0))
    variances, axes = np.linalg.eigh(solution.cascade.levels[0].cov_gg[:size, :size])
    kept = variances > _RANK_TOLERANCE * variances[-1]
    decay = np.repeat(limit.memories[0].decay, limit.outputs)[:size]
    return decay[:, None] * axes[:, kept] * np.sqrt(factor * variances[kept])


def law_memory(data: DatasetData, steps: int) -> int:
    """Bytes that the law of the outputs will hold at once, beyond the solution; 0 where it is not needed."""
    loaded = load_data(data)
    if loaded.labels is None and not len(loaded.test_inputs):
        return 0
    samples = max(len(loaded.inputs), len(loaded.test_inputs))
    dimension, outputs = loaded.inputs.shape[1], loaded.targets.shape[1]
    # covariances by eigenvalue and by mode; matrices of one eigenvalue; inputs; covariances and draws of one step
    numbers = 3 * dimension * steps * outputs**2 + 4 * (steps * outputs) ** 2
    return 8 * (numbers + samples * (4 * dimension + 4 * outputs**2 + 80 * outputs))


def losses_on(law: WeightLaw, inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean squared errors of one network and of the average of infinitely many, each of shape (steps, C).

    Parameters
    ----------
    law : WeightLaw
    inputs : ndarray, shape (P, D)
        In the eigenbasis.
    targets : ndarray, shape (P, C)
    """
    moments = (inputs**2).mean(axis=0) / inputs.shape[1]
    variance = np.einsum("k,tkcc->tc", moments, law.covariance)
    scaled = inputs / np.sqrt(inputs.shape[1])
    of_average = np.zeros_like(variance)
    for step, mean in enumerate(law.mean):
        of_average[step] = ((targets - scaled @ mean) ** 2).mean(axis=0)
    return of_average + variance, of_average


def chances_on(law: WeightLaw, inputs: np.ndarray, labels: np.ndarray, data: LoadedData) -> np.ndarray:
    """The probability that a network puts a sample into its class, shape (steps, samples that belong to a class).

    The class that a network names is that of its largest output in the targets' own units (0 and 1), where outputs
    are comparable.

    Parameters
    ----------
    law : WeightLaw
    inputs : ndarray, shape (P, D)
        In the eigenbasis.
    labels : ndarray of int, shape (P,)
        -1 for no class.
    data : LoadedData
    """
    classified = labels >= 0
    scale = data.target_std
    found = np.zeros((len(law.mean), np.count_nonzero(classified)))
    for step, (mean, covariance) in enumerate(law.of_outputs(inputs[classified])):
        scores = mean * scale + data.target_mean
        found[step] = chance_of_largest(scores, covariance * np.outer(scale, scale), labels[classified])
    return found


def read_data_set(
    solution: Solution | FlowSolution,
    data: DatasetData,
    kept: np.ndarray | None = None,
    accuracies_on: Sequence[str] = ("train", "test"),
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The loss of a held-out part by output, and accuracies on both parts of data with classes.

    Parameters
    ----------
    solution : Solution or FlowSolution
    data : DatasetData
    kept : ndarray of int, optional
        The steps to read; default: all.
    accuracies_on : sequence of str
        The parts whose accuracies are needed: they take longer than the loss.

    Returns
    -------
    losses : dict of ndarray
        ``test_loss``, shape (steps, C), where there is a held-out part.
    accuracies : dict of ndarray
        ``train_accuracy`` and ``test_accuracy``, shape (steps,), ``train_correct`` and ``test_correct``, shape
        (steps, samples); empty without classes.
    """
    loaded = load_data(data)
    losses, accuracies = {}, {}
    parts = {"train": (loaded.inputs, loaded.labels), "test": (loaded.test_inputs, loaded.test_labels)}
    classified = {
        part: (inputs, labels)
        for part, (inputs, labels) in parts.items()
        if part in accuracies_on and labels is not None and (labels >= 0).any()
    }
    if not classified and not len(loaded.test_inputs):
        return losses, accuracies
    law, basis = data_set_law(solution, data)
    if kept is not None:
        law = WeightLaw(law.mean[kept], law.covariance[kept])
    if len(loaded.test_inputs):
        losses["test_loss"] = losses_on(law, loaded.test_inputs @ basis, loaded.test_targets)[0]
    for part, (inputs, labels) in classified.items():
        correct = chances_on(law, inputs @ basis, labels, loaded)
        accuracies |= {f"{part}_accuracy": correct.mean(axis=1), f"{part}_correct": correct}
    return losses, accuracies
