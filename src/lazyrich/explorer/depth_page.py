"""The page of rules for depth."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.events import Tap
from bokeh.models import ColumnDataSource, Div, LegendItem, LinearColorMapper, Range1d, TextInput

from lazyrich.errors import LazyrichError
from lazyrich.explorer import export
from lazyrich.explorer.depth import (
    AREAS,
    GROWTH,
    LINES,
    NETWORK,
    RULE,
    SETTINGS,
    SIZES,
    command_of,
    growth_of,
    label_of,
    plane,
    plot_plane,
    problem_of,
    report_of,
    summary_of,
    trained_problems,
    trained_table,
)
from lazyrich.explorer.figures import add_legend, fit_axes, new_figure, side_by_side
from lazyrich.explorer.page import Page
from lazyrich.explorer.settings import Number, Values
from lazyrich.explorer.toml import problem_file
from lazyrich.explorer.trainer import Trainer
from lazyrich.plots import COLOURS
from lazyrich.trajectory import Trajectory

_LEAD = (
    "How branches and learning rates should fall with the number L of blocks. Only on the line alpha + gamma = 1 do "
    "features learn at any depth; at alpha = 1/2 neighbouring layers also stay different. Click to choose a rule."
)
# Settings that the trained networks do not depend on.
_TABLE_ONLY = {"width", "base_width", "networks"}
_STYLE = (
    "<style>table {border-collapse: collapse; font-size: clamp(11px, 3vw, 14px);}"
    " td, th {padding: 3px min(1.6vw, 12px) 3px 0; text-align: right;"
    " border-bottom: 1px solid #ccc;} td:first-child, th:first-child {text-align: left;}</style>"
)


class DepthPage:
    """Figures of the page, around its settings."""

    def __init__(self) -> None:
        self._page = Page("depth", SETTINGS, self._work)
        self._cursor = ColumnDataSource({"alpha": [], "gamma": []}, name="rule")
        self._sizes = [ColumnDataSource({"depth": [], "size": []}, name=f"growth_{index}") for index in range(3)]
        self._losses = [_empty_losses(index) for index in range(2)]
        self._items: list[Any] = []
        self._trained: list[Trajectory] = []
        self._trainer = Trainer(self._page.schedule, self._page.fail, self._show_trained)
        self._page.watch(self._after_change)
        self._map = self._make_map()
        self._growth = self._make_growth()
        self._table = Div(text="", sizing_mode="stretch_width", margin=(0, 8), styles={"overflow-x": "auto"})
        self._command = TextInput(title="On the command line", sizing_mode="stretch_width", margin=(2, 8))

    def template(self) -> Any:
        """The page."""
        page = self._page
        self._loss_figure = self._make_losses()
        self._loss_figure.visible = False
        row = side_by_side([self._map, self._growth, self._loss_figure])
        groups = [
            page.group("Rule", [setting.name for setting in RULE]),
            page.group("Sizes", [setting.name for setting in SIZES]),
        ]
        training = page.group(
            "Train residual networks of both depths by this rule",
            [*(setting.name for setting in NETWORK), self._trainer.view(self._start)],
        )
        downloads = page.downloads(
            {
                "Problem file": ("problem.toml", self.problem_file),
                "PNG": ("lazyrich.png", partial(self._picture, "png")),
                "SVG": ("lazyrich.svg", partial(self._picture, "svg")),
                "CSV": ("lazyrich.csv", self._csv),
            }
        )
        page.start()
        return page.template("Rules for depth", _LEAD, groups, row, [training, downloads, self._table, self._command])

    def _make_map(self) -> Any:
        made, drawn = new_figure("alpha", "gamma", height=400), plane()
        (left, right), (bottom, top) = drawn.alpha, drawn.gamma
        made.x_range, made.y_range = Range1d(start=left, end=right), Range1d(start=bottom, end=top)
        mapper = LinearColorMapper(palette=list(AREAS.values()), low=-0.5, high=len(AREAS) - 0.5)
        made.image([drawn.areas], x=left, y=bottom, dw=right - left, dh=top - bottom, color_mapper=mapper)
        items = []
        for name, colour in AREAS.items():
            square = made.scatter([np.nan], [np.nan], marker="square", size=14, color=colour)
            items.append(LegendItem(label=name, renderers=[square]))
        for name, points in drawn.lines.items():
            x, y = points.T
            if len(points) > 1:
                mark = made.line(x, y, color=LINES[name], line_width=6)
            else:
                mark = made.scatter(
                    x, y, color=LINES[name], marker="star", size=26, line_color="white", level="overlay"
                )
            items.append(LegendItem(label=name, renderers=[mark]))
        places = np.array(list(drawn.named))
        made.scatter(places[:, 0], places[:, 1], size=5, color="black")
        for index, ((alpha, gamma), name) in enumerate(drawn.named.items()):  # by turns above and below
            offset = -7 if index % 2 == 0 else 20
            made.text([alpha], [gamma], text=[name], x_offset=5, y_offset=offset, text_font_size="11px")
        cursor = made.scatter(
            "alpha", "gamma", source=self._cursor, marker="circle", size=20, line_color="black", line_width=3,
            fill_color=None, level="overlay",
        )  # fmt: skip
        items.append(LegendItem(label="this rule", renderers=[cursor]))
        add_legend(made, items, "left", side="below", ncols=2).label_text_font_size = "12px"
        made.grid.visible = False
        made.on_event(Tap, self._tapped)
        return made

    def _make_growth(self) -> Any:
        made = new_figure("depth L", "relative to L = 1", x_axis_type="log", y_axis_type="log", height=400)
        items = []
        for index, (label, source) in enumerate(zip(GROWTH, self._sizes, strict=True)):
            dash = ("solid", "dashed", "dotted")[index]
            line = made.line("depth", "size", source=source, color=COLOURS[index], line_width=2.6, line_dash=dash)
            items.append(LegendItem(label=label, renderers=[line]))
        add_legend(made, items, "left", side="below").label_text_font_size = "12px"
        return made

    def _make_losses(self) -> Any:
        made = new_figure("step", "training loss (nats)", y_axis_type="log", height=400)
        for index, source in enumerate(self._losses):
            style: dict[str, Any] = {"source": source, "color": COLOURS[index]}
            line = made.line("step", "mean", line_width=2, **style)
            made.segment("step", "low", "step", "high", **style)
            marks = made.scatter("step", "mean", marker=("circle", "square")[index], size=7, **style)
            self._items.append(LegendItem(label=value(""), renderers=[line, marks], visible=False))
        add_legend(made, self._items, "left", side="below").label_text_font_size = "12px"
        return made

    # ---- Trained networks --------------------------------------------------------------------------------------------

    def _start(self) -> None:
        values = self._page.values
        try:
            self._trainer.start(trained_problems(values), int(values["networks"]))
        except LazyrichError as error:
            self._page.fail(error)

    def _after_change(self, name: str) -> None:
        if name not in _TABLE_ONLY:
            self._trainer.cancel("cancelled, as the settings have changed")
            self._show_trained([])

    def _show_trained(self, trained: list[Trajectory]) -> None:
        if not trained and not self._trained:
            return
        self._trained = trained
        self._loss_figure.visible = bool(trained)
        for index, (source, item) in enumerate(zip(self._losses, self._items, strict=True)):
            item.visible = index < len(trained)
            if index >= len(trained):
                source.data = {"step": [], "mean": [], "low": [], "high": []}
                continue
            each = trained[index]
            item.label = value(label_of(each, self._page.values["base_depth"]))
            mean, sem = (each.data[name].values for name in ("train_loss", "train_loss_sem"))
            low = np.where(mean > sem, mean - sem, mean)  # on a logarithmic scale
            source.data = {"step": each.steps, "mean": mean, "low": low, "high": mean + sem}
        columns = [source.data for source in self._losses]
        fit_axes(
            self._loss_figure,
            [data["step"] for data in columns],
            [data[end] for data in columns for end in ("low", "high")],
        )

    # ---- What is drawn -----------------------------------------------------------------------------------------------

    def _work(self, values: Values) -> Iterator[Callable[[], object]]:
        yield partial(self._draw, values, report_of(values))

    def _draw(self, values: Values, report: dict[str, Any]) -> None:
        self._cursor.data = {"alpha": [values["alpha"]], "gamma": [values["gamma"]]}
        depths, sizes = growth_of(values)
        for source, size in zip(self._sizes, sizes.values(), strict=True):
            source.data = {"depth": depths, "size": size}
        fit_axes(self._growth, [depths], list(sizes.values()))
        cells = [["th", report["columns"]], *(["td", row] for row in report["rows"])]
        rows = ["".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row) for tag, row in cells]
        self._table.text = f"{_STYLE}<p>Multiply the tuned model's values by:</p><table><tr>{'</tr><tr>'.join(rows)}"
        self._command.value = command_of(values)
        self._page.say(summary_of(values))

    def _tapped(self, event: Any) -> None:
        if event.x is None or event.y is None:
            return
        alpha, gamma = (setting for setting in RULE if isinstance(setting, Number))
        # to the nearest twentieth: otherwise nobody hits the line
        at = [round(20 * float(np.clip(x, s.low, s.high))) / 20 for x, s in ((event.x, alpha), (event.y, gamma))]
        self._page.controls.set({"alpha": at[0], "gamma": at[1]})

    # ---- Files -------------------------------------------------------------------------------------------------------

    def problem_file(self) -> bytes:
        """A file that trains the deeper of the two networks on the command line."""
        values = self._page.values
        comment = (
            f"From lazyrich explore. Run: lazyrich train problem.toml --seeds {values['networks']}\n"
            f"The tuned network has blocks = {values['base_depth']} instead.\n"
            f"The class of its rule: lazyrich classify --alpha {values['alpha']:g} --gamma {values['gamma']:g}"
        )
        return problem_file(problem_of(values).to_dict(), comment).encode()

    def _picture(self, kind: str) -> bytes:
        return export.picture(plot_plane(self._page.values, self._trained), kind)

    def _csv(self) -> bytes:
        if self._trained:
            return export.table(trained_table(self._trained))
        report = report_of(self._page.values)
        return export.table(dict(zip(report["columns"], zip(*report["rows"], strict=True), strict=True)))


def _empty_losses(index: int) -> ColumnDataSource:
    return ColumnDataSource({"step": [], "mean": [], "low": [], "high": []}, name=f"trained_{index}")
