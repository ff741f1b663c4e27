"""What theory says about a transfer before any training, and what of it is proven."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from lazyrich.problem.rules import classify

if TYPE_CHECKING:
    from lazyrich.torch.plan import Plan

# The linear stand-in: gradient descent on white data, early in training.
_SAMPLES_PER_INPUT = 2.0
_INPUTS = 16
_LABEL_NOISE = 0.5
_STEPS = 30
_RATES = np.geomspace(3e-3, 3.0, 60)  # a sixth of an octave apart: optima are close to divergence
# More blocks than this take minutes; the ratio of depths is kept.
_MOST_BLOCKS = 32

PROVEN = (
    "proven: at infinite width, for a fixed number of steps and a fixed batch size, muP's exponents are the only "
    "ones with which every layer learns features and nothing diverges (Yang et al. 2022); with depth, "
    "alpha + gamma = 1 and alpha >= 1/2 for blocks of one layer and normalised optimisers (Yang et al. 2023)",
    "proven here for linear networks: the loss curve at any width and depth, from the mean field equations; at "
    "infinite width it no longer depends on the width, so neither does the best rate",
)
EMPIRICAL = (
    "empirical: that the best rate of a finite model stays where it is; it settles as the width grows, so the base "
    "must be wide enough, and only a sweep at several widths shows whether yours is",
    "empirical: blocks of several layers, attention and norms under a depth rule; Adam's eps; decay in long trainings",
    "not covered: batch size, number of steps and schedule. The best rate falls with the number of steps as a rule: "
    "sweep it (`at` in transfer_sweep), and keep the schedule's shape and the fraction of warm-up",
)


def sizes_of(plan: Plan) -> tuple[tuple[int, int], tuple[int, int]]:
    """The (base, target) width, as most growing axes have it, and depth, as the sum over all stacks.

    A plan without a growing axis has the most common size of a matrix, twice.
    """
    axes = [
        (base, target)
        for entry in plan.entries
        for base, target in zip(entry.base_shape, entry.shape, strict=True)
        if base != target
    ]
    axes = axes or [(size, size) for entry in plan.entries if entry.role == "block" for size in entry.shape]
    width = Counter(axes).most_common(1)[0][0] if axes else (1, 1)
    depths = [sum(pair) for pair in zip(*plan.depths.values(), strict=True)] if plan.depths else [1, 1]
    return width, (depths[0], depths[1])


def foretell(plan: Plan) -> str:
    """What the linear theory and the table predict about a plan's transfer, and which part is proven, as text.

    The linear stand-in has the plan's widths, depths and depth rule, branches of 1/sqrt(depth) at the base, and is
    trained by gradient descent on white data with noise: its best rate is computed at both sizes without training. It
    knows nothing of attention, norms and Adam.
    """
    (narrow, wide), (shallow, deep) = sizes_of(plan)
    scheme = plan.scheme
    lines = [f"width {narrow} to {wide}, depth {shallow} to {deep}, {scheme.title}, {plan.optimizer}"]
    if scheme.width == "sp":
        lines.append("table: at one rate for all, the best rate falls with width: it does not transfer")
        lines.append("linear theory: has no standard parametrization; muP at the base size is the same model")
        return "\n".join([*lines, *PROVEN, *EMPIRICAL])
    depth_class = classify(scheme.alpha, scheme.gamma)
    if scheme.width == "mup":
        lines.append("table: the best rate at large width does not depend on width")
        if shallow != deep:
            lines.append(f"table, over depth: {depth_class.name}; {depth_class.meaning}")
    else:
        lines.append("table: at large width features move less and less; with Adam at one rate more and more")
    octaves, regret, blocks = _linear_shift(plan, (narrow, wide), (shallow, deep))
    said = (
        f"linear theory, {blocks[0]} to {blocks[1]} residual blocks, {_STEPS} steps of gradient descent on white data: "
    )
    if np.isnan(octaves):
        lines.append(f"{said}every rate that trains the base, {_RATES[0]:g} and more, diverges at the target")
    else:
        cost = f"keeping it costs {regret:.3g} nats" if np.isfinite(regret) else "keeping it makes training diverge"
        lines.append(f"{said}the best rate moves by {octaves:+.2f} octaves, and {cost}")
    return "\n".join([*lines, *PROVEN, *EMPIRICAL])


def _linear_shift(plan: Plan, width: tuple[int, int], depth: tuple[int, int]) -> tuple[float, float, tuple[int, int]]:
    """Shift of the best rate in octaves, its regret in nats, and the numbers of blocks used."""
    from lazyrich.transfer.optimum import find_optimum
    from lazyrich.transfer.shift import regret, shift_octaves

    shrink = max(1.0, max(depth) / _MOST_BLOCKS)
    blocks = max(1, round(depth[0] / shrink)), max(1, round(depth[1] / shrink))
    losses = [_losses(plan, size, blocks[0], count) for size, count in zip(width, blocks, strict=True)]
    base, other = (find_optimum(_RATES, each) for each in losses)
    cost = regret(_RATES, losses[1], base.best_rate, other)
    return shift_octaves(base, other).octaves, cost.nats, blocks


def _losses(plan: Plan, width: int, base_blocks: int, blocks: int) -> np.ndarray:
    """Test losses of the linear stand-in after the last step, one per rate; NaN where it diverges."""
    from lazyrich.problem import GaussianData, LayerValues, Network, Problem, Training
    from lazyrich.theory import predict

    m, scheme = blocks / base_blocks, plan.scheme
    found = []
    for rate in _RATES:
        layers = LayerValues(input=rate, block=rate * m ** (scheme.alpha - scheme.gamma), output=rate)
        problem = Problem(
            network=Network(width=width, blocks=blocks, skip=1.0, branch=base_blocks**-0.5 * m**-scheme.alpha),
            data=GaussianData(dimension=_INPUTS, samples=int(_SAMPLES_PER_INPUT * _INPUTS), label_noise=_LABEL_NOISE),
            training=Training(
                steps=_STEPS + 1, learning_rate=layers, parametrization="ntk" if scheme.width == "ntk" else "mup"
            ),
        )
        predicted = predict(problem)
        losses = predicted.test_loss
        loss = np.nan if losses is None else float(losses[-1])
        found.append(loss if predicted.outcome.kind == "finished" and np.isfinite(loss) else np.nan)
    return np.array(found)
