"""Figures of the page of two-layer networks."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColorBar, ColumnDataSource, FixedTicker, LegendItem, LogColorMapper, Range1d

from lazyrich.explorer.figures import add_hover, add_legend, fit_axes, new_figure
from lazyrich.explorer.two_layer import Diagram, Run, diagram_axes
from lazyrich.plots import COLOURS

# Smaller singular values, by the largest, are below the figure.
_SMALLEST = 1e-4
_NOISE = "#9a9a9a"
_DASHES = ("solid", "dashed", "dotted")


class SpectrumFigure:
    """Singular values over steps: dotted while lazy, solid while active, with s0 and the predicted half times.

    Attributes
    ----------
    figure : bokeh figure
    """

    def __init__(self) -> None:
        self.figure = new_figure("step", "singular values", y_axis_type="log", height=380)
        lines = {"steps": [], "values": [], "colour": []}
        self._lazy, self._active = (ColumnDataSource(dict(lines), name=name) for name in ("lazy", "active"))
        self._threshold = ColumnDataSource({"step": [], "value": []}, name="threshold")
        self._half = ColumnDataSource({"step": [], "value": []}, name="half_times")
        lazy = self.figure.multi_line(
            "steps", "values", source=self._lazy, color="colour", line_dash="dotted", line_width=2
        )
        active = self.figure.multi_line("steps", "values", source=self._active, color="colour", line_width=2.4)
        threshold = self.figure.line("step", "value", source=self._threshold, color="#000000", line_dash="dashed")
        half = self.figure.scatter("step", "value", source=self._half, color="#000000", marker="circle", size=8)
        labels = {"lazy": lazy, "active": active, "threshold s0": threshold, "half learned, predicted": half}
        add_legend(
            self.figure, [LegendItem(label=text, renderers=[drawn]) for text, drawn in labels.items()], "bottom_right"
        )

    def show(self, run: Run) -> None:
        """Draw the singular values of a run."""
        steps, values, active = run.spectrum
        threshold = run.trajectory.data["threshold"].values
        floor = max(_SMALLEST * float(values.max(initial=0.0)), 1e-12)
        shown = np.where(values > floor, values, np.nan)
        lazy = ~active
        lazy[1:] |= lazy[:-1]  # up to where the solid line begins
        colours = [COLOURS[mode % 6] if mode < run.signal else _NOISE for mode in range(values.shape[1])]
        for source, where in ((self._lazy, lazy), (self._active, active)):
            lines = list(np.where(where, shown, np.nan).T)
            source.data = {"steps": [steps] * len(lines), "values": lines, "colour": colours}
        self._threshold.data = {"step": steps, "value": threshold}
        half, height = run.half_times
        self._half.data = {"step": half, "value": height}
        fit_axes(self.figure, [steps], [shown, threshold])

    def clear(self) -> None:
        """Draw nothing."""
        for source in (self._lazy, self._active):
            source.data = {"steps": [], "values": [], "colour": []}
        for source in (self._threshold, self._half):
            source.data = {"step": [], "value": []}


class ErrorFigure:
    """Train and test error over steps, with the best step.

    Attributes
    ----------
    figure : bokeh figure
    """

    def __init__(self) -> None:
        self.figure = new_figure("step", "mean squared error", y_axis_type="log", height=380)
        self._source = ColumnDataSource({"step": [], "train": [], "test": []}, name="errors")
        self._best = ColumnDataSource({"step": [], "error": []}, name="best")
        train = self.figure.line("step", "train", source=self._source, color=COLOURS[0], line_width=2.4)
        test = self.figure.line(
            "step", "test", source=self._source, color=COLOURS[1], line_width=2.4, line_dash="dashed"
        )
        best = self.figure.scatter("step", "error", source=self._best, color=COLOURS[6], marker="star", size=18)
        labels = {"train error": train, "test error": test, "best test error": best}
        add_legend(self.figure, [LegendItem(label=label, renderers=[drawn]) for label, drawn in labels.items()])
        add_hover(self.figure, [train], [("step", "@step"), ("train", "@train{0.000e}"), ("test", "@test{0.000e}")])

    def show(self, run: Run) -> None:
        """Draw the errors of a run."""
        data, facts = run.trajectory.data, run.trajectory.statistics
        train, test = data["train_error"].values, data["test_error"].values
        self._source.data = {"step": data["step"].values, "train": train, "test": test}
        known = np.isfinite(facts["best_test_error"])
        self._best.data = {
            "step": [facts["best_step"]] if known else [],
            "error": [facts["best_test_error"]] if known else [],
        }
        fit_axes(self.figure, [data["step"].values], [train, test])

    def clear(self) -> None:
        """Draw nothing."""
        self._source.data = {"step": [], "train": [], "test": []}
        self._best.data = {"step": [], "error": []}


class DiagramFigure:
    """Best test error over both exponents, the theory's borders, and the cursor.

    Attributes
    ----------
    figure : bokeh figure
    """

    def __init__(self) -> None:
        self.figure = new_figure("g of the variance d^g", "g of the width d^g", height=440)
        left, right, bottom, top = _edges(*diagram_axes())
        self.figure.x_range, self.figure.y_range = Range1d(start=left, end=right), Range1d(start=bottom, end=top)
        self._place = {"x": [left], "y": [bottom], "w": [right - left], "h": [top - bottom]}
        self._image = ColumnDataSource({"image": [], "x": [], "y": [], "w": [], "h": []}, name="diagram")
        self._mapper = LogColorMapper(palette="Cividis256", low=0.1, high=1.0, nan_color="#bbbbbb")
        self.figure.image("image", x="x", y="y", dw="w", dh="h", color_mapper=self._mapper, source=self._image)
        self._lines = [ColumnDataSource({"x": [], "y": []}, name=f"border_{index}") for index in range(len(_DASHES))]
        self._items = []
        for dash, source in zip(_DASHES, self._lines, strict=True):
            drawn = self.figure.line("x", "y", source=source, color=COLOURS[1], line_width=3, line_dash=dash)
            self._items.append(LegendItem(label="", renderers=[drawn]))
        self._cursor = ColumnDataSource({"x": [], "y": []}, name="cursor")
        for size, colour in ((20, "white"), (16, "black")):
            self.figure.scatter(
                "x", "y", source=self._cursor, marker="circle_cross", size=size, line_color=colour, line_width=2.5,
                fill_color=None,
            )  # fmt: skip
        bar = ColorBar(color_mapper=self._mapper, height=10, padding=4, label_standoff=4, title="best test error")
        bar.title_text_font_style = "normal"
        self._bar = bar
        self.figure.add_layout(bar, "below")
        self.figure.grid.visible = False
        self._legend = add_legend(self.figure, [], "left", side="below")
        self._legend.label_text_font_size = "12px"

    def show(self, diagram: Diagram) -> None:
        """Draw what is known of a diagram."""
        values = diagram.filled()
        known = values[np.isfinite(values) & (values > 0)]
        low, high = (float(known.min()), float(known.max())) if known.size else (0.1, 1.0)
        self._mapper.update(low=low, high=max(high, 1.01 * low))
        self._bar.ticker = FixedTicker(ticks=[float(f"{tick:.2g}") for tick in np.geomspace(low, max(high, low), 4)])
        self._image.data = {"image": [values.astype(np.float32)], **self._place}
        for source, item, (label, line) in zip(self._lines, self._items, diagram.lines.items(), strict=True):
            source.data = {"x": line[:, 0], "y": line[:, 1]}
            item.label = {"value": label}
        if not self._legend.items:
            self._legend.items = self._items

    def move(self, variance: float, width: float) -> None:
        """Put the cursor there."""
        self._cursor.data = {"x": [variance], "y": [width]}


def _edges(*axes: np.ndarray) -> tuple[float, ...]:
    """Ends of the outermost cells of every axis."""
    return tuple(float(end) for x in axes for end in (1.5 * x[0] - 0.5 * x[1], 1.5 * x[-1] - 0.5 * x[-2]))
