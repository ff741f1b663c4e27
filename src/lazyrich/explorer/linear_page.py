"""The page of deep linear networks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
import panel as pn

from lazyrich.comparison import compare
from lazyrich.errors import LazyrichError
from lazyrich.explorer import export
from lazyrich.explorer.figures import side_by_side
from lazyrich.explorer.linear import (
    DATA,
    NETWORK,
    SETTINGS,
    SHOWN,
    TRAINING,
    VIEWS,
    Curves,
    Kernels,
    RateCurve,
    check_size,
    curves_of,
    kept_values,
    kernels_of,
    problem_of,
    rate_curves,
    single_rate,
    sweep_rates,
    sweep_summary,
    sweep_widths,
)
from lazyrich.explorer.linear_figures import CurveFigure, KernelFigure, RateFigure
from lazyrich.explorer.page import Page
from lazyrich.explorer.settings import Values, write_query
from lazyrich.explorer.toml import problem_file
from lazyrich.explorer.trainer import Trainer
from lazyrich.explorer.upload_box import upload_box
from lazyrich.explorer.uploads import Uploads
from lazyrich.explorer.workers import remote
from lazyrich.fields import ACCURACIES, LOSSES
from lazyrich.plots import plot_comparisons, plot_trajectory
from lazyrich.problem import Problem
from lazyrich.theory import predict
from lazyrich.trajectory import Trajectory

_LEAD = (
    "Curves are predicted from the theory of wide networks while you move a slider; nothing is trained until you ask. "
    "Small richness is lazy: the features stay. Large richness is rich: they move."
)
# Settings that change what is shown, and not the problem.
_LOOKS = {setting.name for setting in SHOWN} | {"networks"}

# A slider that is moved back, and the same exercise on many screens, are solved once.
_REMEMBERED = 512


@lru_cache(maxsize=_REMEMBERED)
def _solve(tables: str) -> Curves:
    return remote(curves_of, Problem(**json.loads(tables)))


def _solved(problem: Problem) -> Curves:
    """:func:`lazyrich.explorer.linear.curves_of` by the workers, remembered."""
    return _solve(json.dumps(problem.to_dict()))  # a file is named by the hash of its content


class LinearPage:
    """Figures and buttons of the page, around its settings."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads
        self._page = Page("linear", SETTINGS, self._work, uploads.readable)
        self._curves = CurveFigure(LOSSES, "mean squared error", "curves", logarithmic=True, legend="top_right")
        share = "share in the right class"
        self._accuracies = CurveFigure(ACCURACIES, share, "accuracies", logarithmic=False, legend="bottom_right")
        self._rates, self._kernels = RateFigure(), KernelFigure()
        self._has_accuracies = False
        self._row = side_by_side([self._curves.figure, self._accuracies.figure, self._rates.figure])
        self._last_rates: list[RateCurve] = []
        self._trainer = Trainer(self._page.schedule, self._page.fail, self._trained)
        self._page.watch(self._after_change)
        self._show_view()

    def template(self) -> Any:
        """The page."""
        page, boxes = self._page, self._page.controls.boxes
        keep = pn.widgets.Button(name="Keep this curve", margin=4)
        keep.on_click(lambda event: page.controls.set({"kept": self._own_query()}))
        forget = pn.widgets.Button(name="Forget the kept curve", margin=4)
        forget.on_click(lambda event: page.controls.set({"kept": ""}))
        upload = upload_box(self._uploads, self._take_file, page.fail)
        upload.visible = page.values["data"] == "file"
        page.watch(lambda name: setattr(upload, "visible", page.values["data"] == "file"))
        first = ("richness", "rate", "width", "blocks")
        data = [setting.name for setting in DATA if setting.name not in ("data", "file")]
        later = [setting.name for setting in TRAINING if setting.name not in (*first, "seed", "networks")]
        groups = [
            page.group("Main settings", first),
            page.group("Data", ["data", upload, *data]),
            page.group("Network", [setting.name for setting in NETWORK if setting.name not in first]),
            page.group("Training", later),
        ]
        shown = [page.view_buttons(VIEWS), self._row, self._kernels.layout, boxes["level"]]
        figure = pn.Column(*shown, sizing_mode="stretch_width", margin=0)
        actions = [
            pn.FlexBox(keep, forget),
            page.group("Train real networks and lay them over", ["networks", "seed", self._trainer.view(self._start)]),
            page.downloads(
                {
                    "Problem file": ("problem.toml", self.problem_file),
                    "PNG": ("lazyrich.png", partial(self._picture, "png")),
                    "SVG": ("lazyrich.svg", partial(self._picture, "svg")),
                    "CSV": ("lazyrich.csv", self._table),
                }
            ),
        ]
        page.start()
        return page.template("Deep linear networks", _LEAD, groups, figure, actions)

    # ---- What is drawn -----------------------------------------------------------------------------------------------

    def _problem(self, values: Values) -> Problem:
        return problem_of(values, self._uploads.path(values["file"]) if values["data"] == "file" else None)

    def _work(self, values: Values) -> Iterator[Callable[[], object]]:
        view = values["view"]
        try:
            problem = self._problem(values)
            if view == "kernels":
                kernels = remote(kernels_of, problem, values["level"])
                yield partial(self._draw_kernels, kernels)
            elif view == "rates":
                for curves in rate_curves(problem, _solved):
                    yield partial(self._draw_rates, curves, problem)
            else:
                curves = _solved(problem)
                kept = _solved(self._problem(kept_values(values))) if values["kept"] else None
                yield partial(self._draw_curves, curves, kept)
        except LazyrichError:
            yield partial(self._clear, view)
            raise

    def _clear(self, view: str) -> None:
        figures = {"curves": (self._curves, self._accuracies), "rates": (self._rates,), "kernels": (self._kernels,)}
        for each in figures[view]:
            each.clear()
        self._page.say("")

    def _draw_curves(self, curves: Curves, kept: Curves | None) -> None:
        self._curves.show(curves.losses, kept.losses if kept else {})
        if curves.accuracies or self._has_accuracies:
            self._accuracies.show(curves.accuracies, kept.accuracies if kept else {})
            self._has_accuracies = bool(curves.accuracies)
            self._show_view()
        self._page.say(curves.summary())

    def _draw_rates(self, curves: list[RateCurve], problem: Problem) -> None:
        self._last_rates = curves
        self._rates.show(curves, single_rate(problem))
        self._page.say(sweep_summary(curves))

    def _draw_kernels(self, kernels: Kernels) -> None:
        self._kernels.show(kernels)
        self._page.say(
            f"Level {kernels.level} of 0 to {self._page.values['blocks']}. H: the features of what is not learned yet, "
            "so it falls with the error. G: the gradients' kernel; constant in time while lazy, growing while rich."
        )

    # ---- What is changed ---------------------------------------------------------------------------------------------

    def _after_change(self, name: str) -> None:
        if name == "view":
            self._show_view()
        if name not in _LOOKS:
            self._trainer.cancel("cancelled, as the settings have changed")
            for each in (self._curves, self._accuracies):
                each.show_trained(None)

    def _show_view(self) -> None:
        view = self._page.values["view"]
        self._curves.figure.visible = view == "curves"
        self._accuracies.figure.visible = view == "curves" and self._has_accuracies
        self._rates.figure.visible = view == "rates"
        self._kernels.layout.visible = view == "kernels"

    def _own_query(self) -> str:
        shown = {setting.name: setting.default for setting in SHOWN}
        return write_query(SETTINGS, self._page.values | shown)

    def _take_file(self, key: str) -> None:
        self._page.controls.set({"file": key})

    def _start(self) -> None:
        try:
            problem = self._problem(self._page.values)
        except LazyrichError as error:
            self._page.fail(error)
            return
        self._page.controls.set({"view": "curves"})
        self._trainer.start([problem], int(self._page.values["networks"]))

    def _trained(self, results: list[Trajectory]) -> None:
        (trained,) = results
        if trained.problem == self._problem(self._page.values):
            for each in (self._curves, self._accuracies):
                each.show_trained(trained)

    # ---- Files -------------------------------------------------------------------------------------------------------

    def problem_file(self) -> bytes:
        """A file that reproduces the view on the command line."""
        values, problem = self._page.values, self._problem(self._page.values)
        tables = problem.to_dict()
        comment = "From lazyrich explore. Run: lazyrich predict problem.toml"
        if problem.data.kind == "dataset" and problem.data.path is not None:
            tables["data"]["path"] = values["file"].rpartition("/")[2]
            comment += f"\nPut {tables['data']['path']} beside this file."
        if values["view"] == "rates":
            comment = comment.replace("predict", "transfer")
            rates = [float(rate) for rate in sweep_rates(problem)]
            axes = {"network.width": sweep_widths(problem)}
            loss = "test" if problem.has_test_loss else "train"
            tables["transfer"] = {"rates": rates, "axes": axes, "loss": loss}
        elif values["view"] == "curves":
            comment += "  or, with networks: lazyrich compare problem.toml"
            tables["compare"] = {"seeds": int(values["networks"])}
        return problem_file(tables, comment).encode()

    def _picture(self, kind: str) -> bytes:
        values, problem = self._page.values, self._problem(self._page.values)
        check_size(problem)
        if values["view"] == "kernels":
            return export.picture(export.plot_kernels(kernels_of(problem, values["level"])), kind)
        if values["view"] == "rates":
            self._check_rates()
            return export.picture(export.plot_rates(self._last_rates, problem.training.steps - 1), kind)
        predicted, trained = predict(problem), self._curves.trained
        figure = plot_trajectory(predicted) if trained is None else plot_comparisons([compare(predicted, trained)])
        return export.picture(figure, kind)

    def _table(self) -> bytes:
        values, problem = self._page.values, self._problem(self._page.values)
        if values["view"] == "kernels":
            return export.table(export.kernel_table(kernels_of(problem, values["level"])))
        if values["view"] == "rates":
            self._check_rates()
            return export.table(export.rate_table(self._last_rates))
        curves = curves_of(problem)
        columns: dict[str, Any] = {"step": np.arange(problem.training.steps)} | curves.losses | curves.accuracies
        if (trained := self._curves.trained) is not None:
            names = [f"{name}{end}" for name in (*LOSSES, *ACCURACIES) for end in ("", "_sem")]
            columns |= {f"trained_{name}": trained.data[name].values for name in names if name in trained.data}
        return export.table(columns)

    def _check_rates(self) -> None:
        if not any(curve.optimum for curve in self._last_rates):
            raise LazyrichError("rates", "are not solved yet", "wait for the first optimum")
