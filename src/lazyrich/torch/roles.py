"""Which role of the parametrization table each parameter has, and the growth of its own axes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from lazyrich.problem.parametrization import Growth
from lazyrich.torch.shapes import Pairing

# Names of tensors that are added to activations, or looked up, although no module says what they are.
_ADDED = ("pos", "embed", "token", "cls", "query", "prompt", "register")
# Modules in the skip path of a block.
_SKIPS = ("downsample", "shortcut", "skip", "residual")
_QUERY_NORMS = ("q_norm", "qk_norm", "query_norm", "norm_q", "q_layernorm", "q_ln", "query_layernorm")
# What the last linear map of a branch is called where the structure does not tell.
_ENDS = ("o_proj", "out_proj", "c_proj", "down_proj", "wo", "w_o", "proj_out", "dense_4h_to_h", "fc2", "w2")


@dataclass(frozen=True)
class Placed:
    """What a parameter is.

    Attributes
    ----------
    role : str
        A key of :data:`lazyrich.problem.parametrization.ROLES`.
    growth : Growth
        Of the parameter's own axes: the width is that of the axis whose gradient falls with it.
    vector : bool
        Biases and gains, which are not decayed.
    """

    role: str
    growth: Growth
    vector: bool


def axes_of(owner: nn.Module, name: str, shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Positions of the outgoing and the incoming axis of a weight; None where its module does not tell."""
    kind = type(owner).__name__
    if kind == "Conv1D" and hasattr(owner, "nf") and len(shape) == 2:  # transformers' transposed linear map
        return 1, 0
    if isinstance(owner, nn.Embedding | nn.EmbeddingBag) or hasattr(owner, "num_embeddings"):
        return 1, 0
    if isinstance(owner, nn.modules.conv._ConvTransposeNd):
        return 1, 0
    if isinstance(owner, nn.modules.conv._ConvNd):
        return 0, 1
    if isinstance(owner, nn.MultiheadAttention) and name.endswith("_weight"):
        return 0, 1
    if isinstance(owner, nn.RNNBase) and name.startswith(("weight_ih", "weight_hh")):
        return 0, 1
    features = getattr(owner, "out_features", None), getattr(owner, "in_features", None)
    return (0, 1) if len(shape) == 2 and features == shape else None


def is_norm(owner: nn.Module) -> bool:
    """Whether a module normalises and then multiplies by a gain."""
    return "norm" in type(owner).__name__.lower()


def place(pairing: Pairing, role: str | None, same_width: bool, last: bool) -> Placed | str:
    """The role and growth of a parameter, or why it has none.

    Parameters
    ----------
    pairing : Pairing
        The parameter under its first name.
    role : str, optional
        What the user says.
    same_width : bool
        Whether no axis of the whole model grows. Roles make no difference to numbers then, and follow the structure.
    last : bool
        Whether it belongs to the last matrix outside the blocks.
    """
    ratios = [one / other for one, other in zip(pairing.shape, pairing.base_shape, strict=True)]
    wide = [axis for axis, ratio in enumerate(ratios) if ratio != 1]
    name, inside = pairing.name.rpartition(".")[2], bool(pairing.stack)
    vector = len(pairing.shape) < 2
    if role is not None:
        return _as_told(role, ratios, pairing, vector)
    if not wide and same_width and (not vector or last):
        kind = "output" if last else "block" if inside else "input"
        return Placed(f"{kind}-bias" if vector else kind, Growth(1.0, pairing.depth), vector)
    if not wide:
        if vector or inside:
            # a number, or a vector that does not grow: its gradient sums over the width
            plain = "block-bias" if inside else "output-bias"
            return Placed(plain, Growth(1.0, pairing.depth), vector)
        return Placed("output-bias", Growth(), vector)
    if vector:
        kind = "block-bias" if inside else "input-bias"
        return Placed(kind, Growth(ratios[0], pairing.depth), True)
    axes = axes_of(pairing.owner, name, pairing.shape)
    if axes is None:
        return _bare(name, ratios, wide, pairing)
    out, into = axes
    if any(axis not in axes for axis in wide):
        return "an axis grows that is neither outgoing nor incoming (kernel size, number of experts)"
    if isinstance(pairing.owner, nn.Embedding | nn.EmbeddingBag) and ratios[into] != 1:
        return "its number of rows grows: vocabularies and positions have no rule"
    return _weight(ratios[out], ratios[into], pairing)


def _weight(out: float, into: float, pairing: Pairing) -> Placed:
    inside, depth = bool(pairing.stack), pairing.depth
    if into == 1:  # the number of its inputs does not grow: it acts as a vector, one per input
        return Placed("block-bias" if inside else "input", Growth(out, depth), False)
    if out == 1 and not inside:
        return Placed("output", Growth(into), False)
    return Placed("block", Growth(out, depth, into, out), False)


def _bare(name: str, ratios: list[float], wide: list[int], pairing: Pairing) -> Placed | str:
    """A tensor whose module does not say what it does."""
    last = len(ratios) - 1
    if wide == [last]:
        others_are_one = all(size == 1 for size in pairing.base_shape[:-1])
        if others_are_one or any(part in name.lower() for part in _ADDED):
            return _weight(ratios[last], 1.0, pairing)
        return "its module does not say whether the growing axis is outgoing (input) or incoming (output)"
    if len(ratios) == 2 and len(set(ratios)) == 1:
        return _weight(ratios[0], ratios[1], pairing)
    return "its module does not say which axis is incoming"


def _as_told(role: str, ratios: list[float], pairing: Pairing, vector: bool) -> Placed:
    """The role that the user gives; the axes are then read as in a linear layer, unless its module says otherwise."""
    name = pairing.name.rpartition(".")[2]
    axes = axes_of(pairing.owner, name, pairing.shape) or (0, min(1, len(ratios) - 1))
    grown = max(ratios, default=1.0)
    depth = pairing.depth if role.startswith("block") else 1.0
    if role == "block":
        out, into = ratios[axes[0]], ratios[axes[1]]
        return Placed(role, Growth(out, depth, into, out), vector)
    return Placed(role, Growth(grown, depth), vector)


def nearest_role(pairing: Pairing) -> str:
    """What an unclassified parameter most likely is."""
    grown = [one != other for one, other in zip(pairing.shape, pairing.base_shape, strict=True)]
    if sum(grown) > 1:
        return "block"
    return "block-bias" if pairing.stack else "input" if grown and grown[-1] else "output"


def branch_ends(block: nn.Module) -> list[str]:
    """Names of the linear maps that end the branches of a residual block, by structure.

    In each part of the block, the last matrix with as many outputs as the block has; and, where the parts are linear
    maps without parts of their own, those with the names that attention outputs have. Experts, which differ in a number
    only, all count.
    """
    matrices = [entry for entry in _matrices(block) if not any(part in entry[0].lower() for part in _SKIPS)]
    if not matrices:
        return []
    size = matrices[-1][1]
    groups: dict[str, list[str]] = {}
    for name, out in matrices:
        if out == size:
            head, _, rest = name.partition(".")
            groups.setdefault(head if rest else "", []).append(name)
    ends = {_pattern(names[-1]) for names in groups.values()}
    return [
        name for name, out in matrices
        if out == size and (_pattern(name) in ends or name.rpartition(".")[2] in _ENDS)
    ]  # fmt: skip


def _pattern(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def _matrices(block: nn.Module) -> list[tuple[str, int]]:
    """Modules with a weight that is a linear map, and their numbers of outputs."""
    found = []
    for name, module in block.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.Tensor) and weight.ndim > 1 and not isinstance(module, nn.Embedding):
            axes = axes_of(module, "weight", tuple(weight.shape))
            if axes is not None:
                found.append((name, weight.shape[axes[0]]))
    return found


def head_dimension(module: nn.Module) -> int | None:
    """Size of the heads of an attention module, as far as its attributes tell."""
    for name in ("head_dim", "attention_head_size", "head_size", "d_head", "dim_head"):
        size = getattr(module, name, None)
        if isinstance(size, int):
            return size
    heads = next((getattr(module, n) for n in ("num_heads", "n_head", "n_heads", "num_attention_heads", "heads")
                  if isinstance(getattr(module, n, None), int)), None)  # fmt: skip
    width = next((getattr(module, n) for n in ("embed_dim", "n_embd", "hidden_size", "d_model", "width", "dim")
                  if isinstance(getattr(module, n, None), int)), None)  # fmt: skip
    return width // heads if heads and width else None


def normalises_queries(module: nn.Module) -> bool:
    """Whether queries are normalised inside an attention module."""
    return any(name.lower().endswith(_QUERY_NORMS) for name, _ in module.named_modules())
