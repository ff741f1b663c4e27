"""What all pages of the explorer share: settings and their link, messages, exports, and the page around them."""

from __future__ import annotations

import html
import io
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import panel as pn
from bokeh.models import Column as BokehColumn
from bokeh.models import CustomJS, Div, TextInput
from panel.io.state import set_curdoc
from tornado.ioloop import IOLoop

from lazyrich.errors import LazyrichError
from lazyrich.explorer.controls import Controls
from lazyrich.explorer.frame import FRAME, NAVIGATION
from lazyrich.explorer.redraw import Redrawer
from lazyrich.explorer.settings import Setting, Values, read_query, write_query

# The browser's address follows, without an entry in its history for every move of a slider.
_KEEP_ADDRESS = """
try { const link = new URL(cb_obj.value); window.history.replaceState({}, '', link.pathname + link.search) } catch {}
"""
_ERROR = "border-left: 6px solid #D55E00; background: #fdf1ea; padding: 6px 10px; margin: 0 0 8px"
_CARD = """
:host(.card) { box-shadow: none; border: 1px solid #c4c4c4; border-radius: 6px; }
.card-header { display: flex; flex-direction: row; align-items: center; gap: 8px; padding: 0 8px; outline: none;
               background: #f2f2f2; border-radius: 5px; }
.card-header:focus-visible { box-shadow: 0 0 0 3px #E69F00; }
"""
Drawing = Callable[[], object]


class Page:
    """A page's settings, link, messages and background work; a page adds what is drawn.

    Parameters
    ----------
    name : str
        Its address, without a slash.
    settings : sequence of Setting
    work : callable
        From values to an iterator of drawings, see :class:`lazyrich.explorer.redraw.Redrawer`.
    readable : callable
        Makes an error fit to be shown.

    Attributes
    ----------
    controls : Controls
    """

    def __init__(
        self,
        name: str,
        settings: Sequence[Setting],
        work: Callable[[Values], Iterator[Drawing]],
        readable: Callable[[LazyrichError], LazyrichError] = lambda error: error,
    ) -> None:
        self._name, self._settings, self._work, self._readable = name, settings, work, readable
        self._document: Any = pn.state.curdoc
        self._loop, self._left = IOLoop.current(), False
        self._watchers: list[Callable[[str], object]] = []
        values, errors = read_query(settings, _query(pn.state.session_args))
        self.controls = Controls(settings, values, self._change, self.fail)
        # Bokeh's own models: what changes at every redraw costs a third of what Panel's would
        self._message = Div(text="", sizing_mode="stretch_width", margin=0)
        self._summary = Div(text="", sizing_mode="stretch_width", margin=(0, 8))
        self._link = TextInput(
            title="Link to this view", value=self._address(), sizing_mode="stretch_width", margin=(2, 8)
        )
        self._link.js_on_change("value", CustomJS(code=_KEEP_ADDRESS))
        self._redrawer = Redrawer(self._draw, self.fail)
        self._link_errors = errors
        pn.state.on_session_destroyed(lambda context: self._leave())

    @property
    def values(self) -> Values:
        """The value of every setting."""
        return self.controls.values

    @property
    def query(self) -> str:
        """The settings as in a link."""
        return write_query(self._settings, self.values)

    def start(self) -> None:
        """Draw for the first time."""
        self._redraw()
        for error in self._link_errors:
            self.fail(error)

    def watch(self, function: Callable[[str], object]) -> None:
        """Call a function with the name of every setting that changes."""
        self._watchers.append(function)

    def schedule(self, function: Callable[[], object]) -> None:
        """Run a function in the page's event loop, from any thread.

        The document is not touched before it is in that loop: while a page is being made, Panel holds its events back,
        and loses what another thread adds meanwhile.
        """

        def run() -> None:
            with set_curdoc(self._document):
                function()

        def add() -> None:
            if not self._left:
                self._document.add_next_tick_callback(run)

        self._loop.add_callback(add)

    def _leave(self) -> None:
        self._left = True
        self._redrawer.close()

    def fail(self, error: LazyrichError) -> None:
        """Show an error as the command line would."""
        text = html.escape(f"error: {self._readable(error)}")
        self._message.text = f'<p role="alert" class="error" style="{_ERROR}">{text}</p>'

    def say(self, text: str) -> None:
        """Show what the figure says, as a sentence; errors are over."""
        self._message.text = ""
        self._summary.text = f'<p role="status" id="summary">{html.escape(text)}</p>'

    def _change(self, names: Collection[str]) -> None:
        self._link.value = self._address()
        for name in names:
            for function in self._watchers:
                function(name)
        self._redraw()

    def _redraw(self) -> None:
        self.controls.hold()
        self._redrawer.request(self._work(dict(self.values)))

    def _draw(self, function: Drawing) -> None:
        """Draw a result, and look where the sliders have gone meanwhile."""

        def draw() -> None:
            try:
                function()
            finally:
                self.controls.release()

        self.schedule(draw)

    def _address(self) -> str:
        host = pn.state.headers.get("Host", "localhost") if pn.state.headers else "localhost"
        return f"http://{host}/{self._name}" + (f"?{self.query}" if self.query else "")

    def downloads(self, files: Mapping[str, tuple[str, Callable[[], bytes]]]) -> Any:
        """Buttons that make a file when they are pressed; keys are labels, values file names and contents."""
        buttons = []
        for label, (name, content) in files.items():
            buttons.append(
                pn.widgets.FileDownload(
                    callback=partial(self._download, content),
                    filename=name,
                    label=label,
                    embed=False,
                    auto=True,
                    button_type="default",
                    icon=None,
                    width=88,
                    margin=(4, 2),
                )
            )
        return pn.FlexBox(*buttons, sizing_mode="stretch_width")

    def _download(self, content: Callable[[], bytes]) -> io.BytesIO:
        try:
            return io.BytesIO(content())
        except LazyrichError as error:
            self.fail(error)
            return io.BytesIO(f"error: {self._readable(error)}\n".encode())

    def group(self, title: str, members: Sequence[Any]) -> Any:
        """Settings, by their names, and other objects under a heading, that can be folded away."""
        parts: list[Any] = []
        for named, run in itertools.groupby(members, key=lambda member: isinstance(member, str)):
            boxes = [self.controls.boxes[member] if named else member for member in run]
            parts += [BokehColumn(children=boxes, sizing_mode="stretch_width", margin=(2, 0, 8, 0))] if named else boxes
        return pn.Card(*parts, title=title, sizing_mode="stretch_width", margin=(0, 0, 8, 0), stylesheets=[_CARD])

    def view_buttons(self, views: Mapping[str, str]) -> Any:
        """Buttons for the setting ``view``; keys are its values, values what the page shows."""
        buttons = pn.widgets.RadioButtonGroup(
            options={text: name for name, text in views.items()}, value=self.values["view"], margin=(2, 8),
            button_type="primary", button_style="outline",
        )  # fmt: skip
        buttons.param.watch(lambda event: self.controls.set({"view": event.new}), "value")
        self.watch(lambda name: setattr(buttons, "value", self.values["view"]))
        return buttons

    def template(self, title: str, lead: str, groups: Sequence[Any], figure: Any, actions: Sequence[Any]) -> Any:
        """The whole page."""
        made = pn.Template(FRAME)
        made.add_variable("page_title", title)
        made.add_variable("lead", lead)
        made.add_variable("pages", [(address, text, address == self._name) for address, text in NAVIGATION])
        places = {
            "controls": groups,
            "figure": [self._message, figure, self._summary],
            "actions": [*actions, self._link],
        }
        for name, parts in places.items():
            place = pn.Column(sizing_mode="stretch_width", margin=0)
            made.add_panel(name, place)  # writes all that is in it as text, so that it is filled later
            place.extend(parts)
        return made


def _query(arguments: Mapping[str, Sequence[bytes]] | None) -> str:
    """The query of the page's address, from what the server made of it."""
    given = {key: texts[-1] for key, texts in (arguments or {}).items() if texts}
    return urlencode({key: text.decode("utf-8", "replace") for key, text in given.items()})
