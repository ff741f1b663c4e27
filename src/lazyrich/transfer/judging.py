"""What learning rates are judged by: a loss, or an error, the share of the samples that is put into a wrong class."""

from __future__ import annotations

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem import DatasetData, Problem
from lazyrich.problem.datasets import load_data
from lazyrich.problem.files import Judged, TrainedProblem

TITLES: dict[Judged, str] = {
    "test": "test loss",
    "train": "training loss",
    "test-error": "test error",
    "train-error": "training error",
}


def judged_part(loss: Judged) -> str:
    """The samples that are looked at: ``"test"`` or ``"train"``."""
    return loss.removesuffix("-error")


def is_error(loss: Judged) -> bool:
    """Whether it is one minus an accuracy."""
    return loss.endswith("-error")


def least_counted(problem: TrainedProblem, loss: Judged) -> float:
    """Check that the problem has such a loss or error, and give the value below which all are equally good.

    Of a loss that is 0. Of an error it is half a sample: networks that put fewer than that into a wrong class cannot be
    told apart by these samples, and the logarithm of what is counted stays finite.

    Raises
    ------
    LazyrichError
        For a data set without held-out part or classes, and for a part without a sample of any class.
    """
    part = judged_part(loss)
    if part == "test" and not problem.has_test_loss:
        what = f"a data set without a held-out part has no {TITLES[loss]}"
        raise LazyrichError(
            "transfer.loss", what, f"set data.test_fraction, or loss = '{loss.replace('test', 'train')}'"
        )
    if not is_error(loss):
        return 0.0
    labels = _labels(problem, part)
    if labels is None:
        what = "an error is the share of samples in a wrong class, and these data have no classes"
        raise LazyrichError("transfer.loss", what, f"list all of a data set's in data.classes, or set loss = '{part}'")
    if not (count := np.count_nonzero(labels >= 0)):
        what = "no held-out sample belongs to one of the classes"
        raise LazyrichError("data.classes", what, f"list more of them, or set transfer.loss = '{part}'")
    return 0.5 / count


def _labels(problem: TrainedProblem, part: str) -> np.ndarray | None:
    """The class of each sample, -1 for none; None without classes."""
    if not isinstance(problem, Problem):
        from lazyrich.simulation.residual.data import load_samples

        samples = load_samples(problem)
        found = samples.train if part == "train" else samples.test
        return None if found is None else found.labels
    if not isinstance(problem.data, DatasetData):
        return None
    loaded = load_data(problem.data)
    return loaded.labels if part == "train" else loaded.test_labels
