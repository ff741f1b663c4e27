"""Networks that are measured, not judged by their loss: a few steps from initialisation under any depth rule.

The data are a few random inputs with random targets: what is measured are powers of depth, which they do not decide.
A depth is compiled once for all depth rules and seeds, and all rules share a seed's initial weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import psutil

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import Growth, Scheme, known_name, rule_for
from lazyrich.simulation.precision import double_precision
from lazyrich.simulation.residual.network import Factors, Form, Weights, draw_weights, forward

NONLINEARITIES = ("linear", "relu", "abs", "tanh", "gelu")
_MOST_BLOCKS = 1024
_BASE_RATE = 0.1
# What a step goes along, before the rate. Adam's eps is below every gradient: what it does is not measured here.
_DIRECTIONS = {
    "sgd": optax.identity,
    "adam": lambda: optax.scale_by_adam(eps=1e-24),
    "sign": optax.scale_by_sign,
}


@dataclass(frozen=True)
class Probe:
    """Which networks are measured, and what is done to them before.

    Attributes
    ----------
    width, samples, dimension : int
        N, and the number and dimension of the random inputs.
    block_layers, nonlinearity, normalisation, mean_subtraction
        As in :class:`lazyrich.simulation.residual.network.Form`.
    multiplier, base_blocks : float and int
        a and L0: the branch factor is ``a (L / L0)^-alpha``.
    optimizer : str
        ``"sgd"``, ``"adam"`` or ``"sign"``, with the rates of the parametrization table.
    rate : float
        The normalised rate at the base depth.
    steps : int
        Steps of training; 0 measures the initial networks.
    only_blocks : bool
        Whether only the blocks are trained, so that their depth rule alone decides what changes.
    seeds, seed : int
        How many networks per depth and rule, and where their numbers begin.
    """

    width: int = 64
    samples: int = 8
    dimension: int = 32
    block_layers: int = 1
    nonlinearity: str | float = "relu"
    normalisation: str = "none"
    mean_subtraction: str = "after"
    multiplier: float = 0.3
    base_blocks: int = 4
    optimizer: str = "sign"
    rate: float = _BASE_RATE
    steps: int = 3
    only_blocks: bool = True
    seeds: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        known_name("optimizer", self.optimizer, _DIRECTIONS)
        if not isinstance(self.nonlinearity, float | int):
            known_name("nonlinearity", self.nonlinearity, NONLINEARITIES)
        for name in ("width", "samples", "dimension", "base_blocks", "seeds"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1 + (name == "seeds"):
                raise LazyrichError(name, f"{value!r} is too few", f"give at least {1 + (name == 'seeds')}")
        for name in ("multiplier", "rate"):
            if not 0 < getattr(self, name) < np.inf:
                raise LazyrichError(name, f"{getattr(self, name)!r} is not positive", "give a positive number")

    def form(self, blocks: int) -> Form:
        """The network's form at some depth."""
        return Form(
            self.width,
            self.dimension,
            1,
            blocks,
            self.block_layers,
            self.nonlinearity,
            self.normalisation,
            self.mean_subtraction,
        )

    def at(self, **changes: Any) -> Probe:
        """A copy with some settings changed."""
        return replace(self, **changes)


class Trained(NamedTuple):
    """One network before and after its steps.

    Attributes
    ----------
    initial, final : Weights
    factors : Factors
        Of the forward pass.
    inputs : array, shape (P, D)
    """

    initial: Weights
    final: Weights
    factors: Factors
    inputs: Any


Measure = Callable[[Form, Trained], dict[str, Any]]


class _Rule(NamedTuple):
    """The numbers of a depth rule at one depth: the branch factor, and the rate of every role."""

    branch: Any
    rates: Weights


def measure(
    probe: Probe, blocks: int, points: Sequence[tuple[float, float]], quantities: Measure
) -> dict[str, np.ndarray]:
    """Train the networks of some depth rules and measure each.

    Parameters
    ----------
    probe : Probe
    blocks : int
        L.
    points : sequence of (alpha, gamma)
    quantities : function
        From a form and a :class:`Trained` network to a dict of numbers or arrays of fixed shape.

    Returns
    -------
    dict of ndarray, shape (points, seeds, ..)

    Raises
    ------
    LazyrichError
        For a depth out of range or an exponent that is none, or if one network does not fit into memory.
    """
    if not isinstance(blocks, int) or not 1 <= blocks <= _MOST_BLOCKS:
        raise LazyrichError("depths", f"{blocks!r} is not a depth", f"give whole numbers from 1 to {_MOST_BLOCKS}")
    form = probe.form(blocks)
    _check_memory(form, probe)
    rules = [_rule(probe, blocks, alpha, gamma) for alpha, gamma in points]
    found = []
    with double_precision():
        for number in range(probe.seeds):
            key = jax.random.fold_in(jax.random.key(probe.seed), number)
            start = _draw(form, probe.samples, key)
            for rule in rules:
                measured = _measured(form, probe.optimizer, probe.steps, quantities, start, rule)
                found.append({name: np.asarray(value) for name, value in measured.items()})
    shape = (probe.seeds, len(rules))
    stacked = {name: np.stack([each[name] for each in found]) for name in found[0]}
    return {name: np.swapaxes(each.reshape(shape + each.shape[1:]), 0, 1) for name, each in stacked.items()}


class _Start(NamedTuple):
    """What all depth rules of a seed begin with."""

    weights: Weights
    inputs: Any
    targets: Any


@partial(jax.jit, static_argnums=(0, 1))
def _draw(form: Form, samples: int, key: Any) -> _Start:
    of_weights, of_inputs, of_targets = jax.random.split(key, 3)
    stds = Weights(form.dimension**-0.5, form.width**-0.5, 1.0)
    inputs = jax.random.normal(of_inputs, (samples, form.dimension))
    return _Start(draw_weights(form, stds, of_weights), inputs, jax.random.normal(of_targets, (samples, 1)))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _measured(
    form: Form, optimizer: str, steps: int, quantities: Measure, start: _Start, rule: _Rule
) -> dict[str, Any]:
    """One network, trained and measured. The numbers of a rule need no new compilation."""
    factors, directions = Factors(branch=rule.branch, output=1.0 / form.width), _DIRECTIONS[optimizer]()

    def loss(weights: Weights) -> Any:
        outputs, _ = forward(form, weights, factors, start.inputs)
        return 0.5 * jnp.mean((outputs - start.targets) ** 2)

    def step(carry: tuple[Weights, Any], _: None) -> tuple[tuple[Weights, Any], None]:
        weights, state = carry
        direction, state = directions.update(jax.grad(loss)(weights), state)
        weights = jax.tree.map(lambda weight, rate, update: weight - rate * update, weights, rule.rates, direction)
        return (weights, state), None

    first = (start.weights, directions.init(start.weights))
    (final, _), _ = jax.lax.scan(step, first, length=steps)
    return quantities(form, Trained(start.weights, final, factors, start.inputs))


def _rule(probe: Probe, blocks: int, alpha: float, gamma: float) -> _Rule:
    scheme, growth = Scheme(alpha, gamma), Growth(depth=blocks / probe.base_blocks)
    by_role = [rule_for(role, scheme, probe.optimizer, growth) for role in ("input", "block", "output")]
    width = float(probe.width)
    # Rates of the table with the width itself for n.
    base = (width, 1.0, width) if probe.optimizer == "sgd" else (1.0, 1.0 / width, 1.0)
    trained = (not probe.only_blocks, True, not probe.only_blocks)
    rates = [probe.rate * b * rule.learning_rate * t for b, rule, t in zip(base, by_role, trained, strict=True)]
    return _Rule(probe.multiplier * by_role[1].multiplier, Weights(*rates))


def _check_memory(form: Form, probe: Probe) -> None:
    weights = form.blocks * form.block_layers * form.width**2
    features = (form.blocks + 1) * probe.samples * form.width
    needed, free = 8 * (8 * weights + 12 * features), psutil.virtual_memory().available
    if needed > 0.8 * free:
        raise LazyrichError(
            "width",
            f"one network of {form.blocks} blocks needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free",
            "reduce width or depth",
        )
