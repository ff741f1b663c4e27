"""Reproduce the claims of the literature."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from lazyrich.cli.shared import (
    AsJson,
    Quiet,
    Scheduler,
    Workers,
    announcer,
    app,
    print_json,
    print_table,
    progress_bar,
    resumable,
)


@app.command()
def reproduce(
    claims: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Claims; default: all.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Name every claim and its studies, and stop.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes: a few minutes instead of twenty.")] = False,
    json: AsJson = False,
    results: Annotated[
        Path, typer.Option("--results", metavar="FOLDER", help="Where the page and finished cells are kept.")
    ] = Path("results/gallery"),
    workers: Workers = None,
    scheduler: Scheduler = None,
    quiet: Quiet = False,
) -> None:
    """Check claims of the literature. Their studies are run, judged by their numbers, and put on one page."""
    from lazyrich.gallery.run import chosen_claims
    from lazyrich.gallery.run import reproduce as run
    from lazyrich.tables import plain_table

    chosen = chosen_claims(claims or [])
    if show_list:
        if json:
            listed = [
                {"id": each.id, "claim": each.statement, "studies": [s.name for s in each.sources]} for each in chosen
            ]
            print_json({"claims": listed})
            return
        rows = [[each.id, each.statement, " ".join(source.name for source in each.sources)] for each in chosen]
        print_table(plain_table([["claim", "", "studies"], *rows], words=3))
        return
    with resumable(results), ExitStack() as stack:

        def bar(task: str) -> Callable[[int, int], object] | None:
            stack.close()  # the bar of the study before
            return stack.enter_context(progress_bar(task, quiet))

        finished = run(
            [each.id for each in chosen],
            quick=quick,
            folder=results,
            workers=workers,
            scheduler=scheduler,
            progress=bar,
            announce=announcer(quiet),
        )
    if json:
        print_json({"quick": quick, "claims": [each.to_json() for each in finished]})
        return
    for each in finished:
        print(f"{each.claim.id}: {each.judgement.verdict} ({each.seconds:.0f} s). {each.judgement.sentence}")
    print(f"page: {results / 'gallery.html'}")
