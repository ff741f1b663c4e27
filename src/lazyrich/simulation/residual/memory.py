"""What training a residual network takes in memory, foreseen."""

from __future__ import annotations

import math

from lazyrich.errors import LazyrichError
from lazyrich.problem.residual import ResidualProblem
from lazyrich.simulation.residual.data import Samples
from lazyrich.simulation.residual.network import Form
from lazyrich.simulation.residual.program import Program, program_of


def required_memory(problem: ResidualProblem, program: Program, samples: Samples) -> int:
    """Bytes that one network takes while it is trained."""
    form = program.form
    held_out = len(samples.test) if samples.test is not None else 0
    evaluation = max(len(samples.train), held_out) * (4 * form.width + form.dimension)
    # Together 1.1 to 2 times what the compiled program says it takes.
    return step_memory(problem, program, samples) + evaluation * _bytes(problem)


def step_memory(problem: ResidualProblem, program: Program, samples: Samples) -> int:
    """Bytes that one network's steps go through, without the evaluation on all samples."""
    form = program.form
    layers = [math.prod(shape) for shape in form.shapes]
    batch = problem.training.batch or len(samples.train)
    # Weights, gradients, optimiser, updates; features that wait for their gradients, and what the turn of a scan has at
    # hand.
    numbers = (4 + program.method.slots) * sum(layers) + max(layers)
    kept = 1 if form.checkpoint else 1 + form.block_layers + 2 * (form.normalisation != "none") + _saved_by(form)
    numbers += batch * form.width * (kept * form.blocks + 10) + batch * (form.dimension + 4 * form.outputs)
    return numbers * _bytes(problem)


def _bytes(problem: ResidualProblem) -> int:
    return 8 if problem.training.precision == "float64" else 4


def _saved_by(form: Form) -> int:
    """Arrays of features that the nonlinearity and the mean subtraction keep for their gradients."""
    return {"linear": 0, "relu": 1, "abs": 1, "tanh": 1, "gelu": 3}.get(str(form.nonlinearity), 3)


def fit_into_memory(problem: ResidualProblem, program: Program, samples: Samples, limit: int) -> tuple[Program, int]:
    """The program, with features computed twice where that alone makes it fit; and the bytes that a network takes.

    Raises
    ------
    LazyrichError
        When one network does not fit even so.
    """
    needed = required_memory(problem, program, samples)
    if needed > limit:
        saving = program_of(problem, checkpoint=True)
        needed, program = required_memory(problem, saving, samples), saving
    if needed > limit:
        raise LazyrichError(
            "network.width",
            f"training needs {needed / 2**30:.2g} GiB per network and {limit / 2**30:.2g} GiB may be used",
            "reduce width, blocks or batch",
        )
    return program, needed
