"""Tables of results for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from lazyrich.fields import CURVES

if TYPE_CHECKING:
    from lazyrich.comparison import Comparison
    from lazyrich.theory.deep_linear.exponent import Exponent
    from lazyrich.trajectory import Trajectory


def shown_steps(steps: int, most: int = 9) -> np.ndarray:
    """The first steps, and further ones at growing distances."""
    spaced = np.geomspace(1, steps, most).round().astype(int) - 1
    return np.unique(np.concatenate([[0], spaced]))


def number(value: np.floating | np.ndarray, digits: int = 4) -> str:
    """A number to so many digits, "-" where there is none."""
    return f"{value:.{digits}g}" if np.isfinite(value) else "-"


def _time_heading(trajectory: Trajectory) -> str:
    return "step" if trajectory.times is None else "time"


def _shown_times(trajectory: Trajectory, most: int = 9) -> list[tuple[int, str]]:
    """Places of the results that a table shows, with what is printed for them: steps, or of gradient flow times."""
    times = trajectory.times
    count = len(trajectory.steps)
    if times is None and not trajectory.spreads_out:
        return [(int(place), str(trajectory.steps[place])) for place in shown_steps(count, most)]
    # at equal distances: times and ends of strides are spaced logarithmically already
    places = np.unique(np.linspace(0, count - 1, most + 2).round().astype(int))
    return [(int(place), str(trajectory.steps[place]) if times is None else number(times[place])) for place in places]


def trajectory_table(trajectory: Trajectory) -> Table:
    """Losses and accuracies at some steps, with standard errors where there are any."""
    curves = [name for name in CURVES if name in trajectory.data]
    table = Table(
        title=f"{trajectory.source}: {trajectory.outcome}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column(_time_heading(trajectory), justify="right", no_wrap=True)
    for name in curves:
        table.add_column(CURVES[name], justify="right")
    for step, label in _shown_times(trajectory):
        row = [label]
        for name in curves:
            text = number(trajectory.data[name].values[step])
            if f"{name}_sem" in trajectory.data:
                text += f" ± {number(trajectory.data[f'{name}_sem'].values[step])}"
            row.append(text)
        table.add_row(*row)
    return table


def original_units(trajectory: Trajectory) -> str:
    """The last loss in the targets' own units, as a root mean squared error over samples and outputs."""
    by_output = trajectory.data["train_loss_by_output"].values
    reached = np.flatnonzero(np.isfinite(by_output).all(axis=-1))
    if not len(reached):
        return ""
    last = int(reached[-1])
    error = np.sqrt(np.mean(by_output[last] * trajectory.data["target_std"].values ** 2))
    times = trajectory.times
    when = f"step {trajectory.steps[last]}" if times is None else f"time {number(times[last])}"
    return f"in the targets' own units: root mean squared error {error:.4g} at {when}"


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Theory beside training at some steps, with the difference in standard errors."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    curves = comparisons[0].curves
    labelled = any(comparison.label for comparison in comparisons)
    if labelled:
        table.add_column("problem", no_wrap=True)
    table.add_column(_time_heading(comparisons[0].trained), justify="right", no_wrap=True)
    for curve in curves:
        for column in (f"{CURVES[curve]}\ntheory", "trained ± s.e.", "z"):
            table.add_column(column, justify="right", no_wrap=True)
    for comparison in comparisons:
        predicted, trained = comparison.predicted.data, comparison.trained.data
        for index, (step, label) in enumerate(_shown_times(comparison.trained, most=6)):
            row = [comparison.label if index == 0 else ""] * labelled + [label]
            for curve in curves:
                error = trained[f"{curve}_sem"].values[step]
                row.append(number(predicted[curve].values[step]))
                row.append(f"{number(trained[curve].values[step])} ± {number(error, digits=2)}")
                row.append(number(comparison.data[f"{curve}_z"].values[step], digits=2))
            table.add_row(*row)
        table.add_section()
    return table


def exponent_rows(fits: Sequence[tuple[str, Exponent]]) -> list[list[str]]:
    """Slopes of the loss in the last decades of time, a row for each fit."""
    decades = sorted({decade[:2] for _, fit in fits for decade in fit.decades})[-8:]
    headings = ["", *(f"{first:.0e}".replace("e+0", "e").replace("e-0", "e-") for first, _ in decades), "exponent"]
    headings += ["interval", "rich", "lazy", "regime", "ends by"]
    rows = [headings]
    for label, fit in fits:
        slopes = {(first, last): slope for first, last, slope in fit.decades}
        row = [label or "slope in the decade from", *(f"{slopes[d]:.3f}" if d in slopes else "" for d in decades)]
        known = fit.exponent is not None
        row += [f"{fit.exponent:.3f}", f"{fit.low:.3f} to {fit.high:.3f}"] if known else ["-", ""]
        row += ["" if value is None else f"{value:.4f}" for value in (fit.expected_rich, fit.expected_lazy)]
        row += [fit.verdict, fit.ends]
        rows.append(row)
    return rows


def plain_table(rows: Sequence[Sequence[str]], words: int = 1) -> Table:
    """A table of texts, headings first, of which the first `words` columns are no numbers.

    Columns that are empty throughout are left out.
    """
    kept = [index for index in range(len(rows[0])) if any(row[index] for row in rows[1:])]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index in kept:
        table.add_column(rows[0][index], justify="left" if index in kept[:words] else "right")
    for row in rows[1:]:
        table.add_row(*(row[index] for index in kept))
    return table


def rules_parts(report: dict[str, Any]) -> list[Table | str]:
    """What ``lazyrich rules`` prints, from :func:`lazyrich.problem.rules.rules_report`."""
    scheme, width, depth = report["scheme"], report["width"], report["depth"]
    parts: list[Table | str] = [
        f"{scheme['title']} (alpha {scheme['alpha']:g}, gamma {scheme['gamma']:g}), {report['optimizer']}: width "
        f"{width['base']:g} to {width['target']:g}, depth {depth['base']:g} to {depth['target']:g}; "
        f"{report['depth_class']['name']}. {scheme['note']}".rstrip(),
        "",
        "Multiply the tuned model's values by:",
        plain_table([report["columns"], *report["rows"]]),
        "The same without factors in the forward pass:",
        plain_table([report["columns"], *report["folded_rows"]]),
        "Why:",
    ]
    for rule in report["rules"]:
        for quantity, entry in rule["factors"].items():
            if entry and entry["formula"] != "1":
                name = quantity.replace("_", " ")
                parts.append(f"  {rule['role']}, {name} {entry['formula']}: {entry['reason']} [{entry['source']}]")
    parts.append("Not covered: " + "; ".join(report["not_covered"]))
    return parts
