"""Pages of sliders in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from lazyrich.cli.shared import app
from lazyrich.errors import LazyrichError


@app.command()
def explore(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on this machine; 0 takes any.")] = 5006,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Open pages of sliders in a browser. Predictions follow them, and networks are trained on demand."""
    try:
        from lazyrich.explorer.server import run
    except ModuleNotFoundError as error:
        if error.name not in ("panel", "bokeh"):
            raise
        raise LazyrichError("lazyrich explore", "needs Panel", "pip install 'panel>=1.9,<2'") from None
    run(port, browser, lambda text: print(text, flush=True))
