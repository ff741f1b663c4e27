"""The server behind ``lazyrich explore``: on this machine, for this machine."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import webbrowser
from collections.abc import Callable
from typing import Any

import panel as pn
from threadpoolctl import threadpool_limits
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError

from lazyrich.errors import LazyrichError
from lazyrich.explorer.depth_page import DepthPage
from lazyrich.explorer.frame import NAVIGATION
from lazyrich.explorer.linear_page import LinearPage
from lazyrich.explorer.training import stop_all
from lazyrich.explorer.two_layer_page import TwoLayerPage
from lazyrich.explorer.upload_box import CHUNK
from lazyrich.explorer.uploads import Uploads
from lazyrich.explorer.workers import end_workers, warm_up

_ADDRESS = "127.0.0.1"


def make_server(port: int, uploads: Uploads) -> Any:
    """A server that is ready to be started.

    Parameters
    ----------
    port : int
        0 for any that is free.
    uploads : Uploads

    Raises
    ------
    LazyrichError
        When the port is taken.
    """
    pn.extension("filedropper")
    port = _free_port(port)
    pages: dict[str, Any] = {
        "linear": lambda: LinearPage(uploads).template(),
        "two-layer": lambda: TwoLayerPage().template(),
        "depth": lambda: DepthPage().template(),
    }
    pages["/"] = pages["linear"]
    titles: Any = {name: f"lazyrich: {dict(NAVIGATION).get(name, 'explore')}" for name in pages}
    return pn.serve(
        pages,
        port=port,
        address=_ADDRESS,
        websocket_origin=[f"{_ADDRESS}:{port}", f"localhost:{port}"],
        websocket_max_message_size=4 * CHUNK,
        title=titles,
        show=False,
        start=False,
        verbose=False,
        threaded=False,
    )


def run(port: int, show: bool, announce: Callable[[str], object]) -> None:
    """Serve until Ctrl-C.

    Parameters
    ----------
    port : int
    show : bool
        Whether to open the page in a browser.
    announce : callable
        Gets a line of text.
    """
    threadpool_limits(1)  # several pages are redrawn side by side
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    logging.getLogger("asyncio").addFilter(_is_news)
    uploads = Uploads()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        server = make_server(port, uploads)
        warm_up()
        server.start()
        address = f"http://{_ADDRESS}:{server.port}/linear"
        announce(f"explorer: {address}  (Ctrl-C ends it)")
        if show:
            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):
            server.io_loop.start()
    finally:
        stop_all()
        end_workers()
        uploads.close()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a message tells more than that a browser left while something was sent to it."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, StreamClosedError | WebSocketClosedError)


def _free_port(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_ADDRESS, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise LazyrichError(f"--port {port}", f"cannot be used ({reason})", "give another, or 0 for any") from None
        return probe.getsockname()[1]
