"""Two-layer networks that learn a matrix, and their phase diagrams."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lazyrich.cli.shared import (
    AsJson,
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
    print_json,
    print_table,
    progress_bar,
    resumable,
)


@app.command("two-layer")
def two_layer(
    file: ProblemFile,
    json: AsJson = False,
    output: Output = None,
    plot: Plot = None,
    products: Annotated[bool, typer.Option("--products", help="Also record the matrix A itself over time.")] = False,
    quiet: Quiet = False,
) -> None:
    """Tell how two layers learn a matrix. Which singular values are lazy, which active, and when to stop."""
    from lazyrich import MatrixStudy, load_study
    from lazyrich import two_layer as run

    check_outputs(output, plot)
    problem = load_study(file, MatrixStudy).problem
    with progress_bar("learning the matrix", quiet) as progress, blaming(file):
        trajectory = run(problem, products=products, progress=progress)
    if output is not None:
        trajectory.save(output)
    if plot is not None:
        trajectory.plot(plot)
    if json:
        print_json(trajectory.to_json())
        return
    from lazyrich.mixed_dynamics.tables import mode_table, run_table, summary_lines

    print_table(run_table(trajectory))
    print_table(mode_table(trajectory))
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
    """Run a grid of matrix problems. Best test error, rank and time at every point, with the theory's lines."""
    from lazyrich import MatrixStudy, load_study
    from lazyrich.mixed_dynamics.figures import plot_phase_diagram
    from lazyrich.mixed_dynamics.tables import diagram_lines, diagram_table
    from lazyrich.plots import save_figure
    from lazyrich.transfer.diagram import phase_diagram as run

    check_outputs(None, plot)
    check_table(table)
    study = load_study(file, MatrixStudy)
    folder = results or Path("results") / file.stem
    with resumable(folder), progress_bar("working", quiet) as progress, blaming(file):
        diagram = run(
            study,
            folder,
            name=file.stem,
            workers=workers,
            scheduler=scheduler,
            progress=progress,
            announce=announcer(quiet),
        )
    if table is not None:
        diagram.save(table)
    if plot is not None:
        save_figure(plot_phase_diagram(diagram), plot)
    if json:
        print_json(diagram.to_json())
        return
    print_table(diagram_table(diagram))
    for line in diagram_lines(diagram):
        print(line)
