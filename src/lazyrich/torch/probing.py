"""Running the base model to see what its structure does not tell: scales at the start, ends of branches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lazyrich.errors import LazyrichError
from lazyrich.torch.measure import Measured, measure
from lazyrich.torch.multiplier import Multiplier
from lazyrich.torch.roles import is_norm
from lazyrich.torch.shapes import Pairing

# Draw the base again until every scale is known this well (relative), or so often.
_WANTED = 0.005
_MOST_DRAWS = 4
_MOST_NUMBERS = 50_000_000  # larger bases are drawn once: their scales are known well
# Blocks of one stack whose scales differ by more than this many standard errors each keep their own.
_DIFFERENT = 6.0
# Relative error of a float32 forward pass through a block, measured at 1e-6 to 3e-5; a wrong place is off by a factor.
_ROUNDING = 1e-3


def start_values(
    first: nn.Module, draw: Callable[[int], nn.Module], tensors: Mapping[str, list[Pairing]]
) -> dict[str, tuple[str, Measured]]:
    """The scale at which the base model starts each parameter of the target, and what it is measured together with.

    The same parameter of all blocks is measured together, unless blocks start differently.

    Parameters
    ----------
    first : Module
        The base model.
    draw : callable
        Gives it anew, from a seed.
    tensors : dict
        The target's tensors with their pairings.
    """
    wanted: dict[str, list[str]] = defaultdict(list)  # pool of the base to names in it
    for pairs in tensors.values():
        pair = pairs[0]
        pool = f"{pair.stack}:{pair.within}" if pair.stack else pair.base_name
        if pair.base_name not in wanted[pool]:
            wanted[pool].append(pair.base_name)
    parameters = [dict(first.named_parameters(remove_duplicate=False))]
    pools = _pools(parameters, wanted)
    size = sum(parameter.numel() for parameter in first.parameters())
    while len(parameters) < _MOST_DRAWS and size < _MOST_NUMBERS and any(e.error > _WANTED for e in pools.values()):
        parameters.append(dict(draw(len(parameters)).named_parameters(remove_duplicate=False)))
        pools = _pools(parameters, wanted)
    found = {}
    for name, pairs in tensors.items():
        pair = pairs[0]
        pool = f"{pair.stack}:{pair.within}" if pair.stack else pair.base_name
        members = [measure([each[base] for each in parameters]) for base in wanted[pool]]
        own = measure([each[pair.base_name] for each in parameters])
        alike = not _differ(members, pools[pool])
        found[name] = (pool, pools[pool]) if alike else (f"{pool} as in {pair.base_name}", own)
    return found


def _pools(parameters: list[dict[str, nn.Parameter]], wanted: Mapping[str, list[str]]) -> dict[str, Measured]:
    return {pool: measure([each[name] for each in parameters for name in names]) for pool, names in wanted.items()}


def _differ(members: list[Measured], pool: Measured) -> bool:
    if all(member.constant for member in members):
        return not pool.constant
    return any(abs(member.value - pool.value) > _DIFFERENT * (member.error + 1e-6) * pool.value for member in members)


def call(model: nn.Module, inputs: Any) -> Any:
    """``model(**inputs)``, ``model(*inputs)`` or ``model(inputs)``."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)


def first_tensor(output: Any) -> Tensor:
    """The tensor in a module's output: the logits of a model of transformers, the first of a tuple."""
    if isinstance(output, Tensor):
        return output
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(output, name, None), Tensor):
            return getattr(output, name)
    if isinstance(output, tuple | list) and output:
        return first_tensor(output[0])
    raise LazyrichError(
        "model", f"its output {type(output).__name__} has no tensor", "return a tensor or a tuple with one first"
    )


def check_branches(model: nn.Module, ends: Mapping[str, list[str]], inputs: Any, *, strict: bool) -> list[str]:
    """Whether these linear maps end all branches of each residual block.

    With all of them zero, the block has to be the identity; with one of them, its change has to be proportional to it.

    Parameters
    ----------
    model : Module
        Changed on the way.
    ends : dict
        Name of each block to the names of its last linear maps.
    inputs
        See :func:`call`.
    strict : bool
        Whether a block that fails is an error; else a note.
    """
    calls: dict[str, tuple[tuple, dict]] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, positional: tuple, named: dict) -> None:
            calls.setdefault(name, (positional, named))

        return hook

    model.eval()
    handles = [model.get_submodule(n).register_forward_pre_hook(keep(n), with_kwargs=True) for n in ends]
    with torch.no_grad():
        call(model, inputs)
    for handle in handles:
        handle.remove()
    failed, checked = [], 0
    for name, (positional, named) in calls.items():
        why = _not_residual(
            model.get_submodule(name), [model.get_submodule(end) for end in ends[name]], positional, named
        )
        if why is None:
            checked += 1
        elif why:
            failed.append(f"{name}: {why}")
    if failed and strict:
        raise LazyrichError(
            failed[0].partition(":")[0],
            failed[0].partition(": ")[2],
            "name the ends of its branches, multipliers={'branch': ..}; post-norm blocks have no depth rule",
        )
    if failed:
        return [f"{failed[0]}: depth rules would not hold ({len(failed)} blocks)"]
    return [f"ends of branches verified by running {checked} blocks of the base"] if checked else []


def _not_residual(block: nn.Module, ends: list[nn.Module], positional: tuple, named: dict) -> str | None:
    """What is wrong; None if nothing; empty where it cannot be told because the shape changes."""
    features = positional[0] if positional else next(iter(named.values()))
    weights = [_factors(end) for end in ends]
    kept = [[parameter.clone() for parameter in group] for group in weights]

    def run(factors: list[float]) -> Tensor:
        for group, values, factor in zip(weights, kept, factors, strict=True):
            for parameter, value in zip(group, values, strict=True):
                parameter.copy_(factor * value)
        return first_tensor(block(*positional, **named)).clone()

    with torch.no_grad():
        for values in kept:
            for value in values:
                if not value.any():  # what starts at zero would tell nothing
                    value.normal_(std=0.02, generator=torch.Generator().manual_seed(0))
        nothing = run([0.0] * len(ends))
        if nothing.shape != features.shape:
            return ""
        size = float(features.abs().max())
        if float((nothing - features).abs().max()) > _ROUNDING * size:
            return "with its branches set to zero it is not the identity: an end is missing, or it is post-norm"
        for index in range(len(ends)):
            once, twice = (run([f if i == index else 0.0 for i in range(len(ends))]) - features for f in (1.0, 2.0))
            misfit, change = float((twice - 2 * once).abs().max()), float(once.abs().max())
            if misfit > 10 * _ROUNDING * change + 1e-5 * size or not math.isfinite(misfit):
                return "a branch is not proportional to its last linear map: something nonlinear follows"
        run([1.0] * len(ends))
    return None


def check_readout(model: nn.Module, names: list[str], inputs: Any) -> list[str]:
    """Whether the output is proportional to the weights of these modules, apart from a bias behind them."""
    weights = [tensor for name in names for tensor in _factors(model.get_submodule(name), biases=False)]
    model.eval()
    kept = [weight.clone() for weight in weights]
    outputs = []
    with torch.no_grad():
        for factor in (0.0, 1.0, 2.0):
            for weight, value in zip(weights, kept, strict=True):
                weight.copy_(factor * (value if value.any() else torch.full_like(value, 0.02)))
            outputs.append(first_tensor(call(model, inputs)).float())
        for weight, value in zip(weights, kept, strict=True):
            weight.copy_(value)
    nothing, once, twice = outputs
    change = float((once - nothing).abs().max())
    misfit = float((twice - 2 * once + nothing).abs().max())
    if misfit > 10 * _ROUNDING * change or change == 0.0:
        what = "the output is not proportional to it, so the readout's factor is not the same there"
        raise LazyrichError(", ".join(names), what, "put a Multiplier in front of the readout, or name another module")
    return [f"place of the readout's factor verified by running the base: {', '.join(names)}"]


def _factors(module: nn.Module, *, biases: bool = True) -> list[Tensor]:
    """What a module's output is proportional to; without the biases of linear maps where those are outside."""
    if isinstance(module, Multiplier):
        return [module.factor]
    own = dict(module.named_parameters(recurse=False))
    return [tensor for name, tensor in own.items() if biases or is_norm(module) or "bias" not in name]
