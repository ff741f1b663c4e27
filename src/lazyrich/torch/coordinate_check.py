"""Coordinate check: whether activations, and what training changes in them, keep their size when the model grows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from lazyrich.errors import LazyrichError
from lazyrich.problem.parametrization import Scheme
from lazyrich.torch.plan import Plan
from lazyrich.torch.planning import build_real, plan
from lazyrich.torch.probing import first_tensor
from lazyrich.torch.training import make_optimizers

QUANTITIES: Mapping[str, str] = {
    "input": "outputs of the input layers and embeddings",
    "block": "outputs of matrices inside the blocks, those at the end of a branch excepted",
    "stream": "output of the last block: the residual stream",
    "output": "output of the model",
}
_COVERED = 0.95
_FALLING = (
    "The readout's random start still shows in it: that part falls as size^-1/2, so a slope of -1/2 to 0 is no error. "
    "Start the readout smaller or at zero, or take larger sizes"
)


@dataclass(frozen=True)
class Slope:
    """How one quantity goes with size.

    Attributes
    ----------
    quantity : str
        A key of :data:`QUANTITIES`.
    when : str
        ``"start"`` (its size at initialisation) or ``"change"`` (by how much training has moved it, after all steps).
    slope : float
        Of log root mean square over log size.
    interval : tuple of float
        95%, by Student's t over seeds.
    expected : float
    verdict : str
        ``"pass"``: the whole interval is within the tolerance of the expected slope; ``"fail"``: all of it is outside;
        ``"undetermined"``: neither, take more seeds or sizes.
    values : ndarray, shape (sizes, seeds)
        Root mean squares.
    """

    quantity: str
    when: str
    slope: float
    interval: tuple[float, float]
    expected: float
    verdict: str
    values: np.ndarray

    def __str__(self) -> str:
        (low, high), when = self.interval, "at the start" if self.when == "start" else "change"
        text = f"{self.quantity}, {when}: slope {self.slope:+.3f} ({low:+.3f} to {high:+.3f})"
        text = f"{text}, expected {self.expected:+.1f}"
        if self.quantity == "output" and self.when == "change" and self.verdict == "undetermined" and self.slope < 0:
            return f"{text}: {self.verdict}. {_FALLING}"
        return f"{text}: {self.verdict}"


@dataclass(frozen=True)
class CoordinateCheck:
    """The outcome of a coordinate check: necessary for transfer, not sufficient.

    Attributes
    ----------
    axis : str
    sizes : list of float
    steps : int
    tolerance : float
    slopes : list of Slope
    by_step : dict
        Quantity to root mean squares of its change after each step, shape (sizes, seeds, steps).
    """

    axis: str
    sizes: list[float]
    steps: int
    tolerance: float
    slopes: list[Slope]
    by_step: dict[str, np.ndarray]

    @property
    def verdict(self) -> str:
        """``"fail"`` if any slope fails, else ``"undetermined"`` if any is, else ``"pass"``."""
        found = {slope.verdict for slope in self.slopes}
        return next((each for each in ("fail", "undetermined") if each in found), "pass")

    def __str__(self) -> str:
        lines = [
            f"coordinate check over {self.axis} {self.sizes[0]:g} to {self.sizes[-1]:g}, {self.steps} steps, "
            f"tolerance {self.tolerance:g}: {self.verdict}"
        ]
        lines += [f"  {slope}" for slope in self.slopes]
        return "\n".join(
            [
                *lines,
                "A coordinate check is necessary and not sufficient: confirm with transfer_sweep at several sizes.",
            ]
        )

    def plot(self, path: str | Path) -> None:
        """Write a figure (PNG or SVG): each quantity over size, at the start and its change, with expected slopes."""
        from lazyrich.plots import save_figure

        save_figure(_figure(self), path)


def coordinate_check(
    make_model: Callable[..., nn.Module],
    *,
    base: Mapping[str, Any],
    over: Mapping[str, Sequence[int]],
    batch: Any,
    loss: Callable[[nn.Module, Any], Tensor],
    lr: float,
    scheme: str | Scheme | tuple[float, float] = "complete-p",
    optimizer: str = "adamw",
    steps: int = 5,
    seeds: int = 4,
    tolerance: float = 0.1,
    multipliers: Mapping[str, str | None] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> CoordinateCheck:
    """Train models of several sizes for some steps, and fit how activations and their changes go with size.

    Parameters
    ----------
    make_model : callable
        Called with keywords.
    base : dict
        The size at which settings were tuned.
    over : dict
        One axis and its values, ``{"width": [64, 128, 256]}``; the others stay at the base.
    batch
        What all steps train on.
    loss : callable
        ``loss(model, batch)`` gives a scalar, and calls the model once.
    lr : float
        Of the base. Small: a slope is meant for changes that are small beside what they change.
    scheme, optimizer, multipliers, overrides
        See :func:`lazyrich.torch.plan`.
    steps, seeds : int
    tolerance : float
    **settings
        ``weight_decay``, ``eps``, ``momentum``, ``betas``, ``companion_lr`` of the optimiser.

    Returns
    -------
    CoordinateCheck
    """
    if len(over) != 1 or len(set(next(iter(over.values())))) < 3:
        raise LazyrichError("over", "is not one axis with three or more sizes", "give e.g. {'width': [64, 128, 256]}")
    if seeds < 2 or steps < 1:
        raise LazyrichError("seeds", "an interval needs two seeds, and a change one step", "give more")
    ((axis, values),) = over.items()
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    by_step: dict[str, list[list[list[float]]]] = defaultdict(list)
    plans = {
        value: plan(
            make_model,
            base=base,
            target={**base, axis: value},
            scheme=scheme,
            optimizer=optimizer,
            multipliers=multipliers,
            overrides=overrides,
        )
        for value in sorted(set(values))
    }
    largest = plans[max(plans)]
    watched = {
        entry.pool: entry.role
        for entry in largest.entries
        if entry.role in ("input", "block") and not entry.vector and "branch's m^-alpha is in here" not in entry.where
    }
    for value, chosen in plans.items():
        runs = []
        for seed in range(seeds):
            model = build_real(make_model, {**base, axis: value}, seed)
            chosen.initialize_(model)
            optimizers = make_optimizers(chosen, model, lr=lr, **settings)
            runs.append(_run(_modules(chosen, watched, model), model, optimizers, batch, loss, steps))
        for quantity in runs[0]:
            found[quantity, "start"].append([run[quantity][0] for run in runs])
            found[quantity, "change"].append([run[quantity][-1] for run in runs])
            by_step[quantity].append([run[quantity][1:] for run in runs])
    sizes = [float(value) for value in plans]
    order = list(QUANTITIES)
    ordered = sorted(found.items(), key=lambda item: (item[0][1] != "start", order.index(item[0][0])))
    wide = any(entry.shape != entry.base_shape for entry in largest.entries)
    slopes = [
        _slope(quantity, when, sizes, np.array(rows), _expected(largest.scheme, quantity, when, wide), tolerance)
        for (quantity, when), rows in ordered
        if np.all(np.array(rows) > 0)
    ]
    return CoordinateCheck(axis, sizes, steps, tolerance, slopes, {name: np.array(v) for name, v in by_step.items()})


def _expected(scheme: Scheme, quantity: str, when: str, wide: bool) -> float:
    """Features and what training changes keep their size. muP's output starts smaller: n random terms of size 1/n."""
    return -0.5 if quantity == "output" and when == "start" and wide and scheme.width == "mup" else 0.0


def _run(
    names: Mapping[str, str],
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    batch: Any,
    loss: Callable[[nn.Module, Any], Tensor],
    steps: int,
) -> dict[str, list[float]]:
    """Root mean square of each quantity at the start, then of its change after every step.

    `names` has the modules to watch, and which quantity each belongs to.
    """
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            seen[name] = first_tensor(output).detach().float().clone()

        return hook

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    start: dict[str, Tensor] = {}
    sizes: dict[str, list[float]] = defaultdict(list)
    model.train()
    for step in range(steps + 1):
        value = loss(model, batch)
        if not torch.isfinite(value):
            raise LazyrichError(
                "lr", f"training diverged at step {step}", "take a lower rate: slopes need small changes"
            )
        start = start or dict(seen)
        squares: dict[str, list[float]] = defaultdict(list)
        for name, output in seen.items():
            moved = output if step == 0 else output - start[name]
            squares[names[name]].append(float(moved.square().mean()))
        for quantity, parts in squares.items():
            sizes[quantity].append(math.sqrt(sum(parts) / len(parts)))
        for each in optimizers:
            each.zero_grad(set_to_none=True)
        value.backward()
        for each in optimizers:
            each.step()
    for handle in handles:
        handle.remove()
    return dict(sizes)


def _modules(chosen: Plan, watched: Mapping[str, str], model: nn.Module) -> dict[str, str]:
    """Modules to watch, and which quantity each belongs to."""
    found: dict[str, str] = {}
    for entry in chosen.entries:
        module = entry.name.rpartition(".")[0]
        if entry.pool in watched and next(model.get_submodule(module).children(), None) is None:
            found[module] = watched[entry.pool]
    # of each stack the last block: what the others have changed adds up in it
    found |= {name: "stream" for name in {name.rpartition(".")[0]: name for name in chosen.blocks}.values()}
    return {**found, "": "output"}


def _slope(
    quantity: str, when: str, sizes: Sequence[float], values: np.ndarray, expected: float, tolerance: float
) -> Slope:
    each = np.polyfit(np.log(sizes), np.log(values), 1)[0]  # one for each seed
    # W_0 dx of a random readout falls as size^-1/2 beside dW x, which keeps its size
    falling = 0.5 if (quantity, when) == ("output", "change") else 0.0
    half = stats.t.ppf(0.5 + _COVERED / 2, len(each) - 1) * each.std(ddof=1) / math.sqrt(len(each))
    mean = float(each.mean())
    low, high = mean - float(half), mean + float(half)
    if expected - tolerance <= low and high <= expected + tolerance:
        verdict = "pass"
    elif high < expected - tolerance - falling or low > expected + tolerance:
        verdict = "fail"
    else:
        verdict = "undetermined"
    return Slope(quantity, when, mean, (low, high), expected, verdict, values)


def _figure(check: CoordinateCheck) -> Any:
    from matplotlib.figure import Figure

    from lazyrich.plots import COLOURS, MARKERS, finish

    figure = Figure(figsize=(11.8, 4.4), layout="constrained")
    panels: dict[str, Any] = dict(zip(("start", "change"), figure.subplots(1, 2, sharex=True), strict=True))
    order = list(QUANTITIES)
    for slope in check.slopes:
        axes, index = panels[slope.when], order.index(slope.quantity)
        mean = np.exp(np.log(slope.values).mean(axis=1))
        spread = np.exp(np.log(slope.values).std(axis=1, ddof=1))
        colour, sizes = COLOURS[index], np.array(check.sizes)
        axes.errorbar(sizes, mean, [mean - mean / spread, mean * spread - mean], color=colour, marker=MARKERS[index],
                      capsize=3, label=f"{slope.quantity}: {slope.slope:+.2f} ({slope.verdict})")  # fmt: skip
        axes.plot(sizes, mean[0] * (sizes / sizes[0]) ** slope.expected, color=colour, linestyle=":", linewidth=1.2)
    titles = {"start": "at the start", "change": f"change after {check.steps} steps"}
    for when, axes in panels.items():
        axes.set(xscale="log", xlabel=check.axis, ylabel="root mean square", title=f"{titles[when]} (dotted: expected)")
        finish(axes, logarithmic=True)
        axes.set_xticks(check.sizes, [f"{size:g}" for size in check.sizes])
        axes.minorticks_off()
        axes.legend(frameon=False, fontsize="small")
    return figure
