"""Sliders and boxes for the settings of a page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from bokeh.io import curdoc
from bokeh.models import Row, Select, Slider, TextInput

from lazyrich.errors import LazyrichError
from lazyrich.explorer.settings import Choice, Number, Setting, Values

# Labels of boxes that repeat a slider's are for screen readers only.
_HIDDEN_LABEL = "label {position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);}"
_SLIDER = ".bk-slider-title {font-size: 0.95em;} :host {--handle-width: 16px; --handle-height: 16px;}"
# Between two values that are taken from a moving slider.
_MILLISECONDS = 30
_ROW = ":host {align-items: end; gap: 10px;}"


class Controls:
    """Widgets for settings, and the values that they show.

    Attributes
    ----------
    values : dict
        The value of every setting.
    boxes : dict
        For every setting a Bokeh model; one that means nothing beside the others is invisible. Panel's own widgets take
        several times as long to make, and a page has sixty.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        values: Values,
        changed: Callable[[Collection[str]], object],
        failed: Callable[[LazyrichError], object],
    ) -> None:
        self.values = dict(values)
        self.boxes: dict[str, Any] = {}
        self._settings = {setting.name: setting for setting in settings}
        self._changed, self._failed = changed, failed
        self._show: dict[str, Callable[[Any], None]] = {}
        self._showing = False
        self._passed: dict[str, Any] = {}
        self._waiting = self._held = False
        self._visible = set(self._settings)
        self._document = curdoc()
        for setting in settings:
            number = isinstance(setting, Number)
            self.boxes[setting.name] = self._number(setting) if number else self._choice_or_text(setting)
        self._show_what_matters()

    def set(self, values: Mapping[str, Any]) -> None:
        """Change values from elsewhere, e.g. a click into a figure."""
        if all(self.values[name] == value for name, value in values.items()):
            return
        self.values.update(values)
        self._passed = {name: value for name, value in self._passed.items() if name not in values}
        self._showing = True  # the widgets' own events are no new values
        for name, value in values.items():
            self._show[name](value)
        self._showing = False
        self._show_what_matters()
        self._changed(values)

    def hold(self) -> None:
        """Leave moving sliders alone until what is asked for is drawn: only the newest value counts then."""
        self._held = True

    def release(self) -> None:
        """Take what sliders have passed meanwhile."""
        self._held = False
        if not self._waiting:
            self._take_passed()

    def _show_what_matters(self) -> None:
        shown = {name for name, setting in self._settings.items() if setting.shown(self.values)}
        for name in shown ^ self._visible:
            self.boxes[name].visible = name in shown
        self._visible = shown

    def _number(self, setting: Number) -> Any:
        value = self.values[setting.name]
        slider = Slider(
            title=setting.label, start=0, end=setting.positions, step=1, value=setting.position(value),
            show_value=False, tooltips=False, sizing_mode="stretch_width", margin=(2, 8), min_width=120,
            stylesheets=[_SLIDER],
        )  # fmt: skip
        box = TextInput(
            title=f"{setting.label}, number", value=setting.write(value), width=84, margin=(2, 4),
            stylesheets=[_HIDDEN_LABEL],
        )  # fmt: skip

        def show(value: Any) -> None:
            box.value = setting.write(value)
            # several values share a position: a slider that is there already stays
            if setting.at(int(slider.value)) != value:
                slider.value = setting.position(value)

        slider.on_change("value", lambda attr, old, new: self._soon(setting.name, setting.at(int(new))))
        box.on_change("value", lambda attr, old, new: self._read(setting, new.strip()))
        self._show[setting.name] = show
        return Row(children=[slider, box], name=setting.name, stylesheets=[_ROW], sizing_mode="stretch_width")

    def _choice_or_text(self, setting: Setting) -> Any:
        common: dict[str, Any] = {"title": setting.label, "value": self.values[setting.name], "margin": (2, 8)}
        common |= {"sizing_mode": "stretch_width", "name": setting.name}
        if isinstance(setting, Choice):
            widget: Any = Select(options=list((setting.options or {}).items()), **common)
        else:
            widget = TextInput(**common)
        widget.on_change("value", lambda attr, old, new: self._read(setting, new))
        self._show[setting.name] = lambda value: setattr(widget, "value", value)
        return widget

    def _read(self, setting: Setting, text: str) -> None:
        if self._showing:
            return
        try:
            self.set({setting.name: setting.read(text)})
        except LazyrichError as error:
            self._failed(error)

    def _soon(self, name: str, value: Any) -> None:
        """Take the last of the values that a moving slider passes, when the page is ready for it."""
        if self._showing:
            return
        self._passed[name] = value
        if not self._waiting and not self._held:
            self._waiting = True
            self._document.add_timeout_callback(self._look, _MILLISECONDS)

    def _look(self) -> None:
        self._waiting = False
        if not self._held:
            self._take_passed()

    def _take_passed(self) -> None:
        passed, self._passed = self._passed, {}
        self.set(passed)
