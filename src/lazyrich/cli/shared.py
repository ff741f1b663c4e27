"""What the commands share: the application, options, progress, and how results are delivered."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lazyrich.errors import LazyrichError

if TYPE_CHECKING:
    from lazyrich.trajectory import Trajectory

app = typer.Typer(
    help="Tell, before any training, how a deep network's training will go; and check it against real training.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ProblemFile = Annotated[Path, typer.Argument(metavar="FILE", help="A problem or study file in TOML.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Output = Annotated[Path | None, typer.Option("--output", metavar="FILE.nc", help="Write all results to a NetCDF file.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png|svg", help="Write a figure.")]
Kernels = Annotated[bool, typer.Option("--kernels", help="Also record the kernels of trained networks.")]
Results = Annotated[
    Path | None,
    typer.Option("--results", metavar="FOLDER", help="Where finished cells are kept; default: results/STUDY."),
]
TableFile = Annotated[
    Path | None, typer.Option("--table", metavar="FILE.nc|csv|parquet", help="Write the table of all results.")
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, max=1024, help="Local processes; default: all cores.")]
Scheduler = Annotated[str | None, typer.Option("--scheduler", metavar="ADDRESS", help="Use this Dask cluster instead.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


def check_outputs(output: Path | None, plot: Path | None) -> None:
    """Refuse output files that could not be written, before any work."""
    from lazyrich.storage import check_destination

    if output is not None:
        check_destination(output, (".nc",), "--output")
    if plot is not None:
        check_destination(plot, (".png", ".svg"), "--plot")


def check_table(table: Path | None) -> None:
    """The same for a table."""
    from lazyrich.storage import check_destination

    if table is not None:
        check_destination(table, (".nc", ".csv", ".parquet"), "--table")


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say after Ctrl-C where finished work is kept."""
    try:
        yield
    except KeyboardInterrupt:
        fail(f"interrupted; finished cells are in {folder}, run it again to continue", 130, prefix="")
        raise typer.Exit(130) from None


@contextmanager
def blaming(file: Path) -> Iterator[None]:
    """Put the problem file in front of errors that only show when it is used."""
    try:
        yield
    except LazyrichError as error:
        raise error.inside(str(file), joint=": ") from None


@contextmanager
def progress_bar(task: str, quiet: bool) -> Iterator[Callable[[int, int], object] | None]:
    """A bar on standard error with the time left; nothing where standard error is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task(task, total=None)
        yield lambda done, total: bar.update(row, completed=done, total=total)


def announcer(quiet: bool) -> Callable[[str], object] | None:
    """Says on standard error what is to be known on the way."""
    return None if quiet else lambda text: print(text, file=sys.stderr)


def print_json(content: dict[str, Any]) -> None:
    """One object on one line."""
    print(json_module.dumps(content, allow_nan=False))


def deliver(trajectory: Trajectory, json: bool, output: Path | None, plot: Path | None) -> None:
    """Write, draw and print a trajectory as asked."""
    if output is not None:
        trajectory.save(output)
    if plot is not None:
        trajectory.plot(plot)
    if json:
        print_json(trajectory.to_json())
    else:
        from lazyrich.tables import original_units, trajectory_table

        print_table(trajectory_table(trajectory))
        if "target_std" in trajectory.data:
            print(original_units(trajectory))


def print_table(table: Any) -> None:
    """A table as wide as the terminal."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160).print(table)


def fail(message: str, status: int, prefix: str = "error: ") -> int:
    """One line on standard error; gives the status back."""
    print(f"{prefix}{message}", file=sys.stderr)
    return status
