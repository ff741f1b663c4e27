"""The limit of infinitely many small linear blocks, alpha = 1: an ordinary differential equation in depth.

With alpha > 1/2 and alpha + gamma = 1 the random part of the blocks vanishes in the limit, and at infinite width all
that is left of the initial network are orthonormal directions: one per input mode, one per output. The dynamics stay in
their span: training is that of one small network without any randomness whose blocks start at 0 (docs/theory/depth.md,
"alpha = 1"). In depth it is solved by collocation at Gauss points, which is exact to order 2 n and has the exact
gradient of what it solves. It shares no formula with the cascade.
"""

from __future__ import annotations

import math

import numpy as np

from lazyrich.errors import LazyrichError
from lazyrich.problem import Problem, output_scale
from lazyrich.problem.problem import DIVERGENCE_FACTOR
from lazyrich.problem.spectrum import find_modes
from lazyrich.theory.deep_linear.limit import limit_mode

_LARGEST_SYSTEM = 6000  # unknowns; a matrix of this size takes 0.3 GiB


def solve_depth_ode(problem: Problem, nodes: int = 8) -> np.ndarray:
    """Train loss of the linear network of infinite width and depth with alpha = 1, gamma = 0, shape (steps done,).

    Parameters
    ----------
    problem : Problem
        At the base depth, with skip 1, on fixed data: a data set, or population mode. Its width is not used; branch and
        rate of the blocks enter as ``base blocks x branch^2 x rate``, their initial size not at all.
    nodes : int
        Gauss points in depth. The error falls like that of a Gauss rule: compare two numbers of them.

    Returns
    -------
    ndarray, shape (steps done,)
        Ends before the step at which the loss exceeds 10^6 times its initial value or cannot be calculated with.

    Raises
    ------
    LazyrichError
        For other data, a network without skips, the NTK parametrization (lazy at infinite width), or too many modes.
    """
    network, training = problem.network, problem.training
    if network.blocks == 0 or network.skip != 1.0:
        raise LazyrichError("network", "an equation in depth needs blocks and skip 1", "set blocks, and skip = 1.0")
    if limit_mode(problem) != "population":
        raise LazyrichError("training.mode", "the data must be fixed", "give kind = 'dataset', or mode = 'population'")
    if training.parametrization != "mup":
        raise LazyrichError("training.parametrization", "is lazy at infinite width", "set it to 'mup'")
    modes = find_modes(problem.data)
    kept = modes.eigenvalues > 0
    eigenvalues, targets = modes.eigenvalues[kept], modes.targets[kept]
    count, outputs = targets.shape
    size = count + outputs
    if nodes < 1 or size * nodes > _LARGEST_SYSTEM:
        what = f"{size} directions at {nodes} nodes are more than {_LARGEST_SYSTEM} unknowns"
        raise LazyrichError("nodes", what, "use fewer nodes, or depth_limit")
    dimension = len(modes.eigenvalues)
    richness = math.sqrt(output_scale(problem, dimension)[0])
    stds, decays = network.init_stds, training.weight_decays(network.blocks)
    rates = training.rates(network.blocks)
    strength = network.blocks * network.branch_multiplier**2

    # What is left of the weights: input (size, modes), blocks (nodes, size, size), output (outputs, size).
    weights = [
        stds[0] * np.eye(size, count),
        np.zeros((nodes, size, size)),
        stds[-1] * np.eye(size)[count:],
    ]
    buffers = [np.zeros_like(weight) for weight in weights]
    layers = (0, 1, -1)
    forwards, backwards, quadrature = _collocation(nodes)
    losses: list[float] = []
    for step in range(training.steps):
        back, first_gradient = _solve(backwards, weights[1].transpose(0, 2, 1), quadrature, weights[2].T)
        error = targets - math.sqrt(dimension) / richness * weights[0].T @ first_gradient  # beta* - beta
        loss = (np.sum(eigenvalues[:, None] * error**2) / dimension + np.trace(modes.noise)) / outputs
        if not loss <= DIVERGENCE_FACTOR * (losses[0] if losses else np.inf):
            break
        losses.append(float(loss))
        pulled = eigenvalues[:, None] * error
        features, last = _solve(forwards, weights[1], quadrature, weights[0] @ pulled / math.sqrt(dimension))
        dyads = [
            richness / math.sqrt(dimension) * first_gradient @ pulled.T,
            richness * strength * back @ features.transpose(0, 2, 1),
            richness * last.T,
        ]
        for weight, buffer, dyad, layer in zip(weights, buffers, dyads, layers, strict=True):
            buffer *= training.momentum
            buffer += decays[layer] * weight - dyad
            weight -= rates[layer][step] * buffer
    return np.array(losses)


def _collocation(nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integration from 0 up to each Gauss point on [0, 1], from 1 down to each, and over all of it.

    Returns
    -------
    forwards, backwards : ndarray, shape (nodes, nodes)
    quadrature : ndarray, shape (nodes,)
    """
    legendre = np.polynomial.legendre
    points, weights = legendre.leggauss(nodes)
    # The interpolating polynomial in Legendre's basis, whose coefficients are sums over the Gauss points, integrated.
    degrees = np.arange(nodes)
    coefficients = (degrees + 0.5)[:, None] * legendre.legvander(points, nodes - 1).T * weights
    forwards = legendre.legval(points, legendre.legint(coefficients, lbnd=-1.0, axis=0)).T / 2
    return forwards, weights / 2 - forwards, weights / 2


def _solve(
    integration: np.ndarray, matrices: np.ndarray, quadrature: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Solve ``x' = A x`` across the depth: x at the nodes (nodes, size, columns) and at the far end (size, columns)."""
    nodes, size = len(quadrature), len(start)
    coupled = integration[:, None, :, None] * matrices.transpose(1, 0, 2)[None]
    system = np.eye(nodes * size) - coupled.reshape(nodes * size, nodes * size)
    values = np.linalg.solve(system, np.tile(start, (nodes, 1))).reshape(nodes, size, -1)
    return values, start + np.einsum("n,nij,njk->ik", quadrature, matrices, values)
