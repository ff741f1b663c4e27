"""Small models for the tests of lazyrich.torch, and a short training."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lazyrich.torch import Multiplier, Plan
from lazyrich.torch.training import make_optimizers

INPUTS, OUTPUTS, BATCH = 8, 3, 16


class Block(nn.Module):
    """x + scale * W2 relu(W1 norm(x)); `scale` is 1 unless a plan says otherwise."""

    def __init__(self, width: int, explicit: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.scale = Multiplier() if explicit else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        return features + self.scale(self.down(F.gelu(self.up(self.norm(features)))))


class Residual(nn.Module):
    """A pre-norm residual network; with `explicit`, factors can stay in the forward pass."""

    def __init__(self, width: int, depth: int, explicit: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, width)
        self.blocks = nn.ModuleList(Block(width, explicit) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.readout_scale = Multiplier() if explicit else nn.Identity()
        self.readout = nn.Linear(width, OUTPUTS)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.first(inputs)
        for block in self.blocks:
            features = block(features)
        return self.readout(self.readout_scale(self.norm(features)))


EXPLICIT = {"branch": "blocks.*.scale", "readout": "readout_scale"}


def make_model(width: int, depth: int) -> Residual:
    return Residual(width, depth)


def make_explicit(width: int, depth: int) -> Residual:
    return Residual(width, depth, explicit=True)


class Tied(nn.Module):
    """A language model whose readout is its embedding."""

    def __init__(self, width: int, depth: int, explicit: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, width)
        self.blocks = nn.ModuleList(Block(width, False) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.logit_scale = Multiplier() if explicit else nn.Identity()
        self.head = nn.Linear(width, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        features = self.embedding(tokens)
        for block in self.blocks:
            features = block(features)
        return self.head(self.logit_scale(self.norm(features)))


def make_tied(width: int, depth: int) -> Tied:
    return Tied(width, depth)


def make_tied_explicit(width: int, depth: int) -> Tied:
    return Tied(width, depth, explicit=True)


def batch(step: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and the values of a fixed function of them."""
    random = torch.Generator().manual_seed(1000 * seed + step + 100)
    inputs = torch.randn(BATCH, INPUTS, generator=random)
    return inputs, torch.stack([inputs[:, 0] * inputs[:, 1], inputs[:, 2].abs(), inputs[:, 3]], dim=1)


def loss(model: nn.Module, data: tuple[Tensor, Tensor]) -> Tensor:
    """Mean squared error."""
    return F.mse_loss(model(data[0]).float(), data[1])


def built(plan: Plan, make: type | object, seed: int = 0, **size: int) -> nn.Module:
    """A model drawn from a seed, with the plan applied."""
    torch.manual_seed(seed)
    model = make(**size)  # pyright: ignore[reportCallIssue]
    plan.initialize_(model)
    return model


def losses(
    plan: Plan, model: nn.Module, steps: int, clip: float | None = None, bfloat16: bool = False, **settings: Any
) -> list[float]:
    """Train on fresh batches and return the loss before every step."""
    optimizers = make_optimizers(plan, model, **settings)
    found = []
    for step in range(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            value = loss(model, batch(step))
        found.append(float(value.detach()))
        for each in optimizers:
            each.zero_grad()
        value.backward()
        if clip is not None:
            plan.clip_grad_norm_(model, clip)
        for each in optimizers:
            each.step()
    return found
