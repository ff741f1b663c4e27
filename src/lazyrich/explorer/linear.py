"""The page of deep linear networks, without widgets: settings to problem, problem to what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.explorer.settings import Choice, Number, Setting, Text, Values, defaults, read_query
from lazyrich.fields import ACCURACIES, CURVES
from lazyrich.problem import Problem
from lazyrich.problem.data import DatasetData
from lazyrich.problem.datasets import load_data
from lazyrich.problem.spectrum import output_count
from lazyrich.theory.deep_linear.predict import predict
from lazyrich.theory.deep_linear.solving import losses_and_accuracies, solve_problem
from lazyrich.trajectory import Outcome
from lazyrich.transfer.optimum import Optimum, find_optimum

# More rows (steps times outputs) take seconds at every move of a slider.
_MOST_ROWS = 1200
# More columns take minutes to take apart.
_MOST_COLUMNS = 2000
# Of a heat map, along each axis; more cannot be seen.
_MOST_PIXELS = 120
# Rates of a sweep, per width, and how far they go to both sides of the rate that is set.
_RATES, _SWEEP = 17, 16.0
_WIDTH_FACTORS = (0.25, 1.0, 4.0)

_SYNTHETIC = ("gaussian", "power-law")
_TABLES = ("digits", "file")

NETWORK: tuple[Setting, ...] = (
    Number("width", "Width", 256, low=8, high=8192, logarithmic=True, whole=True, infinite=True),
    Number("blocks", "Depth (hidden blocks)", 2, low=0, high=8, whole=True),
    Choice("parametrization", "Parametrization", "mup", options={"mup": "muP", "ntk": "NTK"}),
    Number("skip", "Skip strength", 0.0, low=0.0, high=1.5),
    Choice("branches", "Branch multiplier", "branch", options={"branch": "c", "beta0": "beta0 / √blocks"}),
    Number("branch", "c", 1.0, low=0.1, high=3.0, only={"branches": ("branch",)}),
    Number("beta0", "beta0", 1.0, low=0.1, high=3.0, only={"branches": ("beta0",)}),
)
TRAINING: tuple[Setting, ...] = (
    Number("richness", "Richness (lazy to rich)", 1.0, low=0.02, high=20.0, logarithmic=True),
    Number("rate", "Learning rate", 0.03, low=1e-4, high=10.0, logarithmic=True),
    Number("steps", "Steps", 100, low=10, high=400, whole=True),
    Choice(
        "mode",
        "Mode",
        "full-batch",
        options={"full-batch": "full batch", "online": "online", "population": "population"},
    ),
    Number("batch", "Batch", 50, low=1, high=10_000, logarithmic=True, whole=True, only={"mode": ("online",)}),
    Choice(
        "schedule",
        "Schedule",
        "constant",
        options={name: name for name in ("constant", "cosine", "linear", "warmup-cosine")},
    ),
    Number("warmup", "Warm-up steps", 10, low=1, high=400, whole=True, only={"schedule": ("warmup-cosine",)}),
    Number("momentum", "Momentum", 0.0, low=0.0, high=0.98),
    Number("weight_decay", "Weight decay", 0.0, low=0.0, high=1.0),
    Number("seed", "Seed of trained networks", 0, low=0, high=9999, whole=True),
    Number("networks", "Networks to train", 8, low=2, high=64, whole=True),
)
DATA: tuple[Setting, ...] = (
    Choice(
        "data",
        "Data",
        "gaussian",
        options={"gaussian": "Gaussian", "power-law": "power law", "digits": "handwritten digits", "file": "my file"},
    ),
    Text("file", "Uploaded file", "", only={"data": ("file",)}),
    Text("target", "Target column", "", only={"data": ("file",)}),
    Text("classes", "Classes, as outputs", "0, 1", only={"data": ("digits",)}),
    Text("file_classes", "Classes, as outputs (may be empty)", "", only={"data": ("file",)}),
    Choice(
        "scaling",
        "Scaling of columns",
        "global",
        only={"data": _TABLES},
        options={"global": "one factor for all", "column": "each its own", "none": "none"},
    ),
    Number("test_fraction", "Share that is held out", 0.0, low=0.0, high=0.8, only={"data": _TABLES}),
    Number("dimension", "Inputs", 100, low=4, high=2000, logarithmic=True, whole=True, only={"data": _SYNTHETIC}),
    Number(
        "samples",
        "Samples",
        200,
        low=4,
        high=20_000,
        logarithmic=True,
        whole=True,
        only={"data": _SYNTHETIC, "mode": ("full-batch",)},
    ),
    Number("label_noise", "Label noise", 0.3, low=0.0, high=2.0, only={"data": _SYNTHETIC}),
    Number("capacity", "Decay of eigenvalues", 1.0, low=0.0, high=3.0, only={"data": ("power-law",)}),
    Number("source", "Decay of the target", 1.0, low=0.0, high=3.0, only={"data": ("power-law",)}),
)
VIEWS = {"curves": "Training curve", "rates": "Loss against rate", "kernels": "Kernels"}
SHOWN: tuple[Setting, ...] = (
    Choice("view", "View", "curves", options=VIEWS),
    Number("level", "Level of the kernels", 0, low=0, high=8, whole=True, only={"view": ("kernels",)}),
    Text("kept", "Kept curve", ""),
)
SETTINGS = (*NETWORK, *TRAINING, *DATA, *SHOWN)


def problem_of(values: Values, path: str | None = None) -> Problem:
    """The problem that the settings describe.

    Parameters
    ----------
    values : dict
        One for every one of ``SETTINGS``.
    path : str, optional
        Of the user's data file.

    Raises
    ------
    LazyrichError
        Where the settings contradict each other.
    """
    given = {setting.name: values[setting.name] for setting in SETTINGS if setting.shown(values)}
    network = {name: given[name] for name in ("width", "blocks", "skip", "branch", "beta0") if name in given}
    training = {name: given[name] for name in (*_SAME_NAMES, "batch", "warmup") if name in given}
    training["learning_rate"] = given["rate"]
    tables: dict[str, Any] = {"network": network, "data": _data(given, path), "training": training}
    return Problem(**tables)


_SAME_NAMES = ("mode", "steps", "schedule", "momentum", "weight_decay", "parametrization", "richness", "seed")


def _data(given: Values, path: str | None) -> dict[str, Any]:
    kind = given["data"]
    if kind in _SYNTHETIC:
        names = ("dimension", "samples", "label_noise", "capacity", "source")
        return {"kind": kind} | {name: given[name] for name in names if name in given}
    if kind == "digits":
        return {"kind": "dataset", "name": "digits", **_shared(given)} | _classes(given["classes"])
    if path is None:
        raise LazyrichError("data.path", "no file was given", "drop a .csv, .npz or .parquet file into the page")
    target = [name.strip() for name in given["target"].split(",") if name.strip()]
    table = {"kind": "dataset", "path": path, **_shared(given)}
    if target:
        table["target"] = target[0] if len(target) == 1 else target
    return table | _classes(given["file_classes"])


def _shared(given: Values) -> dict[str, Any]:
    """What all data sets have."""
    held_out = {"test_fraction": given["test_fraction"]} if given["test_fraction"] > 0 else {}
    return {"scaling": given["scaling"]} | held_out


def _classes(text: str) -> dict[str, Any]:
    """``"0, 1"`` as ``{"classes": [0, 1]}``; words stay words."""
    found: list[int | float | str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        try:
            number = float(word)
            found.append(int(number) if number == int(number) else number)
        except (ValueError, OverflowError):
            found.append(word)
    return {"classes": found} if found else {}


def check_size(problem: Problem) -> None:
    """Refuse what cannot be drawn while a slider moves.

    Raises
    ------
    LazyrichError
        It says which command takes it.
    """
    if isinstance(problem.data, DatasetData):
        columns = load_data(problem.data).inputs.shape[1]
        if columns > _MOST_COLUMNS:
            what = f"{columns} input columns, more than the explorer's {_MOST_COLUMNS}"
            raise LazyrichError("data", what, "use lazyrich predict, which takes any number")
    outputs = output_count(problem.data)
    if problem.training.steps * outputs > _MOST_ROWS:
        what = f"{problem.training.steps} steps of {outputs} outputs are too many to redraw at once"
        remedy = f"reduce them to {_MOST_ROWS // outputs} steps or fewer, or use lazyrich predict"
        raise LazyrichError("steps", what, remedy)


@dataclass(frozen=True)
class Curves:
    """Predicted losses and accuracies over steps.

    Attributes
    ----------
    losses, accuracies : dict of ndarray, shape (steps,)
        ``train_loss`` and, if there is one, ``test_loss``; the same of accuracies, for data with classes. NaN after a
        divergence.
    outcome : Outcome
    """

    losses: dict[str, np.ndarray]
    accuracies: dict[str, np.ndarray]
    outcome: Outcome

    def summary(self) -> str:
        """The last losses and accuracies and the outcome, as a sentence."""
        steps = len(next(iter(self.losses.values())))
        last = steps - 1 if self.outcome.step is None else self.outcome.step - 1
        curves = (self.losses | self.accuracies).items() if last >= 0 else ()
        found = [f"{CURVES[name]} {values[last]:.4g}" for name, values in curves]
        ending = "" if self.outcome.kind == "finished" else f"; the training {self.outcome}"
        return (f"At step {last}: " + ", ".join(found) if found else "No step was reached") + ending + "."


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what overflows has diverged
def curves_of(problem: Problem) -> Curves:
    """The same losses and accuracies as :func:`lazyrich.predict` gives, without kernels and checks of the solution.

    They take two thirds of its time.
    """
    check_size(problem)
    solution, _ = solve_problem(problem)
    losses, accuracies = losses_and_accuracies(solution, problem.data)

    def padded(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, np.full(problem.training.steps - solution.steps, np.nan)])

    return Curves(
        {name: padded(values.mean(axis=-1)) for name, values in losses.items()},
        {name: padded(accuracies[name]) for name in ACCURACIES if name in accuracies},
        Outcome("diverged", solution.steps) if solution.diverged else Outcome(),
    )


@dataclass(frozen=True)
class Kernels:
    """Kernels H and G of one level between all pairs of steps.

    Attributes
    ----------
    level : int
    steps : ndarray, shape (n,)
        Those that are drawn; not all of many.
    feature, gradient : ndarray, shape (n, n)
        H(t, s) and G(t, s) of the first output; NaN after a divergence.
    """

    level: int
    steps: np.ndarray
    feature: np.ndarray
    gradient: np.ndarray


def kernels_of(problem: Problem, level: int) -> Kernels:
    """H^level and G^level as :func:`lazyrich.predict` gives them, thinned out to what can be seen."""
    check_size(problem)
    data = predict(problem).data
    level = min(level, problem.network.blocks)
    count = min(problem.training.steps, _MOST_PIXELS)
    steps = np.linspace(0, problem.training.steps - 1, count).round().astype(int)
    chosen = {"level": level, "output": 0, "output_prime": 0, "step": steps, "step_prime": steps}
    return Kernels(
        level, steps, data["feature_kernel"].isel(chosen).values, data["gradient_kernel"].isel(chosen).values
    )


@dataclass(frozen=True)
class RateCurve:
    """Loss against rate at one width, as far as it is known.

    Attributes
    ----------
    width : float
    rates, losses : ndarray, shape (rates done,)
        The loss at the last step; NaN where the training diverged.
    optimum : Optimum, optional
        Once all rates are done.
    """

    width: float
    rates: np.ndarray
    losses: np.ndarray
    optimum: Optimum | None = None


def sweep_widths(problem: Problem) -> list[float]:
    """The width that is set, with a smaller and a larger one."""
    width = problem.network.width
    if width == np.inf:
        return [64, 256, np.inf]
    return sorted({max(1, round(width * factor)) for factor in _WIDTH_FACTORS})


def single_rate(problem: Problem) -> float:
    """The learning rate, one number on this page."""
    assert isinstance(problem.training.learning_rate, int | float)
    return float(problem.training.learning_rate)


def sweep_rates(problem: Problem) -> np.ndarray:
    """Rates around the one that is set."""
    rate = single_rate(problem)
    return np.geomspace(rate / _SWEEP, rate * _SWEEP, _RATES)


def rate_curves(problem: Problem, solve: Callable[[Problem], Curves] = curves_of) -> Iterator[list[RateCurve]]:
    """The test loss after the last step against the rate, at three widths.

    Of data sets without a held-out part it is the training loss.

    Parameters
    ----------
    problem : Problem
    solve : callable
        :func:`curves_of`, or the same elsewhere.

    Yields
    ------
    list of RateCurve
        After every solved rate what is known so far.
    """
    done: list[RateCurve] = []
    rates = sweep_rates(problem)
    for width in sweep_widths(problem):
        losses: list[float] = []
        for rate in rates:
            found = solve(problem.with_values({"network.width": width}).with_rate(float(rate)))
            losses.append(float(found.losses["test_loss" if problem.has_test_loss else "train_loss"][-1]))
            yield [*done, RateCurve(width, rates[: len(losses)], np.asarray(losses))]
        done.append(RateCurve(width, rates, np.asarray(losses), find_optimum(rates, np.asarray(losses))))
        yield list(done)


def sweep_summary(curves: Sequence[RateCurve]) -> str:
    """Where the best rate is at every width, and by how much it moves."""
    known = [(curve.width, curve.optimum) for curve in curves if curve.optimum is not None]
    found = [(width, optimum) for width, optimum in known if np.isfinite(optimum.best_rate)]
    if known and not found:
        return "At these widths all rates diverged."
    notes = {"edge-low": " (at the lower edge)", "edge-high": " (at the upper edge)", "cliff": " (largest stable)"}
    parts = []
    for width, optimum in found:
        note = "".join(text for flag, text in notes.items() if flag in optimum.flags)
        parts.append(f"{optimum.best_rate:.3g} at width {width:g}{note}")
    sentence = f"Best rate: {', '.join(parts)}." if parts else "Solving rate by rate."
    if len(found) > 1:
        factor = found[-1][1].best_rate / found[0][1].best_rate
        sentence += f" From the smallest to the largest width it is multiplied by {factor:.3g}."
    return sentence


def kept_values(values: Values) -> Values:
    """The settings of the kept curve, which ``values["kept"]`` holds as the query of a link."""
    return read_query(SETTINGS, values["kept"])[0] | {"kept": ""}


DEFAULTS = defaults(SETTINGS)
