"""The compiled training of deep linear networks: a batch of them, a chunk of steps per call, in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lazyrich.simulation.precision import double_precision


@dataclass(frozen=True)
class Form:
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


class Numbers(NamedTuple):
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
    parts: dict[str, Part]  # the samples whose outputs are recorded


class Part(NamedTuple):
    """Samples of a data set whose outputs are recorded."""

    inputs: Any  # (P, D), in the eigenbasis
    targets: Any  # (C, P), or None where the loss is known without
    labels: Any  # (P,), or None without classes
    scale: Any  # (C, 1), to the targets' own units, in which a class is named
    shift: Any  # (C, 1)


def train_chunks(
    form: Form, numbers: Numbers, seeds: np.ndarray, data_seeds: np.ndarray, factors: np.ndarray, chunk: int
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


@partial(jax.jit, static_argnums=0)
def _start(form: Form, numbers: Numbers, seeds: Any, weights: list[Any]) -> tuple[list[Any], Any]:
    """States of the optimisers and, in full batch, samples; with a leading axis over seeds."""
    rules = _optimizers(form, numbers)
    memories = jax.vmap(lambda layers: [r.init(layer) for r, layer in zip(rules, layers, strict=True)])(weights)
    draw = jax.vmap(lambda seed: _draw_samples(form, numbers, seed, 0))
    return memories, draw(seeds) if form.data == "full-batch" else None


@partial(jax.jit, static_argnums=(0, 1), donate_argnames="state")
def _run_chunk(
    form: Form, chunk: int, numbers: Numbers, seeds: Any, factors: Any, samples: Any, state: Any, step: Any
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


def _draw_weights(form: Form, numbers: Numbers, seeds: Any) -> list[Any]:
    """Initial weights, input to output layer, with a leading axis over seeds."""
    # Layer by layer: the random bits take more memory than the layer, and one program serves all blocks.
    return [_draw_layer(shape, numbers, seeds, i).block_until_ready() for i, shape in enumerate(form.shapes)]


@partial(jax.jit, static_argnums=0)
def _draw_layer(shape: tuple[int, int], numbers: Numbers, seeds: Any, layer: Any) -> Any:
    std = jnp.asarray(numbers.stds)[layer]
    return jax.vmap(lambda seed: std * jax.random.normal(_key(numbers, seed, layer + 1), shape))(seeds)


def _draw_samples(form: Form, numbers: Numbers, seed: Any, step: Any) -> tuple[Any, Any]:
    """Inputs (P, D) with the given covariance and label noise (C, P) of one network."""
    of_inputs, of_noise = jax.random.split(jax.random.fold_in(_key(numbers, seed, 0), step))
    inputs = jax.random.normal(of_inputs, (form.samples, form.dimension)) * jnp.sqrt(numbers.eigenvalues)
    return inputs, numbers.noise_root @ jax.random.normal(of_noise, (form.outputs, form.samples))


def _key(numbers: Numbers, seed: Any, purpose: Any) -> Any:
    """The random key of a network: of its data (purpose 0) or of the weights of layer `purpose` - 1."""
    key = jax.random.key(numbers.seed, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, seed), purpose)


def _optimizers(form: Form, numbers: Numbers) -> list[optax.GradientTransformationExtraArgs]:
    """One optimiser per layer; parts that do nothing are left out, with the memory that they would take."""
    rules = []
    for rates, decay in zip(jnp.asarray(numbers.rates), jnp.asarray(numbers.decays), strict=True):
        parts = [optax.add_decayed_weights(decay)] if form.decay else []
        parts += [optax.trace(numbers.momentum)] if form.momentum else []
        parts += [optax.scale_by_learning_rate(lambda step, rates=rates: rates[step])]
        rules.append(optax.chain(*parts))
    return rules


def _step(form: Form, numbers: Numbers, samples: Any, state: Any) -> tuple[Any, dict[str, Any]]:
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
