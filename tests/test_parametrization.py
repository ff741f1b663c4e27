"""The table of parametrizations: by hand, by training equivalent forms, by coordinate checks over width and depth."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from lazyrich import LazyrichError
from lazyrich.problem.parametrization import (
    OPTIMIZERS,
    QUANTITIES,
    ROLES,
    SCHEMES,
    Growth,
    Monomial,
    Rule,
    Scheme,
    rule_for,
    rules,
    scheme_named,
)
from lazyrich.problem.rules import (
    EQUIVALENCE_FAILS,
    classify,
    effective,
    move_factor,
    moving_factors,
    reasons,
    rules_report,
    sources,
)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Thousands of small products: eight times slower where BLAS threads compete for two busy cores."""
    with threadpool_limits(1):
        yield


# ---- A residual network and its optimisers, by hand ------------------------------------------------------------------

Arrays = dict[str, np.ndarray]

# phi and its derivative as a function of the pre-activation z and of phi(z)
ACTIVATIONS: dict[str, tuple[Callable, Callable]] = {
    "relu": (lambda z: np.maximum(z, 0.0), lambda z, y: (z > 0) * 1.0),
    "tanh": (np.tanh, lambda z, y: 1.0 - y * y),
}


@dataclass(frozen=True)
class Network:
    """f = output (w . x_L) + bias with x_l = x_(l-1) + branch phi(W_l x_(l-1) + b_l).

    With two layers a block ends in a linear map: V_l phi(..) + c_l in place of phi(..).
    """

    activation: str
    two_layer: bool = False

    @property
    def roles(self) -> dict[str, str]:
        """The role of every parameter."""
        last = {"last": "block", "last-bias": "block-bias"} if self.two_layer else {}
        return {role: role for role in ROLES} | last

    def shapes(self, width: int, depth: int, inputs: int) -> dict[str, tuple[int, ...]]:
        matrices, vectors = (depth, width, width), (depth, 1, width)
        shapes = {"input": (inputs, width), "input-bias": (1, width), "block": matrices, "block-bias": vectors}
        shapes |= {"output": (width, 1), "output-bias": (1, 1)}
        return shapes | ({"last": matrices, "last-bias": vectors} if self.two_layer else {})

    def run(self, weights: Arrays, factors: Mapping[str, float], data: np.ndarray) -> tuple[np.ndarray, list]:
        """f and all that the gradient needs; the last entry is x_L."""
        phi, _ = ACTIVATIONS[self.activation]
        features = factors["input"] * (data @ weights["input"]) + weights["input-bias"]
        kept = []
        for layer, (matrix, bias) in enumerate(zip(weights["block"], weights["block-bias"], strict=True)):
            before = features @ matrix + bias
            after = phi(before)
            kept.append((features, before, after))
            if self.two_layer:
                after = after @ weights["last"][layer] + weights["last-bias"][layer]
            features = features + factors["branch"] * after
        return factors["output"] * (features @ weights["output"]) + weights["output-bias"], [*kept, features]

    def gradients(self, weights: Arrays, factors: Mapping[str, float], data: np.ndarray, target: np.ndarray) -> Arrays:
        """Gradients of the mean over the batch of (f - y)^2 / 2."""
        _, slope = ACTIVATIONS[self.activation]
        outputs, kept = self.run(weights, factors, data)
        error = (outputs - target) / len(data)
        gradients = {name: np.zeros_like(weight) for name, weight in weights.items()}
        gradients["output"] = factors["output"] * kept[-1].T @ error
        gradients["output-bias"] = error.sum(axis=0, keepdims=True)
        back = factors["output"] * error @ weights["output"].T
        for layer in reversed(range(len(weights["block"]))):
            features, before, after = kept[layer]
            inner = factors["branch"] * back
            if self.two_layer:
                gradients["last"][layer] = after.T @ inner
                gradients["last-bias"][layer] = inner.sum(axis=0, keepdims=True)
                inner = inner @ weights["last"][layer].T
            inner = inner * slope(before, after)
            gradients["block"][layer] = features.T @ inner
            gradients["block-bias"][layer] = inner.sum(axis=0, keepdims=True)
            back = back + inner @ weights["block"][layer].T
        gradients["input"] = factors["input"] * data.T @ back
        gradients["input-bias"] = back.sum(axis=0, keepdims=True)
        return gradients


Settings = dict[str, dict[str, float]]
SAMPLES, INPUTS = 8, 8


def step(optimizer: str, weights: Arrays, gradients: Arrays, memory: dict, settings: Settings, count: int) -> None:
    """One step in place, as torch.optim does it: SGD with momentum 0.9, Adam with betas (0.9, 0.99), or the sign.

    Muon without momentum, and orthogonalising exactly: the matrices of the blocks, and AdamW for the rest.
    """
    for name, weight in weights.items():
        own, gradient = settings[name], gradients[name]
        rate, decay = own["learning_rate"], own["weight_decay"]
        if optimizer in ("adamw", "sign", "muon"):
            weight -= rate * decay * weight
        else:
            gradient = gradient + decay * weight
        if optimizer == "sign":
            weight -= rate * np.sign(gradient)
            continue
        if optimizer == "muon" and name in ("block", "last"):
            left, sizes, right = np.linalg.svd(gradient, full_matrices=False)
            inside = sizes > 1e-9 * sizes.max(axis=-1, keepdims=True)  # as an iteration does: what is zero stays zero
            weight -= rate * (left * inside[:, None, :]) @ right
            continue
        first, second = memory.setdefault(name, (np.zeros_like(weight), np.zeros_like(weight)))
        if optimizer == "sgd":
            first *= 0.9
            first += gradient
            weight -= rate * first
            continue
        first += 0.1 * (gradient - first)
        second += 0.01 * (gradient**2 - second)
        mean, square = first / (1 - 0.9**count), second / (1 - 0.99**count)
        weight -= rate * mean / (np.sqrt(square) + own["eps"])


def train(
    network: Network,
    optimizer: str,
    settings: Settings,
    factors: Mapping[str, float],
    shape: tuple[int, int],
    steps: int,
    seed: int,
    clip: float = math.inf,
    trained: tuple[str, ...] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """f and x_L on the training inputs at steps 0 to `steps`; always the same data, and weights drawn by `seed`."""
    random = np.random.default_rng(0)
    data, target = random.standard_normal((SAMPLES, INPUTS)), random.standard_normal((SAMPLES, 1))
    random = np.random.default_rng((1, seed))
    weights = {
        name: settings[name]["init_std"] * random.standard_normal(size)
        for name, size in network.shapes(*shape, INPUTS).items()
    }
    memory: dict = {}
    outputs, kept = network.run(weights, factors, data)
    seen, features = [outputs], [kept[-1]]
    for count in range(1, steps + 1):
        gradients = network.gradients(weights, factors, data, target)
        norm = math.sqrt(sum(float(np.sum(gradient**2)) for gradient in gradients.values()))
        shrink = min(1.0, clip / norm)
        chosen = {name: weights[name] for name in trained or weights}
        step(optimizer, chosen, {n: shrink * g for n, g in gradients.items()}, memory, settings, count)
        outputs, kept = network.run(weights, factors, data)
        seen.append(outputs)
        features.append(kept[-1])
    return np.array(seen), np.array(features)


def test_the_hand_written_gradients_are_gradients() -> None:
    random = np.random.default_rng(0)
    for network in (Network("tanh"), Network("tanh", two_layer=True)):
        shapes = network.shapes(5, 3, 4)
        weights = {name: 0.5 * random.standard_normal(size) for name, size in shapes.items()}
        scales = {"input": 0.7, "branch": 0.6, "output": 0.9}
        data, target = random.standard_normal((6, 4)), random.standard_normal((6, 1))

        gradients = network.gradients(weights, scales, data, target)
        for name, weight in weights.items():
            direction = random.standard_normal(weight.shape)
            ahead, behind = (
                np.mean((network.run({**weights, name: weight + shift * direction}, scales, data)[0] - target) ** 2) / 2
                for shift in (1e-5, -1e-5)
            )
            # central differences: an error of 1e-10 here, of the third derivative times the step squared
            assert (ahead - behind) / 2e-5 == pytest.approx(
                float(np.sum(gradients[name] * direction)), rel=1e-7, abs=1e-9
            )


# ---- The table, entry by entry ---------------------------------------------------------------------------------------

CORNERS = list(itertools.product(SCHEMES, OPTIMIZERS, ("with-rate", "independent")))


def same(one: Mapping[str, float | None], other: Mapping[str, float | None], rel: float = 1e-13) -> bool:
    """Whether two sets of factors are equal, up to rounding."""
    assert one.keys() == other.keys()
    pairs = [(one[key], other[key]) for key in one]
    return all(
        a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=rel)) for a, b in pairs
    )


def factors(*values: float | None) -> dict[str, float | None]:
    """Factors in the order init std, multiplier, rate, eps, decay."""
    return dict(zip(QUANTITIES, values, strict=True))


def by_role(*arguments: object, **more: object) -> dict[str, Rule]:
    return {rule.role: rule for rule in rules(*arguments, **more)}  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("scheme", "optimizer", "decay"), CORNERS)
def test_at_the_base_size_every_scheme_is_the_base_model(scheme: str, optimizer: str, decay: str) -> None:
    for width, depth in ((96, 5), (1024, 48)):
        for rule in rules(scheme, optimizer, (width, width), (depth, depth), decay):
            assert set(rule.factors().values()) <= {1.0, None}  # exactly
            assert set(effective(rule).values()) <= {1.0, None}


# By hand, for 8 times the width and 16 times the depth: init std, multiplier, SGD rate, Adam rate, eps, AdamW decay.
WIDTH_ONLY = {
    "input": (1, 1, 8, 1, 1 / 8, 1),
    "input-bias": (1, 1, 8, 1, 1 / 8, 1),
    "output": (1, 1 / 8, 8, 1, 1 / 8, 1),
    "output-bias": (1, 1, 1, 1, 1, 1),
}
SCALE_FREE = dict.fromkeys(ROLES, (1, 1, 1, 1, 1, 1))
BY_HAND = {
    "sp": SCALE_FREE | {"block": (8**-0.5, 1, 1, 1, 1, 1), "output": (8**-0.5, 1, 1, 1, 1, 1)},
    "ntk": SCALE_FREE | {"block": (1, 8**-0.5, 1, 1, 1, 1), "output": (1, 8**-0.5, 1, 1, 1, 1)},
    "mup": WIDTH_ONLY | {"block": (8**-0.5, 1, 1, 1 / 8, 1 / 8, 8), "block-bias": (1, 1, 8, 1, 1 / 8, 1)},
    "sqrt-depth": WIDTH_ONLY
    | {"block": (8**-0.5, 1 / 4, 4, 1 / 8, 1 / 32, 8), "block-bias": (1, 1 / 4, 32, 1, 1 / 32, 1)},
    "depth-mup": WIDTH_ONLY
    | {"block": (8**-0.5, 1 / 4, 1, 1 / 32, 1 / 32, 32), "block-bias": (1, 1 / 4, 8, 1 / 4, 1 / 32, 4)},
    "ode": WIDTH_ONLY | {"block": (8**-0.5, 1 / 16, 16, 1 / 8, 1 / 8, 8), "block-bias": (1, 1 / 16, 8, 1, 1 / 8, 1)},
    "complete-p": WIDTH_ONLY
    | {"block": (8**-0.5, 1 / 16, 16, 1 / 8, 1 / 128, 8), "block-bias": (1, 1 / 16, 128, 1, 1 / 128, 1)},
    # alpha = 3/4, gamma = 1/4: 16^(3/4) = 8, 16^(1/4) = 2
    Scheme(0.75, 0.25): WIDTH_ONLY
    | {"block": (8**-0.5, 1 / 8, 4, 1 / 16, 1 / 64, 16), "block-bias": (1, 1 / 8, 32, 1 / 2, 1 / 64, 2)},
}


@pytest.mark.parametrize("scheme", BY_HAND, ids=str)
def test_every_entry_by_hand(scheme: str | Scheme) -> None:
    sgd, adam, adamw, sign, muon = (
        by_role(scheme, name, (64, 512), (3, 48)) for name in ("sgd", "adam", "adamw", "sign", "muon")
    )
    assert list(sgd) == list(ROLES)
    for role, (std, multiplier, sgd_rate, rate, eps, decay) in BY_HAND[scheme].items():
        assert same(sgd[role].factors(), factors(std, multiplier, sgd_rate, None, 1 / sgd_rate))
        assert same(adam[role].factors(), factors(std, multiplier, rate, eps, None))
        assert same(adamw[role].factors(), factors(std, multiplier, rate, eps, decay))
        assert same(sign[role].factors(), factors(std, multiplier, rate, None, decay))
        if role == "block":  # as many inputs as outputs: the width drops out of Muon's rate, and m^-gamma stays
            rate = 16 ** -muon[role].scheme.gamma
            assert same(muon[role].factors(), factors(std, multiplier, rate, None, 1 / rate))
        else:
            assert muon[role] == adamw[role]


def test_named_schemes_are_points_of_the_plane() -> None:
    width, depth = (64, 512), (3, 48)
    for name, alpha, gamma in (("mup", 0, 0), ("sqrt-depth", 0.5, 0), ("depth-mup", 0.5, 0.5), ("complete-p", 1, 0)):
        for one, other in zip(
            *(rules(one, "adamw", width, depth) for one in (name, Scheme(alpha, gamma))), strict=True
        ):
            assert one.factors() == other.factors()
    # "1/sqrt(depth), block only" with SGD: the rule's m^(1/2) is all that it differs from Depth-muP in
    one, other = (by_role(name, "sgd", width, depth)["block"] for name in ("sqrt-depth", "depth-mup"))
    assert one.learning_rate == pytest.approx(4.0 * other.learning_rate)
    assert one.factors() | {"learning_rate": 1, "weight_decay": 1} == other.factors() | {
        "learning_rate": 1,
        "weight_decay": 1,
    }


@pytest.mark.parametrize(("scheme", "optimizer", "decay"), CORNERS)
def test_what_a_step_shrinks_is_the_same_at_every_size(scheme: str, optimizer: str, decay: str) -> None:
    for rule in rules(scheme, optimizer, (64, 448), (3, 21), decay):
        if optimizer == "adam":
            assert rule.weight_decay is None and "adamw" in reasons(rule)["weight_decay"]
        elif decay == "independent":
            assert rule.weight_decay == 1.0
        else:
            assert rule.weight_decay is not None
            assert rule.learning_rate * rule.weight_decay == pytest.approx(1.0, rel=1e-14)


def test_a_matrix_with_its_own_growth() -> None:
    growth = Growth(width=4, depth=9, fan_in=4, fan_out=16)
    scheme = Scheme(0.5, 0.5)
    assert rule_for("block", scheme, "sgd", growth).learning_rate == pytest.approx(4.0)
    other = rule_for("block", scheme, "adamw", Growth(width=4, depth=9, fan_in=16, fan_out=4))
    assert same(other.factors(), factors(1 / 4, 1 / 3, 1 / 48, 1 / 12, 48))
    assert rule_for("block", scheme, "muon", growth).learning_rate == pytest.approx(2 / 3)
    assert Growth(width=4) == Growth(width=4, fan_in=4, fan_out=4)


def test_values_from_base_values() -> None:
    block = by_role("complete-p", "adamw", (256, 1024), (8, 32))["block"]
    values = block.scaled(init_std=0.02, learning_rate=1e-3, eps=1e-8, weight_decay=0.1)
    assert values == pytest.approx({"init_std": 0.01, "learning_rate": 2.5e-4, "eps": 6.25e-10, "weight_decay": 0.4})
    with pytest.raises(LazyrichError, match=r"^weight_decay: there is no rule for it with adam; use adamw$"):
        by_role("mup", "adam", (1, 2))["block"].scaled(weight_decay=0.1)
    with pytest.raises(LazyrichError, match=r"^eps: there is no rule for it with sgd; leave it out$"):
        by_role("mup", "sgd", (1, 2))["block"].scaled(eps=0.1)
    with pytest.raises(LazyrichError, match=r"^setting: 'lr' is not known"):
        block.scaled(lr=0.1)


def test_formulas_are_read_as_they_are_written() -> None:
    block = by_role("depth-mup", "adamw", (1, 2), (1, 2))["block"]
    assert [str(block.formulas[quantity]) for quantity in QUANTITIES] == [
        "fan_in^(-1/2)",
        "m^(-1/2)",
        "fan_in^-1 m^(-1/2)",
        "n^-1 m^(-1/2)",
        "fan_in m^(1/2)",
    ]
    assert str(Monomial(0.25, n=2, m=0.123456)) == "0.25 n^2 m^0.1235"
    assert str(Monomial()) == "1"


# ---- Classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "gamma", "name", "exponent"),
    [
        (0.0, 0.0, "unstable", None),
        (0.4, 0.9, "unstable", None),
        (0.5, 0.0, "unstable", None),
        (0.9, 0.0, "unstable", None),
        (0.5, 0.6, "trivial", None),
        (1.0, 0.5, "trivial", None),
        (1.5, -0.25, "trivial", None),
        (1.25, -0.25, "unfaithful", None),
        (0.5, 0.5, "feature learning, diverse", 0.5),
        (0.75, 0.25, "feature learning, redundant", 0.0),
        (0.7, 0.3, "feature learning, redundant", 0.0),
        # rounding is no class
        (0.75 + 1e-12, 0.25, "feature learning, redundant", 0.0),
        (0.75 - 1e-12, 0.25, "feature learning, redundant", 0.0),
        (0.5 - 1e-12, 0.5, "feature learning, diverse", 0.5),
        (1.0, -1e-12, "feature learning, redundant", 0.0),
        (1.0, 0.0, "feature learning, redundant", 0.0),
    ],
)
def test_classes(alpha: float, gamma: float, name: str, exponent: float | None) -> None:
    found = classify(alpha, gamma)
    assert (found.name, found.diversity_exponent) == (name, exponent)


# ---- Equivalent forms, by training both ------------------------------------------------------------------------------

RELU, TANH, ENDS_LINEAR = Network("relu"), Network("tanh"), Network("tanh", two_layer=True)
SHAPE = (24, 6)
# eps, decay and rate all matter: the controls below find each of them
FORM_BASE = {"learning_rate": 0.02, "eps": 0.02, "weight_decay": 0.2}
FORM_STDS = {"input": 0.35, "input-bias": 0.1, "block": 0.4, "block-bias": 0.2, "output": 0.6, "output-bias": 0.1}
# What moves with the branch factor: all of a one-layer block, the last map of a block that ends in one.
MOVES_WITH_BRANCH = {False: ("block", "block-bias"), True: ("last", "last-bias")}


def form(network: Network, optimizer: str, moved: Mapping[str, float], left: str = "") -> tuple[Settings, dict]:
    """Settings and forward factors of a CompleteP target with some factors moved; `left` is a setting left behind."""
    target = by_role("complete-p", optimizer, (12, 24), (2, 6))
    plain = {name: target[role] for name, role in network.roles.items()}
    own = {name: move_factor(rule, moved.get(name, 1.0)) for name, rule in plain.items()}
    settings: Settings = {}
    for name, role in network.roles.items():
        values = {"init_std": FORM_STDS[role] * own[name].init_std}
        for quantity, base in FORM_BASE.items():
            factor = getattr((plain if left == quantity else own)[name], quantity)
            values[quantity] = base * (1.0 if factor is None else factor)
        if (
            optimizer == "adam" and left != "weight_decay"
        ):  # L2 in the gradient: no rule across sizes, but one for moving
            values["weight_decay"] *= moving_factors("adam", moved.get(name, 1.0))["weight_decay"]
        settings[name] = values
    branch = own[MOVES_WITH_BRANCH[network.two_layer][0]].multiplier
    return settings, {"input": own["input"].multiplier, "branch": branch, "output": own["output"].multiplier}


def difference(
    network: Network,
    optimizer: str,
    branch: float,
    clip: float = math.inf,
    instead: Mapping[str, float] | None = None,
    left: str = "",
) -> float:
    """The largest difference of f over 30 steps between the plain form and one with factors moved, relative to f.

    The biases of the input layer and of the readout are outside the factors, and stay; `instead` changes what moves.
    """
    moved = {"input": 1.7, "output": 0.2} | dict.fromkeys(MOVES_WITH_BRANCH[network.two_layer], branch)
    forms = form(network, optimizer, {}), form(network, optimizer, moved | dict(instead or {}), left)
    plain, other = (train(network, optimizer, *one, SHAPE, steps=30, seed=3, clip=clip)[0] for one in forms)
    assert np.abs(plain[-1] - plain[0]).max() > 0.1  # something was learnt
    return float(np.abs(plain - other).max() / np.abs(plain).max())


@pytest.mark.parametrize("network", [RELU, ENDS_LINEAR], ids=["relu", "ends in a linear map"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("branch", [1 / 3, 4.0])
def test_moving_a_factor_changes_nothing(network: Network, optimizer: str, branch: float) -> None:
    # measured: at most 1.5e-15, rounding
    assert difference(network, optimizer, branch) < 1e-13


def test_decay_independent_of_the_rate_does_not_move() -> None:
    """AdamW's step with decay / rate for decay is that with an independent decay."""
    plain = by_role("complete-p", "adamw", (12, 24), (2, 6), decay="independent")
    runs = []
    for q in (1.0, 0.3):
        own = {role: move_factor(rule, q) if role in ("input", "output") else rule for role, rule in plain.items()}
        settings: Settings = {}
        for role, rule in own.items():
            values = rule.scaled(init_std=FORM_STDS[role], learning_rate=0.02, eps=0.02, weight_decay=0.004)
            settings[role] = values | {"weight_decay": values["weight_decay"] / values["learning_rate"]}
        factors = {"input": own["input"].multiplier, "branch": 1 / 3, "output": own["output"].multiplier}
        runs.append(train(TANH, "adamw", settings, factors, SHAPE, steps=30, seed=3)[0])
    assert np.abs(runs[0] - runs[1]).max() < 1e-13 * np.abs(runs[0]).max()  # measured: 5e-16


# What must be visible; measured: 0.010 (eps with Adam and q = 1/3) to 1.8.
VISIBLE = 0.005


@pytest.mark.parametrize("network", [RELU, ENDS_LINEAR], ids=["relu", "ends in a linear map"])
@pytest.mark.parametrize(
    ("optimizer", "quantity"),
    [
        *itertools.product(("adam", "adamw", "muon"), ("learning_rate", "eps", "weight_decay")),
        ("sgd", "weight_decay"),
        ("sign", "learning_rate"),
        ("sign", "weight_decay"),
    ],
)
def test_a_setting_that_is_left_behind_shows(network: Network, optimizer: str, quantity: str) -> None:
    assert min(difference(network, optimizer, q, left=quantity) for q in (1 / 3, 4.0)) > VISIBLE


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_bias_moves_if_and_only_if_it_is_inside_the_factor(optimizer: str) -> None:
    for network in (RELU, ENDS_LINEAR):
        _, bias = MOVES_WITH_BRANCH[network.two_layer]
        assert difference(network, optimizer, 4.0, instead={bias: 1.0}) > VISIBLE
        assert difference(network, optimizer, 4.0, instead={"output-bias": 0.2}) > VISIBLE


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_where_forms_are_not_equivalent_they_differ_and_moving_is_refused(optimizer: str) -> None:
    rule = by_role("complete-p", optimizer, (12, 24), (2, 6))["block"]
    assert difference(TANH, optimizer, 4.0) > VISIBLE
    with pytest.raises(LazyrichError, match=r"^activation: .*tanh.*; move it into the block's last linear map"):
        move_factor(rule, activation="tanh")
    if optimizer != "sign":  # the sign of a clipped gradient is the gradient's
        for network in (RELU, ENDS_LINEAR):
            assert difference(network, optimizer, 4.0, clip=0.1) > VISIBLE
    with pytest.raises(LazyrichError, match=r"^global-clipping: "):
        move_factor(rule, global_clipping=True)
    with pytest.raises(LazyrichError, match=r"^shared: .*tied"):
        move_factor(rule, shared=True)
    assert move_factor(rule, activation="relu") == move_factor(rule)
    assert set(EQUIVALENCE_FAILS) == {"activation", "global-clipping", "shared"}


@pytest.mark.parametrize(("scheme", "optimizer", "decay"), CORNERS)
def test_equivalent_forms_share_their_effective_values(scheme: str, optimizer: str, decay: str) -> None:
    for rule in rules(scheme, optimizer, (64, 448), (3, 21), decay):
        for q in (0.3, 2.0, Monomial(n=-1, m=0.5)):
            moved = move_factor(rule, q)
            assert same(effective(moved), effective(rule))
            assert moved.learning_rate != pytest.approx(rule.learning_rate)
            back = move_factor(moved, Monomial() / q if isinstance(q, Monomial) else 1 / q)
            assert same(back.factors(), rule.factors())
            if not isinstance(q, Monomial):
                for quantity, factor in moving_factors(rule.optimizer, q, decay).items():
                    if getattr(rule, quantity) is not None:
                        assert getattr(moved, quantity) == pytest.approx(factor * getattr(rule, quantity))
        folded = move_factor(rule)
        assert folded.multiplier == pytest.approx(1.0)
    # and what differs in training differs here: SP and muP, or ODE and CompleteP
    values = [
        effective(by_role(name, "adamw", (64, 448), (3, 21))["block"]) for name in ("sp", "mup", "ode", "complete-p")
    ]
    assert all(one != pytest.approx(other) for one, other in itertools.combinations(values, 2))


def test_moving_by_hand() -> None:
    assert moving_factors("sgd", 0.5) == {
        "init_std": 0.5,
        "multiplier": 2.0,
        "learning_rate": 0.25,
        "eps": 1.0,
        "weight_decay": 4.0,
    }
    assert moving_factors("adam", 0.5) | {"weight_decay": 2.0} == moving_factors("adamw", 0.5)
    assert moving_factors("adam", 0.5)["weight_decay"] == 4.0
    assert moving_factors("adamw", 0.5, "independent")["weight_decay"] == 1.0
    folded = move_factor(by_role("mup", "sgd", (64, 512))["output"])
    assert same(folded.factors(), factors(1 / 8, 1, 1 / 8, None, 8))
    assert [str(folded.formulas["learning_rate"]), str(folded.moved)] == ["n^-1", "n^-1"]
    assert "in the weight" in reasons(folded)["multiplier"]
    with pytest.raises(LazyrichError, match=r"^q: -1 is not a size"):
        moving_factors("sgd", -1)


# ---- Coordinate checks -----------------------------------------------------------------------------------------------

BASE_WIDTH, BASE_DEPTH = 64, 4
CHECK_STDS = {"input": INPUTS**-0.5, "block": BASE_WIDTH**-0.5, "output": 0.02}
# Rate and eps: changes of a few percent, so that slopes are first-order; eps of the size of the blocks' gradient.
CHECKS = {"sgd": (1e-3, 0.0), "adam": (5e-4, 1e-3), "sign": (5e-4, 0.0), "muon": (5e-4, 1e-3)}


def slopes(
    scheme: str | Scheme,
    optimizer: str,
    shapes: list[tuple[int, int]],
    network: Network = TANH,
    trained: tuple[str, ...] | None = None,
    rate: float | None = None,
    eps: float | None = None,
    scaled_eps: bool = True,
    units: int = 1024,
) -> np.ndarray:
    """Slopes, in log size, of the change of f and of x_L over three steps, as root mean squares over draws."""
    base_rate, base_eps = CHECKS[optimizer]
    base_rate, base_eps = rate or base_rate, eps or base_eps
    found = []
    for width, depth in shapes:
        target = by_role(scheme, optimizer, (BASE_WIDTH, width), (BASE_DEPTH, depth))
        if scheme == "ntk":  # its factor is each matrix's own, not the branch's
            target["block"] = move_factor(target["block"])
        settings = {
            name: {
                "init_std": CHECK_STDS.get(role, 0.0) * target[role].init_std,
                "learning_rate": base_rate * target[role].learning_rate,
                "eps": base_eps * ((target[role].eps or 0.0) if scaled_eps else 1.0),
                "weight_decay": 0.0,
            }
            for name, role in network.roles.items()
        }
        factors = {
            "input": target["input"].multiplier,
            "branch": 0.2 * target["block"].multiplier,
            "output": target["output"].multiplier,
        }
        # narrow networks fluctuate more: as many units in all at every width
        runs = [
            train(network, optimizer, settings, factors, (width, depth), steps=3, seed=seed, trained=trained)
            for seed in range(units // width)
        ]
        found.append(
            [np.sqrt(np.mean([(kept[-1] - kept[0]) ** 2 for kept in kind])) for kind in zip(*runs, strict=True)]
        )
    sizes = np.log([width * depth for width, depth in shapes])
    return np.array([np.polyfit(sizes, np.log(column), 1)[0] if all(column) else 0.0 for column in np.transpose(found)])


# A slope of 0 is measured at -0.08 to 0.08: terms of order one over width and over depth, and the noise of the draws
# (four times as many draws leave -0.05 to 0.03).
FLAT = 0.12


def over_width(depth: int = 2 * BASE_DEPTH) -> list[tuple[int, int]]:
    return [(width, depth) for width in (64, 128, 256, 512)]


def over_depth() -> list[tuple[int, int]]:
    return [(BASE_WIDTH, m * BASE_DEPTH) for m in (1, 2, 4, 8)]


@pytest.mark.parametrize("optimizer", CHECKS)
def test_over_width_what_training_changes_is_the_same(optimizer: str) -> None:
    for scheme, depth in (("mup", BASE_DEPTH), ("complete-p", 2 * BASE_DEPTH), ("depth-mup", 2 * BASE_DEPTH)):
        assert np.abs(slopes(scheme, optimizer, over_width(depth))).max() < FLAT, scheme
    assert np.abs(slopes("complete-p", optimizer, over_width(BASE_DEPTH), network=ENDS_LINEAR)).max() < FLAT


@pytest.mark.parametrize(
    ("scheme", "optimizer", "expected"),
    [
        # f: n terms of the readout, each moved by its own rate. x: it moves too, at these widths as measured.
        ("sp", "sgd", (0.9, None)),
        ("sp", "adam", (1.0, 0.5)),
        ("sp", "sign", (1.0, 0.7)),
        # lazy: f learns, and x moves by n^(-1/2)
        ("ntk", "sgd", (0.0, -0.5)),
        # at one rate signs move f and x, toward n^(1/2)
        ("ntk", "sign", (0.65, 0.4)),
    ],
)
def test_over_width_without_mup_it_is_not(scheme: str, optimizer: str, expected: tuple[float | None, ...]) -> None:
    found = slopes(scheme, optimizer, over_width(BASE_DEPTH))
    for slope, value in zip(found, expected, strict=True):
        assert value is None or slope == pytest.approx(value, abs=0.15)


def test_over_width_eps_has_to_follow_the_gradient() -> None:
    assert np.abs(slopes("mup", "adam", over_width(BASE_DEPTH))).max() < FLAT
    assert slopes("mup", "adam", over_width(BASE_DEPTH), scaled_eps=False).min() < -0.35  # measured -0.49


@pytest.mark.parametrize("network", [TANH, ENDS_LINEAR], ids=["one layer", "two layers"])
@pytest.mark.parametrize("optimizer", CHECKS)
def test_over_depth_the_change_of_the_features_is_as_the_class_says(optimizer: str, network: Network) -> None:
    blocks = tuple(name for name, role in network.roles.items() if role.startswith("block"))
    rate = 0.1 if optimizer == "sgd" else None  # SGD moves blocks alone by little
    found = {
        scheme: slopes(scheme, optimizer, over_depth(), network, blocks, rate)
        for scheme in ("mup", "sqrt-depth", "depth-mup", Scheme(0.75, 0.25), "complete-p")
    }
    for scheme in ("depth-mup", Scheme(0.75, 0.25), "complete-p"):
        assert np.abs(found[scheme]).max() < FLAT, scheme
    # L aligned updates of size m^-(alpha + gamma) grow as m^(1 - alpha - gamma)
    assert found["sqrt-depth"] == pytest.approx(0.5, abs=FLAT)  # measured 0.46 to 0.52
    assert found["mup"].min() > 0.9  # 1, and more where the features themselves grow: measured 0.99 to 1.20


# The size of each role's gradient at base size: an eps of that size halves the step.
GRADIENTS = {
    "input": 0.012,
    "input-bias": 0.009,
    "block": 0.0032,
    "block-bias": 0.0032,
    "output": 0.5,
    "output-bias": 0.2,
}


@pytest.mark.parametrize("role", ROLES)
def test_each_role_alone_changes_the_output_by_the_same_at_every_size(role: str) -> None:
    """Each entry of the table by itself, with an eps that matters."""
    size = GRADIENTS[role]
    for optimizer, rate in (("sgd", 1e-3 / size), ("adam", None)):
        # at the base depth all schemes with muP's width rules are one
        for scheme, shapes in (
            ("mup", over_width(BASE_DEPTH)[1:]),
            ("depth-mup", over_depth()),
            ("complete-p", over_depth()),
        ):
            of_outputs, _ = slopes(scheme, optimizer, shapes, trained=(role,), rate=rate, eps=size, units=2048)
            assert abs(of_outputs) < FLAT, (scheme, optimizer)


def test_over_depth_only_the_complete_table_covers_eps_and_biases() -> None:
    """The ODE scheme where its missing entries matter: with an eps of the gradient's size, and with SGD on biases."""
    blocks, biases = ("block", "block-bias"), ("block-bias",)
    assert np.abs(slopes("complete-p", "adam", over_depth(), trained=blocks)).max() < FLAT
    assert np.abs(slopes("complete-p", "sgd", over_depth(), trained=biases, rate=0.1)).max() < FLAT
    # between 0, were eps negligible, and -1, were it all: measured -0.64 and -0.59
    assert slopes("ode", "adam", over_depth(), trained=blocks).max() < -0.4
    # gradient and factor each fall as 1/m, and L of them add up
    assert slopes("ode", "sgd", over_depth(), trained=biases, rate=0.1) == pytest.approx(-1.0, abs=FLAT)


# ---- Errors and the report -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mup", "adamw", 1024, None), "base_width: missing; give the width of the model whose settings were tuned"),
        (("complete-p", "adamw", 1024, 256), "base_depth: missing; give the depth of the model whose settings"),
        (("mup", "adamw", 1024, 256, 32), "base_depth: missing; "),
        (("complete-p", "adamw", 1024, 256, None, 8), "depth: missing; give the depth of the model to train"),
        (("mup", "adamw", None, 256), "width: missing; give the width of the model to train"),
        (("completep", "adamw", 1024, 256), "scheme: 'completep' is not known; did you mean 'complete-p'?"),
        (("Depth-muP", "adamw", 1024, 256), "scheme: 'Depth-muP' is not known; did you mean 'depth-mup'?"),
        (("mup", "AdamW", 1024, 256), "optimizer: 'AdamW' is not known; did you mean 'adamw'?"),
        (("mup", "lars", 1024, 256), "optimizer: 'lars' is not known; choose one of sgd, adam, adamw, sign, muon"),
        (("mup", "sgd", 1024, 0), "base_width: 0 is not a size; "),
        (("mup", "sgd", math.nan, 256), "width: nan is not a size; "),
        (("mup", "sgd", math.inf, 256), "width: inf is not a size; "),
        (("mup", "sgd", "1024", 256), "width: '1024' is not a size; "),
        (("mup", "sgd", True, 256), "width: True is not a size; "),
        (("mup", "sgd", 10.5, 256), "width: 10.5 is not a width; give a whole number, at least 1"),
        (("mup", "sgd", 512, 256, 2.5, 2), "depth: 2.5 is not a depth; give a whole number, at least 1"),
        ((None, "sgd", 512, 256), "scheme: missing; name one, or give alpha and gamma"),
        ((None, "sgd", 512, 256, 4, 2, 0.75), "gamma: missing beside alpha; add it; gamma = 1 - alpha = 0.25"),
        ((None, "sgd", 512, 256, 4, 2, None, 0.75), "alpha: missing beside gamma; add it"),
        ((None, "sgd", 512, 256, 4, 2, math.nan, 0.0), "alpha: nan is not an exponent; "),
        ((None, "sgd", 512, 256, 4, 2, 0.5, 50.0), "gamma: 50.0 is not an exponent; give a number from -4 to 4"),
        (("mup", "sgd", 512, 256, 4, 2, 0.5), "alpha: is given beside the scheme 'mup'; keep one of them"),
        (
            ("mup", "sgd", 512, 256, 4, 2, None, None, "coupled"),
            "decay: 'coupled' is not known; choose one of with-rate",
        ),
    ],
)
def test_errors_are_one_line(arguments: tuple, message: str) -> None:
    with pytest.raises(LazyrichError) as caught:
        rules_report(*arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_errors_from_python() -> None:
    for call, message in [
        (lambda: scheme_named("ntp"), "scheme: 'ntp' is not known; did you mean 'ntk'"),
        (lambda: rules("mup", "sgd", (0, 4)), "width: 0 is not a size"),
        (lambda: rules("mup", "sgd", 4), "width: 4 is not a pair of sizes; give (base, target)"),  # pyright: ignore
        (lambda: rule_for("hidden", "mup", "sgd", Growth()), "role: 'hidden' is not known; choose one of input, "),
        (lambda: Growth(width=-2), "width: -2 is not a size"),
        (lambda: Growth(fan_in=0), "fan_in: 0 is not a size"),
        (lambda: Scheme(0.5, 0.5, width="sp"), "width: the width rules 'sp' have no depth rule"),
        (lambda: Scheme("1", 0.0), "alpha: '1' is not an exponent"),  # pyright: ignore
    ]:
        with pytest.raises(LazyrichError) as caught:
            call()
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("scheme", "optimizer", "decay"), CORNERS)
def test_the_report_is_plain_data_and_leaves_no_factor_without_reason_and_source(
    scheme: str, optimizer: str, decay: str
) -> None:
    report = rules_report(scheme, optimizer, 1024, 256, 32, 8, decay=decay)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["width"] == {"base": 256, "target": 1024, "multiplier": 4}
    assert report["depth"] == {"base": 8, "target": 32, "multiplier": 4}
    for rule, entry, row, folded_row in zip(
        rules(scheme, optimizer, (256, 1024), (8, 32), decay),
        report["rules"],
        report["rows"],
        report["folded_rows"],
        strict=True,
    ):
        assert len(row) == len(report["columns"]) == len(folded_row)
        assert row[0] == entry["role"] == rule.role
        assert folded_row[2] == "1"
        why, whence = reasons(rule), sources(rule)
        for quantity, text in zip(QUANTITIES, row[1:], strict=True):
            told = entry["factors"][quantity]
            assert (told["reason"], told["source"]) == (why[quantity], whence[quantity])
            assert len(told["reason"]) > 10 and len(told["source"]) > 10
            assert (told["factor"] is None) == (told["formula"] is None) == (text == "-")
            if told["factor"] is not None:
                assert float(text) == pytest.approx(told["factor"], rel=1e-5)
                # a reason for "no factor" beside a factor, or the reverse, would be a lie
                if quantity == "multiplier":
                    assert (told["reason"] == "no factor is needed") <= (told["formula"] == "1")


def test_the_report_of_any_depth_rule_and_without_depths() -> None:
    report = rules_report(None, "adamw", 1024, 256, 32, 8, alpha=0.75, gamma=0.25)
    assert report["scheme"]["name"] == "alpha = 0.75, gamma = 0.25"
    assert report["depth_class"]["name"] == "feature learning, redundant"
    assert report["rows"][2] == ["block", "0.5", "0.353553", "0.176777", "0.0883883", "5.65685"]
    assert rules_report("mup", "adamw", 1024, 256)["depth"]["multiplier"] == 1.0
