"""The variables of a Trajectory's dataset: one layout for theory and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.problem import DatasetData, Problem
from lazyrich.problem.datasets import load_data
from lazyrich.problem.spectrum import output_names

if TYPE_CHECKING:
    import xarray

LOSSES = {"train_loss": "training loss", "test_loss": "test loss"}
ACCURACIES = {"train_accuracy": "training accuracy", "test_accuracy": "test accuracy"}
AVERAGED = {
    f"{part}_loss_over_{over}": f"{title} of an average over {over.replace('both', 'data and initialisations')}"
    for part, title in (("train", "training loss"), ("test", "test loss"))
    for over in ("initialisations", "data", "both")
}
CURVES = LOSSES | AVERAGED | ACCURACIES
_LONG_NAMES = CURVES | {
    "feature_kernel": "feature kernel H",
    "gradient_kernel": "gradient kernel G",
    "error_kernel": "weight error kernel C_v",
    "sample_error_kernel": "sample error kernel C_Delta",
    "feature_response": "response of h to a source in g",
    "gradient_response": "response of g to a source in h",
}
_LOSS_UNITS = "mean squared error of the targets as trained on"
_CORRECT = "part of the networks, or probability of a network, to name the sample's class"


def lay_out(
    problem: Problem,
    losses: Mapping[str, np.ndarray],
    kernels: Mapping[str, np.ndarray],
    accuracies: Mapping[str, np.ndarray],
    steps: np.ndarray | None = None,
) -> xarray.Dataset:
    """A dataset with labelled dimensions; steps that were not reached are NaN.

    Parameters
    ----------
    problem : Problem
    losses : dict of ndarray
        Losses by output, shape (.., steps done, outputs); each also gives its mean over outputs. Names that end in
        ``_of_seed`` have a leading seed dimension.
    kernels : dict of ndarray
        Shape (rows, rows) or (levels, rows, rows), rows running over (step, output).
    accuracies : dict of ndarray
        Of data with classes: ``train_accuracy`` and ``test_accuracy``, shape (steps done,), with a leading seed
        dimension where the name ends in ``_of_seed``; ``train_correct`` and ``test_correct``, shape (steps done,
        samples), over the samples that belong to a class.
    steps : ndarray of int, optional
        The steps of the results: all of the training's by default; of gradient flow the numbers of nodes.
    """
    import xarray

    names = output_names(problem.data)
    steps = np.arange(problem.training.steps) if steps is None else steps
    variables = {}
    for name, values in losses.items():
        padded = _pad(np.asarray(values, dtype=float), len(steps), axis=-2)
        leading = ("seed",) if name.endswith("_of_seed") else ()
        attributes = {"long_name": _LONG_NAMES.get(name, name.replace("_", " ")), "units": _LOSS_UNITS}
        variables[f"{name}_by_output"] = ((*leading, "step", "output"), padded, attributes)
        if not name.endswith("_sem"):  # the error of a mean over outputs is not the mean of their errors
            variables[name] = ((*leading, "step"), padded.mean(axis=-1), attributes)
    for name, values in accuracies.items():
        if name.endswith("_correct"):
            dimensions, axis, attributes = ("step", name.replace("_correct", "_sample")), 0, {"long_name": _CORRECT}
        else:
            dimensions, axis = (*(("seed",) if name.endswith("_of_seed") else ()), "step"), -1
            attributes = {"long_name": _LONG_NAMES.get(name, name.replace("_", " "))}
        variables[name] = (dimensions, _pad(np.asarray(values, dtype=float), len(steps), axis), attributes)
    for name, values in kernels.items():
        rows = values.shape[-1] // len(names)
        shaped = values.reshape(*values.shape[:-2], rows, len(names), rows, len(names))
        shaped = _pad(_pad(shaped, len(steps), axis=-4), len(steps), axis=-2)
        leading = ("level",) if values.ndim == 3 else ()
        variables[name] = (
            (*leading, "step", "output", "step_prime", "output_prime"),
            shaped,
            {"long_name": _LONG_NAMES.get(name, name.replace("_", " "))},
        )
    coordinates: dict[str, Any] = {"step": steps, "output": names}
    if kernels:
        coordinates |= {"step_prime": steps, "output_prime": names}
        coordinates["level"] = np.arange(len(kernels["feature_kernel"]))
    if isinstance(problem.data, DatasetData):
        loaded = load_data(problem.data)
        variables["target_mean"] = ("output", loaded.target_mean, {"long_name": "mean of the target in its own units"})
        variables["target_std"] = ("output", loaded.target_std, {"long_name": "what one unit of target stands for"})
    return xarray.Dataset(variables, coordinates)


def label_curves(
    curves: Mapping[str, np.ndarray], steps: np.ndarray, networks: Sequence[int], loss: str
) -> xarray.Dataset:
    """Mean curves over networks with their standard errors (``.._sem``), and each network's own (``.._of_seed``).

    Parameters
    ----------
    curves : dict of ndarray
        Losses and accuracies, shape (networks, records).
    steps : ndarray of int
        The steps at which they were recorded.
    networks : sequence of int
        Their numbers.
    loss : str
        ``"cross-entropy"`` or ``"mse"``.
    """
    import xarray

    units = "cross-entropy in nats" if loss == "cross-entropy" else _LOSS_UNITS
    variables = {}
    for name, values in curves.items():
        attributes = {"long_name": _LONG_NAMES[name], "units": units if name in LOSSES else "share of the samples"}
        many = len(networks) > 1
        sem = values.std(axis=0, ddof=1) / np.sqrt(len(networks)) if many else np.full(len(steps), np.nan)
        variables[name] = ("step", values.mean(axis=0), attributes)
        variables[f"{name}_sem"] = ("step", sem, attributes)
        variables[f"{name}_of_seed"] = (("seed", "step"), values, attributes)
    return xarray.Dataset(variables, {"step": steps, "seed": list(networks)})


def _pad(values: np.ndarray, steps: int, axis: int) -> np.ndarray:
    missing = steps - values.shape[axis]
    if missing == 0:
        return values
    widths = [(0, 0)] * values.ndim
    widths[axis] = (0, missing)
    return np.pad(values, widths, constant_values=np.nan)
