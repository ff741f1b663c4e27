"""Figures of a transfer study."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from lazyrich.plots import COLOURS, MARKERS, finish
from lazyrich.transfer.analysis import named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lazyrich.transfer.analysis import Analysis, Best

_MOST_PANELS = 8
# Losses beyond so many times the largest one at the smallest rate are about to diverge, and not shown.
_SHOWN_ABOVE = 3.0


def plot_losses(analysis: Analysis) -> Figure:
    """Loss against learning rate: a line for every size, a panel for every other setting; optima with intervals.

    The last step that is read is shown, and the error where rates are judged by that.
    """
    from matplotlib.figure import Figure

    panels: dict[str, list[Best]] = defaultdict(list)
    line_axis = next(iter(analysis.best[0].axes), None)
    last = {repr((each.axes, each.by)): each for each in analysis.best}
    for each in last.values():
        others = {name: value for name, value in each.axes.items() if name != line_axis}
        panels[", ".join(filter(None, [named(others) if others else "", f"by {each.by}"]))].append(each)
    shown = list(panels.items())[:_MOST_PANELS]
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(5.6 * columns + 0.6, 3.9 * rows + 0.3), layout="constrained")
    grid = np.ravel(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True))
    lowest, top = np.inf, 0.0
    for axes, (title, members) in zip(grid, shown, strict=False):
        for index, each in enumerate(members):
            colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
            mean = each.losses.mean(axis=1)
            finite = mean[np.isfinite(mean)]
            lowest, top = min([lowest, *finite]), max([top, *(_SHOWN_ABOVE * finite[:1])])
            label = named({line_axis: each.axes[line_axis]}) if line_axis else each.measured
            axes.plot(each.rates, mean, color=colour, marker=marker, markersize=3.5, linewidth=1.2, label=label)
            if each.losses.shape[1] > 1:
                sem = each.losses.std(axis=1, ddof=1) / np.sqrt(each.losses.shape[1])
                axes.fill_between(each.rates, mean - sem, mean + sem, color=colour, alpha=0.2, linewidth=0)
            best = each.optimum
            if np.isfinite(best.best_rate) and np.isfinite(best.loss):
                spread = [[best.best_rate - best.interval[0]], [best.interval[1] - best.best_rate]]
                axes.errorbar(best.best_rate, best.loss, xerr=spread, color=colour, marker="*", markersize=11,
                              markeredgecolor="white", capsize=3)  # fmt: skip
        axes.set(
            xscale="log", xlabel="learning rate", ylabel=f"{members[0].measured} at step {members[0].at}", title=title
        )
        finish(axes, logarithmic=True)
        axes.legend(frameon=False, fontsize="small")
    for axes in grid[len(shown) :]:
        axes.set_visible(False)
    if 0 < top < grid[0].get_ylim()[1]:
        grid[0].set_ylim(max(0.7 * lowest, grid[0].get_ylim()[0]), top)
    return figure


def plot_best_rates(analysis: Analysis) -> Figure:
    """Best rate against size, with intervals: a panel for every numeric axis, a line for every other setting."""
    from matplotlib.figure import Figure

    panels: dict[str, list] = defaultdict(list)
    for trend in analysis.trends:
        panels[trend.axis].append(trend)
    figure = Figure(figsize=(5.6 * len(panels) + 0.6, 4.2), layout="constrained")
    grid = np.ravel(figure.subplots(1, len(panels), squeeze=False))
    for axes, (axis, trends) in zip(grid, panels.items(), strict=True):
        for index, trend in enumerate(trends):
            colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
            rates = np.array([optimum.best_rate for optimum in trend.optima])
            low, high = np.array([optimum.interval for optimum in trend.optima]).T
            label = ", ".join(filter(None, [named(trend.fixed) if trend.fixed else "", f"by {trend.by}"]))
            axes.errorbar(
                trend.sizes, rates, [rates - low, high - rates], color=colour, marker=marker, capsize=3, label=label
            )
            if trend.prediction is not None:
                rate, (lower, upper) = trend.prediction.rate, trend.prediction.interval
                axes.errorbar(trend.target, rate, [[rate - lower], [upper - rate]], color=colour, marker=marker,
                              fillstyle="none", capsize=3, linestyle="none", label=f"predicted, {label}")  # fmt: skip
        name = "training step" if axis == "step" else axis.rpartition(".")[2]
        axes.set(xscale="log", xlabel=name, ylabel="best learning rate")
        finish(axes, logarithmic=True)
        axes.legend(frameon=False, fontsize="small")
    return figure
