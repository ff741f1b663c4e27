"""Figures of results, from trajectories and comparisons only."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.fields import ACCURACIES, AVERAGED, CURVES, LOSSES
from lazyrich.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lazyrich.comparison import Comparison
    from lazyrich.theory.deep_linear.compute import ComputeTrade
    from lazyrich.theory.deep_linear.exponent import Exponent
    from lazyrich.trajectory import Trajectory

# Okabe & Ito's colours: told apart with any colour vision, and in this order also by lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
_STYLES = ("-", "--", ":", "-.")
_FEW = 4  # problems whose names fit beside their curves


def _new_figure(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=((5.6 if columns <= 2 else 4.4) * columns + 0.8, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=True, **options)


def one_panel() -> tuple[Figure, Axes]:
    """A figure with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    return figure, figure.subplots()


def finish(axes: Axes, logarithmic: bool) -> None:
    """The look that all figures share."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if logarithmic:
        axes.set_yscale("log")


def _spans_decade(values: Sequence[np.ndarray]) -> bool:
    joined = np.concatenate([value[np.isfinite(value)] for value in values])
    return joined.size > 0 and joined.min() > 0 and joined.max() > 10 * joined.min()


def _unit(trajectory: Trajectory, curve: str) -> str:
    if curve in ACCURACIES:
        return "part of the samples named correctly"
    if trajectory.data["train_loss"].attrs["units"].startswith("cross-entropy"):
        return trajectory.data["train_loss"].attrs["units"]
    return "mean squared error" + (", standardised targets" if "target_std" in trajectory.data else "")


def _label_time(axes: Axes, trajectory: Trajectory) -> None:
    """Steps, or of gradient flow times, which are spaced logarithmically; so are strides."""
    times = trajectory.times
    if times is None:
        axes.set_xlabel("step")
        if trajectory.spreads_out:
            axes.set_xscale("symlog", linthresh=1.0)  # step 0 has a place
            axes.set_xlim(0.0, trajectory.steps[-1])
    else:
        axes.set(xlabel="time (rate x steps)", xscale="log", xlim=(times[1], times[-1]))


def plot_trajectory(trajectory: Trajectory) -> Figure:
    """Losses, and beside them accuracies, over steps or time; of trained networks with bands of one standard error."""
    panels = [[name for name in group if name in trajectory.data] for group in (LOSSES, ACCURACIES)]
    panels = [curves for curves in panels if curves]
    figure, grid = _new_figure(1, len(panels), 4.2)
    across = trajectory.steps if trajectory.times is None else trajectory.times
    for axes, curves in zip(grid[0], panels, strict=True):
        for name, colour in zip(curves, COLOURS, strict=False):
            values = trajectory.data[name].values
            axes.plot(across, values, color=colour, label=CURVES[name])
            if f"{name}_sem" in trajectory.data:
                sem = trajectory.data[f"{name}_sem"].values
                axes.fill_between(across, values - sem, values + sem, color=colour, alpha=0.25, linewidth=0)
        finish(axes, curves[0] in LOSSES and _spans_decade([trajectory.data[name].values for name in curves]))
        axes.set(ylabel=_unit(trajectory, curves[0]))
        _label_time(axes, trajectory)
        axes.legend(frameon=False)
    origin = "predicted" if trajectory.source == "theory" else f"{trajectory.statistics['networks']} trained networks"
    grid[0, 0].set_title(f"{origin}: {trajectory.outcome}")
    return figure


def plot_exponents(fits: Sequence[tuple[str, Exponent, Trajectory]], trade: ComputeTrade | None = None) -> Figure:
    """Losses over time, and below their slopes with exponents: fitted (dashed), expected of rich networks (dotted).

    With a trade of width against steps, losses over compute stand beside them.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 if trade is None else 11.6, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 1 if trade is None else 2, height_ratios=[1.4, 1])
    above = figure.add_subplot(grid[0, 0])
    below = figure.add_subplot(grid[1, 0], sharex=above)
    for index, (label, fit, trajectory) in enumerate(fits):
        colour = COLOURS[index % len(COLOURS)]
        line = "-" if index < len(COLOURS) else (0, (8, 2))
        times, loss = trajectory.data["time"].values[1:], trajectory.data[fit.loss].values[1:]
        above.plot(times, loss, color=colour, linestyle=line, label=label or LOSSES[fit.loss])
        below.plot(times, -np.gradient(np.log(loss), np.log(times)), color=colour, linestyle=line)
        if fit.window is not None and fit.exponent is not None:
            inside = (times >= fit.window[0]) & (times <= fit.window[1])
            above.plot(times[inside], loss[inside], color=colour, linewidth=4, alpha=0.3, solid_capstyle="butt")
            below.hlines(fit.exponent, *fit.window, color=colour, linestyle="--")
        if fit.expected_rich is not None:
            below.axhline(fit.expected_rich, color=colour, linestyle=":", linewidth=1)
    finish(above, True)
    finish(below, False)
    largest = max(max(fit.high or 0.0, fit.expected_rich or 0.0) for _, fit, _ in fits)
    below.set(
        xlabel="time (rate x steps)", ylabel="-d log loss / d log time", xscale="log", ylim=(0, 1.3 * largest or 1)
    )
    above.tick_params(labelbottom=False)
    above.set(ylabel=_unit(fits[0][2], fits[0][1].loss), title="predicted; thick: where the power law is fitted")
    above.legend(frameon=False, fontsize="small")
    if trade is not None:
        _plot_trade(figure.add_subplot(grid[:, 1]), fits, trade)
    return figure


def _plot_trade(axes: Axes, fits: Sequence[tuple[str, Exponent, Trajectory]], trade: ComputeTrade) -> None:
    for index, (label, fit, trajectory) in enumerate(fits):
        compute = trajectory.data["time"].values[1:] * trajectory.problem.to_dict()["network"]["width"]
        loss = trajectory.data[fit.loss].values[1:]
        axes.plot(compute, loss, color=COLOURS[index % len(COLOURS)], label=label)
    guide = trade.loss[0] * (np.asarray(trade.compute) / trade.compute[0]) ** -trade.loss_exponent[0]
    axes.plot(trade.compute, guide, color="0.3", linestyle="--", label=f"compute^-{trade.loss_exponent[0]:.3f}")
    axes.plot(trade.compute, trade.loss, "o", color="0.3", label="the wider takes over")
    finish(axes, True)
    axes.set(xscale="log", xlabel="compute (width x time)", title="width against steps")
    axes.legend(frameon=False, fontsize="small")


def plot_comparisons(comparisons: Sequence[Comparison]) -> Figure:
    """Predicted curves (lines) under trained means (markers with standard errors), and z-scores below.

    Many problems have one legend for all panels, beside them.
    """
    curves = [name for name in comparisons[0].curves if name not in AVERAGED]
    figure, grid = _new_figure(2, len(curves), 6.0, height_ratios=[3, 1.2])
    for column, curve in enumerate(curves):
        above, below = grid[:, column]
        for index, comparison in enumerate(comparisons):
            colour, marker, style = _look(index)
            trained, times = comparison.trained.data, comparison.trained.times
            steps = comparison.predicted.steps if times is None else times
            shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 20)).round().astype(int))
            label = f", {comparison.label}" if comparison.label else ""
            predicted = comparison.predicted.data[curve].values
            above.plot(steps, predicted, color=colour, linestyle=style, label=f"theory{label}")
            above.errorbar(
                steps[shown],
                trained[curve].values[shown],
                trained[f"{curve}_sem"].values[shown],
                color=colour,
                marker=marker,
                markersize=4,
                linestyle="none",
                label=f"{comparison.trained.statistics['networks']} networks{label}",
            )
            below.plot(
                steps,
                comparison.data[f"{curve}_z"].values,
                color=colour,
                linestyle=style,
                marker=marker,
                markevery=5,
                markersize=3,
            )
        finish(above, curve in LOSSES and _spans_decade([c.predicted.data[curve].values for c in comparisons]))
        finish(below, logarithmic=False)
        below.axhspan(-2, 2, color="0.5", alpha=0.15, linewidth=0)
        above.set(title=CURVES[curve], ylabel=_unit(comparisons[0].predicted, curve))
        below.set(ylabel="trained - theory\n(standard errors)")
        _label_time(below, comparisons[0].trained)
        if len(comparisons) <= _FEW:
            above.legend(frameon=False, fontsize="small")
    if len(comparisons) > _FEW:
        _legend_of_many(figure, comparisons)
    return figure


def _look(index: int) -> tuple[str, str, str]:
    """Colour, marker and line style of a curve: other lines where the colours begin again."""
    around, position = divmod(index, len(COLOURS))
    return COLOURS[position], MARKERS[index % len(MARKERS)], _STYLES[around % len(_STYLES)]


def _legend_of_many(figure: Figure, comparisons: Sequence[Comparison]) -> None:
    from matplotlib.lines import Line2D

    networks = comparisons[0].trained.statistics["networks"]
    handles = [Line2D([], [], color="0.3", label="theory")]
    handles.append(
        Line2D([], [], color="0.3", marker="o", markersize=4, linestyle="none", label=f"{networks} networks")
    )
    for index, comparison in enumerate(comparisons):
        colour, marker, style = _look(index)
        looks = {"color": colour, "marker": marker, "markersize": 4, "linestyle": style}
        handles.append(Line2D([], [], **looks, label=comparison.label))
    figure.legend(handles=handles, frameon=False, fontsize="small", loc="outside right center")


def plot_calibration(comparisons: Sequence[Comparison]) -> Figure:
    """How often networks were right against the predicted probability, for every part of the data with classes."""
    parts = [name for name in ("train", "test") if f"{name}_correct" in comparisons[0].predicted.data]
    figure, grid = _new_figure(1, len(parts), 4.6, sharey=True)
    for axes, part in zip(grid[0], parts, strict=True):
        axes.plot([0, 1], [0, 1], color="0.5", linewidth=1, label="as predicted")
        for index, comparison in enumerate(comparisons):
            found = comparison.calibration(part)
            label = f"{comparison.label}: " if comparison.label else ""
            colour, marker, _ = _look(index)
            axes.plot(
                found["predicted"],
                found["trained"],
                color=colour,
                marker=marker,
                linestyle="none",
                label=f"{label}{100 * found.attrs['error']:.1f} points apart on average",
            )
        finish(axes, logarithmic=False)
        axes.set(
            xlabel="predicted probability of a right answer",
            ylabel="part of the networks that are right",
            title=f"{'training' if part == 'train' else 'held-out'} samples",
        )
        axes.legend(frameon=False, fontsize="small")
    return figure


def plot_averages(comparison: Comparison) -> Figure:
    """Losses of one network and of averages of infinitely many: theory (lines) under trained means (markers)."""
    panels = [
        [name for name in comparison.curves if name.startswith(part) and name not in ACCURACIES]
        for part in ("train", "test")
    ]
    panels = [curves for curves in panels if curves]
    figure, grid = _new_figure(1, len(panels), 4.6)
    steps, trained = comparison.predicted.steps, comparison.trained.data
    shown = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 20)).round().astype(int))
    for axes, curves in zip(grid[0], panels, strict=True):
        for name, colour, marker in zip(curves, COLOURS, MARKERS, strict=False):
            over = name.partition("_over_")[2].replace("both", "data and initialisations")
            label = f"average over {over}" if over else "one network"
            axes.plot(steps, comparison.predicted.data[name].values, color=colour, label=label)
            values, errors = trained[name].values[shown], trained[f"{name}_sem"].values[shown]
            axes.errorbar(steps[shown], values, errors, color=colour, marker=marker, markersize=4, linestyle="none")
        finish(axes, _spans_decade([comparison.predicted.data[name].values for name in curves]))
        axes.set(xlabel="step", ylabel=_unit(comparison.predicted, curves[0]), title=LOSSES[curves[0]])
        axes.legend(frameon=False, fontsize="small")
    return figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG or SVG, whole or not at all.

    Raises
    ------
    LazyrichError
        When the file cannot be written.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lower().lstrip("."), dpi=150)
    write_whole(path, buffer.getvalue())
