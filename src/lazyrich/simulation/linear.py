"""Real deep linear networks, trained in float64: many seeds at a time, a chunk of steps per compiled call.

Inputs are written in the eigenbasis of their covariance. Gaussian initial weights are rotation invariant, so this
changes nothing in law; on a data set, full-batch gradients depend on the samples only through their second moments,
so these are exactly the iterates of training on the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import psutil

from lazyrich.errors import LazyrichError
from lazyrich.problem import DatasetData, Problem, output_scale
from lazyrich.problem.datasets import load_data
from lazyrich.problem.spectrum import dataset_basis, find_modes, input_dimension, output_count
from lazyrich.simulation.precision import double_precision

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


@dataclass(frozen=True)
class _Form:
    """What decides the compiled program: sizes and kinds, no numbers."""

    width: int
    dimension: int
    blocks: int
    outputs: int
    data: Literal["full-batch", "online", "moments"]
    samples: int  # P in full batch, B online
    momentum: bool
    decay: bool
    kernels: bool
    errors: bool

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shapes of the weights U, W^1 .. W^L, w; the last one has a row per output."""
        n = self.width
        return [(n, self.dimension), *[(n, n)] * self.blocks, (self.outputs, n)]


class _Numbers(NamedTuple):
    """The numbers of a problem; new values need no new compilation."""

    seed: Any
    eigenvalues: Any  # (D,)
    targets: Any  # (C, D)
    noise_root: Any  # (C, C), square root of the noise covariance
    stds: Any  # (blocks + 2,)
    rates: Any  # (blocks + 2, steps)
    decays: Any  # (blocks + 2,)
    momentum: Any
    skip: Any
    branch: Any
    richness: Any  # kappa
    parts: dict[str, _Part]  # the samples whose outputs are recorded


class _Part(NamedTuple):
    """Samples of a data set whose outputs are recorded."""

    inputs: Any  # (P, D), in the eigenbasis
    targets: Any  # (C, P), or None where the loss is known without
    labels: Any  # (P,), or None without classes
    scale: Any  # (C, 1), to the targets' own units, in which a class is named
    shift: Any  # (C, 1)


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
) -> tuple[_Form, _Numbers]:
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
    form = _Form(int(network.width), dimension, network.blocks, outputs, kind, samples, *memory, kernels, errors)
    variances, axes = np.linalg.eigh(modes.noise)
    return form, _Numbers(
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


def _parts(data: DatasetData) -> dict[str, _Part]:
    """The samples of a data set whose outputs tell more than the moments do."""
    loaded, basis = load_data(data), dataset_basis(data)[1]
    units = loaded.target_std[:, None], loaded.target_mean[:, None]
    found = {}
    if loaded.labels is not None:
        found["train"] = _Part(loaded.inputs @ basis, None, loaded.labels, *units)
    if len(loaded.test_inputs):
        found["test"] = _Part(loaded.test_inputs @ basis, loaded.test_targets.T, loaded.test_labels, *units)
    return found


def _run_batches(
    form: _Form,
    numbers: _Numbers,
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
        for recorded in _train(form, numbers, starts, data, np.asarray(factors), chunk):
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


def _count_correct(numbers: _Numbers, recorded: dict[str, np.ndarray], networks: int) -> dict[str, np.ndarray]:
    """Replace which samples each network has right by how many of them, and by how many networks."""
    for name, part in numbers.parts.items():
        if part.labels is not None:
            right = recorded[f"{name}_correct"][:, :, part.labels >= 0]
            recorded[f"{name}_accuracy"] = right.mean(axis=2)
            recorded[f"{name}_correct"] = right[:networks].sum(axis=0, keepdims=True)
    return recorded


def _train(
    form: _Form, numbers: _Numbers, seeds: np.ndarray, data_seeds: np.ndarray, factors: np.ndarray, chunk: int
) -> Iterator[dict[str, np.ndarray]]:
    """What :func:`_step` records, chunk by chunk, with leading axes (seeds, chunk)."""
    with double_precision():
        weights = _draw_weights(form, numbers, seeds)
        memories, samples = _start(form, numbers, data_seeds, weights)
        state = weights, memories
    for step in range(0, numbers.rates.shape[1], chunk):
        with double_precision():
            state, recorded = _run_chunk(form, chunk, numbers, data_seeds, factors, samples, state, step)
            recorded = {name: np.asarray(values) for name, values in recorded.items()}
        yield recorded


def _kernels(form: _Form, numbers: _Numbers, history: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
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


@partial(jax.jit, static_argnums=0)
def _start(form: _Form, numbers: _Numbers, seeds: Any, weights: list[Any]) -> tuple[list[Any], Any]:
    """States of the optimisers and, in full batch, samples; with a leading axis over seeds."""
    rules = _optimizers(form, numbers)
    memories = jax.vmap(lambda layers: [r.init(layer) for r, layer in zip(rules, layers, strict=True)])(weights)
    draw = jax.vmap(lambda seed: _draw_samples(form, numbers, seed, 0))
    return memories, draw(seeds) if form.data == "full-batch" else None


@partial(jax.jit, static_argnums=(0, 1), donate_argnames="state")
def _run_chunk(
    form: _Form, chunk: int, numbers: _Numbers, seeds: Any, factors: Any, samples: Any, state: Any, step: Any
) -> tuple[Any, dict[str, Any]]:
    """Train a batch of networks for `chunk` steps; returns their state and what :func:`_step` recorded."""

    def one_step(factor: Any, samples: Any, state: Any) -> Any:
        return _step(form, numbers._replace(rates=factor * jnp.asarray(numbers.rates)), samples, state)

    def advance(state: Any, step: Any) -> Any:
        draw = jax.vmap(lambda seed: _draw_samples(form, numbers, seed, step))
        fresh = draw(seeds) if form.data == "online" else samples
        return jax.vmap(one_step)(factors, fresh, state)

    state, recorded = jax.lax.scan(advance, state, step + jnp.arange(chunk))
    return state, {name: jnp.moveaxis(values, 0, 1) for name, values in recorded.items()}


def _draw_weights(form: _Form, numbers: _Numbers, seeds: Any) -> list[Any]:
    """Initial weights, input to output layer, with a leading axis over seeds."""
    # Layer by layer: the random bits take more memory than the layer, and one program serves all blocks.
    return [_draw_layer(shape, numbers, seeds, i).block_until_ready() for i, shape in enumerate(form.shapes)]


@partial(jax.jit, static_argnums=0)
def _draw_layer(shape: tuple[int, int], numbers: _Numbers, seeds: Any, layer: Any) -> Any:
    std = jnp.asarray(numbers.stds)[layer]
    return jax.vmap(lambda seed: std * jax.random.normal(_key(numbers, seed, layer + 1), shape))(seeds)


def _draw_samples(form: _Form, numbers: _Numbers, seed: Any, step: Any) -> tuple[Any, Any]:
    """Inputs (P, D) with the given covariance and label noise (C, P) of one network."""
    of_inputs, of_noise = jax.random.split(jax.random.fold_in(_key(numbers, seed, 0), step))
    inputs = jax.random.normal(of_inputs, (form.samples, form.dimension)) * jnp.sqrt(numbers.eigenvalues)
    return inputs, numbers.noise_root @ jax.random.normal(of_noise, (form.outputs, form.samples))


def _key(numbers: _Numbers, seed: Any, purpose: Any) -> Any:
    """The random key of a network: of its data (purpose 0) or of the weights of layer `purpose` - 1."""
    key = jax.random.key(numbers.seed, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, seed), purpose)


def _optimizers(form: _Form, numbers: _Numbers) -> list[optax.GradientTransformationExtraArgs]:
    """One optimiser per layer; parts that do nothing are left out, with the memory that they would take."""
    rules = []
    for rates, decay in zip(jnp.asarray(numbers.rates), jnp.asarray(numbers.decays), strict=True):
        parts = [optax.add_decayed_weights(decay)] if form.decay else []
        parts += [optax.trace(numbers.momentum)] if form.momentum else []
        parts += [optax.scale_by_learning_rate(lambda step, rates=rates: rates[step])]
        rules.append(optax.chain(*parts))
    return rules


def _step(form: _Form, numbers: _Numbers, samples: Any, state: Any) -> tuple[Any, dict[str, Any]]:
    """Record the state and make one step (docs/theory/deep-linear.md, "The network and its training").

    All vectors are rows, one per output: f_c has its own gradient g^l_c, its own error v_c and data-weighted error
    u_c, and h^l_c is u_c pushed through the network.
    """
    weights, memories = state
    first, *blocks, last = weights
    n, d = form.width, form.dimension
    skip, branch, kappa = numbers.skip, numbers.branch / math.sqrt(n), numbers.richness
    gamma = kappa * math.sqrt(n / d)

    gradients = [last]  # g^L = w,  g^(l-1) = s g^l + c W^lT g^l / sqrt(N)
    for block in reversed(blocks):
        gradients.insert(0, skip * gradients[0] + branch * (gradients[0] @ block))
    learned = gradients[0] @ first / (gamma * math.sqrt(n))  # beta
    error = numbers.targets - learned  # v = beta* - beta
    test_loss = (numbers.eigenvalues * error**2).mean(axis=1)
    recorded = {"test_loss": test_loss, "train_loss": test_loss + (numbers.noise_root**2).sum(axis=1)}

    for name, part in numbers.parts.items():
        outputs = learned @ part.inputs.T / math.sqrt(d)
        if part.targets is not None:
            recorded["held_out_loss"] = ((part.targets - outputs) ** 2).mean(axis=1)
        if part.labels is not None:
            recorded[f"{name}_correct"] = (outputs * part.scale + part.shift).argmax(axis=0) == part.labels

    if form.data == "moments":
        weighted_error = numbers.eigenvalues * error  # u without fluctuations
    else:
        inputs, noise = samples
        sample_error = error @ inputs.T / math.sqrt(d) + noise  # Delta = X v / sqrt(D) + noise
        weighted_error = sample_error @ inputs * (math.sqrt(d) / form.samples)  # u = X^T Delta sqrt(D) / P
        if form.data == "full-batch":
            recorded["train_loss"] = (sample_error**2).mean(axis=1)
            recorded |= {"sample_error": sample_error} if form.kernels or form.errors else {}

    features = [weighted_error @ first.T / math.sqrt(d)]  # h^0 = U u / sqrt(D)
    for block in blocks:  # h^l = s h^(l-1) + c W^l h^(l-1) / sqrt(N)
        features.append(skip * features[-1] + branch * (features[-1] @ block.T))
    if form.kernels:
        recorded |= {"features": jnp.stack(features), "gradients": jnp.stack(gradients)}
    if form.kernels or form.errors:
        recorded["weight_error"] = error

    dyads = [kappa / math.sqrt(d) * (gradients[0].T @ weighted_error)]
    dyads += [kappa * branch * (g.T @ h) for g, h in zip(gradients[1:], features[:-1], strict=True)]
    dyads += [kappa * features[-1]]
    layers = zip(_optimizers(form, numbers), dyads, memories, weights, strict=True)
    updates, memories = zip(*[rule.update(-dyad, memory, layer) for rule, dyad, memory, layer in layers], strict=True)
    return (optax.apply_updates(weights, list(updates)), list(memories)), recorded
