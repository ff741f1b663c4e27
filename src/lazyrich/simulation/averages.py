"""Train networks that share their data, or their initialisation, or neither, and see what they have in common."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.fields import lay_out
from lazyrich.problem import DatasetData, Problem
from lazyrich.problem.datasets import load_data
from lazyrich.problem.spectrum import dataset_basis, find_modes
from lazyrich.simulation.linear import run_networks
from lazyrich.simulation.train import first_divergence
from lazyrich.trajectory import Outcome, Trajectory

_MOST_GROUPS = 100_000


@np.errstate(over="ignore", invalid="ignore")  # what overflows has diverged
def train_averages(
    problem: Problem, groups: int = 16, *, progress: Callable[[int, int], object] | None = None
) -> Trajectory:
    """Train groups of networks to measure the loss of averages of networks' outputs.

    Where training samples are random, a group is four networks: two initialisations, each trained on the same two sets
    of samples. Otherwise it is two initialisations. Products of the errors of two networks have the loss of an
    infinite average for their mean, without bias at any number of networks.

    Parameters
    ----------
    problem : Problem
    groups : int
        At least 2. Group g is made of the initialisations and the data of networks 2 g and 2 g + 1 of
        :func:`lazyrich.train`.
    progress : callable, optional
        Called with network-steps done and network-steps in all.

    Returns
    -------
    Trajectory
        The curves of :func:`lazyrich.predict_averages`, means over groups with standard errors (``.._sem``).

    Raises
    ------
    LazyrichError
        For an infinite width, networks that do not fit into memory, or a data file that cannot be used.

    Examples
    --------
    >>> import lazyrich
    >>> problem = lazyrich.Problem(
    ...     network=lazyrich.Network(width=60, blocks=0),
    ...     data=lazyrich.GaussianData(dimension=60, samples=120),
    ...     training=lazyrich.Training(steps=10, learning_rate=0.1),
    ... )
    >>> trained = train_averages(problem, groups=4)
    >>> trained.data["test_loss_over_data"].shape
    (10,)
    """
    if not 2 <= groups <= _MOST_GROUPS:
        raise LazyrichError("groups", f"{groups} groups cannot be trained", f"give from 2 to {_MOST_GROUPS}")
    if problem.training.mode == "flow":
        what = "averages of networks are not trained on gradient flow"
        raise LazyrichError("training.mode", what, "set mode = 'full-batch' or 'population'")
    started = time.perf_counter()
    random = not isinstance(problem.data, DatasetData) and problem.training.mode != "population"
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1)] if random else [(0, 0), (1, 0)]
    starts, data = zip(*[(2 * g + i, 2 * g + j) for g in range(groups) for i, j in pairs], strict=True)
    measure = _Measure(problem)
    collected, first, waiting = {}, problem.training.steps, []
    for batch in run_networks(problem, starts, kernels=False, errors=True, data_seeds=data, progress=progress):
        first = min(first, int(first_divergence(batch.test_loss).min()))
        for index in range(len(batch.seeds)):
            waiting.append({name: values[index] for name, values in batch.errors.items()})
            if len(waiting) == len(pairs):
                for name, value in measure.of_group(waiting).items():
                    collected.setdefault(name, []).append(value)
                waiting = []
    losses = {name: np.stack(values)[:, :first] for name, values in collected.items()}
    summary = {name: values.mean(axis=0) for name, values in losses.items()}
    summary |= {f"{name}_sem": _sem(values) for name, values in losses.items()}
    laid_out = lay_out(problem, summary, {}, {})
    for name, values in losses.items():
        padded = np.pad(_sem(values.mean(axis=-1)), (0, problem.training.steps - first), constant_values=np.nan)
        laid_out[f"{name}_sem"] = ("step", padded, laid_out[name].attrs)
    return Trajectory(
        data=laid_out,
        problem=problem,
        source="training",
        outcome=Outcome("diverged", first) if first < problem.training.steps else Outcome(),
        statistics={
            "networks": len(starts),
            "groups": groups,
            "seconds": time.perf_counter() - started,
        },
    )


class _Measure:
    """Mean products of errors over samples, or over their distribution."""

    def __init__(self, problem: Problem) -> None:
        modes = find_modes(problem.data)
        self._scale = np.sqrt(modes.eigenvalues / len(modes.eigenvalues))
        self._noise = np.diag(modes.noise)
        self._is_data_set = isinstance(problem.data, DatasetData)
        self._samples = None
        if isinstance(problem.data, DatasetData):
            loaded = load_data(problem.data)
            if len(loaded.test_inputs):
                inputs = loaded.test_inputs @ dataset_basis(problem.data)[1] / math.sqrt(len(modes.eigenvalues))
                self._samples = inputs.T, loaded.test_targets.T - modes.targets.T @ inputs.T

    def of_group(self, errors: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Losses of a group's networks, in the order of :func:`train_averages`; shapes (steps, outputs)."""
        found = {}
        for part, vectors, offset in self._vectors(errors):
            of_one = np.mean([(vector**2).sum(axis=-1) for vector in vectors], axis=0)
            found[f"{part}_loss"] = of_one + offset
            for over, products in _pairs(vectors).items():
                if part == "test" or over == "initialisations":
                    found[f"{part}_loss_over_{over}"] = products + offset
        return found

    def _vectors(self, errors: list[dict[str, np.ndarray]]) -> Iterator[tuple[str, list[np.ndarray], np.ndarray]]:
        """For every loss the vectors whose products are errors, (steps, outputs, n), and what is added to them."""
        nothing = np.zeros_like(self._noise)
        modes = [error["weight_error"] * self._scale for error in errors]
        if "sample_error" in errors[0]:
            vectors = [error["sample_error"] / math.sqrt(error["sample_error"].shape[-1]) for error in errors]
            yield "train", vectors, nothing
        else:
            yield "train", modes, self._noise
        if self._samples is not None:
            inputs, rest = self._samples
            count = math.sqrt(inputs.shape[1])
            yield "test", [(rest + error["weight_error"] @ inputs) / count for error in errors], nothing
        elif not self._is_data_set:
            yield "test", modes, nothing


def _pairs(vectors: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Mean products of two networks of a group that differ in one thing, or in both."""

    def mean_product(*pairs: tuple[int, int]) -> np.ndarray:
        return np.mean([(vectors[i] * vectors[j]).sum(axis=-1) for i, j in pairs], axis=0)

    if len(vectors) == 2:
        return {"initialisations": mean_product((0, 1))}
    return {
        "initialisations": mean_product((0, 2), (1, 3)),
        "data": mean_product((0, 1), (2, 3)),
        "both": mean_product((0, 3), (1, 2)),
    }


def _sem(values: np.ndarray) -> np.ndarray:
    return values.std(axis=0, ddof=1) / math.sqrt(len(values))
