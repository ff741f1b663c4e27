"""Figures of matrix problems: a run, and a phase diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.plots import COLOURS, finish
from lazyrich.problem.diagram import even

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lazyrich.trajectory import Trajectory
    from lazyrich.transfer.diagram import PhaseDiagram

# Singular values that are drawn one by one.
_MOST_VALUES = 20
# Time is drawn on a logarithmic scale where all that is followed happens in this first part of it.
_EARLY = 0.1


def plot_run(trajectory: Trajectory) -> Figure:
    """Singular values over time, dashed where lazy; errors with the best step; ranks and alignment."""
    from matplotlib.figure import Figure

    data, facts = trajectory.data, trajectory.statistics
    time = data["time"].values
    figure = Figure(figsize=(15.5, 4.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _draw_spectrum(left, data)
    middle.plot(time, data["train_error"].values, color=COLOURS[0], label="train error")
    if np.isfinite(data["test_error"].values).any():
        middle.plot(time, data["test_error"].values, color=COLOURS[1], linestyle="--", label="test error")
        middle.plot(
            facts["best_time"], facts["best_test_error"], "*", color=COLOURS[6], markersize=11, label="best test error"
        )
    finish(middle, logarithmic=True)
    middle.set(xlabel="time (sum of the learning rates)", ylabel="mean squared error")
    middle.legend(frameon=False)
    right.plot(time, data["active_rank"].values, color=COLOURS[0], label="active (above s0)")
    right.plot(time, data["numerical_rank"].values, color=COLOURS[1], linestyle="--", label="above 1/5 of the largest")
    right.plot(time, data["stable_rank"].values, color=COLOURS[2], linestyle=":", label="stable rank")
    finish(right, logarithmic=False)
    if max(data["active_rank"].max(), data["numerical_rank"].max()) > 30:
        right.set_yscale("symlog", linthresh=10)
    right.set(xlabel="time (sum of the learning rates)", ylabel="rank")
    right.legend(frameon=False)
    halves = data["half_time"].values
    if len(time) > 1 and np.isfinite(halves).any() and np.nanmax(halves) < _EARLY * time[-1]:
        for axes in (left, middle, right):
            axes.set_xscale("log")
            axes.set_xlim(time[1], time[-1])
    width = f"width {facts['width']:g}" if facts["width"] else "infinite width"
    figure.suptitle(f"{facts['solver']}, {width}: {trajectory.outcome}")
    return figure


def _draw_spectrum(axes: Axes, data: Any) -> None:
    time, values = data["time"].values, data["singular_values"].values[:, :_MOST_VALUES]
    followed = data.sizes["target_mode"]
    active = data["active"].values[:, :_MOST_VALUES]
    for mode in range(values.shape[1]):
        colour = COLOURS[mode % 6] if mode < followed else "0.75"
        axes.plot(time, np.where(active[:, mode], values[:, mode], np.nan), color=colour, linewidth=1.8)
        lazy = ~active[:, mode]
        lazy[1:] |= lazy[:-1]  # up to where the solid line begins
        axes.plot(time, np.where(lazy, values[:, mode], np.nan), color=colour, linestyle=":", linewidth=1.4)
    axes.plot(time, data["threshold"].values, color=COLOURS[6], linestyle="--", linewidth=1.2)
    handles = [("lazy (below s0)", "0.3", ":"), ("active (above s0)", "0.3", "-"), ("threshold s0", COLOURS[6], "--")]
    for label, colour, style in handles:
        axes.plot([], [], color=colour, linestyle=style, label=label)
    for mode in range(min(followed, 6)):
        half = float(data["half_time_predicted"].values[mode])
        if np.isfinite(half) and half <= time[-1]:
            axes.plot(half, 0.5 * float(data["strength"].values[mode]), "o", color=COLOURS[mode % 6], markersize=5)
    axes.plot([], [], "o", color="0.3", label="predicted half time")
    finish(axes, logarithmic=True)
    smallest = max(1e-3 * float(data["threshold"].values.min()), 1e-12)
    axes.set(xlabel="time (sum of the learning rates)", ylabel="singular values of A")
    axes.set_ylim(bottom=max(smallest, axes.get_ylim()[0]))
    axes.legend(frameon=False, fontsize="small")


def plot_phase_diagram(diagram: PhaseDiagram) -> Figure:
    """Best error, rank, time and the law's distance over two axes, with the theory's lines; otherwise as curves."""
    from matplotlib.figure import Figure

    means = diagram.means()
    method = diagram.methods[0]
    panels = [
        (f"{method}_best_error", "best test error", True),
        (f"{method}_rank", "rank at the best step", False),
        (f"{method}_best_step", "steps to the best error", True),
    ]
    if "distance" in means[0]:
        panels.append(("distance", "law - network, largest relative distance", True))
    figure = Figure(figsize=(5.4 * len(panels), 4.6), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, title, logarithmic) in zip(grid, panels, strict=True):
        if diagram.numeric:
            _draw_plane(figure, axes, diagram, np.asarray([mean[name] for mean in means]), title, logarithmic)
        else:
            _draw_curves(axes, diagram, means, name, title, logarithmic)
    return figure


def _draw_plane(
    figure: Figure, axes: Axes, diagram: PhaseDiagram, values: np.ndarray, title: str, logarithmic: bool
) -> None:
    from matplotlib.colors import LogNorm, Normalize

    x, y, _ = diagram.coordinates()
    good = np.isfinite(values) & ((values > 0) | (not logarithmic))
    scale = LogNorm() if logarithmic else Normalize()
    if _fill_a_plane(x[good], y[good]):
        colours = axes.tripcolor(x[good], y[good], values[good], shading="gouraud", cmap="cividis", norm=scale)
    else:
        colours = axes.scatter(x[good], y[good], c=values[good], cmap="cividis", norm=scale)
    if good.any():
        figure.colorbar(colours, ax=axes, label=title)
    if len(np.unique(x)) * len(np.unique(y)) > len(x):  # refined: the grid is not plain to see
        axes.plot(x, y, ".", color="white", markersize=1.5, alpha=0.6)
    means = diagram.means()
    lines = {
        "s0 = a (lazy above, active below)": ("-", [np.log(row["threshold"] / row["size"]) for row in means]),
        "sigma^4 w = 1 (infinite initial noise)": (
            "--",
            [2 * np.log(row["variance"]) + np.log(row["width"]) for row in means],
        ),
        "width = rank": (":", [np.log(row["width"] / row["signal_rank"]) for row in means]),
    }
    for label, (style, heights) in lines.items():
        height = np.asarray(heights)
        if np.isfinite(height).all() and height.min() < 0 < height.max():
            axes.tricontour(x, y, height, levels=[0.0], colors=[COLOURS[1]], linestyles=style, linewidths=1.8)
            axes.plot([], [], color=COLOURS[1], linestyle=style, label=label)
    boundary = diagram.boundary()
    if boundary is not None:
        along = np.asarray([x.min(), x.max()])
        axes.plot(
            along,
            boundary["offset"] + boundary["slope"] * along,
            color="white",
            linestyle="-.",
            label=f"best error {boundary['level']:.2g}: slope {boundary['slope']:.2f}",
        )
    axes.set(xlim=(x.min(), x.max()), ylim=(y.min(), y.max()), title=title)
    axes.set(xlabel=_label(diagram.axes[0]), ylabel=_label(diagram.axes[1]))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="x-small", loc="lower left", framealpha=0.75, facecolor="0.35", labelcolor="white")


def _fill_a_plane(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether there are three points that are not on a line."""
    return len(x) > 2 and int(np.linalg.matrix_rank([x - x.mean(), y - y.mean()], tol=1e-9 * float(np.ptp(x)))) == 2


def _draw_curves(
    axes: Axes, diagram: PhaseDiagram, means: list[dict[str, Any]], name: str, title: str, logarithmic: bool
) -> None:
    first, *others = diagram.axes
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for mean in means:
        groups.setdefault(tuple(mean[axis] for axis in others), []).append(mean)
    for index, (key, rows) in enumerate(groups.items()):
        label = ", ".join(f"{axis.rpartition('.')[2]} = {value}" for axis, value in zip(others, key, strict=True))
        axes.plot(
            [row[first] for row in rows], [row[name] for row in rows], "o-", color=COLOURS[index % 7], label=label
        )
    finish(axes, logarithmic)
    numbers = [mean[first] for mean in means]
    if all(isinstance(value, int | float) and value > 0 for value in numbers) and max(numbers) > 10 * min(numbers):
        axes.set_xscale("log")
    axes.set(xlabel=_label(first, plane=False), ylabel=title)
    if others:
        axes.legend(frameon=False, fontsize="small")


def _label(axis: str, plane: bool = True) -> str:
    names = {
        "network.exponent": "g_w, width = d^g_w",
        "network.variance.exponent": "g_s, variance = d^g_s",
        "network.width": "width w",
        "network.variance": "variance sigma^2",
        "network.threshold": "threshold s0",
        "network.threshold.relative": "threshold s0 / a",
    }
    text = names.get(axis, axis.partition(".")[2])
    return f"log10 of {text}" if plane and not even(axis) else text
