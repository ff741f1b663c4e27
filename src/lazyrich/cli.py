"""The command ``lazyrich``: file to problem to verb to file."""

from __future__ import annotations

import io
import json as json_module
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from lazyrich.errors import LazyrichError

if TYPE_CHECKING:
    from lazyrich.comparison import Comparison
    from lazyrich.trajectory import Trajectory


class By(StrEnum):
    """How a transfer study is answered."""

    THEORY = "theory"
    TRAINING = "training"
    BOTH = "both"


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


@app.command()
def predict(
    file: ProblemFile, json: AsJson = False, output: Output = None, plot: Plot = None, quiet: Quiet = False
) -> None:
    """Predict the training curve, without training."""
    from lazyrich import Study, load_study
    from lazyrich import predict as solve

    _check_outputs(output, plot)
    problem = load_study(file, Study).problem
    with _progress("predicting", quiet) as progress, _blaming(file):
        trajectory = solve(problem, progress=progress)
    _deliver(trajectory, json, output, plot)


@app.command()
def train(
    file: ProblemFile,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=10**6, help="Networks to train.")] = 16,
    json: AsJson = False,
    output: Output = None,
    plot: Plot = None,
    kernels: Kernels = False,
    quiet: Quiet = False,
) -> None:
    """Train real networks and record their mean curve with its standard error."""
    from lazyrich import Study, load_study
    from lazyrich import train as run

    _check_outputs(output, plot)
    problem = load_study(file, Study).problem
    with _progress(f"training {seeds} networks", quiet) as progress, _blaming(file):
        trajectory = run(problem, seeds, kernels=kernels, progress=progress)
    _deliver(trajectory, json, output, plot)


@app.command()
def compare(
    file: ProblemFile,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=2, max=10**6, help="Networks to train per problem; default: the study's."),
    ] = None,
    json: AsJson = False,
    output: Output = None,
    plot: Plot = None,
    kernels: Kernels = False,
    quiet: Quiet = False,
) -> None:
    """Predict, train, and tell how many standard errors apart they are."""
    from lazyrich import Study, load_study
    from lazyrich import compare as set_beside
    from lazyrich import predict as solve
    from lazyrich import train as run
    from lazyrich.comparison import plot_all, save_comparisons
    from lazyrich.problem.files import point_label

    _check_outputs(output, plot)
    study = load_study(file, Study)
    comparisons = []
    for point, problem in study.problems():
        label = point_label(point)
        with _progress(f"predicting {label}", quiet) as progress, _blaming(file):
            predicted = solve(problem, progress=progress)
        networks = seeds or study.compare.seeds
        with _progress(f"training {networks} networks {label}", quiet) as progress, _blaming(file):
            trained = run(problem, networks, kernels=kernels, progress=progress)
        comparisons.append(set_beside(predicted, trained, label))
    if output is not None:
        save_comparisons(comparisons, output)
    if plot is not None:
        plot_all(comparisons, plot)
    if json:
        _print_json({"comparisons": [comparison.to_json() for comparison in comparisons]})
    else:
        _print_comparisons(comparisons)


@app.command()
def transfer(
    file: ProblemFile,
    by: Annotated[By | None, typer.Option("--by", help="Overrides transfer.by of the study.")] = None,
    json: AsJson = False,
    results: Results = None,
    plot: Plot = None,
    table: TableFile = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    quiet: Quiet = False,
) -> None:
    """Find the best learning rate at every size, and tell whether it moves."""
    from lazyrich import Study, load_study
    from lazyrich.storage import write_whole
    from lazyrich.transfer.analysis import analyse
    from lazyrich.transfer.report import best_rows, move_rows, report_page, verdict
    from lazyrich.transfer.sweep import run_sweep

    _check_outputs(None, plot)
    _check_table(table)
    study = load_study(file, Study)
    folder = results or Path("results") / file.stem
    with _resumable(folder), _progress("working", quiet) as progress, _blaming(file):
        sweep = run_sweep(
            study,
            folder,
            name=file.stem,
            by=by.value if by else None,
            workers=workers,
            scheduler=scheduler,
            progress=progress,
            announce=None if quiet else lambda text: print(text, file=sys.stderr),
        )
        analysis = analyse(sweep)
    command = f"lazyrich transfer {file.name}" + (f" --by {by.value}" if by else "")
    page = report_page(
        analysis, title=f"Learning-rate transfer: {file.stem}", study_text=file.read_text("utf-8-sig"), command=command,
        notes=sweep.notes,
    )  # fmt: skip
    write_whole(folder / "report.html", page.encode())
    if table is not None:
        sweep.save(table)
    if plot is not None:
        from lazyrich.plots import save_figure
        from lazyrich.transfer.figures import plot_losses

        save_figure(plot_losses(analysis), plot)
    if json:
        _print_json(analysis.to_json())
        return
    from lazyrich.tables import plain_table

    _print_table(plain_table(best_rows(analysis.best)))
    if analysis.moves:
        _print_table(plain_table(move_rows(analysis.moves)))
    for line in [*(verdict(trend) for trend in analysis.trends), *sweep.notes]:
        print(line)
    print(f"report: {folder / 'report.html'}")


@app.command()
def exponent(
    file: ProblemFile, json: AsJson = False, output: Output = None, plot: Plot = None, quiet: Quiet = False
) -> None:
    """Fit a power law to the loss of gradient flow, and tell where it holds and why it ends."""
    from lazyrich import Study, load_study
    from lazyrich.problem.files import point_label
    from lazyrich.theory.deep_linear.exponent import fit_exponent

    _check_outputs(output, plot)
    problems = load_study(file, Study).problems()
    if output is not None and len(problems) > 1:
        raise LazyrichError("--output", "a study with axes has several results", "leave it out, or remove the axes")
    found = []
    for point, problem in problems:
        label = point_label(point)
        with _progress(f"predicting {label}", quiet) as progress, _blaming(file):
            found.append((label, *fit_exponent(problem, progress)))
    if output is not None:
        found[0][2].save(output)
    if plot is not None:
        from lazyrich.plots import plot_exponents, save_figure

        save_figure(plot_exponents(found), plot)
    if json:
        _print_json({"exponents": [{"label": label, **fit.to_json()} for label, fit, _ in found]})
        return
    from lazyrich.tables import exponent_rows, plain_table

    _print_table(plain_table(exponent_rows([(label, fit) for label, fit, _ in found])))
    for label, fit, _ in found:
        print("\n".join(f"{label}: {line}" if label else line for line in fit.summary()))


@app.command("two-layer")
def two_layer(
    file: ProblemFile,
    json: AsJson = False,
    output: Output = None,
    plot: Plot = None,
    products: Annotated[bool, typer.Option("--products", help="Also record the matrix A itself over time.")] = False,
    quiet: Quiet = False,
) -> None:
    """Tell how a two-layer network learns a matrix: which singular values are lazy, which active, and when to stop."""
    from lazyrich import MatrixStudy, load_study
    from lazyrich import two_layer as run

    _check_outputs(output, plot)
    problem = load_study(file, MatrixStudy).problem
    with _progress("learning the matrix", quiet) as progress, _blaming(file):
        trajectory = run(problem, products=products, progress=progress)
    if output is not None:
        trajectory.save(output)
    if plot is not None:
        trajectory.plot(plot)
    if json:
        _print_json(trajectory.to_json())
        return
    from lazyrich.mixed_dynamics.tables import mode_table, run_table, summary_lines

    _print_table(run_table(trajectory))
    _print_table(mode_table(trajectory))
    for line in summary_lines(trajectory):
        print(line)


@app.command("phase-diagram")
def phase_diagram(
    file: ProblemFile,
    json: AsJson = False,
    results: Results = None,
    plot: Plot = None,
    table: TableFile = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    quiet: Quiet = False,
) -> None:
    """Run a grid of matrix problems: best test error, rank and time at every point, with the theory's lines."""
    from lazyrich import MatrixStudy, load_study
    from lazyrich.mixed_dynamics.figures import plot_phase_diagram
    from lazyrich.mixed_dynamics.tables import diagram_lines, diagram_table
    from lazyrich.plots import save_figure
    from lazyrich.transfer.diagram import phase_diagram as run

    _check_outputs(None, plot)
    _check_table(table)
    study = load_study(file, MatrixStudy)
    folder = results or Path("results") / file.stem
    with _resumable(folder), _progress("working", quiet) as progress, _blaming(file):
        diagram = run(
            study,
            folder,
            name=file.stem,
            workers=workers,
            scheduler=scheduler,
            progress=progress,
            announce=None if quiet else lambda text: print(text, file=sys.stderr),
        )
    if table is not None:
        diagram.save(table)
    if plot is not None:
        save_figure(plot_phase_diagram(diagram), plot)
    if json:
        _print_json(diagram.to_json())
        return
    _print_table(diagram_table(diagram))
    for line in diagram_lines(diagram):
        print(line)


@app.command()
def rules(
    scheme: Annotated[str, typer.Option("--scheme", help="sp, ntk, mup, sqrt-depth, depth-mup, ode, complete-p.")] = "",
    optimizer: Annotated[str, typer.Option("--optimizer", help="sgd, adam, adamw, sign.")] = "adamw",
    width: Annotated[float | None, typer.Option("--width", help="Width of the target model.")] = None,
    base_width: Annotated[float | None, typer.Option("--base-width", help="Width of the tuned model.")] = None,
    depth: Annotated[float | None, typer.Option("--depth", help="Blocks of the target model.")] = None,
    base_depth: Annotated[float | None, typer.Option("--base-depth", help="Blocks of the tuned model.")] = None,
    alpha: Annotated[float | None, typer.Option("--alpha", help="Exponent of the branch factor, with --gamma.")] = None,
    gamma: Annotated[float | None, typer.Option("--gamma", help="Exponent of the rate, with --alpha.")] = None,
    json: AsJson = False,
) -> None:
    """Print how init, multipliers, rates, eps and decay change from a tuned model to a larger one, and why."""
    from lazyrich.problem.rules import rules_report

    report = rules_report(scheme or None, optimizer, width, base_width, depth, base_depth, alpha=alpha, gamma=gamma)
    if json:
        _print_json(report)
        return
    from lazyrich.tables import rules_parts

    for part in rules_parts(report):
        if isinstance(part, str):
            print(part)
        else:
            _print_table(part)


def _check_outputs(output: Path | None, plot: Path | None) -> None:
    from lazyrich.storage import check_destination

    if output is not None:
        check_destination(output, (".nc",), "--output")
    if plot is not None:
        check_destination(plot, (".png", ".svg"), "--plot")


def _check_table(table: Path | None) -> None:
    from lazyrich.storage import check_destination

    if table is not None:
        check_destination(table, (".nc", ".csv", ".parquet"), "--table")


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Say after Ctrl-C where finished work is kept."""
    try:
        yield
    except KeyboardInterrupt:
        _fail(f"interrupted; finished cells are in {folder}, run it again to continue", 130, prefix="")
        raise typer.Exit(130) from None


@contextmanager
def _blaming(file: Path) -> Iterator[None]:
    """Put the problem file in front of errors that only show when it is used."""
    try:
        yield
    except LazyrichError as error:
        raise error.inside(str(file), joint=": ") from None


@contextmanager
def _progress(task: str, quiet: bool) -> Iterator[Callable[[int, int], object] | None]:
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


def _print_json(content: dict[str, Any]) -> None:
    print(json_module.dumps(content, allow_nan=False))


def _deliver(trajectory: Trajectory, json: bool, output: Path | None, plot: Path | None) -> None:
    if output is not None:
        trajectory.save(output)
    if plot is not None:
        trajectory.plot(plot)
    if json:
        _print_json(trajectory.to_json())
    else:
        from lazyrich.tables import original_units, trajectory_table

        _print_table(trajectory_table(trajectory))
        if "target_std" in trajectory.data:
            print(original_units(trajectory))


def _print_comparisons(comparisons: list[Comparison]) -> None:
    from lazyrich.tables import comparison_table, original_units

    _print_table(comparison_table(comparisons))
    for comparison in comparisons:
        print(comparison.summary())
        if "target_std" in comparison.predicted.data:
            print(f"    predicted {original_units(comparison.predicted)}")


def _print_table(table: Any) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160).print(table)


def main() -> None:
    """Run the command; every user's mistake ends in one line on standard error and status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows "?"
    try:
        status = _run(sys.argv[1:] or ["--help"])
        sys.stdout.flush()
    except LazyrichError as error:
        status = _fail(str(error), 2)
    except TyperException as error:
        message = " ".join(error.format_message().split()).rstrip(".")
        status = _fail(f"lazyrich: {message}; see lazyrich --help", 2)
    except (KeyboardInterrupt, typer.Abort) as error:
        detail = f" ({error})" if str(error) else ""
        status = _fail(f"interrupted{detail}; nothing was written", 130, prefix="")
    except BrokenPipeError:
        _close_output()
        status = 1
    except OSError as error:
        status = _fail(f"standard output: cannot be written ({error.strerror}); free space or choose another file", 2)
        _close_output()
    except MemoryError:
        status = _fail("lazyrich: out of memory; reduce steps, outputs, width or blocks", 2)
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


def _close_output() -> None:
    """Standard output takes no more: nothing is said of it again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int, prefix: str = "error: ") -> int:
    print(f"{prefix}{message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
