"""Claims of Bordelon & Pehlevan (2025) on deep linear networks, D1 to D9."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lazyrich.gallery.claim import Check, Claim, Judgement, Number, Results, Source, drawn
from lazyrich.gallery.reading import at, drift_number, farthest, log_ratio, mean_number, trend, with_error
from lazyrich.gallery.work import Work
from lazyrich.plots import COLOURS, MARKERS, finish, one_panel, plot_comparisons, plot_exponents
from lazyrich.transfer.figures import plot_best_rates, plot_losses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lazyrich.theory.deep_linear.exponent import Exponent

_FINITE = (
    "corrections are of order 1/width and 1/dimension, 1/200 with factors of a few, and the mean of few networks "
    "fluctuates by some percent; a theory that is off by a fifth is noticed"
)
_SIGN = "the sign is the claim"


def judge_agreement(results: Results) -> Judgement:
    """D1."""
    checks = [
        Check(farthest(found, loss), below=0.1, reason=_FINITE)
        for found in results.values()
        for loss in found[0].losses
    ]
    count = sum(len(found) for found in results.values())
    worst = max(check.number.value for check in checks)
    return Judgement(
        f"Over {count} combinations of width, depth and data, full batch and online, trained means are within "
        f"{worst:.1%} of the starting loss of the theory at every step.",
        checks,
    )


def judge_width(results: Results) -> Judgement:
    """D2."""
    (found,) = results.values()
    widths = sorted({each.predicted.problem.network.width for each in found})
    change = {
        scheme: log_ratio(
            f"ln loss({widths[-1]:g}) / loss({widths[0]:g}), {scheme}, last step, trained",
            at(found, width=widths[-1], parametrization=scheme),
            at(found, width=widths[0], parametrization=scheme),
        )
        for scheme in ("mup", "ntk")
    }
    checks = [
        Check(change["mup"], below=0.0, reason=_SIGN),
        Check(change["ntk"], above=0.0, reason=_SIGN),
    ]
    return Judgement(
        f"From width {widths[0]:g} to {widths[-1]:g} at one rate and richness 4 the log loss changes by "
        f"{change['mup'].value:+.2f} in muP and {change['ntk'].value:+.2f} in NTK.",
        checks,
        [farthest(found)],
    )


def judge_rate_over_width(results: Results) -> Judgement:
    """D3."""
    theory, both = results["d3-rate-over-width.toml"], results["d3-checked-by-training.toml"]
    axis, checks = "network.width", []
    for analysis, by in ((theory, "theory"), (both, "training")):
        for scheme in ("mup", "ntk"):
            number = drift_number(
                f"best rate of {scheme}, octaves per doubling of the width, by {by}",
                trend(analysis, axis, by, parametrization=scheme),
            )
            if scheme == "mup":
                reason = "a quarter of an octave per doubling is half of what NTK drifts at this richness"
                checks.append(Check(number, above=-0.25, below=0.25, reason=reason))
            else:
                checks.append(Check(number, above=0.1, reason="the steadiness that a transfer study asks for"))
    nearer = [
        Check(check.number, above=-0.1, below=0.1, reason="as steady as a transfer study asks for", essential=False)
        for check in checks[::2]
    ]
    mup, ntk = checks[2].number, checks[3].number
    return Judgement(
        f"Trained networks: the best rate moves by {mup} octaves per doubling in muP and {ntk} in NTK.",
        [*checks, *nearer],
    )


def judge_repeated_data(results: Results) -> Judgement:
    """D4."""
    (found,) = results.values()
    samples = sorted(each.predicted.problem.data.samples for each in found)
    most, least = at(found, samples=samples[-1]), at(found, samples=samples[0])
    early = log_ratio(f"ln loss({samples[-1]}) / loss({samples[0]} samples) at step 2, trained", most, least, 2)
    late = log_ratio(f"ln loss({samples[-1]}) / loss({samples[0]} samples) at the last step, trained", most, least)
    return Judgement(
        f"With {samples[-1]} in place of {samples[0]} samples the test loss is {math.exp(early.value):.2f} times as "
        f"large at step 2, and {math.exp(late.value):.3f} times at the end.",
        [
            Check(early, above=-0.25, reason="at most a quarter of the loss: hardly any effect"),
            Check(late, below=-1.0, reason="at least a factor e: a large effect"),
        ],
        [farthest(found)],
    )


def judge_online(results: Results) -> Judgement:
    """D5."""
    (found,) = results.values()
    widths = sorted({each.predicted.problem.network.width for each in found})
    batches = sorted({each.predicted.problem.training.batch for each in found})
    low, high = [at(found, batch=batch, width=widths[-1]) for batch in batches]
    batch = log_ratio(
        f"ln loss(batch {batches[1]}) / loss(batch {batches[0]}), width {widths[-1]:g}, trained", high, low
    )
    width = [
        log_ratio(
            f"ln loss(width {widths[-1]:g}) / loss(width {widths[0]:g}), batch {size}, trained",
            at(found, batch=size, width=widths[-1]),
            at(found, batch=size, width=widths[0]),
        )
        for size in batches
    ]
    checks = [Check(number, below=0.0, reason=_SIGN) for number in (batch, *width)]
    return Judgement(
        f"At the last step a batch of {batches[1]} has {math.exp(batch.value):.2f} times the test loss of one of "
        f"{batches[0]}, and width {widths[-1]:g} {math.exp(width[0].value):.2f} times that of width {widths[0]:g}.",
        checks,
        [farthest(found)],
    )


def judge_depth(results: Results) -> Judgement:
    """D6."""
    axis = "network.blocks"
    scaled = trend(results["d6-rate-over-depth.toml"], axis, "theory")
    constant = trend(results["d6-constant-branch.toml"], axis, "theory")

    def octaves(name: str, each, start: int, end: int) -> Number:
        first, last = each.optima[start], each.optima[end]
        low = math.log2(last.interval[0] / first.interval[1])
        high = math.log2(last.interval[1] / first.interval[0])
        sizes = f"{each.sizes[start]:g} to {each.sizes[end]:g} blocks"
        return Number(f"{name}, {sizes}", math.log2(last.best_rate / first.best_rate), low, high)

    deep = next(index for index, size in enumerate(scaled.sizes) if size >= 8)
    late = octaves("shift of the best rate in octaves, branches of 1/sqrt(blocks), by theory", scaled, deep, -1)
    early = octaves("shift of the best rate in octaves, branches of 1/sqrt(blocks), by theory", scaled, 0, deep)
    other = octaves("shift of the best rate in octaves, constant branches, by theory", constant, 0, -1)
    reason = "a quarter of an octave costs next to nothing, and is less than half of what an eightfold depth could be"
    return Judgement(
        f"By theory the best rate moves by {late.value:+.2f} octaves from 8 blocks on with branches of 1/sqrt(blocks) "
        f"({early.value:+.2f} before that), and by {other.value:+.1f} with constant ones.",
        [
            Check(late, above=-0.25, below=0.25, reason=reason),
            Check(other, below=-2.0, reason="a rate four times too large diverges: it does not transfer"),
            Check(early, above=-0.25, below=0.25, reason="the same at small depth", essential=False),
        ],
    )


def judge_rich_and_deep(results: Results) -> Judgement:
    """D7."""
    found, kernels = results["d7-deep-and-rich.toml"], results["d7-initial-kernel"]
    values = sorted({each.predicted.problem.training.richness for each in found})
    faster = log_ratio(
        f"ln loss(richness {values[-1]:g}) / loss(richness {values[0]:g}), beta0 = 1, last step, trained",
        at(found, richness=values[-1], beta0=1.0),
        at(found, richness=values[0], beta0=1.0),
    )
    checks, growths = [Check(faster, below=0.0, reason=_SIGN)], []
    for beta0, each, seeds in zip((0.5, 1.0), kernels, (_KERNEL_SEEDS,) * 2, strict=True):
        number = with_error(
            f"growth of the initial kernel, beta0 = {beta0:g}, trained", each["mean"], each["sem"], seeds
        )
        growths.append(number)
        ratio = with_error(
            f"the same over (1 + beta0^2/16)^16 - 1, beta0 = {beta0:g}",
            each["mean"] / (1 + beta0**2 / 16) ** 16 - 1.0,
            each["sem"] / (1 + beta0**2 / 16) ** 16,
            seeds,
        )
        checks.append(
            Check(ratio, above=-0.1, below=0.1, reason="of order 1/width: 15% was measured at width 400, 1% at 1600")
        )
    return Judgement(
        f"Richness {values[-1]:g} has {math.exp(faster.value):.2g} times the test loss of richness {values[0]:g} after "
        f"the same steps; 16 blocks enlarge the initial kernel {growths[0].value:.2f} and {growths[1].value:.2f} times "
        "for beta0 = 0.5 and 1 (exp(beta0^2) is 1.28 and 2.72).",
        checks,
        [*growths, farthest(found)],
    )


_KERNEL_SEEDS = 64


def initial_kernels(quick: bool) -> list[Work]:
    """The work of D7's second part; the same, quick or not."""
    del quick
    problem = {
        "network": {"width": 1600, "blocks": 16, "skip": 1.0},
        "data": {"kind": "gaussian", "dimension": 100, "samples": 400},
        "training": {"steps": 2, "learning_rate": 0.001},
    }
    return [
        Work(
            "initial-growth",
            {"problem": problem | {"network": problem["network"] | {"beta0": beta0}}, "seeds": _KERNEL_SEEDS},
        )
        for beta0 in (0.5, 1.0)
    ]


def judge_power_laws(results: Results) -> Judgement:
    """D8."""
    checks, apart, deep = [], [], []
    for label, fit, trajectory in results["d8-lazy-and-rich.toml"]:
        lazy = trajectory.problem.training.richness == _LAZY
        expected, other = (fit.expected_lazy, fit.expected_rich)[:: 1 if lazy else -1]
        # above b = 1 both are the same, and the nearest other exponent is not known
        margin = 0.5 * abs(expected - other) or 0.05
        reason = f"expected {expected:.3f}; half of the distance between lazy and rich, or 0.05 where there is none"
        checks.append(_check_exponent(f"{'lazy' if lazy else 'rich'}, {label}", fit, expected, margin, reason))
        apart.append(abs(checks[-1].number.value - expected))
    for _, fit, trajectory in results["d8-exponents.toml"]:
        layers, task = trajectory.problem.network.blocks + 2, fit.expected_lazy
        margin = 0.5 * (fit.expected_rich - (layers - 1) * task / (1 + (layers - 2) * task))
        reason = f"expected {fit.expected_rich:.4f}; half of the distance to one weight layer less"
        checks.append(_check_exponent(f"rich, {layers} weight layers", fit, fit.expected_rich, margin, reason))
        deep.append(f"{checks[-1].number.value:.3f} ({fit.expected_rich:.3f})")
    return Judgement(
        f"Two weight layers, lazy and rich, four values of beta: exponents are at most {max(apart):.3f} from those "
        f"claimed. Rich, beta = 0.5, two to five weight layers, beside W beta/(1 + (W - 1) beta): {', '.join(deep)}.",
        checks,
    )


_LAZY = 1.0  # richness in d8-lazy-and-rich.toml, where the root of the largest eigenvalue is 618700


def _check_exponent(name: str, fit: Exponent, expected: float, margin: float, reason: str) -> Check:
    value, low, high = (math.nan if each is None else each for each in (fit.exponent, fit.low, fit.high))
    number = Number(f"exponent of the loss, {name}", value, low, high)
    return Check(number, above=expected - margin, below=expected + margin, reason=reason)


_SIZES = {
    "width": (100, 1600, 25600),
    "dimension": (100, 1600, 25600),
    "samples": (400, 6400, 102400),
    "blocks": (4, 8, 16, 32),
}


def costs(quick: bool) -> list[Work]:
    """The work of D9."""
    return [
        Work("cost", {"sizes": {size: values}, "steps": 60 if quick else 150, "rounds": 4 if quick else 8})
        for size, values in _SIZES.items()
    ]


def judge_cost(results: Results) -> Judgement:
    """D9."""
    (found,) = results.values()
    checks = []
    for (size, values), each in zip(_SIZES.items(), found, strict=True):
        x = np.log(values) - np.log(values).mean()
        slopes = np.log(each[size]) @ x / (x @ x)
        number = mean_number(f"exponent of the processor time in {size}, {values[0]} to {values[-1]}", slopes)
        if size == "blocks":
            checks.append(
                Check(number, above=0.5, below=1.5, reason="1 is linear and 2 quadratic: half way on either side")
            )
        else:
            reason = "over a factor of 256 that is at most 1.7 times the time"
            checks.append(Check(number, below=0.1, reason=reason))
    shown = ", ".join(f"{size} {check.number.value:+.2f}" for size, check in zip(_SIZES, checks, strict=True))
    return Judgement(f"The time to solve grows with the powers {shown}.", checks)


def draw_cost(results: Results) -> Figure:
    """Time over every size, relative to the smallest."""
    (found,) = results.values()
    figure, axes = one_panel()
    for index, ((size, values), each) in enumerate(zip(_SIZES.items(), found, strict=True)):
        ratios = each[size] / each[size][:, :1]
        x = np.asarray(values) / values[0]
        axes.errorbar(
            x,
            ratios.mean(axis=0),
            ratios.std(axis=0),
            color=COLOURS[index],
            marker=MARKERS[index],
            capsize=3,
            label=size,
        )
    finish(axes, logarithmic=True)
    axes.set(xscale="log", xlabel="size, in units of the smallest", ylabel="time, in units of the smallest size's")
    axes.legend(frameon=False)
    return figure


_FEWER = {"compare.seeds": 6}

CLAIMS = (
    Claim(
        "D1",
        "Theory curves match finite networks over width, depth and data ratios, full batch and online.",
        (
            Source(
                "d1-full-batch.toml",
                {"compare.seeds": 16, "compare.axes": {"network.width": [200], "network.blocks": [1]}},
            ),
            Source(
                "d1-online.toml", {"compare.seeds": 16, "compare.axes": {"network.width": [200], "network.blocks": [1]}}
            ),
        ),
        judge_agreement,
        drawn(plot_comparisons, "d1-full-batch.toml"),
    ),
    Claim(
        "D2",
        "At one rate, wider networks train at least as fast in muP, and more slowly in NTK.",
        (Source("d2-width-at-fixed-rate.toml", _FEWER),),
        judge_width,
        drawn(plot_comparisons, "d2-width-at-fixed-rate.toml"),
    ),
    Claim(
        "D3",
        "In muP the best rate is about constant in width; in NTK it shifts.",
        (
            Source("d3-rate-over-width.toml"),
            Source(
                "d3-checked-by-training.toml",
                {
                    "transfer.seeds": 12,
                    "transfer.refine": 0,
                    "transfer.rates": {"from": 1e-2, "to": 0.5, "count": 16},
                    "transfer.axes": {"network.width": [100, 200, 400]},
                },
            ),
        ),
        judge_rate_over_width,
        drawn(plot_losses, "d3-checked-by-training.toml"),
    ),
    Claim(
        "D4",
        "More data, repeated at each step, hardly changes the test loss early and changes it much late.",
        (Source("d4-repeated-data.toml", _FEWER | {"compare.axes": {"data.samples": [100, 400, 1600]}}),),
        judge_repeated_data,
        drawn(plot_comparisons, "d4-repeated-data.toml"),
    ),
    Claim(
        "D5",
        "Online, a larger batch speeds convergence and a larger width lowers the test loss.",
        (Source("d5-online.toml", _FEWER),),
        judge_online,
        drawn(plot_comparisons, "d5-online.toml"),
    ),
    Claim(
        "D6",
        "With branches of 1/sqrt(depth) a limit in depth exists and the best rate transfers; with constant ones not.",
        (
            Source("d6-rate-over-depth.toml"),
            Source("d6-constant-branch.toml", {"transfer.refine": 1}),
        ),
        judge_depth,
        drawn(plot_best_rates, "d6-rate-over-depth.toml"),
    ),
    Claim(
        "D7",
        "Deep residual networks train faster when richer; larger branches enlarge the initial kernel.",
        (
            Source("d7-deep-and-rich.toml", {"compare.seeds": 4, "compare.axes": {"training.richness": [0.5, 4.0]}}),
            Source("d7-initial-kernel", works=initial_kernels),
        ),
        judge_rich_and_deep,
        drawn(plot_comparisons, "d7-deep-and-rich.toml"),
    ),
    Claim(
        "D8",
        "On power-law data the loss falls as t^-beta when lazy; when rich, with W weight layers, as "
        "t^(-W beta/(1+(W-1) beta)) for beta < 1.",
        (Source("d8-lazy-and-rich.toml"), Source("d8-exponents.toml")),
        judge_power_laws,
        drawn(plot_exponents, "d8-exponents.toml"),
    ),
    Claim(
        "D9",
        "The cost of the theory does not grow with width, dimension or samples, and grows linearly with depth.",
        (Source("d9-cost", works=costs),),
        judge_cost,
        draw_cost,
    ),
)
