"""What the table of parametrizations means: equivalent forms, classes of depth rules, reasons, and the whole report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import (
    DECAYS,
    OPTIMIZERS,
    QUANTITIES,
    ROLES,
    Monomial,
    Rule,
    Scheme,
    known_name,
    positive_number,
    rules,
    scheme_named,
)

# ---- Equivalent forms ------------------------------------------------------------------------------------------------

# Moving a factor q from the forward pass into a weight multiplies each setting by q to this power: the gradient with
# respect to q W is 1/q times that with respect to W, and each step on q W has to be q times as long.
_MOVING: Mapping[str, Mapping[str, int]] = {
    "sgd": {"init_std": 1, "multiplier": -1, "learning_rate": 2, "eps": 0, "weight_decay": -2},
    "adam": {"init_std": 1, "multiplier": -1, "learning_rate": 1, "eps": -1, "weight_decay": -2},
    "adamw": {"init_std": 1, "multiplier": -1, "learning_rate": 1, "eps": -1, "weight_decay": -1},
    "sign": {"init_std": 1, "multiplier": -1, "learning_rate": 1, "eps": 0, "weight_decay": -1},
    "muon": {"init_std": 1, "multiplier": -1, "learning_rate": 1, "eps": 0, "weight_decay": -1},
}

HOMOGENEOUS = ("linear", "relu", "leaky-relu", "abs")

EQUIVALENCE_HOLDS: Mapping[str, str] = {
    "linear map": "the factor stands directly before or behind the weight's linear map",
    "homogeneous activation": "between them is only an activation with phi(q z) = q phi(z) for q > 0: "
    + ", ".join(HOMOGENEOUS),
    "last map of a block": "a block ends in a linear map: the branch factor moves into that one, whatever is before it",
    "bias inside": "a bias inside the factor moves by the same rule; one outside it stays as it is",
}
EQUIVALENCE_FAILS: Mapping[str, str] = {
    "activation": "between factor and weight is an activation such as tanh or gelu: phi(q z) is not q phi(z)",
    "shared": "the tensor has a second use (tied embeddings) without that factor",
    "global-clipping": "gradients are clipped by their global norm, in which the factor changes each tensor's share",
}


def moving_factors(optimizer: str, q: float, decay: str = "with-rate") -> dict[str, float]:
    """By what each setting is multiplied when a factor q moves from the forward pass into its weight.

    The function and its training stay exactly the same with: std q; SGD rate q^2, decay 1/q^2; Adam rate q, eps 1/q,
    decay 1/q for AdamW and 1/q^2 for L2 in the gradient (``"adam"``); decay independent of the rate 1.
    :data:`EQUIVALENCE_HOLDS` and :data:`EQUIVALENCE_FAILS` say where.
    """
    q = positive_number("q", q)
    return {quantity: float(q**power) for quantity, power in _moving_powers(optimizer, decay).items()}


def _moving_powers(optimizer: str, decay: str) -> dict[str, int]:
    powers = dict(_MOVING[known_name("optimizer", optimizer, OPTIMIZERS)])
    if known_name("decay", decay, DECAYS) == "independent" and optimizer != "adam":
        powers["weight_decay"] = 0
    return powers


def move_factor(
    rule: Rule,
    q: float | Monomial | None = None,
    *,
    activation: str = "linear",
    shared: bool = False,
    global_clipping: bool = False,
) -> Rule:
    """The same model and the same training with a factor `q` moved from the forward pass into the weight.

    Parameters
    ----------
    rule : Rule
        What to rewrite.
    q : float or Monomial, optional
        The factor; ``1/q`` moves it back out. Default: the whole multiplier, so that initialisation and the groups of
        the optimiser alone realise the rule.
    activation : str
        What is between factor and weight. For the branch factor of a one-layer block that is the block's activation. In
        a block that ends in a linear map it is nothing (``"linear"``); move the factor into that last matrix and a bias
        beside it only.
    shared, global_clipping : bool
        Whether the tensor has a second use; whether gradients are clipped by their global norm. Both are refused, as is
        an activation that is not positively homogeneous: the two forms would train differently.
    """
    obstacles = {"activation": activation not in HOMOGENEOUS, "shared": shared, "global-clipping": global_clipping}
    for obstacle, present in obstacles.items():
        if present:
            remedy = "move it into the block's last linear map, or keep" if obstacle == "activation" else "keep"
            raise LazyrichError(obstacle, EQUIVALENCE_FAILS[obstacle], f"{remedy} the factor in the forward pass")
    factor = rule.formulas["multiplier"] if q is None else q
    if not isinstance(factor, Monomial):
        factor = Monomial(constant=positive_number("q", factor))
    powers = _moving_powers(rule.optimizer, rule.decay)
    formulas = {
        quantity: None if formula is None else formula * factor ** powers[quantity]
        for quantity, formula in rule.formulas.items()
    }
    return replace(rule, formulas=formulas, moved=rule.moved * factor)


def effective(rule: Rule) -> dict[str, float | None]:
    """What all equivalent forms of a rule share: its settings with the whole multiplier moved into the weight.

    Equal effective values are one training in two notations; different ones are two trainings.
    """
    return {quantity: factor for quantity, factor in move_factor(rule).factors().items() if quantity != "multiplier"}


# ---- Classes of depth rules ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DepthClass:
    """What becomes of training as depth grows; see :func:`classify`.

    `diversity_exponent` is kappa in ``|x_(l + e L) - x_l| ~ e^(1 - kappa)``: 1/2 if neighbouring layers differ as much
    as they can, 0 if the features are smooth in depth.
    """

    name: str
    diversity_exponent: float | None
    meaning: str


_UNSTABLE = DepthClass("unstable", None, "the features, or their change, grow without bound with depth")
_TRIVIAL = DepthClass("trivial", None, "the change of the features vanishes with depth")
_UNFAITHFUL = DepthClass("unfaithful", None, "a block's own change grows as L^-gamma: it saturates its activation")
_DIVERSE = DepthClass("feature learning, diverse", 0.5, "features change, and neighbouring layers differ")
_REDUNDANT = DepthClass("feature learning, redundant", 0.0, "features change, and neighbouring layers are alike")


def classify(alpha: float, gamma: float) -> DepthClass:
    """The class of a depth rule, for one-layer blocks and a normalised optimiser.

    The first that holds: unstable if ``alpha < 1/2`` or ``alpha + gamma < 1``; trivial if ``alpha + gamma > 1``;
    unfaithful if ``gamma < 0``; diverse if ``alpha = 1/2``; redundant.
    """
    point = Scheme(alpha, gamma)  # refuses what is not an exponent
    rounding = 1e-9
    surplus = point.alpha + point.gamma - 1.0
    if point.alpha < 0.5 - rounding or surplus < -rounding:
        return _UNSTABLE
    if surplus > rounding:
        return _TRIVIAL
    if point.gamma < -rounding:
        return _UNFAITHFUL
    return _DIVERSE if point.alpha < 0.5 + rounding else _REDUNDANT


# ---- Reasons and sources ---------------------------------------------------------------------------------------------

SOURCES: Mapping[str, str] = {
    "practice": "common practice",
    "derived": "derived here",
    "ntk": "Jacot et al. 2018, Neural Tangent Kernel (arXiv:1806.07572)",
    "mup": "Yang et al. 2022, Tensor Programs V (arXiv:2203.03466)",
    "depth": "Yang et al. 2023, Tensor Programs VI (arXiv:2310.02244)",
    "complete-p": "Dey et al. 2025, CompleteP (arXiv:2505.01618)",
    "spectral": "Yang, Simon & Bernstein 2023, A Spectral Condition for Feature Learning (arXiv:2310.17813)",
}

_SGD_RATES = {
    "block": "the gradient carries m^-alpha/fan_out, and fan_in aligned inputs add up; the step is to be m^-gamma",
    "block-bias": "the gradient carries m^-alpha/n; the step is to be m^-gamma",
    "output-bias": "its gradient depends on no size",
}
_ADAM_RATES = {
    "block": "every entry moves by the rate, and fan_in aligned inputs add up; the step is to be m^-gamma",
    "block-bias": "every entry moves by the rate, whatever the width; the step is to be m^-gamma",
}
_MUON_RATE = (
    "all singular values of a step are the rate: on inputs of size sqrt(fan_in) it is to make changes of size "
    "sqrt(fan_out); the step is to be m^-gamma"
)
_MULTIPLIERS = {
    "block": "once per branch: L of them add up as m^(1/2 - alpha) at random, and their steps as m^(1 - alpha - gamma)",
    "block-bias": "it is inside the block and has the block's factor",
    "output": "a trained readout is aligned with the features: n terms of one size add up",
}
_NO_FACTOR = "no factor is needed"


def reasons(rule: Rule) -> dict[str, str]:
    """One sentence for each factor of a rule: why it is what it is."""
    scheme, role = rule.scheme, rule.role
    weight = role in ("input", "block", "output")
    said = {
        "init_std": "biases start at 0 and gains at 1, at every size",
        "multiplier": _MULTIPLIERS.get(role, _NO_FACTOR),
    }
    if weight:
        said["init_std"] = {
            "input": "the number of its inputs does not grow",
            "block": "fan_in independent terms of variance 1/fan_in give a pre-activation of order one",
            "output": "the multiplier carries the whole width dependence",
        }[role]
    if scheme.width == "mup":
        if rule.optimizer == "muon":
            said["learning_rate"] = _MUON_RATE
        elif rule.optimizer == "sgd":
            said["learning_rate"] = _SGD_RATES.get(role, "the gradient falls as 1/n")
        else:
            said["learning_rate"] = _ADAM_RATES.get(role, "every entry moves by the rate, whatever the width")
        said["eps"] = "eps follows the gradient, which falls as 1/n"
        if role.startswith("block"):
            said["eps"] = "eps follows the gradient, which falls as m^-alpha/n"
            if not scheme.complete:
                said["eps"] = "the ODE scheme has no depth rule for eps: too large at depth unless negligible"
                if role == "block-bias":
                    said["learning_rate"] = "the ODE scheme has no depth rule for biases and norm gains"
        if role == "output-bias":
            said["eps"] = "its gradient depends on no size"
    else:
        said["learning_rate"] = "one rate for all"
        said["eps"] = "the scheme has no rule for it"
        if scheme.width == "sp":
            said["multiplier"] = "nothing in the forward pass depends on size"
            if role == "output":
                said["init_std"] = "std 1/sqrt(fan_in), as everywhere"
        elif weight:
            said["init_std"] = "the same std at every size"
            if role != "input":
                said["multiplier"] = "1/sqrt(fan_in) stands in the forward pass instead of in the initialisation"
        elif role == "block-bias":
            said["multiplier"] = "it is outside the factor 1/sqrt(fan_in) of its matrix"
    if rule.eps is None:
        said["eps"] = f"{rule.optimizer} has no eps"
    said["weight_decay"] = (
        "L2 in Adam's gradient has no rule that keeps both its share of the gradient and its shrinkage: use adamw"
        if rule.optimizer == "adam"
        else "a step shrinks W by the decay alone: the same at every size"
        if rule.decay == "independent"
        else "rate x decay, what a step shrinks, stays the same"
    )
    if not weight and rule.optimizer != "adam":
        said["weight_decay"] += "; biases and gains are as a rule not decayed (0 stays 0)"
    if rule.moved != Monomial():
        said["multiplier"] = f"the factor {rule.moved} is in the weight now, and the other settings make up for it"
    return said


def sources(rule: Rule) -> dict[str, str]:
    """Where each factor of a rule is from."""
    scheme, in_block = rule.scheme, rule.role.startswith("block")
    by_width = {"sp": "practice", "ntk": "ntk", "mup": "mup"}[scheme.width]
    deep = scheme.width == "mup" and in_block and (scheme.alpha, scheme.gamma) != (0, 0)
    named = dict.fromkeys(QUANTITIES, by_width)
    if deep:
        named["multiplier"] = named["learning_rate"] = "depth"
        if scheme.complete:
            named["eps"] = "complete-p"
            if rule.role == "block-bias":
                named["learning_rate"] = "complete-p"
    if rule.optimizer == "sgd" and rule.role == "block-bias" and deep:
        named["learning_rate"] = "derived"
    if rule.optimizer == "muon" and scheme.width == "mup":
        named["learning_rate"] = "derived" if scheme.gamma else "spectral"
    published = rule.optimizer == "adamw" and rule.decay == "with-rate" and not (in_block and scheme.gamma)
    named["weight_decay"] = "complete-p" if published else "derived"
    if scheme.width != "mup":
        named["eps"], named["weight_decay"] = "practice", "derived"
    return {quantity: SOURCES[key] for quantity, key in named.items()}


# ---- The report ------------------------------------------------------------------------------------------------------

NOT_COVERED = (
    "batch size, number of steps, schedule and warm-up, momentum and betas: nothing here says how they scale",
    "attention logits: use 1/head dimension instead of its square root where the head dimension grows",
    "tied embeddings, gradient clipping by the global norm, optimisers that rescale per tensor (LARS, LAMB)",
    "what a Muon library does to the rate by itself (factors of the matrix's shape): take it out before using the rule",
    "layers that do not grow in proportion to the width: rule_for takes each matrix's own fan_in and fan_out",
)
DISAGREEMENTS = (
    "one eps factor for all parameters, or one per role (here: per role)",
    "AdamW decay of the blocks times n, or times n m^gamma (here: the latter, which keeps rate x decay; for CompleteP "
    "they are the same)",
    "the 1/sqrt(2 depth) initialisation of GPT-2 kept, and a branch factor that makes up for it (here: not kept)",
    "a factor 1/sqrt(depth) on SGD's rate too (here: m^(alpha - gamma))",
    "a recipe called depth_mup that has alpha = 1 (here: complete-p)",
)
_COLUMNS = {
    "init_std": "init std",
    "multiplier": "multiplier",
    "learning_rate": "learning rate",
    "eps": "eps",
    "weight_decay": "weight decay",
}


def rules_report(
    scheme: str | None,
    optimizer: str,
    width: float | None,
    base_width: float | None,
    depth: float | None = None,
    base_depth: float | None = None,
    alpha: float | None = None,
    gamma: float | None = None,
    decay: str = "with-rate",
) -> dict[str, Any]:
    """Everything that ``lazyrich rules`` prints, as plain data for JSON.

    ``columns`` and ``rows`` are the table as text; ``rules`` has every factor with formula, reason and source.
    ``folded_rows``, and ``folded`` of each rule, have every multiplier moved into the weights: what all equivalent
    forms share, and what a model needs whose forward pass cannot be changed.

    Parameters
    ----------
    scheme : str, optional
        A key of ``SCHEMES``; None beside `alpha` and `gamma`.
    optimizer : str
        A key of ``OPTIMIZERS``.
    width, base_width, depth, base_depth : int
        Sizes of the model to train, and of the one on which the settings were tuned. Depths may be left out where the
        scheme has no depth rule.
    alpha, gamma : float, optional
        Any depth rule.
    decay : str
        A key of ``DECAYS``.
    """
    chosen = _chosen(scheme, alpha, gamma)
    wide = _sizes("width", width, base_width)
    if depth is None and base_depth is None and chosen.alpha == chosen.gamma == 0:
        deep = (1.0, 1.0)
    else:
        deep = _sizes("depth", depth, base_depth)
    found = rules(chosen, optimizer, wide, deep, decay)
    folded = [move_factor(rule) for rule in found]
    return {
        "scheme": {key: getattr(chosen, key) for key in ("name", "title", "alpha", "gamma", "note")},
        "depth_class": asdict(classify(chosen.alpha, chosen.gamma)),
        "optimizer": optimizer,
        "decay": decay,
        "decay_meaning": DECAYS[decay],
        "width": {"base": wide[0], "target": wide[1], "multiplier": wide[1] / wide[0]},
        "depth": {"base": deep[0], "target": deep[1], "multiplier": deep[1] / deep[0]},
        "columns": ["role", *_COLUMNS.values()],
        "rows": [_row(rule) for rule in found],
        "folded_rows": [_row(rule) for rule in folded],
        "rules": [_described(rule, equivalent) for rule, equivalent in zip(found, folded, strict=True)],
        "equivalence_holds": dict(EQUIVALENCE_HOLDS),
        "equivalence_fails": dict(EQUIVALENCE_FAILS),
        "not_covered": list(NOT_COVERED),
        "disagreements": list(DISAGREEMENTS),
    }


def _chosen(scheme: str | None, alpha: float | None, gamma: float | None) -> Scheme:
    if scheme is not None:
        for key, value in (("alpha", alpha), ("gamma", gamma)):
            if value is not None:
                raise LazyrichError(key, f"is given beside the scheme {scheme!r}", "keep one of them")
        return scheme_named(scheme)
    if alpha is None and gamma is None:
        raise LazyrichError("scheme", "missing", "name one, or give alpha and gamma")
    if gamma is None:
        assert alpha is not None
        alpha = Scheme(alpha, 0.0).alpha
        raise LazyrichError(
            "gamma",
            "missing beside alpha",
            f"add it; gamma = 1 - alpha = {1 - alpha:g} lets features learn at any depth",
        )
    if alpha is None:
        raise LazyrichError("alpha", "missing beside gamma", "add it")
    return Scheme(alpha, gamma)


def _sizes(name: str, target: float | None, base: float | None) -> tuple[float, float]:
    """(base, target), both given: without a base nothing can be scaled, and nothing is what one would get silently."""
    if base is None:
        raise LazyrichError(
            f"base_{name}",
            "missing",
            f"give the {name} of the model whose settings were tuned: rules are relative to it",
        )
    if target is None:
        raise LazyrichError(name, "missing", f"give the {name} of the model to train")
    for where, size in ((f"base_{name}", base), (name, target)):
        if positive_number(where, size) != int(size) or size < 1:
            raise LazyrichError(where, f"{size!r} is not a {name}", "give a whole number, at least 1")
    return float(base), float(target)


def _row(rule: Rule) -> list[str]:
    return [rule.role, *("-" if factor is None else f"{factor:.6g}" for factor in rule.factors().values())]


def _described(rule: Rule, folded: Rule) -> dict[str, Any]:
    why, whence = reasons(rule), sources(rule)
    return {
        "role": rule.role,
        "meaning": ROLES[rule.role],
        "factors": {
            quantity: {
                "factor": factor,
                "formula": None if rule.formulas[quantity] is None else str(rule.formulas[quantity]),
                "reason": why[quantity],
                "source": whence[quantity],
            }
            for quantity, factor in rule.factors().items()
        },
        "folded": {
            quantity: {"factor": factor, "formula": None if factor is None else str(folded.formulas[quantity])}
            for quantity, factor in folded.factors().items()
        },
    }
