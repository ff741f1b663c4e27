"""Claim T8: in pre-LN stacks the norm still grows, and the correlation of two inputs rises to 1, it does not fall to 0.

Run:  python studies/t8-pre-norm.py
Two-layer relu blocks behind LayerNorm, networks of width 2048 against the recursion of kernels, with and without mean
subtraction, and against a recursion that was printed without the kernel's square root. Three minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lazyrich.simulation.residual.network import Factors, Form, Weights, draw_weights, forward_levels
from lazyrich.theory.depth.initialisation import printed_correlation, propagate

INPUTS = 12  # each of them at correlation 1/2 to every other: 66 pairs per network
START = 0.5 * (np.eye(INPUTS) + 1.0)
PAIRS = np.triu_indices(INPUTS, 1)


def networks(form: Form, seeds: int) -> np.ndarray:
    """Kernels of all inputs, shape (seeds, blocks + 1, inputs, inputs)."""
    root = jnp.asarray(np.linalg.cholesky(START))

    @jax.jit
    def one(key: jax.Array) -> jax.Array:
        frame, _ = jnp.linalg.qr(jax.random.normal(jax.random.fold_in(key, 3), (form.width, INPUTS)))
        weights = draw_weights(form, Weights(1.0, form.width**-0.5, 1.0), key)
        weights = weights._replace(input=frame * form.width**0.5)  # so that the first kernel is exact
        _, levels = forward_levels(form, weights, Factors(), root)
        return jnp.einsum("lpn,lqn->lpq", levels, levels) / form.width

    return np.stack([np.asarray(one(jax.random.key(seed)), dtype=float) for seed in range(seeds)])


def study(width: int = 2048, blocks: int = 32, seeds: int = 8, shown: Sequence[int] = (1, 4, 16, 32)) -> list[str]:
    """One line per kind of block and depth; errors are standard errors over seeds."""
    lines = []
    for subtraction in ("none", "after"):
        form = Form(width, INPUTS, 1, blocks, 2, "relu", "layer", subtraction)
        found = networks(form, seeds)
        norms = np.diagonal(found, axis1=-2, axis2=-1)
        cosines = found / np.sqrt(norms[..., :, None] * norms[..., None, :])
        rho, norm = cosines[..., PAIRS[0], PAIRS[1]].mean(axis=-1), norms.mean(axis=-1)  # of each network
        theory = propagate(
            START[:2, :2], blocks, "relu", block_layers=2, normalisation="layer", mean_subtraction=subtraction
        )
        printed = printed_correlation(0.5, blocks)
        for block in shown:
            error = rho[:, block].std(ddof=1) / np.sqrt(seeds)
            line = (
                f"mean subtraction {subtraction}, block {block}: correlation {rho[:, block].mean():.4f} ± {error:.4f}"
            )
            line += f", kernel {theory.correlations[block, 0, 1]:.4f}"
            line += f", printed {printed[block]:.4f}" if subtraction == "none" else ""
            spread = norm[:, block].std(ddof=1) / np.sqrt(seeds) / theory.norms[block, 0]
            ratio = norm[:, block].mean() / theory.norms[block, 0]
            lines.append(f"{line}; norm {theory.norms[block, 0]:.3f}, networks {ratio:.4f} ± {spread:.4f} of it")
        worst = np.abs(rho.mean(axis=0) - theory.correlations[:, 0, 1]).max()
        lines.append(f"mean subtraction {subtraction}: correlations within {worst:.4f} of the kernel at all blocks")
    return lines


if __name__ == "__main__":
    print("\n".join(study()))
