"""Claims of Tensor Programs VI and its neighbours on what transfers over depth: T2, T3, T5 to T7, T9 and T10."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.gallery.claim import Check, Claim, Judgement, Number, Results, Source, drawn
from lazyrich.gallery.depth_classes import RULES
from lazyrich.gallery.reading import (
    best_point,
    drift_number,
    log_ratio_of,
    losses_at,
    mean_number,
    moves,
    regret_number,
    trend,
    with_error,
)
from lazyrich.gallery.work import Work
from lazyrich.transfer.figures import plot_best_rates, plot_losses

if TYPE_CHECKING:
    from lazyrich.transfer.analysis import Analysis

_BLOCKS = "network.blocks"
# What a carried rate may cost, in nats of the loss: a tenth of the loss.
_CHEAP, _CHEAP_REASON = 0.1, "a tenth of the loss, a fifteenth of what muP for width only loses from 8 to 64 blocks"


def _carried(analysis: Analysis, name: str, essential: bool = True, **fixed: Any) -> Check:
    """That carrying the rate of the smallest depth to the largest is cheap."""
    number = regret_number(
        f"cost in nats of the base's best rate at the largest depth, {name}", _deepest(analysis, **fixed)
    )
    return Check(number, below=_CHEAP, reason=_CHEAP_REASON, essential=essential)


def _deepest(analysis: Analysis, **fixed: Any):
    return moves(analysis, _BLOCKS, **fixed)


def judge_transfer(results: Results) -> Judgement:
    """T2."""
    adam, sgd = results["t2-rate-over-depth.toml"], results["t2-sgd-and-norms.toml"]
    multiplier = results["t2-multiplier-over-depth.toml"]
    checks = [
        _carried(adam, "Adam, Depth-muP", scheme="depth-mup"),
        _carried(sgd, "SGD, Depth-muP, no norm", scheme="depth-mup", normalisation="none"),
        _carried(sgd, "SGD, Depth-muP, LayerNorm", scheme="depth-mup", normalisation="layer"),
    ]
    depths = sorted({best.axes[_BLOCKS] for best in multiplier.best})
    chosen = [
        best_point(multiplier, blocks=depth, scheme="depth-mup").axes["network.multiplier"]
        for depth in (depths[0], depths[-1])
    ]
    octaves = math.log2(chosen[1] / chosen[0])
    number = Number("shift of the best block multiplier in octaves, Depth-muP", octaves, octaves - 0.5, octaves + 0.5)
    reason = "multipliers are an octave apart: at most to the neighbour"
    checks.append(Check(number, above=-1.6, below=1.6, reason=reason))
    return Judgement(
        f"Under Depth-muP the best rate of the smallest depth costs {checks[0].number} nat at the largest with Adam, "
        f"{checks[1].number} with SGD and {checks[2].number} with SGD and LayerNorm.",
        checks,
    )


def judge_ode(results: Results) -> Judgement:
    """T3."""
    (analysis,) = results.values()
    deepest = max(best.axes[_BLOCKS] for best in analysis.best)
    losses = [losses_at(best_point(analysis, blocks=deepest, scheme=scheme)) for scheme in ("ode", "depth-mup")]
    higher = log_ratio_of(f"ln loss(ODE) / loss(Depth-muP), {deepest} blocks, each at its best rate", *losses)
    cost = regret_number(
        "cost in nats of the base's best rate at the largest depth, ODE", _deepest(analysis, scheme="ode")
    )
    return Judgement(
        f"At {deepest} blocks ODE ends at {math.exp(higher.value):.2f} times Depth-muP's loss; carrying its rate costs "
        f"{cost} nat.",
        [
            Check(higher, above=0.0, reason="the sign is the claim"),
            Check(cost, above=_CHEAP, reason=f"worse than cheap: {_CHEAP_REASON}", essential=False),
        ],
    )


def judge_scaled_rate(results: Results) -> Judgement:
    """T7."""
    (analysis,) = results.values()
    drift = drift_number(
        "best rate, octaves per doubling of depth, rate left alone",
        trend(analysis, _BLOCKS, "training", scheme="sqrt-depth"),
    )
    cost = regret_number(
        "cost in nats of the base's best rate at the largest depth, rate left alone",
        _deepest(analysis, scheme="sqrt-depth"),
    )
    return Judgement(
        f"With branches of 1/sqrt(depth) and Adam's rate left alone, the best rate moves by {drift} octaves per "
        f"doubling, and carrying it costs {cost} nat.",
        [
            Check(drift, below=-0.25, reason="1/sqrt(depth) is -1/2: nearer to that than to 0"),
            Check(cost, above=_CHEAP, reason=f"not cheap: {_CHEAP_REASON}"),
            _carried(analysis, "rate as 1/sqrt(depth)", scheme="depth-mup"),
        ],
    )


def judge_nonlinearities(results: Results) -> Judgement:
    """T5: every function of degree one is c x + d |x|; compared are d alone, both alike, and c alone."""
    (analysis,) = results.values()
    kinds = {str(best.axes["network.nonlinearity"]): best.axes["network.nonlinearity"] for best in analysis.best}
    best = {name: losses_at(best_point(analysis, nonlinearity=kind)) for name, kind in kinds.items()}
    checks = [
        Check(log_ratio_of(f"ln loss(abs) / loss({name}), best rate and multiplier", best["abs"], values), below=0.0,
              reason="the sign is the claim")
        for name, values in best.items() if name != "abs"
    ]  # fmt: skip
    return Judgement(
        f"Each at its best rate and multiplier, |x| ends at {math.exp(checks[0].number.value):.2f} times relu's loss.",
        checks,
    )


def second_orders(quick: bool) -> list[Work]:
    """The second part of T6. Few units cross a kink: relu needs larger steps, and tanh smaller ones."""
    return [
        Work(
            "second-order",
            {
                "points": [list(rule) for rule in RULES],
                "probe": {
                    "nonlinearity": kind,
                    "block_layers": 2,
                    "base_blocks": 8,
                    "rate": rate,
                    "seeds": 4 if quick else 8,
                },
                "depths": [8, 32, 128] if quick else [8, 16, 32, 64, 128],
            },
        )
        for kind, rate in (("relu", 0.2), ("tanh", 0.05))
    ]


def judge_two_layer_blocks(results: Results) -> Judgement:
    """T6."""
    analysis, found = results["t6-two-layer-blocks.toml"], results["t6-second-order.py"]
    checks, numbers = [], []
    for kind, power, each in zip(("relu", "tanh"), (0.5, 1.0), found, strict=True):
        for gamma, (value, error) in zip(each["gamma"], each["slope"], strict=True):
            name = f"power of depth in what is nonlinear in a block's change, {kind}, gamma = {gamma:g}"
            number = Number(name, float(value), float(value - error), float(value + error))
            if gamma == 0.5:
                checks.append(Check(number, below=-0.1, reason=f"expected {-power * gamma:g}: blocks become lazy"))
            elif gamma == 0.0:
                checks.append(Check(number, above=-0.1, below=0.1, reason="expected 0: blocks stay nonlinear"))
            else:
                numbers.append(number)
    cost = regret_number(
        "cost in nats of the base's best rate at the largest depth, Depth-muP", _deepest(analysis, scheme="depth-mup")
    )
    checks.append(Check(cost, above=_CHEAP, reason=f"a failure to transfer: {_CHEAP_REASON}", essential=False))
    return Judgement(
        f"Under Depth-muP blocks of two layers become linear in their own change (depth^{checks[0].number.value:.2f} "
        f"with relu, depth^{checks[2].number.value:.2f} with tanh); yet carrying its best rate costs {cost} nat.",
        checks,
        numbers,
    )


_RATE = 0.0625


def judge_order(results: Results) -> Judgement:
    """T9."""
    (analysis,) = results.values()
    widths = sorted({best.axes["network.width"] for best in analysis.best})
    depths = sorted({best.axes[_BLOCKS] for best in analysis.best})

    def effect(width: int) -> np.ndarray:
        low, high = (
            losses_at(best_point(analysis, width=width, blocks=depth), _RATE) for depth in (depths[0], depths[-1])
        )
        return high - low

    effects = [effect(width) for width in widths]
    numbers = [
        mean_number(f"change of the loss from {depths[0]} to {depths[-1]} blocks, width {width}", values)
        for width, values in zip(widths, effects, strict=True)
    ]
    count = len(effects[0])
    error = math.hypot(*(values.std(ddof=1) / math.sqrt(count) for values in (effects[0], effects[-1])))
    apart = with_error(
        f"the same at width {widths[0]} less that at width {widths[-1]}",
        float(effects[0].mean() - effects[-1].mean()), error, count,
    )  # fmt: skip
    wide = losses_at(best_point(analysis, width=widths[-1], blocks=depths[0]), _RATE)
    narrow = losses_at(best_point(analysis, width=widths[0], blocks=depths[0]), _RATE)
    scale = float(narrow.mean() - wide.mean())
    reason = f"half of what the width changes, {scale:.2f}: depth does another thing in narrow networks if it is more"
    return Judgement(
        f"What {depths[-1]} in place of {depths[0]} blocks change differs by {apart} between widths {widths[0]} and "
        f"{widths[-1]}, from width below depth to above; the width itself changes the loss by {scale:.2f}.",
        [Check(apart, above=-0.5 * abs(scale), below=0.5 * abs(scale), reason=reason)],
        numbers,
    )


def judge_schedules(results: Results) -> Judgement:
    """T10."""
    schedules, time = results["t10-schedules.toml"], results["t10-training-time.toml"]
    checks = [
        *(_carried(schedules, f"{name} schedule", schedule=name) for name in ("constant", "cosine")),
        _carried(time, "constant schedule, at every time read"),
    ]
    steps = {each.sizes[-1]: each for each in time.trends if each.axis == "step"}
    shift = [drift_number("best rate, octaves per doubling of the training time", each) for each in steps.values()]
    return Judgement(
        f"Carrying the best rate to the largest depth costs {checks[0].number} nat with a constant rate and "
        f"{checks[1].number} with a cosine; over training time the optimum moves by {shift[0]} octaves per doubling.",
        checks,
        shift,
    )


def _small(seeds: int, count: int, **axes: Any) -> dict[str, Any]:
    """Changes of a quick run: half the width, fewer samples, steps, networks and rates."""
    return {
        "network.width": 32,
        "data.samples": 512,
        "training.steps": 41,
        "transfer.seeds": seeds,
        "transfer.rates": {"count": count},
        "transfer.axes": {name.replace("__", "."): values for name, values in axes.items()},
    }


_SCHEMES = _small(8, 15, network__blocks=[8, 32]) | {"transfer.rates": {"from": 0.03, "to": 2.0, "count": 15}}

CLAIMS = (
    Claim(
        "T2",
        "Best rate and block multiplier transfer over depth under Depth-muP, SGD and Adam, with and without norms.",
        (
            Source("t2-rate-over-depth.toml", _small(4, 7, network__blocks=[8, 32], training__scheme=["depth-mup"])),
            Source(
                "t2-sgd-and-norms.toml",
                _small(4, 8, network__blocks=[8, 24], training__scheme=["depth-mup"]),
            ),
            Source(
                "t2-multiplier-over-depth.toml",
                _small(
                    3, 6, network__blocks=[8, 32], network__multiplier=[0.3, 0.6, 1.2], training__scheme=["depth-mup"]
                ),
            ),
        ),
        judge_transfer,
        drawn(plot_losses, "t2-sgd-and-norms.toml"),
    ),
    Claim(
        "T3",
        "The ODE parametrization learns features but transfers worse and ends at a higher loss at large depth.",
        (Source("t3-schemes-over-depth.toml", _SCHEMES),),
        judge_ode,
        drawn(plot_losses, "t3-schemes-over-depth.toml"),
    ),
    Claim(
        "T5",
        "Among homogeneous nonlinearities |x| is most diverse and trains best.",
        (
            Source(
                "t5-nonlinearities.toml", _small(3, 6, network__multiplier=[0.25, 0.5, 1.0]) | {"network.blocks": 16}
            ),
        ),
        judge_nonlinearities,
        drawn(plot_losses, "t5-nonlinearities.toml"),
    ),
    Claim(
        "T6",
        "Blocks of two layers show the limits of Depth-muP: they become lazy inside, and its rate no longer transfers.",
        (
            Source("t6-two-layer-blocks.toml", _small(3, 7, network__blocks=[8, 32], training__scheme=["depth-mup"])),
            Source("t6-second-order.py", works=second_orders),
        ),
        judge_two_layer_blocks,
        drawn(plot_losses, "t6-two-layer-blocks.toml"),
    ),
    Claim(
        "T7",
        "With branches of 1/sqrt(depth) Adam's rate must fall as 1/sqrt(depth) too.",
        (Source("t3-schemes-over-depth.toml", _SCHEMES),),
        judge_scaled_rate,
        drawn(plot_best_rates, "t3-schemes-over-depth.toml"),
    ),
    Claim(
        "T9",
        "The limits of width and depth commute.",
        (
            Source(
                "t9-width-and-depth.toml",
                {
                    "transfer.seeds": 4,
                    "training.steps": 41,
                    "transfer.axes": {"network.width": [16, 64], "network.blocks": [16, 64]},
                },
            ),
        ),
        judge_order,
        drawn(plot_losses, "t9-width-and-depth.toml"),
    ),
    Claim(
        "T10",
        "The whole schedule of the rate transfers over depth; the optimum moves with training time.",
        (
            Source("t10-schedules.toml", _small(8, 13)),
            Source("t10-training-time.toml", _small(8, 13) | {"training.steps": 81, "transfer.at": [20, 40, 80]}),
        ),
        judge_schedules,
        drawn(plot_losses, "t10-schedules.toml"),
    ),
)
