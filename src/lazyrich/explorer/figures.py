"""Figures in the browser: what they share."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import (
    BasicTickFormatter,
    ColorBar,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    Legend,
    LinearColorMapper,
    LogAxis,
)
from bokeh.plotting import figure

# A colour map whose lightness alone orders its values, for any colour vision.
_MAP, _MISSING = "Cividis256", "#bbbbbb"


def new_figure(x_label: str, y_label: str, *, height: int = 360, title: str = "", **options: Any) -> Any:
    """An empty figure as wide as its place, without a toolbar."""
    made = figure(
        height=height, sizing_mode="stretch_width", min_width=240, toolbar_location=None, tools="", title=title or None,
        x_axis_label=x_label, y_axis_label=y_label, **options,
    )  # fmt: skip
    for axis in made.axis:
        axis.axis_label_text_font_size, axis.major_label_text_font_size = "14px", "13px"
        axis.axis_label_text_font_style = "normal"
        if isinstance(axis, LogAxis):
            axis.update(ticker=FixedTicker(ticks=[]), formatter=BasicTickFormatter(power_limit_low=-3))
    if title:
        made.title.text_font_size = "15px"
    made.grid.grid_line_alpha = 0.5
    made.outline_line_color = None
    return made


def set_log_ticks(axis: Any, *values: np.ndarray) -> None:
    """Ticks of a logarithmic axis that are few enough to be read, and never less than three."""
    joined = np.concatenate([np.ravel(value) for value in values]) if values else np.zeros(0)
    known = joined[np.isfinite(joined) & (joined > 0)]
    low, high = (np.log10(known.min()), np.log10(known.max())) if known.size else (0.0, 0.0)
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


def add_legend(made: Any, items: list[Any], place: str = "top_right", **options: Any) -> Any:
    """A legend that lets the curves shine through."""
    legend = Legend(
        items=items, location=place, background_fill_alpha=0.75, border_line_color=None, label_text_font_size="13px",
        padding=4, spacing=1, glyph_width=26, **options,
    )  # fmt: skip
    made.add_layout(legend)
    return legend


class HeatMap:
    """A square image over two axes with its colour bar.

    Attributes
    ----------
    figure : bokeh figure
    """

    def __init__(self, x_label: str, y_label: str, name: str, *, height: int = 360) -> None:
        self.figure = new_figure(x_label, y_label, height=height, title=" ")
        self._source = ColumnDataSource(
            {"image": [np.zeros((1, 1))], "x": [0.0], "y": [0.0], "w": [1.0], "h": [1.0]}, name=name
        )
        self._mapper = LinearColorMapper(palette=_MAP, low=0.0, high=1.0, nan_color=_MISSING)
        self.figure.image("image", x="x", y="y", dw="w", dh="h", color_mapper=self._mapper, source=self._source)
        for each in (self.figure.x_range, self.figure.y_range):
            each.range_padding = 0.0
        self.figure.grid.visible = False
        self._bar = ColorBar(
            color_mapper=self._mapper, width=10, padding=2, title_text_font_style="normal", label_standoff=4
        )
        self.figure.add_layout(self._bar, "right")

    def show(self, values: np.ndarray, last: float, title: str) -> None:
        """Draw values over [0, last] along both axes."""
        known = values[np.isfinite(values)]
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
        if high - low <= 1e-9 * max(abs(high), abs(low), 1e-300):  # one colour
            low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
        self._mapper.update(low=low, high=high)
        self._bar.ticker = FixedTicker(ticks=np.linspace(low, high, 5).tolist())
        size = last + 1.0
        self._source.data = {"image": [values.astype(np.float32)], "x": [-0.5], "y": [-0.5], "w": [size], "h": [size]}
        self.figure.title.text = title
