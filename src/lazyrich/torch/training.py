"""Optimisers for a plan, and the short trainings of coordinate checks and sweeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import known_name
from lazyrich.torch.plan import Plan

SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,
    "linear": lambda share: 1.0 - share,
    "cosine": lambda share: 0.5 * (1.0 + math.cos(math.pi * share)),
}


def make_optimizers(
    plan: Plan,
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    eps: float = 1e-8,
    momentum: float = 0.9,
    betas: tuple[float, float] = (0.9, 0.95),
    companion_lr: float | None = None,
) -> list[torch.optim.Optimizer]:
    """The optimisers of :mod:`torch.optim` that a plan is for: one, or with Muon two.

    Parameters
    ----------
    plan : Plan
    model : Module
    lr, weight_decay, eps, momentum, betas
        Base values.
    companion_lr : float, optional
        With Muon, the rate of AdamW on everything else. Default: a tenth of `lr`.
    """
    settings: dict[str, Any] = {"weight_decay": weight_decay, "eps": eps}
    match plan.optimizer:
        case "adamw":
            return [torch.optim.AdamW(plan.param_groups(model, lr=lr, **settings), betas=betas)]
        case "adam":
            return [torch.optim.Adam(plan.param_groups(model, lr=lr, **settings), betas=betas)]
        case "sgd":
            return [torch.optim.SGD(plan.param_groups(model, lr=lr, **settings), lr=lr, momentum=momentum)]
        case "muon":
            adam = lr / 10 if companion_lr is None else companion_lr
            return [
                torch.optim.Muon(plan.param_groups(model, lr=lr, part="muon", **settings), momentum=momentum),
                torch.optim.AdamW(plan.param_groups(model, lr=adam, part="adamw", **settings), betas=betas),
            ]
    raise LazyrichError("optimizer", f"torch.optim has no {plan.optimizer!r}", "train with your own loop")


def schedule_factor(schedule: str, warmup: int, step: int, steps: int) -> float:
    """Factor on the rate at a step: a linear rise over `warmup` steps, then the schedule."""
    shape = SCHEDULES[known_name("schedule", schedule, SCHEDULES)]
    if step < warmup:
        return (step + 1) / warmup
    return shape((step - warmup) / max(steps - warmup, 1))


def train(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    data: Callable[[int, int], Any],
    loss: Callable[[nn.Module, Any], Tensor],
    *,
    steps: int,
    seed: int,
    schedule: str = "constant",
    warmup: int = 0,
    after: Callable[[int], object] | None = None,
) -> int:
    """Train, and stop where the loss is no number.

    Parameters
    ----------
    model, optimizers
    data : callable
        ``data(step, seed)`` gives a batch.
    loss : callable
        ``loss(model, batch)`` gives a scalar.
    steps, seed : int
    schedule, warmup
        See :func:`schedule_factor`.
    after : callable, optional
        Called with the number of steps made.

    Returns
    -------
    int
        The step at which the loss was no number, or -1.
    """
    rates = [[float(group["lr"]) for group in optimizer.param_groups] for optimizer in optimizers]
    model.train()
    for step in range(steps):
        factor = schedule_factor(schedule, warmup, step, steps)
        value = loss(model, data(step, seed))
        if not torch.isfinite(value):
            return step
        for optimizer, base in zip(optimizers, rates, strict=True):
            optimizer.zero_grad(set_to_none=True)
            for group, rate in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = factor * rate
        value.backward()
        for optimizer in optimizers:
            optimizer.step()
        if after is not None:
            after(step + 1)
    return -1
