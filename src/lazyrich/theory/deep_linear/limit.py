"""The large-size limit of a Problem: the numbers that enter the equations, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lazyrich.problem import Problem, output_scale
from lazyrich.problem.data import Data, GaussianData, PowerLawData
from lazyrich.problem.spectrum import input_dimension, output_count
from lazyrich.theory.deep_linear.optimizer import Memory, optimizer_memory
from lazyrich.theory.deep_linear.quadrature import DataMeasure, Measure, data_measure
from lazyrich.theory.deep_linear.strides import Strides

_MOST_NEEDED = 96  # nodes to start with


@dataclass(frozen=True)
class Limit:
    """A problem at infinite size (docs/theory/deep-linear.md, "The limit").

    Rows and columns of every kernel run over (step, output): index ``step * outputs + output``.

    Attributes
    ----------
    steps, outputs, blocks : int
    richness_squared : float
        kappa^2; 0 is the lazy limit.
    inverse_scale_squared : float
        1 / gamma^2; 0 at infinite width in muP.
    skip, branch : float
    variances : list of float
        Initial variance of the weights, input to output layer; length ``blocks + 2``.
    memories : list of Memory
        Optimiser coefficients per layer; layers that are trained alike share one object.
    mode : str
        ``"full-batch"``, ``"online"`` or ``"population"``; a data set is the population of its own samples.
    sample_ratio : float
        alpha = P/D in full batch, B/D online, infinite in population mode.
    has_test_loss : bool
        Whether there are other samples than those trained on: not for a data set without a held-out part.
    data : DataMeasure
    nodes : Measure
        The quadrature of the eigenvalue distribution that the solver uses.
    target_points, target_vectors : ndarray, shapes (J,) and (J, outputs)
    copies : int
        For how many outputs each one stands: equal and orthogonal targets are learned independently of each other.
    """

    steps: int
    outputs: int
    blocks: int
    richness_squared: float
    inverse_scale_squared: float
    skip: float
    branch: float
    variances: list[float]
    memories: list[Memory]
    mode: Literal["full-batch", "online", "population"]
    sample_ratio: float
    has_test_loss: bool
    data: DataMeasure = field(repr=False)
    nodes: Measure = field(repr=False)
    target_points: np.ndarray = field(repr=False)
    target_vectors: np.ndarray = field(repr=False)
    copies: int = 1

    @property
    def size(self) -> int:
        """Rows of a kernel."""
        return self.steps * self.outputs

    @property
    def noise(self) -> np.ndarray:
        """Covariance of the label noise, shape (outputs, outputs)."""
        return self.data.noise

    @property
    def uses_nodes(self) -> bool:
        """Whether modes fluctuate, so that they need matrices: not at infinite width with infinite data."""
        return self.mode != "population" or self.inverse_scale_squared > 0


def limit_mode(problem: Problem) -> Literal["full-batch", "online", "population"]:
    """The mode of the equations: training on all of a data set is learning the population of its own samples."""
    if problem.data.kind == "dataset":
        return "population"
    if problem.training.mode == "flow":
        return "population" if problem.data.samples is None else "full-batch"
    return problem.training.mode


def independent_outputs(data: Data) -> tuple[int, int]:
    """Outputs that the equations are solved for, and how many outputs of the data each of them stands for.

    Gaussian and power-law data have equal and orthogonal targets: changing the sign of one output's target changes
    nothing else, so that no kernel couples two of them.
    """
    outputs = output_count(data)
    return (1, outputs) if isinstance(data, GaussianData | PowerLawData) else (outputs, 1)


def take_limit(
    problem: Problem, nodes: int | None = None, measure: DataMeasure | None = None, strides: Strides | None = None
) -> Limit:
    """The limit of a problem, with its spectrum compressed to `nodes` nodes (default: as many as seem needed).

    `measure`, if it is known already, must be that of the problem's data. With `strides`, their nodes are the
    limit's steps.
    """
    network, training, data = problem.network, problem.training, problem.data
    dimension = input_dimension(data)
    richness_squared, scale_squared = output_scale(problem, dimension)
    mode, ratio = limit_mode(problem), np.inf
    if mode == "full-batch":
        assert data.kind != "dataset" and data.samples is not None  # the Problem has checked it
        ratio = data.samples / dimension
    elif mode == "online":
        assert training.batch is not None
        ratio = training.batch / dimension
    rates, decays = training.rates(network.blocks), training.weight_decays(network.blocks)
    memories = {}  # one for all layers that are trained alike
    for rate, decay in zip(rates, decays, strict=True):
        if (rate.tobytes(), decay) not in memories:
            memories[rate.tobytes(), decay] = (
                optimizer_memory(rate, training.momentum, decay)
                if strides is None
                else strides.memory(float(rate.max()), decay)
            )
    variances = [std**2 for std in network.init_stds]
    measure = measure or data_measure(data)
    outputs, copies = independent_outputs(data)
    if outputs < len(measure.noise):
        measure = measure.first_output()
    if nodes is None:
        gain = _initial_rates(network.blocks, network.skip, network.branch_multiplier, variances, rates)
        nodes = _needed_nodes(measure.modes, np.cumsum(gain))
    points, vectors = measure.compress_targets(2 * nodes + 8)
    return Limit(
        steps=training.steps if strides is None else strides.nodes,
        outputs=len(measure.noise),
        blocks=network.blocks,
        richness_squared=richness_squared,
        inverse_scale_squared=1.0 / scale_squared,
        skip=network.skip,
        branch=network.branch_multiplier,
        variances=variances,
        memories=[memories[rate.tobytes(), decay] for rate, decay in zip(rates, decays, strict=True)],
        mode=mode,
        sample_ratio=ratio,
        has_test_loss=data.kind != "dataset",
        data=measure,
        nodes=measure.modes.gauss(nodes),
        target_points=points,
        target_vectors=vectors,
        copies=copies,
    )


def _initial_rates(blocks: int, skip: float, branch: float, variances: list[float], rates: np.ndarray) -> np.ndarray:
    """How fast each step learns a mode of eigenvalue 1 with the initial network: the lazy kernel; shape (steps,)."""
    gains = [skip**2 + branch**2 * variance for variance in variances[1:-1]]
    middle = np.prod(gains)
    total = rates[0] * variances[-1] * middle + rates[-1] * variances[0] * middle
    for gain, rate in zip(gains, rates[1:-1], strict=True):
        total = total + rate * branch**2 * variances[0] * variances[-1] * middle / gain
    return total


def _needed_nodes(modes: Measure, times: np.ndarray) -> int:
    """Nodes that integrate ``exp(-2 lambda t)`` to 1e-12 at all `times`, plus a margin.

    Lazy training sums just these functions; the solver checks its own sums afterwards.
    """
    times = np.unique(np.geomspace(max(times[0], 1e-300), max(times[-1], 1e-300), 24))
    exact = np.exp(-2 * np.outer(times, modes.points)) @ (modes.weights * modes.points)
    nodes = 0
    for rule in modes.gauss_rules(_MOST_NEEDED):
        nodes = len(rule.points)
        value = np.exp(-2 * np.outer(times, rule.points)) @ (rule.weights * rule.points)
        if np.all(np.abs(value - exact) <= 1e-12 * modes.weights @ modes.points):
            break
    return nodes + 2
