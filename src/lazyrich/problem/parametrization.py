"""The one table of parametrizations: what changes, and by how much, when a tuned model grows in width and depth.

A model is tuned at a base size. At a target size, n times as wide and m times as deep, each setting of each role is the
base model's times a factor, and that factor is a monomial in n, m, fan_in and fan_out. For the network ::

    x_0 = W_in xi,   x_l = x_(l-1) + a m^-alpha phi(W_l x_(l-1) + b_l),  l = 1..L,   f = (1/n) W_out x_L

with the gradients of a batch-mean loss and the width rules of muP, the table is ::

    role              init std      multiplier  SGD rate                          Adam rate         Adam eps
    input             1             1           n                                 1                 1/n
    block             fan_in^-1/2   m^-alpha    (fan_out/fan_in) m^(alpha-gamma)  m^-gamma/fan_in   m^-alpha/n
    bias, norm gain   1             m^-alpha    n m^(alpha-gamma)                 m^-gamma          m^-alpha/n
    output            1             1/n         n                                 1                 1/n

and weight decay keeps its shrinkage per step. Muon moves block matrices by orthogonal matrices (all singular values
1): their rate is ``(fan_out/fan_in)^(1/2) m^-gamma``; everything else is AdamW's then. n, m, fan_in and fan_out are
ratios of target to base: at the base size every factor is exactly 1. The depth rule is (alpha, gamma), the exponents of
the branch factor and of the normalised rate: L independent branches at initialisation need ``alpha >= 1/2``; L aligned
updates need ``alpha + gamma = 1``.

:mod:`lazyrich.problem.rules` has the table's meaning: reasons, sources, equivalent forms, classes of (alpha, gamma).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from lazyrich.errors import LazyrichError

QUANTITIES = ("init_std", "multiplier", "learning_rate", "eps", "weight_decay")

ROLES: Mapping[str, str] = {
    "input": "weights of the input layer, token and position embeddings",
    "input-bias": "bias of the input layer; gain and bias of a norm outside the blocks, such as the last one",
    "block": "weight matrices inside the blocks",
    "block-bias": "biases inside the blocks; gains and biases of the norms inside them",
    "output": "weights of the readout",
    "output-bias": "bias of the readout, outside its multiplier",
}

OPTIMIZERS: Mapping[str, str] = {
    "sgd": "SGD, with or without momentum",
    "adam": "Adam without weight decay",
    "adamw": "AdamW",
    "sign": "sign descent, Lion",
    "muon": "Muon on the block matrices, AdamW on everything else",
}

DECAYS: Mapping[str, str] = {
    "with-rate": "a step shrinks W by rate x decay x W, as torch.optim.SGD and torch.optim.AdamW do",
    "independent": "a step shrinks W by decay x W, whatever the rate",
}

_LARGEST = 1e12  # of sizes, ratios and factors; with exponents of at most 4 no entry can overflow
_STEEPEST = 4.0


@dataclass(frozen=True)
class Growth:
    """How much larger the target is than the base, as ratios.

    Attributes
    ----------
    width, depth : float
        n and m.
    fan_in, fan_out : float, optional
        Ratios of one block matrix's own sizes. Default: the width's. Give them where a layer inside the blocks does not
        grow in proportion to the width.
    """

    width: float = 1.0
    depth: float = 1.0
    fan_in: float | None = None
    fan_out: float | None = None

    def __post_init__(self) -> None:
        for name in ("width", "depth", "fan_in", "fan_out"):
            ratio = getattr(self, name)
            if ratio is None and name.startswith("fan"):
                ratio = self.width
            object.__setattr__(self, name, positive_number(name, ratio))

    @classmethod
    def between(cls, width: tuple[float, float], depth: tuple[float, float] = (1, 1)) -> Growth:
        """The growth from base to target, each size given as ``(base, target)``."""
        ratios = []
        for name, sizes in (("width", width), ("depth", depth)):
            if not isinstance(sizes, tuple | list) or len(sizes) != 2:
                raise LazyrichError(name, f"{sizes!r} is not a pair of sizes", "give (base, target)")
            base, target = (positive_number(name, size) for size in sizes)
            ratios.append(target / base)
        return cls(*ratios)


@dataclass(frozen=True)
class Monomial:
    """One entry of the table, ``constant n^a m^b fan_in^c fan_out^d``. At the base size it is `constant`, exactly."""

    constant: float = 1.0
    n: float = 0.0
    m: float = 0.0
    fan_in: float = 0.0
    fan_out: float = 0.0

    def at(self, growth: Growth) -> float:
        """The factor for some growth."""
        bases = {"n": growth.width, "m": growth.depth, "fan_in": growth.fan_in, "fan_out": growth.fan_out}
        return self.constant * math.prod(float(base) ** getattr(self, name) for name, base in bases.items() if base)

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
        """Such as ``fan_in^-1 m^(-1/2)``."""
        parts = [] if self.constant == 1.0 else [f"{self.constant:.6g}"]
        for name in ("fan_out", "fan_in", "n", "m"):
            exponent = getattr(self, name)
            fraction = Fraction(exponent).limit_denominator(12)
            text = str(fraction) if abs(float(fraction) - exponent) < 1e-9 else f"{exponent:.4g}"
            if text != "0":
                parts.append(name if text == "1" else f"{name}^({text})" if "/" in text else f"{name}^{text}")
        return " ".join(parts) or "1"


@dataclass(frozen=True)
class Scheme:
    """A parametrization: a width rule, and the exponents (alpha, gamma) of the depth rule.

    ``Scheme(alpha=0.75, gamma=0.25)`` is any point of the plane, with the width rules of muP; :func:`scheme_named`
    gives the ones that have names.

    Attributes
    ----------
    alpha : float
        The branch multiplier falls as ``m^-alpha``.
    gamma : float
        The normalised rate of the blocks (Adam's; SGD's for a gradient of unit size) falls as ``m^-gamma``.
    name, title : str
        As on the command line, and as in the papers.
    width : str
        ``"mup"``, ``"sp"`` or ``"ntk"``. The last two have no depth rule.
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
        known_name("width", self.width, _TABLES)
        for key in ("alpha", "gamma"):
            value = getattr(self, key)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not abs(value) <= _STEEPEST:
                raise LazyrichError(
                    key, f"{value!r} is not an exponent", f"give a number from {-_STEEPEST:g} to {_STEEPEST:g}"
                )
        if self.width != "mup" and (self.alpha or self.gamma):
            raise LazyrichError("width", f"the width rules {self.width!r} have no depth rule", "set alpha = gamma = 0")
        point = f"alpha = {self.alpha:g}, gamma = {self.gamma:g}"
        object.__setattr__(self, "name", self.name or point)
        object.__setattr__(self, "title", self.title or point)


@dataclass(frozen=True)
class Rule:
    """What becomes of one role's settings: factors on the base model's values, all 1 at the base size.

    Attributes
    ----------
    role : str
        A key of :data:`ROLES`.
    init_std, multiplier, learning_rate : float
        Factor on the standard deviation at initialisation; in the forward pass; on the rate. With the width rules of
        muP and SP the blocks' multiplier is the branch's, once per block; with those of NTK it is each matrix's.
    eps, weight_decay : float or None
        Factor on Adam's eps; on weight decay, as far as the base model decays this role (biases and gains: as a rule
        not). None: the optimiser has no such setting, or there is no rule for it.
    scheme, optimizer, decay, growth
        What the rule is for.
    formulas : dict
        The factors as monomials, for each of :data:`QUANTITIES`.
    moved : Monomial
        What :func:`lazyrich.problem.rules.move_factor` has moved from the forward pass into the weight.
    """

    role: str
    init_std: float = field(init=False)
    multiplier: float = field(init=False)
    learning_rate: float = field(init=False)
    eps: float | None = field(init=False)
    weight_decay: float | None = field(init=False)
    scheme: Scheme
    optimizer: str
    decay: str
    growth: Growth
    formulas: Mapping[str, Monomial | None]
    moved: Monomial = Monomial()

    def __post_init__(self) -> None:
        for quantity in QUANTITIES:
            formula = self.formulas[quantity]
            object.__setattr__(self, quantity, None if formula is None else formula.at(self.growth))

    def factors(self) -> dict[str, float | None]:
        """The factor of each of :data:`QUANTITIES`."""
        return {quantity: getattr(self, quantity) for quantity in QUANTITIES}

    def scaled(self, **base: float) -> dict[str, float]:
        """The target's values from the base model's, e.g. ``rule.scaled(learning_rate=1e-3, init_std=0.02)``."""
        values = {}
        for quantity, value in base.items():
            factor = getattr(self, known_name("setting", quantity, QUANTITIES))
            if factor is None:
                remedy = "use adamw" if (self.optimizer, quantity) == ("adam", "weight_decay") else "leave it out"
                raise LazyrichError(quantity, f"there is no rule for it with {self.optimizer}", remedy)
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
        A key of :data:`OPTIMIZERS`. With ``"muon"`` all roles but the block matrices have AdamW's rules.
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


def rule_for(role: str, scheme: str | Scheme, optimizer: str, growth: Growth, decay: str = "with-rate") -> Rule:
    """The rule of one role, or of one tensor of it where `growth` has the tensor's own fan_in and fan_out."""
    scheme = scheme if isinstance(scheme, Scheme) else scheme_named(scheme)
    known_name("role", role, ROLES)
    known_name("optimizer", optimizer, OPTIMIZERS)
    known_name("decay", decay, DECAYS)
    if optimizer == "muon" and role != "block":
        optimizer = "adamw"
    entry = _TABLES[scheme.width](scheme)[role]
    rate = entry[optimizer if optimizer in ("sgd", "muon") else "adam"]
    formulas: dict[str, Monomial | None] = {
        "init_std": entry["init_std"],
        "multiplier": entry["multiplier"],
        "learning_rate": rate,
        "eps": entry["eps"] if optimizer in ("adam", "adamw") else None,
        # What a step shrinks, rate x decay or decay alone, is the base's. L2 in Adam's gradient has no such rule.
        "weight_decay": None if optimizer == "adam" else _ONE if decay == "independent" else _ONE / rate,
    }
    return Rule(role, scheme, optimizer, decay, growth, formulas)


def scheme_named(name: str) -> Scheme:
    """One of :data:`SCHEMES`; any other name is an error that names the nearest."""
    return SCHEMES[known_name("scheme", name, SCHEMES)]


_ONE = Monomial()
_N, _M, _IN, _OUT = Monomial(n=1.0), Monomial(m=1.0), Monomial(fan_in=1.0), Monomial(fan_out=1.0)
_Table = dict[str, dict[str, Monomial]]


def _entry(
    init_std: Monomial = _ONE,
    multiplier: Monomial = _ONE,
    sgd: Monomial = _ONE,
    adam: Monomial = _ONE,
    eps: Monomial = _ONE,
    muon: Monomial = _ONE,
) -> dict[str, Monomial]:
    return {"init_std": init_std, "multiplier": multiplier, "sgd": sgd, "adam": adam, "eps": eps, "muon": muon}


def _mup(scheme: Scheme) -> _Table:
    """The table at the head of this module."""
    branch, sgd_depth, adam_depth = _M**-scheme.alpha, _M ** (scheme.alpha - scheme.gamma), _M**-scheme.gamma
    # What the ODE scheme leaves to CompleteP: depth in eps, and in the rates of biases and gains.
    eps_depth, bias_sgd, bias_adam = (branch, sgd_depth, adam_depth) if scheme.complete else (_ONE, _ONE, _ONE)
    vector = _entry(sgd=_N, eps=_ONE / _N)
    return {
        "input": vector,
        "input-bias": vector,
        "block": _entry(
            _IN**-0.5,
            branch,
            _OUT / _IN * sgd_depth,
            adam_depth / _IN,
            eps_depth / _N,
            (_OUT / _IN) ** 0.5 * adam_depth,
        ),
        "block-bias": _entry(_ONE, branch, _N * bias_sgd, bias_adam, eps_depth / _N),
        "output": _entry(_ONE, _ONE / _N, _N, _ONE, _ONE / _N),
        "output-bias": _entry(),
    }


def _sp(scheme: Scheme) -> _Table:
    """Weights of std 1/sqrt(fan_in), nothing in the forward pass, one rate."""
    del scheme
    return {role: _entry() for role in ROLES} | {"block": _entry(_IN**-0.5), "output": _entry(_N**-0.5)}


def _ntk(scheme: Scheme) -> _Table:
    """Weights of std 1 with 1/sqrt(fan_in) in the forward pass, one rate; biases outside that factor."""
    del scheme
    weights = {"block": _entry(multiplier=_IN**-0.5), "output": _entry(multiplier=_N**-0.5)}
    return {role: _entry() for role in ROLES} | weights


_TABLES = {"mup": _mup, "sp": _sp, "ntk": _ntk}


def known_name(where: str, name: object, known: Collection[str]) -> str:
    """`name`, if it is one of `known`; else an error that names the nearest."""
    if isinstance(name, str) and name in known:
        return name
    near = difflib.get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}"
    raise LazyrichError(where, f"{name!r} is not known", remedy)


def positive_number(where: str, value: object) -> float:
    """`value` as a positive float of sensible size; else an error."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 / _LARGEST <= value <= _LARGEST:
        return float(value)
    raise LazyrichError(where, f"{value!r} is not a size", f"give a positive number, at most {_LARGEST:g}")


SCHEMES: Mapping[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            0.0,
            0.0,
            name="sp",
            title="SP, standard parametrization",
            width="sp",
            note="At one rate features move more in wider networks, so the best rate falls with width.",
        ),
        Scheme(
            0.0,
            0.0,
            name="ntk",
            title="NTK parametrization",
            width="ntk",
            note="At one rate features move less in wider networks with SGD (lazy), and more with Adam.",
        ),
        Scheme(0.0, 0.0, name="mup", title="muP", note="For width only: the best rate falls with depth."),
        Scheme(
            0.5,
            0.0,
            name="sqrt-depth",
            title="1/sqrt(depth) branches, block only",
            note="With SGD, and the blocks' rate left alone instead of times m^(1/2), this is Depth-muP.",
        ),
        Scheme(0.5, 0.5, name="depth-mup", title="Depth-muP"),
        Scheme(
            1.0,
            0.0,
            name="ode",
            title="ODE",
            complete=False,
            note="Depth enters only the branch factor and the rates of the block weights; CompleteP has the rest.",
        ),
        Scheme(1.0, 0.0, name="complete-p", title="CompleteP"),
    )
}
