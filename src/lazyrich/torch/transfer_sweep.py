"""Learning-rate sweeps of a PyTorch model over sizes and settings, on the transfer engine."""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from lazyrich.errors import LazyrichError
from lazyrich.torch.plan import Plan
from lazyrich.torch.planning import build_real, plan
from lazyrich.torch.training import SCHEDULES, make_optimizers, train
from lazyrich.transfer.analysis import Analysis, analyse
from lazyrich.transfer.engine import run_cells
from lazyrich.transfer.report import best_rows, move_rows, report_page, verdict
from lazyrich.transfer.store import ResultStore
from lazyrich.transfer.sweep import Grid, Point, Sweep

# Axes that are settings of the training or of the plan; all others are arguments of make_model.
SETTINGS = ("scheme", "optimizer", "steps", "schedule", "warmup", "weight_decay", "decay", "momentum", "eps")


@dataclass(frozen=True)
class TorchCell:
    """One size, one setting and one learning rate, with all its seeds.

    Attributes
    ----------
    make_model, data, loss : callable
        Importable ones; their source is part of the key.
    size : dict
        Arguments of `make_model`.
    plan : Plan
    rate : float
    steps : int
    at : tuple of int
        Numbers of steps after which the loss on the evaluation batch is read.
    seeds : int
    evaluation : int
        ``data(-1 - k, seed 0)`` for k below this are the batches that are held out.
    settings : dict
        Of :func:`lazyrich.torch.training.make_optimizers`, and ``schedule`` and ``warmup``.
    """

    make_model: Callable[..., nn.Module]
    data: Callable[[int, int], Any]
    loss: Callable[[nn.Module, Any], Tensor]
    size: Mapping[str, Any]
    plan: Plan
    rate: float
    steps: int
    at: tuple[int, ...]
    seeds: int
    evaluation: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def key(self) -> str:
        """A name for the result: a hash of everything that decides it, sources and versions included."""
        from lazyrich import __version__

        content = {
            "functions": [fingerprint(each) for each in (self.make_model, self.data, self.loss)],
            "numbers": [
                dict(self.size),
                self.rate,
                self.steps,
                self.at,
                self.seeds,
                self.evaluation,
                dict(self.settings),
            ],
            "plan": self.plan.to_json(),
            "versions": [__version__, torch.__version__, _own_code()],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()[:32]

    def execute(self) -> dict[str, np.ndarray]:
        """Train.

        Returns
        -------
        dict of ndarray
            ``losses``, shape (at, seeds), NaN where training had diverged; ``diverged``, shape (seeds,), the step or
            -1; ``seconds``.
        """
        started, threads = time.perf_counter(), torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            runs = [self._one(seed) for seed in range(self.seeds)]
        finally:
            torch.set_num_threads(threads)
        return {
            "losses": np.array([losses for losses, _ in runs]).T,
            "diverged": np.array([step for _, step in runs]),
            "seconds": np.asarray(time.perf_counter() - started),
        }

    def _one(self, seed: int) -> tuple[list[float], int]:
        options = dict(self.settings)
        schedule = {key: options.pop(key) for key in ("schedule", "warmup") if key in options}
        model = build_real(self.make_model, self.size, seed)
        self.plan.initialize_(model)
        optimizers = make_optimizers(self.plan, model, lr=self.rate, **options)
        read: dict[int, float] = {}

        def after(made: int) -> None:
            if made in self.at:
                read[made] = self._held_out(model)

        diverged = train(model, optimizers, self.data, self.loss, steps=self.steps, seed=seed, after=after, **schedule)
        losses = [read.get(step, np.nan) for step in self.at]
        if diverged < 0 and not np.all(np.isfinite(losses)):
            diverged = self.steps - 1
        return [loss if np.isfinite(loss) else np.nan for loss in losses], diverged

    def _held_out(self, model: nn.Module) -> float:
        model.eval()
        with torch.no_grad():
            losses = [float(self.loss(model, self.data(-1 - index, 0))) for index in range(self.evaluation)]
        model.train()
        return float(np.mean(losses))


def fingerprint(function: Any) -> str:
    """A text that identifies a function and the file that it is in, the same in every process.

    Raises
    ------
    LazyrichError
        For a function that another process cannot import.
    """
    if isinstance(function, functools.partial):
        keywords = sorted(function.keywords.items())
        return f"{fingerprint(function.func)}({function.args!r}, {keywords!r})"
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if "<" in name:
        raise LazyrichError(name, "cannot be found by a worker process", "define it at the top level of a module")
    try:
        source = Path(inspect.getsourcefile(function) or "").read_bytes()
    except (TypeError, OSError):
        source = b""
    return f"{name}:{hashlib.sha256(source).hexdigest()[:16]}"


@functools.cache
def _own_code() -> str:
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.py"), *(folder.parent / "problem").glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class TransferSweep:
    """The outcome of a sweep.

    Attributes
    ----------
    sweep : Sweep
        Every loss.
    analysis : Analysis
        Best rates with intervals, shifts, regrets, trends.
    description : str
        What was run, for the report.
    """

    sweep: Sweep
    analysis: Analysis
    description: str

    def __str__(self) -> str:
        lines = [verdict(trend) for trend in self.analysis.trends]
        for rows in (best_rows(self.analysis.best), move_rows(self.analysis.moves)):
            if len(rows) > 1:
                widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
                lines += ["", *("  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)) for row in rows)]
        return "\n".join(lines)

    def plot(self, path: str | Path) -> None:
        """Write a figure of the losses over the rates, with interpolated minima and their intervals."""
        from lazyrich.plots import save_figure
        from lazyrich.transfer.figures import plot_losses

        save_figure(plot_losses(self.analysis), path)

    def report(self, path: str | Path, command: str = "") -> None:
        """Write one HTML page with everything."""
        from lazyrich.storage import write_whole

        page = report_page(
            self.analysis, title=self.sweep_name, study_text=self.description, command=command, notes=self.sweep.notes
        )
        write_whole(path, page.encode())

    @property
    def sweep_name(self) -> str:
        """The name that the sweep was given."""
        return self.description.partition("\n")[0]


def transfer_sweep(
    make_model: Callable[..., nn.Module],
    data: Callable[[int, int], Any],
    sizes: Mapping[str, Sequence[Any]],
    rates: Sequence[float],
    *,
    loss: Callable[[nn.Module, Any], Tensor],
    steps: int,
    folder: str | Path,
    base: Mapping[str, Any] | None = None,
    at: Sequence[int] | None = None,
    seeds: int = 3,
    evaluation: int = 4,
    scheme: str = "complete-p",
    optimizer: str = "adamw",
    decay: str = "with-rate",
    multipliers: Mapping[str, str | None] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    name: str = "sweep",
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int], object] | None = None,
    **settings: Any,
) -> TransferSweep:
    """Train a model at every combination of sizes and rates; say where the best rate is and whether it moves.

    Parameters
    ----------
    make_model, data, loss : callable
        ``make_model(**size)``, ``data(step, seed)`` with negative steps for held-out batches, ``loss(model, batch)``.
        At the top level of a module, since workers import them.
    sizes : dict
        Axis to values, the base first: arguments of `make_model`, or settings: ``scheme``, ``optimizer``, ``steps``,
        ``schedule``, ``warmup``, ``weight_decay``, ``decay``, ``momentum``, ``eps``. All combinations are run.
    rates : sequence of float
        Of the base model; the plan makes of them what each size needs.
    steps : int
        The horizon; an axis too, by itself or by several `at`.
    folder : str or Path
        Finished cells are kept here; a sweep that was ended goes on from there.
    base : dict, optional
        Arguments of `make_model` at the base. Default: the first value of each axis.
    at : sequence of int, optional
        After how many steps the held-out loss is read. Default: the last.
    seeds, evaluation : int
        Models per rate, and held-out batches.
    scheme, optimizer, decay, multipliers, overrides
        See :func:`lazyrich.torch.plan`.
    name : str
        A folder belongs to one sweep.
    workers, scheduler, progress
        See :func:`lazyrich.transfer.engine.run_cells`.
    **settings
        ``schedule``, ``warmup``, ``weight_decay``, ``eps``, ``momentum``, ``betas``, ``companion_lr``.

    Returns
    -------
    TransferSweep
    """
    axes = {axis: list(values) for axis, values in sizes.items()}
    rates = sorted({float(rate) for rate in rates})
    if len(rates) < 2 or rates[0] <= 0 or not axes or not all(axes.values()):
        raise LazyrichError("rates", "a sweep needs two positive rates and an axis", "give rates and sizes")
    fixed = {"scheme": scheme, "optimizer": optimizer, "decay": decay, "steps": steps, **settings}
    first = {axis: values[0] for axis, values in axes.items() if axis not in SETTINGS}
    base = {**first, **(base or {})}
    for schedule in axes.get("schedule", [fixed.get("schedule", "constant")]):
        if schedule not in SCHEDULES:
            raise LazyrichError("schedule", f"{schedule!r} is not known", f"choose one of {', '.join(SCHEDULES)}")
    plans: dict[str, Plan] = {}
    points, cells, places = [], [], []
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        chosen = {**fixed, **{key: value for key, value in point.items() if key in SETTINGS}}
        size = {**base, **{key: value for key, value in point.items() if key not in SETTINGS}}
        kind = {key: chosen.pop(key) for key in ("scheme", "optimizer", "decay")}
        horizon = int(chosen.pop("steps"))
        read = tuple(sorted(set(at))) if at is not None else (horizon,)
        if not 0 < min(read) <= max(read) <= horizon:
            raise LazyrichError("at", f"{read} are not steps from 1 to {horizon}", "read the loss while training lasts")
        key = repr((size, kind))
        if key not in plans:
            plans[key] = plan(
                make_model,
                base=base,
                target=size,
                multipliers=multipliers,
                overrides=overrides,
                **kind,
            )
        # the analysis knows an axis of this name, along which the step that is read moves too
        labels = {"training.steps" if axis == "steps" else axis: value for axis, value in point.items()}
        points.append(Point(labels, cast(Any, None), read))
        for rate in rates:
            cells.append(
                TorchCell(make_model, data, loss, size, plans[key], rate, horizon, read, seeds, evaluation, chosen)
            )
            places.append(len(points) - 1)
    results = run_cells(cells, ResultStore(Path(folder), name), workers=workers, scheduler=scheduler, progress=progress)
    grids = _grids(places, results, rates)
    seconds = float(sum(float(result["seconds"]) for result in results))
    # the analysis reads nothing of a study but its axes and targets
    labelled = {"training.steps" if axis == "steps" else axis: values for axis, values in axes.items()}
    study = cast(Any, SimpleNamespace(transfer=SimpleNamespace(axes=labelled, targets={})))
    sweep = Sweep(study, points, [], grids, {"theory": 0.0, "training": seconds})
    description = json.dumps(
        {
            "base": base,
            "axes": axes,
            "rates": rates,
            "seeds": seeds,
            "evaluation": evaluation,
            **fixed,
            "torch": str(torch.__version__),
        },
        indent=1,
        default=repr,
    )
    return TransferSweep(sweep, analyse(sweep), f"{name}\n{description}")


def _grids(
    places: Sequence[int], results: Sequence[Mapping[str, np.ndarray]], rates: Sequence[float]
) -> dict[tuple[int, Any], Grid]:
    grouped: dict[int, list[Mapping[str, np.ndarray]]] = defaultdict(list)
    for position, result in zip(places, results, strict=True):
        grouped[position].append(result)
    return {
        (position, "training"): Grid(
            np.asarray(rates),
            np.array([each["losses"] for each in found]),
            np.array([each["diverged"] for each in found]),
        )
        for position, found in grouped.items()
    }
