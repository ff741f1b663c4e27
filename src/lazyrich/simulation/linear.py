"""Real deep linear networks, trained in float64: many seeds at a time, a chunk of steps per compiled call.

Inputs are written in the eigenbasis of their covariance. Gaussian initial weights are rotation invariant, so this
changes nothing in law; on a data set, full-batch gradients depend on the samples only through their second moments,
so these are exactly the iterates of training on the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import psutil

from lazyrich.errors import LazyrichError
from lazyrich.problem import DatasetData, Problem, output_scale
from lazyrich.problem.datasets import load_data
from lazyrich.problem.spectrum import dataset_basis, find_modes, input_dimension, output_count
from lazyrich.simulation.linear_program import Form, Numbers, Part, train_chunks

_CHUNK = 16  # steps per compiled call: progress and Ctrl-C come between calls

# Networks are trained together while what a step reads stays about this large. Measured on 2 cores with 32 MiB of L3:
# 1024 wide, two blocks, ten outputs takes 0.25 s per 60 steps and network when 2 are trained together, 0.46 s when 8
# are; 64 wide takes 0.9 ms when 64 are trained together, 7 ms one by one.
_BATCH_BYTES = 48 * 2**20


@dataclass(frozen=True)
class BatchResult:
    """Trained networks; the leading axis of every array runs over `seeds`.

    Attributes
    ----------
    seeds : list of int
    test_loss, train_loss : ndarray, shape (seeds, steps, outputs)
        Mean squared errors without a factor 1/2: on fresh inputs without label noise, and on the training samples
        in full batch (otherwise `test_loss` plus the noise variance).
    kernels : dict of ndarray
        Empty, or over rows ``step * outputs + output``: ``feature_kernel`` H and ``gradient_kernel`` G, shape
        (seeds, blocks + 1, rows, rows); ``error_kernel`` C_v, and in full batch on random samples
        ``sample_error_kernel`` C_Delta, shape (seeds, rows, rows).
    held_out_loss : ndarray, shape (seeds, steps, outputs), or None
        On the held-out part of a data set, where it has one and outputs are asked for.
    accuracy : dict of ndarray
        Of ``"train"`` and ``"test"``, where there are classes and outputs are asked for: the part of the samples of
        known class that a network puts there, shape (seeds, steps).
    correct : dict of ndarray
        Likewise: how many of these networks are right on a sample, shape (steps, samples).
    errors : dict of ndarray
        Empty unless asked for: ``weight_error`` v = beta* - beta, shape (seeds, steps, outputs, D), in the eigenbasis,
        and in full batch on random samples ``sample_error``, shape (seeds, steps, outputs, P).
    """

    seeds: list[int]
    test_loss: np.ndarray
    train_loss: np.ndarray
    kernels: dict[str, np.ndarray]
    held_out_loss: np.ndarray | None = None
    accuracy: dict[str, np.ndarray] = field(default_factory=dict)
    correct: dict[str, np.ndarray] = field(default_factory=dict)
    errors: dict[str, np.ndarray] = field(default_factory=dict)


def run_networks(
    problem: Problem,
    seeds: Sequence[int],
    *,
    kernels: bool,
    outputs: bool = False,
    errors: bool = False,
    data_seeds: Sequence[int] | None = None,
    rate_factors: Sequence[float] | None = None,
    progress: Callable[[int, int], object] | None = None,
    memory_limit: int | None = None,
) -> Iterator[BatchResult]:
    """Train one network per seed, a batch at a time.

    Parameters
    ----------
    problem : Problem
    seeds : sequence of int
        Numbers of the networks. Network s draws from ``training.seed`` and s alone, whatever is trained beside it.
    kernels : bool
        Also record the kernels.
    outputs : bool
        Also record what the outputs of a data set's samples tell: the loss of the held-out part, and accuracies.
    errors : bool
        Also give the errors of every network themselves.
    data_seeds : sequence of int, optional
        One per network, from which it draws its data, as the network of that number does; default: `seeds`.
    rate_factors : sequence of float, optional
        One per network, in front of all its learning rates: networks at different rates train side by side.
    progress : callable, optional
        Called with network-steps done and network-steps in all, after every chunk of steps.
    memory_limit : int, optional
        Bytes that a batch may take; default: half of what is free.

    Returns
    -------
    iterator of BatchResult
        In the order of `seeds`. The losses of a network that diverges end up infinite or NaN.

    Raises
    ------
    LazyrichError
        For an infinite width, a seed out of range, or when one network does not fit into memory.
    """
    problem = problem.to_train()
    limit = psutil.virtual_memory().available // 2 if memory_limit is None else memory_limit
    needed = _least_memory(problem)
    if needed <= limit:  # otherwise not even the spectrum of the data may fit
        needed = required_memory(problem, kernels, outputs, errors)
    if needed > limit:
        raise LazyrichError(
            "network.width",
            f"training needs {needed / 2**30:.1f} GiB per network and {limit / 2**30:.1f} GiB may be used",
            "reduce width, blocks or steps, or turn kernels off",
        )
    data_seeds = seeds if data_seeds is None else data_seeds
    if any(not 0 <= seed < 2**32 for seed in [*seeds, *data_seeds]):
        raise LazyrichError("seeds", "a network's number is out of range", "give numbers from 0 to 4294967295")
    form, numbers = _take_apart(problem, kernels, outputs, errors)
    read = 8 * (sum(map(math.prod, form.shapes)) * (1 + form.momentum) + form.samples * form.dimension)
    most = max(1, min(limit // needed, _BATCH_BYTES // read, len(seeds)))
    members = list(zip(map(int, seeds), map(int, data_seeds), rate_factors or [1.0] * len(seeds), strict=True))
    return _run_batches(form, numbers, members, most, progress or (lambda done, total: None))


def _least_memory(problem: Problem) -> int:
    """Bytes that one network takes at least, from the sizes alone."""
    network, training, data = problem.network, problem.training, problem.data
    if math.isinf(network.width):
        raise LazyrichError("network.width", "an infinitely wide network cannot be trained", "give a finite width")
    width, dimension, outputs = int(network.width), input_dimension(data), output_count(data)
    numbers = 2 * width * (dimension + network.blocks * width + outputs) + 4 * dimension * outputs
    numbers += training.steps * (network.blocks + 2 + 4 * outputs)
    samples = training.batch or (0 if isinstance(data, DatasetData) else data.samples) or 0
    return 8 * (numbers + samples * (dimension + outputs))


def required_memory(problem: Problem, kernels: bool, outputs: bool = False, errors: bool = False) -> int:
    """Bytes that one network takes while it is trained."""
    form, counted = _take_apart(problem, kernels, outputs, errors)
    layers = [math.prod(shape) for shape in form.shapes]
    # Measured factors: weights, momentum, gradients, and what the products of one layer pack; samples and random bits.
    numbers = (2 + form.momentum) * sum(layers) + max(layers)
    numbers += form.samples * ((7 if form.data == "online" else 3) * form.dimension + 4 * form.outputs)
    for part in counted.parts.values():  # inputs here and in JAX, outputs, and which of them are right
        numbers += len(part.inputs) * (2 * form.dimension + 3 * form.outputs + problem.training.steps)
    if errors:
        sampled = form.samples if form.data == "full-batch" else 0
        numbers += 2 * problem.training.steps * form.outputs * (form.dimension + sampled)
    if kernels:
        rows, levels = problem.training.steps * form.outputs, form.blocks + 1
        sampled = form.samples if form.data == "full-batch" else 0
        numbers += 2 * rows * (2 * levels * form.width + form.dimension + sampled)
        numbers += rows**2 * (2 * levels + 1 + (sampled > 0))
    return 8 * numbers


def _take_apart(
    problem: Problem, kernels: bool, outputs_too: bool = False, errors: bool = False
) -> tuple[Form, Numbers]:
    network, training, data = problem.network, problem.training, problem.data
    if math.isinf(network.width):
        raise LazyrichError("network.width", "an infinitely wide network cannot be trained", "give a finite width")
    modes = find_modes(data)
    dimension, outputs = modes.targets.shape
    kind, samples = "moments", 0
    if not isinstance(data, DatasetData) and training.mode == "full-batch":
        kind, samples = training.mode, data.samples or 0
    elif training.mode == "online":
        kind, samples = training.mode, training.batch or 0
    decays = np.asarray(training.weight_decays(network.blocks))
    memory = training.momentum > 0, bool(decays.any())
    form = Form(int(network.width), dimension, network.blocks, outputs, kind, samples, *memory, kernels, errors)
    variances, axes = np.linalg.eigh(modes.noise)
    return form, Numbers(
        seed=np.uint32(training.seed),
        eigenvalues=modes.eigenvalues,
        targets=modes.targets.T,
        noise_root=axes * np.sqrt(np.clip(variances, 0.0, None)) @ axes.T,
        stds=np.asarray(network.init_stds),
        rates=training.rates(network.blocks),
        decays=decays,
        momentum=training.momentum,
        skip=network.skip,
        branch=network.branch_multiplier,
        richness=math.sqrt(output_scale(problem, dimension)[0]),
        parts=_parts(data) if outputs_too and isinstance(data, DatasetData) else {},
    )


def _parts(data: DatasetData) -> dict[str, Part]:
    """The samples of a data set whose outputs tell more than the moments do."""
    loaded, basis = load_data(data), dataset_basis(data)[1]
    units = loaded.target_std[:, None], loaded.target_mean[:, None]
    found = {}
    if loaded.labels is not None:
        found["train"] = Part(loaded.inputs @ basis, None, loaded.labels, *units)
    if len(loaded.test_inputs):
        found["test"] = Part(loaded.test_inputs @ basis, loaded.test_targets.T, loaded.test_labels, *units)
    return found


def _run_batches(
    form: Form,
    numbers: Numbers,
    networks: list[tuple[int, int, float]],
    most: int,
    progress: Callable[[int, int], object],
) -> Iterator[BatchResult]:
    count = len(networks)
    # One size for all batches, so that the program is compiled once: the last one repeats a network where it is short.
    size = min(range(most, most // 2, -1), key=lambda size: math.ceil(count / size) * size)
    steps = numbers.rates.shape[1]
    # Chunks of one length, for the same reason: the last one makes steps too many, and they are thrown away.
    chunk = math.ceil(steps / math.ceil(steps / _CHUNK))
    for first in range(0, count, size):
        members = networks[first : first + size]
        *seeds, factors = zip(*members + members[-1:] * (size - len(members)), strict=True)
        starts, data = np.asarray(seeds, dtype=np.uint32)
        chunks = []
        for recorded in train_chunks(form, numbers, starts, data, np.asarray(factors), chunk):
            chunks.append(_count_correct(numbers, recorded, len(members)))
            progress(first * steps + len(members) * min(len(chunks) * chunk, steps), count * steps)
        history = {n: np.concatenate([c[n] for c in chunks], axis=1)[: len(members), :steps] for n in chunks[0]}
        del chunks, recorded
        yield BatchResult(
            [seed for seed, _, _ in members],
            history["test_loss"],
            history["train_loss"],
            _kernels(form, numbers, history),
            history.get("held_out_loss"),
            {part: history[f"{part}_accuracy"] for part in numbers.parts if f"{part}_accuracy" in history},
            {part: history[f"{part}_correct"][0] for part in numbers.parts if f"{part}_correct" in history},
            {n: history[n] for n in ("weight_error", "sample_error") if n in history} if form.errors else {},
        )


def _count_correct(numbers: Numbers, recorded: dict[str, np.ndarray], networks: int) -> dict[str, np.ndarray]:
    """Replace which samples each network has right by how many of them, and by how many networks."""
    for name, part in numbers.parts.items():
        if part.labels is not None:
            right = recorded[f"{name}_correct"][:, :, part.labels >= 0]
            recorded[f"{name}_accuracy"] = right.mean(axis=2)
            recorded[f"{name}_correct"] = right[:networks].sum(axis=0, keepdims=True)
    return recorded


def _kernels(form: Form, numbers: Numbers, history: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not form.kernels:
        return {}
    with np.errstate(over="ignore", invalid="ignore"):
        error = (history["weight_error"] * np.sqrt(numbers.eigenvalues))[:, :, None]
        kernels = {
            "feature_kernel": _mean_products(history["features"]),
            "gradient_kernel": _mean_products(history["gradients"]),
            "error_kernel": _mean_products(error)[:, 0],
        }
        if form.data == "full-batch":
            kernels["sample_error_kernel"] = _mean_products(history["sample_error"][:, :, None])[:, 0]
    return kernels


def _mean_products(vectors: np.ndarray) -> np.ndarray:
    """Means over n of products of (seeds, steps, levels, outputs, n): (seeds, levels, rows, rows)."""
    seeds, steps, levels, outputs, count = vectors.shape
    rows = np.moveaxis(vectors, 1, 2).reshape(seeds, levels, steps * outputs, count)
    products = rows @ np.swapaxes(rows, 2, 3)
    return np.divide(products, count, out=products)
