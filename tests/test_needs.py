"""What users of other transfer tools ran into, by the number of the need: met, or refused with an explanation."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lazyrich
from lazyrich import LazyrichError
from lazyrich.problem.parametrization import Scheme, rules
from lazyrich.problem.rules import DISAGREEMENTS, NOT_COVERED, effective, move_factor, rules_report
from lazyrich.torch import Plan, load_plan, plan, transfer_sweep
from lazyrich.torch.training import make_optimizers
from tests.torch_models import EXPLICIT, batch, built, loss, losses, make_explicit, make_model, make_tied

ROOT = Path(__file__).parent.parent
BASE, SIZE = {"width": 16, "depth": 2}, {"width": 64, "depth": 4}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def found() -> Plan:
    return plan(make_model, base=BASE, target=SIZE, inputs=batch(0)[0])


def swept(folder: Path, **options: Any):
    settings: dict[str, Any] = {
        "base": BASE,
        "steps": 8,
        "seeds": 2,
        "evaluation": 1,
        "workers": 1,
        "scheme": "mup",
        "sizes": {"width": [16, 32]},
        "rates": [1e-3, 4e-3, 1.6e-2],
    } | options
    sizes, rates = settings.pop("sizes"), settings.pop("rates")
    return transfer_sweep(make_model, batch, sizes, rates, loss=loss, folder=folder, **settings)


def test_n1_a_tied_embedding_is_treated_once_and_logits_are_scaled_explicitly() -> None:
    with pytest.raises(LazyrichError, match="is shared by"):
        plan(make_tied, base=BASE, target=SIZE)
    spreads = []
    for width in (16, 64, 256):
        target = {"width": width, "depth": 2}
        made = plan(make_tied, base=BASE, target=target, scheme="mup", multipliers={"readout": "norm"})
        model = built(made, make_tied, **target)
        spreads.append(float(model.embedding.weight.detach().std()))  # pyright: ignore
        (shared,) = (entry for entry in made.entries if entry.aliases)
        assert shared.moved == 1.0 and len(made.entries) == len(list(model.parameters()))
        assert float(model.norm.weight[0].detach()) == pytest.approx(16 / width)  # pyright: ignore
    assert spreads == pytest.approx([1.0] * 3, rel=0.15)  # 320 numbers at width 16: three standard errors are 0.12


def test_n2_nothing_hangs_on_tensors_and_rules_are_found_by_name(found: Plan) -> None:
    model = built(found, make_model, **SIZE)
    replaced = pickle.loads(pickle.dumps(model))  # as sharding does, every parameter is another object
    assert found.audit(replaced, torch.optim.AdamW(found.param_groups(replaced, lr=1e-3))).passed
    # FSDP2 and DDP, before and after: tests/test_torch_works_with.py::test_two_processes


def test_n3_groups_are_plain_numbers_under_the_compiler(found: Plan) -> None:
    compiled = torch.compile(make_model(**SIZE), backend="aot_eager")
    found.initialize_(compiled)
    groups = found.param_groups(compiled, lr=1e-3)
    assert all(type(value) in (float, str, list) for group in groups for value in group.values())
    optimizer = torch.optim.AdamW(groups)
    loss(compiled, batch(0)).backward()
    optimizer.step()
    assert found.audit(compiled, optimizer).passed


def test_n4_any_optimiser_takes_the_groups(found: Plan) -> None:
    for kind in (torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax):
        model = built(found, make_model, **SIZE)
        optimizer = kind(found.param_groups(model, lr=1e-3))
        loss(model, batch(0)).backward()
        optimizer.step()
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        assert found.audit(model, optimizer).passed


def test_n5_depth_is_an_axis_with_a_base() -> None:
    made = plan(make_model, base={"width": 16, "depth": 2}, target={"width": 16, "depth": 16})
    assert made.depths == {"blocks": (2, 16)}
    assert {entry.learning_rate for entry in made.entries if entry.name.endswith("down.weight")} == {0.125}


def test_n6_decay_coupled_to_the_rate_or_not_is_an_explicit_choice() -> None:
    for decay, shrinks in (("with-rate", 1e-3 * 0.1), ("independent", 0.1)):
        made = plan(make_model, base=BASE, target=SIZE, decay=decay)
        assert f"decay {decay}" in str(made)
        groups = made.param_groups(make_model(**SIZE), lr=1e-3, weight_decay=0.1)
        decayed = [group for group in groups if group["weight_decay"]]
        assert decayed and all(g["lr"] * g["weight_decay"] == pytest.approx(shrinks) for g in decayed)


def test_n7_every_decay_and_rate_is_printed_and_what_is_not_covered(found: Plan) -> None:
    rows = found.rows()
    assert {"rate", "eps", "decay"} <= set(rows[0])
    assert sum(int(row[0].rpartition("(")[2].rstrip(")")) if "(" in row[0] else 1 for row in rows[1:]) == len(
        found.entries
    )
    assert "not covered: batch size, number of steps, schedule" in str(found)


def test_n8_adam_with_l2_in_the_gradient_is_refused_and_decay_audited_by_itself(found: Plan) -> None:
    with pytest.raises(LazyrichError, match="L2 in Adam's gradient has no rule"):
        plan(make_model, base=BASE, target=SIZE, optimizer="adam").param_groups(
            make_model(**SIZE), lr=1.0, weight_decay=0.1
        )
    model = built(found, make_model, **SIZE)
    coupled = torch.optim.Adam(found.param_groups(model, lr=1e-3, weight_decay=0.1))
    assert [one.what for one in found.audit(model, coupled).deviations] == ["optimizer"]
    groups = found.param_groups(model, lr=1e-3, weight_decay=0.1)
    groups[0]["weight_decay"] = 0.3
    assert {one.what for one in found.audit(model, torch.optim.AdamW(groups)).deviations} == {"weight_decay"}


def test_n9_a_coordinate_check_is_called_necessary_and_paired_with_a_sweep() -> None:
    from lazyrich.torch import CoordinateCheck

    text = str(CoordinateCheck("width", [1.0, 2.0, 4.0], 3, 0.1, [], {}))
    assert "necessary and not sufficient: confirm with transfer_sweep" in text
    assert "transfer_sweep" in (ROOT / "docs" / "torch.md").read_text()


def test_n11_the_output_is_checked_over_more_steps_with_a_slope_and_an_interval() -> None:
    from lazyrich.torch import coordinate_check

    check = coordinate_check(
        make_model,
        base=BASE,
        over={"width": [16, 64, 256]},
        batch=batch(0),
        loss=loss,
        lr=1e-3,
        scheme="mup",
        steps=7,
        seeds=3,
    )
    assert check.by_step["output"].shape == (3, 3, 7)  # sizes, seeds, steps
    for slope in check.slopes:
        low, high = slope.interval
        assert low < slope.slope < high


def test_n12_a_readout_that_falls_at_the_start_is_expected_to() -> None:
    from lazyrich.torch import coordinate_check

    check = coordinate_check(
        make_model,
        base=BASE,
        over={"width": [16, 64, 256, 1024]},
        batch=batch(0),
        loss=loss,
        lr=1e-3,
        scheme="mup",
        seeds=4,
    )
    slopes = {(slope.quantity, slope.when): slope for slope in check.slopes}
    start, change = slopes["output", "start"], slopes["output", "change"]
    assert start.expected == -0.5 and start.verdict != "fail"
    assert change.expected == 0.0 and change.verdict != "fail"


def test_n13_the_horizon_is_an_axis_and_its_drift_is_reported(tmp_path: Path) -> None:
    sweep = swept(tmp_path, at=(2, 4, 8))
    horizons = [trend for trend in sweep.analysis.trends if trend.axis == "step"]
    assert len(horizons) == 2 and len(horizons[0].sizes) == 3
    assert all(trend.drift.verdict for trend in horizons)
    by_length = swept(tmp_path / "b", sizes={"steps": [4, 8]})
    assert [(move.axis, move.start, move.end) for move in by_length.analysis.moves] == [("training.steps", 4, 8)]
    # and for linear networks studies/d3-rate-over-width.toml and docs/transfer.md have the step as an axis


def test_n14_what_is_proven_and_what_is_empirical_is_said(found: Plan) -> None:
    text = found.theory()
    assert "proven: at infinite width, for a fixed number of steps and a fixed batch size" in text
    assert "not covered: batch size, number of steps and schedule" in text
    assert any("batch size" in note for note in NOT_COVERED)


def test_n15_the_schedule_is_recorded_and_can_be_swept(tmp_path: Path) -> None:
    sweep = swept(tmp_path, sizes={"warmup": [0, 4], "schedule": ["constant", "cosine"]})
    assert {(best.axes["warmup"], best.axes["schedule"]) for best in sweep.analysis.best} == {
        (warmup, schedule) for warmup in (0, 4) for schedule in ("constant", "cosine")
    }
    losses_of = {tuple(best.axes.values()): best.losses for best in sweep.analysis.best}
    assert len({values.tobytes() for values in losses_of.values()}) == 4
    assert '"warmup"' in sweep.description and '"cosine"' in sweep.description


def test_n16_optima_have_intervals_and_the_verdict_says_when_sizes_do_not_suffice(tmp_path: Path) -> None:
    sweep = swept(tmp_path)
    for best in sweep.analysis.best:
        low, high = best.optimum.interval
        assert low <= best.optimum.best_rate <= high
    (trend,) = sweep.analysis.trends
    assert trend.drift.verdict.startswith(("transfers", "drifts", "undetermined: "))


def test_n17_the_exact_files_of_the_studies_are_shipped() -> None:
    text = (ROOT / "docs" / "torch.md").read_text()
    for name in ("examples/gpt_study.py", "examples/vit_study.py"):
        assert name in text and (ROOT / name).exists()
    for study in (ROOT / "studies").glob("d*.toml"):
        lazyrich.load_study(study)


def test_n18_a_missing_base_fails_loudly() -> None:
    with pytest.raises(TypeError, match="base"):
        plan(make_model, target=SIZE)  # pyright: ignore
    with pytest.raises(LazyrichError, match=r"^base: missing; give the size at which settings were tuned"):
        plan(make_model, base=None, target=SIZE)
    with pytest.raises(LazyrichError, match="base_width: missing"):
        rules_report("mup", "adamw", 1024, None)


def test_n19_equivalent_forms_are_shown_and_have_the_same_effective_values() -> None:
    report = rules_report("mup", "adamw", 1024, 256)
    assert report["rows"] != report["folded_rows"]
    explicit = plan(make_explicit, base=BASE, target=SIZE, multipliers=EXPLICIT)
    folded = plan(make_model, base=BASE, target=SIZE)
    one, other = (next(e for e in made.entries if e.name == "readout.weight") for made in (explicit, folded))
    q = other.moved
    assert (one.init_std * q, one.learning_rate * q) == pytest.approx((other.init_std, other.learning_rate))
    assert "is in readout_scale" in one.where and "is in here" in other.where
    rule = rules("mup", "adamw", (16, 64))[4]
    assert effective(rule) == pytest.approx(effective(move_factor(rule, 0.3)))


class BuiltIn(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, norm_first=True, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(width, 3)


def test_n20_the_built_in_attention_without_a_scale_is_detected() -> None:
    more_heads = plan(BuiltIn, base={"width": 16, "heads": 2}, target={"width": 64, "heads": 8}, scheme="mup")
    assert {entry.role for entry in more_heads.entries if "in_proj_weight" in entry.name} == {"block"}
    with pytest.raises(LazyrichError) as caught:
        plan(BuiltIn, base={"width": 16, "heads": 2}, target={"width": 64, "heads": 2}, scheme="mup")
    text = str(caught.value)
    assert "layers.0.self_attn: its heads grow from 8 to 32: logits need 1/head dimension" in text
    assert "torch.nn.MultiheadAttention has no scale; grow the number of heads instead" in text


def test_n22_realised_sizes_are_measured(found: Plan) -> None:
    """A flag that never was applied, 1/m instead of 1/sqrt(m), a factor twice: all are sizes."""
    half = plan(make_model, base=BASE, target=SIZE, scheme="depth-mup", inputs=batch(0)[0])
    assert half.audit(built(half, make_model, **SIZE)).passed
    assert not half.audit(make_model(**SIZE)).passed
    assert not half.audit(built(found, make_model, **SIZE)).passed  # CompleteP's 1/m
    model = built(found, make_model, **SIZE)
    optimizer = torch.optim.AdamW(found.param_groups(model, lr=1e-3))
    loss(model, batch(0)).backward()
    optimizer.step()
    updates = found.audit(model, optimizer).updates
    assert updates["blocks.0.up.weight"] / updates["first.weight"] == pytest.approx(
        1 / 4, rel=0.05
    )  # Adam's first step


def test_n23_the_plan_is_versioned_and_travels_with_the_checkpoint(found: Plan, tmp_path: Path) -> None:
    torch.save({"model": make_model(**SIZE).state_dict(), "plan": found.to_json()}, tmp_path / "checkpoint.pt")
    stored = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["plan"]
    assert load_plan(stored) == found and stored["base"] == "width = 16, depth = 2"
    with pytest.raises(LazyrichError, match="has format 'lazyrich plan 9', not 'lazyrich plan 1'; make the plan again"):
        load_plan({**stored, "format": "lazyrich plan 9"})
    found.save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["format"] == "lazyrich plan 1"


def test_n24_the_trained_model_is_an_ordinary_model(found: Plan, tmp_path: Path) -> None:
    model = built(found, make_model, **SIZE)
    losses(found, model, 3, lr=1e-3)
    plain = make_model(**SIZE)  # knows nothing of lazyrich
    plain.load_state_dict(model.state_dict())
    inputs = batch(9)[0]
    exported = torch.export.export(model.eval(), (inputs,)).module()
    assert torch.equal(plain.eval()(inputs), model(inputs))
    assert torch.equal(exported(inputs), model(inputs))
    # fine-tuning: the groups' rates hold for a loaded model too; its init is left alone unless forced
    tuned = torch.optim.AdamW(found.param_groups(plain, lr=1e-4))
    assert {group["lr"] for group in tuned.param_groups} >= {1e-4}
    with pytest.raises(LazyrichError, match="trained or loaded"):
        found.initialize_(plain)


def test_n25_minima_are_interpolated_and_drawn_with_intervals(tmp_path: Path) -> None:
    from lazyrich.transfer.figures import plot_losses

    sweep = swept(tmp_path, rates=np.geomspace(1e-3, 0.3, 8))
    on_grid = [np.isclose(best.rates, best.optimum.best_rate, rtol=1e-9).any() for best in sweep.analysis.best]
    assert not all(on_grid)
    axes = plot_losses(sweep.analysis).axes[0]
    stars = [container for container in axes.containers if container.lines[0].get_marker() == "*"]
    assert len(stars) == 2 and all(container.has_xerr for container in stars)


def test_n27_rules_are_per_optimiser_muon_included_with_sources() -> None:
    rates = {
        name: rules("complete-p", name, (256, 1024), (8, 32))[2].learning_rate for name in ("sgd", "adamw", "muon")
    }
    assert rates == {"sgd": 4.0, "adamw": 0.25, "muon": 1.0}
    made = plan(make_model, base=BASE, target=SIZE, optimizer="muon")
    assert "2310.17813" in made.reasons["block"]["learning_rate"][2]
    assert {e.optimizer for e in made.entries if e.role == "block"} == {"muon"}
    model = built(made, make_model, **SIZE)
    assert made.audit(model, make_optimizers(made, model, lr=0.02)).passed


def test_n28_nothing_is_promised_of_depth_mup() -> None:
    text = plan(make_model, base=BASE, target=SIZE, scheme="depth-mup").theory()
    assert "empirical: that the best rate of a finite model stays where it is" in text
    assert "only a sweep at several widths shows whether yours is" in text


def test_n30_names_are_from_the_papers() -> None:
    assert Scheme(1.0, 0.0).alpha == 1.0
    report = rules_report("complete-p", "adamw", 1024, 256, 32, 8)
    for rule in report["rules"]:
        for entry in rule["factors"].values():
            assert entry["reason"] and entry["source"]
    assert {"multiplier", "eps", "weight decay"} <= set(report["columns"])
    assert len(DISAGREEMENTS) >= 4


def test_n31_the_supported_range_of_jax_and_torch_is_bounded_and_pinned() -> None:
    """Met by bounds on both sides in pyproject.toml and exact versions in constraints.txt, with which all tests run."""
    project, pinned = (ROOT / "pyproject.toml").read_text(), (ROOT / "constraints.txt").read_text()
    for name in ("jax", "torch", "transformers"):
        line = next(line for line in project.splitlines() if f'"{name}>=' in line)
        assert "<" in line
        assert f"\n{name}==" in pinned


def test_n32_memory_is_estimated_before_solving() -> None:
    """Met in the theory: lazyrich.predict refuses what will not fit."""
    problem = lazyrich.Problem(
        network=lazyrich.Network(width=10**6, blocks=4),
        data=lazyrich.GaussianData(dimension=100, samples=200),
        training=lazyrich.Training(steps=200_000, learning_rate=0.1),
    )
    with pytest.raises(LazyrichError, match=r"memory|GiB|GB"):
        lazyrich.predict(problem)


def test_n33_the_check_has_a_criterion_and_three_verdicts() -> None:
    from lazyrich.torch import CoordinateCheck
    from lazyrich.torch.coordinate_check import Slope

    def one(verdict: str) -> Slope:
        return Slope("stream", "change", 0.0, (-0.1, 0.1), 0.0, verdict, np.ones((3, 2)))

    for verdicts, answer in [
        (["pass", "pass"], "pass"),
        (["pass", "undetermined"], "undetermined"),
        (["undetermined", "fail"], "fail"),
    ]:
        check = CoordinateCheck("width", [1.0, 2.0, 4.0], 3, 0.1, [one(each) for each in verdicts], {})
        assert check.verdict == answer and f"tolerance 0.1: {answer}" in str(check)
        assert "slope +0.000 (-0.100 to +0.100), expected +0.0" in str(check)
    assert math.isfinite(one("pass").slope)
