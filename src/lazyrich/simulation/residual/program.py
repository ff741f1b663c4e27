"""What is compiled for a residual problem, and the numbers that the compiled program is given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lazyrich.problem.datasets import load_data
from lazyrich.problem.residual import ResidualProblem, TeacherData
from lazyrich.simulation.residual.network import Factors, Form, Weights
from lazyrich.simulation.residual.optimizer import Method, Settings, method_of, settings_of


@dataclass(frozen=True)
class Program:
    """What decides the compiled program of a training.

    Attributes
    ----------
    form : Form
    method : Method
    loss : str
        ``"cross-entropy"`` or ``"mse"``.
    blocks_only : bool
        Whether input and output weights stay as they are.
    """

    form: Form
    method: Method
    loss: str
    blocks_only: bool


class Numbers(NamedTuple):
    """The numbers of one network, or of many with a leading axis.

    Attributes
    ----------
    seed, network : int
        What its initial weights are drawn from.
    stds : Weights
    factors : Factors
    settings : Settings
    """

    seed: Any
    network: Any
    stds: Weights
    factors: Factors
    settings: Settings


def program_of(problem: ResidualProblem, checkpoint: bool = False) -> Program:
    """The program that trains a problem's networks."""
    network, training, data = problem.network, problem.training, problem.data
    if isinstance(data, TeacherData):
        dimension, outputs = data.dimension, data.classes
    else:
        loaded = load_data(data)
        dimension, outputs = loaded.inputs.shape[1], loaded.targets.shape[1]
    form = Form(
        width=network.width,
        dimension=dimension,
        outputs=outputs,
        blocks=network.blocks,
        block_layers=network.block_layers,
        nonlinearity=network.nonlinearity if isinstance(network.nonlinearity, str) else network.nonlinearity.power,
        normalisation=network.normalisation,
        mean_subtraction=network.mean_subtraction,
        checkpoint=checkpoint,
    )
    return Program(form, method_of(problem), training.loss, training.train == "blocks")


def numbers_of(problem: ResidualProblem, network: int, dimension: int) -> Numbers:
    """The numbers of one network of a problem: those of the base size times the parametrization's factors."""
    sizes, rules = problem.network, problem.rules()
    base_width = sizes.base_width or sizes.width
    block, output = rules["block"], rules["output"]
    # NTK has a factor at every matrix of a block; the others have one for the branch.
    ntk = problem.training.parametrization.width == "ntk"
    return Numbers(
        seed=np.uint32(problem.training.seed),
        network=np.uint32(network),
        stds=Weights(
            rules["input"].init_std / math.sqrt(dimension),
            block.init_std / math.sqrt(base_width),
            output.init_std / math.sqrt(base_width),
        ),
        factors=Factors(
            branch=sizes.multiplier * (1.0 if ntk else block.multiplier),
            output=output.multiplier,
            matrix=block.multiplier if ntk else 1.0,
        ),
        settings=settings_of(problem),
    )
