"""The buttons that train real networks, their progress, and cancelling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import panel as pn

from lazyrich.errors import LazyrichError
from lazyrich.explorer.training import in_background, train_until
from lazyrich.problem import Problem
from lazyrich.trajectory import Trajectory

# Seconds between two moves of the bar.
_OFTEN = 0.2


class Trainer:
    """Trains networks of a page in the background.

    Parameters
    ----------
    schedule : callable
        Runs a function in the page's event loop.
    failed : callable
        Shows an error.
    done : callable
        Takes the result.
    """

    def __init__(
        self,
        schedule: Callable[[Callable[[], object]], object],
        failed: Callable[[LazyrichError], object],
        done: Callable[[Trajectory], object],
    ) -> None:
        self._schedule, self._failed, self._done = schedule, failed, done
        self._stop: threading.Event | None = None
        self._train = pn.widgets.Button(name="Train", button_type="primary", margin=4)
        self._cancel = pn.widgets.Button(name="Cancel", disabled=True, margin=4)
        self._bar = pn.indicators.Progress(value=0, max=100, sizing_mode="stretch_width", margin=(4, 8), visible=False)
        self._text = pn.pane.HTML("", sizing_mode="stretch_width", margin=(0, 8))
        pn.state.on_session_destroyed(lambda context: self.cancel(""))

    def view(self, start: Callable[[], None]) -> Any:
        """The buttons; `start` is called by the first."""
        self._train.on_click(lambda event: start())
        self._cancel.on_click(lambda event: self.cancel("cancelled"))
        return pn.Column(
            pn.Row(self._train, self._cancel, margin=0), self._bar, self._text, sizing_mode="stretch_width", margin=0
        )

    def start(self, problem: Problem, networks: int) -> None:
        """Train networks of a problem, after those that others wait for."""
        self.cancel("")
        self._stop = stop = threading.Event()
        self._train.disabled, self._cancel.disabled = True, False
        self._bar.param.update(visible=True, value=0)
        self._say("waiting, then compiling")
        in_background(lambda: self._run(problem, networks, stop))

    def cancel(self, text: str) -> None:
        """Stop what is being trained, if anything is, and say so."""
        if self._stop is None:
            return
        self._stop.set()
        self._end(text)

    def _run(self, problem: Problem, networks: int, stop: threading.Event) -> None:
        last = 0.0

        def progress(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last > _OFTEN:
                last = time.monotonic()
                self._schedule(lambda: self._show(stop, done, total))

        try:
            trained = train_until(problem, networks, stop, progress)
        except LazyrichError as error:
            text = error
            self._schedule(lambda: self._fail(stop, text))
            return
        if not stop.is_set() and trained is not None:
            self._schedule(lambda: self._finish(stop, trained))

    def _show(self, stop: threading.Event, done: int, total: int) -> None:
        if stop is self._stop:
            self._bar.value = int(100 * done / total)
            self._say(f"training: {100 * done / total:.0f}%")

    def _fail(self, stop: threading.Event, error: LazyrichError) -> None:
        if stop is self._stop:
            self._end("not trained")
            self._failed(error)

    def _finish(self, stop: threading.Event, trained: Trajectory) -> None:
        if stop is self._stop:
            networks, seconds = trained.statistics["networks"], trained.statistics["seconds"]
            self._end(f"{networks} networks: {trained.outcome}, {seconds:.1f} s")
            self._done(trained)

    def _end(self, text: str) -> None:
        self._stop = None
        self._train.disabled, self._cancel.disabled = False, True
        self._bar.visible = False
        self._say(text)

    def _say(self, text: str) -> None:
        self._text.object = f'<p role="status" id="training">{text}</p>'
