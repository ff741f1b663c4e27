"""Claim T8: in pre-LN stacks the norm still grows, and the correlation of two inputs rises to 1, it does not fall to 0.

Run:  python studies/t8-pre-norm.py
Two-layer relu blocks behind LayerNorm, networks of width 2048 against the recursion of kernels, with and without mean
subtraction, and against a recursion that was printed without the kernel's square root. Three minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lazyrich.gallery.works import pre_norm_stack


def study(width: int = 2048, blocks: int = 32, seeds: int = 8, shown: Sequence[int] = (1, 4, 16, 32)) -> list[str]:
    """One line per kind of block and depth; errors are standard errors over seeds."""
    lines = []
    for subtraction in ("none", "after"):
        found = pre_norm_stack(width, blocks, seeds, subtraction)
        rho, ratio, kernel = found["correlation"], found["norm"] / found["kernel_norm"], found["kernel"]
        errors = [values.std(axis=0, ddof=1) / np.sqrt(seeds) for values in (rho, ratio)]
        for block in shown:
            line = f"mean subtraction {subtraction}, block {block}: correlation {rho[:, block].mean():.4f} "
            line += f"± {errors[0][block]:.4f}, kernel {kernel[block]:.4f}"
            line += f", printed {found['printed'][block]:.4f}" if subtraction == "none" else ""
            line += f"; norm {found['kernel_norm'][block]:.3f}, networks {ratio[:, block].mean():.4f} "
            lines.append(f"{line}± {errors[1][block]:.4f} of it")
        worst = np.abs(rho.mean(axis=0) - kernel).max()
        lines.append(f"mean subtraction {subtraction}: correlations within {worst:.4f} of the kernel at all blocks")
    return lines


if __name__ == "__main__":
    print("\n".join(study()))
