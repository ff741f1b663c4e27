"""Residual networks trained side by side: seeds, rates, multipliers and depth rules in one compiled program.

Only sizes and kinds decide the program. Everything that is a number (rates, eps, decay, branch factor, standard
deviations, schedule) is given to each network when it runs, so that a sweep compiles once per shape.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import psutil

from lazyrich.errors import LazyrichError
from lazyrich.problem.problem import DIVERGENCE_FACTOR
from lazyrich.problem.residual import ResidualProblem
from lazyrich.simulation.precision import double_precision
from lazyrich.simulation.residual.data import Part, Samples, batch_order, load_samples
from lazyrich.simulation.residual.memory import fit_into_memory, step_memory
from lazyrich.simulation.residual.network import Factors, Weights, draw_weights, forward
from lazyrich.simulation.residual.optimizer import optimizers
from lazyrich.simulation.residual.program import Numbers, Program, numbers_of, program_of

_CHUNK = 16  # steps per call: progress and Ctrl-C come between calls
# Bytes of networks side by side: beyond, they push one another out of the cache (64 blocks: half the speed).
_CACHE = 4 * 2**20
_NO_LAYER = -1


class _State(NamedTuple):
    weights: Weights
    memories: tuple[Any, ...]
    first_loss: Any
    step: Any  # of divergence; the number of steps in all where there is none
    layer: Any  # the first one that was not finite then, or _NO_LAYER


@dataclass(frozen=True)
class Trained:
    """Trained networks; the leading axis of every array runs over them.

    Attributes
    ----------
    curves : dict of ndarray, shape (networks, records)
        ``train_loss``, ``test_loss``, ``train_accuracy``, ``test_accuracy``, as far as there are such data.
    diverged : ndarray of int, shape (networks,)
        The first step at which the loss was not finite or 10^6 times its first value; the number of steps if none was.
    layer : ndarray of int, shape (networks,)
        Where that was first seen: 0 is the input layer, l a block, L + 1 the output; -1 where all was finite.
    """

    curves: dict[str, np.ndarray]
    diverged: np.ndarray
    layer: np.ndarray


def train_networks(
    members: Sequence[tuple[ResidualProblem, int]],
    *,
    at: Sequence[int],
    parts: Sequence[str] = ("train", "test"),
    progress: Callable[[int, int], object] | None = None,
    memory_limit: int | None = None,
) -> Iterator[Trained]:
    """Train networks side by side, as many at a time as fit into memory.

    Parameters
    ----------
    members : sequence of (ResidualProblem, int)
        Each network's problem and number. The problems may differ in their numbers only (rate, multiplier, scheme,
        schedule, decay, ..), not in sizes, kinds, data, steps or seed. Network s draws its weights and batches from
        ``training.seed`` and s alone.
    at : sequence of int
        Steps at which curves are recorded, rising.
    parts : sequence of str
        Where: on the ``"train"`` samples, on the held-out ``"test"`` samples.
    progress : callable, optional
        Called with network-steps done and network-steps in all.
    memory_limit : int, optional
        Bytes that may be used; default: half of what is free.

    Returns
    -------
    iterator of Trained
        In the order of `members`.

    Raises
    ------
    LazyrichError
        When one network does not fit into memory, the problems differ in more than numbers, or a network's number is
        out of range.
    """
    if any(not 0 <= number < 2**32 for _, number in members):
        raise LazyrichError("seeds", "a network's number is out of range", "give numbers from 0 to 4294967295")
    problem = members[0][0]
    program = program_of(problem)
    for other in {id(one): one for one, _ in members}.values():
        if program_of(other) != program or _frame(other) != _frame(problem):
            raise LazyrichError("members", "differ in more than numbers", "train them apart")
    limit = psutil.virtual_memory().available // 2 if memory_limit is None else memory_limit
    samples = load_samples(problem)
    program, needed = fit_into_memory(problem, program, samples, limit)
    in_cache = math.ceil(_CACHE / step_memory(problem, program, samples))
    most = max(1, min(limit // needed, in_cache, len(members)))
    # One size for all groups, so that the program is compiled once: the last one repeats a network where it is short.
    size = min(range(most, most // 2, -1), key=lambda size: math.ceil(len(members) / size) * size)
    return _in_groups(program, problem, samples, members, size, at, parts, progress or (lambda done, total: None))


def _frame(problem: ResidualProblem) -> tuple[Any, ...]:
    training = problem.training
    return problem.data, training.steps, training.batch, training.seed, training.precision


def _in_groups(
    program: Program,
    problem: ResidualProblem,
    samples: Samples,
    members: Sequence[tuple[ResidualProblem, int]],
    size: int,
    at: Sequence[int],
    parts: Sequence[str],
    progress: Callable[[int, int], object],
) -> Iterator[Trained]:
    count, steps = len(members), max(at) + 1
    stops = sorted({*range(0, steps, _CHUNK), *at, steps - 1})
    for first in range(0, count, size):
        group = list(members[first : first + size])
        inside = len(group)
        group += group[-1:] * (size - inside)
        with _precision(problem):
            run = _Run(program, problem, samples, group)
        curves: dict[str, list[np.ndarray]] = {}
        for start, stop in itertools.pairwise([0, *stops]):
            run.advance(start, stop)
            if stop in at:
                for name, values in run.evaluate(parts).items():
                    curves.setdefault(name, []).append(values[:inside])
            progress(first * steps + inside * (stop + 1), count * steps)
        yield run.trained({name: np.stack(values, axis=1) for name, values in curves.items()}, inside, at)


def _precision(problem: ResidualProblem) -> Any:
    return double_precision(problem.training.precision == "float64")


class _Run:
    """A group of networks while it is trained."""

    def __init__(
        self,
        program: Program,
        problem: ResidualProblem,
        samples: Samples,
        group: Sequence[tuple[ResidualProblem, int]],
    ) -> None:
        self.program, self.problem = program, problem
        self.parts = {"train": samples.train, "test": samples.test}
        dimension = program.form.dimension
        each = [numbers_of(one, network, dimension) for one, network in group]
        self.numbers = jax.tree.map(lambda *values: jnp.asarray(np.stack(values)), *each)
        orders = {network: batch_order(problem, network, len(samples.train)) for _, network in group}
        self.orders = [orders[network] for _, network in group]
        self.state = _start(program, self.numbers, problem.training.steps)
        self.train = _as_arrays(program, samples.train)

    def advance(self, start: int, stop: int) -> None:
        """Make steps `start` to `stop` - 1, at most _CHUNK, or none."""
        if start == stop:
            return
        order = None
        if self.orders[0] is not None:
            chosen = np.stack([o[start:stop] for o in self.orders if o is not None])
            order = np.pad(chosen, [(0, 0), (0, _CHUNK - chosen.shape[1]), (0, 0)])
        with _precision(self.problem):
            self.state = _advance(self.program, self.numbers, self.train, order, self.state, start, stop)
            jax.block_until_ready(self.state.step)

    def evaluate(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Loss and accuracy now, on the parts that there are; shape (networks,) each."""
        found = {}
        for name in names:
            part = self.parts[name]
            if part is None:
                continue
            with _precision(self.problem):
                arrays = self.train if name == "train" else _as_arrays(self.program, part)
                loss, accuracy = _evaluate(self.program, self.numbers, arrays, self.state.weights)
            found[f"{name}_loss"] = np.asarray(loss, dtype=float)
            if part.labels is not None:
                found[f"{name}_accuracy"] = np.asarray(accuracy, dtype=float)
        return found

    def trained(self, curves: dict[str, np.ndarray], inside: int, at: Sequence[int]) -> Trained:
        """The first `inside` networks; what is recorded after a divergence is NaN."""
        steps = np.asarray(at)
        diverged = np.minimum(np.asarray(self.state.step)[:inside], self.problem.training.steps)
        layer = np.asarray(self.state.layer)[:inside].copy()
        for name in [name for name in curves if name.endswith("_loss")]:
            values = curves[name]  # a held-out loss, or that of the last step, whose batch nobody has seen
            with np.errstate(invalid="ignore"):
                bad = ~(values <= DIVERGENCE_FACTOR * values[:, :1])
            seen = np.where(bad.any(axis=1), steps[bad.argmax(axis=1)], self.problem.training.steps)
            layer[seen < diverged] = _NO_LAYER
            diverged = np.minimum(diverged, seen)
        kept = steps < diverged[:, None]
        return Trained({name: np.where(kept, values, np.nan) for name, values in curves.items()}, diverged, layer)


def _as_arrays(program: Program, part: Part) -> tuple[Any, Any, Any]:
    """Inputs, what the loss compares with, and labels or None."""
    answers = part.labels if program.loss == "cross-entropy" else part.targets
    labels = None if part.labels is None else jnp.asarray(part.labels)
    return jnp.asarray(part.inputs, dtype=float), jnp.asarray(answers), labels


def _trainable(program: Program, weights: Weights) -> tuple[Any, ...]:
    return (weights.blocks,) if program.blocks_only else tuple(weights)


def _with(program: Program, weights: Weights, trained: tuple[Any, ...]) -> Weights:
    return weights._replace(blocks=trained[0]) if program.blocks_only else Weights(*trained)


@partial(jax.jit, static_argnums=0)
def _start(program: Program, numbers: Numbers, steps: Any) -> _State:
    def one(numbers: Numbers) -> _State:
        key = jax.random.fold_in(jax.random.key(numbers.seed, impl="threefry2x32"), numbers.network)
        weights = draw_weights(program.form, numbers.stds, key)
        rules = _trainable(program, optimizers(program.method, numbers.settings))
        memories = tuple(rule.init(w) for rule, w in zip(rules, _trainable(program, weights), strict=True))
        nowhere = jnp.full((), _NO_LAYER, dtype=jnp.int32)
        return _State(weights, memories, jnp.full((), jnp.inf, dtype=float), jnp.full((), steps, jnp.int32), nowhere)

    return jax.vmap(one)(numbers)


@partial(jax.jit, static_argnums=0, donate_argnames="state")
def _advance(
    program: Program, numbers: Numbers, train: Any, order: Any, state: _State, start: Any, stop: Any
) -> _State:
    """Steps `start` to `stop` - 1; `order` (networks, steps, batch) says which samples each network sees."""

    def one(numbers: Numbers, order: Any, state: _State) -> _State:
        def step(index: Any, state: _State) -> _State:
            inputs, answers, _ = train
            if order is not None:
                chosen = order[index - start]
                inputs, answers = inputs[chosen], answers[chosen]
            return _step(program, numbers, inputs, answers, state, index)

        return jax.lax.fori_loop(start, stop, step, state)

    return jax.vmap(one, in_axes=(0, None if order is None else 0, 0))(numbers, order, state)


def _step(program: Program, numbers: Numbers, inputs: Any, answers: Any, state: _State, index: Any) -> _State:
    rules = _trainable(program, optimizers(program.method, numbers.settings))
    weights = _trainable(program, state.weights)

    def objective(trained: tuple[Any, ...]) -> tuple[Any, Any]:
        every = _with(program, state.weights, trained)
        outputs, largest = forward(program.form, every, numbers.factors, inputs)
        return _loss(program, outputs, answers), jnp.append(largest, jnp.abs(outputs).max())

    (loss, largest), gradients = jax.value_and_grad(objective, has_aux=True)(weights)
    updates, memories = zip(
        *[rule.update(g, m, w) for rule, g, m, w in zip(rules, gradients, state.memories, weights, strict=True)],
        strict=True,
    )
    first = jnp.where(index == 0, loss, state.first_loss)
    now = ~(loss <= DIVERGENCE_FACTOR * first) & (index < state.step)
    infinite = ~jnp.isfinite(largest)
    layer = jnp.where(infinite.any(), jnp.argmax(infinite).astype(jnp.int32), _NO_LAYER)
    return _State(
        _with(program, state.weights, optax.apply_updates(weights, updates)),  # pyright: ignore[reportArgumentType]
        memories,
        first,
        jnp.where(now, index, state.step).astype(jnp.int32),
        jnp.where(now, layer, state.layer),
    )


@partial(jax.jit, static_argnums=0)
def _evaluate(program: Program, numbers: Numbers, part: Any, weights: Weights) -> tuple[Any, Any]:
    """Loss and accuracy of every network, one after the other: all samples of one fill the memory already."""
    inputs, answers, labels = part

    def one(of_network: tuple[Factors, Weights]) -> tuple[Any, Any]:
        factors, weights = of_network
        outputs, _ = forward(program.form, weights, factors, inputs)
        right = jnp.nan if labels is None else (outputs.argmax(axis=1) == labels).mean()
        return _loss(program, outputs, answers), right

    return jax.lax.map(one, (numbers.factors, weights))


def _loss(program: Program, outputs: Any, answers: Any) -> Any:
    """Cross-entropy in nats, or the mean over samples and outputs of the squared error."""
    if program.loss == "cross-entropy":
        return optax.softmax_cross_entropy_with_integer_labels(outputs, answers).mean()
    return jnp.square(outputs - answers).mean()
