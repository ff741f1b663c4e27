"""Prediction against training: differences, z-scores, and one line that says how well they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.errors import LazyrichError
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
        For each of ``train_loss`` and ``test_loss`` that both have: ``.._difference`` (step), trained minus predicted,
        and ``.._z`` (step), the difference in standard errors of the trained mean.
    """

    predicted: Trajectory
    trained: Trajectory
    label: str = ""
    data: xarray.Dataset = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _differences(self.predicted, self.trained))

    @property
    def losses(self) -> list[str]:
        """Names of the losses that were compared."""
        return [str(name)[: -len("_z")] for name in self.data if str(name).endswith("_z")]

    def largest_z(self, loss: str = "train_loss") -> float:
        """The largest absolute z-score over all steps that both reached."""
        return float(np.nanmax(np.abs(self.data[f"{loss}_z"].values), initial=0.0))

    def mean_z(self, loss: str = "train_loss") -> float:
        """The mean absolute z-score over all steps that both reached."""
        values = np.abs(self.data[f"{loss}_z"].values)
        return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0

    def summary(self) -> str:
        """How far theory and training are apart, in one line."""
        networks = self.trained.statistics["networks"]
        parts = []
        for loss in self.losses:
            predicted = self.predicted.data[loss].values
            relative = np.abs(self.data[f"{loss}_difference"].values / predicted)
            if not np.isfinite(relative).any():
                continue
            z = np.abs(self.data[f"{loss}_z"].values)
            text = f"{loss.replace('_', ' ')} apart by at most {np.nanmax(relative):.1%}"
            if np.isfinite(z).any():
                text += (
                    f", |z| at most {np.nanmax(z):.1f} (step {int(np.nanargmax(z))}), {np.nanmean(z):.1f} on average"
                )
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
    return Comparison(predicted, trained, label)


def _differences(predicted: Trajectory, trained: Trajectory) -> xarray.Dataset:
    import xarray

    variables = {}
    for loss in ("train_loss", "test_loss"):
        if loss in predicted.data and loss in trained.data:
            difference = trained.data[loss].values - predicted.data[loss].values
            sem = trained.data[f"{loss}_sem"].values
            z = np.divide(difference, sem, out=np.full_like(difference, np.nan), where=sem > 0)
            variables[f"{loss}_difference"] = ("step", difference)
            variables[f"{loss}_z"] = ("step", z)
    return xarray.Dataset(variables, {"step": predicted.steps})


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
