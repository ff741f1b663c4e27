"""Feature diversity: how much neighbouring layers differ, by quadratic variation over depth.

If features differ from layer to layer like a random walk, ``|x_(l + e L) - x_l| ~ e^(1/2)`` (kappa = 1/2, diverse); if
they are smooth in depth, ``~ e`` (kappa = 0, redundant). At initialisation every residual network is a random walk in
depth, whatever its branch factor: a log-log fit of the distance against e then reads 1/2 for all of them. What depends
on the depth rule is the walk's size, and with it the quadratic variation ``QV(L) = sum_l |x_l - x_(l-1)|^2 / n``, which
goes as ``L^(1 - 2 alpha)``: only where that slope is 0 does the walk survive in the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from lazyrich.simulation.residual.network import Form, forward_levels
from lazyrich.simulation.residual.probe import Probe, Trained, measure
from lazyrich.simulation.residual.slopes import Slope, fit_slope

# Between the slopes 0 of alpha = 1/2 and -1/2 of alpha = 3/4. The exponents between are not resolved.
_DIVERSE, _REDUNDANT = -0.2, -0.4


@dataclass(frozen=True)
class Diversity:
    """The quadratic variation of one depth rule over depth.

    Attributes
    ----------
    alpha, gamma : float
    initial, trained : Slope
        Before and after training; ``1 - 2 alpha`` is expected.
    naive : float
        The exponent that the plain log-log fit reads at initialisation: 1/2 for every alpha.
    """

    alpha: float
    gamma: float
    initial: Slope
    trained: Slope
    naive: float

    @property
    def exponent(self) -> float | None:
        """The diversity exponent kappa after training, 1/2 or 0; None if it cannot be told."""
        return diversity_exponent(self.trained)


def diversity_exponent(slope: Slope) -> float | None:
    """1/2 if the quadratic variation keeps its size as depth grows, 0 if it vanishes, None if that is not resolved."""
    if slope.low > _DIVERSE:
        return 0.5
    return 0.0 if slope.high < _REDUNDANT else None


def quadratic_variation(levels: Any) -> Any:
    """``sum_l |x_l - x_(l-1)|^2 / n``, mean over samples, of levels of shape (L + 1, P, N)."""
    return jnp.square(jnp.diff(levels, axis=0)).mean(axis=(1, 2)).sum()


def naive_exponent(levels: Any) -> Any:
    """The exponent p of ``|x_(l + e L) - x_l| ~ e^p`` by a log-log fit, of levels of shape (L + 1, P, N).

    Kept to show why it misleads: at initialisation it reads 1/2 whatever the branch factor, see
    :func:`quadratic_variation` for what does not.
    """
    blocks = levels.shape[0] - 1
    spans = np.unique(2 ** np.arange(int(np.log2(max(blocks, 2)))))
    distances = [jnp.square(levels[span:] - levels[:-span]).mean() for span in spans]
    position = np.log(spans) - np.log(spans).mean()
    if len(spans) < 2:
        return jnp.nan * distances[0]
    return position @ (0.5 * jnp.log(jnp.stack(distances))) / (position @ position)


def measure_diversity(
    probe: Probe, points: Sequence[tuple[float, float]], depths: Sequence[int] = (16, 32, 64, 128)
) -> list[Diversity]:
    """Quadratic variation over depth, before and after training, for some depth rules (alpha, gamma)."""
    found = [measure(probe, blocks, points, _quantities) for blocks in depths]
    return [
        Diversity(
            alpha,
            gamma,
            fit_slope(depths, np.stack([each["initial"][index] for each in found])),
            fit_slope(depths, np.stack([each["trained"][index] for each in found])),
            float(found[-1]["naive"][index].mean()),
        )
        for index, (alpha, gamma) in enumerate(points)
    ]


def _quantities(form: Form, network: Trained) -> dict[str, Any]:
    _, before = forward_levels(form, network.initial, network.factors, network.inputs)
    _, after = forward_levels(form, network.final, network.factors, network.inputs)
    return {
        "initial": quadratic_variation(before),
        "trained": quadratic_variation(after),
        "naive": naive_exponent(before),
    }
