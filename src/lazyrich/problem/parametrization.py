"""The one table of parametrizations: what changes, and by how much, when a tuned model grows in width and depth.

A model is tuned at a base size. At a target size, n times as wide and m times as deep, every quantity of every role is
the base model's value times a factor, and that factor is a monomial in n, m, fan_in and fan_out. For the network ::

    x_0 = W_in xi,   x_l = x_(l-1) + a m^-alpha phi(W_l x_(l-1) + b_l),  l = 1..L,   f = (1/n) W_out x_L

with the gradients of a batch-mean loss and the width rules of muP, the table is

| role | init std | forward factor | SGD rate | Adam rate | Adam eps |
|---|---|---|---|---|---|
| input | 1 | 1 | n | 1 | 1/n |
| block | fan_in^-1/2 | m^-alpha | (fan_out/fan_in) m^(alpha-gamma) | m^-gamma / fan_in | m^-alpha / n |
| block bias, norm gain | 1 | m^-alpha (the block's) | n m^(alpha-gamma) | m^-gamma | m^-alpha / n |
| output | 1 | 1/n | n | 1 | 1/n |

and weight decay keeps its shrinkage per step. Here n, m, fan_in and fan_out are ratios of target to base, so that at
the base size every factor is exactly 1. (alpha, gamma) sets the depth rule: alpha is the exponent of the branch factor,
gamma that of the normalised rate. L independent branches at initialisation need alpha >= 1/2; L aligned updates need
alpha + gamma = 1.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from lazyrich.errors import LazyrichError

QUANTITIES = ("init_std", "multiplier", "learning_rate", "eps", "weight_decay")

ROLES: Mapping[str, str] = {
    "input": "input weights, token and position embeddings",
    "input-bias": "bias of the input layer; gain and bias of a norm outside the blocks, the last one too",
    "block": "weight matrices inside the blocks",
    "block-bias": "biases inside the blocks; gain and bias of the norms inside them",
    "output": "readout weights",
    "output-bias": "bias of the readout, outside its forward factor",
}

OPTIMIZERS: Mapping[str, str] = {
    "sgd": "SGD, with or without momentum; decay as in torch.optim.SGD, step = rate x (gradient + decay x W)",
    "adam": "Adam without weight decay",
    "adamw": "AdamW, eps outside the square root",
    "sign": "sign descent and its kin (Lion): the rates of Adam and no eps; decay as in AdamW",
}

DECAYS: Mapping[str, str] = {
    "with-rate": "the step shrinks W by rate x decay x W, as torch.optim.SGD and AdamW do",
    "independent": "the step shrinks W by decay x W, whatever the rate",
}

_CITATIONS: Mapping[str, str] = {
    "ntk": "Jacot et al. 2018, Neural Tangent Kernel (arXiv:1806.07572)",
    "mup": "Yang et al. 2022, Tensor Programs V (arXiv:2203.03466)",
    "depth-mup": "Yang et al. 2023, Tensor Programs VI (arXiv:2310.02244)",
    "sqrt-depth": "Bordelon et al. 2023, Depthwise Hyperparameter Transfer (arXiv:2309.16620)",
    "ode": "Bordelon et al. 2024, Infinite Limits of Multi-head Transformer Dynamics (arXiv:2405.15712)",
    "complete-p": "Dey et al. 2025, CompleteP (arXiv:2505.01618)",
    "sp": "common practice",
    "derived": "derived, and tested by training, in lazyrich",
}


@dataclass(frozen=True)
class Growth:
    """How much larger the target is than the base: ratios, 1 for equal.

    Attributes
    ----------
    width, depth : float
        n and m.
    fan_in, fan_out : float, optional
        Ratios of one block matrix's own sizes. Default: the width's. Give them where a layer inside the blocks does
        not grow in proportion to the width.
    """

    width: float = 1.0
    depth: float = 1.0
    fan_in: float | None = None
    fan_out: float | None = None

    def __post_init__(self) -> None:
        for name in ("width", "depth", "fan_in", "fan_out"):
            ratio = getattr(self, name)
            if ratio is not None and not _positive(ratio):
                raise LazyrichError(name, f"{ratio!r} is not a ratio of sizes", "give a positive number")

    @classmethod
    def between(cls, width: tuple[float, float], depth: tuple[float, float] = (1, 1)) -> Growth:
        """The growth from base to target, each given as ``(base, target)``."""
        return cls(_ratio("width", width), _ratio("depth", depth))


@dataclass(frozen=True)
class Monomial:
    """``constant n^a m^b fan_in^c fan_out^d``: one entry of the table. At base size it is `constant`, exactly."""

    constant: float = 1.0
    n: float = 0.0
    m: float = 0.0
    fan_in: float = 0.0
    fan_out: float = 0.0

    def at(self, growth: Growth) -> float:
        """The factor at some growth."""
        fan_in = growth.width if growth.fan_in is None else growth.fan_in
        fan_out = growth.width if growth.fan_out is None else growth.fan_out
        powers = (growth.width**self.n, growth.depth**self.m, fan_in**self.fan_in, fan_out**self.fan_out)
        return self.constant * math.prod(float(power) for power in powers)

    def __mul__(self, other: Monomial) -> Monomial:
        return Monomial(
            self.constant * other.constant,
            self.n + other.n,
            self.m + other.m,
            self.fan_in + other.fan_in,
            self.fan_out + other.fan_out,
        )

    def __pow__(self, power: float) -> Monomial:
        exponents = (power * exponent for exponent in (self.n, self.m, self.fan_in, self.fan_out))
        return Monomial(self.constant**power, *exponents)

    def __truediv__(self, other: Monomial) -> Monomial:
        return self * other**-1

    def __str__(self) -> str:
        parts = [] if self.constant == 1.0 else [f"{self.constant:.6g}"]
        for name in ("fan_out", "fan_in", "n", "m"):
            exponent = Fraction(getattr(self, name)).limit_denominator(12)
            text = str(exponent)
            if abs(float(exponent) - getattr(self, name)) > 1e-9:
                text = f"{getattr(self, name):.4g}"
            if text != "0":
                parts.append(name if text == "1" else f"{name}^({text})" if "/" in text else f"{name}^{text}")
        return " ".join(parts) or "1"


@dataclass(frozen=True)
class Scheme:
    """A parametrization: a width rule, and the exponents (alpha, gamma) of the depth rule.

    ``Scheme(alpha=0.75, gamma=0.25)`` is any point of the plane with the width rules of muP and the complete table;
    :func:`scheme_named` gives the ones that have names.

    Attributes
    ----------
    alpha : float
        The branch factor falls as ``m^-alpha``.
    gamma : float
        The normalised rate of the blocks (Adam's, and SGD's for a gradient of unit size) falls as ``m^-gamma``.
    name, title : str
        As on the command line, and as in the papers.
    width : str
        ``"mup"``, ``"sp"`` or ``"ntk"``.
    complete : bool
        Whether depth also enters eps and the rates of biases and norm gains. Only the ODE scheme leaves that out.
    note : str
        What else one should know.
    """

    alpha: float
    gamma: float
    name: str = ""
    title: str = ""
    width: str = "mup"
    complete: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        for key in ("alpha", "gamma"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise LazyrichError(key, f"{value!r} is not an exponent", "give a finite number, such as 0.5")
        if not self.name:
            object.__setattr__(self, "name", f"alpha={self.alpha:g}, gamma={self.gamma:g}")
        if not self.title:
            object.__setattr__(self, "title", self.name)


SCHEMES: Mapping[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            0.0,
            0.0,
            name="sp",
            title="SP, standard parametrization",
            width="sp",
            note="Features move by more in wider networks: the best rate falls with width.",
        ),
        Scheme(
            0.0,
            0.0,
            name="ntk",
            title="NTK parametrization",
            width="ntk",
            note="With SGD features move less in wider networks (lazy); with Adam and one rate they move by more.",
        ),
        Scheme(0.0, 0.0, name="mup", title="muP", note="A rule for width only: the best rate falls with depth."),
        Scheme(
            0.5,
            0.0,
            name="sqrt-depth",
            title="1/sqrt(depth) branches, block only",
            note="With SGD and the block rate left alone instead of m^(1/2), this is Depth-muP.",
        ),
        Scheme(0.5, 0.5, name="depth-mup", title="Depth-muP"),
        Scheme(
            1.0,
            0.0,
            name="ode",
            title="ODE",
            complete=False,
            note="Depth enters branch factor and block rates only; CompleteP adds eps, biases and norm gains.",
        ),
        Scheme(1.0, 0.0, name="complete-p", title="CompleteP"),
    )
}


@dataclass(frozen=True)
class DepthClass:
    """What a network of growing depth does under (alpha, gamma); see :func:`classify`."""

    name: str
    stable: bool
    feature_learning: bool
    faithful: bool
    diversity_exponent: float | None
    meaning: str


_UNSTABLE = DepthClass("unstable", False, False, False, None, "features or their change grow with depth.")
_TRIVIAL = DepthClass("trivial", True, False, True, None, "the change of the features vanishes with depth.")
_UNFAITHFUL = DepthClass(
    "unfaithful", True, True, False, None, "each block's own change grows as L^-gamma: its linearisation fails."
)
_DIVERSE = DepthClass(
    "feature learning, diverse", True, True, True, 0.5, "features change, and differ between neighbouring layers."
)
_REDUNDANT = DepthClass(
    "feature learning, redundant", True, True, True, 0.0, "features change, and neighbouring layers are alike."
)


def classify(alpha: float, gamma: float) -> DepthClass:
    """The class of a depth rule, for one-layer blocks trained by a normalised optimiser.

    In this order: unstable if ``alpha < 1/2`` or ``alpha + gamma < 1``; trivial if ``alpha + gamma > 1``; unfaithful if
    ``gamma < 0``; diverse if ``alpha = 1/2``; else redundant.
    """
    exact = Scheme(alpha, gamma)  # refuses what is not a number
    tolerance = 1e-9
    total = exact.alpha + exact.gamma - 1.0
    if exact.alpha < 0.5 - tolerance or total < -tolerance:
        return _UNSTABLE
    if total > tolerance:
        # A trivial scheme's blocks can still be changed too much each, by changes that cancel in the branch factor.
        return replace(_TRIVIAL, faithful=exact.gamma >= -tolerance)
    if exact.gamma < -tolerance:
        return _UNFAITHFUL
    return _DIVERSE if exact.alpha <= 0.5 + tolerance else _REDUNDANT


@dataclass(frozen=True)
class Rule:
    """What becomes of one role's settings: factors on the base model's values. All are 1 at base size.

    Attributes
    ----------
    role, optimizer, decay : str
        A key of :data:`ROLES`, :data:`OPTIMIZERS`, :data:`DECAYS`.
    growth : Growth
        From base to target.
    formulas : dict
        For each of :data:`QUANTITIES`, the factor as a monomial, or None where the optimiser has no such setting.
    reasons, sources : dict
        For each of these, one sentence why, and where it is from.
    """

    role: str
    optimizer: str
    decay: str
    growth: Growth
    formulas: Mapping[str, Monomial | None]
    reasons: Mapping[str, str]
    sources: Mapping[str, str]

    def _factor(self, quantity: str) -> float | None:
        formula = self.formulas[quantity]
        return None if formula is None else formula.at(self.growth)

    def _certain(self, quantity: str) -> float:
        factor = self._factor(quantity)
        assert factor is not None  # init_std, multiplier and learning_rate exist for every optimiser
        return factor

    @property
    def init_std(self) -> float:
        """Factor on the standard deviation at initialisation."""
        return self._certain("init_std")

    @property
    def multiplier(self) -> float:
        """Factor in the forward pass."""
        return self._certain("multiplier")

    @property
    def learning_rate(self) -> float:
        """Factor on the learning rate."""
        return self._certain("learning_rate")

    @property
    def eps(self) -> float | None:
        """Factor on Adam's eps."""
        return self._factor("eps")

    @property
    def weight_decay(self) -> float | None:
        """Factor on weight decay. Biases and gains are as a rule not decayed; it applies where the base does."""
        return self._factor("weight_decay")

    def factors(self) -> dict[str, float | None]:
        """All factors."""
        return {quantity: self._factor(quantity) for quantity in QUANTITIES}

    def scaled(self, **base: float) -> dict[str, float]:
        """The target's values from the base model's, e.g. ``rule.scaled(learning_rate=1e-3, init_std=0.02)``."""
        values = {}
        for quantity, value in base.items():
            known_name("quantity", quantity, QUANTITIES)
            factor = self._factor(quantity)
            if factor is None:
                raise LazyrichError(quantity, self.reasons[quantity].rstrip("."), "leave it out")
            values[quantity] = value * factor
        return values


def rules(
    scheme: str | Scheme,
    optimizer: str,
    width: tuple[float, float],
    depth: tuple[float, float] = (1, 1),
    decay: str = "with-rate",
) -> list[Rule]:
    """The rules of all roles.

    Parameters
    ----------
    scheme : str or Scheme
        A key of :data:`SCHEMES`, or ``Scheme(alpha=.., gamma=..)``.
    optimizer : str
        A key of :data:`OPTIMIZERS`.
    width, depth : (base, target)
        Sizes of the tuned model and of the one to train.
    decay : str
        A key of :data:`DECAYS`: how the optimiser applies weight decay.

    Examples
    --------
    >>> block = rules("complete-p", "adamw", width=(256, 1024), depth=(8, 32))[2]
    >>> block.role, block.multiplier, block.learning_rate, block.eps, block.weight_decay
    ('block', 0.25, 0.25, 0.0625, 4.0)
    """
    growth = Growth.between(width, depth)
    return [rule_for(role, scheme, optimizer, growth, decay) for role in ROLES]


def rule_for(
    role: str, scheme: str | Scheme, optimizer: str, growth: Growth, decay: str = "with-rate"
) -> Rule:
    """The rule of one role, or of one tensor of it where `growth` names its own fan_in and fan_out."""
    from lazyrich.problem.rules import explain

    scheme = scheme_named(scheme) if isinstance(scheme, str) else scheme
    known_name("role", role, ROLES)
    known_name("optimizer", optimizer, OPTIMIZERS)
    known_name("decay", decay, DECAYS)
    entry = _TABLES[scheme.width](scheme)[role]
    rate = entry["sgd" if optimizer == "sgd" else "adam"]
    formulas: dict[str, Monomial | None] = {
        "init_std": entry["init_std"],
        "multiplier": entry["multiplier"],
        "learning_rate": rate,
        "eps": entry["eps"] if optimizer in ("adam", "adamw") else None,
        # The shrinkage per step is rate x decay, or decay alone; either way it is the base's.
        "weight_decay": None if optimizer == "adam" else _ONE if decay == "independent" else _ONE / rate,
    }
    reasons, sources = explain(role, scheme, optimizer, decay)
    return Rule(role, optimizer, decay, growth, formulas, reasons, sources)


def scheme_named(name: str) -> Scheme:
    """One of :data:`SCHEMES`; any other name is an error that names the nearest."""
    return SCHEMES[known_name("scheme", name, SCHEMES)]


_ONE = Monomial()
_N, _M, _IN, _OUT = Monomial(n=1.0), Monomial(m=1.0), Monomial(fan_in=1.0), Monomial(fan_out=1.0)


def _entry(
    init_std: Monomial = _ONE,
    multiplier: Monomial = _ONE,
    sgd: Monomial = _ONE,
    adam: Monomial = _ONE,
    eps: Monomial = _ONE,
) -> dict[str, Monomial]:
    return {"init_std": init_std, "multiplier": multiplier, "sgd": sgd, "adam": adam, "eps": eps}


def _mup(scheme: Scheme) -> dict[str, dict[str, Monomial]]:
    """The table at the head of this module."""
    branch, sgd_depth, adam_depth = _M**-scheme.alpha, _M ** (scheme.alpha - scheme.gamma), _M**-scheme.gamma
    # What the ODE scheme leaves to CompleteP: depth in eps, and in the rates of biases and gains.
    eps_depth, bias_sgd, bias_adam = (branch, sgd_depth, adam_depth) if scheme.complete else (_ONE, _ONE, _ONE)
    vector = _entry(sgd=_N, eps=_ONE / _N)
    return {
        "input": vector,
        "input-bias": vector,
        "block": _entry(_IN**-0.5, branch, _OUT / _IN * sgd_depth, adam_depth / _IN, eps_depth / _N),
        "block-bias": _entry(_ONE, branch, _N * bias_sgd, bias_adam, eps_depth / _N),
        "output": _entry(_ONE, _ONE / _N, _N, _ONE, _ONE / _N),
        "output-bias": _entry(),
    }


def _sp(scheme: Scheme) -> dict[str, dict[str, Monomial]]:
    """Weights of std 1/sqrt(fan_in), nothing in the forward pass, one rate."""
    del scheme
    return {role: _entry() for role in ROLES} | {"block": _entry(_IN**-0.5), "output": _entry(_N**-0.5)}


def _ntk(scheme: Scheme) -> dict[str, dict[str, Monomial]]:
    """Weights of std 1 with 1/sqrt(fan_in) in the forward pass, one rate; biases outside that factor."""
    del scheme
    return {role: _entry() for role in ROLES} | {
        "block": _entry(multiplier=_IN**-0.5),
        "output": _entry(multiplier=_N**-0.5),
    }


_TABLES = {"mup": _mup, "sp": _sp, "ntk": _ntk}


# ---- Equivalent forms ------------------------------------------------------------------------------------------------

# Moving a factor q from the forward pass into a weight multiplies each setting by q to this power. The gradient with
# respect to the new weight q W is 1/q times the old one; SGD's step must become q times as long, and so on.
_MOVING: Mapping[str, Mapping[str, float]] = {
    "sgd": {"init_std": 1, "multiplier": -1, "learning_rate": 2, "weight_decay": -2},
    "adam": {"init_std": 1, "multiplier": -1, "learning_rate": 1, "eps": -1, "weight_decay": -2},
    "adamw": {"init_std": 1, "multiplier": -1, "learning_rate": 1, "eps": -1, "weight_decay": -1},
    "sign": {"init_std": 1, "multiplier": -1, "learning_rate": 1, "weight_decay": -1},
}

HOMOGENEOUS = ("linear", "relu", "leaky-relu", "abs")

EQUIVALENCE_HOLDS: Mapping[str, str] = {
    "linear map": "the factor stands directly before or after the weight's linear map",
    "homogeneous activation": f"only an activation with phi(q z) = q phi(z), q > 0, is between: {', '.join(HOMOGENEOUS)}",
    "block's last matrix": "a block ends in a linear map: the branch factor moves into that matrix, whatever is before",
    "bias inside": "a bias inside the factor moves by the same rule; one outside stays as it is",
}
EQUIVALENCE_FAILS: Mapping[str, str] = {
    "activation": "an activation that is not positively homogeneous (tanh, gelu) is between factor and weight: "
    "phi(q z) is not q phi(z)",
    "shared": "the tensor is shared (tied embeddings): its other use has no factor to move",
    "global-clipping": "gradients are clipped by their global norm: moving factors changes each tensor's share of it",
}


def moving_factors(optimizer: str, q: float, decay: str = "with-rate") -> dict[str, float]:
    """By what each setting is multiplied when a factor q moves from the forward pass into its weight.

    Same function and same training, exactly: std q; SGD rate q^2, decay 1/q^2; Adam rate q, eps 1/q, decay 1/q as in
    AdamW or 1/q^2 as L2 in the gradient of ``"adam"``; independent decay 1. See :data:`EQUIVALENCE_HOLDS` and
    :data:`EQUIVALENCE_FAILS`.
    """
    known_name("optimizer", optimizer, OPTIMIZERS)
    known_name("decay", decay, DECAYS)
    powers = dict(_MOVING[optimizer])
    if decay == "independent" and optimizer != "adam":
        powers["weight_decay"] = 0
    return {quantity: (Monomial(constant=_checked_factor(q)) ** power).constant for quantity, power in powers.items()}


def move_factor(
    rule: Rule,
    q: float | Monomial | None = None,
    *,
    activation: str = "linear",
    shared: bool = False,
    global_clipping: bool = False,
) -> Rule:
    """The same model and the same training, with a factor `q` moved from the forward pass into the weight.

    Parameters
    ----------
    rule : Rule
        What to rewrite.
    q : float or Monomial, optional
        The factor; ``1/q`` moves it back out. Default: all of `rule`'s multiplier, so that initialisation and optimiser
        groups alone realise the rule.
    activation : str
        What is between factor and weight. The branch factor of a one-layer block has the block's activation there; a
        block that ends in a linear map has nothing: the factor moves into that last matrix (and a bias beside it) only.
    shared, global_clipping : bool
        Whether the tensor has another use; whether gradients are clipped by their global norm. Both are refused, as is
        an activation that is not positively homogeneous: the two forms would train differently.
    """
    if activation not in HOMOGENEOUS:
        raise LazyrichError(
            "activation", EQUIVALENCE_FAILS["activation"], "move the factor into the block's last linear map, or leave it"
        )
    if shared:
        raise LazyrichError("shared", EQUIVALENCE_FAILS["shared"], "keep the factor in the forward pass")
    if global_clipping:
        raise LazyrichError("clipping", EQUIVALENCE_FAILS["global-clipping"], "keep the factor in the forward pass")
    moved = rule.formulas["multiplier"] if q is None else q
    if not isinstance(moved, Monomial):
        moved = Monomial(constant=_checked_factor(moved))
    powers = dict(_MOVING[rule.optimizer])
    if rule.decay == "independent":
        powers["weight_decay"] = 0
    formulas = {
        quantity: None if formula is None else formula * moved ** powers.get(quantity, 0)
        for quantity, formula in rule.formulas.items()
    }
    return replace(rule, formulas=formulas)


def effective(rule: Rule) -> dict[str, float | None]:
    """What all equivalent forms of a rule share: its settings with the whole factor moved into the weight.

    Two rules with equal effective values are the same training in two notations; two that differ are not.
    """
    return {quantity: value for quantity, value in move_factor(rule).factors().items() if quantity != "multiplier"}


# ---- Checks ----------------------------------------------------------------------------------------------------------


def known_name(where: str, name: object, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """`name`, if it is one of `known`; else an error that names the nearest."""
    if isinstance(name, str) and name in known:
        return name
    near = difflib.get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}"
    raise LazyrichError(where, f"{name!r} is not known", remedy)


def _positive(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    )


def _checked_factor(q: float) -> float:
    if not _positive(q):
        raise LazyrichError("q", f"{q!r} is not a factor that can be moved", "give a positive number")
    return float(q)


def _ratio(where: str, sizes: object) -> float:
    if not isinstance(sizes, tuple | list) or len(sizes) != 2 or not all(map(_positive, sizes)):
        raise LazyrichError(where, f"{sizes!r} is not a pair of sizes", "give (base, target), two positive numbers")
    return float(sizes[1] / sizes[0])
