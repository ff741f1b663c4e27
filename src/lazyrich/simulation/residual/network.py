"""Residual networks: initialisation and forward pass as pure functions of arrays.

::

    x^0 = W_in xi,   x^l = x^(l-1) + branch B(x^(l-1)),  l = 1..L,   f = output W_out x^L
    one layer a block:   B(x) = phi(W N(x))
    two layers a block:  B(x) = W' phi(W N(x))

N is nothing, LayerNorm or RMSNorm, without gains; phi may have the mean over the width taken away before or behind it.
Every block is one turn of a scan: the compiled program does not grow with depth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# Added to the variance that a norm divides by, as usual.
_NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Form:
    """What decides the compiled program of a network: sizes and kinds, no numbers.

    Attributes
    ----------
    width, dimension, outputs, blocks : int
        N, D, C and L.
    block_layers : int
        Weight layers per block, 1 or 2.
    nonlinearity : str or float
        ``"linear"``, ``"relu"``, ``"abs"``, ``"tanh"``, ``"gelu"``; a number p for ``|z|^p``.
    normalisation : str
        At the entrance of every block: ``"none"``, ``"layer"`` or ``"rms"``.
    mean_subtraction : str
        The mean over the width is taken away ``"before"`` the nonlinearity, ``"after"`` it, or not (``"none"``).
    checkpoint : bool
        Whether gradients keep only the features between blocks and compute the rest again.
    """

    width: int
    dimension: int
    outputs: int
    blocks: int
    block_layers: int = 1
    nonlinearity: str | float = "relu"
    normalisation: str = "none"
    mean_subtraction: str = "none"
    checkpoint: bool = False

    @property
    def shapes(self) -> Weights:
        """Shape of the weights of each role."""
        n = self.width
        return Weights((n, self.dimension), (self.blocks, self.block_layers, n, n), (self.outputs, n))


class Weights(NamedTuple):
    """Something of each role: the weights themselves, or their shapes, standard deviations, rates, optimisers.

    Attributes
    ----------
    input, blocks, output
        As weights, arrays of shape (N, D), (L, layers per block, N, N) and (C, N).
    """

    input: Any
    blocks: Any
    output: Any


class Factors(NamedTuple):
    """Numbers of the forward pass; new values need no new compilation.

    Attributes
    ----------
    branch : float
        ``a m^-alpha``, in front of every block.
    output : float
        In front of the readout.
    matrix : float
        In front of every matrix inside the blocks, which only the NTK parametrization has.
    """

    branch: Any = 1.0
    output: Any = 1.0
    matrix: Any = 1.0


def draw_weights(form: Form, stds: Weights, key: Any, dtype: Any = None) -> Weights:
    """Gaussian initial weights.

    Parameters
    ----------
    form : Form
    stds : Weights
        Standard deviation of each role's entries.
    key : jax key
        Of the network. One with more blocks begins with the same ones.
    dtype : optional
        Default: that of JAX.

    Returns
    -------
    Weights
    """
    # One draw for all: every further one would take a second to compile.
    shapes = form.shapes
    sizes = [math.prod(shape) for shape in (shapes.input, shapes.output, shapes.blocks)]
    drawn = jax.random.normal(key, (sum(sizes),), dtype)
    first, last, blocks = jnp.split(drawn, [sizes[0], sizes[0] + sizes[1]])
    return Weights(
        stds.input * first.reshape(shapes.input),
        stds.blocks * blocks.reshape(shapes.blocks),
        stds.output * last.reshape(shapes.output),
    )


def forward(form: Form, weights: Weights, factors: Factors, inputs: Any) -> tuple[Any, Any]:
    """Outputs of the network, and the largest size of its features at every level.

    Parameters
    ----------
    form : Form
    weights : Weights
    factors : Factors
    inputs : array, shape (P, D)

    Returns
    -------
    outputs : array, shape (P, C)
    largest : array, shape (L + 1,)
        The largest ``|x^l|`` of any sample and unit, for l = 0..L: not finite from the level on where the network
        overflows.
    """
    run = jax.checkpoint(_block, static_argnums=0) if form.checkpoint else _block

    def turn(x: Any, matrices: Any) -> tuple[Any, Any]:
        after = run(form, matrices, factors, x)
        return after, jnp.abs(after).max()

    first = inputs @ weights.input.T
    last, largest = jax.lax.scan(turn, first, weights.blocks)
    return readout(weights, factors, last), jnp.append(jnp.abs(first).max(), largest)


def forward_levels(form: Form, weights: Weights, factors: Factors, inputs: Any) -> tuple[Any, Any]:
    """Outputs, and the features of every level.

    Parameters
    ----------
    form : Form
    weights : Weights
    factors : Factors
    inputs : array, shape (P, D)

    Returns
    -------
    outputs : array, shape (P, C)
    levels : array, shape (L + 1, P, N)
        x^0 to x^L.
    """

    def turn(x: Any, matrices: Any) -> tuple[Any, Any]:
        after = _block(form, matrices, factors, x)
        return after, after

    first = inputs @ weights.input.T
    last, levels = jax.lax.scan(turn, first, weights.blocks)
    return readout(weights, factors, last), jnp.concatenate([first[None], levels])


def readout(weights: Weights, factors: Factors, features: Any) -> Any:
    """Outputs, shape (P, C), from the features of the last level, shape (P, N)."""
    return factors.output * (features @ weights.output.T)


def branch_value(form: Form, matrices: Any, factors: Factors, x: Any) -> Any:
    """B(x), what a block adds apart from the branch factor; shape (P, N).

    Parameters
    ----------
    form : Form
    matrices : array, shape (layers per block, N, N)
        The weights of this block.
    factors : Factors
    x : array, shape (P, N)
    """
    z = factors.matrix * (normalise(form.normalisation, x) @ matrices[0].T)
    if form.mean_subtraction == "before":
        z = _centred(z)
    z = activate(form.nonlinearity, z)
    if form.mean_subtraction == "after":
        z = _centred(z)
    return z if form.block_layers == 1 else factors.matrix * (z @ matrices[1].T)


def _block(form: Form, matrices: Any, factors: Factors, x: Any) -> Any:
    return x + factors.branch * branch_value(form, matrices, factors, x)


def normalise(kind: str, x: Any) -> Any:
    """LayerNorm or RMSNorm over the last axis, without gains; ``"none"`` is nothing."""
    if kind == "none":
        return x
    if kind == "layer":
        x = _centred(x)
    return x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + _NORM_EPSILON)


def activate(kind: str | float, z: Any) -> Any:
    """The nonlinearity, by name or as the exponent p of ``|z|^p``."""
    if not isinstance(kind, str):
        return jnp.abs(z) ** kind
    match kind:
        case "linear":
            return z
        case "relu":
            return jax.nn.relu(z)
        case "abs":
            return jnp.abs(z)
        case "tanh":
            return jnp.tanh(z)
        case _:
            return jax.nn.gelu(z, approximate=False)


def _centred(z: Any) -> Any:
    return z - z.mean(axis=-1, keepdims=True)
