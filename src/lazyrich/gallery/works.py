"""The functions behind :class:`lazyrich.gallery.work.Work`: from plain arguments to arrays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lazyrich.gallery.work import Arrays, packed
from lazyrich.problem import MatrixProblem, Network, PowerLawData, Problem, SpectrumData, Training
from lazyrich.simulation import train
from lazyrich.theory import predict


def compare_point(problem: dict[str, Any], seeds: int) -> Arrays:
    """Prediction and training of one problem."""
    asked = Problem(**problem)
    return {"predicted": packed(predict(asked)), "trained": packed(train(asked, seeds))}


def initial_growth(problem: dict[str, Any], seeds: int) -> Arrays:
    """By how much the blocks enlarge the kernel of the features at initialisation.

    Returns
    -------
    dict of ndarray, all scalars
        ``predicted`` at infinite width; ``mean`` and ``sem`` over networks of the problem's own width.
    """
    asked = Problem(**problem)
    infinite = predict(asked.with_values({"network.width": math.inf})).data["feature_kernel"].values
    kernels = train(asked, seeds, kernels=True).data
    mean, sem = (kernels[name].values[:, 0, 0, 0, 0] for name in ("feature_kernel", "feature_kernel_sem"))
    return {
        "predicted": np.asarray(infinite[-1, 0, 0, 0, 0] / infinite[0, 0, 0, 0, 0]),
        "mean": np.asarray(mean[-1] / mean[0]),
        # both ends counted as independent: the error is rather too large
        "sem": np.asarray(mean[-1] / mean[0] * math.hypot(sem[-1] / mean[-1], sem[0] / mean[0])),
    }


def exponent(problem: dict[str, Any]) -> Arrays:
    """Gradient flow, from which an exponent is read."""
    return {"trajectory": packed(predict(Problem(**problem)))}


def cost_of_solving(sizes: Mapping[str, Sequence[int]], steps: int, rounds: int) -> Arrays:
    """Processor time of predictions over one size at a time, the others fixed.

    Parameters
    ----------
    sizes : mapping
        ``width``, ``dimension``, ``samples`` and ``blocks``, each with its values.

    Returns
    -------
    dict of ndarray, shape (rounds, values)
        Seconds, under each size's name; rounds go through all values in turn.
    """
    found = {}
    for size, values in sizes.items():
        problems = [_sized(size, value, steps) for value in values]
        for problem in problems:
            predict(problem)  # what is loaded or set up once is not counted
        found[size] = np.asarray([[_seconds(problem) for problem in problems] for _ in range(rounds)])
    return found


def _sized(size: str, value: int, steps: int) -> Problem:
    at = {"width": 400, "dimension": 400, "samples": 800, "blocks": 4} | {size: value}
    return Problem(
        network=Network(width=at["width"], blocks=at["blocks"], skip=1.0, beta0=1.0),
        data=PowerLawData(dimension=at["dimension"], samples=at["samples"], capacity=1.2, source=0.5),
        training=Training(steps=steps, learning_rate=1e-3),
    )


def _seconds(problem: Problem) -> float:
    started = time.process_time()
    predict(problem)
    return time.process_time() - started


def two_layer_run(problem: dict[str, Any]) -> Arrays:
    """A run of a two-layer network."""
    from lazyrich.mixed_dynamics import two_layer

    return {"trajectory": packed(two_layer(MatrixProblem(**problem)))}


def depth_classes(
    points: Sequence[tuple[float, float]], probe: dict[str, Any], depths: Sequence[int]
) -> dict[str, np.ndarray]:
    """Names of the classes of depth rules, measured and by theory."""
    from lazyrich.simulation.residual.classification import measure_classes
    from lazyrich.simulation.residual.probe import Probe

    found = measure_classes([(alpha, gamma) for alpha, gamma in points], Probe(**probe), depths)
    return {
        "points": np.asarray(points, dtype=float),
        "measured": np.asarray([each.name for each in found]),
        "theory": np.asarray([each.theory.name for each in found]),
    }


def feature_diversity(
    points: Sequence[tuple[float, float]], probe: dict[str, Any], depths: Sequence[int]
) -> dict[str, np.ndarray]:
    """Slopes of the quadratic variation in depth, before and after training, with their errors."""
    from lazyrich.simulation.residual.diversity import measure_diversity
    from lazyrich.simulation.residual.probe import Probe

    found = measure_diversity(Probe(**probe), [(alpha, gamma) for alpha, gamma in points], depths)
    return {
        "alpha": np.asarray([each.alpha for each in found]),
        "initial": np.asarray([[each.initial.value, each.initial.error] for each in found]),
        "trained": np.asarray([[each.trained.value, each.trained.error] for each in found]),
    }


def second_order(
    points: Sequence[tuple[float, float]], probe: dict[str, Any], depths: Sequence[int]
) -> dict[str, np.ndarray]:
    """Slopes in depth of the part of the blocks' change that is beyond first order."""
    from lazyrich.simulation.residual.probe import Probe
    from lazyrich.simulation.residual.second_order import second_order_fraction

    _, slopes = second_order_fraction(Probe(**probe), [(alpha, gamma) for alpha, gamma in points], depths)
    return {
        "gamma": np.asarray([gamma for _, gamma in points]),
        "slope": np.asarray([[each.value, each.error] for each in slopes]),
    }


INPUTS = 12  # of the stacks below, each at correlation 1/2 to every other: 66 pairs per network
START = 0.5 * (np.eye(INPUTS) + 1.0)
PAIRS = np.triu_indices(INPUTS, 1)


def initial_kernels(form: Any, seeds: int) -> np.ndarray:
    """Kernels of all inputs in networks at initialisation, shape (seeds, blocks + 1, inputs, inputs)."""
    import jax
    import jax.numpy as jnp

    from lazyrich.simulation.residual.network import Factors, Weights, draw_weights, forward_levels

    root = jnp.asarray(np.linalg.cholesky(START))

    @jax.jit
    def one(key: jax.Array) -> jax.Array:
        frame, _ = jnp.linalg.qr(jax.random.normal(jax.random.fold_in(key, 3), (form.width, INPUTS)))
        weights = draw_weights(form, Weights(1.0, form.width**-0.5, 1.0), key)
        weights = weights._replace(input=frame * form.width**0.5)  # so that the first kernel is exact
        _, levels = forward_levels(form, weights, Factors(), root)
        return jnp.einsum("lpn,lqn->lpq", levels, levels) / form.width

    return np.stack([np.asarray(one(jax.random.key(seed)), dtype=float) for seed in range(seeds)])


def pre_norm_stack(width: int, blocks: int, seeds: int, subtraction: str) -> dict[str, np.ndarray]:
    """Norm and correlation of inputs through a pre-LN stack.

    Returns
    -------
    dict of ndarray
        ``correlation`` and ``norm``, shape (seeds, blocks + 1), of networks; ``kernel``, ``kernel_norm`` and
        ``printed``, shape (blocks + 1,), by recursions.
    """
    from lazyrich.simulation.residual.network import Form
    from lazyrich.theory.depth.initialisation import printed_correlation, propagate

    found = initial_kernels(Form(width, INPUTS, 1, blocks, 2, "relu", "layer", subtraction), seeds)
    norms = np.diagonal(found, axis1=-2, axis2=-1)
    cosines = found / np.sqrt(norms[..., :, None] * norms[..., None, :])
    theory = propagate(
        START[:2, :2], blocks, "relu", block_layers=2, normalisation="layer", mean_subtraction=subtraction
    )
    return {
        "correlation": cosines[..., PAIRS[0], PAIRS[1]].mean(axis=-1),
        "norm": norms.mean(axis=-1),
        "kernel": theory.correlations[:, 0, 1],
        "kernel_norm": theory.norms[:, 0],
        "printed": printed_correlation(0.5, blocks),
    }


def four_samples() -> Problem:
    """Normal inputs and targets, the branch 1 at one block, muP rates 0.25 times the width."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((4, 6)), rng.standard_normal(4)
    eigenvalues, basis = np.linalg.eigh(inputs.T @ inputs / 4)
    kept = eigenvalues > 1e-12
    coefficients = np.divide(basis.T @ inputs.T @ targets / 4, eigenvalues, out=np.zeros(6), where=kept)
    return Problem(
        network=Network(width=math.inf, blocks=1, skip=1.0, branch=1.0),
        data=SpectrumData(eigenvalues=list(np.where(kept, eigenvalues, 0.0)), target=list(math.sqrt(6) * coefficients)),
        training=Training(mode="population", steps=10, learning_rate=0.25 / 6, richness=math.sqrt(6)),
    )


def linear_limit(
    alpha: float, gamma: float, blocks: int, widths: Sequence[tuple[int, int]], depths: Sequence[int]
) -> dict[str, np.ndarray]:
    """Linear residual networks: the limit in depth, finite depths, and trained networks of one depth.

    Parameters
    ----------
    widths : sequence of (int, int)
        Width and number of networks.

    Returns
    -------
    dict of ndarray
        ``limit`` and its ``error``; ``equation`` (alpha = 1: the equation in depth, else NaN); ``depths`` with
        ``losses`` at each; ``widths`` with the trained ``gap`` to the theory at the last step, relative, and
        its ``sem``.
    """
    from lazyrich.theory.depth.depth_ode import solve_depth_ode
    from lazyrich.theory.depth.linear_limit import at_depth, depth_limit

    problem = four_samples()
    limit = depth_limit(problem, alpha, gamma)
    losses = [predict(at_depth(problem, depth, alpha, gamma)).train_loss[-1] for depth in depths]
    at_blocks = at_depth(problem, blocks, alpha, gamma)
    theory = predict(at_blocks).train_loss[-1]
    gaps, sems = [], []
    for width, seeds in widths:
        trained = train(at_blocks.with_values({"network.width": width}), seeds)
        gaps.append(trained.train_loss[-1] / theory - 1.0)
        sems.append(trained.data["train_loss_sem"].values[-1] / theory)
    return {
        "limit": np.asarray(limit.limit[-1]),
        "error": np.asarray(limit.error[-1]),
        "equation": np.asarray(solve_depth_ode(problem)[-1] if alpha == 1.0 else np.nan),
        "depths": np.asarray(depths),
        "losses": np.asarray(losses),
        "widths": np.asarray([width for width, _ in widths]),
        "gap": np.asarray(gaps),
        "sem": np.asarray(sems),
    }


WORKS: dict[str, Callable[..., Arrays]] = {
    "compare": compare_point,
    "initial-growth": initial_growth,
    "exponent": exponent,
    "cost": cost_of_solving,
    "two-layer": two_layer_run,
    "classes": depth_classes,
    "diversity": feature_diversity,
    "second-order": second_order,
    "pre-norm": pre_norm_stack,
    "linear-limit": linear_limit,
}
