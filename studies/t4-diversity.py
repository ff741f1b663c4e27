"""Claim T4: the diversity exponent is 1/2 at alpha = 1/2 and 0 for larger alpha; training leaves it so.

Run:  python studies/t4-diversity.py
Slopes of the quadratic variation over depth (1 - 2 alpha by theory), at initialisation and after 40 Adam steps of all
layers; 16 to 128 blocks of width 64, 8 seeds. About a minute on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazyrich.simulation.residual.diversity import measure_diversity
from lazyrich.simulation.residual.probe import Probe

RULES = ((0.5, 0.5), (0.75, 0.25), (1.0, 0.0))
KINDS = ("linear", "relu", "abs", "tanh", "gelu", 1.5)


def study(
    kinds: Sequence[str | float] = KINDS, depths: Sequence[int] = (16, 32, 64, 128), steps: int = 40, seeds: int = 8
) -> list[str]:
    """One line per nonlinearity (a number p is ``|z|^p``) and depth rule."""
    lines = []
    for kind in kinds:
        probe = Probe(nonlinearity=kind, optimizer="adam", rate=0.02, steps=steps, only_blocks=False, seeds=seeds)
        for each in measure_diversity(probe, RULES, depths):
            exponent = {0.5: "1/2", 0.0: "0", None: "not resolved"}[each.exponent]
            lines.append(
                f"{kind}, alpha = {each.alpha}: slope {each.initial.value:+.2f} ± {each.initial.error:.2f} at "
                f"initialisation, {each.trained.value:+.2f} ± {each.trained.error:.2f} trained; exponent {exponent}; "
                f"the naive fit reads {each.naive:.2f}"
            )
    return lines


if __name__ == "__main__":
    print("\n".join(study()))
