"""Tables and sentences of matrix problems for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from lazyrich.tables import number, plain_table, shown_steps

if TYPE_CHECKING:
    from lazyrich.trajectory import Trajectory
    from lazyrich.transfer.diagram import PhaseDiagram

# Singular values and points that are printed; files hold all.
_MOST_VALUES = 4
_MOST_POINTS = 40


def run_table(trajectory: Trajectory) -> Table:
    """Errors, largest singular values and ranks at some steps."""
    data = trajectory.data
    shown = shown_steps(len(trajectory.steps))
    values = min(_MOST_VALUES, data.sizes["mode"])
    heading = ["step", "time", "train error", "test error", *[f"s{index + 1}" for index in range(values)]]
    rows = [[*heading, "active", "rank", "alignment"]]
    for index in shown:
        row = data.isel(step=index)
        spectrum = [
            f"{number(row['singular_values'].values[mode], 3)} {'active' if row['active'].values[mode] else 'lazy'}"
            for mode in range(values)
        ]
        test = float(row["test_error"])
        rows.append(
            [
                str(int(row["step"])),
                number(row["time"].values),
                number(row["train_error"].values),
                number(np.float64(test)) if math.isfinite(test) else "",
                *spectrum,
                str(int(row["active_rank"])),
                str(int(row["numerical_rank"])),
                number(row["alignment"].values, 3),
            ]
        )
    return plain_table(rows)


def mode_table(trajectory: Trajectory) -> Table:
    """When each mode of the target turns active and is half learned, seen and predicted."""
    data = trajectory.data
    names = ("crossing_time", "crossing_time_predicted", "half_time", "half_time_predicted")
    rows = [["target's singular value", "turns active at time", "predicted", "half learned at time", "predicted"]]
    for mode in range(data.sizes["target_mode"]):
        row = data.isel(target_mode=mode)
        rows.append([number(row["strength"].values), *(number(row[name].values) for name in names)])
    return plain_table(rows)


def summary_lines(trajectory: Trajectory) -> list[str]:
    """The outcome, the solver, the threshold, the best step and the plateaus."""
    facts = trajectory.statistics
    inner = facts["hidden_units_computed"]
    size = f", computed with {inner} hidden units" if inner else ""
    width = f"width {facts['width']:g}" if facts["width"] else "infinite width"
    lines = [
        f"{trajectory.outcome}; solver: {facts['solver']} ({facts['reason']}){size}",
        f"{width}, threshold s0 = {facts['threshold']:.4g} "
        f"({facts['threshold'] / facts['target_size']:.3g} of the target), learning rate {facts['learning_rate']:.3g}",
    ]
    if facts["learning_rate"] > facts["largest_stable_rate"]:
        lines.append(
            f"the learning rate is above {facts['largest_stable_rate']:.3g}, where the largest mode of the target is "
            "stable: it cannot settle; lower it"
        )
    if math.isfinite(facts["best_test_error"]):
        line = (
            f"best test error {facts['best_test_error']:.4g} at step {facts['best_step']} "
            f"(time {facts['best_time']:.4g}), rank {facts['best_numerical_rank']}"
        )
        if math.isfinite(facts["best_test_error_predicted"]):
            line += (
                f"; closed form: {facts['best_test_error_predicted']:.4g} at time {facts['best_time_predicted']:.4g}"
            )
        lines.append(line)
    lines += [
        f"plateau from time {part['start']:.4g} to {part['end']:.4g} at train error {part['train_error']:.4g}"
        for part in facts["plateaus"]
    ]
    return lines


def diagram_table(diagram: PhaseDiagram) -> Table:
    """One row per point, the first ones only where there are many."""
    means = diagram.means()
    rows = [[*(axis.rpartition(".")[2] if axis.count(".") < 2 else axis.partition(".")[2] for axis in diagram.axes)]]
    for method in diagram.methods:
        rows[0] += [f"{method}: best error", "rank", "steps"]
    extra = [name for name in ("distance", "block_network", "block_law") if name in means[0]]
    rows[0] += [
        {"distance": "law - network", "block_network": "small network", "block_law": "small law"}[n] for n in extra
    ]
    for mean in means[:_MOST_POINTS]:
        row = [f"{mean[axis]:.4g}" if isinstance(mean[axis], int | float) else str(mean[axis]) for axis in diagram.axes]
        for method in diagram.methods:
            sem = mean.get(f"{method}_best_error_sem")
            text = f"{mean[f'{method}_best_error']:.4g}" + (f" ± {sem:.2g}" if sem is not None else "")
            row += [text, f"{mean[f'{method}_rank']:.3g}", f"{mean[f'{method}_best_step']:.4g}"]
        rows.append(row + [f"{mean[name]:.3g}" for name in extra])
    return plain_table(rows)


def diagram_lines(diagram: PhaseDiagram) -> list[str]:
    """How many points there are, what was left out, and where the boundary runs."""
    count = len(diagram.means())
    seconds = sum(row["seconds"] for row in diagram.rows)
    lines = [f"{count} points, {len(diagram.rows)} runs, {seconds:.3g} s of computing"]
    if count > _MOST_POINTS:
        lines[0] += f"; the first {_MOST_POINTS} are shown, --table writes all"
    line = diagram.boundary()
    if line is not None:
        lines.append(
            f"boundary of lazy and active (best error {line['level']:.3g}): slope {line['slope']:.3f}, "
            f"offset {line['offset']:.3f}, {line['points']} crossings, spread {line['spread']:.2g}"
        )
    return lines
