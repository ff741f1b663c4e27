"""A transfer study from file to table: losses at every point of the axes and every learning rate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem import DatasetData, Problem
from lazyrich.problem.datasets import load_data
from lazyrich.problem.files import Judged, TrainedProblem, TrainedStudy, Transfer
from lazyrich.problem.residual import ResidualProblem
from lazyrich.storage import write_whole
from lazyrich.transfer.cells import Cell, data_hash
from lazyrich.transfer.cluster import Workers
from lazyrich.transfer.curves import grid_best
from lazyrich.transfer.engine import run_cells
from lazyrich.transfer.judging import TITLES, least_counted
from lazyrich.transfer.store import ResultStore

if TYPE_CHECKING:
    import xarray

Method = Literal["theory", "training"]
# Rates per cell: enough to share what they have in common, few enough to spread over workers and to lose little.
_RATES_PER_CELL = 8


@dataclass(frozen=True)
class Point:
    """One combination of the axes.

    Attributes
    ----------
    values : dict
        Axis to value.
    problem : Problem or ResidualProblem
    at : tuple of int
        Steps at which the loss is read.
    least : float
        Losses up to this are equally good; see :func:`lazyrich.transfer.judging.least_counted`.
    """

    values: dict[str, Any]
    problem: TrainedProblem
    at: tuple[int, ...]
    least: float = 0.0


@dataclass(frozen=True)
class Grid:
    """Losses of one method at one point.

    Attributes
    ----------
    rates : ndarray, shape (rates,), rising
    losses : ndarray, shape (rates, at, networks)
        NaN where the training had diverged; one network by theory.
    diverged : ndarray, shape (rates, networks)
        The step of divergence, or -1.
    """

    rates: np.ndarray
    losses: np.ndarray
    diverged: np.ndarray


@dataclass(frozen=True)
class Sweep:
    """All losses of a transfer study.

    Attributes
    ----------
    study : TrainedStudy
    points : list of Point
        The base first.
    grids : dict
        (position of the point, method) to its :class:`Grid`.
    targets : list of Point
        Sizes asked for but not run: there the theory alone answers, in grids whose positions follow those of `points`.
    seconds : dict
        Time that the cells of each method took, added up over workers.
    measured : str
        What the losses are, in words; they may be errors.
    """

    study: TrainedStudy
    points: list[Point]
    targets: list[Point]
    grids: dict[tuple[int, Method], Grid]
    seconds: dict[Method, float]
    measured: str = "loss"

    @property
    def notes(self) -> list[str]:
        """What the work took, as sentences."""
        parts = [f"{by}: {self.seconds[by]:.3g} s of computing" for by in self.methods]
        if len(parts) == 2 and self.seconds["theory"] > 0:
            parts.append(
                f"training took {self.seconds['training'] / self.seconds['theory']:.3g} times the theory's time"
            )
        return ["; ".join(parts)]

    @property
    def methods(self) -> list[Method]:
        """``"theory"``, ``"training"`` or both."""
        return [by for by in ("theory", "training") if (0, by) in self.grids]

    def save(self, path: str | Path) -> None:
        """Write the table to a NetCDF, CSV or Parquet file, by its ending.

        Raises
        ------
        LazyrichError
            When it cannot be written.
        """
        save_table(self.to_dataset(), path)

    def to_dataset(self) -> xarray.Dataset:
        """Everything in one table with a row for every (point, method, rate, step, network).

        Columns are the axes, ``by``, ``rate``, ``at``, ``network``, ``loss`` (NaN where diverged) and ``diverged`` (the
        step, or -1), in an order that does not depend on how the work was done.
        """
        import xarray

        columns: dict[str, list[Any]] = defaultdict(list)
        for (position, by), grid in sorted(self.grids.items()):
            if position >= len(self.points):
                continue
            point = self.points[position]
            for (rate, step, network), loss in np.ndenumerate(grid.losses):
                for axis, value in point.values.items():
                    columns[axis].append(value)
                columns["by"].append(by)
                columns["rate"].append(grid.rates[rate])
                columns["at"].append(point.at[step])
                columns["network"].append(network)
                columns["loss"].append(loss)
                columns["diverged"].append(grid.diverged[rate, network])
        return xarray.Dataset({name: ("row", column(values)) for name, values in columns.items()})


def save_table(table: xarray.Dataset, path: str | Path) -> None:
    """Write a table to a NetCDF, CSV or Parquet file, by its ending; whole or not at all."""
    match Path(path).suffix.lower():
        case ".nc":
            content = table.to_netcdf(engine="h5netcdf")
        case ".csv":
            content = table.to_dataframe().to_csv(index=False).encode()
        case _:
            content = table.to_dataframe().to_parquet(index=False)
    write_whole(path, content)


def column(values: list[Any]) -> np.ndarray:
    """Numbers as they are, anything else as text."""
    if all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in values):
        return np.asarray(values)
    return np.asarray([str(value) for value in values])


def run_sweep(
    study: TrainedStudy,
    folder: str | Path,
    *,
    name: str = "study",
    by: Literal["theory", "training", "both"] | None = None,
    workers: int | Workers | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int], object] | None = None,
    announce: Callable[[str], object] | None = None,
) -> Sweep:
    """Compute the losses of a transfer study, or read those that are in `folder` already.

    Parameters
    ----------
    study : TrainedStudy
        With a ``[transfer]`` table.
    folder : str or Path
        Where every finished cell is kept; a run that was ended is continued from there.
    name : str
        The study's name; a folder belongs to one study.
    by : str, optional
        Overrides ``transfer.by``.
    workers : int or Workers, optional
        Local processes; 1 works in this process. Default: all cores.
    scheduler : str, optional
        Address of a Dask cluster to use instead.
    progress : callable, optional
        Called with cells done and cells in all.
    announce : callable, optional
        Called with the link of Dask's dashboard, where it is on.

    Raises
    ------
    LazyrichError
        For a study without transfer table, a method that does not answer it, a step that is never reached, a loss that
        does not exist, a folder of another study, a scheduler that does not answer.
    """
    transfer = study.transfer
    if transfer is None:
        raise LazyrichError("transfer", "missing", "add a [transfer] table with rates and axes")
    chosen = by or transfer.by
    methods: list[Method] = ["theory", "training"] if chosen == "both" else [chosen]
    for method in methods:
        if method not in study.kind.methods:
            what = f"there is no {method} of this problem, a {study.kind.title}"
            raise LazyrichError("transfer.by", what, f"use {' or '.join(map(repr, study.kind.methods))}")
    points = plan_points(study)
    targets = plan_targets(study, points)
    everything = [*points, *targets]
    store = ResultStore(Path(folder), name)
    rates: dict[tuple[int, Method], list[float]] = {
        (position, method): transfer.rate_grid() for position in range(len(points)) for method in methods
    }
    rates |= {(position, "theory"): transfer.rate_grid() for position in range(len(points), len(everything))}
    grids: dict[tuple[int, Method], Grid] = {}
    seconds: dict[Method, float] = {"theory": 0.0, "training": 0.0}
    for refinement in range(transfer.refine + 1):
        cells, places = _plan_cells(everything, rates, transfer.loss, transfer.seeds)
        results = run_cells(cells, store, workers=workers, scheduler=scheduler, progress=progress, announce=announce)
        _collect(grids, everything, places, cells, results)
        for cell, result in zip(cells, results, strict=True):
            seconds[cell.by] += float(result["seconds"])
        if refinement < transfer.refine:
            between = {place: _between_best(grid, everything[place[0]].least) for place, grid in grids.items()}
            rates = {place: new for place, new in between.items() if new}
    return Sweep(study, points, targets, grids, seconds, TITLES[transfer.loss])


def _steps_read(transfer: Transfer, problem: TrainedProblem) -> tuple[int, ...]:
    return tuple(transfer.at) if transfer.at is not None else (problem.training.steps - 1,)


def _check_linear(problem: Problem) -> None:
    if problem.training.mode == "flow":
        what = "gradient flow has no best learning rate: it sets the unit of time"
        raise LazyrichError("training.mode", what, "set mode = 'full-batch' or 'population', and steps")
    if math.isinf(problem.network.blocks):
        what = "a best learning rate is sought at finite depths"
        raise LazyrichError("network.blocks", what, "give a number of blocks, e.g. 64")


def plan_points(study: TrainedStudy) -> list[Point]:
    """The points of a transfer study, checked."""
    transfer = study.transfer
    assert transfer is not None
    points = []
    for values, problem in study.transfer_points():
        if isinstance(problem, Problem):
            _check_linear(problem)
        at = _steps_read(transfer, problem)
        if max(at) >= problem.training.steps:
            what = f"step {max(at)} is not reached with training.steps = {problem.training.steps}"
            raise LazyrichError("transfer.at", what, "read the loss at earlier steps, or train longer")
        if isinstance(problem, ResidualProblem):
            from lazyrich.transfer.training_work import check_residual

            check_residual(problem)
        elif isinstance(problem.data, DatasetData):
            load_data(problem.data)  # a file that cannot be used is said before any work
        points.append(Point(values, problem, at, least_counted(problem, transfer.loss)))
    return points


def plan_targets(study: TrainedStudy, points: list[Point]) -> list[Point]:
    """The points of sizes that are asked for but not run: each target with every combination of the other axes.

    Without a theory there is nothing to do for them.
    """
    transfer = study.transfer
    assert transfer is not None
    if "theory" not in study.kind.methods:
        return []
    found: dict[str, Point] = {}
    for axis, target in transfer.targets.items():
        for point in points:
            values = point.values | {axis: target}
            problem = point.problem.with_values({axis: target})
            least = least_counted(problem, transfer.loss)
            found.setdefault(repr(values), Point(values, problem, _steps_read(transfer, problem), least))
    return list(found.values())


def _plan_cells(
    points: Sequence[Point], rates: dict[tuple[int, Method], list[float]], loss: Judged, seeds: int
) -> tuple[list[Cell], list[list[tuple[int, Method]]]]:
    """Cells, and for each the (point, method) pairs that read their losses from it.

    Points that differ in ``training.steps`` alone are one training seen for different times, if its rate is constant:
    they share cells.
    """
    groups: dict[tuple[str, Method, tuple[float, ...]], list[tuple[int, Method]]] = defaultdict(list)
    for (position, method), grid in rates.items():
        problem = points[position].problem
        shares = problem.training.schedule == "constant" and not isinstance(problem.training.learning_rate, list)
        shared = problem.with_values({"training.steps": 1}) if shares else problem
        groups[shared.model_dump_json(), method, tuple(grid)].append((position, method))
    cells, places = [], []
    for (_, method, grid), members in groups.items():
        longest = max((points[position].problem for position, _ in members), key=lambda each: each.training.steps)
        data = data_hash(longest)
        at = tuple(sorted({step for position, _ in members for step in points[position].at}))
        for part in np.array_split(grid, -(-len(grid) // _RATES_PER_CELL)):
            chunk = tuple(part.tolist())  # of one length as far as possible: programs are compiled for each
            cells.append(Cell(method, longest.to_dict(), chunk, at, loss, seeds if method == "training" else 0, data))
            places.append(members)
    return cells, places


def _collect(
    grids: dict[tuple[int, Method], Grid],
    points: Sequence[Point],
    places: list[list[tuple[int, Method]]],
    cells: list[Cell],
    results: list[dict[str, np.ndarray]],
) -> None:
    """Put the cells' results into the grids of their points, rates rising."""
    for cell, members, result in zip(cells, places, results, strict=True):
        for place in members:
            position, _ = place
            chosen = [cell.at.index(step) for step in points[position].at]
            # a training that diverged only after the last step that is read has not diverged for this point
            late = result["diverged"] >= points[position].problem.training.steps
            new = Grid(np.asarray(cell.rates), result["losses"][:, chosen], np.where(late, -1, result["diverged"]))
            grids[place] = _merged(grids[place], new) if place in grids else new


def _merged(one: Grid, other: Grid) -> Grid:
    rates = np.concatenate([one.rates, other.rates])
    order = np.argsort(rates, kind="stable")
    losses = np.concatenate([one.losses, other.losses])[order]
    return Grid(rates[order], losses, np.concatenate([one.diverged, other.diverged])[order])


def _between_best(grid: Grid, least: float) -> list[float]:
    """Rates in the middle of the gaps beside the best one, on a logarithmic scale, for any of the steps read."""
    mean = np.maximum(grid.losses.mean(axis=-1), least)
    new = set()
    for column in mean.T:
        if not np.isfinite(column).any():
            continue
        best = grid_best(np.where(np.isfinite(column), column, np.inf))
        for other in (best - 1, best + 1):
            if 0 <= other < len(column):
                new.add(float(np.sqrt(grid.rates[best] * grid.rates[other])))
    return sorted(new)
