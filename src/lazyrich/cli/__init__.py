"""The command ``lazyrich``: file to problem to verb to file."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from lazyrich.cli import explorer, gallery, matrices, networks, rules
from lazyrich.cli.shared import app, fail
from lazyrich.errors import LazyrichError

__all__ = ["main"]

# Each module registers its commands when it is loaded; the help has them in this order.
_SHOWN = [module.__name__ for module in (networks, matrices, rules, explorer, gallery)]
app.registered_commands.sort(key=lambda command: _SHOWN.index(getattr(command.callback, "__module__", "")))


def _show_version(value: bool) -> None:
    if value:
        from lazyrich import __version__

        print(f"lazyrich {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command; every user's mistake ends in one line on standard error and status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows "?"
    try:
        status = _run(sys.argv[1:] or ["--help"])
        sys.stdout.flush()
    except LazyrichError as error:
        status = fail(str(error), 2)
    except TyperException as error:
        message = " ".join(error.format_message().split()).rstrip(".")
        status = fail(f"lazyrich: {message}; see lazyrich --help", 2)
    except (KeyboardInterrupt, typer.Abort) as error:
        detail = f" ({error})" if str(error) else ""
        status = fail(f"interrupted{detail}; nothing was written", 130, prefix="")
    except BrokenPipeError:
        close_output()
        status = 1
    except OSError as error:
        status = fail(f"standard output: cannot be written ({error.strerror}); free space or choose another file", 2)
        close_output()
    except MemoryError:
        status = fail("lazyrich: out of memory; reduce steps, outputs, width or blocks", 2)
    sys.exit(status)


def _run(arguments: list[str]) -> int:
    """Run a verb. Not by ``app()``, which hides that Ctrl-C was pressed."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("lazyrich", arguments) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    return 0


def close_output() -> None:
    """Standard output takes no more: nothing is said of it again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
