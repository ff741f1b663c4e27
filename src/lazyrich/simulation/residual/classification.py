"""The class of a depth rule (alpha, gamma), measured on networks.

A few steps of training the blocks alone, at several depths; what decides are the slopes in depth of: the features at
initialisation, their change, the change of the outputs, what a block's own change does to its pre-activation, and the
quadratic variation. Theory: :func:`lazyrich.problem.rules.classify`, docs/theory/depth.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem.rules import DepthClass, classify
from lazyrich.simulation.residual.diversity import diversity_exponent, quadratic_variation
from lazyrich.simulation.residual.network import Form, forward_levels, normalise
from lazyrich.simulation.residual.probe import Probe, Trained, measure
from lazyrich.simulation.residual.slopes import Slope, fit_slope

DEPTHS = (16, 32, 64, 128)
# Slopes are multiples of 1/4 on the usual grid of exponents: half of that tells them apart.
TOLERANCE = 0.12

QUANTITIES = {
    "features": "size of the last features at initialisation, mean square",
    "initial_variation": "quadratic variation over depth at initialisation",
    "feature_change": "change of the last features, root mean square",
    "output_change": "change of the outputs, root mean square",
    "block_change": "dW x, a block's own change on its input, root mean square",
    "variation": "quadratic variation over depth, after training",
}


@dataclass(frozen=True)
class Verdict:
    """Whether a property holds: ``"pass"``, ``"fail"`` or ``"undetermined"``."""

    property: str
    verdict: str
    why: str


@dataclass(frozen=True)
class MeasuredClass:
    """What networks say about one depth rule.

    Attributes
    ----------
    alpha, gamma : float
    slopes : dict of Slope
        In depth, for each of :data:`QUANTITIES`.
    verdicts : list of Verdict
        stable, nontrivial, faithful, feature learning.
    diversity_exponent : float or None
        1/2, 0, or None where it has no meaning or is not resolved.
    name : str
        The class, in the words of :func:`lazyrich.problem.rules.classify`; ``"undetermined"`` where a slope that
        decides lies within its error of the tolerance, or the rule lies nearer to a border than the tolerance.
    theory : DepthClass
    """

    alpha: float
    gamma: float
    slopes: dict[str, Slope]
    verdicts: list[Verdict]
    diversity_exponent: float | None
    name: str
    theory: DepthClass

    @property
    def agrees(self) -> bool:
        """Whether networks and theory give the same class."""
        return self.name == self.theory.name

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "alpha": self.alpha,
            "gamma": self.gamma,
            "class": self.name,
            "class_by_theory": self.theory.name,
            "agrees": self.agrees,
            "diversity_exponent": self.diversity_exponent,
            "verdicts": {each.property: {"verdict": each.verdict, "why": each.why} for each in self.verdicts},
            "slopes": {name: slope.to_json() for name, slope in self.slopes.items()},
        }


def measure_classes(
    points: Sequence[tuple[float, float]],
    probe: Probe | None = None,
    depths: Sequence[int] = DEPTHS,
    tolerance: float = TOLERANCE,
    progress: Callable[[int, int], object] | None = None,
) -> list[MeasuredClass]:
    """Classify depth rules by training networks.

    Parameters
    ----------
    points : sequence of (alpha, gamma)
    probe : Probe, optional
        What is trained; default: one-layer relu blocks with mean subtraction, a = 0.3 at 4 blocks, three sign steps.
        Larger branches bend the slopes. ``multiplier^2 base_blocks`` up to 0.7 is well, up to 2 leaves some classes
        undetermined, from 4 on some are wrong (docs/theory/depth.md).
    depths : sequence of int
        At least two; further apart is better.
    tolerance : float
        Slopes of at most this size count as none. Exponents nearer to a border than that are not resolved.
    progress : callable, optional
        Called with depths done and depths in all.

    Returns
    -------
    list of MeasuredClass
        One per point.

    Raises
    ------
    LazyrichError
        For depths, exponents or settings that cannot be used.
    """
    probe = probe or Probe()
    theory = [classify(alpha, gamma) for alpha, gamma in points]
    if len(set(depths)) < 2:
        raise LazyrichError("depths", f"{list(depths)} has no slope", "give at least two depths")
    if probe.steps < 1:
        raise LazyrichError("steps", "nothing changes without training", "give at least one step")
    depths, found = sorted(set(depths)), []
    for done, blocks in enumerate(depths):
        found.append(measure(probe, blocks, points, _quantities))
        if progress is not None:
            progress(done + 1, len(depths))
    classes = []
    for index, ((alpha, gamma), expected) in enumerate(zip(points, theory, strict=True)):
        slopes = {name: fit_slope(depths, np.stack([each[name][index] for each in found])) for name in QUANTITIES}
        verdicts, name, exponent = _judge(slopes, tolerance)
        if near_border(alpha, gamma, tolerance):
            name, exponent = "undetermined", None
        classes.append(MeasuredClass(alpha, gamma, slopes, verdicts, exponent, name, expected))
    return classes


def near_border(alpha: float, gamma: float, tolerance: float = TOLERANCE) -> bool:
    """Whether a rule lies beside a border between classes, not on it, and nearer than slopes of this size resolve."""
    surplus = alpha + gamma - 1.0
    beside = [1e-9 < abs(distance) <= tolerance for distance in (alpha - 0.5, surplus, gamma)]
    # each border only where rules on both of its sides are of different classes
    return (
        (beside[0] and surplus > -tolerance)
        or (beside[1] and alpha > 0.5 - tolerance)
        or (beside[2] and abs(surplus) <= tolerance)
    )


def _judge(slopes: dict[str, Slope], tolerance: float) -> tuple[list[Verdict], str, float | None]:
    """Verdicts, the name of the class, and the diversity exponent."""
    grows = {name: _exceeds(slope, tolerance) for name, slope in slopes.items()}
    vanishes = {name: _exceeds(Slope(-slope.value, slope.error), tolerance) for name, slope in slopes.items()}
    # Where the branches are small the features themselves show only at great depth that they grow.
    stable = _all_of(*(_no(grows[name]) for name in ("features", "initial_variation", "feature_change")))
    nontrivial = _no(vanishes["output_change"])
    faithful = _no(grows["block_change"])
    learning = _all_of(stable, _no(vanishes["feature_change"]))
    exponent = diversity_exponent(slopes["variation"]) if stable == "pass" else None
    verdicts = [
        Verdict("stable", stable, _said(slopes, "features", "initial_variation", "feature_change")),
        Verdict("nontrivial", nontrivial, _said(slopes, "output_change")),
        Verdict("faithful", faithful, _said(slopes, "block_change")),
        Verdict("feature learning", learning, _said(slopes, "feature_change")),
    ]
    if stable == "undetermined":
        name = "undetermined"
    elif stable == "fail":
        name = "unstable"
    elif learning != "pass":
        name = "trivial" if learning == "fail" else "undetermined"
    elif faithful != "pass":
        name = "unfaithful" if faithful == "fail" else "undetermined"
    else:
        name = {0.5: "feature learning, diverse", 0.0: "feature learning, redundant", None: "undetermined"}[exponent]
    return verdicts, name, exponent


def _exceeds(slope: Slope, tolerance: float) -> str:
    """Whether a slope is above the tolerance."""
    if slope.low > tolerance:
        return "pass"
    return "fail" if slope.high < tolerance else "undetermined"


def _no(verdict: str) -> str:
    return {"pass": "fail", "fail": "pass"}.get(verdict, verdict)


def _all_of(*verdicts: str) -> str:
    return "fail" if "fail" in verdicts else "undetermined" if "undetermined" in verdicts else "pass"


def _said(slopes: dict[str, Slope], *names: str) -> str:
    return "; ".join(f"{QUANTITIES[name]}: {slopes[name].value:+.2f} ± {slopes[name].error:.2f}" for name in names)


def _quantities(form: Form, network: Trained) -> dict[str, Any]:
    before_outputs, before = forward_levels(form, network.initial, network.factors, network.inputs)
    outputs, after = forward_levels(form, network.final, network.factors, network.inputs)
    change = network.final.blocks[:, 0] - network.initial.blocks[:, 0]
    seen = normalise(form.normalisation, before[:-1])
    pushed = jax.vmap(lambda matrix, x: x @ matrix.T)(change, seen)
    return {
        "features": jnp.square(before[-1]).mean(),
        "initial_variation": quadratic_variation(before),
        "feature_change": jnp.sqrt(jnp.square(after[-1] - before[-1]).mean()),
        "output_change": jnp.sqrt(jnp.square(outputs - before_outputs).mean()),
        "block_change": jnp.sqrt(jnp.square(pushed).mean()),
        "variation": quadratic_variation(after),
    }
