"""Claim T6, what does separate the schemes in two-layer blocks: whether a block is lazy inside.

Run:  python studies/t6-second-order.py
Slope over depth of the part of the blocks' change that is beyond first order in their weights: -gamma/2 for relu,
-gamma for tanh by theory. 8 to 128 blocks of width 64, three sign steps, 8 seeds. About a minute on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazyrich.simulation.residual.probe import Probe
from lazyrich.simulation.residual.second_order import second_order_fraction

RULES = ((0.5, 0.5), (0.75, 0.25), (1.0, 0.0))
# Few units cross a kink: relu needs larger steps to be measured well, and tanh smaller ones to be of lowest order.
KINDS = (("relu", 0.5, 0.2), ("tanh", 1.0, 0.05))


def study(kinds=KINDS, depths: Sequence[int] = (8, 16, 32, 64, 128), seeds: int = 8) -> list[str]:
    """One line per nonlinearity and depth rule."""
    lines = []
    for kind, power, rate in kinds:
        probe = Probe(nonlinearity=kind, block_layers=2, base_blocks=8, rate=rate, seeds=seeds)
        fractions, slopes = second_order_fraction(probe, RULES, depths)
        for (alpha, gamma), values, slope in zip(RULES, fractions, slopes, strict=True):
            shares = f"{values[0].mean():.3f} at {depths[0]} blocks, {values[-1].mean():.3f} at {depths[-1]}"
            line = f"{kind}, alpha = {alpha}, gamma = {gamma}: slope {slope.value:+.3f} ± {slope.error:.3f}"
            lines.append(f"{line}, theory {0.0 - power * gamma:+.3f}; share {shares}")
    return lines


if __name__ == "__main__":
    print("\n".join(study()))
