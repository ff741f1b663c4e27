"""Claims of Tensor Programs VI and its neighbours on depth, T1 to T11."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.class_map import GRID
from lazyrich.gallery.claim import Check, Claim, Judgement, Number, Results, Source
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
from lazyrich.plots import COLOURS, MARKERS, finish, one_panel
from lazyrich.transfer.figures import plot_best_rates, plot_losses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lazyrich.transfer.analysis import Analysis

_BLOCKS = "network.blocks"
# What a carried rate may cost, in nats of the loss: a tenth of the loss.
_CHEAP, _CHEAP_REASON = 0.1, "a tenth of the loss, a fifteenth of what muP for width only loses from 8 to 64 blocks"
RULES = ((0.5, 0.5), (0.75, 0.25), (1.0, 0.0))
_DIVERSE = "feature learning, diverse"


def _losses(name: str):
    def draw(results: Results) -> Figure:
        return plot_losses(results[name])

    return draw


def _rates(name: str):
    def draw(results: Results) -> Figure:
        return plot_best_rates(results[name])

    return draw


def _carried(analysis: Analysis, name: str, essential: bool = True, **fixed: Any) -> Check:
    """That carrying the rate of the smallest depth to the largest is cheap."""
    number = regret_number(
        f"cost in nats of the base's best rate at the largest depth, {name}", _deepest(analysis, **fixed)
    )
    return Check(number, below=_CHEAP, reason=_CHEAP_REASON, essential=essential)


def _deepest(analysis: Analysis, **fixed: Any):
    return moves(analysis, _BLOCKS, **fixed)


def classes(quick: bool) -> list[Work]:
    """The work of T1: 25 rules by one or three optimisers."""
    return [
        Work(
            "classes",
            {
                "points": [list(point) for point in GRID],
                "probe": {"optimizer": optimizer, "seeds": 4 if quick else 8},
                "depths": [16, 32, 64, 128],
            },
        )
        for optimizer in (("sign",) if quick else ("sign", "adam", "sgd"))
    ]


def judge_classes(results: Results) -> Judgement:
    """T1."""
    (found,) = results.values()
    wrong = open_ = others = total = unseen = 0
    for each in found:
        for point, measured, theory in zip(each["points"], each["measured"], each["theory"], strict=True):
            total += 1
            open_ += measured == "undetermined"
            wrong += measured not in (theory, "undetermined")
            best = tuple(point) == (0.5, 0.5)
            others += measured == _DIVERSE and not best
            unseen += measured != _DIVERSE and best
    reason = "none: intervals of the slopes are counted in the classes already"
    return Judgement(
        f"Of {total} depth rules {total - wrong - open_} have the class of the theory, {open_} are undetermined and "
        f"{wrong} have another; rules other than (1/2, 1/2) found diverse: {others}.",
        [
            Check(Number("rules whose measured class is another", wrong), below=0.5, reason=reason),
            Check(Number("other rules found to learn diverse features", others), below=0.5, reason=reason),
            Check(Number("optimisers by which (1/2, 1/2) does not", unseen), below=0.5, reason=reason),
            Check(Number("rules left undetermined", open_), below=0.5, reason=reason, essential=False),
        ],
    )


def draw_classes(results: Results) -> Figure:
    """Measured classes in the plane of rules, by the first optimiser."""
    from matplotlib.figure import Figure

    (found,) = results.values()
    each = found[0]
    figure = Figure(figsize=(7.4, 4.6), layout="constrained")
    axes = figure.subplots()
    for index, name in enumerate(sorted(set(each["measured"].tolist()))):
        x, y = each["points"][each["measured"] == name].T
        axes.plot(x, y, MARKERS[index], color=COLOURS[index], markersize=11, label=name)
    wrong = each["points"][(each["measured"] != each["theory"])]
    if len(wrong):
        axes.plot(*wrong.T, "x", color="black", markersize=14, label="not as by theory")
    finish(axes, logarithmic=False)
    axes.set(xlabel="alpha: branches as depth^-alpha", ylabel="gamma: rate as depth^-gamma")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


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


_KINDS = ("linear", "relu", "abs", "tanh", "gelu", 1.5)
_QUICK_KINDS = ("relu", "tanh")


def diversities(quick: bool) -> list[Work]:
    """The work of T4."""
    return [
        Work(
            "diversity",
            {
                "points": [list(rule) for rule in RULES],
                "probe": {
                    "nonlinearity": kind,
                    "optimizer": "adam",
                    "rate": 0.02,
                    "steps": 10 if quick else 40,
                    "only_blocks": False,
                    "seeds": 4 if quick else 8,
                },
                "depths": [16, 32, 64] if quick else [16, 32, 64, 128],
            },
        )
        for kind in (_QUICK_KINDS if quick else _KINDS)
    ]


def judge_diversity(results: Results) -> Judgement:
    """T4."""
    (found,) = results.values()
    checks = []
    for when in ("initial", "trained"):
        state = "at initialisation" if when == "initial" else "trained"
        for rule, (alpha, _) in enumerate(RULES):
            values = [tuple(each[when][rule]) for each in found]
            if alpha == 0.5:
                value, error = min(values, key=lambda pair: pair[0] - pair[1])
                above, below = -0.25, math.inf
            else:
                value, error = max(values, key=lambda pair: pair[0] + pair[1])
                above, below = -math.inf, -0.25
            name = f"power of depth in the quadratic variation, alpha = {alpha:g}, {state}, worst nonlinearity"
            number = Number(name, float(value), float(value - error), float(value + error))
            reason = f"expected {1 - 2 * alpha:g}; -1/4 is half way between 1/2 (exponent 1/2) and 3/4 (exponent 0)"
            checks.append(Check(number, below, above, reason))
    return Judgement(
        f"The walk over depth keeps its size at alpha = 1/2 (powers {checks[0].number.value:+.2f} before and "
        f"{checks[3].number.value:+.2f} after training) and vanishes for larger alpha.",
        checks,
    )


def draw_diversity(results: Results) -> Figure:
    """Powers over alpha with their errors."""
    (found,) = results.values()
    figure, axes = one_panel()
    kinds = _KINDS if len(found) == len(_KINDS) else _QUICK_KINDS
    for index, (kind, each) in enumerate(zip(kinds, found, strict=True)):
        shift = 0.012 * (index - 0.5 * len(found))
        for when, style in (("initial", "none"), ("trained", "full")):
            axes.errorbar(
                each["alpha"] + shift, each[when][:, 0], each[when][:, 1], color=COLOURS[index % 7],
                marker=MARKERS[index % 7], fillstyle=style, linestyle="none", capsize=3,
                label=f"{kind}, {when}",
            )  # fmt: skip
    axes.plot([0.5, 1.0], [0.0, -1.0], color="0.5", linestyle=":", label="1 - 2 alpha")
    finish(axes, logarithmic=False)
    axes.set(xlabel="alpha", ylabel="power of depth in the quadratic variation")
    axes.legend(frameon=False, fontsize="small")
    return figure


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


def stacks(quick: bool) -> list[Work]:
    """The work of T8."""
    size = {"width": 256, "blocks": 16, "seeds": 32} if quick else {"width": 2048, "blocks": 32, "seeds": 8}
    return [Work("pre-norm", size | {"subtraction": subtraction}) for subtraction in ("none", "after")]


def judge_pre_norm(results: Results) -> Judgement:
    """T8."""
    (found,) = results.values()
    plain, subtracted = found
    blocks = plain["norm"].shape[1] - 1
    growth = mean_number("norm after the last block over that at the start", plain["norm"][:, -1] / plain["norm"][:, 0])
    name = f"correlation of two inputs after {blocks} blocks, less 1/2 at the start"
    rises = mean_number(f"{name}, plain", plain["correlation"][:, -1] - 0.5)
    falls = mean_number(f"{name}, with mean subtraction", subtracted["correlation"][:, -1] - 0.5)
    kernel = mean_number(
        "correlation less that of the kernel, plain", plain["correlation"][:, -1] - plain["kernel"][-1]
    )
    return Judgement(
        f"Norms grow {growth.value:.1f} times; correlations rise to {0.5 + rises.value:.3f} without mean subtraction, "
        f"where a printed recursion says {plain['printed'][-1]:.3f}, and fall to {0.5 + falls.value:.3f} with it.",
        [
            Check(growth, above=2.0, reason=f"expected {plain['kernel_norm'][-1] / plain['kernel_norm'][0]:.1f}"),
            Check(falls, below=0.0, reason="towards orthogonal"),
            Check(kernel, above=-0.05, below=0.05, reason="a network's width corrects by 1/sqrt(width), 6% at 256"),
            Check(rises, below=0.0, reason="towards orthogonal without mean subtraction too", essential=False),
        ],
    )


def draw_pre_norm(results: Results) -> Figure:
    """Correlations over blocks."""
    (found,) = results.values()
    figure, axes = one_panel()
    for index, (name, each) in enumerate(zip(("plain", "mean subtraction"), found, strict=True)):
        blocks, seeds = np.arange(each["correlation"].shape[1]), len(each["correlation"])
        error = each["correlation"].std(axis=0, ddof=1) / math.sqrt(seeds)
        axes.errorbar(blocks, each["correlation"].mean(axis=0), error, color=COLOURS[index], marker=MARKERS[index],
                      linestyle="none", markersize=4, label=f"{seeds} networks, {name}")  # fmt: skip
        axes.plot(blocks, each["kernel"], color=COLOURS[index], label=f"kernel, {name}")
    axes.plot(found[0]["printed"], color="0.4", linestyle=":", label="printed recursion")
    finish(axes, logarithmic=False)
    axes.set(xlabel="block", ylabel="correlation of two inputs")
    axes.legend(frameon=False, fontsize="small")
    return figure


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


def limits(quick: bool) -> list[Work]:
    """The work of T11."""
    widths = [[64, 64], [256, 32]] if quick else [[64, 256], [128, 128], [256, 64]]
    size = {"blocks": 8 if quick else 16, "widths": widths, "depths": [4, 16, 64, 256]}
    return [Work("linear-limit", {"alpha": alpha, "gamma": gamma} | size) for alpha, gamma in RULES]


def judge_limit(results: Results) -> Judgement:
    """T11."""
    (found,) = results.values()
    checks = []
    for (alpha, _), each in zip(RULES, found, strict=True):
        gap = with_error(
            f"last loss of networks of width {each['widths'][-1]} less the theory's, relative, alpha = {alpha:g}",
            each["gap"][-1], each["sem"][-1], 32,
        )  # fmt: skip
        checks.append(
            Check(
                gap,
                above=-0.2,
                below=0.2,
                reason="of order 1/width: 29% at width 64 was measured, 7% is expected at 256",
            )
        )
    last = found[-1]
    same = Number(
        "limit by extrapolation over that of the equation in depth, less 1, alpha = 1",
        float(last["limit"] / last["equation"] - 1.0),
    )
    checks.append(Check(same, above=-1e-5, below=1e-5, reason="the extrapolation's own error is 3e-7"))
    half = found[0]
    near = Number(
        "loss at 256 blocks over the limit, less 1, alpha = 1/2", float(half["losses"][-1] / half["limit"] - 1.0)
    )
    checks.append(Check(near, above=-0.05, below=0.05, reason="of order 1/depth"))
    return Judgement(
        f"The widest networks are {checks[0].number.value:+.1%}, {checks[1].number.value:+.1%} and "
        f"{checks[2].number.value:+.1%} off the theory at alpha = 1/2, 3/4 and 1; two ways to the limit in depth "
        f"agree to {abs(same.value):.0e}.",
        checks,
    )


def draw_limit(results: Results) -> Figure:
    """Losses over depth, with the limits."""
    (found,) = results.values()
    figure, axes = one_panel()
    for index, ((alpha, _), each) in enumerate(zip(RULES, found, strict=True)):
        axes.plot(
            each["depths"], each["losses"], color=COLOURS[index], marker=MARKERS[index], label=f"alpha = {alpha:g}"
        )
        axes.axhline(float(each["limit"]), color=COLOURS[index], linestyle=":", label=f"limit, alpha = {alpha:g}")
    finish(axes, logarithmic=False)
    axes.set(xscale="log", xlabel="blocks", ylabel="loss after nine steps, infinite width")
    axes.legend(frameon=False, fontsize="small")
    return figure


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
        "T1",
        "Depth rules (alpha, gamma) fall into classes; Depth-muP (1/2, 1/2) alone learns diverse features.",
        (Source("t1-classes.py", works=classes),),
        judge_classes,
        draw_classes,
    ),
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
        _losses("t2-sgd-and-norms.toml"),
    ),
    Claim(
        "T3",
        "The ODE parametrization learns features but transfers worse and ends at a higher loss at large depth.",
        (Source("t3-schemes-over-depth.toml", _SCHEMES),),
        judge_ode,
        _losses("t3-schemes-over-depth.toml"),
    ),
    Claim(
        "T4",
        "The exponent of feature diversity is 1/2 at alpha = 1/2 and 0 for larger alpha; training leaves it.",
        (Source("t4-diversity.py", works=diversities),),
        judge_diversity,
        draw_diversity,
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
        _losses("t5-nonlinearities.toml"),
    ),
    Claim(
        "T6",
        "Blocks of two layers show the limits of Depth-muP: they become lazy inside, and its rate no longer transfers.",
        (
            Source("t6-two-layer-blocks.toml", _small(3, 7, network__blocks=[8, 32], training__scheme=["depth-mup"])),
            Source("t6-second-order.py", works=second_orders),
        ),
        judge_two_layer_blocks,
        _losses("t6-two-layer-blocks.toml"),
    ),
    Claim(
        "T7",
        "With branches of 1/sqrt(depth) Adam's rate must fall as 1/sqrt(depth) too.",
        (Source("t3-schemes-over-depth.toml", _SCHEMES),),
        judge_scaled_rate,
        _rates("t3-schemes-over-depth.toml"),
    ),
    Claim(
        "T8",
        "In pre-LN stacks the norm still grows, and two inputs become orthogonal.",
        (Source("t8-pre-norm.py", works=stacks),),
        judge_pre_norm,
        draw_pre_norm,
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
        _losses("t9-width-and-depth.toml"),
    ),
    Claim(
        "T10",
        "The whole schedule of the rate transfers over depth; the optimum moves with training time.",
        (
            Source("t10-schedules.toml", _small(8, 13)),
            Source("t10-training-time.toml", _small(8, 13) | {"training.steps": 81, "transfer.at": [20, 40, 80]}),
        ),
        judge_schedules,
        _losses("t10-schedules.toml"),
    ),
    Claim(
        "T11",
        "For linear blocks the limit of infinite width and then depth describes finite networks.",
        (Source("t11-linear-limit.py", works=limits),),
        judge_limit,
        draw_limit,
    ),
)
