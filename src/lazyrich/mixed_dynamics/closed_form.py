"""The law for ``C = 1/2 |A - T|^2`` from A(0) = 0, solved mode by mode (docs/theory/two-layer.md)."""

from __future__ import annotations

import numpy as np


def _angle(value: np.ndarray, strength: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """``ln Phi`` at the value s: ``ln((z - z-)/(z+ - z))`` with ``z = exp(asinh(s/s0))``.

    With z = exp(x), z+ = exp(x+) and z- = -exp(-x+), ``x+ = asinh(a/s0)``, it is
    ``x - x+ + ln(1 + exp(-x - x+)) - ln(1 - exp(x - x+))``, written so that nothing large is subtracted.
    """
    position, end = np.arcsinh(value / threshold), np.arcsinh(strength / threshold)
    return position - end + np.log1p(np.exp(-position - end)) - np.log(-np.expm1(position - end))


def singular_value_at(
    time: np.ndarray, strength: np.ndarray, threshold: np.ndarray, start: np.ndarray | float = 0.0
) -> np.ndarray:
    """s(t) of ``ds/dt = 2 sqrt(s^2 + s0^2) (a - s)``.

    Parameters
    ----------
    time : ndarray
    strength : ndarray
        a, the target's singular value; 0 is allowed.
    threshold : ndarray
        s0 > 0.
    start : ndarray
        s(0), below a.

    Returns
    -------
    ndarray, of the arguments' common shape
    """
    time, strength, threshold, start = np.broadcast_arrays(time, strength, threshold, np.asarray(start, float))
    root = np.hypot(strength, threshold)
    end = np.arcsinh(strength / threshold)
    # Phi(t) = Phi(0) exp(2 rho t); z = (z- + z+ Phi)/(1 + Phi), and s = s0 sinh(ln z)
    with np.errstate(over="ignore", divide="ignore"):  # a = 0 has no way to go: ln Phi is infinite
        growth = _angle(start, strength, threshold) + 2.0 * root * time
        # a - s and not s is small late, and s is small early: the shorter of the two forms is used
        late = np.exp(-np.abs(growth))
        above = np.where(growth > 0, 1.0, late)  # Phi / max(Phi, 1)
        below = np.where(growth > 0, late, 1.0)
        logarithm = np.log1p(
            (np.exp(end) - 1.0) * above / (above + below) - (1.0 + np.exp(-end)) * below / (above + below)
        )
    return threshold * np.sinh(logarithm)


def time_to_reach(
    value: np.ndarray, strength: np.ndarray, threshold: np.ndarray, start: np.ndarray | float = 0.0
) -> np.ndarray:
    """The time at which s(t) reaches a value below a: infinite where it never does, 0 where it starts above."""
    value, strength, threshold, start = np.broadcast_arrays(value, strength, threshold, np.asarray(start, float))
    reached = (value < strength) & (start < strength)
    safe = np.where(reached, value, 0.5 * strength)
    with np.errstate(invalid="ignore", divide="ignore"):
        begin = np.where(reached, start, 0.0)
        time = (_angle(safe, strength, threshold) - _angle(begin, strength, threshold)) / (
            2.0 * np.hypot(strength, threshold)
        )
    return np.where(start >= value, 0.0, np.where(reached, time, np.inf))
