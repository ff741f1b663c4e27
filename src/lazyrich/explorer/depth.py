"""The page of rules for depth, without widgets: a rule (alpha, gamma) to its class, its place, table and networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.explorer.settings import Choice, Number, Setting, Values
from lazyrich.plots import COLOURS, MARKERS, finish
from lazyrich.problem.parametrization import OPTIMIZERS, SCHEMES
from lazyrich.problem.residual import ResidualNetwork, ResidualProblem, ResidualTraining, TeacherData
from lazyrich.problem.rules import classify, rules_report
from lazyrich.trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Cells of the plane along an exponent of one, and points of the line alpha + gamma = 1.
_CELLS, _POINTS = 40, 301
# Optimisers that train networks here.
_TRAINED = ("sgd", "adam", "adamw", "sign")
# Classes with an area, and those on a line, with their looks.
AREAS = {"unstable": "#f3d6c4", "trivial": "#e3e3e3"}
LINES = {
    "unfaithful": COLOURS[3],
    "feature learning, diverse": COLOURS[2],
    "feature learning, redundant": COLOURS[0],
}

RULE: tuple[Setting, ...] = (
    Number("alpha", "alpha: branches fall as L^-alpha", 0.5, low=0.0, high=1.5),
    Number("gamma", "gamma: rates fall as L^-gamma", 0.5, low=-0.5, high=1.0),
)
SIZES: tuple[Setting, ...] = (
    Choice("optimizer", "Optimiser", "adamw", options=dict(OPTIMIZERS)),
    Number("base_width", "Width of the tuned model", 256, low=8, high=65_536, logarithmic=True, whole=True),
    Number("width", "Width of the model to train", 1024, low=8, high=65_536, logarithmic=True, whole=True),
    Number("base_depth", "Blocks of the tuned model", 8, low=1, high=4096, logarithmic=True, whole=True),
    Number("depth", "Blocks of the model to train", 64, low=1, high=4096, logarithmic=True, whole=True),
)
NETWORK: tuple[Setting, ...] = (
    Choice(
        "nonlinearity",
        "Nonlinearity",
        "relu",
        options={"relu": "ReLU", "abs": "absolute value", "tanh": "tanh", "gelu": "GELU", "linear": "none"},
    ),
    Number("trained_width", "Width of the networks", 32, low=8, high=256, logarithmic=True, whole=True),
    Number("rate", "Learning rate at the tuned depth", 0.01, low=1e-4, high=1.0, logarithmic=True),
    Number("steps", "Steps", 60, low=10, high=400, whole=True),
    Number("networks", "Networks of each depth", 4, low=2, high=16, whole=True),
    Number("seed", "Seed", 0, low=0, high=9999, whole=True),
)
SETTINGS = (*RULE, *SIZES, *NETWORK)

# What is trained: only the blocks, whose rule is in question, on labels of a random network. The multiplier lets eight
# blocks together add about what they start from.
_INPUTS, _SAMPLES, _BATCH, _MULTIPLIER = 32, 512, 64, 0.6
# Weights times steps, batch and networks that a page may wait for: about a minute on one core.
_MOST_WORK = 1e11


def report_of(values: Values) -> dict[str, Any]:
    """What ``lazyrich rules --json`` prints for the settings."""
    sizes = (values["width"], values["base_width"], values["depth"], values["base_depth"])
    return rules_report(None, values["optimizer"], *sizes, alpha=values["alpha"], gamma=values["gamma"])


def command_of(values: Values) -> str:
    """The command that prints the same table."""
    options = {setting.name: setting.write(values[setting.name]) for setting in (*RULE, *SIZES)}
    return "lazyrich rules " + " ".join(f"--{name.replace('_', '-')} {text}" for name, text in options.items())


def problem_of(values: Values, blocks: int | None = None) -> ResidualProblem:
    """The residual network that the settings describe, of the depth that is set or another.

    Raises
    ------
    LazyrichError
        For an optimiser that has a rule, but trains nothing here.
    """
    if values["optimizer"] not in _TRAINED:
        what = f"{values['optimizer']!r} has a rule, but trains no networks here"
        raise LazyrichError("optimizer", what, f"choose one of {', '.join(_TRAINED)}")
    width = values["trained_width"]
    return ResidualProblem(
        network=ResidualNetwork(
            width=width,
            blocks=blocks or values["depth"],
            base_width=width,
            base_blocks=values["base_depth"],
            nonlinearity=values["nonlinearity"],
            mean_subtraction="after",
            multiplier=_MULTIPLIER,
        ),
        data=TeacherData(dimension=_INPUTS, samples=_SAMPLES),
        training=ResidualTraining(
            steps=values["steps"],
            learning_rate=values["rate"],
            batch=_BATCH,
            optimizer=values["optimizer"],
            alpha=values["alpha"],
            gamma=values["gamma"],
            train="blocks",
            seed=values["seed"],
        ),
    )


def trained_problems(values: Values) -> list[ResidualProblem]:
    """The networks to train on demand, of the tuned depth and of the one that is set.

    Raises
    ------
    LazyrichError
        For what takes long; the command line trains it.
    """
    depths = sorted({values["base_depth"], values["depth"]})
    work = sum(depths) * values["trained_width"] ** 2 * values["steps"] * _BATCH * values["networks"]
    if work > _MOST_WORK:
        what = f"needs {work / _MOST_WORK:.1f} times what the explorer trains"
        raise LazyrichError("training", what, "reduce blocks, width, steps or networks, or train the problem file")
    return [problem_of(values, blocks) for blocks in depths]


def summary_of(values: Values) -> str:
    """The class of the rule, as a sentence."""
    found = classify(values["alpha"], values["gamma"])
    exponent = {0.5: "1/2", 0.0: "0", None: "none"}[found.diversity_exponent]
    return (
        f"alpha = {values['alpha']:g}, gamma = {values['gamma']:g}: {found.name}. {found.meaning.capitalize()}. "
        f"Diversity exponent: {exponent}."
    )


@dataclass(frozen=True)
class Plane:
    """The plane of all rules, as :func:`lazyrich.problem.rules.classify` sees it.

    Attributes
    ----------
    alpha, gamma : tuple of float
        The ends of the axes.
    areas : ndarray, shape (cells of gamma, cells of alpha)
        Index into ``AREAS``.
    lines : dict
        For every class on the line alpha + gamma = 1 its points, shape (n, 2).
    named : dict
        Names of schemes at their points.
    """

    alpha: tuple[float, float]
    gamma: tuple[float, float]
    areas: np.ndarray
    lines: dict[str, np.ndarray]
    named: dict[tuple[float, float], str]


def plane() -> Plane:
    """The plane over the ranges of the sliders."""
    (left, right), (bottom, top) = ((setting.low, setting.high) for setting in RULE if isinstance(setting, Number))
    # centres of cells that no border runs through: their sums are never whole
    alpha = left + (np.arange(round((right - left) * _CELLS)) + 0.5) / _CELLS
    gamma = bottom + (np.arange(round((top - bottom) * _CELLS)) + 0.25) / _CELLS
    names = list(AREAS)
    areas = np.array([[names.index(classify(a, g).name) for a in alpha] for g in gamma])
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in LINES}
    for a in np.linspace(1.0 - top, right, _POINTS).round(12):
        found = classify(float(a), float(1.0 - a)).name
        if found in lines:
            lines[found].append((float(a), float(1.0 - a)))
    named: dict[tuple[float, float], str] = {}
    for scheme in SCHEMES.values():
        point = (scheme.alpha, scheme.gamma)
        title = scheme.title.partition(",")[0].removesuffix(" parametrization").removesuffix(" branches")
        named[point] = f"{named[point]}, {title}" if point in named else title
    points = {name: np.asarray(found).reshape(-1, 2) for name, found in lines.items()}
    return Plane((left, right), (bottom, top), areas, points, named)


GROWTH = {
    "sum of the branches at the start, L^(1/2 - alpha)": lambda alpha, gamma: 0.5 - alpha,
    "change of the features, L^(1 - alpha - gamma)": lambda alpha, gamma: 1.0 - alpha - gamma,
    "change inside one block, L^-gamma": lambda alpha, gamma: -gamma,
}


def growth_of(values: Values) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """How sizes change with depth L by the rule, each 1 at L = 1."""
    depths = np.geomspace(1.0, 1000.0, 31)
    return depths, {label: depths ** exponent(values["alpha"], values["gamma"]) for label, exponent in GROWTH.items()}


def label_of(trained: Trajectory, base_depth: int) -> str:
    """What a trained curve is called."""
    blocks = trained.problem.network.blocks  # pyright: ignore[reportAttributeAccessIssue]
    return f"{blocks} blocks, {'tuned' if blocks == base_depth else 'by the rule'}"


def trained_table(trained: Sequence[Trajectory]) -> dict[str, np.ndarray]:
    """A row per depth and recorded step."""
    names = ("train_loss", "train_loss_sem", "test_loss", "test_loss_sem")
    blocks = [each.problem.network.blocks for each in trained]  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "blocks": np.concatenate(
            [np.full(len(each.steps), count) for each, count in zip(trained, blocks, strict=True)]
        ),
        "step": np.concatenate([each.steps for each in trained]),
    } | {name: np.concatenate([each.data[name].values for each in trained]) for name in names}


def plot_plane(values: Values, trained: Sequence[Trajectory] = ()) -> Figure:
    """The plane of rules with the chosen one, how sizes change with depth, and networks that were trained."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    drawn = plane()
    count = 3 if trained else 2
    figure = Figure(figsize=(5.75 * count, 4.8), layout="constrained")
    left, right, *others = figure.subplots(1, count)
    extent = (*drawn.alpha, *drawn.gamma)
    left.imshow(drawn.areas, origin="lower", extent=extent, cmap=ListedColormap(list(AREAS.values())), aspect="auto")
    for name, colour in AREAS.items():
        left.plot([], [], "s", color=colour, markersize=10, label=name)
    for name, points in drawn.lines.items():
        style = {"linewidth": 4} if len(points) > 1 else {"marker": "*", "markersize": 18, "linestyle": "none"}
        left.plot(*points.T, color=LINES[name], label=name, **style)
    for (alpha, gamma), name in drawn.named.items():
        left.annotate(name, (alpha, gamma), (5, 6), textcoords="offset points", fontsize="small")
        left.plot(alpha, gamma, ".", color="black")
    left.plot(values["alpha"], values["gamma"], "o", color="black", markersize=14, fillstyle="none", label="this rule")
    left.set(xlabel="alpha", ylabel="gamma", xlim=drawn.alpha, ylim=drawn.gamma)
    left.legend(fontsize="small", loc="upper right")
    depths, sizes = growth_of(values)
    for index, (label, size) in enumerate(sizes.items()):
        right.plot(depths, size, color=COLOURS[index], linestyle=("-", "--", ":")[index], linewidth=2, label=label)
    finish(right, logarithmic=True)
    right.set(xscale="log", xlabel="depth L", ylabel="relative to L = 1")
    right.legend(frameon=False, fontsize="small")
    for axes in others:
        for index, each in enumerate(trained):
            loss, sem = each.data["train_loss"].values, each.data["train_loss_sem"].values
            style = {"color": COLOURS[index], "marker": MARKERS[index], "markersize": 4}
            axes.errorbar(each.steps, loss, sem, label=label_of(each, values["base_depth"]), **style)
        finish(axes, logarithmic=True)
        axes.set(xlabel="step", ylabel="training loss (nats)")
        axes.legend(frameon=False, fontsize="small")
    return figure
