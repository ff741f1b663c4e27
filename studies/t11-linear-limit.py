"""Claim T11: linear residual networks, infinite width and then depth, against finite networks.

Run:  python studies/t11-linear-limit.py
Four samples of six inputs, ten steps. The limit at infinite depth by extrapolation, for alpha = 1 also as an equation
in depth; how fast finite depths approach it; and trained networks of growing width against the theory at their own
depth. A minute on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import lazyrich
from lazyrich.gallery.works import four_samples
from lazyrich.theory.depth.depth_ode import solve_depth_ode
from lazyrich.theory.depth.linear_limit import at_depth, depth_limit

RULES = ((0.5, 0.5), (0.75, 0.25), (1.0, 0.0))


def study(
    depths: Sequence[int] = (4, 16, 64, 256),
    widths: Sequence[tuple[int, int]] = ((64, 256), (128, 128), (256, 64)),
    blocks: int = 16,
) -> list[str]:
    """Losses after nine steps; `widths` are pairs of width and number of networks."""
    problem, lines = four_samples(), []
    for alpha, gamma in RULES:
        limit = depth_limit(problem, alpha, gamma)
        at = [lazyrich.predict(at_depth(problem, depth, alpha, gamma)).train_loss[-1] for depth in depths]
        shown = ", ".join(f"{depth}: {loss:.6f}" for depth, loss in zip(depths, at, strict=True))
        line = f"alpha = {alpha}: infinite depth {limit.limit[-1]:.6f} ± {limit.error[-1]:.0e}; blocks {shown}"
        if alpha == 1.0:
            line += f"; equation in depth {solve_depth_ode(problem)[-1]:.6f}"
        lines.append(line)
        infinite = at_depth(problem, blocks, alpha, gamma)
        theory = lazyrich.predict(infinite).train_loss
        for width, seeds in widths:
            trained = lazyrich.train(infinite.with_values({"network.width": width}), seeds)
            gap, error = trained.train_loss - theory, trained.data["train_loss_sem"].values
            lines.append(
                f"  {blocks} blocks, {seeds} networks of width {width}: last loss off by {gap[-1] / theory[-1]:+.1%} ± "
                f"{error[-1] / theory[-1]:.1%}; width x gap {width * gap[-1]:.2f} ± {width * error[-1]:.2f}, largest z "
                f"{np.max(np.abs(gap) / error):.1f}"
            )
    return lines


if __name__ == "__main__":
    print("\n".join(study()))
