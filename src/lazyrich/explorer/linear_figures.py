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
from lazyrich.plots import COLOURS
from lazyrich.trajectory import Trajectory

# Of training, and of what training does not see.
_DASHES, _MARKERS = ("solid", "dashed"), ("circle", "square")
_RATE_MARKERS = ("circle", "square", "diamond")
_MOST_MARKERS = 25


class CurveFigure:
    """Predicted curves over steps, a kept prediction in grey, trained networks as markers.

    Parameters
    ----------
    names : dict
        Curves of training and test with their labels.
    label : str
        Of the axis.
    source : str
        Names the columns in the browser.
    logarithmic : bool
    legend : str
        Where it is.

    Attributes
    ----------
    figure : bokeh figure
    trained : Trajectory or None
        What the markers show.
    """

    def __init__(self, names: Mapping[str, str], label: str, source: str, *, logarithmic: bool, legend: str) -> None:
        self.trained: Trajectory | None = None
        self.figure = new_figure("step", label, y_axis_type="log" if logarithmic else "linear")
        self._names = tuple(names)
        nothing: dict[str, Any] = {name: [] for name in ("step", *names)}
        self._source = ColumnDataSource(nothing, name=source)
        self._kept = ColumnDataSource(dict(nothing), name=f"kept_{source}")
        self._markers = {
            name: ColumnDataSource({"step": [], "mean": [], "low": [], "high": []}, name=f"trained_{name}")
            for name in names
        }
        self._items, self._trained_items, kept_lines = [], [], []
        for name, colour, dash, marker in zip(names, COLOURS, _DASHES, _MARKERS, strict=False):
            style = {"color": colour, "line_width": 2.6, "line_dash": dash}
            kept = self.figure.line("step", name, source=self._kept, **style | {"color": "#8a8a8a", "line_width": 2})
            line = self.figure.line("step", name, source=self._source, **style)
            self.figure.segment("step", "low", "step", "high", source=self._markers[name], color=colour)
            points = self.figure.scatter(
                "step", "mean", source=self._markers[name], color=colour, marker=marker, size=7, line_color="white"
            )
            self._items.append(LegendItem(label=f"{names[name]}, predicted", renderers=[line]))
            self._trained_items.append(LegendItem(label=f"{names[name]}, trained", renderers=[points]))
            kept_lines.append(kept)
        self._kept_item = LegendItem(label="kept", renderers=kept_lines[:1])
        self._legend = add_legend(self.figure, list(self._items), legend)
        tips = [("step", "@step"), *((text, f"@{name}{{0.0000e}}") for name, text in names.items())]
        add_hover(self.figure, [item.renderers[0] for item in self._items], tips)

    def show(self, curves: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]) -> None:
        """Draw curves, shape (steps,)."""
        self._source.data = self._columns(curves)
        for name, item in zip(self._names, self._items, strict=True):
            item.visible = name in curves
        if kept or len(self._kept.data["step"]):
            self._kept.data = self._columns(kept)
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

    def _columns(self, curves: Mapping[str, np.ndarray]) -> dict[str, Any]:
        count = len(next(iter(curves.values()), ()))
        columns = {name: curves.get(name, np.full(count, np.nan)) for name in self._names}
        return {"step": np.arange(count)} | columns

    def _fit(self) -> None:
        lines, markers = (self._source.data, self._kept.data), [source.data for source in self._markers.values()]
        marked = [data[end] for data in markers for end in ("low", "high")]
        y = [*(data[name] for data in lines for name in self._names), *marked]
        fit_axes(self.figure, [data["step"] for data in (*lines, *markers)], y)

    def _show_legend(self) -> None:
        items = list(self._items)
        if self.trained is not None:
            drawn = zip(self._names, self._trained_items, strict=True)
            items += [item for name, item in drawn if name in self.trained.data]
        if len(self._kept.data["step"]):
            items.append(self._kept_item)
        self._legend.items = items


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
