"""The one result of predicting and of training: curves and kernels over steps, with outcome and provenance."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.fields import ACCURACIES, AVERAGED
from lazyrich.problem.base import AnyProblem
from lazyrich.problem.files import study_kind
from lazyrich.provenance import provenance
from lazyrich.storage import write_whole

if TYPE_CHECKING:
    import xarray

FORMAT = "lazyrich trajectory 1"


@dataclass(frozen=True)
class Outcome:
    """How the training ended.

    Attributes
    ----------
    kind : str
        ``"finished"``, ``"diverged"`` or ``"interrupted"``.
    step : int or None
        The first step without a result, unless finished.
    layer : int or None
        Where numbers first stopped being finite, if that was seen: 0 is the input layer, l a block, L + 1 the output.
    time : float or None
        Of gradient flow, the time of that step, in units of rate x steps.
    remedy : str
        What to change where it diverged.
    """

    kind: Literal["finished", "diverged", "interrupted"] = "finished"
    step: int | None = None
    layer: int | None = None
    time: float | None = None
    remedy: str = "lower the learning rate"

    def __str__(self) -> str:
        if self.kind == "finished":
            return "finished"
        advice = f"; {self.remedy}" if self.kind == "diverged" else ""
        when = f"step {self.step}" if self.time is None else f"time {self.time:.4g}"
        place = "" if self.layer is None else f" in layer {self.layer}"
        return f"{self.kind} at {when}{place}{advice}"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a long computation; `trajectory` holds what was finished, or None."""

    def __init__(self, message: str, trajectory: Trajectory | None) -> None:
        super().__init__(message)
        self.trajectory = trajectory


@dataclass(frozen=True)
class Trajectory:
    """What happens over the steps of one training, by theory or by training networks.

    Attributes
    ----------
    data : xarray.Dataset
        ``train_loss`` and ``test_loss`` (step): mean squared errors without the factor 1/2, averaged over outputs, test
        without label noise; ``.._by_output`` (step, output) before the average. Kernels have dimensions (level, step,
        output, step_prime, output_prime): ``feature_kernel`` H, ``gradient_kernel`` G, and without levels
        ``error_kernel`` C_v and ``sample_error_kernel`` C_Delta. Of trained networks these are means over seeds, with
        ``.._sem`` their standard errors and ``.._of_seed`` each network's losses. Data with classes have
        ``train_accuracy`` and ``test_accuracy`` (step), the part of the samples of known class that a network puts
        there, and ``train_correct`` and ``test_correct`` (step, sample), the probability that a network does so, or the
        part of the networks that do. Steps after a divergence are missing (NaN). Losses are in units of the
        standardised targets; ``target_std`` (output) undoes it. Of residual networks: ``train_loss``,
        ``test_loss``, ``train_accuracy`` and ``test_accuracy`` at the steps that were recorded.
    problem : Problem, or another kind of problem
    source : str
        ``"theory"`` or ``"training"``.
    outcome : Outcome
    statistics : dict
        How the result was obtained: nodes, residual of the equations, seeds, seconds.
    provenance : dict
        Versions and time.
    """

    data: xarray.Dataset
    problem: AnyProblem
    source: Literal["theory", "training"]
    outcome: Outcome
    statistics: dict[str, Any]
    provenance: dict[str, str] = field(default_factory=provenance)

    @property
    def steps(self) -> np.ndarray:
        """The steps with a result: 0 to steps - 1; fewer of residual networks and of strides; of flow, nodes."""
        return self.data["step"].values

    @property
    def spreads_out(self) -> bool:
        """Whether results are ever further apart, as those of a prediction in strides."""
        gaps = np.diff(self.steps)
        return len(gaps) > 1 and bool(gaps.max() > 2 * gaps[0])

    @property
    def times(self) -> np.ndarray | None:
        """Of gradient flow, the times of the results in units of rate x steps; None where there are steps."""
        return self.data["time"].values if "time" in self.data.coords else None

    @property
    def train_loss(self) -> np.ndarray:
        """Training loss at every step, shape (steps,)."""
        return self.data["train_loss"].values

    @property
    def test_loss(self) -> np.ndarray | None:
        """Test loss at every step, shape (steps,); None for a data set without a held-out part."""
        return self.data["test_loss"].values if "test_loss" in self.data else None

    def to_json(self) -> dict[str, Any]:
        """Lists and plain values, with None where there is no number."""
        content: dict[str, Any] = {"source": self.source, "steps": [int(step) for step in self.steps]}
        if self.times is not None:
            content["times"] = plain(self.times)
        for name in [*self.problem.curves, *(name for name in (AVERAGED | ACCURACIES) if name in self.data)]:
            content[name] = plain(self.data[name].values) if name in self.data else None
            if "networks" in self.statistics:
                sem = f"{name}_sem"
                content[sem] = plain(self.data[sem].values) if sem in self.data else None
        content["outcome"] = self.outcome.kind
        content["step"] = self.outcome.step
        if self.outcome.layer is not None:
            content["layer"] = self.outcome.layer
        content["statistics"] = {key: plain(value) for key, value in self.statistics.items()}
        content["versions"] = self.provenance
        return content

    def to_dataset(self) -> xarray.Dataset:
        """The data with everything else as attributes, as it is saved."""
        return self.data.assign_attrs(
            format=FORMAT,
            source=self.source,
            problem=json.dumps(self.problem.to_dict()),
            outcome=json.dumps(asdict(self.outcome)),
            statistics=json.dumps({key: plain(value) for key, value in self.statistics.items()}),
            provenance=json.dumps(self.provenance),
        )

    @classmethod
    def from_dataset(cls, dataset: xarray.Dataset) -> Trajectory:
        """The inverse of :meth:`to_dataset`.

        Raises
        ------
        LazyrichError
            When the dataset is not a trajectory.
        """
        attributes = dataset.attrs
        if attributes.get("format") != FORMAT:
            raise LazyrichError("", "holds no trajectory", "give a file written by predict or train with --output")
        tables = json.loads(attributes["problem"])
        return cls(
            data=dataset.drop_attrs(deep=False),
            problem=study_kind(tables).kind(**tables),
            source=attributes["source"],
            outcome=Outcome(**json.loads(attributes["outcome"])),
            statistics=json.loads(attributes["statistics"]),
            provenance=json.loads(attributes["provenance"]),
        )

    def save(self, path: str | Path) -> None:
        """Write a NetCDF file, whole or not at all.

        Raises
        ------
        LazyrichError
            When the file cannot be written.
        """
        write_whole(path, self.to_dataset().to_netcdf(engine="h5netcdf"))

    def plot(self, path: str | Path | None = None) -> Any:
        """Figure of the losses; written to a PNG or SVG file if a path is given. Returns the matplotlib figure."""
        from lazyrich.plots import plot_trajectory, save_figure
        from lazyrich.problem import MatrixProblem

        if isinstance(self.problem, MatrixProblem):
            from lazyrich.mixed_dynamics.figures import plot_run

            figure = plot_run(self)
        else:
            figure = plot_trajectory(self)
        if path is not None:
            save_figure(figure, path)
        return figure


def load(path: str | Path) -> Trajectory:
    """Read a trajectory written by :meth:`Trajectory.save`.

    Raises
    ------
    LazyrichError
        When the file is missing or not a trajectory.
    """
    import xarray

    if not Path(path).is_file():
        raise LazyrichError(str(path), "no such file", "check the name")
    try:
        dataset = xarray.load_dataset(path, engine="h5netcdf")
    except Exception:  # h5py and h5netcdf raise many kinds for a damaged file
        raise LazyrichError(str(path), "not a NetCDF file", "give a file written with --output") from None
    try:
        return Trajectory.from_dataset(dataset)
    except LazyrichError as error:
        raise error.inside(str(path), joint=": ") from None
    except (KeyError, TypeError, ValueError):  # what else a file that was changed by hand gives
        raise LazyrichError(str(path), "damaged", "write it again with --output") from None


def plain(value: Any) -> Any:
    """Numbers and lists that JSON knows: None for what is not finite."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
