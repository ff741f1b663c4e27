"""Samples of a residual problem, and the order in which networks see them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem.datasets import load_data, split_rows
from lazyrich.problem.residual import LabelledData, ResidualProblem, TeacherData, check_batch

# What the random numbers of a problem's seed are for.
_TEACHER, _HELD_OUT, _BATCHES = range(3)


@dataclass(frozen=True)
class Part:
    """Some samples.

    Attributes
    ----------
    inputs : ndarray, shape (P, D)
    targets : ndarray, shape (P, C)
        One-hot, or as the data set has them (standardised).
    labels : ndarray of int, shape (P,), or None
        Index of the class; None where the targets are not the classes of one column.
    """

    inputs: np.ndarray
    targets: np.ndarray
    labels: np.ndarray | None

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Samples:
    """The training samples, and the held-out ones if there are any.

    Attributes
    ----------
    train : Part
    test : Part or None
    """

    train: Part
    test: Part | None


def load_samples(problem: ResidualProblem) -> Samples:
    """The samples of a problem, checked against its training.

    Raises
    ------
    LazyrichError
        For a data file that cannot be used, samples of other classes than the outputs, a part without samples, or a
        batch larger than the data.
    """
    data, seed = problem.data, problem.training.seed
    samples = _teacher(data, seed) if isinstance(data, TeacherData) else _dataset(problem, data, seed)
    check_batch(problem.training.batch, len(samples.train))
    return samples


def _teacher(data: TeacherData, seed: int) -> Samples:
    """Gaussian inputs with the label ``argmax_c V_c . tanh(U x / sqrt(D))``."""
    random = np.random.default_rng([seed, _TEACHER])
    first = random.standard_normal((data.hidden, data.dimension)) / np.sqrt(data.dimension)
    second = random.standard_normal((data.classes, data.hidden))

    def part(count: int) -> Part:
        inputs = random.standard_normal((count, data.dimension))
        labels = np.argmax(np.tanh(inputs @ first.T) @ second.T, axis=1)
        return Part(inputs, np.eye(data.classes)[labels], labels)

    return Samples(part(data.samples), part(data.test_samples))


def _dataset(problem: ResidualProblem, data: LabelledData, seed: int) -> Samples:
    loaded = load_data(data)
    labels = None
    if data.classes is not None:
        one_hot = loaded.targets * loaded.target_std + loaded.target_mean > 0.5
        strangers = int(np.sum(~one_hot.any(axis=1)))
        if strangers and problem.training.loss == "cross-entropy":
            what = f"{strangers} samples belong to none of the {len(data.classes)} classes"
            raise LazyrichError("data.classes", what, "list all classes of the target column, or set loss = 'mse'")
        labels = None if strangers else one_hot.argmax(axis=1)
    order = np.random.default_rng([seed, _HELD_OUT]).permutation(len(loaded.inputs))
    kept, held_out = split_rows(data.path or str(data.name), order, data.test_fraction, least=1)

    def part(chosen: np.ndarray) -> Part:
        return Part(loaded.inputs[chosen], loaded.targets[chosen], None if labels is None else labels[chosen])

    return Samples(part(kept), part(held_out) if len(held_out) else None)


def batch_order(problem: ResidualProblem, network: int, samples: int) -> np.ndarray | None:
    """Which samples a network sees at which step, shape (steps, batch); None for all at every step.

    Every pass through the data is a new shuffle, drawn from the problem's seed and the network's number alone. Of a
    pass only whole batches are used.
    """
    training = problem.training
    if training.batch is None or training.batch == samples:
        return None
    random = np.random.default_rng([training.seed, _BATCHES, network])
    per_pass = samples // training.batch
    passes = [random.permutation(samples)[: per_pass * training.batch] for _ in range(-(-training.steps // per_pass))]
    return np.concatenate(passes).reshape(-1, training.batch)[: training.steps].astype(np.int32)
