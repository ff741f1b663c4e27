"""From two sizes of a model to a plan: shapes compared, roles found, the table's rules applied to every parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import DECAYS, OPTIMIZERS, QUANTITIES, Scheme, known_name, scheme_named
from lazyrich.problem.rules import NOT_COVERED, classify, reasons, sources
from lazyrich.torch.entries import Entry
from lazyrich.torch.moves import Moves, Places
from lazyrich.torch.overrides import Overrides
from lazyrich.torch.plan import Plan
from lazyrich.torch.probing import check_branches, check_readout, start_values
from lazyrich.torch.roles import Placed, nearest_role, place
from lazyrich.torch.shapes import Comparison, Pairing, build, compare

_ADAPTERS = ("lora_a", "lora_b", "lora_embedding")


def plan(
    make_model: Callable[..., nn.Module],
    *,
    base: Any,
    target: Any,
    scheme: str | Scheme | tuple[float, float] = "complete-p",
    optimizer: str = "adamw",
    decay: str = "with-rate",
    multipliers: Mapping[str, str | None] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    inputs: Any = None,
) -> Plan:
    """What a model needs at a target size, so that what was tuned at the base size stays right.

    The target is built on the meta device only, whatever its size. The base is built once for real, to see the scale at
    which it starts every parameter; your random state is left as it was.

    Parameters
    ----------
    make_model : callable
        Called as ``make_model(**size)`` for a mapping and ``make_model(size)`` for anything else, such as a config.
    base, target
        The size at which settings were tuned, and the one to train.
    scheme : str, Scheme or (alpha, gamma)
        A key of :data:`lazyrich.problem.parametrization.SCHEMES`, or any depth rule.
    optimizer : str
        ``"adamw"``, ``"adam"`` (without weight decay), ``"sgd"``, ``"muon"`` or ``"sign"``.
    decay : str
        ``"with-rate"``: a step shrinks weights by rate x decay, as in torch.optim; ``"independent"``: by the decay.
    multipliers : dict, optional
        Where a factor goes that cannot be where it would be otherwise: ``"readout"``, ``"branch"``, ``"attention"`` to
        a pattern of module names. Norms and linear maps take it into weight and bias; a :class:`Multiplier` carries
        it in the forward pass. None: the model's own code has it already.
    overrides : dict, optional
        Pattern of parameter names to ``role``, ``init_std`` (the value), or factors ``learning_rate``, ``eps``,
        ``weight_decay``.
    inputs : Tensor, tuple or dict, optional
        A small batch for the base model. With it the places of branch and readout factors are verified by running it.

    Returns
    -------
    Plan

    Raises
    ------
    LazyrichError
        For a missing base; parameters that cannot be classified (all are listed, with the nearest role); factors that
        no weight can carry; adapters; blocks that are not residual under a depth rule.

    Examples
    --------
    >>> import torch
    >>> def make_model(width):
    ...     return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    >>> found = plan(make_model, base={"width": 16}, target={"width": 64}, scheme="mup", optimizer="adam")
    >>> [(entry.name, entry.role, entry.learning_rate) for entry in found.entries][2:]
    [('2.weight', 'output', 0.25), ('2.bias', 'output-bias', 1.0)]
    """
    for name, size in (("base", base), ("target", target)):
        if size is None:
            raise LazyrichError(name, "missing", "give the size at which settings were tuned, and the one to train")
    chosen = _scheme(scheme)
    known_name("optimizer", optimizer, OPTIMIZERS)
    known_name("decay", decay, DECAYS)
    places = Places(multipliers)
    settings = Overrides(overrides)
    small = build(make_model, base, "meta")
    large = build(make_model, target, "meta")
    _refuse_adapters(large)
    compared = compare(small, large)
    tensors = _shared(compared, large)
    placed = _placed(tensors, settings)
    depth_grows = any(one != other for one, other in compared.stacks.values())
    _refuse_nothing(base, target, tensors, depth_grows)
    moves = Moves(chosen, optimizer, decay, compared, tensors, placed, places, large)
    real = build_real(make_model, base)
    starts = start_values(real, lambda seed: build_real(make_model, base, seed), tensors)
    notes = [*moves.notes]
    if inputs is not None:
        notes += _verified(real, compared, moves, chosen, inputs)
    elif moves.branches and chosen.alpha:
        notes.append("ends of branches were found by structure and not verified: give inputs to plan()")
    entries, said = [], {}
    trained = {name: parameter.requires_grad for name, parameter in large.named_parameters()}
    for name, aliases in tensors.items():
        entry, rule = moves.entry(name, aliases, *starts[name], trained[name], settings)
        entries.append(entry)
        why, whence = reasons(rule), sources(rule)
        said[entry.role] = {q: (str(rule.formulas[q]), why[q], whence[q]) for q in QUANTITIES if rule.formulas[q]}
    places.refuse_unused(large, compared)
    settings.refuse_unused()
    _refuse_muon_without_matrices(optimizer, entries)
    return Plan(
        chosen,
        optimizer,
        decay,
        _described(base),
        _described(target),
        tuple(entries),
        moves.explicit,
        compared.stacks,
        tuple(compared.blocks),
        said,
        tuple(dict.fromkeys([*notes, *_general_notes(chosen, decay)])),
    )


def build_real(make_model: Callable[..., nn.Module], size: Any, seed: int = 0) -> nn.Module:
    """A model with values, drawn from a seed, without a trace in the random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(make_model, size, "cpu")


def _scheme(scheme: str | Scheme | tuple[float, float]) -> Scheme:
    if isinstance(scheme, tuple | list):
        if len(scheme) != 2:
            raise LazyrichError("scheme", f"{scheme!r} is not (alpha, gamma)", "give two numbers or a name")
        return Scheme(*scheme)
    return scheme if isinstance(scheme, Scheme) else scheme_named(scheme)


def _described(size: Any) -> str:
    if isinstance(size, Mapping):
        return ", ".join(f"{key} = {value!r}" for key, value in size.items())
    return type(size).__name__ if len(repr(size)) > 200 else repr(size)


def _refuse_adapters(model: nn.Module) -> None:
    found = [name for name, _ in model.named_parameters() if any(part in name.lower() for part in _ADAPTERS)]
    if found:
        what = f"{len(found)} parameters are low-rank adapters, which start from a trained model"
        raise LazyrichError(
            found[0], what, "plan the model before adapters are added: the table is for training from scratch"
        )


def _refuse_nothing(base: Any, target: Any, tensors: Mapping[str, list[Pairing]], depth_grows: bool) -> None:
    grows = depth_grows or any(pairs[0].shape != pairs[0].base_shape for pairs in tensors.values())
    if not grows and base is not target and base != target:
        raise LazyrichError("target", "the model is as large as the base", "check that make_model uses its arguments")


def _refuse_muon_without_matrices(optimizer: str, entries: list[Entry]) -> None:
    if optimizer == "muon" and not any(entry.optimizer == "muon" for entry in entries):
        raise LazyrichError("optimizer", "there is no block matrix for Muon", "plan with optimizer='adamw'")


def _shared(compared: Comparison, model: nn.Module) -> dict[str, list[Pairing]]:
    """Tensors by their first name, each with the pairings of all its names."""
    if compared.unmatched:
        listed = ", ".join(compared.unmatched[:5]) + (", .." if len(compared.unmatched) > 5 else "")
        what = f"{len(compared.unmatched)} parameters have no counterpart in the other size: {listed}"
        raise LazyrichError("make_model", what, "only widths and the number of blocks in a ModuleList may differ")
    parameters = dict(model.named_parameters(remove_duplicate=False))
    by_tensor: dict[int, list[Pairing]] = {}
    pairings = {pairing.name: pairing for pairing in compared.pairings}
    for name, parameter in parameters.items():
        if name in pairings:
            by_tensor.setdefault(id(parameter), []).append(pairings[name])
    return {pairs[0].name: pairs for pairs in by_tensor.values()}


def _placed(tensors: Mapping[str, list[Pairing]], overrides: Overrides) -> dict[str, Placed]:
    found: dict[str, Placed] = {}
    failed: list[tuple[Pairing, str]] = []
    same_width = all(pairs[0].shape == pairs[0].base_shape for pairs in tensors.values())
    outside = [pairs[0].owner for pairs in tensors.values() if not pairs[0].stack and len(pairs[0].shape) > 1]
    tables = (nn.Embedding, nn.EmbeddingBag)
    maps = [owner for owner in outside if not isinstance(owner, tables)] if len(outside) > 1 else []
    for name, pairs in tensors.items():
        last = not pairs[0].stack and maps[-1:] == [pairs[0].owner]
        result = place(pairs[0], overrides.role(name), same_width, last)
        if isinstance(result, str):
            failed.append((pairs[0], result))
        else:
            found[name] = result
    if failed:
        listed = "; ".join(
            f"{pairing.name} {pairing.base_shape} to {pairing.shape} (nearest role {nearest_role(pairing)!r}: {why})"
            for pairing, why in failed
        )
        first = failed[0][0]
        remedy = f"say what they are: overrides={{{first.name!r}: {{'role': {nearest_role(first)!r}}}}}"
        raise LazyrichError("plan", f"{len(failed)} parameters cannot be classified: {listed}", remedy)
    return found


def _verified(real: nn.Module, compared: Comparison, moves: Moves, scheme: Scheme, inputs: Any) -> list[str]:
    """Run the base model to see that factors are where they act as they should."""
    notes = []
    if moves.branches and scheme.width == "mup":
        ends = {}
        for block, names in moves.branches.items():
            base_block = compared.blocks[block][1]
            ends.setdefault(base_block, [f"{base_block}{name[len(block) :]}" for name in names])
        grows = scheme.alpha != 0 and any(one != other for one, other in compared.stacks.values())
        notes += check_branches(real, ends, inputs, strict=grows)
    if moves.readout_at:
        notes += check_readout(real, moves.readout_at, inputs)
    return notes


def _general_notes(scheme: Scheme, decay: str) -> list[str]:
    found = classify(scheme.alpha, scheme.gamma)
    notes = [f"with depth: {found.name}, {found.meaning}"] if scheme.width == "mup" else [scheme.note]
    notes.append("clipping by the global norm: use plan.clip_grad_norm_, or none; factors in weights change each share")
    if decay == "independent":
        notes.append("decay is given to the optimiser divided by the rate: a schedule of the rate scales it as well")
    return notes + [f"not covered: {text}" for text in NOT_COVERED[:2]]
