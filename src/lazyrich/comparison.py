"""Prediction against training: differences, z-scores, and one line that says how well they agree."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.fields import ACCURACIES, CURVES, LOSSES
from lazyrich.storage import write_whole
from lazyrich.trajectory import Trajectory, plain

if TYPE_CHECKING:
    import xarray

FORMAT = "lazyrich comparison 1"


@dataclass(frozen=True)
class Comparison:
    """A prediction beside the training of networks of the same problem.

    Attributes
    ----------
    predicted, trained : Trajectory
    label : str
        What sets this problem apart from others in the same study, e.g. ``"width = 64"``.
    data : xarray.Dataset
        For each curve that both have, losses, those of averages of networks, and accuracies: ``.._difference`` (step),
        trained minus predicted, and ``.._z`` (step), the difference in standard errors of the trained mean.
    """

    predicted: Trajectory
    trained: Trajectory
    label: str = ""
    data: xarray.Dataset = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _differences(self.predicted, self.trained))

    @property
    def curves(self) -> list[str]:
        """Names of all curves that were compared: losses, those of averages of networks, accuracies."""
        return [str(name)[: -len("_z")] for name in self.data if str(name).endswith("_z")]

    @property
    def losses(self) -> list[str]:
        """Names of the losses that were compared."""
        return [name for name in self.curves if name in LOSSES]

    def largest_z(self, curve: str = "train_loss") -> float:
        """The largest absolute z-score over all steps that both reached."""
        return float(np.nanmax(np.abs(self.data[f"{curve}_z"].values), initial=0.0))

    def mean_z(self, curve: str = "train_loss") -> float:
        """The mean absolute z-score over all steps that both reached."""
        values = np.abs(self.data[f"{curve}_z"].values)
        return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0

    def calibration(self, part: str = "train", steps: slice = slice(None), bins: int = 10) -> xarray.Dataset:
        """How often networks were right where theory gave so much of a chance.

        Samples at all chosen steps are sorted into bins of equal width by the predicted probability that a network
        names their class.

        Parameters
        ----------
        part : str
            ``"train"``, or ``"test"`` for the held-out samples.
        steps : slice
            Which steps; default: all.
        bins : int

        Returns
        -------
        xarray.Dataset
            Over the bins that hold samples: ``predicted`` and ``trained``, the mean predicted probability and the part
            of the networks that were right, and ``count``, how many pairs of sample and step; its attribute ``error``
            is the mean distance of the two, weighted by the counts.

        Raises
        ------
        LazyrichError
            For data without classes or without such a part.
        """
        import xarray

        name = f"{part}_correct"
        if name not in self.predicted.data or name not in self.trained.data:
            raise LazyrichError("calibration", f"there are no {part} samples with classes", "give data with classes")
        predicted, trained = (t.data[name].values[steps].ravel() for t in (self.predicted, self.trained))
        reached = np.isfinite(predicted) & np.isfinite(trained)
        predicted, trained = predicted[reached], trained[reached]
        of_bin = np.minimum((predicted * bins).astype(int), bins - 1)
        counts = np.bincount(of_bin, minlength=bins)
        filled = counts > 0
        means = [
            np.bincount(of_bin, values, minlength=bins)[filled] / counts[filled] for values in (predicted, trained)
        ]
        distance = np.abs(means[1] - means[0]) @ counts[filled] / max(len(predicted), 1)
        return xarray.Dataset(
            {"predicted": ("bin", means[0]), "trained": ("bin", means[1]), "count": ("bin", counts[filled])},
            {"bin": np.flatnonzero(filled)},
            {"error": float(distance), "part": part},
        )

    def summary(self) -> str:
        """How far theory and training are apart, in one line."""
        networks = self.trained.statistics["networks"]
        parts = []
        for curve in self.curves:
            apart = np.abs(self.data[f"{curve}_difference"].values)
            if curve not in ACCURACIES:
                apart = apart / self.predicted.data[curve].values
            if not np.isfinite(apart).any():
                continue
            z = np.abs(self.data[f"{curve}_z"].values)
            unit = " points" if curve in ACCURACIES else "%"
            text = f"{curve.replace('_', ' ')} apart by at most {100 * np.nanmax(apart):.1f}{unit}"
            if np.isfinite(z).any():
                place, times = int(np.nanargmax(z)), self.trained.times
                where = f"step {place}" if times is None else f"time {times[place]:.3g}"
                text += f", |z| at most {np.nanmax(z):.1f} ({where}), {np.nanmean(z):.1f} on average"
            parts.append(text)
        endings = [
            f"{name} {trajectory.outcome}"
            for name, trajectory in (("theory", self.predicted), ("training", self.trained))
            if trajectory.outcome.kind != "finished"
        ]
        start = f"{self.label}: " if self.label else ""
        return f"{start}{networks} networks; " + "; ".join(parts + endings)

    def to_json(self) -> dict[str, Any]:
        """Both trajectories, the z-scores and the summary, with None where there is no number."""
        return {
            "label": self.label,
            "predicted": self.predicted.to_json(),
            "trained": self.trained.to_json(),
            **{str(name): plain(values.values) for name, values in self.data.items()},
            "summary": self.summary(),
        }

    def plot(self, path: str | Path | None = None) -> Any:
        """Figure of both curves and the z-scores; written if a path is given. Returns the matplotlib figure."""
        return plot_all([self], path)

    def save(self, path: str | Path) -> None:
        """Write a NetCDF file, whole or not at all; read it with :func:`load_comparisons`."""
        save_comparisons([self], path)


def compare(predicted: Trajectory, trained: Trajectory, label: str = "") -> Comparison:
    """Set a prediction beside trained networks.

    Parameters
    ----------
    predicted, trained : Trajectory
        Of problems that differ in nothing but the seed.
    label : str
        A name for figures and summaries.

    Returns
    -------
    Comparison

    Raises
    ------
    LazyrichError
        When the two are not a prediction and a training of the same problem.

    Examples
    --------
    >>> import lazyrich
    >>> problem = lazyrich.Problem(
    ...     network=lazyrich.Network(width=60, blocks=0),
    ...     data=lazyrich.GaussianData(dimension=60, samples=120),
    ...     training=lazyrich.Training(steps=10, learning_rate=0.1),
    ... )
    >>> comparison = lazyrich.compare(lazyrich.predict(problem), lazyrich.train(problem, seeds=8))
    >>> comparison.largest_z("train_loss") < 5
    True
    """
    if predicted.source != "theory" or trained.source != "training":
        raise LazyrichError("compare", "needs a prediction and a training", "give predict's result, then train's")
    seed = {"training.seed": 0}
    if predicted.problem.with_values(seed) != trained.problem.with_values(seed):
        raise LazyrichError("compare", "the two problems differ", "predict and train the same problem")
    if trained.times is not None:
        predicted = _read_at(predicted, trained.times)
    elif len(predicted.steps) < len(trained.steps):  # predicted in strides
        trained = _at_steps(trained, predicted.steps)
    return Comparison(predicted, trained, label)


def _read_at(predicted: Trajectory, times: np.ndarray) -> Trajectory:
    """Curves of gradient flow at other times, by splines over the logarithm of time; kernels are left out."""
    import xarray
    from scipy.interpolate import CubicSpline

    assert predicted.times is not None  # of the same problem
    before, after = (np.log(each + predicted.times[1]) for each in (predicted.times, times))
    variables = {}
    for name, values in predicted.data.data_vars.items():
        if "step_prime" in values.dims:
            continue
        if "step" in values.dims:
            positive = "_loss" in str(name) and "_error" not in str(name)
            known = np.log(values.values) if positive else values.values
            read = CubicSpline(before, known, axis=values.dims.index("step"))(after)
            values = (values.dims, np.exp(read) if positive else read, values.attrs)
        variables[name] = values
    data = xarray.Dataset(variables, {"step": np.arange(len(times)), "time": ("step", times)})
    return dataclasses.replace(predicted, data=data)


def _at_steps(trained: Trajectory, steps: np.ndarray) -> Trajectory:
    places = {
        name: np.isin(trained.data[name], steps) for name in ("step", "step_prime") if name in trained.data.coords
    }
    return dataclasses.replace(trained, data=trained.data.isel(places))


def _differences(predicted: Trajectory, trained: Trajectory) -> xarray.Dataset:
    import xarray

    variables = {}
    for curve in CURVES:
        if curve in predicted.data and curve in trained.data:
            difference = trained.data[curve].values - predicted.data[curve].values
            sem = trained.data[f"{curve}_sem"].values
            z = np.divide(difference, sem, out=np.full_like(difference, np.nan), where=sem > 0)
            variables[f"{curve}_difference"] = ("step", difference)
            variables[f"{curve}_z"] = ("step", z)
    coordinates: dict[str, Any] = {"step": predicted.steps}
    if trained.times is not None:
        coordinates["time"] = ("step", trained.times)
    return xarray.Dataset(variables, coordinates)


def plot_all(comparisons: Sequence[Comparison], path: str | Path | None = None) -> Any:
    """One figure of several comparisons; written to a PNG or SVG file if a path is given."""
    from lazyrich.plots import plot_comparisons, save_figure

    figure = plot_comparisons(comparisons)
    if path is not None:
        save_figure(figure, path)
    return figure


def save_comparisons(comparisons: Sequence[Comparison], path: str | Path) -> None:
    """Write comparisons to one NetCDF file, a group each, whole or not at all.

    Raises
    ------
    LazyrichError
        When the file cannot be written.
    """
    import xarray

    nodes: dict[str, xarray.Dataset] = {"/": xarray.Dataset(attrs={"format": FORMAT})}
    for index, comparison in enumerate(comparisons):
        group = f"/comparison_{index}"
        nodes[group] = xarray.Dataset(attrs={"label": comparison.label, "summary": comparison.summary()})
        nodes[f"{group}/predicted"] = comparison.predicted.to_dataset()
        nodes[f"{group}/trained"] = comparison.trained.to_dataset()
        nodes[f"{group}/difference"] = comparison.data
    write_whole(path, xarray.DataTree.from_dict(nodes).to_netcdf(engine="h5netcdf"))


def load_comparisons(path: str | Path) -> list[Comparison]:
    """Read what :func:`save_comparisons` wrote.

    Raises
    ------
    LazyrichError
        When the file is missing or holds no comparisons.
    """
    import xarray

    if not Path(path).is_file():
        raise LazyrichError(str(path), "no such file", "check the name")
    try:
        with xarray.open_datatree(path, engine="h5netcdf") as tree:
            if tree.attrs.get("format") != FORMAT:
                raise KeyError(FORMAT)
            return [
                Comparison(
                    Trajectory.from_dataset(group.children["predicted"].to_dataset(inherit=False).load()),
                    Trajectory.from_dataset(group.children["trained"].to_dataset(inherit=False).load()),
                    group.attrs["label"],
                )
                for group in tree.children.values()
            ]
    except Exception:  # h5py and h5netcdf raise many kinds for a damaged file
        raise LazyrichError(str(path), "holds no comparisons", "give a file written by compare --output") from None
