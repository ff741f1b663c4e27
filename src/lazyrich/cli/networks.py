"""Predict, train, compare, transfer, and the exponents of long training."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lazyrich.cli.shared import (
    AsJson,
    Kernels,
    Output,
    Plot,
    ProblemFile,
    Quiet,
    Results,
    Scheduler,
    TableFile,
    Workers,
    announcer,
    app,
    blaming,
    check_outputs,
    check_table,
    deliver,
    print_json,
    print_table,
    progress_bar,
    resumable,
)
from lazyrich.errors import LazyrichError

if TYPE_CHECKING:
    from lazyrich.comparison import Comparison


class By(StrEnum):
    """How a transfer study is answered."""

    THEORY = "theory"
    TRAINING = "training"
    BOTH = "both"


@app.command()
def predict(
    file: ProblemFile, json: AsJson = False, output: Output = None, plot: Plot = None, quiet: Quiet = False
) -> None:
    """Predict the training curve, without training."""
    from lazyrich import Study, load_study
    from lazyrich import predict as solve

    check_outputs(output, plot)
    problem = load_study(file, Study).problem
    with progress_bar("predicting", quiet) as progress, blaming(file):
        trajectory = solve(problem, progress=progress)
    deliver(trajectory, json, output, plot)


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
    """Train real networks, and record their mean curve."""
    from lazyrich import load_study
    from lazyrich import train as run
    from lazyrich.problem.files import TrainedStudy

    check_outputs(output, plot)
    problem = load_study(file, TrainedStudy).problem
    with progress_bar(f"training {seeds} networks", quiet) as progress, blaming(file):
        trajectory = run(problem, seeds, kernels=kernels, progress=progress)
    deliver(trajectory, json, output, plot)


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
    """Predict, train, and compare by standard errors."""
    from lazyrich import Study, load_study
    from lazyrich import compare as set_beside
    from lazyrich import predict as solve
    from lazyrich import train as run
    from lazyrich.comparison import plot_all, save_comparisons
    from lazyrich.problem.files import point_label

    check_outputs(output, plot)
    study = load_study(file, Study)
    comparisons = []
    for point, problem in study.problems():
        label = point_label(point)
        with progress_bar(f"predicting {label}", quiet) as progress, blaming(file):
            predicted = solve(problem, progress=progress)
        networks = seeds or study.compare.seeds
        with progress_bar(f"training {networks} networks {label}", quiet) as progress, blaming(file):
            trained = run(problem, networks, kernels=kernels, progress=progress)
        comparisons.append(set_beside(predicted, trained, label))
    if output is not None:
        save_comparisons(comparisons, output)
    if plot is not None:
        plot_all(comparisons, plot)
    if json:
        print_json({"comparisons": [comparison.to_json() for comparison in comparisons]})
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
    """Find the best rate at each size, and how it moves."""
    from lazyrich import load_study
    from lazyrich.problem.files import TrainedStudy
    from lazyrich.storage import write_whole
    from lazyrich.transfer.analysis import analyse
    from lazyrich.transfer.report import best_rows, move_rows, report_page, verdict
    from lazyrich.transfer.sweep import run_sweep

    check_outputs(None, plot)
    check_table(table)
    study = load_study(file, TrainedStudy)
    folder = results or Path("results") / file.stem
    with resumable(folder), progress_bar("working", quiet) as progress, blaming(file):
        sweep = run_sweep(
            study,
            folder,
            name=file.stem,
            by=by.value if by else None,
            workers=workers,
            scheduler=scheduler,
            progress=progress,
            announce=announcer(quiet),
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
        print_json(analysis.to_json())
        return
    from lazyrich.tables import plain_table

    print_table(plain_table(best_rows(analysis.best)))
    if analysis.moves:
        print_table(plain_table(move_rows(analysis.moves)))
    for line in [*(verdict(trend) for trend in analysis.trends), *sweep.notes]:
        print(line)
    print(f"report: {folder / 'report.html'}")


@app.command()
def exponent(
    file: ProblemFile, json: AsJson = False, output: Output = None, plot: Plot = None, quiet: Quiet = False
) -> None:
    """Fit a power law to long training. It tells where it holds and why it ends."""
    from lazyrich import Study, load_study
    from lazyrich.problem.files import point_label
    from lazyrich.theory.deep_linear.compute import compute_trade
    from lazyrich.theory.deep_linear.exponent import fit_exponent

    check_outputs(output, plot)
    problems = load_study(file, Study).problems()
    if output is not None and len(problems) > 1:
        raise LazyrichError("--output", "a study with axes has several results", "leave it out, or remove the axes")
    found = []
    for point, problem in problems:
        label = point_label(point)
        with progress_bar(f"predicting {label}", quiet) as progress, blaming(file):
            found.append((label, *fit_exponent(problem, progress)))
    if output is not None:
        found[0][2].save(output)
    trade = compute_trade([each[1:] for each in found])
    if plot is not None:
        from lazyrich.plots import plot_exponents, save_figure

        save_figure(plot_exponents(found, trade), plot)
    if json:
        exponents = [{"label": label, **fit.to_json()} for label, fit, _ in found]
        print_json({"exponents": exponents, "compute": None if trade is None else trade.to_json()})
        return
    from lazyrich.tables import exponent_rows, plain_table

    print_table(plain_table(exponent_rows([(label, fit) for label, fit, _ in found])))
    for label, fit, _ in found:
        print("\n".join(f"{label}: {line}" if label else line for line in fit.summary()))
    if trade is not None:
        print("\n".join(trade.summary()))


def _print_comparisons(comparisons: list[Comparison]) -> None:
    from lazyrich.tables import comparison_table, original_units

    print_table(comparison_table(comparisons))
    for comparison in comparisons:
        print(comparison.summary())
        if "target_std" in comparison.predicted.data:
            print(f"    predicted {original_units(comparison.predicted)}")
