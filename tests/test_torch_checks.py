"""The audit finds planted mistakes, the coordinate check tells muP from SP, sweeps run on the engine, theory speaks."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from examples import gpt, vit
from lazyrich import LazyrichError
from lazyrich.torch import Plan, coordinate_check, plan, transfer_sweep
from lazyrich.torch.training import make_optimizers
from lazyrich.torch.transfer_sweep import TorchCell, fingerprint
from tests.torch_models import EXPLICIT, batch, built, loss, make_explicit, make_model, make_tied

BASE, SIZE = {"width": 16, "depth": 2}, {"width": 64, "depth": 8}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ---- Audit -----------------------------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {"lr": 3e-3, "weight_decay": 0.1, "eps": 1e-6}


@pytest.fixture(scope="module")
def residual() -> Plan:
    return plan(make_model, base=BASE, target=SIZE, inputs=batch(0)[0])


def groups_of(found: Plan, model: nn.Module) -> list[dict[str, Any]]:
    return found.param_groups(model, **SETTINGS)


def all_deviations(found: Plan, model: nn.Module, groups: list[dict[str, Any]]) -> dict[str, set[str]]:
    audit = found.audit(model, torch.optim.AdamW(groups))
    assert audit.passed == (not audit.deviations)
    assert len(str(audit).splitlines()) >= 1 + len(audit.deviations)
    kinds: dict[str, set[str]] = {}
    for deviation in audit.deviations:
        kinds.setdefault(deviation.what, set()).add(deviation.name)
    return kinds


def test_what_is_as_planned_passes_before_and_during_training_and_with_a_schedule(residual: Plan) -> None:
    for seed in range(20):  # no false alarm
        assert residual.audit(built(residual, make_model, seed=seed, **SIZE)).passed
    model = built(residual, make_model, **SIZE)
    optimizer = torch.optim.AdamW(groups_of(residual, model))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    for step in range(4):
        audit = residual.audit(model, optimizer)
        assert audit.passed and audit.step == step, audit
        assert audit.base == pytest.approx({"lr": 3e-3 / (step + 1), "eps": 1e-6, "weight_decay": 0.1})
        assert bool(audit.notes) == (step > 0)
        optimizer.zero_grad()
        loss(model, batch(step)).backward()
        optimizer.step()
        schedule.step()
    assert not residual.audit(model, optimizer, lr=3e-3).passed  # the schedule has changed it


def test_sizes_of_updates_are_measured(residual: Plan) -> None:
    model = built(residual, make_model, **SIZE)
    optimizer = torch.optim.AdamW(residual.param_groups(model, lr=3e-3), betas=(0.9, 0.99))
    for step in range(3):
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        optimizer.zero_grad()
        loss(model, batch(step)).backward()
        optimizer.step()
    updates = residual.audit(model, optimizer).updates
    assert updates.keys() == before.keys()
    for name, parameter in model.named_parameters():
        moved = float((parameter.detach() - before[name]).square().mean().sqrt())
        assert updates[name] == pytest.approx(moved, rel=1e-3)  # float32 differences of weights: measured 1e-4


def wrong_readout(found: Plan) -> tuple[nn.Module, list[dict[str, Any]]]:
    model = built(found, make_model, **SIZE)
    with torch.no_grad():
        model.readout.weight.mul_(2.0)  # pyright: ignore  # std n^-1/2 instead of 1/n
    return model, groups_of(found, model)


def unapplied(found: Plan) -> tuple[nn.Module, list[dict[str, Any]]]:
    model = make_model(**SIZE)
    return model, groups_of(found, model)


def forgotten_group(found: Plan) -> tuple[nn.Module, list[dict[str, Any]]]:
    model = built(found, make_model, **SIZE)
    groups = groups_of(found, model)
    return model, [group for group in groups if "output" not in group["name"].split("+")]


def one_rate(found: Plan) -> tuple[nn.Module, list[dict[str, Any]]]:
    model = built(found, make_model, **SIZE)
    return model, [{"params": list(model.parameters()), "lr": 3e-3, "weight_decay": 0.1, "eps": 1e-6}]


def decay_coupled_twice(found: Plan) -> tuple[nn.Module, list[dict[str, Any]]]:
    model = built(found, make_model, **SIZE)
    groups = groups_of(found, model)
    for group in groups:
        group["weight_decay"] *= 3e-3 / group["lr"]
    return model, groups


def eps_left(found: Plan) -> tuple[nn.Module, list[dict[str, Any]]]:
    model = built(found, make_model, **SIZE)
    return model, [{**group, "eps": 1e-6} for group in groups_of(found, model)]


def decayed_gains(found: Plan) -> tuple[nn.Module, list[dict[str, Any]]]:
    model = built(found, make_model, **SIZE)
    return model, [{**group, "weight_decay": group["weight_decay"] or 0.1} for group in groups_of(found, model)]


def branch_scaled_twice(found: Plan) -> tuple[nn.Module, list[dict[str, Any]]]:
    model = built(found, make_model, **SIZE)
    with torch.no_grad():
        model.blocks[3].down.weight.mul_(0.25)  # pyright: ignore
    return model, groups_of(found, model)


# nn.Linear's own init is right but for the factors that move in, and for biases, whose base does not grow with fan_in
# (the three numbers of the readout's bias are too few to tell)
UNAPPLIED = {"readout.weight"} | {
    f"blocks.{n}.{name}" for n in range(8) for name in ("down.weight", "down.bias", "up.bias")
}


@pytest.mark.parametrize(
    ("mistake", "what", "names"),
    [
        (wrong_readout, "init", {"readout.weight"}),
        (unapplied, "init", UNAPPLIED),
        (forgotten_group, "group", {"readout.weight"}),
        (one_rate, "learning_rate", {"readout.weight", "blocks.0.down.weight", "blocks.0.up.weight"}),
        (decay_coupled_twice, "weight_decay", {"readout.weight", "blocks.0.up.weight"}),
        (eps_left, "eps", {"first.weight", "blocks.0.up.weight"}),
        (decayed_gains, "weight_decay", {"norm.weight", "first.bias"}),
        (branch_scaled_twice, "init", {"blocks.3.down.weight"}),
    ],
)
def test_planted_mistakes_are_found(residual: Plan, mistake: Callable, what: str, names: set[str]) -> None:
    found = all_deviations(residual, *mistake(residual))
    assert set(found) == ({"learning_rate", "eps", "weight_decay"} if mistake is one_rate else {what})
    if what in ("init", "group"):
        assert found[what] == names
    # what most parameters agree on is taken for right, unless the base values are given: then the wrong ones are named
    model, groups = mistake(residual)
    strict = residual.audit(model, torch.optim.AdamW(groups), **SETTINGS)
    assert names <= {deviation.name for deviation in strict.deviations if deviation.what == what}


def test_tied_weights_scaled_twice_are_found() -> None:
    found = plan(make_tied, base=BASE, target=SIZE, multipliers={"readout": "norm"})
    model = built(found, make_tied, **SIZE)
    assert found.audit(model).passed
    with torch.no_grad():
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if name in ("embedding.weight", "head.weight"):
                parameter.mul_(0.5)
    (deviation,) = found.audit(model).deviations
    assert deviation.name == "embedding.weight" and "shared with head.weight: it is to be scaled once" in deviation.text
    assert deviation.found / deviation.planned == pytest.approx(0.25, rel=0.1)
    untied = copy.deepcopy(model)
    untied.head.weight = nn.Parameter(untied.head.weight.detach().clone())  # pyright: ignore
    with pytest.raises(LazyrichError, match=r"head.weight: is not one tensor with embedding.weight, as in the plan"):
        found.audit(untied)


def test_kinds_of_optimisers_groups_and_multipliers(residual: Plan) -> None:
    model = built(residual, make_model, **SIZE)
    coupled = torch.optim.Adam(groups_of(residual, model))
    (deviation,) = residual.audit(model, coupled).deviations
    assert deviation.what == "optimizer" and "use AdamW" in deviation.text
    wrong = torch.optim.SGD(groups_of(residual, model), lr=1e-3)
    assert any(one.text == "the plan is for adamw" for one in residual.audit(model, wrong).deviations)
    other = make_model(**SIZE)
    strange = residual.audit(model, torch.optim.AdamW(groups_of(residual, other)))
    assert any("are not the model's" in one.text for one in strange.deviations)
    twice = [torch.optim.AdamW(groups_of(residual, model)) for _ in range(2)]
    assert all("is in 2 groups" in one.text for one in residual.audit(model, twice).deviations)
    assert not residual.audit(model, twice).passed
    explicit = plan(make_explicit, base=BASE, target=SIZE, multipliers=EXPLICIT)
    model = built(explicit, make_explicit, **SIZE)
    assert explicit.audit(model).passed
    model.readout_scale.factor.fill_(1.0)  # pyright: ignore
    (deviation,) = explicit.audit(model).deviations
    assert (deviation.name, deviation.what, deviation.planned) == ("readout_scale", "multiplier", 0.25)


def test_an_eps_that_is_not_small_is_noted(residual: Plan) -> None:
    model = built(residual, make_model, **SIZE)
    losses_with = {}
    for eps in (1e-12, 1.0):
        optimizer = torch.optim.AdamW(residual.param_groups(model, lr=1e-4, eps=eps))
        loss(model, batch(0)).backward()
        optimizer.step()
        losses_with[eps] = [note for note in residual.audit(model, optimizer).notes if "eps is larger" in note]
    assert not losses_with[1e-12] and losses_with[1.0]


@pytest.mark.parametrize("optimizer", ["sgd", "muon", "adam"])
def test_every_optimiser_passes_its_own_audit(optimizer: str) -> None:
    found = plan(make_model, base=BASE, target=SIZE, optimizer=optimizer, decay="independent")
    model = built(found, make_model, **SIZE)
    optimizers = make_optimizers(found, model, lr=0.01, weight_decay=0.0 if optimizer == "adam" else 1e-3)
    assert found.audit(model, optimizers).passed
    loss(model, batch(0)).backward()
    for each in optimizers:
        each.step()
        for group in each.param_groups:
            group["lr"] *= 0.5
    assert found.audit(model, optimizers).passed or optimizer != "adam"
    if optimizer != "adam":  # a schedule scales independent decay as well: that is said
        assert any("a schedule of the rate scales it as well" in note for note in found.notes)
    optimizers[0].param_groups[0]["lr"] *= 2
    assert any(one.what == "learning_rate" for one in found.audit(model, optimizers).deviations)


# ---- Coordinate check ------------------------------------------------------------------------------------------------


def gpt_check(scheme: str, over: dict[str, list[int]], **options: Any):
    return coordinate_check(
        gpt.make_model,
        base={"width": 64, "depth": 1 if "width" in over else 2},
        over=over,
        batch=gpt.data(0, 0)[:4, :17],
        loss=gpt.loss,
        scheme=scheme,
        **{"steps": 3, "seeds": 2, "lr": 1e-3, **options},
    )


def test_over_width_mup_is_flat_and_sp_is_not(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    found = gpt_check("mup", {"width": [64, 128, 256, 512, 1024]})
    # every slope is within 0.1 of the expected one: measured, at most 0.04 away
    assert len(found.slopes) == 8
    for slope in found.slopes:
        assert abs(slope.slope - slope.expected) < 0.1, slope
        assert slope.interval[0] <= slope.slope <= slope.interval[1]
        assert slope.verdict != "fail"
    start = {slope.quantity: slope for slope in found.slopes if slope.when == "start"}
    assert start["output"].expected == -0.5  # a readout that falls at the start is right
    assert "necessary and not sufficient" in str(found)
    found.plot(tmp_path / "check.png")
    assert (tmp_path / "check.png").stat().st_size > 20_000

    clearly_off = gpt_check("sp", {"width": [64, 128, 256]}, seeds=3)
    assert clearly_off.verdict == "fail"
    changes = {slope.quantity: slope for slope in clearly_off.slopes if slope.when == "change"}
    # measured: output +0.98, stream +0.6, block +0.5
    assert all(changes[name].verdict == "fail" and changes[name].slope > 0.35 for name in ("output", "stream", "block"))


def test_over_depth_complete_p_is_flat_and_width_only_mup_is_not() -> None:
    complete = gpt_check("complete-p", {"depth": [2, 4, 8, 16]}, lr=1e-4)
    changes = {slope.quantity: slope for slope in complete.slopes if slope.when == "change"}
    assert set(changes) == {"input", "block", "stream", "output"}
    assert abs(changes["stream"].slope) < 0.1  # measured -0.04
    only_width = gpt_check("mup", {"depth": [2, 4, 8, 16]}, lr=1e-4)
    grown = {slope.quantity: slope for slope in only_width.slopes if slope.when == "change"}
    assert only_width.verdict == grown["stream"].verdict == "fail"
    assert grown["stream"].slope > 1.0  # measured 1.35: L aligned changes, and a stream that grows


def test_verdicts_follow_the_intervals() -> None:
    """Slopes that are known: sizes^slope with noise of known size."""
    import importlib

    module = importlib.import_module("lazyrich.torch.coordinate_check")
    sizes = [64.0, 128.0, 256.0, 512.0]
    random = np.random.default_rng(0)

    def verdict(slope: float, noise: float, quantity: str = "stream") -> str:
        values = np.array(sizes)[:, None] ** slope * np.exp(noise * random.standard_normal((4, 4)))
        return module._slope(quantity, "change", sizes, values, 0.0, 0.1).verdict

    assert verdict(0.0, 0.01) == verdict(0.05, 0.01) == "pass"
    assert verdict(0.3, 0.01) == verdict(-0.3, 0.01) == "fail"
    assert verdict(0.1, 0.01) == verdict(0.0, 2.0) == "undetermined"
    # a random readout's part falls: no error, and no pass
    assert verdict(-0.3, 0.01, "output") == "undetermined" and verdict(-0.8, 0.01, "output") == "fail"
    inside = 0
    for _ in range(200):
        values = np.array(sizes)[:, None] ** 0.2 * np.exp(0.1 * random.standard_normal((4, 4)))
        low, high = module._slope("stream", "change", sizes, values, 0.0, 0.1).interval
        inside += low <= 0.2 <= high
    assert abs(inside / 200 - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 200)  # three standard errors


def test_errors_of_the_coordinate_check() -> None:
    with pytest.raises(LazyrichError, match=r"^over: is not one axis with three or more sizes; give e.g."):
        gpt_check("mup", {"width": [64, 128]})
    with pytest.raises(LazyrichError, match=r"^seeds: an interval needs two seeds"):
        gpt_check("mup", {"width": [64, 128, 256]}, seeds=1)
    with pytest.raises(LazyrichError, match=r"^lr: training diverged at step .*; take a lower rate"):
        coordinate_check(
            make_model,
            base=BASE,
            over={"width": [16, 32, 64]},
            batch=batch(0),
            loss=loss,
            lr=1e20,
            scheme="mup",
            optimizer="sgd",
            steps=9,
        )


# ---- Sweeps ----------------------------------------------------------------------------------------------------------


def sweep(folder: Path, **options: Any):
    settings: dict[str, Any] = {
        "sizes": {"width": [16, 32], "scheme": ["sp", "mup"]},
        "rates": np.geomspace(1e-3, 0.3, 6),
        "steps": 12,
        "base": {"width": 16, "depth": 2},
        "seeds": 2,
        "evaluation": 2,
        "workers": 1,
    }
    settings |= options
    sizes, rates = settings.pop("sizes"), settings.pop("rates")
    return transfer_sweep(make_model, batch, sizes, rates, loss=loss, folder=folder, **settings)


def test_a_sweep_is_resumed_reported_and_the_same(tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    found = sweep(tmp_path / "a", at=(6, 12), progress=lambda done, of: counts.append((done, of)))
    assert counts[-1] == (24, 24)
    assert len(found.analysis.best) == 8 and len(found.analysis.moves) == 4 * 2
    assert {trend.axis for trend in found.analysis.trends} == {"width", "step"}
    text = str(found)
    assert "regret in nats" in text and "scheme = mup" in text
    found.plot(tmp_path / "sweep.png")
    found.report(tmp_path / "report.html", command="python -m this")
    page = (tmp_path / "report.html").read_text()
    assert "python -m this" in page and "optimizer" in page and "<svg" in page
    (victim,) = sorted((tmp_path / "a" / "cells").iterdir())[:1]
    victim.unlink()
    counts.clear()
    again = sweep(tmp_path / "a", at=(6, 12), progress=lambda done, of: counts.append((done, of)))
    assert [done for done, _ in counts] == [*range(1, 25)]
    assert again.sweep.to_dataset().drop_vars([]).equals(found.sweep.to_dataset())


def test_a_sweep_reads_what_a_plain_loop_gives(tmp_path: Path) -> None:
    found = sweep(tmp_path / "a", sizes={"width": [16, 32], "scheme": ["mup"]}, rates=[3e-3, 1e-2])
    target = plan(make_model, base=BASE, target={"width": 32, "depth": 2}, scheme="mup")
    model = built(target, make_model, seed=1, width=32, depth=2)
    optimizer = torch.optim.AdamW(target.param_groups(model, lr=1e-2), betas=(0.9, 0.95))
    for step in range(12):
        optimizer.zero_grad()
        loss(model, batch(step, 1)).backward()
        optimizer.step()
    with torch.no_grad():
        expected = np.mean([float(loss(model, batch(-1 - index, 0))) for index in range(2)])
    assert found.sweep.grids[1, "training"].losses[1, 0, 1] == pytest.approx(expected, rel=1e-6)


def test_divergence_is_an_outcome(tmp_path: Path) -> None:
    found = sweep(tmp_path, rates=[1e-3, 1e-2, 1e-1, 1e12], optimizer="sgd", sizes={"width": [16, 32]}, scheme="mup")
    grid = found.sweep.grids[0, "training"]
    assert np.isnan(grid.losses[-1]).all() and (grid.diverged[-1] > 0).all()
    assert np.isfinite(grid.losses[0]).all() and (grid.diverged[0] == -1).all()
    assert found.analysis.best[0].unstable == 1e12


def test_keys_say_what_decides(tmp_path: Path) -> None:
    target = plan(make_model, base=BASE, target=SIZE)
    other = plan(make_model, base=BASE, target=SIZE, scheme="mup")

    def key(make: Callable, planned: Plan, rate: float, warmup: int) -> str:
        return TorchCell(make, batch, loss, SIZE, planned, rate, 5, (5,), 2, 1, {"warmup": warmup}).key()

    first = key(make_model, target, 1e-3, 0)
    assert key(make_model, plan(make_model, base=BASE, target=SIZE), 1e-3, 0) == first
    changed = [
        key(make_explicit, target, 1e-3, 0),
        key(make_model, target, 2e-3, 0),
        key(make_model, target, 1e-3, 1),
        key(make_model, other, 1e-3, 0),
    ]
    assert len({first, *changed}) == 5
    with pytest.raises(LazyrichError, match=r"cannot be found by a worker process; define it at the top level"):
        fingerprint(lambda: None)
    for options, message in [
        ({"rates": [1e-3]}, "rates: a sweep needs two positive rates and an axis"),
        ({"at": (0,)}, "at: (0,) are not steps from 1 to 12"),
        ({"schedule": "cosin"}, "schedule: 'cosin' is not known"),
    ]:
        with pytest.raises(LazyrichError) as caught:
            sweep(tmp_path / "b", **options)
        assert str(caught.value).startswith(message)


# ---- Theory and examples ---------------------------------------------------------------------------------------------


def test_what_theory_says() -> None:
    text = plan(make_model, base=BASE, target={"width": 32, "depth": 4}, scheme="complete-p").theory()
    assert "width 16 to 32, depth 2 to 4" in text and "linear theory, 2 to 4 residual blocks" in text
    assert "proven:" in text and "empirical:" in text and "not covered:" in text
    assert "it does not transfer" in plan(make_model, base=BASE, target=SIZE, scheme="sp").theory()


def test_the_linear_theory_is_the_transfer_engines(tmp_path: Path) -> None:
    """Over width the same best rates as from a study of the same linear network."""
    import importlib

    from lazyrich import GaussianData, Network, Study, Training
    from lazyrich.problem.files import Transfer
    from lazyrich.transfer.analysis import analyse
    from lazyrich.transfer.sweep import run_sweep

    theory = importlib.import_module("lazyrich.torch.theory")
    study = Study(
        network=Network(width=16, blocks=2, skip=1.0, branch=0.5**0.5),
        data=GaussianData(dimension=16, samples=32, label_noise=0.5),
        training=Training(steps=31, learning_rate=0.1),
        transfer=Transfer(rates=list(theory._RATES), axes={"network.width": [16, 256]}, loss="test"),
    )
    (move,) = analyse(run_sweep(study, tmp_path, workers=1)).moves
    found = plan(make_model, base=BASE, target={"width": 256, "depth": 2}, scheme="mup")
    octaves, regret, blocks = theory._linear_shift(found, *theory.sizes_of(found))
    assert blocks == (2, 2)
    assert octaves == pytest.approx(move.shift.octaves, abs=1e-6)
    assert regret == pytest.approx(move.regret.nats, abs=1e-6)


def test_the_linear_theory_over_depth() -> None:
    """Twice the depth: branches and block rates by hand; without a depth rule the best rate falls."""
    import importlib

    from lazyrich import GaussianData, LayerValues, Network, Problem, Training, predict

    theory = importlib.import_module("lazyrich.torch.theory")

    def planned(scheme: str) -> Plan:
        return plan(make_model, base={"width": 64, "depth": 4}, target={"width": 64, "depth": 8}, scheme=scheme)

    for scheme, branch, factor in (("complete-p", 0.25, 2.0), ("depth-mup", 0.125**0.5, 1.0), ("mup", 0.5, 1.0)):
        found = theory._losses(planned(scheme), 64, 4, 8)
        for index in (5, 20):
            rate = theory._RATES[index]
            problem = Problem(
                network=Network(width=64, blocks=8, skip=1.0, branch=branch),
                data=GaussianData(dimension=16, samples=32, label_noise=0.5),
                training=Training(
                    steps=31, learning_rate=LayerValues(input=rate, block=factor * rate, output=rate), richness=1.0
                ),
            )
            losses = predict(problem).test_loss
            assert losses is not None and found[index] == pytest.approx(losses[-1], rel=1e-9)
    (narrow, deep) = theory.sizes_of(planned("mup"))
    assert theory._linear_shift(planned("mup"), narrow, deep)[0] < -0.5
    assert abs(theory._linear_shift(planned("depth-mup"), narrow, deep)[0]) < 0.3


@pytest.mark.parametrize("module", [gpt, vit], ids=["gpt", "vit"])
def test_the_examples_learn(module: Any) -> None:
    size = {"width": 32, "depth": 4}
    inputs = module.data(0, 0)
    inputs = inputs[0] if isinstance(inputs, tuple) else inputs[:, :-1]
    found = plan(module.make_model, base={"width": 16, "depth": 2}, target=size, inputs=inputs)
    model = built(found, module.make_model, **size)
    optimizers = make_optimizers(found, model, lr=1e-2)
    assert found.audit(model, optimizers).passed
    values = []
    for step in range(30):
        value = module.loss(model, module.data(step, 0))
        values.append(float(value.detach()))
        optimizers[0].zero_grad()
        value.backward()
        optimizers[0].step()
    assert np.mean(values[-5:]) < values[0] - 0.25
    assert not torch.equal(first(module.data(-1, 0)), first(module.data(1, 0)))


def first(data: Any) -> torch.Tensor:
    return data[0] if isinstance(data, tuple) else data
