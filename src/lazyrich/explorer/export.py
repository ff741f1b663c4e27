"""Files of what a page shows: figures and tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.explorer.linear import Kernels, RateCurve
from lazyrich.explorer.settings import Values
from lazyrich.explorer.two_layer import Diagram
from lazyrich.plots import COLOURS, finish
from lazyrich.trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def picture(figure: Figure, kind: str) -> bytes:
    """A matplotlib figure as the content of a ``"png"`` or ``"svg"`` file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150)
    return buffer.getvalue()


def table(columns: Mapping[str, Sequence[Any] | np.ndarray]) -> bytes:
    """Columns of one length as the content of a CSV file, numbers in full; nothing where there is none."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(["" if isinstance(cell, float) and np.isnan(cell) else _number(cell) for cell in row])
    return buffer.getvalue().encode()


def _number(cell: Any) -> Any:
    return cell.item() if isinstance(cell, np.generic) else cell


def rate_table(curves: Sequence[RateCurve]) -> dict[str, np.ndarray]:
    """A row per width and rate."""
    return {
        "width": np.concatenate([np.full(len(curve.rates), curve.width) for curve in curves]),
        "learning_rate": np.concatenate([curve.rates for curve in curves]),
        "loss": np.concatenate([curve.losses for curve in curves]),
    }


def kernel_table(kernels: Kernels) -> dict[str, np.ndarray]:
    """A row per pair of steps."""
    step, other = np.meshgrid(kernels.steps, kernels.steps, indexing="ij")
    return {
        "step": step.ravel(),
        "step_prime": other.ravel(),
        "feature_kernel": kernels.feature.ravel(),
        "gradient_kernel": kernels.gradient.ravel(),
    }


def plot_rates(curves: Sequence[RateCurve], step: int) -> Figure:
    """The figure of ``lazyrich transfer``, of a page's curves."""
    from lazyrich.transfer.analysis import Analysis, Best
    from lazyrich.transfer.figures import plot_losses

    best = [
        Best({"network.width": curve.width}, "theory", step, curve.optimum, curve.rates, curve.losses[:, None], None)
        for curve in curves
        if curve.optimum is not None
    ]
    return plot_losses(Analysis(best, [], []))


def plot_kernels(kernels: Kernels) -> Figure:
    """Both kernels of a level as heat maps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    last = kernels.steps[-1]
    names = {f"feature kernel H, level {kernels.level}": kernels.feature,
             f"gradient kernel G, level {kernels.level}": kernels.gradient}  # fmt: skip
    for axes, (title, values) in zip(figure.subplots(1, 2), names.items(), strict=True):
        drawn = axes.imshow(values, origin="lower", extent=(-0.5, last + 0.5, -0.5, last + 0.5), cmap="cividis")
        figure.colorbar(drawn, ax=axes)
        finish(axes, logarithmic=False)
        axes.grid(visible=False)
        axes.set(xlabel="step s", ylabel="step t", title=title)
    return figure


def run_columns(trajectory: Trajectory) -> dict[str, np.ndarray]:
    """Errors, ranks and singular values of a matrix run at the recorded steps."""
    data = trajectory.data
    names = ("step", "time", "train_error", "test_error", "threshold", "active_rank", "numerical_rank", "stable_rank")
    spectrum = data["singular_values"].values
    return {name: data[name].values for name in names} | {
        f"singular_value_{mode + 1}": spectrum[:, mode] for mode in range(spectrum.shape[1])
    }


def diagram_table(diagram: Diagram) -> dict[str, np.ndarray]:
    """A row per point that is known."""
    width, variance = np.meshgrid(diagram.width, diagram.variance, indexing="ij")
    known = np.isfinite(diagram.error)
    return {
        "network.variance.exponent": variance[known],
        "network.exponent": width[known],
        "best_test_error": diagram.error[known],
    }


def plot_diagram(diagram: Diagram, values: Values) -> Figure:
    """The phase diagram with its borders and the cursor."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 5.2), layout="constrained")
    axes = figure.subplots()
    drawn = axes.pcolormesh(diagram.variance, diagram.width, diagram.error, cmap="cividis", norm=LogNorm())
    figure.colorbar(drawn, ax=axes, label="best test error")
    limits = axes.get_xlim(), axes.get_ylim()
    for style, (label, line) in zip(("-", "--", ":"), diagram.lines.items(), strict=True):
        axes.plot(line[:, 0], line[:, 1], color=COLOURS[1], linestyle=style, linewidth=2, label=label)
    axes.plot(values["variance"], values["width"], "o", color="white", markeredgecolor="black", label="cursor")
    axes.set(xlim=limits[0], ylim=limits[1], xlabel="g_s, variance = d^g_s", ylabel="g_w, width = d^g_w")
    finish(axes, logarithmic=False)
    axes.grid(visible=False)
    axes.legend(fontsize="small", loc="lower left")
    return figure
