"""How much of a block's change is beyond first order in its weights: lazy or not inside the block.

Under Depth-muP the weights of one block move less and less with depth, so that a block of two layers ends up linear in
its own change, as lazy as a kernel, although the whole network learns features; under CompleteP it does not. The
measure is ``rms(change - linearisation) / rms(change)`` of what the blocks give at fixed inputs. It goes as
``L^-gamma`` for smooth nonlinearities, and as ``L^(-gamma/2)`` for kinked ones: a share ``L^-gamma`` of the units
crosses the kink, and each of them is off by as much as it has moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lazyrich.simulation.residual.network import Form, branch_value, forward_levels
from lazyrich.simulation.residual.probe import Probe, Trained, measure
from lazyrich.simulation.residual.slopes import Slope, fit_slope


def second_order_fraction(
    probe: Probe, points: Sequence[tuple[float, float]], depths: Sequence[int] = (8, 16, 32, 64, 128)
) -> tuple[np.ndarray, list[Slope]]:
    """The second-order part of the blocks' change, and its slope in depth.

    Parameters
    ----------
    probe : Probe
        Usually with ``block_layers=2``.
    points : sequence of (alpha, gamma)
    depths : sequence of int

    Returns
    -------
    fractions : ndarray, shape (points, depths, seeds)
    slopes : list of Slope
        One per point.
    """
    found = np.stack([measure(probe, blocks, points, _fraction)["fraction"] for blocks in depths], axis=1)
    return found, [fit_slope(depths, values) for values in found]


def _fraction(form: Form, network: Trained) -> dict[str, Any]:
    """Over all blocks, at the inputs that they have at initialisation."""
    _, levels = forward_levels(form, network.initial, network.factors, network.inputs)

    def of_block(before: Any, after: Any, x: Any) -> tuple[Any, Any]:
        value, linear = jax.jvp(
            lambda matrices: branch_value(form, matrices, network.factors, x), (before,), (after - before,)
        )
        change = branch_value(form, after, network.factors, x) - value
        return jnp.square(change - linear).mean(), jnp.square(change).mean()

    beyond, whole = jax.vmap(of_block)(network.initial.blocks, network.final.blocks, levels[:-1])
    return {"fraction": jnp.sqrt(beyond.mean() / whole.mean())}
