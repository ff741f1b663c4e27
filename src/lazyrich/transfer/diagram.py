"""A phase diagram from study to table: a grid of matrix problems, refined along the boundary of phases."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem.diagram import MatrixStudy, even, whole
from lazyrich.problem.matrix import MatrixProblem
from lazyrich.provenance import provenance
from lazyrich.trajectory import plain
from lazyrich.transfer.cells import code_version, content_key, file_hash
from lazyrich.transfer.cluster import Workers
from lazyrich.transfer.engine import run_cells
from lazyrich.transfer.store import ResultStore
from lazyrich.transfer.sweep import column, save_table

if TYPE_CHECKING:
    import xarray

# A square of the grid is halved where the logarithm of the best error differs by this part of its whole range.
_STEEP = 0.15
Point = tuple[Any, ...]


@dataclass(frozen=True)
class MatrixCell:
    """One run of a matrix problem; plain values only, so that it travels to any worker and has a key.

    Attributes
    ----------
    problem : dict
        The tables of a problem.
    by : str
        ``"network"``, ``"law"`` or ``"both"``.
    signal_block : bool
    data : str
        Hash of the matrix file's content, if there is one.
    """

    problem: dict[str, Any]
    by: Literal["network", "law", "both"]
    signal_block: bool
    data: str = ""

    def key(self) -> str:
        """A name for the result: a hash of everything that decides it, the code's version included."""
        return content_key({**asdict(self), "code": code_version()})

    def execute(self) -> dict[str, np.ndarray]:
        """Do the work; see :func:`lazyrich.mixed_dynamics.point.measure_point`."""
        from lazyrich.mixed_dynamics.point import measure_point

        started = time.perf_counter()
        found = measure_point(MatrixProblem(**self.problem), self.by, signal_block=self.signal_block)
        return {**found, "seconds": np.asarray(time.perf_counter() - started)}


@dataclass(frozen=True)
class PhaseDiagram:
    """All runs of a diagram.

    Attributes
    ----------
    study : MatrixStudy
    axes : tuple of str
        Keys of the problem.
    rows : list of dict
        One for every point and seed: values of the axes, ``seed``, and what was measured.
    """

    study: MatrixStudy
    axes: tuple[str, ...]
    rows: list[dict[str, Any]]

    @property
    def methods(self) -> list[str]:
        """``"network"``, ``"law"`` or both."""
        return [method for method in ("network", "law") if f"{method}_best_error" in self.rows[0]]

    def to_dataset(self) -> xarray.Dataset:
        """One table, a row for every point and seed."""
        import xarray

        return xarray.Dataset({name: ("row", column([row[name] for row in self.rows])) for name in self.rows[0]})

    def save(self, path: str | Path) -> None:
        """Write the table to a NetCDF, CSV or Parquet file, by its ending."""
        save_table(self.to_dataset(), path)

    def to_json(self) -> dict[str, Any]:
        """Means of every point and the boundary, as plain values."""
        points = [{key: plain(value) for key, value in row.items()} for row in self.means()]
        return {"axes": list(self.axes), "points": points, "boundary": self.boundary(), "versions": provenance()}

    def means(self) -> list[dict[str, Any]]:
        """One row per point: means over seeds, and ``.._sem`` of the best errors where there are several."""
        found = []
        for point, rows in itertools.groupby(self.rows, key=lambda row: tuple(row[axis] for axis in self.axes)):
            group = list(rows)
            mean: dict[str, Any] = dict(zip(self.axes, point, strict=True))
            for name in group[0]:
                if name not in (*self.axes, "seed"):
                    mean[name] = float(np.mean([row[name] for row in group]))
            for method in self.methods if len(group) > 1 else ():
                values = [row[f"{method}_best_error"] for row in group]
                mean[f"{method}_best_error_sem"] = float(np.std(values, ddof=1) / np.sqrt(len(values)))
            found.append(mean)
        return found

    def boundary(self) -> dict[str, float] | None:
        """The contour of the best error between lazy and active, as a line ``y = offset + slope x``.

        Returns
        -------
        dict or None
            ``level``, ``slope``, ``offset``, ``points`` (places where the contour crosses the grid) and ``spread``
            (root mean square distance from the line, in y); None where it crosses in fewer than three places, or the
            axes are not two numbers.
        """
        if not self.numeric:
            return None
        x, y, error = self.coordinates()
        level = self.study.diagram.level if self.study.diagram else None  # pyright: ignore[reportOptionalMemberAccess]
        known = error[np.isfinite(error)]
        if not len(known):
            return None
        level = level or float(np.sqrt(known.min() * known.max()))
        places = _crossings(x, y, np.log(error / level))
        if len(places) < 3:
            return None
        across, along = np.asarray(places).T
        slope, offset = np.polyfit(across, along, 1)
        spread = float(np.sqrt(np.mean((along - offset - slope * across) ** 2)))
        return {"level": level, "slope": float(slope), "offset": float(offset), "points": len(places), "spread": spread}

    @property
    def numeric(self) -> bool:
        """Whether there are two axes of different numbers, which can be drawn as a plane."""
        columns = [[row[axis] for row in self.rows] for axis in self.axes]
        return len(columns) == 2 and all(
            len(set(values)) > 1 and all(isinstance(v, int | float) and (even(axis) or v > 0) for v in values)
            for axis, values in zip(self.axes, columns, strict=True)
        )

    def coordinates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both axes, sizes by their logarithm to base 10, and the best error; one entry per point."""
        means = self.means()
        x, y = (
            np.asarray([row[axis] if even(axis) else np.log10(row[axis]) for row in means], float) for axis in self.axes
        )
        return x, y, np.asarray([row[f"{self.methods[0]}_best_error"] for row in means])


def _crossings(x: np.ndarray, y: np.ndarray, height: np.ndarray) -> list[tuple[float, float]]:
    """Where `height` changes sign between neighbours in x of the same y."""
    found = []
    for value in np.unique(y):
        row = np.flatnonzero(y == value)
        row = row[np.argsort(x[row])]
        for low, high in itertools.pairwise(row):
            if np.isfinite(height[[low, high]]).all() and (height[low] < 0) != (height[high] < 0):
                share = height[low] / (height[low] - height[high])
                found.append((float(x[low] + share * (x[high] - x[low])), float(value)))
    return found


def phase_diagram(
    study: MatrixStudy,
    folder: str | Path,
    *,
    name: str = "diagram",
    workers: int | Workers | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int], object] | None = None,
    announce: Callable[[str], object] | None = None,
) -> PhaseDiagram:
    """Run every point of a study's ``[diagram]``, or read those that are in `folder` already.

    Parameters
    ----------
    study : MatrixStudy
    folder : str or Path
        Where every finished run is kept; what was ended is continued from there.
    name : str
        The study's name; a folder belongs to one study.
    workers, scheduler, progress, announce
        See :func:`lazyrich.transfer.engine.run_cells`.

    Raises
    ------
    LazyrichError
        For a study without diagram, axes that cannot be refined, or a point whose problem is wrong.
    """
    diagram = study.diagram
    if diagram is None:
        raise LazyrichError("diagram", "missing", "add a [diagram] table with axes")
    if study.matrix.cost == "custom":
        raise LazyrichError("matrix.cost", "a function cannot be sent to workers", "choose another cost")
    axes = diagram.values()
    store = ResultStore(Path(folder), name)
    points: list[Point] = list(itertools.product(*axes.values()))
    plane = _Plane(study, list(axes)) if diagram.refine else None
    squares = plane.squares(list(axes.values())) if plane else []
    rows: dict[Point, list[dict[str, Any]]] = {}
    for refinement in range(diagram.refine + 1):
        new = [point for point in dict.fromkeys(points) if point not in rows]
        cells = [cell for point in new for cell in _cells(study, dict(zip(axes, point, strict=True)))]
        results = run_cells(cells, store, workers=workers, scheduler=scheduler, progress=progress, announce=announce)
        for index, point in enumerate(new):
            group = results[index * diagram.seeds : (index + 1) * diagram.seeds]
            rows[point] = [
                dict(zip(axes, point, strict=True))
                | {"seed": cells[index * diagram.seeds + number].problem["training"]["seed"]}
                | {key: float(value) for key, value in result.items()}
                for number, result in enumerate(group)
            ]
        if plane is not None and refinement < diagram.refine:
            points, squares = plane.halved(squares, rows)
    ordered = sorted(rows, key=lambda point: tuple((isinstance(v, str), v) for v in point)) if plane else list(rows)
    return PhaseDiagram(study, tuple(axes), [row for point in ordered for row in rows[point]])


def _cells(study: MatrixStudy, values: dict[str, Any]) -> list[MatrixCell]:
    diagram = study.diagram
    assert diagram is not None
    try:
        problem = study.problem.with_values(values)
    except LazyrichError as error:
        raise error.inside("diagram.axes", joint=": ") from None
    paths = [problem.matrix.inputs, problem.matrix.outputs, problem.matrix.target and problem.matrix.target.path]
    data = "".join(file_hash(path) for path in paths if path)
    seeds = [problem.training.seed + number for number in range(diagram.seeds)]
    return [
        MatrixCell(problem.with_values({"training.seed": seed}).to_dict(), diagram.by, diagram.signal_block, data)
        for seed in seeds
    ]


@dataclass(frozen=True)
class _Plane:
    """Squares of a grid of two axes, halved where the best error changes most."""

    study: MatrixStudy
    axes: list[str]

    def squares(self, values: list[list[Any]]) -> list[tuple[Any, Any, Any, Any]]:
        """All squares of the first grid."""
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for axis in values for v in axis)
        if len(values) != 2 or not numbers:
            raise LazyrichError("diagram.refine", "needs two axes of numbers", "remove it, or change the axes")
        x, y = (sorted(set(axis)) for axis in values)
        return [(a, b, c, d) for a, b in itertools.pairwise(x) for c, d in itertools.pairwise(y)]

    def halved(
        self, squares: list[tuple[Any, Any, Any, Any]], rows: dict[Point, list[dict[str, Any]]]
    ) -> tuple[list[Point], list[tuple[Any, Any, Any, Any]]]:
        """New points inside steep squares, and the smaller squares."""
        method = "law" if self.study.diagram and self.study.diagram.by == "law" else "network"
        height = {
            point: np.log(np.mean([row[f"{method}_best_error"] for row in group])) for point, group in rows.items()
        }
        finite = [value for value in height.values() if np.isfinite(value)]
        if not finite:
            return [], []
        steep = _STEEP * (max(finite) - min(finite))
        points: list[Point] = []
        smaller = []
        for a, b, c, d in squares:
            corners = [height[point] for point in itertools.product((a, b), (c, d))]
            if not np.isfinite(corners).all() or max(corners) - min(corners) <= steep:
                continue
            x = [a, self._middle(0, a, b), b]
            y = [c, self._middle(1, c, d), d]
            points += list(itertools.product(x, y))
            smaller += [(*p, *q) for p in itertools.pairwise(x) for q in itertools.pairwise(y)]
        return points, smaller

    def _middle(self, axis: int, low: float, high: float) -> float:
        name = self.axes[axis]
        if even(name) or low <= 0:
            return 0.5 * (low + high)
        middle = float(np.sqrt(low * high))
        return float(round(middle)) if whole(name) else middle
