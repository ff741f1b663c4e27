"""What theory says of a depth rule (alpha, gamma), property by property: what the class is made of."""

from __future__ import annotations

from dataclasses import dataclass

from lazyrich.problem.rules import classify

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Property:
    """One property of a depth rule: whether it holds, and the condition that decides."""

    name: str
    holds: bool
    condition: str


def properties(alpha: float, gamma: float) -> list[Property]:
    """Stable, nontrivial, faithful and feature learning, for one-layer blocks and a normalised optimiser.

    Raises
    ------
    LazyrichError
        For what is not an exponent.

    Examples
    --------
    >>> [each.name for each in properties(1.25, -0.25) if not each.holds]
    ['faithful']
    """
    classify(alpha, gamma)  # refuses what is not an exponent
    surplus = alpha + gamma - 1.0
    stable, moves = alpha > 0.5 - _ROUNDING and surplus > -_ROUNDING, surplus < _ROUNDING
    return [
        Property("stable", stable, "alpha >= 1/2 and alpha + gamma >= 1"),
        Property("nontrivial", moves, "alpha + gamma <= 1"),
        Property("faithful", gamma > -_ROUNDING, "gamma >= 0"),
        Property("feature learning", stable and moves, "alpha >= 1/2 and alpha + gamma = 1"),
    ]


def expected_slopes(alpha: float, gamma: float) -> dict[str, float]:
    """The powers of depth of a stable rule, by the names of the measured ones.

    L independent branches of size ``L^-alpha`` have the quadratic variation ``L^(1 - 2 alpha)``; L aligned changes of
    size ``L^-alpha L^-gamma`` add up to ``L^(1 - alpha - gamma)``. Where a rule is unstable these are the powers of the
    first step, and later ones are steeper.
    """
    change = 1.0 - alpha - gamma
    return {
        "features": 0.0,
        "initial_variation": 1.0 - 2.0 * alpha,
        "feature_change": change,
        "output_change": change,
        "block_change": -gamma,
        "variation": 1.0 - 2.0 * alpha,
    }
