"""Residual networks are trained as the formulas say: against NumPy, optax, and their own equivalent forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lazyrich
from lazyrich import LazyrichError
from lazyrich.problem.residual import ResidualNetwork, ResidualProblem, ResidualTraining, TeacherData
from lazyrich.problem.rules import moving_factors
from lazyrich.simulation.precision import double_precision
from lazyrich.simulation.residual import training
from lazyrich.simulation.residual.data import batch_order, load_samples
from lazyrich.simulation.residual.memory import fit_into_memory, required_memory, step_memory
from lazyrich.simulation.residual.network import Factors, Form, Weights, draw_weights, forward, forward_levels
from lazyrich.simulation.residual.program import program_of
from lazyrich.simulation.residual.training import train_networks
from tests.residual_reference import Network, Optimizer, loss_and_gradient


def tiny(**values) -> ResidualProblem:
    problem = ResidualProblem(
        network=ResidualNetwork(width=6, base_width=3, blocks=4, base_blocks=2, multiplier=0.7),
        data=TeacherData(dimension=5, classes=3, samples=13, test_samples=7),
        training=ResidualTraining(steps=9, learning_rate=0.1, batch=4, precision="float64", epsilon=0.01),
    )
    return problem.with_values({key.replace("__", "."): value for key, value in values.items()})


def initial(problem: ResidualProblem, number: int) -> Weights:
    """The weights that network `number` starts from, as the table says: std times the base's 1/sqrt(fan_in)."""
    form, base = program_of(problem).form, problem.network.base_width or problem.network.width
    with double_precision():
        key = jax.random.fold_in(jax.random.key(problem.training.seed, impl="threefry2x32"), number)
        stds = Weights(form.dimension**-0.5, form.width**-0.5, base**-0.5)
        return Weights(*map(np.asarray, draw_weights(form, stds, key)))


def reference(problem: ResidualProblem, number: int, alpha: float, gamma: float):
    """Losses at every step by NumPy, the width and depth rules written out; also where it first was not finite."""
    network, options = problem.network, problem.training
    n = network.width / (network.base_width or network.width)
    m = network.blocks / (network.base_blocks or network.blocks)
    phi = network.nonlinearity if isinstance(network.nonlinearity, str) else network.nonlinearity.power
    a = network.multiplier * m**-alpha
    net = Network(initial(problem, number), phi, network.normalisation, network.mean_subtraction, a, 1 / n)
    adam = options.optimizer != "sgd"
    factors = np.array([1, m**-gamma / n, 1] if adam else [n, m ** (alpha - gamma), n])
    trained = np.array([0, 1, 0] if options.train == "blocks" else [1, 1, 1])
    optimizer = Optimizer(
        options.optimizer,
        options.learning_rate * factors * trained,
        options.epsilon * np.array([1 / n, m**-alpha / n, 1 / n]),
        options.weight_decay / factors,
        options.momentum,
        (options.beta1, options.beta2),
    )
    samples = load_samples(problem).train
    answers = samples.labels if options.loss == "cross-entropy" else samples.targets
    order = batch_order(problem, number, len(samples))
    losses, lost = [], None
    for step in range(options.steps):
        losses.append(loss_and_gradient(options.loss, net.outputs(samples.inputs), answers)[0])
        chosen = slice(None) if order is None else order[step]
        outputs = net.outputs(samples.inputs[chosen])
        if lost is None and not np.isfinite(outputs).all():
            bad = [not np.isfinite(level).all() for level in [*net.levels, outputs]]
            lost = step, bad.index(True)
        gradients = net.gradients(loss_and_gradient(options.loss, outputs, answers[chosen])[1])
        optimizer.step(net.weights, gradients, problem.training.factors()[step])
    return np.array(losses), lost


CASES = {
    "adam": ({}, 0.5, 0.5),
    "adamw-ode": (
        {"training__optimizer": "adamw", "training__scheme": "complete-p", "training__weight_decay": 0.3}
        | {"network__block_layers": 2, "network__nonlinearity": "tanh", "network__normalisation": "layer"},
        1.0,
        0.0,
    ),
    "momentum": (
        {"training__optimizer": "sgd", "training__momentum": 0.8, "training__weight_decay": 0.1}
        | {"training__alpha": 0.75, "training__gamma": 0.25, "network__mean_subtraction": "after"}
        | {"training__loss": "mse", "training__schedule": "warmup-cosine", "training__warmup": 3},
        0.75,
        0.25,
    ),
    "sign-blocks": (
        {"training__optimizer": "sign", "training__train": "blocks", "network__nonlinearity": {"power": 1.5}}
        | {"network__normalisation": "rms", "network__mean_subtraction": "before", "training__weight_decay": 0.2},
        0.5,
        0.5,
    ),
    "sgd-all-samples": (
        {"training__optimizer": "sgd", "training__batch": 13, "network__nonlinearity": "gelu"}
        | {"network__block_layers": 2, "network__mean_subtraction": "after", "training__scheme": "mup"},
        0.0,
        0.0,
    ),
    "abs": ({"network__nonlinearity": "abs", "training__schedule": "linear", "training__scheme": "sqrt-depth"}, 0.5, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_training_is_that_of_numpy(case):
    values, alpha, gamma = CASES[case]
    problem = tiny(**values)
    (trained,) = train_networks([(problem, 3), (problem, 1)], at=range(9), parts=["train"])
    for row, number in enumerate((3, 1)):
        expected, _ = reference(problem, number, alpha, gamma)
        assert expected[-1] < 0.97 * expected[0] or case == "sign-blocks"
        # rounding in another order: at most 1.4e-15 measured
        np.testing.assert_allclose(trained.curves["train_loss"][row], expected, rtol=1e-13)


def test_a_wrong_rule_would_be_noticed():
    """The depth rule enters the losses by far more than the tolerance above."""
    problem = tiny()
    right, wrong = (reference(problem, 0, *rule)[0] for rule in ((0.5, 0.5), (0.5, 0.49)))
    assert np.abs(right - wrong).max() > 1e-4


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "sign"])
def test_equivalent_forms_train_identically(optimizer, monkeypatch):
    """The branch factor in the forward pass, or moved through the relu into the weights: one training."""
    options = {"training__momentum": 0.5} if optimizer == "sgd" else {}
    decay = 0.0 if optimizer == "adam" else 0.1
    problem = tiny(training__optimizer=optimizer, training__weight_decay=decay, training__steps=30, **options)
    original = training.numbers_of

    def moved(*arguments):
        numbers = original(*arguments)
        factor = moving_factors(optimizer, numbers.factors.branch)
        settings = numbers.settings
        return numbers._replace(
            stds=numbers.stds._replace(blocks=numbers.stds.blocks * factor["init_std"]),
            factors=numbers.factors._replace(branch=numbers.factors.branch * factor["multiplier"]),
            settings=settings._replace(
                rates=settings.rates._replace(blocks=settings.rates.blocks * factor["learning_rate"]),
                epsilons=settings.epsilons._replace(blocks=settings.epsilons.blocks * factor["eps"]),
                decays=settings.decays._replace(blocks=settings.decays.blocks * factor["weight_decay"]),
            ),
        )

    def losses():
        (trained,) = train_networks([(problem, 0)], at=range(0, 30, 3), parts=["train"])
        return trained.curves["train_loss"]

    one = losses()
    monkeypatch.setattr(training, "numbers_of", moved)
    other = losses()
    assert one[0, -1] < 0.98 * one[0, 0]
    # rounding, which training amplifies: at most 3e-15 measured; with the old eps 0.08 (adamw) and 0.24 (adam)
    np.testing.assert_allclose(other, one, rtol=1e-12)


def plain_adam(problem: ResidualProblem) -> list[float]:
    """Losses of training with ``optax.adam``, without any parametrization, at all steps."""
    samples, form = load_samples(problem), program_of(problem).form
    inputs, labels = jnp.asarray(samples.train.inputs, dtype=float), jnp.asarray(samples.train.labels)
    key = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), 0)
    stds = (jnp.asarray(fan_in**-0.5) for fan_in in (form.dimension, form.width, form.width))
    weights = draw_weights(form, Weights(*stds), key)
    optimizer = optax.adam(0.1, eps=0.01)

    def loss(weights, factor, inputs, labels):
        outputs, _ = forward(form, weights, Factors(branch=factor), inputs)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, labels).mean()

    @jax.jit
    def evaluate(weights, factors):
        return jax.lax.map(lambda each: loss(*each, inputs, labels), (weights, factors))

    @jax.jit
    def advance(weights, memories, factors, order, start, stop):
        def one(weights, memory, factor, order):
            def step(index, state):
                weights, memory = state
                chosen = order[index - start]
                gradients = jax.grad(loss)(weights, factor, inputs[chosen], labels[chosen])
                updates, memory = optimizer.update(gradients, memory)
                return optax.apply_updates(weights, updates), memory

            return jax.lax.fori_loop(start, stop, step, (weights, memory))

        return jax.vmap(one)(weights, memories, factors, order)

    state = jax.tree.map(lambda values: values[None], (weights, optimizer.init(weights)))
    factors, losses, order = jnp.asarray([0.7]), [], batch_order(problem, 0, len(samples.train))
    assert order is not None
    for step in range(problem.training.steps):
        losses.append(float(evaluate(state[0], factors)[0]))
        state = advance(*state, factors, order[None, step : step + 1], step, step + 1)
    return losses


def test_at_the_base_size_it_is_plain_optax():
    """Without base sizes every scheme is the training that anyone would write down, bit for bit."""
    problem = tiny(training__precision="float32")
    problem = ResidualProblem(
        network=ResidualNetwork(width=6, blocks=4, multiplier=0.7), data=problem.data, training=problem.training
    )
    expected = plain_adam(problem)
    for scheme in ("depth-mup", "complete-p", "mup", "sp", "ode", "sqrt-depth"):
        (trained,) = train_networks(
            [(problem.with_values({"training.scheme": scheme}), 0)], at=range(9), parts=["train"]
        )
        np.testing.assert_array_equal(trained.curves["train_loss"][0], expected)


def test_ntk_is_another_form_of_the_standard_one():
    """NTK's factors stand in the forward pass: the same network as SP's at first, and other steps."""
    sp, ntk = (tiny(training__scheme=s, training__optimizer="sgd") for s in ("sp", "ntk"))
    losses = {}
    for name, problem in (("sp", sp), ("ntk", ntk)):
        (trained,) = train_networks([(problem, 0)], at=range(3), parts=["train"])
        losses[name] = trained.curves["train_loss"][0]
    assert losses["sp"][0] == pytest.approx(losses["ntk"][0], rel=1e-14)
    assert abs(losses["sp"][2] - losses["ntk"][2]) > 1e-3


# ---- Side by side ----------------------------------------------------------------------------------------------------


def test_rates_multipliers_and_schemes_share_one_program():
    base = tiny(training__steps=5)
    changes = [
        {"training.learning_rate": 0.03},
        {"network.multiplier": 0.2},
        {"training.scheme": "complete-p"},
        {"training.epsilon": 1e-8},
        {"training.schedule": "cosine"},
    ]
    members = [(base.with_values(change), seed) for change in changes for seed in (0, 7)]
    together = list(train_networks(members, at=[0, 4]))
    compiled = training._advance._cache_size()
    assert len(together) == 1
    for index, member in enumerate(members):
        (alone,) = train_networks([member], at=[0, 4])
        for name, values in alone.curves.items():
            # other kernels for other numbers of networks: rounding, 4e-16 measured
            np.testing.assert_allclose(together[0].curves[name][index], values[0], rtol=1e-13, err_msg=name)
    assert training._advance._cache_size() == compiled + 1  # one more shape, of one network


def test_groups_that_fit_into_memory_give_the_same():
    problem = tiny(training__steps=5)
    needed = required_memory(problem, program_of(problem), load_samples(problem))
    members = [(problem, seed) for seed in range(5)]
    (all_at_once,) = train_networks(members, at=[4])
    groups = list(train_networks(members, at=[4], memory_limit=2 * needed))
    assert [len(group.diverged) for group in groups] == [2, 2, 1]
    for name, values in all_at_once.curves.items():
        np.testing.assert_allclose(np.concatenate([g.curves[name] for g in groups]), values, rtol=1e-13)


def test_groups_are_cut_to_the_cache(monkeypatch):
    problem = tiny(training__steps=5)
    needed = step_memory(problem, program_of(problem), load_samples(problem))
    members = [(problem, seed) for seed in range(5)]
    monkeypatch.setattr(training, "_CACHE", 1.5 * needed)  # two: the last one need not fit as a whole
    assert [len(group.diverged) for group in train_networks(members, at=[4])] == [2, 2, 1]


def test_members_must_be_of_one_shape():
    for change in ({"network.width": 12}, {"training.steps": 8}, {"data.samples": 14}, {"training.optimizer": "sgd"}):
        with pytest.raises(LazyrichError, match="members: differ in more than numbers"):
            list(train_networks([(tiny(), 0), (tiny().with_values(change), 0)], at=[0]))


def test_batches_are_passes_of_the_data():
    problem = tiny(training__steps=9)
    order = batch_order(problem, 0, 13)
    assert order is not None and order.shape == (9, 4)
    for first in (0, 3, 6):  # three batches of four a pass, one sample left over
        assert len(np.unique(order[first : first + 3])) == 12
    assert not np.array_equal(np.sort(order[:3].ravel()), np.sort(order[3:6].ravel()))
    np.testing.assert_array_equal(order, batch_order(problem, 0, 13))
    np.testing.assert_array_equal(order[:5], batch_order(tiny(training__steps=5), 0, 13))
    assert not np.array_equal(order, batch_order(problem, 1, 13))
    assert batch_order(tiny(training__batch=13), 0, 13) is None


def test_a_deeper_network_begins_with_the_same_weights():
    short, long = initial(tiny(), 2), initial(tiny(network__blocks=9), 2)
    np.testing.assert_array_equal(long.input, short.input)
    np.testing.assert_array_equal(long.output, short.output)
    np.testing.assert_array_equal(long.blocks[:4], short.blocks)


def test_initial_weights_have_the_variances_of_the_table():
    """Literal table with base_width = 1: std 1/sqrt(d), 1/sqrt(fan_in), 1, with the factor 1/n for the outputs."""
    problem = tiny(network__width=200, network__base_width=1, network__blocks=3, data__dimension=50)
    numbers = training.numbers_of(problem, 0, 50)
    assert numbers.factors.output == pytest.approx(1 / 200, rel=1e-15)
    form = program_of(problem).form
    drawn = draw_weights(form, numbers.stds, jax.random.key(1))
    for weights, variance in zip(drawn, (1 / 50, 1 / 200, 1.0), strict=True):
        z = (np.mean(np.asarray(weights) ** 2) / variance - 1) * np.sqrt(weights.size / 2)
        assert abs(z) < 4


# ---- Depth, memory, divergence ---------------------------------------------------------------------------------------


def test_a_thousand_blocks_with_features_computed_twice():
    """Rematerialisation changes nothing (no bit, as measured; float32 has 1e-7), and half the memory suffices."""
    problem = tiny(network__blocks=1024, network__width=8, network__base_width=8, training__precision="float32")
    problem = problem.with_values(
        {"data.samples": 50, "training.batch": 50, "training.steps": 5, "network.multiplier": 0.1}
    )
    samples = load_samples(problem)
    whole = required_memory(problem, program_of(problem), samples)
    saving = required_memory(problem, program_of(problem, checkpoint=True), samples)
    assert saving < 0.6 * whole
    assert fit_into_memory(problem, program_of(problem), samples, whole)[0].form.checkpoint is False
    assert fit_into_memory(problem, program_of(problem), samples, saving)[0].form.checkpoint is True
    (one,) = train_networks([(problem, 0)], at=[0, 4], parts=["train"])
    (other,) = train_networks([(problem, 0)], at=[0, 4], parts=["train"], memory_limit=saving)
    np.testing.assert_allclose(one.curves["train_loss"], other.curves["train_loss"], rtol=1e-5)
    assert one.curves["train_loss"][0, 1] < 0.9 * one.curves["train_loss"][0, 0]
    with pytest.raises(LazyrichError, match=r"network.width: training needs .* GiB per network"):
        fit_into_memory(problem, program_of(problem), samples, saving - 1)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"network__block_layers": 2, "network__normalisation": "layer", "network__nonlinearity": "gelu"},
        {"training__optimizer": "sgd", "network__mean_subtraction": "after", "training__batch": 13},
    ],
)
def test_memory_is_foreseen(values):
    """The estimate lies above what the compiled program takes, and within three times that."""
    # batch and features dominate, then the weights
    for sizes in ({"data__samples": 400, "training__batch": 200}, {"network__width": 96, "network__blocks": 60}):
        problem = tiny(**{"network__width": 32, "network__blocks": 40, **sizes, **values} | {"training__steps": 3})
        program, samples = program_of(problem), load_samples(problem)
        with double_precision():
            run = training._Run(program, problem, samples, [(problem, 0)])
            order = None if run.orders[0] is None else np.zeros((1, 16, problem.training.batch or 0), dtype=np.int32)
            compiled = training._advance.lower(program, run.numbers, run.train, order, run.state, 0, 1).compile()
        used = compiled.memory_analysis()
        taken = used.temp_size_in_bytes + used.output_size_in_bytes
        estimate = required_memory(problem, program, samples)
        assert taken < estimate < 3 * taken


def test_divergence_is_flagged_with_step_and_layer():
    problem = tiny(
        training__optimizer="sgd", training__learning_rate=1e3, training__steps=60, network__nonlinearity={"power": 2.0}
    )
    # |z|^2 overflows within a few steps; the loss passes 10^6 times its first value before that
    trained = lazyrich.train(problem, seeds=3)
    assert trained.outcome.kind == "diverged"
    (alone,) = train_networks([(problem, 0)], at=range(60))
    assert trained.outcome.step is not None and trained.outcome.step <= alone.diverged[0]
    assert np.isfinite(trained.data["train_loss"].values[trained.steps < trained.outcome.step]).all()
    assert np.isnan(trained.data["train_loss"].values[trained.steps >= trained.outcome.step]).all()
    assert trained.statistics["networks_diverged"] == 3


@pytest.mark.parametrize("rate", [0.3, 3.0, 1e25])
def test_the_layer_where_numbers_overflow_is_that_of_numpy(rate):
    problem = tiny(training__optimizer="sgd", training__learning_rate=rate, training__steps=40, network__blocks=8)
    problem = problem.with_values({"network.nonlinearity": {"power": 3.0}, "network.multiplier": 0.1})
    with np.errstate(all="ignore"):
        _, lost = reference(problem, 0, 0.5, 0.5)
    (trained,) = train_networks([(problem, 0)], at=[0, 39], parts=["train"])
    assert lost is not None
    assert (trained.diverged[0], trained.layer[0]) == lost


def test_levels_lead_to_the_outputs():
    form = Form(width=8, dimension=5, outputs=3, blocks=6, block_layers=2, nonlinearity="tanh", normalisation="rms")
    weights = draw_weights(form, Weights(0.4, 0.4, 0.4), jax.random.key(0))
    inputs = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    outputs, largest = forward(form, weights, Factors(branch=0.5), inputs)
    same, levels = forward_levels(form, weights, Factors(branch=0.5), inputs)
    assert levels.shape == (7, 7, 8)
    np.testing.assert_array_equal(outputs, same)
    np.testing.assert_array_equal(largest, np.abs(levels).max(axis=(1, 2)))
