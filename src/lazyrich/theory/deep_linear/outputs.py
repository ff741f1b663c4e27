"""The law of the outputs over initialisations: on every sample, Gaussian (docs/theory/outputs.md).

From it follow the loss and the accuracy on any samples, those that were held out included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from lazyrich.problem.data import DatasetData
from lazyrich.problem.datasets import LoadedData, load_data
from lazyrich.problem.spectrum import dataset_basis
from lazyrich.theory.deep_linear.argmax import chance_of_largest
from lazyrich.theory.deep_linear.checks import pull_matrix
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


def weight_law(solution: Solution, eigenvalues: np.ndarray, correlations: np.ndarray) -> WeightLaw:
    """The law of beta from the solved equations, for full-batch training on a data set.

    With the pull ``A = K R_D`` and ``V_k = (1 + lambda_k A)^-1``, ``v_k = V_k (beta*_k - a d . xi)`` gives
    ``beta_k = V_k (A lambda_k beta*_k + a d . xi)``: no small eigenvalue is divided by.

    Parameters
    ----------
    solution : Solution
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
    unit = np.eye(size)
    for index, point in enumerate(points):
        answers = solve_triangular(unit + point * pull, sources, lower=True, unit_diagonal=True, check_finite=False)
        answers = answers.reshape(steps, outputs, -1)
        means[index] = answers[..., :outputs]
        fluctuations = answers[..., outputs:]
        covariances[index] = fluctuations @ fluctuations.transpose(0, 2, 1)
    return WeightLaw(
        np.einsum("ktcd,kd->tkc", means[of_mode], correlations), covariances[of_mode].transpose(1, 0, 2, 3)
    )


def _fluctuation_root(solution: Solution) -> np.ndarray:
    """A root of the covariance of ``a d . xi``, shape (n, rank): what the initial input weights put into beta."""
    limit, size = solution.limit, solution.steps * solution.limit.outputs
    factor = limit.inverse_scale_squared * limit.variances[0]
    if factor == 0 or size == 0:
        return np.zeros((size, 0))
    variances, axes = np.linalg.eigh(solution.cascade.levels[0].cov_gg[:size, :size])
    kept = variances > _RANK_TOLERANCE * variances[-1]
    decay = np.repeat(limit.memories[0].decay, limit.outputs)[:size]
    return decay[:, None] * axes[:, kept] * np.sqrt(factor * variances[kept])


def read_part(law: WeightLaw, data: LoadedData, basis: np.ndarray, part: str) -> tuple[np.ndarray, np.ndarray | None]:
    """What the law says of the samples that are trained on (``"train"``) or of the held-out ones (``"test"``).

    The class that a network names is that of its largest output in the targets' own units (0 and 1), where outputs
    are comparable.

    Returns
    -------
    loss : ndarray, shape (steps, C)
        Mean squared error over samples and networks.
    correct : ndarray, shape (steps, samples), or None
        The probability that a network puts a sample into its class; samples of no class are left out. None without
        classes.
    """
    held_out = part == "test"
    inputs, targets = (data.test_inputs, data.test_targets) if held_out else (data.inputs, data.targets)
    labels = data.test_labels if held_out else data.labels
    losses, correct = np.zeros((len(law.mean), targets.shape[1])), None
    if labels is not None:
        classified = np.flatnonzero(labels >= 0)
        correct = np.zeros((len(law.mean), len(classified)))
    for step, (mean, covariance) in enumerate(law.of_outputs(inputs @ basis)):
        losses[step] = ((targets - mean) ** 2 + np.diagonal(covariance, axis1=1, axis2=2)).mean(axis=0)
        if labels is not None and correct is not None:
            scores = mean[classified] * data.target_std + data.target_mean
            spread = covariance[classified] * np.outer(data.target_std, data.target_std)
            correct[step] = chance_of_largest(scores, spread, labels[classified])
    return losses, correct


def read_data_set(solution: Solution, data: DatasetData) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The loss of a held-out part by output, and accuracies on both parts of data with classes.

    Returns
    -------
    losses : dict of ndarray
        ``test_loss``, shape (steps, C), where there is a held-out part.
    accuracies : dict of ndarray
        ``train_accuracy`` and ``test_accuracy``, shape (steps,), ``train_correct`` and ``test_correct``, shape
        (steps, samples); empty without classes.
    """
    loaded = load_data(data)
    parts = ([] if loaded.labels is None else ["train"]) + (["test"] if len(loaded.test_inputs) else [])
    if not parts:
        return {}, {}
    eigenvalues, basis, correlations = dataset_basis(data)
    law = weight_law(solution, eigenvalues, correlations)
    losses, accuracies = {}, {}
    for part in parts:
        loss, correct = read_part(law, loaded, basis, part)
        if part == "test":
            losses["test_loss"] = loss
        if correct is not None:
            accuracies |= {f"{part}_accuracy": correct.mean(axis=1), f"{part}_correct": correct}
    return losses, accuracies
