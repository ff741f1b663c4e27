"""Base and target model side by side: which parameters correspond, which axes grow, what is repeated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lazyrich.errors import LazyrichError

# Wrappers that put their own component into the names of parameters; DDP's "module" may also be a name of the user's.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def build(make_model: Callable[..., nn.Module], size: Any, device: str) -> nn.Module:
    """The model of some size: ``make_model(**size)`` for a mapping, ``make_model(size)`` for anything else.

    Raises
    ------
    LazyrichError
        When it does not give a module, or cannot be built on the meta device.
    """
    try:
        with torch.device(device):
            model = make_model(**size) if isinstance(size, Mapping) else make_model(size)
    except (NotImplementedError, RuntimeError) as error:
        if device != "meta":
            raise
        what = f"the model cannot be built on the meta device ({str(error).splitlines()[0]})"
        raise LazyrichError(
            "make_model", what, "build modules only, and read no values of tensors while doing so"
        ) from error
    if not isinstance(model, nn.Module):
        raise LazyrichError("make_model", f"gives {type(model).__name__}, no module", "return a torch.nn.Module")
    return model


def unwrapped(name: str, known: Collection[str]) -> str:
    """A parameter's name without what DDP, torch.compile, FSDP and checkpointing put into it, as one of `known`."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while ".".join(parts) not in known and parts[0] == "module" and len(parts) > 1:
        parts.pop(0)
    return ".".join(parts)


@dataclass(frozen=True)
class Pairing:
    """One parameter of the target and its counterpart in the base.

    Attributes
    ----------
    name, base_name : str
    owner, base_owner : Module
        The modules that hold the two.
    shape, base_shape : tuple of int
    stack : str
        The repeated blocks that it is in, or empty.
    within : str
        Its name within its block.
    depth : float
        How many times as many blocks the target has; 1 outside.
    """

    name: str
    base_name: str
    owner: nn.Module
    base_owner: nn.Module
    shape: tuple[int, ...]
    base_shape: tuple[int, ...]
    stack: str = ""
    within: str = ""
    depth: float = 1.0


@dataclass
class Comparison:
    """Two models side by side.

    Attributes
    ----------
    pairings : list of Pairing
        One per name; a shared tensor has several.
    stacks : dict
        Name of the repeated blocks to (blocks of the base, blocks of the target).
    blocks : dict
        Name of each block of the target to (its stack, its counterpart in the base).
    modules : list of (str, Module, Module)
        Name in the target, module of the base, module of the target.
    unmatched : list of str
        Parameters that only one of the two has.
    """

    pairings: list[Pairing] = field(default_factory=list)
    stacks: dict[str, tuple[int, int]] = field(default_factory=dict)
    blocks: dict[str, tuple[str, str]] = field(default_factory=dict)
    modules: list[tuple[str, nn.Module, nn.Module]] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Place:
    name: str
    base_name: str
    stack: str = ""
    block: str = ""
    depth: float = 1.0

    def below(self, child: str, base_child: str | None = None) -> _Place:
        return _Place(
            _joined(self.name, child), _joined(self.base_name, base_child or child), self.stack, self.block, self.depth
        )


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def compare(base: nn.Module, target: nn.Module) -> Comparison:
    """Pair the parameters of two models that differ in width and depth.

    Blocks are found as runs of children of one class in a ``ModuleList`` or ``Sequential``. Where the number of blocks
    differs, a block of the target corresponds to the one at the same relative position.
    """
    found = Comparison()
    _walk(base, target, _Place("", ""), found)
    return found


def _walk(base: nn.Module, target: nn.Module, place: _Place, found: Comparison) -> None:
    found.modules.append((place.name, base, target))
    own, base_own = dict(target.named_parameters(recurse=False)), dict(base.named_parameters(recurse=False))
    found.unmatched += [_joined(place.base_name, name) for name in base_own.keys() - own.keys()]
    for name, parameter in own.items():
        full = _joined(place.name, name)
        if name not in base_own or parameter.ndim != base_own[name].ndim:
            found.unmatched.append(full)
            continue
        found.pairings.append(
            Pairing(
                full,
                _joined(place.base_name, name),
                target,
                base,
                tuple(parameter.shape),
                tuple(base_own[name].shape),
                place.stack,
                full[len(place.block) + 1 :] if place.stack else "",
                place.depth,
            )
        )
    if isinstance(target, nn.ModuleList | nn.Sequential) and type(target) is type(base):
        pairs = list(_paired_children(base, target, place, found))
    else:
        children, base_children = dict(target.named_children()), dict(base.named_children())
        pairs = [(place.below(name), base_children.get(name), child) for name, child in children.items()]
        pairs += [(place.below(name), child, None) for name, child in base_children.items() if name not in children]
    for below, base_child, child in pairs:
        if child is None or base_child is None:
            only, prefix = (base_child, below.base_name) if child is None else (child, below.name)
            assert only is not None
            found.unmatched += [_joined(prefix, name) for name, _ in only.named_parameters()]
        else:
            _walk(base_child, child, below, found)


def _paired_children(
    base: nn.Module, target: nn.Module, place: _Place, found: Comparison
) -> Iterator[tuple[_Place, nn.Module | None, nn.Module | None]]:
    runs, base_runs = _runs(target), _runs(base)
    if [kind for kind, _ in runs] != [kind for kind, _ in base_runs]:
        children, base_children = dict(target.named_children()), dict(base.named_children())
        for name in dict.fromkeys([*base_children, *children]):
            yield place.below(name), base_children.get(name), children.get(name)
        return
    listed = isinstance(target, nn.ModuleList)
    repeats = [_repeats(one, other, listed) for (_, one), (_, other) in zip(base_runs, runs, strict=True)]
    for index, ((_, run), (_, base_run)) in enumerate(zip(runs, base_runs, strict=True)):
        is_stack = not place.stack and repeats[index]
        stack = f"{place.name or 'model'}{f'#{index}' if sum(repeats) > 1 else ''}"
        if is_stack:
            found.stacks[stack] = len(base_run), len(run)
        elif len(run) != len(base_run):  # a count that grows inside a block, such as experts, has no rule
            longer = [(_joined(place.name, n), m) for n, m in run[len(base_run) :]]
            longer += [(_joined(place.base_name, n), m) for n, m in base_run[len(run) :]]
            found.unmatched += [_joined(where, n) for where, m in longer for n, _ in m.named_parameters()]
        for position, (name, child) in enumerate(run):
            if not is_stack and position >= len(base_run):
                break
            base_name, base_child = (
                _counterpart(child, position / len(run), base_run) if is_stack else base_run[position]
            )
            below = place.below(name, base_name)
            if is_stack:
                below = _Place(below.name, below.base_name, stack, below.name, len(run) / len(base_run))
                found.blocks[below.name] = stack, below.base_name
            yield below, base_child, child


def _counterpart(block: nn.Module, share: float, base_run: list[tuple[str, nn.Module]]) -> tuple[str, nn.Module]:
    """The block of the base at the same relative position, or the nearest with the same parameters.

    The first block of a stage may have a shortcut that the others lack.
    """
    own = {name for name, _ in block.named_parameters()}
    position = int(share * len(base_run) + 1e-9)
    by_distance = sorted(range(len(base_run)), key=lambda index: abs(index - position))
    alike = (i for i in by_distance if {name for name, _ in base_run[i][1].named_parameters()} == own)
    return base_run[next(alike, position)]


def _runs(container: nn.Module) -> list[tuple[type, list[tuple[str, nn.Module]]]]:
    runs: list[tuple[type, list[tuple[str, nn.Module]]]] = []
    for name, child in container.named_children():
        if not runs or runs[-1][0] is not type(child):
            runs.append((type(child), []))
        runs[-1][1].append((name, child))
    return runs


def _repeats(base_run: list[tuple[str, nn.Module]], run: list[tuple[str, nn.Module]], listed: bool) -> bool:
    """Whether a run of children is a stack of blocks: they have matrices, and another number of them or parts.

    Plain containers are stages or heads, unless their number differs.
    """
    child = run[0][1]
    if not any(parameter.ndim > 1 for parameter in child.parameters()):
        return False
    has_parts = next(child.children(), None) is not None and type(child) not in (nn.Sequential, nn.ModuleList)
    return len(run) != len(base_run) or (has_parts and (listed or len(run) > 1))
