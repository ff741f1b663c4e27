"""Sliders and boxes for the settings of a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import panel as pn

from lazyrich.errors import LazyrichError
from lazyrich.explorer.settings import Choice, Number, Setting, Values

# Labels of boxes that repeat a slider's are for screen readers only.
_HIDDEN_LABEL = "label {position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);}"
_SLIDER = ".bk-slider-title {font-size: 0.95em;} :host {--handle-width: 16px; --handle-height: 16px;}"
_ROW = ":host {align-items: end; gap: 10px;}"


class Controls:
    """Widgets for settings, and the values that they show.

    Attributes
    ----------
    values : dict
        The value of every setting.
    boxes : dict
        For every setting a Panel object; one that means nothing beside the others is invisible.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        values: Values,
        changed: Callable[[str], object],
        failed: Callable[[LazyrichError], object],
    ) -> None:
        self.values = dict(values)
        self.boxes: dict[str, Any] = {}
        self._settings = {setting.name: setting for setting in settings}
        self._changed, self._failed = changed, failed
        self._show: dict[str, Callable[[Any], None]] = {}
        self._showing = False
        for setting in settings:
            make = self._number if isinstance(setting, Number) else self._choice_or_text
            self.boxes[setting.name] = make(setting)
        self._show_what_matters()

    def set(self, values: Mapping[str, Any]) -> None:
        """Change values from elsewhere, e.g. a click into a figure."""
        if all(self.values[name] == value for name, value in values.items()):
            return
        self.values.update(values)
        self._showing = True  # the widgets' own events are no new values
        for name, value in values.items():
            self._show[name](value)
        self._showing = False
        self._show_what_matters()
        for name in values:
            self._changed(name)

    def _take(self, name: str, value: Any, source: Any = None) -> None:
        """A value from a widget: tell the others that show it, and the page."""
        if self._showing or value == self.values[name]:
            return
        self.values[name] = value
        self._showing = True
        self._show[name](value)
        self._showing = False
        self._show_what_matters()
        self._changed(name)

    def _show_what_matters(self) -> None:
        for name, setting in self._settings.items():
            self.boxes[name].visible = setting.shown(self.values)

    def _number(self, setting: Number) -> Any:
        value = self.values[setting.name]
        slider = pn.widgets.IntSlider(
            name=setting.label, start=0, end=setting.positions, value=setting.position(value), show_value=False,
            tooltips=False, sizing_mode="stretch_width", stylesheets=[_SLIDER], margin=(2, 8), min_width=120,
        )  # fmt: skip
        box = pn.widgets.TextInput(
            name=f"{setting.label}, number", value=setting.write(value), width=84, margin=(2, 4),
            stylesheets=[_HIDDEN_LABEL],
        )  # fmt: skip

        def moved(event: Any) -> None:
            if not self._showing:
                self._take(setting.name, setting.at(int(event.new)))

        def typed(event: Any) -> None:
            if self._showing:
                return
            try:
                self._take(setting.name, setting.read(event.new.strip()))
            except LazyrichError as error:
                self._failed(error)

        def show(value: Any) -> None:
            box.value = setting.write(value)
            # several values share a position: a slider that is there already stays
            if setting.at(slider.value) != value:  # pyright: ignore[reportArgumentType]
                slider.value = setting.position(value)

        slider.param.watch(moved, "value")
        box.param.watch(typed, "value")
        self._show[setting.name] = show
        return pn.Row(slider, box, name=setting.name, stylesheets=[_ROW], sizing_mode="stretch_width")

    def _choice_or_text(self, setting: Setting) -> Any:
        common: dict[str, Any] = {"name": setting.label, "sizing_mode": "stretch_width", "margin": (2, 8)}
        if isinstance(setting, Choice):
            options = {shown: value for value, shown in (setting.options or {}).items()}
            widget: Any = pn.widgets.Select(options=options, value=self.values[setting.name], **common)
        else:
            widget = pn.widgets.TextInput(value=self.values[setting.name], **common)

        def chosen(event: Any) -> None:
            if self._showing:
                return
            try:
                self._take(setting.name, setting.read(event.new))
            except LazyrichError as error:
                self._failed(error)

        def show(value: Any) -> None:
            widget.value = value

        widget.param.watch(chosen, "value")
        self._show[setting.name] = show
        return widget
