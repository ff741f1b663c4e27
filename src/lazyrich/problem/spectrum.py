"""The modes of the data: covariance eigenvalues, target coefficients and label noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lazyrich.problem.data import Data, DatasetData, GaussianData, PowerLawData
from lazyrich.problem.datasets import load_data


@dataclass(frozen=True)
class Modes:
    """The data in the eigenbasis of its input covariance.

    Attributes
    ----------
    eigenvalues : ndarray, shape (D,)
    targets : ndarray, shape (D, C)
        beta*, so that ``y = sum_k beta*_k x_k / sqrt(D) + noise``.
    noise : ndarray, shape (C, C)
        Covariance of the noise; for a data set, of the residuals of its least-squares fit.
    """

    eigenvalues: np.ndarray
    targets: np.ndarray
    noise: np.ndarray


def input_dimension(data: Data) -> int:
    """D, the number of inputs, constant columns included."""
    return load_data(data).inputs.shape[1] if isinstance(data, DatasetData) else data.dimension


def output_count(data: Data) -> int:
    """C, the number of outputs."""
    return len(load_data(data).target_names) if isinstance(data, DatasetData) else data.outputs


def output_names(data: Data) -> list[str]:
    """One name per output; length C."""
    if isinstance(data, DatasetData):
        return list(load_data(data).target_names)
    return [f"output {index}" for index in range(data.outputs)] if data.outputs > 1 else ["output"]


def find_modes(data: Data) -> Modes:
    """The modes of any kind of data, all D of them.

    Several outputs of synthetic data get orthogonal targets of equal power (Walsh signs on the modes).
    """
    if isinstance(data, DatasetData):
        return _dataset_modes(data)
    noise = data.label_noise**2 * np.eye(data.outputs)
    if isinstance(data, GaussianData):
        # Isotropic inputs: any orthogonal frame is the same in law, so take an exact one.
        signs = _walsh_signs(data.dimension, data.outputs)
        targets = np.linalg.qr(signs)[0] * np.sqrt(data.dimension) if data.outputs > 1 else signs
        return Modes(np.ones(data.dimension), targets, noise)
    if isinstance(data, PowerLawData):
        index = np.arange(1, data.dimension + 1, dtype=float)
        eigenvalues, power = power_law(data, index)
        eigenvalues = eigenvalues / eigenvalues.mean()
        power = power / (eigenvalues * power).mean()
        return Modes(eigenvalues, np.sqrt(power)[:, None] * _walsh_signs(data.dimension, data.outputs), noise)
    return Modes(np.asarray(data.eigenvalues, dtype=float), np.asarray(data.targets, dtype=float).T, noise)


def power_law(data: PowerLawData, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and target power at mode numbers `index`, before they are scaled to means of 1."""
    return index**-data.capacity, index**-data.source


def _walsh_signs(rows: int, columns: int) -> np.ndarray:
    """Signs (-1)^popcount(row & column): columns that are orthogonal over every aligned group of rows."""
    overlap = np.arange(rows)[:, None] & np.arange(columns)[None, :]
    return 1.0 - 2.0 * (np.bitwise_count(overlap) % 2)


def _dataset_modes(data: DatasetData) -> Modes:
    loaded = load_data(data)
    samples, dimension = loaded.inputs.shape
    eigenvalues, basis, correlations = dataset_basis(data)
    known = eigenvalues > 0
    targets = np.divide(correlations, eigenvalues[:, None], out=np.zeros_like(correlations), where=known[:, None])
    residual = loaded.targets - loaded.inputs @ (basis @ targets) / np.sqrt(dimension)
    return Modes(eigenvalues, targets, residual.T @ residual / samples)


def dataset_basis(data: DatasetData) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The eigenbasis of a data set's input covariance, over the samples that are trained on.

    Returns
    -------
    eigenvalues : ndarray, shape (D,)
    basis : ndarray, shape (D, D)
        ``inputs @ basis`` are the samples in the eigenbasis.
    correlations : ndarray, shape (D, C)
        ``lambda_k beta*_k``, with beta* the least-squares fit; zero where the eigenvalue is.
    """
    loaded = load_data(data)
    samples, dimension = loaded.inputs.shape
    # f = beta . x / sqrt(D): the empirical covariance decides every step of full-batch training.
    eigenvalues, basis = np.linalg.eigh(loaded.inputs.T @ loaded.inputs / samples)
    eigenvalues = np.clip(eigenvalues, 0.0, None)
    kept = eigenvalues > eigenvalues.max() * dimension * np.finfo(float).eps * 16
    correlations = np.sqrt(dimension) * (basis.T @ (loaded.inputs.T @ loaded.targets)) / samples
    return np.where(kept, eigenvalues, 0.0), basis, np.where(kept[:, None], correlations, 0.0)
