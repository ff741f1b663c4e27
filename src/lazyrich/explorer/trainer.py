"""The buttons that train real networks, their progress, and cancelling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import panel as pn

from lazyrich.errors import LazyrichError
from lazyrich.explorer.training import in_background, train_until
from lazyrich.problem import Problem
from lazyrich.problem.residual import ResidualProblem
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
        Takes the results, one for each problem.
    """

    def __init__(
        self,
        schedule: Callable[[Callable[[], object]], object],
        failed: Callable[[LazyrichError], object],
        done: Callable[[list[Trajectory]], object],
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

    def start(self, problems: Sequence[Problem | ResidualProblem], networks: int) -> None:
        """Train so many networks of every problem, after those that others wait for."""
        self.cancel("")
        self._stop = stop = threading.Event()
        self._train.disabled, self._cancel.disabled = True, False
        self._bar.param.update(visible=True, value=0)
        self._say("waiting, then compiling")
        in_background(lambda: self._run(problems, networks, stop))

    def cancel(self, text: str) -> None:
        """Stop what is being trained, if anything is, and say so."""
        if self._stop is None:
            return
        self._stop.set()
        self._end(text)

    def _run(self, problems: Sequence[Problem | ResidualProblem], networks: int, stop: threading.Event) -> None:
        last, trained = 0.0, []

        def progress(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last > _OFTEN:
                last = time.monotonic()
                share = (len(trained) + done / total) / len(problems)
                self._schedule(lambda: self._show(stop, share))

        try:
            for problem in problems:
                trained.append(train_until(problem, networks, stop, progress))
        except LazyrichError as error:
            text = error
            self._schedule(lambda: self._fail(stop, text))
            return
        if not stop.is_set() and None not in trained:
            self._schedule(lambda: self._finish(stop, trained))

    def _show(self, stop: threading.Event, share: float) -> None:
        if stop is self._stop:
            self._bar.value = int(100 * share)
            self._say(f"training: {100 * share:.0f}%")

    def _fail(self, stop: threading.Event, error: LazyrichError) -> None:
        if stop is self._stop:
            self._end("not trained")
            self._failed(error)

    def _finish(self, stop: threading.Event, trained: list[Trajectory]) -> None:
        if stop is self._stop:
            networks, seconds = (sum(each.statistics[name] for each in trained) for name in ("networks", "seconds"))
            outcomes = list(dict.fromkeys(str(each.outcome) for each in trained))
            self._end(f"{networks} networks: {', '.join(outcomes)}, {seconds:.1f} s")
            self._done(trained)

    def _end(self, text: str) -> None:
        self._stop = None
        self._train.disabled, self._cancel.disabled = False, True
        self._bar.visible = False
        self._say(text)

    def _say(self, text: str) -> None:
        self._text.object = f'<p role="status" id="training">{text}</p>'
