"""Figures in the browser: what they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import panel as pn
from bokeh.models import (
    ColorBar,
    ColumnDataSource,
    CustomJSTickFormatter,
    FixedTicker,
    HoverTool,
    Legend,
    LinearColorMapper,
    LogAxis,
    Range1d,
)
from bokeh.plotting import figure

# A colour map whose lightness alone orders its values, for any colour vision.
_MAP, _MISSING = "Cividis256", "#bbbbbb"
# A number at a tick: three digits, no zeros at the end.
_SHORT = "return String(Number(tick.toPrecision(3)))"
_GRID = """
:host { display: grid !important; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 8px; }
.scroll-button { display: none !important; }  /* Panel's, unseen, would take the place of a figure */
"""
# Positive values that differ by more than this factor are drawn by their logarithm, down to this part of the largest.
_DECADES, _FLOOR = 100.0, 1e-6
# Beyond the outermost values: of the span of an axis, and in decades where a logarithmic axis has none.
_PADDING, _LEAST_DECADES = 0.05, 0.05


def new_figure(x_label: str, y_label: str, *, height: int = 360, title: str = "", **options: Any) -> Any:
    """An empty figure as wide as its place, without a toolbar."""
    for name in ("x", "y"):
        start, end = (0.1, 10.0) if options.get(f"{name}_axis_type") == "log" else (0.0, 1.0)
        options.setdefault(f"{name}_range", Range1d(start=start, end=end))
    made: Any = figure(
        height=height, sizing_mode="stretch_width", min_width=150, toolbar_location=None, tools="", title=title or None,
        x_axis_label=x_label, y_axis_label=y_label, **options,
    )  # fmt: skip
    for axis in made.axis:
        axis.axis_label_text_font_size, axis.major_label_text_font_size = "14px", "13px"
        axis.axis_label_text_font_style = "normal"
        if isinstance(axis, LogAxis):
            axis.update(ticker=FixedTicker(ticks=[]), formatter=CustomJSTickFormatter(code=_SHORT))
    if title:
        made.title.text_font_size = "15px"
    made.grid.grid_line_alpha = 0.5
    made.outline_line_color = None
    return made


def side_by_side(figures: Sequence[Any]) -> Any:
    """Figures in one row, or one below the other where that is too narrow.

    Those with ``visible = False`` take no place. To be set at the figures: Panel does not always know what it shows.
    """
    panes = [pn.pane.Bokeh(each, sizing_mode="stretch_width") for each in figures]
    return pn.Column(*panes, sizing_mode="stretch_width", stylesheets=[_GRID], margin=0)


def fit_axes(made: Any, x: Sequence[Any], y: Sequence[Any]) -> None:
    """Ranges for values along both axes, and ticks where an axis is logarithmic; nothing changes without a value.

    Ranges that a browser fits itself cannot be fitted while a figure is empty, and it complains.
    """
    for axis, axes, values in ((made.xaxis[0], made.x_range, x), (made.yaxis[0], made.y_range, y)):
        logarithmic = isinstance(axis, LogAxis)
        known = np.concatenate([np.ravel(value) for value in values]) if len(values) else np.zeros(0)
        known = known[np.isfinite(known) & (known > 0)] if logarithmic else known[np.isfinite(known)]
        if not known.size:
            continue
        low, high = float(known.min()), float(known.max())
        if logarithmic:
            low, high = float(np.log10(low)), float(np.log10(high))
            _set_log_ticks(axis, low, high)
        padding = _PADDING * (high - low) or (_LEAST_DECADES if logarithmic else 0.5)
        ends = np.array([low - padding, high + padding])
        start, end = 10.0**ends if logarithmic else ends
        axes.update(start=float(start), end=float(end))


def _set_log_ticks(axis: Any, low: float, high: float) -> None:
    """Ticks between two powers of ten that are few enough to be read, and never less than three."""
    span = high - low
    mantissas = (1, 1.5, 2, 3, 4, 5, 7) if span < 0.7 else (1, 2, 5) if span < 2.2 else (1,)
    every = max(1, int(np.ceil(span / 7)))
    powers = range(int(np.floor(low)) - 1, int(np.ceil(high)) + 2)
    ticks = [float(f"{m}e{power}") for power in powers if power % every == 0 for m in mantissas]
    if axis.ticker.ticks != ticks:
        axis.ticker.ticks = ticks


def add_hover(made: Any, renderers: list[Any], tips: list[tuple[str, str]]) -> None:
    """Values at the pointer."""
    made.add_tools(HoverTool(renderers=renderers, tooltips=tips, mode="mouse"))


def add_legend(made: Any, items: list[Any], place: Any = "top_right", *, side: str = "center", **options: Any) -> Any:
    """A legend that lets the curves shine through."""
    legend: Any = Legend(
        items=items, location=place, background_fill_alpha=0.75, border_line_color=None, label_text_font_size="13px",
        spacing=1, glyph_width=26, **options,
    )  # fmt: skip
    made.add_layout(legend, side)
    return legend


class HeatMap:
    """A square image over two axes with its colour bar; by its logarithm where it spans decades.

    Attributes
    ----------
    figure : bokeh figure
    """

    def __init__(self, x_label: str, y_label: str, name: str, *, height: int = 360) -> None:
        self.figure = new_figure(x_label, y_label, height=height, title=" ")
        self._source = ColumnDataSource({"image": [], "x": [], "y": [], "w": [], "h": []}, name=name)
        self._mapper = LinearColorMapper(palette=_MAP, low=0.0, high=1.0, nan_color=_MISSING)
        self.figure.image("image", x="x", y="y", dw="w", dh="h", color_mapper=self._mapper, source=self._source)
        for axis in self.figure.axis:
            axis.ticker.desired_num_ticks = 4
        self.figure.grid.visible = False
        self._bar = ColorBar(
            color_mapper=self._mapper,
            height=10,
            padding=4,
            label_standoff=4,
            major_label_text_font_size="12px",
            formatter=CustomJSTickFormatter(code=_SHORT),
        )
        self.figure.add_layout(self._bar, "below")

    def show(self, values: np.ndarray, last: float, title: str) -> None:
        """Draw values over [0, last] along both axes."""
        known = values[np.isfinite(values)]
        if known.size and known.max() > 0 and known.min() > 0 and known.max() > _DECADES * known.min():
            values, title = np.log10(np.maximum(values, _FLOOR * known.max())), f"log10 of {title}"
            known = values[np.isfinite(values)]
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
        if high - low <= 1e-9 * max(abs(high), abs(low)):  # one colour
            low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
        self._mapper.update(low=low, high=high)
        self._bar.ticker = FixedTicker(ticks=[low, 0.5 * (low + high), high])
        size = last + 1.0
        for axes in (self.figure.x_range, self.figure.y_range):
            axes.update(start=-0.5, end=last + 0.5)
        self._source.data = {"image": [values.astype(np.float32)], "x": [-0.5], "y": [-0.5], "w": [size], "h": [size]}
        self.figure.title.text = title
