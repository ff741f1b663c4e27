"""Averages of finitely many networks, and bias and variances, from the curves of infinite averages."""

from __future__ import annotations

from typing import Literal

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.trajectory import Trajectory


def average_loss(
    trajectory: Trajectory,
    networks: int,
    over: Literal["initialisations", "data", "both"] = "initialisations",
    part: Literal["train", "test"] = "test",
) -> np.ndarray:
    """The loss of the average of so many networks' outputs, shape (steps,).

    Networks are exchangeable: with L the loss of one and S that of infinitely many, it is ``S + (L - S) / networks``.

    Parameters
    ----------
    trajectory : Trajectory
        Of :func:`lazyrich.predict_averages` or :func:`lazyrich.train_averages`.
    networks : int
        How many, at least 1.
    over : str
        What the networks differ in: ``"initialisations"``, ``"data"`` or ``"both"``.
    part : str
        ``"train"`` or ``"test"``.

    Raises
    ------
    LazyrichError
        When there is no such curve, or `networks` is below 1.
    """
    if networks < 1:
        raise LazyrichError("networks", f"{networks} networks have no average", "give at least 1")
    loss, shared = _curve(trajectory, f"{part}_loss"), _curve(trajectory, f"{part}_loss_over_{over}")
    return shared + (loss - shared) / networks


def variance_parts(trajectory: Trajectory) -> dict[str, np.ndarray]:
    """Where the test loss comes from: a sum of bias and variances.

    Parameters
    ----------
    trajectory : Trajectory
        Of :func:`lazyrich.predict_averages` or :func:`lazyrich.train_averages`.

    Returns
    -------
    dict of ndarray, each of shape (steps,)
        ``bias``, what no averaging removes; ``initialisation`` and ``data``, what averaging over that alone removes
        from networks already averaged over the other; ``interaction``, what averaging over either removes. Where
        training samples are not random, ``bias`` and ``initialisation`` only.

    Raises
    ------
    LazyrichError
        When there is no test loss.
    """
    loss, same_data = _curve(trajectory, "test_loss"), _curve(trajectory, "test_loss_over_initialisations")
    if "test_loss_over_both" not in trajectory.data:
        return {"bias": same_data, "initialisation": loss - same_data}
    same_start, bias = _curve(trajectory, "test_loss_over_data"), _curve(trajectory, "test_loss_over_both")
    return {
        "bias": bias,
        "initialisation": same_start - bias,
        "data": same_data - bias,
        "interaction": loss - same_start - same_data + bias,
    }


def _curve(trajectory: Trajectory, name: str) -> np.ndarray:
    if name not in trajectory.data:
        what = f"the result has no {name.replace('_', ' ')}"
        remedy = "use predict_averages or train_averages, on data that have such a loss"
        raise LazyrichError("average", what, remedy)
    return trajectory.data[name].values
