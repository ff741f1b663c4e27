"""Claims of Tu, Aranguri & Jacot (2024) on two-layer networks, M1 to M8."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.gallery.claim import Check, Claim, Judgement, Number, Results, Source, drawn
from lazyrich.gallery.reading import mean_number
from lazyrich.gallery.studies import load_changed
from lazyrich.gallery.work import Work, unpacked
from lazyrich.mixed_dynamics.figures import plot_phase_diagram, plot_run
from lazyrich.plots import COLOURS, finish, one_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lazyrich.trajectory import Trajectory
    from lazyrich.transfer.diagram import PhaseDiagram

_WIDTH, _THRESHOLD = "network.width", "network.threshold.relative"


def _by(diagram: PhaseDiagram, *axes: str) -> dict[Any, list[dict[str, Any]]]:
    """Rows in groups of the same values of some axes."""
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in diagram.rows:
        groups[tuple(row[axis] for axis in axes)].append(row)
    return groups


def slope_over_width(rows: list[dict[str, Any]]) -> np.ndarray:
    """The power of the width in the distance of law and network, one for each seed."""
    slopes = []
    for seed in sorted({row["seed"] for row in rows}):
        mine = sorted((row[_WIDTH], row["distance"]) for row in rows if row["seed"] == seed)
        x, y = np.log(np.asarray(mine, dtype=float).T)
        slopes.append(np.polyfit(x, y, 1)[0])
    return np.asarray(slopes)


def judge_law(results: Results) -> Judgement:
    """M1."""
    checks = []
    for study, cost in (("m1-law-and-width.toml", "MSE"), ("m1-law-other-costs.toml", "completion")):
        for (threshold,), rows in _by(results[study], _THRESHOLD).items():
            number = mean_number(
                f"power of the width in the distance of law and network, {cost}, s0/a = {threshold:g}",
                slope_over_width(rows),
            )
            reason = "expected -1/2; wide of it by 0.15, as the smallest widths are near the dimension"
            checks.append(Check(number, above=-0.65, below=-0.35, reason=reason))
    values = [check.number.value for check in checks]
    return Judgement(
        f"The distance of law and network falls as width^p with p from {min(values):.2f} to {max(values):.2f}, over "
        "two costs and several thresholds.",
        checks,
    )


def draw_law(results: Results) -> Figure:
    """Distance of law and network over width, with the expected power."""
    (figure, axes), index = one_panel(), 0
    for study, diagram in results.items():
        for (threshold,), rows in _by(diagram, _THRESHOLD).items():
            widths = np.asarray(sorted({row[_WIDTH] for row in rows}))
            found = [[row["distance"] for row in rows if row[_WIDTH] == width] for width in widths]
            label = f"{'MSE' if study.startswith('m1-law-and') else 'completion'}, s0/a = {threshold:g}"
            axes.plot(widths, np.mean(found, axis=1), "o-", color=COLOURS[index % 7], label=label)
            index += 1
    axes.plot(widths, np.mean(found[0]) * (widths / widths[0]) ** -0.5, ":", color="0.4", label="width^(-1/2)")
    finish(axes, logarithmic=True)
    axes.set(xscale="log", xlabel="width", ylabel="largest |A_law - A| / |A|")
    axes.legend(frameon=False, fontsize="small")
    return figure


def deviations(run: Trajectory, kind: str) -> np.ndarray:
    """Relative distances of measured and predicted times, ``crossing`` or ``half``, of all modes that have both."""
    seen, predicted = run.data[f"{kind}_time"].values, run.data[f"{kind}_time_predicted"].values
    both = np.isfinite(seen) & np.isfinite(predicted)
    return np.abs(seen[both] / predicted[both] - 1.0)


def judge_lazy_and_active(results: Results) -> Judgement:
    """M2."""
    (run,) = results.values()
    data = run.data
    strengths, threshold = data["strength"].values, float(data["threshold"].values[0])
    crossing, half = deviations(run, "crossing"), deviations(run, "half")
    above = int((strengths > 1.01 * threshold).sum())  # one at s0 itself never crosses it
    ended = int(data["active"].values[-1].sum())
    lazy = strengths < 0.9 * threshold
    limit = np.log(2.0) / (2.0 * threshold)  # of a factor 2 s0
    late = np.abs(data["half_time"].values[lazy] / limit - 1.0)
    return Judgement(
        f"{above} of {len(strengths)} singular values cross s0 = {threshold:g}, within {crossing.max():.1%} of the "
        f"predicted times; those below it are half learned within {late.max():.1%} of the lazy limit.",
        [
            Check(Number("relative distance from the predicted crossing times, largest", crossing.max()), below=0.03,
                  reason="steps are a percent of the first crossing time, and the width is finite"),
            Check(Number("relative distance from the predicted half times, largest", half.max()), below=0.03,
                  reason="the same"),
            Check(Number("relative distance of lazy half times from ln 2/(2 s0), largest", late.max()), below=0.1,
                  reason="modes at 0.2 and 0.4 s0 are a little faster than in the limit"),
            Check(Number("singular values active at the end, less those of the target above s0", ended - above),
                  above=-0.5, below=0.5, reason="the same number"),
        ],
    )  # fmt: skip


def _run(results: Results) -> Figure:
    (run,) = results.values()
    return plot_run(run)


def judge_phases(results: Results) -> Judgement:
    """M3."""
    (diagram,) = results.values()
    variance, width = "network.variance.exponent", "network.exponent"
    rank, dimension = diagram.rows[0]["signal_rank"], diagram.study.matrix.shape[0]
    narrow = np.log(2 * rank) / np.log(dimension)

    def error(name: str, chosen) -> Number:
        values = [row["network_best_error"] for row in diagram.rows if chosen(row[variance], row[width])]
        values = [value for value in values if np.isfinite(value)]
        if len(values) < 2:
            return Number(name, float("nan"))
        return Number(name, float(np.median(values)), *map(float, np.quantile(values, (0.025, 0.975))))

    active = error(
        "best test error in the active phase (median, 95% of the points)",
        lambda s, w: s + w < 0.35 and 2 * s + w < -0.35 and w > narrow,
    )
    lazy = error(
        "best test error in the lazy phase (median, 95% of the points)",
        lambda s, w: s + w > 1.15 and 2 * s + w < -0.05 and w > narrow,
    )
    noisy = error("best test error beyond infinite initial noise", lambda s, w: 2 * s + w > 0.5 and w > narrow)
    thin = error("best test error with a width below the rank", lambda s, w: w < np.log(0.7 * rank) / np.log(dimension))
    line = diagram.boundary()
    slope = Number("slope of the contour of the best error", line["slope"] if line else float("nan"))
    floor = (2 * rank * dimension - rank**2) / dimension**2
    return Judgement(
        f"Best test errors: {active.value:.3g} in the active phase, {lazy.value:.3g} in the lazy one, "
        f"{noisy.value:.3g} beyond infinite initial noise, {thin.value:.3g} below the rank; the contour between has "
        f"slope {slope.value:.2f}.",
        [
            Check(active, below=4 * floor, reason=f"{floor:.3f} is what noise in the rank's subspaces leaves"),
            Check(lazy, above=0.4, reason="a lazy network cannot do better than (1 + v0)/(2 + v0), at least 1/2"),
            Check(noisy, above=0.4, reason="as bad as lazy", essential=False),
            Check(slope, above=-1.35, below=-0.65, reason="-1 asymptotically; at these dimensions logarithms bend it"),
        ],
        [thin],
    )


def judge_saddles(results: Results) -> Judgement:
    """M4."""
    (run,) = results.values()
    half = deviations(run, "half")
    times = run.data["half_time"].values
    return Judgement(
        f"The {len(half)} modes are half learned one after the other, within {half.max():.2%} of the predicted times.",
        [
            Check(Number("relative distance from the predicted half times, largest", half.max()), below=0.02,
                  reason="the network is ten times as wide as the dimension; modes are 30% apart in time"),
            Check(Number("smallest ratio of successive half times", float((times[1:] / times[:-1]).min())), above=1.1,
                  reason="each after the one before"),
        ],
        [Number("plateaus of the train error", len(run.statistics["plateaus"]))],
    )  # fmt: skip


def judge_random_start(results: Results) -> Judgement:
    """M5."""
    (run,) = results.values()
    half, alignment = deviations(run, "half"), run.data["alignment"].values
    return Judgement(
        f"From alignment {alignment[0]:.2f} with the target at the start, {alignment.max():.3f} is reached; all modes "
        f"are half learned within {half.max():.1%} of the predicted times.",
        [
            Check(Number("alignment at the start", alignment[0]), below=0.1, reason="random: rank/dimension"),
            Check(Number("alignment, largest", alignment.max()), above=0.95, reason="the target's own directions"),
            Check(Number("relative distance from the predicted half times, largest", half.max()), below=0.03,
                  reason="the network is five times as wide as the dimension"),
            Check(Number("train error at the end, of that at the start",
                         float(run.data["train_error"].values[-1] / run.data["train_error"].values[0])), below=1e-3,
                  reason="it converges"),
        ],
    )  # fmt: skip


def realisations(quick: bool) -> list[Work]:
    """The work of M6: the law by its factors, and its closed form."""
    del quick
    problem = load_changed("m6-law-by-factors.toml", {}).problem
    return [
        Work("two-layer", {"problem": problem.with_values({"training.solver": solver}).to_dict()})
        for solver in ("law", "closed-form")
    ]


def judge_realisation(results: Results) -> Judgement:
    """M6."""
    (found,) = results.values()
    law, closed = (unpacked(each["trajectory"]).data["amplitude"].values for each in found)
    gap = float(np.abs(law - closed).max() / np.abs(closed).max())
    number = Number("largest distance of amplitudes by factors and in closed form, relative to the largest", gap)
    return Judgement(
        f"Gradient flow of the two factors and the law's closed form are the same to {gap:.0e}.",
        [Check(number, below=1e-6, reason="the integrator's own tolerance is below that; a wrong law is off by 1e-2")],
    )


def draw_realisation(results: Results) -> Figure:
    """Amplitudes by factors (markers) on those in closed form (lines)."""
    (found,) = results.values()
    law, closed = (unpacked(each["trajectory"]).data for each in found)
    figure, axes = one_panel()
    for mode in range(closed.sizes["target_mode"]):
        label = f"singular value {float(closed['strength'][mode]):g}"
        axes.plot(closed["time"], closed["amplitude"][:, mode], color=COLOURS[mode], label=label)
        axes.plot(law["time"][::20], law["amplitude"][::20, mode], "o", color=COLOURS[mode], markersize=4)
    finish(axes, logarithmic=False)
    axes.set(xlabel="time", ylabel="amplitude: line in closed form, dots by factors")
    figure.legend(frameon=False, fontsize="small", loc="outside right center")
    return figure


def judge_small_width(results: Results) -> Judgement:
    """M7."""
    (diagram,) = results.values()
    small, large, laws = [], [], []
    size, dimension = diagram.rows[0]["size"], diagram.study.matrix.shape[0]
    for row in diagram.rows:
        share = row["network.variance"] * dimension / size
        (small if share < 0.01 else large).append(row["block_network"] / share)
        laws.append(row["distance"])
    ratio = Number(
        "signal block against k x k network, in units of sigma^2 d/a, where that is below 0.01 (median, 95% of runs)",
        float(np.median(small)), *map(float, np.quantile(small, (0.025, 0.975))),
    )  # fmt: skip
    law = Number("d x d law against network, relative (median, 95% of runs)", float(np.median(laws)),
                 *map(float, np.quantile(laws, (0.025, 0.975))))  # fmt: skip
    checks = [
        Check(
            ratio, below=10.0, reason="of the order of sigma^2 d/a at every width from rank to dimension: it is small"
        )
    ]
    if large:
        big = Number("the same where sigma^2 d/a is larger: distance of block and k x k network, largest",
                     max(row["block_network"] for row in diagram.rows))  # fmt: skip
        checks.append(Check(big, below=0.02, reason="two percent of the signal", essential=False))
    return Judgement(
        f"Between rank and dimension the signal block follows a network of the rank's size within {ratio.value:.1f} "
        f"sigma^2 d/a; the d x d law is off by {law.value:.2f}.",
        checks,
        [law],
    )


def judge_low_rank(results: Results) -> Judgement:
    """M8."""
    (diagram,) = results.values()
    groups = {key[0]: rows for key, rows in _by(diagram, _THRESHOLD).items()}
    lowest, highest = min(groups), max(groups)
    rank, dimension = diagram.rows[0]["signal_rank"], diagram.study.matrix.shape[0]
    floor = (2 * rank * dimension - rank**2) / dimension**2

    def over(name: str, column: str, threshold: float) -> Number:
        return mean_number(f"{name}, s0/a = {threshold:g}", [row[column] for row in groups[threshold]])

    mixed, lazy = (over("best test error", "network_best_error", s) for s in (lowest, highest))
    ranks = [over("rank at the best step", "network_rank", s) for s in (lowest, highest)]
    return Judgement(
        f"The best test error is {mixed.value:.3f} with rank {ranks[0].value:.0f} at s0/a = {lowest:g}, and "
        f"{lazy.value:.2f} with rank {ranks[1].value:.0f} at {highest:g}; the signal has rank {rank:.0f}.",
        [
            Check(mixed, below=2 * floor, reason=f"{floor:.3f} is what noise in the rank's subspaces leaves"),
            Check(lazy, above=0.4, reason="a lazy network cannot do better than 1/2"),
            Check(ranks[0], above=rank - 0.5, below=rank + 0.5, reason="the signal's rank"),
        ],
        [ranks[1]],
    )


def draw_law_distances(results: Results) -> Figure:
    """M7: distances over the width, a line for each variance."""
    from matplotlib.figure import Figure

    (diagram,) = results.values()
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    names = (("block_network", "block against k x k network"), ("block_law", "block against k x k law"))
    for axes, (name, title) in zip(figure.subplots(1, 2, sharey=True), names, strict=True):
        for index, ((variance,), rows) in enumerate(_by(diagram, "network.variance").items()):
            widths = sorted({row[_WIDTH] for row in rows})
            means = [np.mean([row[name] for row in rows if row[_WIDTH] == width]) for width in widths]
            axes.plot(widths, means, "o-", color=COLOURS[index], label=f"variance {variance:g}")
        finish(axes, logarithmic=True)
        axes.set(xscale="log", xlabel="width", ylabel="largest distance, of the largest signal", title=title)
        axes.legend(frameon=False)
    return figure


CLAIMS = (
    Claim(
        "M1",
        "The law with s0 = sigma^2 w approximates gradient descent, with an error of w^-1/2, for MSE and other costs.",
        (
            Source("m1-law-and-width.toml", {"diagram.axes": {_WIDTH: [100, 1600, 25600], _THRESHOLD: [0.02, 0.3]}}),
            Source("m1-law-other-costs.toml", {"diagram.axes": {_WIDTH: [100, 1600, 25600], _THRESHOLD: [0.02]}}),
        ),
        judge_law,
        draw_law,
    ),
    Claim(
        "M2",
        "In one run, singular values below s0 are lazy and those above it balanced.",
        (Source("m2-lazy-and-active.toml"),),
        judge_lazy_and_active,
        _run,
    ),
    Claim(
        "M3",
        "Variance and width decide between lazy, active, infinitely noisy and underparametrised phases.",
        (
            Source(
                "m3-phase-diagram.toml",
                {
                    "matrix.shape": [60, 60],
                    "matrix.target": {"rank": 3},
                    "diagram.axes": {
                        "network.variance.exponent": {"from": -2.9, "to": 0.0, "count": 11},
                        "network.exponent": {"from": 0.1, "to": 3.0, "count": 11},
                    },
                },
            ),
        ),
        judge_phases,
        drawn(plot_phase_diagram, "m3-phase-diagram.toml"),
    ),
    Claim(
        "M4",
        "Saddle to saddle: each mode's time is predicted, at a finite sigma.",
        (Source("m4-saddle-to-saddle.toml"),),
        judge_saddles,
        _run,
    ),
    Claim(
        "M5",
        "Balanced convergence from a random start, without an assumption of alignment.",
        (Source("m5-random-start.toml"),),
        judge_random_start,
        _run,
    ),
    Claim(
        "M6",
        "The law is realised exactly by W1 = (I 0)^T, W2 = (0 I).",
        (Source("m6-law-by-factors.toml", works=realisations),),
        judge_realisation,
        draw_realisation,
    ),
    Claim(
        "M7",
        "Between rank and dimension, the signal block follows a network of the size of the rank (a conjecture).",
        (
            Source(
                "m7-small-width.toml",
                {"matrix.shape": [100, 100], "diagram.seeds": 2, "diagram.axes": {_WIDTH: [4, 16, 64]}},
            ),
        ),
        judge_small_width,
        draw_law_distances,
    ),
    Claim(
        "M8",
        "With noise, mixed dynamics find the low rank and lazy dynamics do not.",
        (Source("m8-low-rank-bias.toml", {"diagram.axes": {_THRESHOLD: [0.001, 0.1, 10.0]}, "diagram.by": "network"}),),
        judge_low_rank,
        drawn(plot_phase_diagram, "m8-low-rank-bias.toml"),
    ),
)
