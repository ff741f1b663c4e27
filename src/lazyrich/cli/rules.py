"""Rules for width and depth, and the classes of depth rules."""

from __future__ import annotations

from typing import Annotated

import typer

from lazyrich.cli.shared import AsJson, Plot, Quiet, app, check_outputs, print_json, print_table, progress_bar


@app.command()
def rules(
    scheme: Annotated[str, typer.Option("--scheme", help="sp, ntk, mup, sqrt-depth, depth-mup, ode, complete-p.")] = "",
    optimizer: Annotated[str, typer.Option("--optimizer", help="sgd, adam, adamw, sign, muon.")] = "adamw",
    width: Annotated[float | None, typer.Option("--width", help="Width of the target model.")] = None,
    base_width: Annotated[float | None, typer.Option("--base-width", help="Width of the tuned model.")] = None,
    depth: Annotated[float | None, typer.Option("--depth", help="Blocks of the target model.")] = None,
    base_depth: Annotated[float | None, typer.Option("--base-depth", help="Blocks of the tuned model.")] = None,
    alpha: Annotated[float | None, typer.Option("--alpha", help="Exponent of the branch factor, with --gamma.")] = None,
    gamma: Annotated[float | None, typer.Option("--gamma", help="Exponent of the rate, with --alpha.")] = None,
    json: AsJson = False,
) -> None:
    """Print what to change in a model that grows. Init, multipliers, rates, eps and decay, and why."""
    from lazyrich.problem.rules import rules_report

    report = rules_report(scheme or None, optimizer, width, base_width, depth, base_depth, alpha=alpha, gamma=gamma)
    if json:
        print_json(report)
        return
    from lazyrich.tables import rules_parts

    for part in rules_parts(report):
        if isinstance(part, str):
            print(part)
        else:
            print_table(part)


@app.command()
def classify(
    alpha: Annotated[float, typer.Option("--alpha", help="Exponent of the branch factor, L^-alpha.")],
    gamma: Annotated[float, typer.Option("--gamma", help="Exponent of the normalised rate, L^-gamma.")],
    optimizer: Annotated[str, typer.Option("--optimizer", help="sgd, adam, sign.")] = "adam",
    measure: Annotated[bool, typer.Option("--measure", help="Train networks at four depths, too.")] = False,
    json: AsJson = False,
    plot: Plot = None,
    quiet: Quiet = False,
) -> None:
    """Tell the class of a depth rule. Stable, trivial, faithful, learning features, diverse."""
    from lazyrich.class_map import GRID, class_parts, class_report, plot_classes
    from lazyrich.problem.parametrization import known_name

    check_outputs(None, plot)
    known_name("--optimizer", optimizer, ("sgd", "adam", "sign"))
    point = (alpha, gamma)
    report, found = class_report(alpha, gamma, optimizer, None, []), []
    if measure:
        from lazyrich.simulation.residual.classification import measure_classes
        from lazyrich.simulation.residual.probe import Probe

        # a figure shows the whole plane
        points = [point, *(each for each in GRID if plot is not None)]
        with progress_bar("training", quiet) as progress:
            found = measure_classes(points, Probe(optimizer=optimizer), progress=progress)
        report = class_report(alpha, gamma, optimizer, found[0], found[1:])
    if plot is not None:
        from lazyrich.plots import save_figure

        save_figure(plot_classes(point, found[1:]), plot)
    if json:
        print_json(report)
        return
    for part in class_parts(report):
        if isinstance(part, str):
            print(part)
        else:
            print_table(part)
