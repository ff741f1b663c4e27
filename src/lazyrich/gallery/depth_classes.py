"""Claims of Tensor Programs VI and its neighbours on what networks become with depth: T1, T4, T8 and T11."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lazyrich.class_map import GRID
from lazyrich.gallery.claim import Check, Claim, Judgement, Number, Results, Source
from lazyrich.gallery.reading import mean_number, with_error
from lazyrich.gallery.work import Work
from lazyrich.plots import COLOURS, MARKERS, finish, one_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = ((0.5, 0.5), (0.75, 0.25), (1.0, 0.0))
_DIVERSE = "feature learning, diverse"


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


CLAIMS = (
    Claim(
        "T1",
        "Depth rules (alpha, gamma) fall into classes; Depth-muP (1/2, 1/2) alone learns diverse features.",
        (Source("t1-classes.py", works=classes),),
        judge_classes,
        draw_classes,
    ),
    Claim(
        "T4",
        "The exponent of feature diversity is 1/2 at alpha = 1/2 and 0 for larger alpha; training leaves it.",
        (Source("t4-diversity.py", works=diversities),),
        judge_diversity,
        draw_diversity,
    ),
    Claim(
        "T8",
        "In pre-LN stacks the norm still grows, and two inputs become orthogonal.",
        (Source("t8-pre-norm.py", works=stacks),),
        judge_pre_norm,
        draw_pre_norm,
    ),
    Claim(
        "T11",
        "For linear blocks the limit of infinite width and then depth describes finite networks.",
        (Source("t11-linear-limit.py", works=limits),),
        judge_limit,
        draw_limit,
    ),
)
