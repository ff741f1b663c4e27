"""Plans: roles and numbers by hand, the base bit for bit, equivalent forms by training both, refusals."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lazyrich import LazyrichError
from lazyrich.problem.parametrization import Growth, rule_for
from lazyrich.problem.rules import move_factor
from lazyrich.torch import Plan, load_plan, plan
from lazyrich.torch.training import make_optimizers
from tests.torch_models import (
    EXPLICIT,
    INPUTS,
    OUTPUTS,
    batch,
    built,
    loss,
    losses,
    make_explicit,
    make_model,
    make_tied,
    make_tied_explicit,
)

BASE = {"width": 16, "depth": 2}
PROBE = batch(0)[0]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def planned(width: int = 64, depth: int = 8, make: Callable[..., nn.Module] = make_model, **options: Any) -> Plan:
    return plan(make, base=BASE, target={"width": width, "depth": depth}, **options)


def numbers(found: Plan, name: str) -> tuple[float | None, ...]:
    """Init factor, rate, eps, decay of a parameter."""
    (entry,) = (entry for entry in found.entries if entry.name == name)
    return entry.init_std, entry.learning_rate, entry.eps, entry.weight_decay


# ---- Roles and numbers -----------------------------------------------------------------------------------------------

ROLES = {
    "first.weight": "input",
    "first.bias": "input-bias",
    "blocks.5.norm.weight": "block-bias",
    "blocks.5.norm.bias": "block-bias",
    "blocks.5.up.weight": "block",
    "blocks.5.up.bias": "block-bias",
    "blocks.5.down.weight": "block",
    "blocks.5.down.bias": "block-bias",
    "norm.weight": "input-bias",
    "norm.bias": "input-bias",
    "readout.weight": "output",
    "readout.bias": "output-bias",
}
MOVED = {"blocks.5.down.weight": "branch", "blocks.5.down.bias": "branch", "readout.weight": "output"}


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "muon", "sign"])
@pytest.mark.parametrize("scheme", ["sp", "mup", "depth-mup", "complete-p", (0.75, 0.25)], ids=str)
def test_every_number_is_the_tables(scheme: str | tuple[float, float], optimizer: str) -> None:
    found = planned(64, 8, scheme=scheme, optimizer=optimizer)
    entries = {entry.name: entry for entry in found.entries}
    assert found.depths == {"blocks": (2, 8)}
    for name, role in ROLES.items():
        entry = entries[name]
        inside = role.startswith("block")
        rule = rule_for(role, found.scheme, optimizer, Growth(4, 4 if inside else 1))
        if name in MOVED and scheme != "sp":
            rule = move_factor(rule)
        assert entry.role == role
        expected = rule.factors()
        if entry.start == "constant":  # zeros and ones have no standard deviation
            assert entry.init_std == (entry.moved if name in MOVED else 1.0)
        else:
            assert entry.init_std == pytest.approx(expected["init_std"])
        assert (entry.learning_rate, entry.eps, entry.weight_decay) == (
            pytest.approx(expected["learning_rate"]),
            pytest.approx(expected["eps"]),
            pytest.approx(expected["weight_decay"]),
        )
        assert entry.vector == (role.endswith("bias") or "norm" in name)
        assert entry.optimizer == (("muon" if role == "block" else "adamw") if optimizer == "muon" else optimizer)


def test_by_hand() -> None:
    """Four times the width and four times the depth, CompleteP with AdamW: init, rate, eps, decay."""
    found = planned(64, 8, inputs=PROBE)
    assert numbers(found, "first.weight") == pytest.approx((1, 1, 1 / 4, 1))
    assert numbers(found, "blocks.0.up.weight") == pytest.approx((1 / 2, 1 / 4, 1 / 16, 4))
    assert numbers(found, "blocks.0.down.weight") == pytest.approx((1 / 8, 1 / 16, 1 / 4, 16))
    assert numbers(found, "readout.weight") == pytest.approx((1 / 4, 1 / 4, 1, 4))
    (first,) = (entry for entry in found.entries if entry.name == "first.weight")
    assert first.base_value == pytest.approx((3 * INPUTS) ** -0.5, rel=0.02)  # nn.Linear's own


def test_groups_hold_plain_numbers_for_every_parameter_once() -> None:
    found = planned()
    model = built(found, make_model, width=64, depth=8)
    groups = found.param_groups(model, lr=0.01, weight_decay=0.1, eps=1e-6)
    inside = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(inside) == len(set(inside)) == len(list(model.parameters()))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in groups:
        assert all(type(group[key]) is float for key in ("lr", "eps", "weight_decay"))
        for parameter in group["params"]:
            entry = next(entry for entry in found.entries if entry.name == names[id(parameter)])
            assert group["lr"] == pytest.approx(0.01 * entry.learning_rate)
            assert entry.eps is not None and group["eps"] == pytest.approx(1e-6 * entry.eps)
            if entry.vector:
                assert group["weight_decay"] == 0.0
            else:
                assert group["lr"] * group["weight_decay"] == pytest.approx(0.01 * 0.1)
    for parameter in model.parameters():
        assert not {key for key in vars(parameter) if not key.startswith("_")}  # nothing is hung on tensors


def test_independent_decay_shrinks_by_the_decay() -> None:
    found = planned(decay="independent")
    model = built(found, make_model, width=64, depth=8)
    for group in found.param_groups(model, lr=0.01, weight_decay=1e-3):
        assert group["weight_decay"] == 0.0 or group["lr"] * group["weight_decay"] == pytest.approx(1e-3)


class Zoo(nn.Module):
    """Modules of many kinds; no forward pass is needed to plan."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pixels = nn.Conv2d(3, width, 3)
        self.depthwise = nn.Conv2d(width, width, 3, groups=width)
        self.mixing = nn.Conv2d(width, 2 * width, 1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2)
        self.batch_norm, self.group_norm = nn.BatchNorm2d(width), nn.GroupNorm(4, width)
        self.recurrent = nn.LSTM(5, width)
        self.words = nn.EmbeddingBag(11, width)
        self.attention = nn.MultiheadAttention(width, width // 8)
        self.register_token = nn.Parameter(torch.randn(4, width))
        self.temperature = nn.Parameter(torch.ones(()))
        self.class_scores = nn.Linear(width, 7)


def test_kinds_of_modules() -> None:
    found = plan(lambda width: Zoo(width), base={"width": 16}, target={"width": 64}, scheme="mup")
    got = {entry.name: (entry.role, entry.fan_in, entry.fan_out) for entry in found.entries}
    assert got["pixels.weight"][0] == got["depthwise.weight"][0] == "input"
    assert got["mixing.weight"] == got["up.weight"] == ("block", 4.0, 4.0)
    assert got["batch_norm.weight"][0] == got["group_norm.bias"][0] == got["depthwise.bias"][0] == "input-bias"
    assert got["recurrent.weight_ih_l0"][0] == "input" and got["recurrent.weight_hh_l0"][0] == "block"
    assert got["words.weight"][0] == got["register_token"][0] == "input"
    assert got["attention.in_proj_weight"][0] == got["attention.out_proj.weight"][0] == "block"
    assert got["temperature"][0] == got["class_scores.bias"][0] == "output-bias"
    assert got["class_scores.weight"][0] == "output"


class Bare(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.mixture = nn.Parameter(torch.randn(width, 3 * width + width * (width == 32)))
        self.scores = nn.Parameter(torch.randn(7, width))
        self.kernel = nn.Conv1d(3, 5, width)


def test_what_cannot_be_classified_is_listed_with_the_nearest_role_and_can_be_told() -> None:
    with pytest.raises(LazyrichError) as caught:
        plan(Bare, base={"width": 16}, target={"width": 32}, scheme="mup")
    text = str(caught.value)
    assert text.startswith("plan: 3 parameters cannot be classified: ") and "\n" not in text
    assert "mixture (16, 48) to (32, 128) (nearest role 'block'" in text
    assert "scores (7, 16) to (7, 32) (nearest role 'input'" in text
    assert "kernel.weight" in text and "overrides={" in text
    told = {"mixture": {"role": "block"}, "scores": {"role": "output"}, "kernel.*": {"role": "output", "eps": 3.0}}
    found = plan(Bare, base={"width": 16}, target={"width": 32}, scheme="mup", overrides=told)
    entries = {entry.name: entry for entry in found.entries}
    assert (entries["mixture"].fan_out, entries["mixture"].fan_in) == (2.0, 128 / 48)
    assert entries["scores"].role == "output" and entries["scores"].learning_rate == 0.5
    assert entries["kernel.weight"].eps == 3.0 and "set by you: role, eps" in entries["kernel.weight"].where


def test_overrides_set_numbers() -> None:
    told = {"first.*": {"learning_rate": 7.0}, "first.weight": {"init_std": 0.25, "weight_decay": 3.0}}
    found = planned(overrides=told)
    assert numbers(found, "first.bias")[1] == numbers(found, "first.weight")[1] == 7.0
    model = built(found, make_model, width=64, depth=8)
    assert float(model.first.weight.detach().std()) == pytest.approx(0.25, rel=0.01)  # pyright: ignore
    assert found.audit(model).passed


def test_depth_alone_and_blocks_in_a_sequential() -> None:
    def sequential(blocks: int) -> nn.Module:
        part = [nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(blocks)]
        return nn.Sequential(nn.Linear(3, 8), *part, nn.Linear(8, 2))

    found = plan(sequential, base={"blocks": 2}, target={"blocks": 6}, scheme="complete-p", optimizer="muon")
    assert found.depths == {"model": (2, 6)}
    roles = {entry.name: entry.role for entry in found.entries}
    assert roles["0.weight"] == "input" and roles["4.1.weight"] == "block" and roles["7.weight"] == "output"
    assert {entry.name for entry in found.entries if entry.optimizer == "muon"} == {
        f"{n}.1.weight" for n in range(1, 7)
    }
    assert numbers(found, "4.1.weight")[:2] == pytest.approx((1 / 3, 1 / 3))


class Stage(nn.Module):
    """A residual convolutional block that may change the number of channels."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.shortcut(features) + self.conv2(F.relu(self.norm(self.conv1(features))))


def make_resnet(width: int, depth: int) -> nn.Module:
    def stage(before: int, after: int) -> nn.Module:
        return nn.Sequential(*(Stage(before if index == 0 else after, after) for index in range(depth)))

    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))
    return nn.Sequential(nn.Conv2d(3, width, 3), stage(width, width), stage(width, 2 * width), head)


def test_a_resnet_of_two_stages() -> None:
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    found = plan(make_resnet, base={"width": 8, "depth": 2}, target={"width": 16, "depth": 6}, inputs=images)
    entries = {entry.name: entry for entry in found.entries}
    assert found.depths == {"1": (2, 6), "2": (2, 6)}
    assert entries["1.3.conv2.weight"].moved == entries["2.0.conv2.weight"].moved == pytest.approx(1 / 3)
    assert entries["2.0.shortcut.weight"].moved == 1.0 and entries["2.0.shortcut.weight"].role == "block"
    assert any("verified by running 3 blocks" in note for note in found.notes)  # the first of stage 2 changes its shape
    model = built(found, make_resnet, width=16, depth=6)
    assert found.audit(model, make_optimizers(found, model, lr=1e-3)).passed


# ---- The base is plain PyTorch; equivalent forms ---------------------------------------------------------------------

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.0, betas=(0.9, 0.95)),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=3e-3, betas=(0.9, 0.95)),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=3e-3, momentum=0.9),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("scheme", ["sp", "ntk", "mup", "depth-mup", "complete-p"])
def test_at_the_base_size_it_is_plain_pytorch_bit_for_bit(scheme: str, optimizer: str) -> None:
    found = planned(16, 2, scheme=scheme, optimizer=optimizer, inputs=PROBE)
    assert found.at_base
    random = torch.random.get_rng_state()
    planned(16, 2, scheme=scheme)
    assert torch.equal(torch.random.get_rng_state(), random)  # planning leaves no trace
    model = built(found, make_model, **BASE)
    torch.manual_seed(0)
    plain = make_model(**BASE)
    own = OPTIMIZERS[optimizer](plain.parameters())
    values = losses(found, model, 20, lr=3e-3)
    for step in range(20):
        value = loss(plain, batch(step))
        assert float(value.detach()) == values[step]
        own.zero_grad()
        value.backward()
        own.step()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)


FORMS = {"adamw": 3e-3, "adam": 3e-3, "sgd": 0.02, "muon": 0.02}


def apart(optimizer: str, clip: float | None = None, change: str = "", **size: int) -> float:
    """The largest difference of the losses of both forms over 50 steps, relative to the first loss.

    `change` plants an error into the form without factors in the forward pass.
    """
    folded = planned(**size, optimizer=optimizer)
    explicit = planned(**size, make=make_explicit, optimizer=optimizer, multipliers=EXPLICIT)
    assert sorted(explicit.multipliers) == [*(f"blocks.{n}.scale" for n in range(size["depth"])), "readout_scale"]
    settings = {"lr": FORMS[optimizer], "eps": 1e-3, "weight_decay": 0.0 if optimizer == "adam" else 0.1}
    if change:
        entries = tuple(
            dataclasses.replace(entry, **{change: getattr(entry, change) / entry.moved}) for entry in folded.entries
        )
        folded = dataclasses.replace(folded, entries=entries)
    runs = [
        losses(found, built(found, make, **size), 50, clip=clip, **settings)
        for found, make in ((folded, make_model), (explicit, make_explicit))
    ]
    assert runs[0][-1] < 0.5 * runs[0][0]  # something was learnt
    return float(np.abs(np.subtract(*runs)).max() / runs[1][0])


@pytest.mark.parametrize("optimizer", FORMS)
def test_equivalent_forms_train_identically(optimizer: str) -> None:
    # factors that are powers of two change no rounding: measured 0
    assert apart(optimizer, width=64, depth=8) < 1e-7
    assert apart(optimizer, clip=0.3, width=64, depth=8) < 1e-7
    if optimizer != "muon":  # Muon orthogonalises in bfloat16
        assert apart(optimizer, width=48, depth=6) < 1e-6  # measured: 7e-8 to 1.5e-7


@pytest.mark.parametrize(
    ("optimizer", "change"),
    [
        ("adamw", "init_std"),
        ("adamw", "learning_rate"),
        ("adamw", "eps"),
        ("adamw", "weight_decay"),
        ("sgd", "init_std"),
    ],
)
def test_a_setting_left_behind_shows(optimizer: str, change: str) -> None:
    assert apart(optimizer, change=change, width=64, depth=8) > 1e-4  # measured: 4e-4 and more


def test_plain_clipping_is_not_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(self: Plan, model: nn.Module, most: float) -> float:
        return float(torch.nn.utils.clip_grad_norm_(model.parameters(), most))

    monkeypatch.setattr(Plan, "clip_grad_norm_", plain)
    assert apart("sgd", clip=0.3, width=64, depth=8) > 1e-3


# ---- Tied embeddings -------------------------------------------------------------------------------------------------


def test_tied_embeddings_need_a_place_for_the_readouts_factor() -> None:
    tokens = torch.arange(10).view(2, 5)
    with pytest.raises(
        LazyrichError, match=r"^embedding.weight: is shared by embedding.weight and head.weight, so .*"
    ) as e:
        planned(make=make_tied)
    assert "{'readout': 'norm'}" in str(e.value)
    in_norm = planned(make=make_tied, multipliers={"readout": "norm"}, inputs=tokens)
    explicit = planned(make=make_tied_explicit, multipliers={"readout": "logit_scale"}, inputs=tokens)
    outputs = []
    for found, make in ((in_norm, make_tied), (explicit, make_tied_explicit)):
        model = built(found, make, width=64, depth=8)
        (shared,) = (entry for entry in found.entries if entry.aliases)
        assert (shared.name, shared.aliases, shared.role) == ("embedding.weight", ("head.weight",), "input")
        assert (shared.init_std, shared.moved) == (1.0, 1.0)
        optimizers = make_optimizers(found, model, lr=0.01, weight_decay=0.1, eps=1e-3)
        assert found.audit(model, optimizers).passed
        values = []
        for _ in range(20):
            value = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            values.append(float(value.detach()))
            optimizers[0].zero_grad()
            value.backward()
            optimizers[0].step()
        outputs.append(values)
    assert outputs[0] == pytest.approx(outputs[1], rel=1e-6)  # measured: equal
    assert explicit.multipliers == {"logit_scale": 0.25}


def test_a_place_that_does_not_scale_the_output_is_refused() -> None:
    tokens = torch.arange(10).view(2, 5)
    with pytest.raises(LazyrichError, match=r"the output is not proportional to it.*; put a Multiplier"):
        planned(make=make_tied, multipliers={"readout": "blocks.0.down"}, inputs=tokens)


# ---- Ends of branches ------------------------------------------------------------------------------------------------


class PostNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.map = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, features: Tensor) -> Tensor:
        return self.norm(features + self.map(features))


class Saturated(PostNorm):
    def forward(self, features: Tensor) -> Tensor:
        return features + torch.tanh(self.map(self.norm(features)))


class Flat(nn.Module):
    """Two branches whose maps are all direct children, with names that say nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.a, self.b, self.c, self.d = (nn.Linear(width, width) for _ in range(4))

    def forward(self, features: Tensor) -> Tensor:
        features = features + self.b(F.relu(self.a(self.norm(features))))
        return features + self.d(F.relu(self.c(self.norm(features))))


def stacked(kind: type[nn.Module]) -> Callable[..., nn.Module]:
    def make(width: int, depth: int) -> nn.Module:
        blocks = nn.Sequential(*(kind(width) for _ in range(depth)))
        return nn.Sequential(nn.Linear(INPUTS, width), blocks, nn.Linear(width, OUTPUTS))

    return make


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (PostNorm, r"with its branches set to zero it is not the identity: .*post-norm"),
        (Saturated, r"a branch is not proportional to its last linear map"),
        (Flat, r"with its branches set to zero it is not the identity: an end is missing"),
    ],
)
def test_wrong_ends_of_branches_are_found_by_running_the_base(kind: type[nn.Module], message: str) -> None:
    make = stacked(kind)
    with pytest.raises(LazyrichError, match=message):
        planned(make=make, inputs=PROBE)
    planned(make=make, inputs=PROBE, depth=2)  # over width alone it does not matter
    blind = planned(make=make)
    assert any("not verified: give inputs" in note for note in blind.notes)


def test_ends_can_be_named() -> None:
    found = planned(make=stacked(Flat), inputs=PROBE, multipliers={"branch": "1.*.[bd]"})
    moved = {entry.name for entry in found.entries if "branch" in entry.where and "in here" in entry.where}
    assert moved == {f"1.{n}.{name}.{kind}" for n in range(8) for name in "bd" for kind in ("weight", "bias")}


# ---- Apply: once, to the right model, before training ----------------------------------------------------------------


def test_applying_is_idempotent_and_refuses_what_was_trained() -> None:
    found = planned()
    model = built(found, make_model, width=64, depth=8)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    found.initialize_(model)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    with pytest.raises(LazyrichError, match=r"another plan was applied to this model; build the model anew"):
        planned(scheme="mup").initialize_(model)
    losses(found, model, 1, lr=1e-3)
    with pytest.raises(LazyrichError, match=r"the model has been trained or loaded since; pass force=True"):
        found.initialize_(model)
    loaded = make_model(64, 8)
    loaded.load_state_dict(model.state_dict())
    with pytest.raises(LazyrichError, match=r"is no longer constant: the model has been trained or loaded"):
        found.initialize_(loaded)
    found.initialize_(loaded, force=True)
    fresh = make_model(64, 8)
    loss(fresh, batch(0)).backward()
    with pytest.raises(LazyrichError, match=r"has a gradient: training has begun"):
        found.initialize_(fresh)


def test_frozen_parameters_are_left_alone() -> None:
    def make(width: int) -> nn.Module:
        model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 2))
        model[2].weight.requires_grad_(False)
        return model

    found = plan(make, base={"width": 8}, target={"width": 32}, scheme="mup")
    torch.manual_seed(0)
    model = make(32)
    before = model[2].weight.clone()
    found.initialize_(model)
    assert torch.equal(model[2].weight, before)
    groups = found.param_groups(model, lr=1e-3)
    assert not any(parameter is model[2].weight for group in groups for parameter in group["params"])
    assert found.audit(model, torch.optim.AdamW(groups)).passed
    assert "frozen" in str(found)


class Gated(nn.Module):
    """A residual block with a gate of two numbers, and a hidden layer that grows on its own."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 2)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, features: Tensor) -> Tensor:
        return features + torch.sigmoid(self.gate(features)).sum(-1, keepdim=True) * self.down(self.up(features).relu())


def make_gated(width: int, hidden: int) -> nn.Module:
    blocks = nn.ModuleList(Gated(width, hidden) for _ in range(2))
    return nn.Sequential(nn.Linear(INPUTS, width), *blocks, nn.Linear(width, OUTPUTS))


def test_each_matrix_has_its_own_growth() -> None:
    sizes = {"base": {"width": 16, "hidden": 32}, "target": {"width": 32, "hidden": 256}}
    entries = {entry.name: entry for entry in plan(make_gated, scheme="mup", optimizer="sgd", **sizes).entries}
    up, down, gate = (entries[f"1.{name}.weight"] for name in ("up", "down", "gate"))
    assert (up.fan_in, up.fan_out, up.learning_rate) == (2.0, 8.0, 4.0)
    assert (down.fan_in, down.fan_out, down.learning_rate) == (8.0, 2.0, 0.25)
    # inside a block it is no readout: nothing is moved into it
    assert (gate.role, gate.fan_in, gate.fan_out, gate.moved) == ("block", 2.0, 1.0, 1.0)


def test_muons_own_factors_are_taken_out() -> None:
    """What a step really does: its singular values grow as sqrt(fan_out/fan_in), and decay shrinks as at the base."""
    base, sizes = {"width": 16, "hidden": 32}, [{"width": 16, "hidden": 32}, {"width": 32, "hidden": 256}]
    singular: dict[str, list[float]] = {"up": [], "down": []}
    for size in sizes:
        found = plan(make_gated, base=base, target=size, scheme="mup", optimizer="muon")
        model = built(found, make_gated, **size)
        groups = found.param_groups(model, lr=0.01, weight_decay=0.1, part="muon")
        assert all(group["lr"] * group["weight_decay"] == pytest.approx(0.01 * 0.1) for group in groups)
        optimizer = torch.optim.Muon([{**group, "weight_decay": 0.0} for group in groups], weight_decay=0.0)
        before = {name: getattr(model[1], name).weight.detach().clone() for name in singular}
        loss(model, batch(0)).backward()
        optimizer.step()
        for name in singular:
            values = torch.linalg.svdvals(getattr(model[1], name).weight.detach() - before[name])
            singular[name].append(float(values.square()[:8].mean().sqrt()))  # the batch's gradient has few directions
    # Newton-Schulz in five steps leaves singular values between 0.7 and 1.2
    assert singular["up"][1] / singular["up"][0] == pytest.approx((8 / 2) ** 0.5, rel=0.2)
    assert singular["down"][1] / singular["down"][0] == pytest.approx((2 / 8) ** 0.5, rel=0.2)


def test_the_base_is_drawn_until_its_scales_are_known() -> None:
    from lazyrich.torch.measure import measure

    once = {name: measure([parameter]).error for name, parameter in make_model(**BASE).named_parameters()}
    for entry in planned().entries:
        if entry.start == "random" and not entry.pool.startswith("blocks"):
            assert entry.base_error < 0.6 * once[entry.name]  # four draws: half


class Named(nn.Module):
    """A user's own attribute called `module`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.module = nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))


def test_names_inside_wrappers() -> None:
    found = plan(Named, base={"width": 8}, target={"width": 16}, scheme="mup")

    class Wrapper(nn.Module):  # names as DDP makes them
        def __init__(self) -> None:
            super().__init__()
            self.module = torch.compile(Named(16), backend="eager")

    names = [name for name, _ in Wrapper().named_parameters()]
    assert names[0] == "module._orig_mod.module.0.weight"
    assert [entry.name for entry, _ in found.matched(Wrapper())] == [entry.name for entry in found.entries]


def test_a_few_alike_numbers_are_no_deviation() -> None:
    from lazyrich.torch.measure import measure

    few = measure([torch.tensor([0.1, -0.1, 0.1001])])
    assert few.error == pytest.approx(0.5 * 0.8**0.5 / 3**0.5)
    random = torch.Generator().manual_seed(0)
    spread = [measure([torch.randn(500, generator=random)]).value for _ in range(400)]
    expected = measure([torch.randn(500, generator=random)]).error  # 0.032
    assert float(np.std(spread)) == pytest.approx(expected, rel=0.15)  # 400 draws: three standard errors are 0.11


class Half(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, width)
        if width > 8:
            self.extra = nn.Linear(width, width)


class Adapted(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.base, self.lora_A, self.lora_B = nn.Linear(4, width), nn.Linear(4, 2), nn.Linear(2, width)


def reads_values(width: int) -> nn.Module:
    model = nn.Linear(4, width)
    assert float(model.weight.detach().sum()) < 1e9
    return model


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan(make_model, base=None, target=BASE), "base: missing; give the size at which settings were tuned"),
        (lambda: planned(scheme="completep"), "scheme: 'completep' is not known; did you mean 'complete-p'?"),
        (lambda: planned(scheme=(1.0,)), "scheme: (1.0,) is not (alpha, gamma); "),
        (lambda: planned(optimizer="AdamW"), "optimizer: 'AdamW' is not known; did you mean 'adamw'?"),
        (lambda: planned(decay="coupled"), "decay: 'coupled' is not known; choose one of with-rate, independent"),
        (lambda: planned(multipliers={"logits": "norm"}), "multipliers: 'logits' is not known; choose one of readout"),
        (lambda: planned(multipliers={"readout": "nrom"}), "multipliers.readout: no module is called 'nrom'; check"),
        (lambda: planned(multipliers={"attention": None}), "multipliers.attention: this model has no such factor"),
        (lambda: planned(multipliers={"readout": "blocks.0"}), "multipliers.readout: blocks.0 (Block) is no norm, "),
        (lambda: planned(overrides={"x*": {"eps": 1.0}}), "overrides.x*: matches no parameter; check the pattern"),
        (lambda: planned(overrides={"*": {"lr": 1.0}}), "overrides.*: 'lr' is not known; choose one of role"),
        (lambda: planned(overrides={"*": {"role": "hidden"}}), "overrides.*.role: 'hidden' is not known; "),
        (lambda: planned(overrides={"*": {"eps": -1.0}}), "overrides.*.eps: -1.0 is no number; give at least 0"),
        (
            lambda: planned(overrides={"norm.bias": {"init_std": 1.0}}),
            "overrides.norm.bias: starts at zero in the base",
        ),
        (
            lambda: plan(lambda width: nn.Linear(4, 4), base={"width": 1}, target={"width": 2}),
            "target: the model is as large as the base; check that make_model uses its arguments",
        ),
        (
            lambda: plan(Half, base={"width": 8}, target={"width": 16}),
            "make_model: 2 parameters have no counterpart in the other size: extra.weight, extra.bias; only widths",
        ),
        (
            lambda: plan(Adapted, base={"width": 8}, target={"width": 16}),
            "lora_A.weight: 4 parameters are low-rank adap",
        ),
        (
            lambda: plan(reads_values, base={"width": 8}, target={"width": 16}),
            "make_model: the model cannot be built on",
        ),
        (
            lambda: plan(lambda width: width, base={"width": 8}, target={"width": 16}),
            "make_model: gives int, no module",
        ),
        (
            lambda: plan(lambda rows: nn.Embedding(rows, 4), base={"rows": 8}, target={"rows": 16}),
            "plan: 1 parameters cannot be classified: weight (8, 4) to (16, 4) (nearest role 'output': its number",
        ),
        (
            lambda: plan(lambda w: nn.Linear(3, w), base={"w": 8}, target={"w": 16}, optimizer="muon"),
            "optimizer: there is no block matrix for Muon; plan with optimizer='adamw'",
        ),
        (
            lambda: planned().initialize_(make_model(32, 8)),
            "first.weight: has shape (32, 8), planned (64, 8); build the",
        ),
        (lambda: planned().initialize_(make_model(64, 7)), "blocks.7.norm.weight: is missing in the model; build the"),
        (lambda: planned().initialize_(make_model(64, 9)), "blocks.8.norm.weight: is not in the plan; plan this model"),
        (
            lambda: planned().initialize_(make_model(64, 8).to("meta")),
            "first.weight: is on the meta device; materialise",
        ),
        (
            lambda: planned(optimizer="adam").param_groups(make_model(64, 8), lr=1e-3, weight_decay=0.1),
            "weight_decay: L2 in Adam's gradient has no rule that keeps it across sizes; plan with optimizer='adamw'",
        ),
        (
            lambda: planned().param_groups(make_model(64, 8), lr=-1.0),
            "lr: -1.0 is no setting; give a number of at least",
        ),
        (
            lambda: planned(optimizer="muon").param_groups(make_model(64, 8), lr=1e-3),
            "part: None is no part of this plan; choose one of adamw, muon",
        ),
        (lambda: planned().audit(make_model(64, 8), rate=1.0), "audit(rate): is no base value; give lr, eps or"),
        (
            lambda: load_plan({"format": "lazyrich plan 0"}),
            "plan: has format 'lazyrich plan 0', not 'lazyrich plan 1'; ",
        ),
        (lambda: load_plan("nowhere.json"), "nowhere.json: no such file; save the plan beside the checkpoint"),
        (lambda: load_plan({"format": "lazyrich plan 1"}), "plan: is no plan (KeyError); give what Plan.save wrote"),
    ],
)
def test_errors_are_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(LazyrichError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


# ---- Printing, saving, importing -------------------------------------------------------------------------------------


def test_a_plan_is_text_and_json_and_comes_back(tmp_path: Path) -> None:
    found = planned(optimizer="muon", inputs=PROBE)
    found.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == found
    assert load_plan(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
    text = str(found)
    assert "blocks.*.down.weight (8)" in text and "the branch's m^-alpha is in here" in text
    assert "CompleteP" in text and "not covered: batch size" in text
    formula, reason, source = found.reasons["block"]["learning_rate"]
    assert formula == "fan_out^(1/2) fan_in^(-1/2)"
    assert "singular values" in reason and "2310.17813" in source
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(LazyrichError, match=r"is no plan \(JSONDecodeError\)"):
        load_plan(tmp_path / "broken.json")


def test_without_torch_there_is_one_line(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else real(name, *rest)\n"
        "import lazyrich; assert 'torch' not in sys.modules\n"
        "try:\n    import lazyrich.torch\nexcept lazyrich.LazyrichError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "lazyrich.torch: PyTorch is not installed; pip install 'lazyrich[torch]'\n"
