"""Whether a plan is on: realised scales, rates, eps and decay against the planned ones, before and during training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lazyrich.errors import LazyrichError
from lazyrich.torch.entries import Entry, group_settings
from lazyrich.torch.measure import measure, whole
from lazyrich.torch.multiplier import Multiplier
from lazyrich.torch.shapes import unwrapped

if TYPE_CHECKING:
    from lazyrich.torch.plan import Plan

# A scale is wrong if it is off by so many standard errors and by this much: a chance of 1e-9 a tensor, and the error
# with which the base's own scale is known (0.5%) times its factor.
_SIGMAS = 6.0
_SCALE = 0.03
# Settings are numbers that are copied: only rounding of float32 rates is forgiven.
_SETTING = 1e-5


@dataclass(frozen=True)
class Deviation:
    """One thing that is not as planned.

    Attributes
    ----------
    name : str
        Of the parameter, module or setting.
    what : str
        ``"init"``, ``"multiplier"``, ``"learning_rate"``, ``"eps"``, ``"weight_decay"``, ``"group"``, ``"optimizer"``.
    found, planned : float
        NaN where they are no numbers.
    text : str
        One sentence.
    """

    name: str
    what: str
    found: float
    planned: float
    text: str


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    deviations : tuple of Deviation
    step : int
        Steps that the optimiser has made; scales at initialisation can be checked at 0 only.
    base : dict
        The base values that the groups amount to now: ``lr`` (times its schedule), ``eps``, ``weight_decay``.
    updates : dict
        Parameter to the root mean square of its last update, from the optimiser's state; empty before the first step.
    notes : tuple of str
        What could not be checked, and eps that is not small.
    """

    deviations: tuple[Deviation, ...]
    step: int
    base: Mapping[str, float]
    updates: Mapping[str, float]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether everything that was checked is as planned."""
        return not self.deviations

    def __str__(self) -> str:
        head = "as planned" if self.passed else f"{len(self.deviations)} deviations from the plan"
        base = ", ".join(f"{name} {value:.4g}" for name, value in self.base.items())
        lines = [f"step {self.step}: {head}{f'; base values now {base}' if base else ''}"]
        lines += [f"  {deviation.name}: {deviation.text}" for deviation in self.deviations]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def audit(plan: Plan, model: nn.Module, optimizer: Any = None, **expected: float) -> Audit:
    """Compare a model and its optimiser with the plan.

    Parameters
    ----------
    plan : Plan
    model : Module
        At any time, wrapped or not.
    optimizer : Optimizer or several, optional
        Those that train it. Without `expected`, what most parameters agree on is taken for the base values, so that a
        schedule of the rate is no deviation.
    **expected : float
        Base values ``lr`` (as it is now), ``eps``, ``weight_decay`` to check against instead.

    Returns
    -------
    Audit
    """
    for key in expected:
        if key not in ("lr", "eps", "weight_decay"):
            raise LazyrichError(f"audit({key})", "is no base value", "give lr, eps or weight_decay")
    from lazyrich.torch.plan import changed_since

    pairs = plan.matched(model)
    optimizers = [] if optimizer is None else list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    step = max((_steps(each) for each in optimizers), default=0)
    found, notes = _multipliers(plan, model), []
    # plain SGD keeps no state: the tensors' own counters tell whether they have changed since the plan was applied
    stateless = optimizers and not any(group.get("momentum", 1) for each in optimizers for group in each.param_groups)
    begun = any(parameter.grad is not None for _, parameter in pairs)
    if step or begun or (stateless and changed_since(plan, model, pairs)):
        notes.append(f"scales at initialisation cannot be seen after {step or 'unknown'} steps")
    else:
        found += _scales(pairs)
    base: dict[str, float] = {}
    updates: dict[str, float] = {}
    if optimizers:
        groups, wrong = _groups(pairs, optimizers)
        found += wrong + _kinds(plan, optimizers)
        settings, base = _settings(plan, groups, expected)
        found += settings
        updates, said = _updates(pairs, groups)
        notes += said
    return Audit(tuple(found), step, base, updates, tuple(notes))


def _scales(pairs: list[tuple[Entry, Tensor]]) -> list[Deviation]:
    found = []
    for entry, parameter in pairs:
        if not entry.trained:
            continue
        have = measure([parameter])
        if entry.start == "constant":
            wrong = not have.constant or not math.isclose(have.value, entry.value, rel_tol=1e-3, abs_tol=1e-12)
        else:
            error = math.hypot(have.error, entry.base_error) * entry.value
            wrong = abs(have.value - entry.value) > max(_SIGMAS * error, _SCALE * entry.value)
        if wrong:
            ratio = have.value / entry.value if entry.value else math.inf
            text = f"starts at {have.value:.4g}, planned {entry.value:.4g}: {ratio:.3g} times"
            if entry.aliases:
                text += f" (shared with {', '.join(entry.aliases)}: it is to be scaled once)"
            found.append(Deviation(entry.name, "init", have.value, entry.value, text))
    return found


def _multipliers(plan: Plan, model: nn.Module) -> list[Deviation]:
    found = []
    for wrapped, module in model.named_modules():
        if isinstance(module, Multiplier):
            name, have = unwrapped(wrapped, plan.multipliers), float(module.factor)
            planned = plan.multipliers.get(name, 1.0)
            if not math.isclose(have, planned, rel_tol=4e-3):  # what bfloat16 leaves of it
                found.append(Deviation(name, "multiplier", have, planned, f"is {have:.4g}, planned {planned:.4g}"))
    return found


def _groups(
    pairs: list[tuple[Entry, Tensor]], optimizers: Iterable[Any]
) -> tuple[list[tuple[Entry, dict[str, Any], Any]], list[Deviation]]:
    """Each parameter's group, and parameters with none or several."""
    homes: dict[int, list[tuple[dict[str, Any], Any]]] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                homes.setdefault(id(parameter), []).append((group, optimizer))
    found, wrong = [], []
    for entry, parameter in pairs:
        own = homes.pop(id(parameter), [])
        if not own and entry.trained:
            wrong.append(_without(entry.name, "is in no group: it is not trained"))
        elif len(own) > 1:
            wrong.append(_without(entry.name, f"is in {len(own)} groups: it is trained so often in each step"))
        found += [(entry, *home) for home in own[:1] if entry.trained]
    if homes:
        wrong.append(_without("optimizer", f"{len(homes)} of its tensors are not the model's: made before wrapping?"))
    return found, wrong


def _without(name: str, text: str, what: str = "group") -> Deviation:
    return Deviation(name, what, math.nan, math.nan, text)


def _kinds(plan: Plan, optimizers: list[Any]) -> list[Deviation]:
    """Whether an optimiser is of the planned kind, in particular Adam whose decay goes through the gradient."""
    found = []
    for optimizer in optimizers:
        kind = type(optimizer).__name__.lower()
        coupled = kind == "adam" and any(
            group.get("weight_decay") and not group.get("decoupled_weight_decay") for group in optimizer.param_groups
        )
        if coupled:
            text = "Adam puts weight decay into the gradient, where it is rescaled with it: use AdamW"
            found.append(_without(type(optimizer).__name__, text, "optimizer"))
        allowed = {"muon": ("muon", "adamw"), "adamw": ("adamw", "adam"), "adam": ("adam", "adamw"), "sgd": ("sgd",)}
        known = {name for names in allowed.values() for name in names}
        if plan.optimizer in allowed and kind in known and kind not in allowed[plan.optimizer]:
            text = f"the plan is for {plan.optimizer}"
            found.append(_without(type(optimizer).__name__, text, "optimizer"))
    return found


def _settings(
    plan: Plan, groups: list[tuple[Entry, dict[str, Any], Any]], expected: Mapping[str, float]
) -> tuple[list[Deviation], dict[str, float]]:
    """Rates, eps and decays that do not belong to one base value."""
    found: list[Deviation] = []
    base: dict[str, float] = {}
    for part in sorted({entry.optimizer for entry, _, _ in groups}):
        members = [(entry, group) for entry, group, _ in groups if entry.optimizer == part]
        label = f"{part} " if plan.optimizer == "muon" else ""
        unit = {"lr": 1.0, "weight_decay": 1.0, "eps": 1.0}
        planned = {entry.name: group_settings(entry, plan.decay, **unit) for entry, _ in members}
        for key, what in (("lr", "learning_rate"), ("eps", "eps"), ("weight_decay", "weight_decay")):
            scaled = {}
            for entry, group in members:
                factor = planned[entry.name].get(key)
                if factor and key in group:
                    # a decay independent of the rate was divided by it
                    by_rate = float(group["lr"]) if key == "weight_decay" and plan.decay == "independent" else None
                    factor = factor if by_rate is None else factor * planned[entry.name]["lr"] / max(by_rate, 1e-300)
                    scaled[entry.name] = float(group[key]) / factor
            if not scaled:
                continue
            common = expected.get(key, _common(list(scaled.values())))
            base[f"{label}{key}"] = common
            for entry, group in members:
                if entry.name in scaled and not math.isclose(
                    scaled[entry.name], common, rel_tol=_SETTING, abs_tol=1e-300
                ):
                    have = float(group[key])
                    wanted = common * have / scaled[entry.name] if scaled[entry.name] else math.nan
                    ratio = scaled[entry.name] / common if common else math.inf
                    text = f"{key} is {have:.6g}, {ratio:.4g} times what is planned for {entry.role}"
                    found.append(Deviation(entry.name, what, have, wanted, text))
                elif key == "weight_decay" and entry.name not in scaled and group.get(key):
                    text = f"is decayed by {float(group[key]):.4g}, and biases and gains are not to be"
                    found.append(Deviation(entry.name, what, float(group[key]), 0.0, text))
    return found, base


def _common(values: list[float]) -> float:
    """What most agree on, up to rounding."""
    rounded = [float(f"{value:.5g}") for value in values]
    most = Counter(rounded).most_common(1)[0][0]
    return next(value for value, near in zip(values, rounded, strict=True) if near == most)


def _steps(optimizer: Any) -> int:
    steps = [int(state["step"]) for state in optimizer.state.values() if isinstance(state, dict) and "step" in state]
    return max(steps, default=int(any(optimizer.state.values())))


def _updates(
    pairs: list[tuple[Entry, Tensor]], groups: list[tuple[Entry, dict[str, Any], Any]]
) -> tuple[dict[str, float], list[str]]:
    """Sizes of the last updates, and where Adam's eps is not small beside the gradient."""
    tensors = {entry.name: parameter for entry, parameter in pairs}
    sizes, large = {}, []
    for entry, group, optimizer in groups:
        state = optimizer.state.get(tensors[entry.name], {})
        rate = float(group["lr"])
        if "exp_avg_sq" in state and "exp_avg" in state:
            first, second = group["betas"]
            count = float(state["step"])
            with torch.no_grad():
                root = (state["exp_avg_sq"].float() / (1 - second**count)).sqrt()
                step = state["exp_avg"].float() / (1 - first**count) / (root + group["eps"])
            sizes[entry.name] = rate * measure([step]).value
            if float(whole(root.mean())) < group["eps"]:
                large.append(entry.name)
        elif isinstance(state.get("momentum_buffer"), Tensor) and entry.optimizer != "muon":
            sizes[entry.name] = rate * abs(measure([state["momentum_buffer"]]).value)
    notes = [f"eps is larger than the gradient of {len(large)} parameters, such as {large[0]}"] if large else []
    return sizes, notes
