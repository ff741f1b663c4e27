"""What ``lazyrich classify`` shows of a depth rule: a report, and a map of the plane of all rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from lazyrich.plots import COLOURS, finish
from lazyrich.problem.parametrization import SCHEMES
from lazyrich.problem.rules import classify
from lazyrich.tables import plain_table
from lazyrich.theory.depth.classes import expected_slopes, properties

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lazyrich.simulation.residual.classification import MeasuredClass

GRID = tuple((alpha, gamma) for alpha in (0.25, 0.5, 0.75, 1.0, 1.25) for gamma in (-0.25, 0.0, 0.25, 0.5, 0.75))
_SHADES = {"unstable": "#e9c9b8", "trivial": "#d9d9d9"}
_LOOKS = {
    "unstable": (COLOURS[1], "v"),
    "trivial": ("0.35", "s"),
    "unfaithful": (COLOURS[3], "P"),
    "feature learning, diverse": (COLOURS[2], "*"),
    "feature learning, redundant": (COLOURS[0], "o"),
    "undetermined": ("white", "X"),
}


def class_report(
    alpha: float, gamma: float, optimizer: str, measured: MeasuredClass | None, grid: Sequence[MeasuredClass]
) -> dict[str, Any]:
    """Theory and, where there is one, measurement of a depth rule, as plain data for JSON."""
    found = classify(alpha, gamma)
    report: dict[str, Any] = {
        "alpha": alpha,
        "gamma": gamma,
        "optimizer": optimizer,
        "class": found.name,
        "meaning": found.meaning,
        "diversity_exponent": found.diversity_exponent,
        "properties": {
            each.name: {"holds": each.holds, "condition": each.condition} for each in properties(alpha, gamma)
        },
        "slopes": expected_slopes(alpha, gamma),
        "measured": measured.to_json() if measured else None,
    }
    if grid:
        report["grid"] = [each.to_json() for each in grid]
        report["grid_agrees"] = sum(each.agrees for each in grid)
    return report


def class_parts(report: dict[str, Any]) -> list[Table | str]:
    """What a terminal shows of a report."""
    measured = report["measured"]
    rows = [["", "condition", "theory", "networks" if measured else ""]]
    for name, entry in report["properties"].items():
        seen = measured["verdicts"][name]["verdict"] if measured else ""
        rows.append([name, entry["condition"], "yes" if entry["holds"] else "no", _YES.get(seen, seen)])
    parts: list[Table | str] = [
        f"alpha {report['alpha']:g}, gamma {report['gamma']:g}, {report['optimizer']}: {report['class']} - "
        f"{report['meaning']}",
        plain_table(rows),
    ]
    slopes = [["power of depth", "theory", "networks" if measured else "", "±" if measured else ""]]
    for name, value in report["slopes"].items():
        seen = measured["slopes"][name] if measured else {"slope": None, "error": None}
        texts = ["diverges" if measured else "", ""]
        if seen["slope"] is not None:
            texts = [f"{seen['slope']:+.2f}", f"{seen['error']:.2f}"]
        slopes.append([name.replace("_", " "), f"{value:+.2f}", *texts])
    parts.append(plain_table(slopes))
    exponent = {0.5: "1/2", 0.0: "0", None: "none"}
    diversity = f"diversity exponent: {exponent[report['diversity_exponent']]} by theory"
    if measured:
        if measured["class"] == "undetermined":
            parts.append(
                "undetermined: the rule is too near a border for these depths, or slopes bend too much to tell"
            )
        diversity += f", {exponent[measured['diversity_exponent']]} by networks; class by networks: {measured['class']}"
    parts.append(diversity)
    if "grid" in report:
        parts.append(f"of {len(report['grid'])} rules on a grid, {report['grid_agrees']} have the class of theory")
    return parts


_YES = {"pass": "yes", "fail": "no"}


def plot_classes(point: tuple[float, float], measured: Sequence[MeasuredClass]) -> Figure:
    """The plane of depth rules: classes by theory as areas and lines, the asked point, measured rules as markers."""
    from matplotlib.figure import Figure

    low, high = np.array([0.1, -0.4]), np.array([1.4, 0.9])
    low, high = np.minimum(low, np.array(point) - 0.1), np.maximum(high, np.array(point) + 0.1)
    figure = Figure(figsize=(8.2, 5.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel="alpha: branches fall as L^-alpha",
             ylabel="gamma: normalised rate falls as L^-gamma")  # fmt: skip
    line = np.array([low[0], high[0]])
    axes.fill_between(line, low[1], high[1], color=_SHADES["trivial"], linewidth=0, label="trivial")
    axes.fill_between(line, low[1], 1.0 - line, color=_SHADES["unstable"], linewidth=0, label="unstable")
    axes.fill_between([low[0], 0.5], low[1], high[1], color=_SHADES["unstable"], linewidth=0)
    axes.plot([0.5, 1.0], [0.5, 0.0], color=COLOURS[0], linewidth=3.5, solid_capstyle="butt",
              label="feature learning, redundant")  # fmt: skip
    axes.plot([1.0, high[0]], [0.0, 1.0 - high[0]], color=COLOURS[3], linewidth=3.5, solid_capstyle="butt",
              label="unfaithful")  # fmt: skip
    axes.plot(0.5, 0.5, color=COLOURS[2], marker="*", markersize=20, linestyle="none", markeredgecolor="white",
              zorder=4, label="feature learning, diverse")  # fmt: skip
    for name, place in (("depth-mup", (6, 16)), ("complete-p", (8, 10)), ("sqrt-depth", (8, -14))):
        scheme = SCHEMES[name]
        axes.annotate(scheme.title.partition(",")[0], (scheme.alpha, scheme.gamma), place, textcoords="offset points",
                      fontsize="small")  # fmt: skip
    shown = set()
    for each in measured:
        colour, marker = _LOOKS[each.name]
        label = f"networks: {each.name}" if each.name not in shown else None
        shown.add(each.name)
        axes.plot(each.alpha, each.gamma, color=colour, marker=marker, markersize=9, linestyle="none",
                  markeredgecolor="black" if each.agrees else "red", markeredgewidth=0.8 if each.agrees else 2.5,
                  zorder=5, label=label)  # fmt: skip
    if not all(each.agrees for each in measured):
        axes.plot([], [], color="white", marker="s", markersize=9, linestyle="none", markeredgecolor="red",
                  markeredgewidth=2.5, label="not the class of theory")  # fmt: skip
    axes.plot(*point, marker="o", markersize=19, fillstyle="none", color="black", markeredgewidth=1.6, zorder=6,
              linestyle="none", label="asked for")  # fmt: skip
    finish(axes, logarithmic=False)
    axes.grid(visible=False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize="small")
    return figure
