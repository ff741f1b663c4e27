"""Two processes that train one model together, for the tests; run as ``python -m tests.torch_distributed``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lazyrich.torch import Plan, load_plan
from tests.torch_models import batch, built, loss, make_model

SIZE = {"width": 32, "depth": 4}
STEPS = 8


def wrapped(model: nn.Module, kind: str) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        for block in model.blocks:  # pyright: ignore
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def train(plan: Plan, kind: str, rank: int, late: bool) -> dict[str, Any]:
    """Train; `late` applies the plan after wrapping."""
    if late:
        torch.manual_seed(0)
        model = wrapped(make_model(**SIZE), kind)
        plan.initialize_(model)
    else:
        model = wrapped(built(plan, make_model, **SIZE), kind)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=3e-3, weight_decay=0.1, eps=1e-3))
    before = plan.audit(model, optimizer)
    found = []
    for step in range(STEPS):
        inputs, targets = batch(step)
        half = slice(8 * rank, 8 * rank + 8)
        value = loss(model, (inputs[half], targets[half]))
        total = value.detach().clone()
        dist.all_reduce(total)
        found.append(float(total) / 2)
        optimizer.zero_grad()
        value.backward()
        plan.clip_grad_norm_(model, 0.5)
        optimizer.step()
    after = plan.audit(model, optimizer)
    return {"losses": found, "before": str(before), "after": str(after), "saved": list(model.state_dict())}


def run(plan_file: str, folder: str, rank: int) -> None:
    """All cases, one after the other."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    plan = load_plan(plan_file)
    outcome = {f"{kind} {late}": train(plan, kind, rank, late) for kind in ("ddp", "fsdp2") for late in (False, True)}
    if rank == 0:
        Path(folder, "outcome.json").write_text(json.dumps(outcome))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    # All is done and written. What the backend leaves to the interpreter's end aborted it once, on a busy machine.
    os._exit(0)
