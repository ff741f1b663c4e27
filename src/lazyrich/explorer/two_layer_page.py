"""The page of two-layer networks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import panel as pn
from bokeh.events import Tap

from lazyrich.errors import LazyrichError
from lazyrich.explorer import export
from lazyrich.explorer.figures import side_by_side
from lazyrich.explorer.page import Page
from lazyrich.explorer.settings import Number, Values
from lazyrich.explorer.toml import problem_file
from lazyrich.explorer.two_layer import (
    CURSOR,
    MATRIX,
    SETTINGS,
    TRAINING,
    VIEWS,
    Diagram,
    Run,
    best_error,
    diagram_axes,
    diagram_of,
    problem_of,
    run_of,
)
from lazyrich.explorer.two_layer_figures import DiagramFigure, ErrorFigure, SpectrumFigure
from lazyrich.explorer.workers import remote
from lazyrich.problem import MatrixProblem

_LEAD = (
    "A two-layer linear network learns a matrix. Its singular values are lazy below the threshold s0, moving as in "
    "kernel regression, and active above it, moving one after another. Click into the phase diagram to move the cursor."
)


@lru_cache(maxsize=8192)
def _measure(tables: str) -> float:
    return remote(best_error, MatrixProblem(**json.loads(tables)))


def _measured(problem: MatrixProblem) -> float:
    """:func:`lazyrich.explorer.two_layer.best_error` by the workers; the cursor moves over points that are known."""
    return _measure(json.dumps(problem.to_dict()))


class TwoLayerPage:
    """Figures and buttons of the page, around its settings."""

    def __init__(self) -> None:
        self._page = Page("two-layer", SETTINGS, self._work)
        self._spectrum, self._errors, self._diagram = SpectrumFigure(), ErrorFigure(), DiagramFigure()
        self._diagram.figure.on_event(Tap, self._tapped)
        self._last: Diagram | None = None

    def template(self) -> Any:
        """The page."""
        page = self._page
        row = side_by_side([self._diagram.figure, self._spectrum.figure, self._errors.figure])

        def show_view(name: str = "") -> None:
            self._diagram.figure.visible = page.values["view"] == "diagram"
            self._errors.figure.visible = page.values["view"] == "run"

        show_view()
        page.watch(show_view)
        figure = pn.Column(page.view_buttons(VIEWS), row, sizing_mode="stretch_width", margin=0)
        groups = [
            page.group("Cursor", [setting.name for setting in CURSOR]),
            page.group("Matrix", [setting.name for setting in MATRIX]),
            page.group("Training", [setting.name for setting in TRAINING]),
        ]
        downloads = page.downloads(
            {
                "Problem file": ("problem.toml", self.problem_file),
                "PNG": ("lazyrich.png", partial(self._picture, "png")),
                "SVG": ("lazyrich.svg", partial(self._picture, "svg")),
                "CSV": ("lazyrich.csv", self._table),
            }
        )
        page.start()
        return page.template("Two layers: lazy and active", _LEAD, groups, figure, [downloads])

    def _work(self, values: Values) -> Iterator[Callable[[], object]]:
        try:
            problem = problem_of(values)
            yield partial(self._draw_run, remote(run_of, problem), values)
            if values["view"] == "diagram":
                for diagram in diagram_of(problem, _measured):
                    yield partial(self._draw_diagram, diagram)
        except LazyrichError:
            yield self._clear
            raise

    def _draw_run(self, run: Run, values: Values) -> None:
        self._spectrum.show(run)
        self._errors.show(run)
        self._diagram.move(values["variance"], values["width"])
        self._page.say(run.summary())

    def _draw_diagram(self, diagram: Diagram) -> None:
        self._last = diagram
        self._diagram.show(diagram)

    def _clear(self) -> None:
        self._spectrum.clear()
        self._errors.clear()
        self._page.say("")

    def _tapped(self, event: Any) -> None:
        if event.x is None or event.y is None:
            return
        width, variance = (setting for setting in CURSOR if isinstance(setting, Number))
        moved = {
            "width": round(float(np.clip(event.y, width.low, width.high)), 2),
            "variance": round(float(np.clip(event.x, variance.low, variance.high)), 2),
        }
        self._page.controls.set(moved)

    # ---- Files -------------------------------------------------------------------------------------------------------

    def problem_file(self) -> bytes:
        """A file that reproduces the view on the command line."""
        tables = problem_of(self._page.values).to_dict()
        comment = "From lazyrich explore. Run: lazyrich two-layer problem.toml --plot run.png"
        if self._page.values["view"] == "diagram":
            comment = "From lazyrich explore. Run: lazyrich phase-diagram problem.toml --plot diagram.png"
            variance, width = ([float(value) for value in axis] for axis in diagram_axes())
            tables["training"]["stop"] = "best"
            by = "law" if tables["training"]["solver"] == "law" else "network"
            axes = {"network.variance.exponent": variance, "network.exponent": width}
            tables["diagram"] = {"axes": axes, "by": by}
        return problem_file(tables, comment).encode()

    def _picture(self, kind: str) -> bytes:
        if self._page.values["view"] == "diagram":
            return export.picture(export.plot_diagram(self._known_diagram(), self._page.values), kind)
        return export.picture(run_of(problem_of(self._page.values)).trajectory.plot(), kind)

    def _table(self) -> bytes:
        if self._page.values["view"] == "diagram":
            return export.table(export.diagram_table(self._known_diagram()))
        return export.table(export.run_columns(run_of(problem_of(self._page.values)).trajectory))

    def _known_diagram(self) -> Diagram:
        if self._last is None or not np.isfinite(self._last.error).any():
            raise LazyrichError("diagram", "has no point yet", "wait a moment")
        return self._last
