"""Claim T1: the classes of (alpha, gamma); Depth-muP (1/2, 1/2) alone learns features and is diverse.

Run:  python studies/t1-classes.py
25 depth rules, networks of 16 to 128 one-layer relu blocks of width 64, three steps of three optimisers with a = 0.3 at
L0 = 4 blocks; then other branches, by sign descent. Two minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazyrich.class_map import GRID
from lazyrich.simulation.residual.classification import DEPTHS, measure_classes
from lazyrich.simulation.residual.probe import Probe

BRANCHES = ((0.3, 1), (0.3, 8), (0.5, 4), (1.0, 1), (0.3, 16), (0.5, 8), (1.0, 2), (0.5, 16), (1.0, 4))


def classes(probe: Probe, depths: Sequence[int] = DEPTHS) -> str:
    """How many rules come out right, undetermined and wrong, and which are diverse."""
    found = measure_classes(GRID, probe, depths)
    right, open_ = sum(each.agrees for each in found), sum(each.name == "undetermined" for each in found)
    diverse = [(each.alpha, each.gamma) for each in found if each.name == "feature learning, diverse"]
    return f"{right} right, {open_} undetermined, {len(found) - right - open_} wrong; diverse: {diverse}"


def study(optimizers: Sequence[str] = ("sign", "adam", "sgd"), branches=BRANCHES, seeds: int = 8) -> list[str]:
    """One line per optimiser, and per branch multiplier a at base depth L0."""
    lines = [f"{name}: {classes(Probe(optimizer=name, seeds=seeds))}" for name in optimizers]
    for multiplier, base in branches:
        probe = Probe(multiplier=multiplier, base_blocks=base, seeds=max(2, seeds // 2))
        lines.append(f"a = {multiplier}, L0 = {base}, a^2 L0 = {multiplier**2 * base:.2f}: {classes(probe)}")
    return lines


if __name__ == "__main__":
    print("\n".join(study()))
