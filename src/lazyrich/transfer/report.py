"""One page that answers a transfer study: verdicts, figure, tables, and how to reproduce it."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lazyrich.provenance import provenance
from lazyrich.transfer.analysis import Analysis, Best, Move, Trend, named
from lazyrich.transfer.figures import plot_best_rates, plot_losses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #ccc; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #555; } td:first-child, th:first-child { text-align: left; }
.scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; }
pre { background: #f4f4f4; padding: 1rem; overflow-x: auto; } .verdict { font-weight: 600; }
"""


def verdict(trend: Trend) -> str:
    """One sentence: how the best rate moves along an axis."""
    where = f" at {named(trend.fixed)}" if trend.fixed else ""
    sentence = f"{trend.axis.rpartition('.')[2]}{where}, by {trend.by}: {trend.drift.verdict}"
    if trend.prediction is not None:
        low, high = trend.prediction.interval
        sentence += (
            f"; predicted best rate at {trend.target:g}: {trend.prediction.rate:.3g} ({low:.3g} to {high:.3g}, "
            f"{trend.prediction.model})"
        )
    if trend.theory is not None:
        sentence += f"; theory at {trend.target:g}: {_number(trend.theory.best_rate)}"
    return sentence


def best_rows(best: Sequence[Best]) -> list[list[str]]:
    """Rows of the table of optima, headings first."""
    measured = best[0].measured if best else "loss"
    rows = [["problem", "by", "step", "best rate (95% interval)", measured, "stable up to", "flag"]]
    for each in best:
        optimum = each.optimum
        rate = f"{_number(optimum.best_rate)} ({_number(optimum.interval[0])} to {_number(optimum.interval[1])})"
        stable, loss = _number(optimum.largest_stable_rate), _number(optimum.loss)
        rows.append([named(each.axes), each.by, str(each.at), rate, loss, stable, optimum.flag])
    return rows


def move_rows(moves: Sequence[Move]) -> list[list[str]]:
    """Rows of the table of shifts and regrets, headings first."""
    rows = [["from base to", "by", "step", "shift in octaves (95% interval)", "regret in nats (95% interval)"]]
    for move in moves:
        change = f"{move.axis.rpartition('.')[2]} {move.start} to {move.end}"
        where = f"{change}, {named(move.fixed)}" if move.fixed else change
        (low, high), (least, most) = move.shift.interval, move.regret.interval
        shift = f"{move.shift.octaves:+.2f} ({low:+.2f} to {high:+.2f})"
        rows.append(
            [where, move.by, str(move.at), shift, f"{_number(move.regret.nats)} ({_number(least)} to {_number(most)})"]
        )
    return rows


def _number(value: float) -> str:
    return f"{value:.3g}" if not np.isnan(value) else "-"


def html_table(rows: list[list[str]]) -> str:
    """An HTML table of plain text, headings first, that scrolls where it is too wide."""
    head, *body = [[html.escape(cell) for cell in row] for row in rows]
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f'<div class="scroll"><table><tr>{"".join(f"<th>{c}</th>" for c in head)}</tr>{lines}</table></div>'


def _inline(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    return buffer.getvalue().partition("<svg")[1] + buffer.getvalue().partition("<svg")[2]


def report_page(analysis: Analysis, *, title: str, study_text: str, command: str, notes: Sequence[str] = ()) -> str:
    """A self-contained HTML page.

    Parameters
    ----------
    analysis : Analysis
    title : str
    study_text : str
        The study file.
    command : str
        How to run it again.
    notes : sequence of str
        Further lines, such as how long theory and training took.
    """
    verdicts = "".join(f'<li class="verdict">{html.escape(verdict(trend))}</li>' for trend in analysis.trends)
    moves = f"<h2>Carrying the base's rate</h2>{html_table(move_rows(analysis.moves))}" if analysis.moves else ""
    trends = f"<h2>Best rates</h2>{_inline(plot_best_rates(analysis))}" if analysis.trends else ""
    further = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    versions = ", ".join(f"{name} {value}" for name, value in provenance().items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1><ul>{verdicts}</ul>
<h2>{analysis.best[0].measured.capitalize()} against learning rate</h2>{_inline(plot_losses(analysis))}
{trends}<h2>Optima</h2>{html_table(best_rows(analysis.best))}{moves}{further}
<h2>Reproduce</h2><pre>{html.escape(command)}</pre><pre>{html.escape(study_text)}</pre>
<p>{html.escape(versions)}</p></body></html>
"""
