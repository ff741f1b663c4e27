"""The textbook way to solve the equations: guess all kernels, compute them anew, repeat.

An independent check of the one-pass solver and the measure of its speed. It shares no code with it beyond the limit's
numbers: every mode is kept, fields of all levels are solved as one linear system when there are skips, inverses are
dense. One output. It converges only in mild settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Guess:
    """Kernels of the hidden levels (levels, T, T) and of the data level (T, T)."""

    features: np.ndarray  # H
    gradients: np.ndarray  # G
    feature_response: np.ndarray  # dh/d(source of g)
    gradient_response: np.ndarray  # dg/d(source of h)
    weight_error: np.ndarray  # C_v
    sample_error: np.ndarray  # C_Delta
    data_gradient: np.ndarray  # C_u
    data_response: np.ndarray  # R_D
    cross_response: np.ndarray  # du/dxi


def first_guess(limit):
    steps, levels = limit.steps, limit.blocks + 1
    many, one = np.zeros((levels, steps, steps)), np.zeros((steps, steps))
    ones = np.ones_like(one)
    return Guess(many + 1.0, many + 1.0, many, many, ones, ones, ones, np.eye(steps), one)


def sweep(limit, guess):
    """All kernels from the equations, with the old ones on the right."""
    kappa, levels = np.sqrt(limit.richness_squared), limit.blocks + 1
    gains, decays = [m.gain for m in limit.memories], [m.decay for m in limit.memories]
    initial = [v * np.outer(d, d) for v, d in zip(limit.variances, decays, strict=True)]
    square = limit.branch**2
    inverse_scale = np.sqrt(limit.inverse_scale_squared)  # 1/gamma; nu = (gamma/kappa)^2
    P = [kappa * inverse_scale * np.sqrt(limit.variances[0]) * decays[0][:, None] * guess.cross_response
         + kappa * gains[0] * guess.data_gradient]  # fmt: skip
    chi = [initial[0] * guess.data_gradient]
    Q, xi = [], []
    for level in range(1, levels):
        P.append(square * (initial[level] * guess.feature_response[level - 1]
                           + kappa * gains[level] * guess.features[level - 1]))  # fmt: skip
        chi.append(square * initial[level] * guess.features[level - 1])
        Q.append(square * (initial[level] * guess.gradient_response[level]
                           + kappa * gains[level] * guess.gradients[level]))  # fmt: skip
        xi.append(square * initial[level] * guess.gradients[level])
    Q.append(kappa * gains[-1])
    xi.append(initial[-1])
    hidden = _hidden_with_skips if limit.skip else _hidden_plain
    features, gradients, feature_response, gradient_response = hidden(limit, P, Q, chi, xi)
    data = _data(limit, kappa, initial[0], gains[0], decays[0], gradients[0], gradient_response[0], guess)
    return Guess(features, gradients, feature_response, gradient_response, *data)


def _hidden_plain(limit, P, Q, chi, xi):
    """Without skips every level is on its own: h = chi + P g, g = xi + Q h."""
    eye = np.eye(limit.steps)
    results = []
    for p, q, chi_cov, xi_cov in zip(P, Q, chi, xi, strict=True):
        Z, Y = np.linalg.inv(eye - p @ q), np.linalg.inv(eye - q @ p)
        results.append((Z @ (chi_cov + p @ xi_cov @ p.T) @ Z.T, Y @ (xi_cov + q @ chi_cov @ q.T) @ Y.T, Z @ p, Y @ q))
    return [np.stack(parts) for parts in zip(*results, strict=True)]


def _hidden_with_skips(limit, P, Q, chi, xi):
    """All fields of all levels as one linear system, order h^0 g^0 h^1 g^1 ..: no cascade."""
    steps, levels = limit.steps, limit.blocks + 1
    eye = np.eye(steps)
    coupling, source = np.zeros((2, 2 * levels * steps, 2 * levels * steps))
    part = [slice(i * steps, (i + 1) * steps) for i in range(2 * levels)]
    for level in range(levels):
        h, g = part[2 * level], part[2 * level + 1]
        coupling[h, g], source[h, h] = P[level], chi[level]
        coupling[g, h], source[g, g] = Q[level], xi[level]
        if level > 0:
            coupling[h, part[2 * level - 2]] = limit.skip * eye
        if level + 1 < levels:
            coupling[g, part[2 * level + 3]] = limit.skip * eye
    response = np.linalg.inv(np.eye(len(coupling)) - coupling)
    covariance = response @ source @ response.T
    h, g = part[0::2], part[1::2]
    return [
        np.stack([covariance[i, i] for i in h]),
        np.stack([covariance[i, i] for i in g]),
        np.stack([response[i, j] for i, j in zip(h, g, strict=True)]),
        np.stack([response[i, j] for i, j in zip(g, h, strict=True)]),
    ]


def _data(limit, kappa, initial, gain, decay, gradients, gradient_response, guess):
    steps, eye, ones = limit.steps, np.eye(limit.steps), np.ones((limit.steps, limit.steps))
    noise = float(limit.noise[0, 0]) * ones
    a = np.sqrt(limit.variances[0] * limit.inverse_scale_squared)
    kernel = initial * gradient_response / kappa + gain * gradients
    fluctuation = a**2 * np.outer(decay, decay) * gradients
    R, phi = eye, np.zeros((steps, steps))
    if limit.mode == "full-batch":
        R, phi = guess.data_response, guess.sample_error / limit.sample_ratio
    elif limit.mode == "online":
        phi = np.diag(np.diag(guess.weight_error + noise)) / limit.sample_ratio
    weight_error, data_gradient, cross, memory = np.zeros((4, steps, steps))
    modes, power = limit.data.modes, limit.data.target_vectors[:, 0] ** 2
    if len(power) != len(modes.points):  # isotropic data: one node, one target
        raise ValueError("one target entry per mode is expected")
    for point, weight, target in zip(modes.points, modes.weights, power, strict=True):
        V = np.linalg.inv(eye + point * kernel @ R)
        A = eye - point * R @ V @ kernel
        target_part = target * ones
        weight_error += point * V @ (target_part + weight * (fluctuation + point * kernel @ phi @ kernel.T)) @ V.T
        J = R @ V
        data_gradient += point**2 * J @ (target_part + weight * fluctuation) @ J.T + weight * point * A @ phi @ A.T
        cross -= weight * a * point * J * decay
        memory -= weight * point * V @ kernel
    if limit.mode == "full-batch":
        R = np.linalg.inv(eye - memory / limit.sample_ratio)
        sample_error = R @ (weight_error + noise) @ R.T
    else:
        sample_error = weight_error + noise
    return weight_error, sample_error, data_gradient, R, cross


def iterate(limit, tolerance=1e-13, sweeps=400):
    """Undamped iteration until the losses stand still; raises if they do not."""
    guess = first_guess(limit)
    for _ in range(sweeps):
        before = guess
        guess = sweep(limit, guess)
        change = np.max(np.abs(guess.weight_error - before.weight_error)) / guess.weight_error[0, 0]
        if not np.isfinite(change):
            break
        if change < tolerance and np.allclose(guess.features, before.features, rtol=tolerance, atol=tolerance):
            return guess
    raise ArithmeticError("the fixed-point iteration did not converge")
