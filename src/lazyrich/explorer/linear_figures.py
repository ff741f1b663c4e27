"""Figures of the page of deep linear networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import panel as pn
from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, LegendItem, Span

from lazyrich.explorer.figures import HeatMap, add_hover, add_legend, fit_axes, new_figure
from lazyrich.explorer.linear import Kernels, RateCurve
from lazyrich.fields import LOSSES
from lazyrich.plots import COLOURS
from lazyrich.trajectory import Trajectory

_DASHES = {"train_loss": "solid", "test_loss": "dashed"}
_COLOURS = {"train_loss": COLOURS[0], "test_loss": COLOURS[1]}
_MARKERS = {"train_loss": "circle", "test_loss": "square"}
_RATE_MARKERS = ("circle", "square", "diamond")
_MOST_MARKERS = 25


class CurveFigure:
    """Predicted losses over steps, a kept prediction in grey, trained networks as markers.

    Attributes
    ----------
    figure : bokeh figure
    trained : Trajectory or None
        What the markers show.
    """

    def __init__(self) -> None:
        self.trained: Trajectory | None = None
        self.figure = new_figure("step", "mean squared error", y_axis_type="log")
        nothing: dict[str, Any] = {name: [] for name in ("step", *LOSSES)}
        self._source = ColumnDataSource(nothing, name="curves")
        self._kept = ColumnDataSource(dict(nothing), name="kept")
        self._markers = {
            name: ColumnDataSource({"step": [], "mean": [], "low": [], "high": []}, name=f"trained_{name}")
            for name in LOSSES
        }
        items, lines = [], []
        for name, label in LOSSES.items():
            style = {"line_dash": _DASHES[name]}
            kept = self.figure.line("step", name, source=self._kept, color="#8a8a8a", line_width=2, **style)
            line = self.figure.line("step", name, source=self._source, color=_COLOURS[name], line_width=2.6, **style)
            self.figure.segment("step", "low", "step", "high", source=self._markers[name], color=_COLOURS[name])
            points = self.figure.scatter(
                "step", "mean", source=self._markers[name], color=_COLOURS[name], marker=_MARKERS[name], size=7,
                line_color="white",
            )  # fmt: skip
            lines.append(line)
            items.append(LegendItem(label=f"{label}, predicted", renderers=[line]))
            self._legend_later = getattr(self, "_legend_later", [])
            self._legend_later.append((f"{label}, trained", points, kept))
        self._items = items
        self._legend = add_legend(self.figure, list(items))
        tips = [("step", "@step"), *((label, f"@{name}{{0.0000e}}") for name, label in LOSSES.items())]
        add_hover(self.figure, lines, tips)

    def show(self, losses: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]) -> None:
        """Draw losses, shape (steps,)."""
        self._source.data = _columns(losses)
        for name, item in zip(LOSSES, self._items, strict=True):
            item.visible = name in losses
        had = len(self._kept.data["step"])
        if kept or had:
            self._kept.data = _columns(kept)
            self._show_legend()
        self._fit()

    def show_trained(self, trained: Trajectory | None) -> None:
        """Draw the means of trained networks with their standard errors; None removes them."""
        if trained is None and self.trained is None:
            return
        self.trained = trained
        for name, source in self._markers.items():
            source.data = _marks(trained, name)
        self._show_legend()
        self._fit()

    def clear(self) -> None:
        """Draw nothing."""
        self.show({}, {})
        self.show_trained(None)

    def _fit(self) -> None:
        lines, markers = (self._source.data, self._kept.data), [source.data for source in self._markers.values()]
        marked = [data[end] for data in markers for end in ("low", "high")]
        y = [*(data[name] for data in lines for name in LOSSES), *marked]
        fit_axes(self.figure, [data["step"] for data in (*lines, *markers)], y)

    def _show_legend(self) -> None:
        items = list(self._items)
        if self.trained is not None:
            items += [LegendItem(label=label, renderers=[points]) for label, points, _ in self._legend_later]
        if len(self._kept.data["step"]):
            items.append(LegendItem(label="kept", renderers=[self._legend_later[0][2]]))
        self._legend.items = items


def _columns(losses: Mapping[str, np.ndarray]) -> dict[str, Any]:
    count = len(next(iter(losses.values()), ()))
    return {"step": np.arange(count)} | {name: losses.get(name, np.full(count, np.nan)) for name in LOSSES}


def _marks(trained: Trajectory | None, name: str) -> dict[str, Any]:
    if trained is None or name not in trained.data:
        return {"step": [], "mean": [], "low": [], "high": []}
    steps = len(trained.steps)
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _MOST_MARKERS)).round().astype(int))
    mean, sem = (trained.data[key].values[shown] for key in (name, f"{name}_sem"))
    low = np.where(mean > sem, mean - sem, mean)  # on a logarithmic scale
    return {"step": shown, "mean": mean, "low": low, "high": mean + sem}


class RateFigure:
    """Loss against rate at three widths, the best rates as stars.

    Attributes
    ----------
    figure : bokeh figure
    """

    def __init__(self) -> None:
        self.figure = new_figure("learning rate", "loss after the last step", x_axis_type="log", y_axis_type="log")
        self._lines, self._stars, self._items = [], [], []
        for index, marker in enumerate(_RATE_MARKERS):
            colour = COLOURS[index]
            line = ColumnDataSource({"rate": [], "loss": []}, name=f"rates_{index}")
            star = ColumnDataSource({"rate": [], "loss": []}, name=f"best_rate_{index}")
            drawn = self.figure.line("rate", "loss", source=line, color=colour, line_width=2)
            points = self.figure.scatter("rate", "loss", source=line, color=colour, marker=marker, size=6)
            self.figure.scatter("rate", "loss", source=star, color=colour, marker="star", size=22, line_color="black")
            add_hover(self.figure, [points], [("rate", "@rate{0.000e}"), ("loss", "@loss{0.0000e}")])
            self._lines.append(line)
            self._stars.append(star)
            self._items.append(LegendItem(label=value(""), renderers=[drawn, points], visible=False))
        self._now = Span(dimension="height", line_dash="dotted", line_color="#444444", line_width=2, visible=False)
        self.figure.add_layout(self._now)
        add_legend(self.figure, self._items, "bottom_left")

    def show(self, curves: Sequence[RateCurve], now: float) -> None:
        """Draw what is known of the curves, and the rate that is set."""
        self._now.update(location=now, visible=True)
        fit_axes(self.figure, [np.array([now]), *(curve.rates for curve in curves)], [curve.losses for curve in curves])
        for index, (line, star, item) in enumerate(zip(self._lines, self._stars, self._items, strict=True)):
            curve = curves[index] if index < len(curves) else None
            item.visible = curve is not None
            if curve is None:
                line.data = star.data = {"rate": [], "loss": []}
                continue
            if item.label != value(f"width {curve.width:g}"):
                item.label = value(f"width {curve.width:g}")
            line.data = {"rate": curve.rates, "loss": curve.losses}
            best = curve.optimum
            known = [best] if best is not None and np.isfinite(best.best_rate) else []
            star.data = {"rate": [each.best_rate for each in known], "loss": [each.loss for each in known]}

    def clear(self) -> None:
        """Draw nothing."""
        self._now.visible = False
        self.show([], 1.0)
        self._now.visible = False


class KernelFigure:
    """H and G of one level as heat maps.

    Attributes
    ----------
    layout : Panel layout
    """

    def __init__(self) -> None:
        self._maps = [HeatMap("step s", "step t", name, height=340) for name in ("feature_kernel", "gradient_kernel")]
        panes = [pn.pane.Bokeh(each.figure, sizing_mode="stretch_width", min_width=150) for each in self._maps]
        self.layout = pn.Row(*panes, sizing_mode="stretch_width")

    def show(self, kernels: Kernels) -> None:
        """Draw both kernels."""
        last = float(kernels.steps[-1])
        self._maps[0].show(kernels.feature, last, "H(t, s)")
        self._maps[1].show(kernels.gradient, last, "G(t, s)")

    def clear(self) -> None:
        """Draw nothing."""
        for each in self._maps:
            each.show(np.full((1, 1), np.nan), 1.0, " ")
